"""Quantises a GGUF file with llama.cpp's quantiser, and prints the cost. bench/quantised.py runs it.

    build/peers/llama.cpp/bin/python bench/llama_quantise.py IN.gguf OUT.gguf TYPE THREADS

All matrices whose rows are whole blocks of the type get it, and the embedding gets Q8_0, like `penstock quantize` with
rows of 576. llama.cpp's mixtures of types are not used. Prints {"seconds", "cpu_s", "memory_bytes"}: the time of the
call, and the difference between the largest memory of the process and the memory before.
"""
import ctypes
import json
import os
import sys
import time

import llama_cpp as lib

TYPES = {"q8_0": lib.LLAMA_FTYPE_MOSTLY_Q8_0, "q4_0": lib.LLAMA_FTYPE_MOSTLY_Q4_0, "q4_1": lib.LLAMA_FTYPE_MOSTLY_Q4_1,
         "q5_0": lib.LLAMA_FTYPE_MOSTLY_Q5_0, "q5_1": lib.LLAMA_FTYPE_MOSTLY_Q5_1, "q4_k": lib.LLAMA_FTYPE_MOSTLY_Q4_K_S,
         "q6_k": lib.LLAMA_FTYPE_MOSTLY_Q6_K}
Q8_0 = 8  # the number of this tensor type


@lib.llama_log_callback
def silent(_level, _text, _data):
    pass


def status_bytes(name):
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(name + ":"))


def main():
    source, out, kind, threads = sys.argv[1:]
    lib.llama_log_set(silent, None)
    parameters = lib.llama_model_quantize_default_params()
    parameters.ftype, parameters.nthread, parameters.pure = TYPES[kind], int(threads), True
    parameters.token_embedding_type = Q8_0
    before, began, cpu = status_bytes("VmRSS"), time.perf_counter(), time.process_time()
    if lib.llama_model_quantize(os.fsencode(source), os.fsencode(out), ctypes.byref(parameters)):
        raise SystemExit(f"llama_quantise.py: llama.cpp could not make {out}")
    print(json.dumps({"seconds": time.perf_counter() - began, "cpu_s": time.process_time() - cpu,
                      "memory_bytes": status_bytes("VmHWM") - before}))


main()
