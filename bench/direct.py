"""Peers as libraries: each in a worker process that drives it directly, without a server, which is its best case.

llama.cpp has more settings: bench/llama.py.
"""
import json
import os
import subprocess
import tempfile

import machine

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = "build/peers"


def python_of(peer):
    return f"{FOLDER}/{peer}/bin/python"


class Worker:
    """A worker process, which answers one command at a time."""

    def __init__(self, peer, script, environment=None):
        self.peer, self.log = peer, tempfile.TemporaryFile()
        self.process = subprocess.Popen([python_of(peer), os.path.join(HERE, script)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        env={**os.environ, **(environment or {})})

    def last_words(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")[-2000:]

    def ask(self, do, **command):
        self.process.stdin.write(json.dumps({"do": do, **command}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.peer}'s process ended at \"{do}\" with code {self.process.wait()}: "
                               f"{self.last_words()}")
        result = json.loads(line)
        if "error" in result:
            raise RuntimeError(f"{self.peer}: {result['error']}")
        return result

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)


class Side:
    """A library as one side of a comparison, behind its `worker`."""

    def pids(self):
        return [self.worker.process.pid]

    def run(self, work, repeat):
        return self.worker.ask("run", queues=work.queues(repeat), n_out=work.n_out, shared=work.shared)["requests"]

    tokens = run

    def scores(self, ids, file):
        self.worker.ask("scores", ids=ids, file=file)

    def close(self):
        self.worker.close()


class Direct(Side):
    """A side with one model, whose `settings` go to the worker's "load"."""

    def __init__(self, name, worker, **settings):
        self.name, self.worker, self.settings = name, worker, settings
        self.worker.ask("load", **settings)

    def prepare(self, work):
        self.worker.ask("prepare", shared=work.shared)
        return self.settings


def openvino(name, model, threads, precision):
    return Direct(name, Worker("openvino", "openvino_worker.py"), model=os.path.abspath(model), threads=threads,
                  precision=precision)


def ctranslate2(name, model, threads):
    return Direct(name, Worker("ctranslate2", "ctranslate2_worker.py", {"OMP_NUM_THREADS": str(threads)}), model=model,
                  threads=threads)


def available(model, threads):
    """Returns the functions that make each installed side, by name. On a processor with instructions for bfloat16,
    OpenVINO computes in it by default: there it takes part twice, the second time in float32 as on all other
    processors."""
    sides = {}
    precisions = {"": "f32"}
    if machine.cpu_flags() & {"avx512_bf16", "amx_bf16"}:
        precisions = {"": "f32", " bf16": "bf16"}
    for suffix, precision in precisions.items():
        if os.path.exists(python_of("openvino")):
            files = {"openvino": model, "openvino int8": f"{FOLDER}/openvino/int8"}
            sides |= {name + suffix: (lambda n=name + suffix, f=file, p=precision: openvino(n, f, threads, p))
                      for name, file in files.items()}
    if os.path.exists(python_of("ctranslate2")):
        sides["ctranslate2"] = lambda: ctranslate2("ctranslate2", f"{FOLDER}/ctranslate2/model", threads)
    return sides
