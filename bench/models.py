"""Makes the other file types for the bench from the default model, with llama.cpp's own quantiser.

    build/peers/llama.cpp/bin/python bench/models.py [--model models/NAME.gguf] [--out build/bench-models] [TYPE ...]

The source is itself quantised (Q4_1), so these files show a type's speed, not its quality; accuracy is measured against
float32 arithmetic on the same file. A matrix whose row length is not a multiple of 256 cannot have a K-type; llama.cpp then
uses Q5_0 or Q8_0. So with rows of 576, only the matrices with rows of 1,536 (ffn_down) become Q4_K and Q6_K. The script
prints the resulting types.
"""
import argparse
import collections
import ctypes
import os

import llama_cpp as lib

TYPES = {"Q4_0": lib.LLAMA_FTYPE_MOSTLY_Q4_0, "Q8_0": lib.LLAMA_FTYPE_MOSTLY_Q8_0,
         "Q4_K_M": lib.LLAMA_FTYPE_MOSTLY_Q4_K_M, "BF16": lib.LLAMA_FTYPE_MOSTLY_BF16, "F16": lib.LLAMA_FTYPE_MOSTLY_F16}


@lib.llama_log_callback
def keep_types(_level, text, _data):
    """Reads the quantiser's log, which has a line for each tensor, such as "... converting to q5_0 ..."."""
    line = text.decode(errors="replace")
    if "converting to" in line:
        converted[line.split("converting to")[1].split()[0]] += 1
    if "error" in line.lower():
        print(line, end="")


converted = collections.Counter()


def make(source, path, kind):
    parameters = lib.llama_model_quantize_default_params()
    parameters.ftype, parameters.allow_requantize, parameters.nthread = TYPES[kind], True, 2
    converted.clear()
    made = path + ".part"
    code = lib.llama_model_quantize(os.fsencode(source), os.fsencode(made), ctypes.byref(parameters))
    if code:
        raise SystemExit(f"models.py: llama.cpp could not make {path} (code {code})")
    os.rename(made, path)
    print(f"{path}: {os.path.getsize(path):,} bytes, {', '.join(f'{n} matrices {t}' for t, n in converted.most_common())}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("types", nargs="*", default=list(TYPES), metavar="TYPE", help=", ".join(TYPES))
    parser.add_argument("--model", default="models/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--out", default="build/bench-models")
    args = parser.parse_args()
    lib.llama_log_set(keep_types, None)
    os.makedirs(args.out, exist_ok=True)
    for kind in args.types:
        path = f"{args.out}/{kind}.gguf"
        if not os.path.exists(path):
            make(args.model, path, kind)


main()
