"""The peer llama.cpp: its worker process (bench/llama_worker.py), and the settings that are fastest for each work."""
import itertools
import os
import time

import direct


def is_installed():
    return os.path.exists(direct.python_of("llama.cpp"))


def settings(work, flash, ubatch, batch, unified, threads):
    """A context just large enough for the work: a larger one would cost time."""
    sequences = len(work.queues(0)) + (1 if work.shared else 0)
    each = -(-(work.n_in + work.n_out) // 256) * 256
    return {"n_ctx": each * sequences, "n_seq_max": sequences, "n_batch": batch, "n_ubatch": ubatch,
            "n_threads": threads, "n_threads_batch": threads, "flash_attn_type": flash, "kv_unified": unified}


def candidates(work, threads):
    """Settings worth trying. Sharing a prefix between sequences needs the unified cache."""
    many = len(work.queues(0)) > 1
    batches = (512, 2048) if work.queue_length > 1 and many else (2048,)
    ubatches = (128, 512) if work.n_in > 64 and not many else (512,)
    unified = (True,) if work.shared or not many else (False, True)
    for flash, ubatch, batch, one in itertools.product((0, 1), ubatches, batches, unified):
        yield settings(work, flash, ubatch, batch, one, threads)


class Llama(direct.Side):
    """llama.cpp as one side of a comparison."""

    name = "llama.cpp"

    def __init__(self, threads, is_tuned=True):
        self.threads, self.is_tuned = threads, is_tuned
        self.worker = direct.Worker("llama.cpp", "llama_worker.py")
        self.chosen = {}

    def load(self, model):
        self.chosen = {}
        return self.worker.ask("load", model=model)["system"]

    def prepare(self, work):
        """Finds the fastest settings for a work, on a short form of it, and uses them."""
        if work.name not in self.chosen:
            tried = list(candidates(work, self.threads)) if self.is_tuned else []
            best = min(tried, key=lambda s: self.try_settings(work, s), default=None)
            self.chosen[work.name] = best or settings(work, 1, 512, 2048, bool(work.shared), self.threads)
        self.worker.ask("context", **self.chosen[work.name])
        return self.chosen[work.name]

    def try_settings(self, work, candidate):
        """Seconds of a short run; of a second run, if the first is so short that starting up matters."""
        self.worker.ask("context", **candidate)
        short = work.shortened()
        for i in range(2):
            start = time.perf_counter()
            self.run(short, i)
            seconds = time.perf_counter() - start
            if seconds > 2:
                break
        return seconds
