"""Runs OpenVINO GenAI's continuous batching, without any server. bench/direct.py starts it with the peer's Python.

    {"do": "load", "model": PATH, "threads": N, "precision": "f32" or "bf16"}
                                  PATH is a GGUF file, or a folder that bench/openvino_model.py wrote
    {"do": "prepare", "shared": S}     a pipeline for a work; with S > 0 it keeps the keys and values of common beginnings
    {"do": "run", "queues": [[[ids], ...], ...], "n_out": N, "shared": S}
                                  a queue of prompts per user, each sent after the last answer; returns times, tokens
    {"do": "scores", "ids": [ids], "file": PATH}    the logits [len(ids)][V] as raw float32 in a file
"""
import os
import tempfile
import time

import numpy as np
import openvino
import openvino_genai

import worker

TOKENS_A_STEP = 2048


class Request:
    def __init__(self, user, start, handle):
        self.user, self.start, self.handle = user, start, handle
        self.times, self.tokens = [], []

    def take(self, now):
        """The tokens that a step has added."""
        while self.handle.can_read():
            for output in self.handle.read().values():
                self.tokens += output.generated_ids
                self.times += [now] * len(output.generated_ids)


class Loop:
    """Users in a closed loop over one pipeline."""

    def __init__(self, pipeline, queues, n_out):
        self.pipeline, self.queues, self.n_out = pipeline, [list(queue) for queue in queues], n_out
        self.config = openvino_genai.GenerationConfig()
        self.config.max_new_tokens, self.config.ignore_eos, self.config.do_sample = n_out, True, False
        self.running, self.done, self.sent = [], [], 0

    def now(self):
        return time.perf_counter() - self.began

    def send(self, user):
        if self.queues[user]:
            ids = openvino.Tensor(np.array([self.queues[user].pop(0)], np.int64))
            start = self.now()
            self.running.append(Request(user, start, self.pipeline.add_request(self.sent, ids, self.config)))
            self.sent += 1

    def run(self):
        self.began = time.perf_counter()
        for user in range(len(self.queues)):
            self.send(user)
        while self.running:
            self.pipeline.step()
            now = self.now()
            for request in list(self.running):
                request.take(now)
                if len(request.tokens) >= self.n_out:
                    self.running.remove(request)
                    self.done.append(request)
                    self.send(request.user)
        while self.pipeline.has_non_finished_requests():
            self.pipeline.step()
        return [{"user": r.user, "start": r.start, "times": r.times, "tokens": r.tokens} for r in self.done]


class Worker:
    def load(self, model, threads, precision):
        self.path = model
        self.properties = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": threads}
        self.pipelines, self.pipeline, self.request = {}, None, None
        return {}

    def open(self, is_shared):
        schedule = openvino_genai.SchedulerConfig()
        schedule.cache_size, schedule.max_num_seqs = 1, 32
        schedule.max_num_batched_tokens = TOKENS_A_STEP
        schedule.enable_prefix_caching = is_shared
        if not os.path.isdir(self.path):
            return openvino_genai.ContinuousBatchingPipeline(self.path, schedule, "CPU", self.properties)
        words = openvino_genai.Tokenizer(f"{self.path}/halves.gguf")
        return openvino_genai.ContinuousBatchingPipeline(self.path, words, schedule, "CPU", **self.properties)

    def prepare(self, shared):
        key = shared > 0
        if key not in self.pipelines:
            self.pipelines[key] = self.open(key)
        self.pipeline = self.pipelines[key]
        return {}

    def run(self, queues, n_out, shared=0):
        return {"requests": Loop(self.pipeline, queues, n_out).run()}

    def graph(self):
        """Returns the model's graph, which the pipeline writes next to a GGUF file."""
        if os.path.isdir(self.path):
            return openvino.Core().read_model(f"{self.path}/openvino_model.xml")
        with tempfile.TemporaryDirectory() as folder:
            link = os.path.join(folder, os.path.basename(self.path))
            os.symlink(self.path, link)
            schedule = openvino_genai.SchedulerConfig()
            openvino_genai.ContinuousBatchingPipeline(link, schedule, "CPU", {"enable_save_ov_model": True})
            return openvino.Core().read_model(f"{folder}/openvino_model.xml")

    def scores(self, ids, file):
        """The pipeline does not return logits, so the same graph is compiled without paged attention."""
        if not self.request:
            self.request = openvino.Core().compile_model(self.graph(), "CPU", self.properties).create_infer_request()
        n = len(ids)
        self.request.reset_state()
        inputs = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, n), np.int64),
                  "position_ids": np.arange(n)[None], "beam_idx": np.zeros(1, np.int32)}
        found = self.request.infer(inputs)
        np.ascontiguousarray(next(iter(found.values())), np.float32).tofile(file)
        return {}


def main():
    one = Worker()
    worker.answer({"load": one.load, "prepare": one.prepare, "run": one.run, "scores": one.scores,
                   "memory": worker.memory})


main()
