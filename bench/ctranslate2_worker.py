"""Runs CTranslate2's generator, without any server. bench/direct.py starts it with the peer's Python.

    {"do": "load", "model": FOLDER, "threads": N}     a folder that bench/ctranslate2_model.py wrote
    {"do": "prepare", "shared": S}                    does nothing: the generator's settings do not depend on the work
    {"do": "run", "queues": [[[ids], ...], ...], "n_out": N, "shared": S}
                                  a queue of prompts for each user; returns times, tokens
    {"do": "scores", "ids": [ids], "file": PATH}      the logits [len(ids)][V] as raw float32 in a file

It does not support continuous batching: the users' prompts are one batch, and the next batch begins when all are
answered. A common beginning of S tokens is passed as the "static prompt", whose state it keeps.
"""
import time

import ctranslate2
import numpy as np

import worker


class Worker:
    def load(self, model, threads):
        self.generator = ctranslate2.Generator(model, compute_type="int8", intra_threads=threads)
        return {}

    def prepare(self, shared):
        return {}

    def generate(self, prompts, n_out, shared):
        """One batch: its requests, with times from now on."""
        began = time.perf_counter()
        requests = [{"times": [], "tokens": []} for _ in prompts]

        def take(result):
            requests[result.batch_id]["times"].append(time.perf_counter() - began)
            requests[result.batch_id]["tokens"].append(result.token_id)
            return False

        words = [[str(id) for id in prompt] for prompt in prompts]
        common = {"static_prompt": words[0][:shared], "cache_static_prompt": True} if shared else {}
        self.generator.generate_batch([prompt[shared:] for prompt in words], max_length=n_out, end_token=[],
                                      include_prompt_in_result=False, callback=take, **common)
        return requests

    def run(self, queues, n_out, shared=0):
        began, done = time.perf_counter(), []
        for prompts in zip(*queues):
            start = time.perf_counter() - began
            for user, request in enumerate(self.generate(prompts, n_out, shared)):
                times = [start + t for t in request["times"]]
                done.append({"user": user, "start": start, "times": times, "tokens": request["tokens"]})
        return {"requests": done}

    def scores(self, ids, file):
        np.array(self.generator.forward_batch([ids]))[0].astype(np.float32).tofile(file)
        return {}


def main():
    one = Worker()
    worker.answer({"load": one.load, "prepare": one.prepare, "run": one.run, "scores": one.scores,
                   "memory": worker.memory})


main()
