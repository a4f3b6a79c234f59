"""Writes folders in the Hugging Face layout with numpy only: safetensors, config.json and a tokenizer of byte-level
BPE.

A GGUF file of the family llama becomes a folder of the same halves, so that `penstock quantize` can be compared on
both.
"""
import json
import os
import struct

import numpy as np

DTYPES = {"float16": "F16", "float32": "F32", "int32": "I32"}
CONTROL = 3  # a token's type in GGUF files


def write_safetensors(path, tensors):
    head, at = {}, 0
    for name, array in tensors.items():
        head[name] = {"dtype": DTYPES[str(array.dtype)], "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            np.ascontiguousarray(array).tofile(out)


def write_json(folder, name, value):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
        json.dump(value, out, ensure_ascii=False)


def write_tokenizer(folder, keys):
    """For a GGUF file whose pre-tokenizer is "smollm": digits are separate pieces, then GPT-2's words."""
    if keys["tokenizer.ggml.model"] != "gpt2" or keys["tokenizer.ggml.pre"] != "smollm":
        raise SystemExit("hf_folder.py: supports only the pre-tokenizer smollm")
    tokens = keys["tokenizer.ggml.tokens"]
    added = [{"id": i, "content": tokens[i], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i, kind in enumerate(keys["tokenizer.ggml.token_type"]) if kind == CONTROL]
    words = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    write_json(folder, "tokenizer.json", {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, words]},
        "post_processor": None, "decoder": words,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {token: i for i, token in enumerate(tokens)}, "merges": keys["tokenizer.ggml.merges"]}})
    write_json(folder, "tokenizer_config.json", {
        "tokenizer_class": "GPT2Tokenizer", "bos_token": tokens[keys["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[keys["tokenizer.ggml.eos_token_id"]], "chat_template": keys["tokenizer.chat_template"]})


def llama_config(keys, **more):
    def of(name):
        return keys["llama." + name]

    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": of("embedding_length"),
            "intermediate_size": of("feed_forward_length"), "num_hidden_layers": of("block_count"),
            "num_attention_heads": of("attention.head_count"), "num_key_value_heads": of("attention.head_count_kv"),
            "head_dim": of("rope.dimension_count"), "max_position_embeddings": of("context_length"),
            "rms_norm_eps": of("attention.layer_norm_rms_epsilon"), "rope_theta": of("rope.freq_base"),
            "vocab_size": len(keys["tokenizer.ggml.tokens"]), "hidden_act": "silu", "attention_bias": False, "mlp_bias": False,
            "tie_word_embeddings": True, "torch_dtype": "float16", "bos_token_id": keys["tokenizer.ggml.bos_token_id"],
            "eos_token_id": keys["tokenizer.ggml.eos_token_id"], **more}


LAYER = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
WHOLE = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}


def folder_name(name):
    if name in WHOLE:
        return WHOLE[name]
    _, layer, part, _ = name.split(".")
    return f"model.layers.{layer}.{LAYER[part]}.weight"


def in_halves(rows, heads):
    """Returns a head's rows with the two halves of each rotation apart, as in folders; in GGUF they are adjacent."""
    N, K = rows.shape
    return rows.reshape(heads, N // heads // 2, 2, K).swapaxes(1, 2).reshape(N, K)


def from_gguf(file, folder):
    """The folder of a gguf_file.GGUF of F16 or other weights, as halves."""
    keys, tensors = file.metadata, {}
    heads = {"attn_q": keys["llama.attention.head_count"], "attn_k": keys["llama.attention.head_count_kv"]}
    for name in file.tensors:
        rows, part = file[name], name.split(".")[-2]
        rows = in_halves(rows, heads[part]) if part in heads else rows
        tensors[folder_name(name)] = rows.astype(np.float16 if rows.ndim > 1 else np.float32)
    os.makedirs(folder, exist_ok=True)
    write_safetensors(os.path.join(folder, "model.safetensors"), tensors)
    write_json(folder, "config.json", llama_config(keys))
    write_tokenizer(folder, keys)
