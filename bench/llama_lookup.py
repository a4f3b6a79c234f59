"""llama.cpp's prompt lookup, in its Python library; bench/speculation.py runs it with the peer's Python.

Reads {"model", "threads", "cpu", "n_out", "repeats", "prompts": {name: ids}} from standard input. For each name it
writes the seconds without and with lookup and their ratio, from the best repeat of each.
"""
import json
import sys
import time

import llama_cpp
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding


def seconds(clock, model, ids, n_out):
    """Returns the seconds of decoding, without the prompt's pass."""
    began, n = None, 0
    for _ in model.generate(ids, temp=0, top_k=1, reset=True):
        n += 1
        if began is None:
            began = clock()
        if n > n_out:
            return clock() - began


def main():
    asked = json.load(sys.stdin)
    clock = time.process_time if asked["cpu"] else time.perf_counter
    found = {name: {} for name in asked["prompts"]}
    for kind in ("without", "with"):
        lookup = LlamaPromptLookupDecoding(max_ngram_size=3, num_pred_tokens=10) if kind == "with" else None
        model = llama_cpp.Llama(asked["model"], n_ctx=2048, n_threads=asked["threads"], n_threads_batch=asked["threads"],
                                draft_model=lookup, logits_all=lookup is not None, verbose=False)
        for name, ids in asked["prompts"].items():
            found[name][kind] = min(seconds(clock, model, ids, asked["n_out"]) for _ in range(asked["repeats"]))
    for times in found.values():
        times["ratio"] = times["without"] / times["with"]
    print(json.dumps(found))


main()
