"""Makes the models of bench/states.py: shapes of published models with recurrent layers or latent attention, and random
weights.

    build/peers/llama.cpp/bin/python bench/state_files.py [--model models/NAME.gguf] [--out build/bench-shapes]

- qwen35: Qwen3.5-0.8B, whole: 18 gated delta rules and 6 attention layers.
- qwen35-attention: the same, but all 24 layers have attention.
- lfm2: LFM2-700M, whole: 10 short convolutions and 6 attention layers.
- deepseek: DeepSeek-V2-Lite's widths, 5 of 27 layers and 16 of 64 experts. Its queries have a latent vector, as in
  DeepSeek-V2: llama.cpp takes plain queries only from a file of 26 or 27 layers.
- kimi: Kimi Linear's widths, 5 of 27 layers and 16 of 256 experts; the fourth layer has latent attention.
- mistral4: Mistral Small 4's widths, 3 of 36 layers and 8 of 128 experts.
- qwen35-mtp: a folder in float16 of the first shape with a layer that guesses ahead.

The vocabulary is the one of --model, so the head is smaller than a published model's. NAME-q8_0.gguf has random codes
under a fixed scale; llama.cpp's quantiser makes NAME-q4_k.gguf from it (Q4_K_M). Such files show speed, not quality.

In the folder, a token alone determines the next one: the layers add nothing, and the head maps each embedding to the
embedding of its follower. The layer that guesses ahead passes the embedding on with added noise, and so 80 % of its
guesses are right, whatever the text. For comparison: DeepSeek-V3's report states 85 to 90 %.
"""
import argparse
import ctypes
import os
import struct

import numpy as np

import gguf_file
import hf_folder
import random_files

GGUF_F32, GGUF_Q8_0 = 0, 8
RIGHT = .8  # share of right guesses
CONTEXT = 8192
TOKENS = 0  # in a shape: the size of the vocabulary


# ---- shapes: (keys of the GGUF file without the architecture, {tensor: shape}) ------------------------------------

QWEN = {"K": 1024, "F": 3584, "L": 24, "H": 8, "G": 2, "D": 256, "Hk": 16, "Hv": 16, "d": 128, "taps": 4}


def attention(K, H, G, D, is_gated=False):
    return {"attn_q.weight": (H * D * (1 + is_gated), K), "attn_k.weight": (G * D, K), "attn_v.weight": (G * D, K),
            "attn_output.weight": (K, H * D), "attn_q_norm.weight": (D,), "attn_k_norm.weight": (D,)}


def mlp(K, F):
    return {"ffn_gate.weight": (F, K), "ffn_up.weight": (F, K), "ffn_down.weight": (K, F)}


def delta_rule(K, Hk, Hv, d, taps):
    channels = (2 * Hk + Hv) * d
    return {"attn_qkv.weight": (channels, K), "attn_gate.weight": (Hv * d, K), "ssm_beta.weight": (Hv, K),
            "ssm_alpha.weight": (Hv, K), "ssm_conv1d.weight": (channels, taps), "ssm_a": (Hv,), "ssm_dt.bias": (Hv,),
            "ssm_norm.weight": (d,), "ssm_out.weight": (K, Hv * d)}


def qwen35(every=4):
    q = QWEN
    K, D = q["K"], q["D"]
    keys = {"block_count": q["L"], "embedding_length": K, "feed_forward_length": q["F"], "attention.head_count": q["H"],
            "attention.head_count_kv": q["G"], "attention.key_length": D, "attention.value_length": D, "ssm.conv_kernel": q["taps"],
            "ssm.state_size": q["d"], "ssm.group_count": q["Hk"], "ssm.time_step_rank": q["Hv"], "ssm.inner_size": q["Hv"] * q["d"],
            "full_attention_interval": every, "rope.dimension_count": D // 4, "rope.dimension_sections": [11, 11, 10, 0],
            "rope.freq_base": 1e7, "attention.layer_norm_rms_epsilon": 1e-6}
    shapes = {"output_norm.weight": (K,)}
    for i in range(q["L"]):
        mixer = attention(K, q["H"], q["G"], D, True) if (i + 1) % every == 0 else delta_rule(K, q["Hk"], q["Hv"], q["d"], q["taps"])
        layer = mixer | mlp(K, q["F"]) | {"attn_norm.weight": (K,), "post_attention_norm.weight": (K,)}
        shapes |= {f"blk.{i}.{name}": shape for name, shape in layer.items()}
    return "qwen35", keys, shapes


def lfm2():
    K, F, L, H, G, D, taps = 1536, 6912, 16, 24, 8, 64, 3
    heads = [G if i in (2, 5, 8, 10, 12, 14) else 0 for i in range(L)]
    keys = {"block_count": L, "embedding_length": K, "feed_forward_length": F, "attention.head_count": H, "attention.head_count_kv": heads,
            "shortconv.l_cache": taps, "rope.freq_base": 1e6, "attention.layer_norm_rms_epsilon": 1e-5}
    convolution = {"shortconv.conv.weight": (K, taps), "shortconv.in_proj.weight": (3 * K, K), "shortconv.out_proj.weight": (K, K)}
    shapes = {"token_embd_norm.weight": (K,)}
    for i in range(L):
        layer = (attention(K, H, G, D) if heads[i] else convolution) | mlp(K, F) | {"attn_norm.weight": (K,), "ffn_norm.weight": (K,)}
        shapes |= {f"blk.{i}.{name}": shape for name, shape in layer.items()}
    return "lfm2", keys, shapes


def experts(K, E, F, shared):
    return {"ffn_gate_inp.weight": (E, K), "ffn_gate_exps.weight": (E, F, K), "ffn_up_exps.weight": (E, F, K), "ffn_down_exps.weight": (E, K, F),
            "ffn_gate_shexp.weight": (shared * F, K), "ffn_up_shexp.weight": (shared * F, K), "ffn_down_shexp.weight": (K, shared * F)}


def latent_attention(K, H, rank, rope, unrotated, value, q_rank):
    """q_rank 0: queries without a latent vector."""
    q = {"attn_q_a.weight": (q_rank, K), "attn_q_a_norm.weight": (q_rank,), "attn_q_b.weight": (H * (unrotated + rope), q_rank)}
    return (q if q_rank else {"attn_q.weight": (H * (unrotated + rope), K)}) | {
        "attn_kv_a_mqa.weight": (rank + rope, K), "attn_kv_a_norm.weight": (rank,), "attn_k_b.weight": (H, rank, unrotated),
        "attn_v_b.weight": (H, value, rank), "attn_output.weight": (K, H * value)}


def latent_keys(H, rank, rope, unrotated, value):
    return {"attention.head_count": H, "attention.kv_lora_rank": rank, "attention.key_length": rank + rope, "attention.value_length": rank,
            "attention.key_length_mla": unrotated + rope, "attention.value_length_mla": value, "rope.dimension_count": rope}


def deepseek():
    K, L, H, rank, rope, unrotated, value, q_rank = 2048, 5, 16, 512, 64, 128, 128, 1536
    F, E, used, F_expert, shared = 10944, 16, 6, 1408, 2
    keys = {"block_count": L, "embedding_length": K, "feed_forward_length": F, **latent_keys(H, rank, rope, unrotated, value),
            "attention.head_count_kv": 1, "attention.q_lora_rank": q_rank, "rope.freq_base": 1e4, "leading_dense_block_count": 1, "expert_count": E, "expert_used_count": used,
            "expert_shared_count": shared, "expert_feed_forward_length": F_expert, "expert_weights_scale": 1.,
            "expert_weights_norm": False, "expert_gating_func": 1, "attention.layer_norm_rms_epsilon": 1e-6}
    latent = latent_attention(K, H, rank, rope, unrotated, value, q_rank) | {"attn_norm.weight": (K,), "ffn_norm.weight": (K,)}
    shapes = {"output_norm.weight": (K,)}
    for i in range(L):
        layer = latent | (experts(K, E, F_expert, shared) if i else mlp(K, F))
        shapes |= {f"blk.{i}.{name}": shape for name, shape in layer.items()}
    return "deepseek2", keys, shapes


def channel_rule(K, H, d, taps):
    """A delta rule with a decay for each channel."""
    convolutions = {f"ssm_conv1d_{kind}.weight": (H * d, 1, taps) for kind in "qkv"}
    return {f"attn_{kind}.weight": (H * d, K) for kind in "qkv"} | convolutions | {
        "ssm_a": (H, 1), "ssm_dt.bias": (H * d,), "ssm_f_a.weight": (d, K), "ssm_f_b.weight": (H * d, d), "ssm_beta.weight": (H, K),
        "ssm_g_a.weight": (d, K), "ssm_g_b.weight": (H * d, d), "ssm_norm.weight": (d,), "attn_output.weight": (K, H * d)}


def kimi():
    K, L, H, d, taps, rank, rope, unrotated, value = 2304, 5, 32, 128, 4, 512, 64, 128, 128
    F, E, used, F_expert, heads = 9216, 16, 8, 1024, [0, 0, 0, 1, 0]
    keys = {"block_count": L, "embedding_length": K, "feed_forward_length": F, **latent_keys(H, rank, rope, unrotated, value),
            "attention.head_count_kv": heads, "ssm.conv_kernel": taps, "kda.head_dim": d, "leading_dense_block_count": 1,
            "expert_count": E, "expert_used_count": used, "expert_shared_count": 1, "expert_feed_forward_length": F_expert,
            "expert_weights_scale": 2.446, "expert_gating_func": 2, "attention.layer_norm_rms_epsilon": 1e-5}
    shapes = {"output_norm.weight": (K,), "output.weight": (TOKENS, K)}  # llama.cpp does not tie this model's head
    for i in range(L):
        layer = latent_attention(K, H, rank, rope, unrotated, value, 0) if heads[i] else channel_rule(K, H, d, taps)
        layer |= experts(K, E, F_expert, 1) | {"exp_probs_b.bias": (E,)} if i else mlp(K, F)
        layer |= {"attn_norm.weight": (K,), "ffn_norm.weight": (K,)}
        shapes |= {f"blk.{i}.{name}": shape for name, shape in layer.items()}
    return "kimi-linear", keys, shapes


def mistral4():
    K, L, H, rank, rope, unrotated, value, q_rank = 4096, 3, 32, 256, 64, 64, 128, 1024
    E, used, F_expert = 8, 4, 2048
    keys = {"block_count": L, "embedding_length": K, "feed_forward_length": 3 * K, **latent_keys(H, rank, rope, unrotated, value),
            "attention.head_count_kv": 1, "attention.q_lora_rank": q_rank, "rope.freq_base": 1e4, "rope.scaling.type": "yarn",
            "rope.scaling.factor": 128., "rope.scaling.original_context_length": CONTEXT, "rope.scaling.yarn_log_multiplier": .1,
            "leading_dense_block_count": 0, "expert_count": E, "expert_used_count": used, "expert_shared_count": 1,
            "expert_feed_forward_length": F_expert, "expert_weights_scale": 1., "expert_weights_norm": True, "expert_gating_func": 1,
            "attention.layer_norm_rms_epsilon": 1e-6}
    layer = latent_attention(K, H, rank, rope, unrotated, value, q_rank) | experts(K, E, F_expert, 1)
    layer |= {"attn_norm.weight": (K,), "ffn_norm.weight": (K,)}
    shapes = {"output_norm.weight": (K,)} | {f"blk.{i}.{name}": shape for i in range(L) for name, shape in layer.items()}
    return "mistral4", keys, shapes


SHAPES = {"qwen35": qwen35, "qwen35-attention": lambda: qwen35(1), "lfm2": lfm2, "deepseek": deepseek, "kimi": kimi, "mistral4": mistral4}


# ---- GGUF files ---------------------------------------------------------------------------------------------------

def raw_key(name, value):
    """Returns the bytes of a key: a bool, an int, a float, a string, or a list of ints."""
    head = struct.pack(f"<Q{len(name)}s", len(name), name.encode())
    if isinstance(value, str):
        return head + struct.pack(f"<IQ{len(value)}s", 8, len(value), value.encode())
    if isinstance(value, list):
        return head + struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)
    kind, form = {bool: (7, "?"), int: (4, "I"), float: (6, "f")}[type(value)]
    return head + struct.pack("<I" + form, kind, value)


def is_matrix(name, shape):
    """Convolutions, decays and routers stay in float32, as in files of llama.cpp's converter."""
    return len(shape) > 1 and "conv1d" not in name and not name.endswith(("conv.weight", "ssm_a", "gate_inp.weight"))


def make_tensor(random, name, shape):
    """Returns GGUF's type and the bytes: matrices that keep the size of their inputs, gains of 1, slow decays."""
    if is_matrix(name, shape):
        return GGUF_Q8_0, random_files.blocks(random, "Q8_0", int(np.prod(shape[:-1])), shape[-1])
    if name.endswith("ssm_a"):
        values = -random.uniform(.1, 1, shape)
    elif len(shape) > 1:
        values = random.standard_normal(shape) * shape[-1] ** -.5
    else:
        values = np.full(shape, 0 if name.endswith("bias") else 1)
    return GGUF_F32, values.astype(np.float32).tobytes()


def write_gguf(path, shape, model):
    kept, n_kept = random_files.raw_keys(model, lambda name: name.startswith("tokenizer."))
    architecture, keys, shapes = shape
    V = len(gguf_file.GGUF(model).metadata["tokenizer.ggml.tokens"])
    keys = {"context_length": CONTEXT, "vocab_size": V, **keys}
    raw = raw_key("general.architecture", architecture) + b"".join(raw_key(f"{architecture}.{name}", value) for name, value in keys.items())
    shapes = {"token_embd.weight": (TOKENS, keys["embedding_length"]), **shapes}
    shapes = {name: tuple(V if size == TOKENS else size for size in shape) for name, shape in shapes.items()}
    random = np.random.default_rng(1)
    tensors = [(name, shape, *make_tensor(random, name, shape)) for name, shape in shapes.items()]
    head, at = struct.pack("<IIQQ", 0x46554747, 3, len(tensors), n_kept + len(keys) + 1) + raw + kept, 0
    for name, shape, kind, data in tensors:
        head += struct.pack(f"<Q{len(name)}sI{len(shape)}QIQ", len(name), name.encode(), len(shape), *shape[::-1], kind, at)
        at += -(-len(data) // 32) * 32
    with open(path + ".part", "wb") as out:
        out.write(head + bytes(-len(head) % 32))
        for *_, data in tensors:
            out.write(data + bytes(-len(data) % 32))
    os.rename(path + ".part", path)


def make_q4_k(source, path):
    import llama_cpp as lib
    parameters = lib.llama_model_quantize_default_params()
    parameters.ftype, parameters.allow_requantize, parameters.nthread = lib.LLAMA_FTYPE_MOSTLY_Q4_K_M, True, 2
    if lib.llama_model_quantize(os.fsencode(source), os.fsencode(path + ".part"), ctypes.byref(parameters)):
        raise SystemExit(f"state_files.py: llama.cpp could not make {path}")
    os.rename(path + ".part", path)


# ---- the folder that guesses ahead -----------------------------------------------------------------------------------

def folder_layer(i):
    """{name: shape} of a layer of the folder."""
    q = QWEN
    K, F, channels, width = q["K"], q["F"], (2 * q["Hk"] + q["Hv"]) * q["d"], q["Hv"] * q["d"]
    if (i + 1) % 4 == 0:
        mixer = {f"self_attn.{part}": shape for part, shape in
                 {"q_proj": (2 * q["H"] * q["D"], K), "k_proj": (q["G"] * q["D"], K), "v_proj": (q["G"] * q["D"], K),
                  "o_proj": (K, q["H"] * q["D"]), "q_norm": (q["D"],), "k_norm": (q["D"],)}.items()}
    else:
        mixer = {f"linear_attn.{part}": shape for part, shape in
                 {"in_proj_qkv": (channels, K), "in_proj_z": (width, K), "in_proj_b": (q["Hv"], K), "in_proj_a": (q["Hv"], K),
                  "conv1d": (channels, 1, q["taps"]), "A_log": (q["Hv"],), "dt_bias": (q["Hv"],), "norm": (q["d"],),
                  "out_proj": (K, width)}.items()}
    return mixer | {"mlp.gate_proj": (F, K), "mlp.up_proj": (F, K), "mlp.down_proj": (K, F), "input_layernorm": (K,),
                    "post_attention_layernorm": (K,)}


def folder_tensor(random, name, shape):
    """Nothing reaches the stream: the last matrix of each part is 0. Gains are 1 + w, but for a delta rule's own norm."""
    if name.endswith(("o_proj", "out_proj", "down_proj")) or (len(shape) == 1 and not name.endswith("linear_attn.norm")):
        return np.zeros(shape, np.float16)
    if len(shape) == 1:
        return np.ones(shape, np.float16)
    return (random.standard_normal(shape, np.float32) * shape[-1] ** -.5).astype(np.float16)


def share_of_right(embedding, noise, size):
    """The share of tokens that the guessing layer's row points at, after a noise of `size` times the embedding's."""
    some = embedding[::97]
    rows = some + size * (some @ noise.T)
    return float(np.mean((rows @ embedding.T).argmax(1) == np.arange(0, len(embedding), 97)))


def find_noise(embedding, noise):
    low, high = 0., 32.
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if share_of_right(embedding, noise, middle) > RIGHT else (low, middle)
    return low


def write_folder(folder, model):
    keys, q = gguf_file.GGUF(model).metadata, QWEN
    V, K, random = len(keys["tokenizer.ggml.tokens"]), q["K"], np.random.default_rng(1)
    embedding = random.standard_normal((V, K), np.float32)
    noise = random.standard_normal((K, K), np.float32) * K ** -.5
    size = find_noise(embedding, noise)
    print(f"{folder}: noise {size:.2f}, {share_of_right(embedding, noise, size):.1%} of guesses are right")
    # A text token is followed by another one, so an answer neither ends early nor repeats one token.
    texts = np.flatnonzero(np.array(keys["tokenizer.ggml.token_type"]) != hf_folder.CONTROL)
    follower = np.arange(V)
    follower[texts] = random.permutation(texts)
    head = np.empty_like(embedding)
    head[follower] = embedding
    fc = np.concatenate([np.eye(K, dtype=np.float32) + size * noise, np.zeros((K, K), np.float32)], axis=1)
    tensors = {"model.embed_tokens.weight": embedding, "lm_head.weight": head * K ** -.5, "mtp.fc.weight": fc}
    tensors = {name: values.astype(np.float16) for name, values in tensors.items()}
    norms = ["model.norm", "mtp.norm", "mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden"]
    layers = {f"model.layers.{i}": folder_layer(i) for i in range(q["L"])} | {"mtp.layers.0": folder_layer(3)}
    tensors |= {f"{name}.weight": np.zeros(K, np.float16) for name in norms}
    for layer, parts in layers.items():
        for part, shape in parts.items():
            end = "" if part.endswith(("A_log", "dt_bias")) else ".weight"
            tensors[f"{layer}.{part}{end}"] = folder_tensor(random, part, shape)
    os.makedirs(folder, exist_ok=True)
    hf_folder.write_safetensors(f"{folder}/model.safetensors", tensors)
    hf_folder.write_tokenizer(folder, keys)
    hf_folder.write_json(folder, "config.json", folder_config(V, keys))


def folder_config(V, keys):
    q = QWEN
    types = ["full_attention" if (i + 1) % 4 == 0 else "linear_attention" for i in range(q["L"])]
    return {"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "hidden_size": q["K"], "intermediate_size": q["F"],
            "num_hidden_layers": q["L"], "num_attention_heads": q["H"], "num_key_value_heads": q["G"], "head_dim": q["D"],
            "layer_types": types, "linear_conv_kernel_dim": q["taps"], "linear_key_head_dim": q["d"], "linear_num_key_heads": q["Hk"],
            "linear_num_value_heads": q["Hv"], "linear_value_head_dim": q["d"], "max_position_embeddings": CONTEXT,
            "rms_norm_eps": 1e-6, "rope_parameters": {"mrope_section": [11, 11, 10], "partial_rotary_factor": .25, "rope_theta": 1e7,
                                                      "rope_type": "default"},
            "hidden_act": "silu", "attention_bias": False, "tie_word_embeddings": False, "vocab_size": V, "mtp_num_hidden_layers": 1,
            "torch_dtype": "float16", "bos_token_id": keys["tokenizer.ggml.bos_token_id"],
            "eos_token_id": keys["tokenizer.ggml.eos_token_id"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="models/SmolLM2-135M-Instruct.Q4_1.gguf", help="the file whose vocabulary is used")
    parser.add_argument("--out", default="build/bench-shapes")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    for name, shape in SHAPES.items():
        q8_0, q4_k = (f"{args.out}/{name}-{kind}.gguf" for kind in ("q8_0", "q4_k"))
        if not os.path.exists(q8_0):
            write_gguf(q8_0, shape(), args.model)
        if not os.path.exists(q4_k) and name != "qwen35-attention":
            make_q4_k(q8_0, q4_k)
        print(*(f"{path}: {os.path.getsize(path):,} bytes" for path in (q8_0, q4_k) if os.path.exists(path)), sep="\n")
    if not os.path.exists(f"{args.out}/qwen35-mtp/config.json"):
        write_folder(f"{args.out}/qwen35-mtp", args.model)


if __name__ == "__main__":
    main()
