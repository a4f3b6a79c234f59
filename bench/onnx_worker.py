"""Embeds texts with ONNX Runtime, without a server: its best case. bench/reading.py starts it with the peer's Python.

    {"do": "load", "model": PATH, "threads": N, "batch": N}   loads a model of bench/encoder_files.py; answers with the version
    {"do": "embed", "ids": [[...], ...]}                      embeds texts of one length, `batch` at a time; answers with the seconds
                                                              and the first embedding
"""
import time

import numpy as np
import onnxruntime

import worker

state = {}


def load(model, threads, batch):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    state["session"] = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    state["batch"] = batch
    return {"version": onnxruntime.__version__}


def embed(ids):
    rows = np.array(ids, np.int64)
    began = time.perf_counter()
    found = [state["session"].run(None, {"ids": rows[i:i + state["batch"]]})[0] for i in range(0, len(rows), state["batch"])]
    return {"seconds": time.perf_counter() - began, "first": found[0][0].tolist()}


if __name__ == "__main__":
    worker.answer({"load": load, "embed": embed, "memory": worker.memory})
