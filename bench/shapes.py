"""Makes the models for bench/families.py: published shapes with random weights, and a vocabulary of 262,144 tokens.

    build/peers/llama.cpp/bin/python bench/shapes.py [--binary build/penstock] [--out build/bench-shapes] [NAME ...]
    build/peers/grammar/bin/python bench/shapes.py vocabulary

Each model is a folder NAME in bfloat16 (for qwen3-0.6b also a GGUF file in bfloat16). `penstock quantize` makes
NAME-q8_0.gguf and NAME-q4_k.gguf from it, which both sides read. For rows of 1,152, the K types of both fall back to
Q5_0. The weights are normally distributed with the size of a trained model's, drawn from one block of numbers.
`vocabulary` needs the package `tokenizers`: it trains 60,000 tokens on this tree and adds pairs of them; normalizer and
pieces are those of Gemma.
"""
import argparse
import json
import os
import pathlib
import struct
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SIZE_OF_VOCABULARY = 262144
BLOCK = 1 << 22  # random numbers


def decoder(V, K, F, L, H, G, D, **more):
    """Returns the tensors and config.json of a model of llama's blocks."""
    shapes = {"model.embed_tokens.weight": (V, K), "model.norm.weight": (K,)}
    for i in range(L):
        layer = {"self_attn.q_proj": (H * D, K), "self_attn.k_proj": (G * D, K), "self_attn.v_proj": (G * D, K),
                 "self_attn.o_proj": (K, H * D), "mlp.gate_proj": (F, K), "mlp.up_proj": (F, K), "mlp.down_proj": (K, F),
                 "input_layernorm": (K,), "post_attention_layernorm": (K,), "self_attn.q_norm": (D,), "self_attn.k_norm": (D,)}
        shapes |= {f"model.layers.{i}.{name}.weight": shape for name, shape in layer.items()}
    config = {"vocab_size": V, "hidden_size": K, "intermediate_size": F, "num_hidden_layers": L, "num_attention_heads": H,
              "num_key_value_heads": G, "head_dim": D, "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "rope_theta": 1e6,
              "max_position_embeddings": 32768, "torch_dtype": "bfloat16", **more}
    return shapes, config


def qwen3():
    return decoder(151936, 1024, 3072, 28, 16, 8, 128, architectures=["Qwen3ForCausalLM"])


def gemma3():
    shapes, config = decoder(SIZE_OF_VOCABULARY, 1152, 6912, 26, 4, 1, 256, architectures=["Gemma3ForCausalLM"],
                             sliding_window=512, sliding_window_pattern=6, query_pre_attn_scalar=256, rope_local_base_freq=1e4)
    shapes |= {f"model.layers.{i}.{name}_feedforward_layernorm.weight": (1152,) for i in range(26) for name in ("pre", "post")}
    return shapes, config


def gpt2():
    V, K, L, C = 50257, 768, 12, 1024
    shapes = {"wte.weight": (V, K), "wpe.weight": (C, K), "ln_f.weight": (K,), "ln_f.bias": (K,)}
    for i in range(L):
        layer = {"ln_1.weight": (K,), "ln_1.bias": (K,), "ln_2.weight": (K,), "ln_2.bias": (K,)}
        for name, n, k in (("attn.c_attn", 3 * K, K), ("attn.c_proj", K, K), ("mlp.c_fc", 4 * K, K), ("mlp.c_proj", K, 4 * K)):
            layer |= {f"{name}.weight": (k, n), f"{name}.bias": (n,)}
        shapes |= {f"h.{i}.{name}": shape for name, shape in layer.items()}
    return shapes, {"architectures": ["GPT2LMHeadModel"], "vocab_size": V, "n_embd": K, "n_layer": L, "n_head": 12, "n_positions": C,
                    "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new", "torch_dtype": "bfloat16"}


def qwen3_moe():
    """Qwen3-30B-A3B's widths, heads and experts per token; 6 of 48 layers, 32 of 128 experts, a third of the
    vocabulary."""
    E, F, K, L = 32, 768, 2048, 6
    shapes, config = decoder(49152, K, 6144, L, 32, 4, 128, architectures=["Qwen3MoeForCausalLM"], num_experts=E,
                             num_experts_per_tok=8, moe_intermediate_size=F, norm_topk_prob=True)
    shapes = {name: shape for name, shape in shapes.items() if ".mlp." not in name}
    for i in range(L):
        shapes[f"model.layers.{i}.mlp.gate.weight"] = (E, K)
        for e in range(E):
            shapes |= {f"model.layers.{i}.mlp.experts.{e}.{name}.weight": shape for name, shape in
                       (("gate_proj", (F, K)), ("up_proj", (F, K)), ("down_proj", (K, F)))}
    return shapes, config


MODELS = {"qwen3-0.6b": qwen3, "gemma3-1b": gemma3, "gpt2-124m": gpt2, "qwen3moe-cut": qwen3_moe}


def byte_letters():
    """Returns the spelling of each byte in byte-level BPE."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in kept else next(others)) for byte in range(256)]


def write_tokenizer(folder):
    vocabulary = {letter: i for i, letter in enumerate(byte_letters())} | {"<|endoftext|>": 256, "th": 257}
    end = {"id": 256, "content": "<|endoftext|>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
           "special": True}
    split = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": [end], "normalizer": None, "pre_tokenizer": split, "post_processor": None,
        "decoder": split, "model": {"type": "BPE", "vocab": vocabulary, "merges": [["t", "h"]]}}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>"}))


def write_folder(folder, shapes, config):
    """Matrices of deviation 1 / sqrt(inputs), vectors about 1 (gains) or 0 (biases), in bfloat16."""
    import numpy as np
    folder.mkdir(parents=True)
    header, at = {}, 0
    for name, shape in shapes.items():
        bytes = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + bytes]}
        at += bytes
    text = json.dumps(header).encode()
    drawn = np.random.default_rng(1).standard_normal(BLOCK).astype(np.float32)
    with open(folder / "model.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for i, (name, shape) in enumerate(shapes.items()):
            n = int(np.prod(shape))
            scale, mean = (shape[-1] ** -0.5, 0) if len(shape) > 1 else (0.1, 0 if "bias" in name else 1)
            values = np.roll(drawn, 7919 * i)[:min(n, BLOCK)] * scale + mean
            halves = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
            for first in range(0, n, BLOCK):
                halves[:n - first].tofile(out)
    (folder / "config.json").write_text(json.dumps({"bos_token_id": 256, "eos_token_id": 256, **config}))
    write_tokenizer(folder)


def make_model(binary, out, name):
    folder = out / name
    if not (folder / "config.json").exists():
        write_folder(folder, *MODELS[name]())
    for kind in ("q8_0", "q4_k"):
        path = out / f"{name}-{kind}.gguf"
        if not path.exists():
            subprocess.run([binary, "quantize", folder, path, "--type", kind], check=True, stdout=subprocess.DEVNULL)
        print(f"{path}: {os.path.getsize(path):,} bytes")


def make_bf16(out, name):
    """A GGUF file of the folder's size, which llama.cpp makes from the one in Q8_0."""
    import ctypes

    import llama_cpp as lib
    path = out / f"{name}-bf16.gguf"
    if path.exists():
        return
    parameters = lib.llama_model_quantize_default_params()
    parameters.ftype, parameters.allow_requantize, parameters.pure = lib.LLAMA_FTYPE_MOSTLY_BF16, True, True
    if lib.llama_model_quantize(os.fsencode(out / f"{name}-q8_0.gguf"), os.fsencode(path), ctypes.byref(parameters)):
        sys.exit(f"shapes.py: llama.cpp could not make {path}")
    print(f"{path}: {os.path.getsize(path):,} bytes")


def texts():
    for path in sorted(ROOT.glob("*/**/*.*")):
        if path.suffix in (".py", ".c", ".h", ".md", ".txt", ".cu") and path.relative_to(ROOT).parts[0] not in ("build", ".venv"):
            yield path.read_text(errors="replace")


def make_vocabulary(out):
    """A tokenizer.json like Gemma's: pieces of characters with a bar for a space, and bytes for missing characters."""
    import tokenizers
    trained = tokenizers.Tokenizer(tokenizers.models.BPE())
    trained.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme="never")
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=60000, min_frequency=2, max_token_length=32,
                                             show_progress=False)
    trained.train_from_iterator(texts(), trainer)
    model = json.loads(trained.to_str())["model"]
    specials = ["<pad>", "<eos>", "<bos>", "<unk>"]
    tokens = [*specials, *(f"<0x{byte:02X}>" for byte in range(256)), *model["vocab"]]
    merges, known = model["merges"], set(tokens)
    long = [token for token in model["vocab"] if 3 <= len(token) <= 8]
    for i in range(len(long) ** 2):
        if len(tokens) >= SIZE_OF_VOCABULARY:
            break
        pair = [long[i % len(long)], long[(i * 7919 + i // len(long)) % len(long)]]
        if "".join(pair) not in known:
            known.add("".join(pair))
            tokens.append("".join(pair))
            merges.append(pair)
    assert len(tokens) == len(known) == SIZE_OF_VOCABULARY
    added = [{"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for i, token in enumerate(specials)]
    folder = out / "vocabulary"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": added, "post_processor": None,
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
        "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
        "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                                                     {"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                  "vocab": {token: i for i, token in enumerate(tokens)}, "merges": merges}}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<eos>", "bos_token": "<bos>"}))
    _, config = gemma3()
    (folder / "config.json").write_text(json.dumps({**config, "bos_token_id": 2, "eos_token_id": 1}))
    print(f"{folder}/tokenizer.json: {len(merges):,} merges")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(MODELS)} (all if left out), or vocabulary")
    parser.add_argument("--binary", default="build/penstock")
    parser.add_argument("--out", default="build/bench-shapes", type=pathlib.Path)
    args = parser.parse_args()
    for name in args.names or MODELS:
        if name == "vocabulary":
            make_vocabulary(args.out)
        elif name in MODELS:
            make_model(args.binary, args.out, name)
            if name == "qwen3-0.6b":
                make_bf16(args.out, name)
        else:
            sys.exit(f"shapes.py: unknown shape {name}; the shapes are {', '.join(MODELS)} and vocabulary")


main()
