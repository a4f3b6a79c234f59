"""Embeds texts with llama.cpp, without a server: its best case. bench/reading.py starts it with the peer's Python.

    {"do": "load", "model": PATH, "threads": N, "n_batch": N}   loads the file; answers with the library's version. "pooling" may
                                                                be "mean" instead of "last"
    {"do": "embed", "texts": [...]}                             embeds the texts once; answers with the seconds and tokens
"""
import time

import llama_cpp

import worker

state = {}
POOLINGS = {"last": llama_cpp.LLAMA_POOLING_TYPE_LAST, "mean": llama_cpp.LLAMA_POOLING_TYPE_MEAN}


def load(model, threads, n_batch, pooling="last"):
    state["model"] = llama_cpp.Llama(model_path=model, embedding=True, n_ctx=n_batch, n_batch=n_batch, n_ubatch=n_batch, n_threads=threads,
                                     n_threads_batch=threads, pooling_type=POOLINGS[pooling], verbose=False)
    return {"version": llama_cpp.__version__}


def embed(texts):
    began = time.perf_counter()
    found, tokens = state["model"].embed(texts, normalize=True, return_count=True)
    return {"seconds": time.perf_counter() - began, "tokens": tokens, "first": found[0][:4]}


if __name__ == "__main__":
    worker.answer({"load": load, "embed": embed, "memory": worker.memory})
