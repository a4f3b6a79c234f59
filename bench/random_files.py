"""Makes models of random weights in build/bench-models, for types that the default model's rows of 576 do not fit.

    build/peers/llama.cpp/bin/python bench/random_files.py [--model models/NAME.gguf] [NAME ...]

Each is a llama of 24 layers with rows of 768 and 2,048 (some 135 million weights, like the default model) and that
model's tokenizer: a GGUF file whose layers have the type NAME, or the folder of a method. A type's embedding is Q8_0.
The embedding of folders, and of the file Q4_1-halves that they are compared with, is in halves. Weights are random
bytes under a fixed scale: such files show speed, not quality.
"""
import argparse
import json
import os
import struct

import numpy as np

import gguf_file
import hf_folder

L, K, F, H, G, D = 24, 768, 2048, 12, 4, 64
SHAPES = {"attn_q": (H * D, K), "attn_k": (G * D, K), "attn_v": (G * D, K), "attn_output": (K, H * D), "ffn_gate": (F, K),
          "ffn_up": (F, K), "ffn_down": (K, F)}
GROUP = 128  # for folders

# GGUF's number; weights and bytes of a block; the offset of its scale and the scale's size relative to weights of size
# 1; the same for its minimum. MXFP4 has the exponent of a power of two.
TYPES = {"Q2_K": (10, 256, 84, 80, 1 / 13.9, 82, 1.5 / 13.9), "Q3_K": (11, 256, 110, 108, 1 / 43.3, None, 0),
         "IQ4_NL": (20, 32, 18, 0, 1 / 67, None, 0), "IQ4_XS": (23, 256, 136, 0, 1 / 1246, None, 0),
         "MXFP4": (39, 32, 17, None, 1 / 2.9, None, 0), "Q4_1-halves": (3, 32, 20, 0, 1 / 4.6, 2, -7.5 / 4.6),
         "Q8_0": (8, 32, 34, 0, 1 / 73.9, None, 0)}
FOLDERS = ("gptq", "awq")


def blocks(random, kind, rows, columns):
    """Returns the bytes of a matrix: a row times as many numbers of size 1 has size 1."""
    _, weights, size, scale_at, scale, min_at, minimum = TYPES[kind]
    made = random.integers(0, 256, (rows * columns // weights, size), dtype=np.uint8)
    if scale_at is None:
        made[:, 0] = 127 + round(np.log2(scale / columns ** .5))
    else:
        made[:, scale_at:scale_at + 2] = np.frombuffer(np.float16(scale / columns ** .5).tobytes(), np.uint8)
    if min_at is not None:
        made[:, min_at:min_at + 2] = np.frombuffer(np.float16(minimum / columns ** .5).tobytes(), np.uint8)
    return made.tobytes()


def halves(random, rows, columns, size):
    return (random.standard_normal((rows, columns), np.float32) * size).astype(np.float16)


# ---- GGUF -----------------------------------------------------------------------------------------------------

def raw_keys(path, wanted):
    """Returns the bytes of the wanted keys of a file, and their number."""
    data = np.memmap(path, np.uint8, "r")
    cursor, kept, n = gguf_file.Cursor(data), bytearray(), 0
    cursor.at = 16  # after the version and the number of tensors
    for _ in range(cursor.take("Q")):
        begin = cursor.at
        name = cursor.string()
        cursor.value(cursor.take("I"))
        if wanted(name):
            kept += data[begin:cursor.at].tobytes()
            n += 1
    return bytes(kept), n


def key(name, kind, value):
    return struct.pack(f"<Q{len(name)}sI", len(name), name.encode(), {"I": 4, "f": 6}[kind]) + struct.pack("<" + kind, value)


def shape_keys():
    numbers = {"block_count": L, "embedding_length": K, "feed_forward_length": F, "attention.head_count": H,
               "attention.head_count_kv": G, "rope.dimension_count": D, "context_length": 8192}
    floats = {"rope.freq_base": 10000., "attention.layer_norm_rms_epsilon": 1e-5}
    made = [key("llama." + name, "I", value) for name, value in numbers.items()]
    return made + [key("llama." + name, "f", value) for name, value in floats.items()]


def tensors(random, kind, V):
    """(name, GGUF's type, shape, bytes) of all tensors."""
    ones = np.ones(K, np.float32).tobytes()
    if kind.endswith("halves"):
        yield "token_embd.weight", 1, (V, K), halves(random, V, K, K ** -.5).tobytes()
    else:
        yield "token_embd.weight", TYPES["Q8_0"][0], (V, K), blocks(random, "Q8_0", V, K)
    yield "output_norm.weight", 0, (K,), ones
    for i in range(L):
        for name, shape in SHAPES.items():
            yield f"blk.{i}.{name}.weight", TYPES[kind][0], shape, blocks(random, kind, *shape)
        for name in ("attn_norm", "ffn_norm"):
            yield f"blk.{i}.{name}.weight", 0, (K,), ones


def write_gguf(path, kind, model):
    kept, n = raw_keys(model, lambda name: not name.startswith("llama.") and name != "general.file_type")
    V = len(gguf_file.GGUF(model).metadata["tokenizer.ggml.tokens"])
    made, all_tensors = shape_keys(), list(tensors(np.random.default_rng(1), kind, V))
    keys = key("llama.vocab_size", "I", V) + b"".join(made) + kept
    head = struct.pack("<IIQQ", 0x46554747, 3, len(all_tensors), n + len(made) + 1) + keys
    at = 0
    for name, kind_number, shape, data in all_tensors:
        head += struct.pack(f"<Q{len(name)}sI{len(shape)}QIQ", len(name), name.encode(), len(shape), *shape[::-1], kind_number, at)
        at += -(-len(data) // 32) * 32
    with open(path, "wb") as out:
        out.write(head + bytes(-len(head) % 32))
        for _, _, _, data in all_tensors:
            out.write(data + bytes(-len(data) % 32))


# ---- folders --------------------------------------------------------------------------------------------------

def packed_words(random, rows, columns):
    return random.integers(-2**31, 2**31, (rows, columns), dtype=np.int64).astype(np.int32)


def packed(random, method, N, columns):
    scales = np.full((columns // GROUP, N), 1 / 4.6 / columns ** .5, np.float16)
    zeros = np.full((columns // GROUP, N // 8), 0x77777777 if method == "gptq" else -0x77777778, np.int32)
    shape = (columns // 8, N) if method == "gptq" else (columns, N // 8)
    made = {"qweight": packed_words(random, *shape), "qzeros": zeros, "scales": scales}
    if method == "gptq":
        made["g_idx"] = (np.arange(columns) // GROUP).astype(np.int32)
    return made


def write_folder(folder, method, model):
    file, random = gguf_file.GGUF(model), np.random.default_rng(1)
    keys = dict(file.metadata)
    for raw in shape_keys():
        n = struct.unpack_from("<Q", raw)[0]
        kind, = struct.unpack_from("<I", raw, 8 + n)
        keys[raw[8:8 + n].decode()], = struct.unpack_from("<I" if kind == 4 else "<f", raw, 12 + n)
    V = len(keys["tokenizer.ggml.tokens"])
    made = {"model.embed_tokens.weight": halves(random, V, K, K ** -.5), "model.norm.weight": np.ones(K, np.float32)}
    for i in range(L):
        for name, (N, columns) in SHAPES.items():
            base = hf_folder.folder_name(f"blk.{i}.{name}.weight").removesuffix("weight")
            made |= {base + part: array for part, array in packed(random, method, N, columns).items()}
        for name in ("attn_norm", "ffn_norm"):
            made[hf_folder.folder_name(f"blk.{i}.{name}.weight")] = np.ones(K, np.float32)
    how = {"quant_method": method, "bits": 4, "group_size": GROUP}
    how |= {"desc_act": False, "sym": True} if method == "gptq" else {"version": "gemm", "zero_point": True}
    os.makedirs(folder, exist_ok=True)
    hf_folder.write_safetensors(f"{folder}/model.safetensors", made)
    hf_folder.write_json(folder, "config.json", hf_folder.llama_config(keys, quantization_config=how))
    hf_folder.write_tokenizer(folder, keys)


def make(name, model, out="build/bench-models"):
    """Returns the path of a model, which is made unless it exists."""
    path = f"{out}/{name}" if name in FOLDERS else f"{out}/{name}.gguf"
    if not os.path.exists(path):
        os.makedirs(out, exist_ok=True)
        (write_folder if name in FOLDERS else write_gguf)(path, name, model)
    return path


def main():
    names = [name for name in TYPES if name != "Q8_0"] + list(FOLDERS)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--model", default="models/SmolLM2-135M-Instruct.Q4_1.gguf")
    args = parser.parse_args()
    for name in args.names:
        path = make(name, args.model)
        print(json.dumps({"made": path}))


if __name__ == "__main__":
    main()
