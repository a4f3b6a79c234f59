"""Makes the quantised folders of tests/vectors/folders/, and the results of transformers with their weights in float32.

    /tmp/oracle/bin/python tests/vectors/make_packed.py [--out FOLDER] [--seed N] [NAME ...]

It needs the packages of make_folders.py and writes the same form. The weights of a folder are not those of a quantiser:
codes, scales and zero points are random. The functions `read_*` below are a separate reader of each format, in numpy,
written from the formats' documents. The model that computes the golden tokens has the weights that they return. Scales
differ from group to group by a factor, groups of act order are shuffled, and zero points cover their range.
"""

import json
import shutil

import family_models
import make_families
import make_folders
import numpy as np
import safetensors.torch
import torch
import transformers

SHAPE = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 16, "tie_word_embeddings": True, "rms_norm_eps": 1e-6, **family_models.COMMON}
# Rows and columns of a block of 128 and a part of one.
WIDE = {**SHAPE, "hidden_size": 160, "intermediate_size": 144, "num_hidden_layers": 1, "num_attention_heads": 5, "num_key_value_heads": 1,
        "head_dim": 32}
MODELS = {
    "ministral3": lambda: transformers.Ministral3ForCausalLM(transformers.Ministral3Config(
        pad_token_id=0, rope_parameters=family_models.QUERY_SCALES, **SHAPE)),
    "mistral4": family_models.mistral4,
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**SHAPE)),
    "qwen3": lambda: transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**SHAPE)),
    "qwen3moe": lambda: transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(
        moe_intermediate_size=64, norm_topk_prob=True, **{**family_models.experts(6, 3), **SHAPE})),
    "wide llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**WIDE)),
    "wide qwen3": lambda: transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**WIDE)),
    "wide qwen3moe": lambda: transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(
        moe_intermediate_size=144, norm_topk_prob=True, **{**family_models.experts(4, 2), **WIDE})),
}
# Falcon's matrices hold queries, keys and values of a key head together.
FALCON = {"hidden_size": 64, "ffn_hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_kv_heads": 2,
          "new_decoder_architecture": True, **family_models.COMMON}
MODELS["falcon"] = lambda: transformers.FalconForCausalLM(transformers.FalconConfig(**FALCON))
PACKED_NAMES = ("_proj", "kv_a_proj_with_mqa", "query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h")
GROUP = 32
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # the column of each nibble of a word


# ---- writing: tensors of one matrix of N outputs and K inputs -------------------------------------------------

def words(codes, bits=4):
    """Packs eight (or for bytes four) adjacent numbers of the last axis in a word, the first in the lowest bits."""
    parts = codes.reshape(*codes.shape[:-1], -1, 32 // bits).astype(np.uint32)
    return np.bitwise_or.reduce(parts << (np.arange(32 // bits, dtype=np.uint32) * bits), axis=-1).astype(np.uint32).view(np.int32)


def scales(random, shape, size):
    return (size * random.uniform(0.5, 2.0, shape)).astype(np.float32)


def gptq(random, N, K, size, v2, act_order):
    codes = random.integers(0, 16, (K, N))
    zeros = random.integers(4, 12, (K // GROUP, N)) if not v2 else random.integers(0, 16, (K // GROUP, N))
    if not v2:
        zeros[0, :2] = 1, 16
    groups = np.arange(K) // GROUP
    if act_order:
        random.shuffle(groups)
    return {"qweight": words(codes.T).T.copy(), "qzeros": words(zeros - (0 if v2 else 1)),
            "scales": scales(random, (K // GROUP, N), size).astype(np.float16), "g_idx": groups.astype(np.int32)}


def awq(random, N, K, size):
    codes, zeros = random.integers(0, 16, (K, N)), random.integers(0, 16, (K // GROUP, N))

    def ordered(columns):
        return words(columns.reshape(columns.shape[0], -1, 8)[:, :, AWQ_ORDER].reshape(columns.shape))

    return {"qweight": ordered(codes), "qzeros": ordered(zeros),
            "scales": scales(random, (K // GROUP, N), size).astype(np.float16)}


def packed(random, N, K, size, zeros):
    codes = random.integers(0, 16, (N, K))
    made = {"weight_packed": words(codes), "weight_scale": torch.from_numpy(scales(random, (N, K // GROUP), size)).bfloat16(),
            "weight_shape": np.array([N, K], dtype=np.int64)}
    if zeros:
        made["weight_zero_point"] = words(random.integers(0, 16, (N, K // GROUP)).T).T.copy()
    return made


def packed_bytes(random, N, K, size):
    return {"weight_packed": words(random.integers(1, 256, (N, K)), 8), "weight_shape": np.array([N, K], dtype=np.int64),
            "weight_scale": torch.from_numpy(scales(random, (N, 1), size / 16)).bfloat16()}


def integers(random, N, K, size):
    return {"weight": random.integers(-127, 128, (N, K)).astype(np.int8),
            "weight_scale": torch.from_numpy(scales(random, (N, 1), size / 16)).bfloat16()}


def float8(random, N, K, block, size, suffix="_inv"):
    weight = torch.from_numpy(random.normal(0, 60, (N, K)).astype(np.float32)).to(torch.float8_e4m3fn)
    if block:
        shape = (-(-N // block[0]), -(-K // block[1]))
        return {"weight": weight, f"weight_scale{suffix}": scales(random, shape, size / 12)}
    return {"weight": weight, "weight_scale": scales(random, (N, 1), size / 12), "input_scale": np.ones(1, np.float32)}


NF4 = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
       -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
       0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]
E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6]


def nvfp4(random, N, K, size, modelopt):
    """A global scale in addition to the scales of 16: llm-compressor's divides, modelopt's multiplies."""
    bytes_ = random.integers(0, 256, (N, K // 2)).astype(np.uint8)
    scale = torch.from_numpy(random.uniform(16, 400, (N, K // 16)).astype(np.float32)).to(torch.float8_e4m3fn)
    whole = np.float32(size / 100)
    if modelopt:
        return {"weight": bytes_, "weight_scale": scale, "weight_scale_2": whole.reshape(()), "input_scale": np.float32(1).reshape(())}
    return {"weight_packed": bytes_, "weight_scale": scale, "weight_global_scale": (1 / whole).reshape(1),
            "input_global_scale": np.ones(1, np.float32)}


def bitsandbytes(random, N, K, size, block=32, nested_block=24):
    """Scales are bytes that index a table, with second-level scales and an offset."""
    state = {"quant_type": "nf4", "blocksize": block, "dtype": "bfloat16", "shape": [N, K], "nested_blocksize": nested_block,
             "nested_dtype": "float32", "nested_offset": 16 * size}
    n = N * K // block
    return {"weight": random.integers(0, 256, (N * K // 2, 1)).astype(np.uint8),
            "weight.absmax": random.integers(0, 256, n).astype(np.uint8),
            "weight.quant_map": np.array(NF4, np.float32),
            "weight.nested_quant_map": np.sort(random.uniform(-1, 1, 256)).astype(np.float32),
            "weight.nested_absmax": scales(random, (-(-n // nested_block),), size * 2),
            "weight.quant_state.bitsandbytes__nf4": np.frombuffer(json.dumps(state).encode(), np.uint8).copy()}


# Without signs: the values of bitsandbytes' fp4; the largest is 1.
FP4 = [0, 0.0052083333, 0.6666667, 1, 0.3333333, 0.5, 0.1666667, 0.25]


def bitsandbytes_fp4(random, N, K, size, block=32):
    """Scales are floats."""
    state = {"quant_type": "fp4", "blocksize": block, "dtype": "bfloat16", "shape": [N, K]}
    return {"weight": random.integers(0, 256, (N * K // 2, 1)).astype(np.uint8),
            "weight.absmax": scales(random, (N * K // block,), size * 8),
            "weight.quant_map": np.array(FP4 + [-value for value in FP4], np.float32),
            "weight.quant_state.bitsandbytes__fp4": np.frombuffer(json.dumps(state).encode(), np.uint8).copy()}


def float8_whole(random, N, K, size):
    """One scale for the matrix, a number without dimensions."""
    made = float8(random, N, K, None, size)
    return {"weight": made["weight"], "weight_scale": made["weight_scale"][0].reshape(()),
            "input_scale": np.float32(1).reshape(())}


def float8_ministral3(random, N, K, size):
    """As Mistral publishes them: one scale for the matrix and one for its inputs, in bfloat16 and without dimensions."""
    made = float8(random, N, K, None, size)
    one = torch.ones((), dtype=torch.bfloat16)
    return {"weight": made["weight"], "weight_scale_inv": one * float(made["weight_scale"][0, 0]), "activation_scale": one}


def float8_exponents(random, N, K, size, block):
    """Blocks whose scales are powers of two, each stored as its exponent."""
    made = float8(random, N, K, block, size)
    return {**made, "weight_scale_inv": torch.from_numpy(made["weight_scale_inv"]).to(torch.float8_e8m0fnu)}


def llm_int8(random, N, K, size):
    return {"weight": random.integers(-127, 128, (N, K)).astype(np.int8), "SCB": scales(random, N, size * 8),
            "weight_format": np.zeros((), np.uint8)}


# ---- reading: the weights [N][K] of those tensors -------------------------------------------------------------

def unpacked(array, bits):
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    array = np.ascontiguousarray(array).view(np.uint32)
    return (array[..., None] >> shifts & (2**bits - 1)).reshape(*array.shape[:-1], -1).astype(np.int64)


def read_gptq(t, v2):
    codes = unpacked(t["qweight"].T, 4)
    zeros = unpacked(t["qzeros"], 4) + (0 if v2 else 1)
    groups = t["g_idx"]
    return (codes - zeros[groups].T) * t["scales"].astype(np.float64)[groups].T


def read_awq(t):
    place = np.argsort(AWQ_ORDER)

    def columns(array):
        return unpacked(array, 4).reshape(array.shape[0], -1, 8)[:, :, place].reshape(array.shape[0], -1)

    groups = np.arange(t["qweight"].shape[0]) // GROUP
    return ((columns(t["qweight"]) - columns(t["qzeros"])[groups]) * t["scales"].astype(np.float64)[groups]).T


def read_packed(t):
    codes = unpacked(t["weight_packed"], 4)
    zeros = unpacked(t["weight_zero_point"].T, 4).T if "weight_zero_point" in t else np.full(t["weight_scale"].shape, 8)
    groups = np.arange(codes.shape[1]) // GROUP
    return (codes - zeros[:, groups]) * t["weight_scale"].double().numpy()[:, groups]


def read_packed_bytes(t):
    return (unpacked(t["weight_packed"], 8) - 128) * t["weight_scale"].double().numpy()


def read_integers(t):
    return t["weight"] * t["weight_scale"].double().numpy()


def read_float8(t, block, suffix="_inv"):
    weight = t["weight"].double().numpy()
    if not block:
        return weight * t["weight_scale"]
    rows, columns = (np.arange(n) // size for n, size in zip(weight.shape, block))
    return weight * t[f"weight_scale{suffix}"][rows][:, columns]


def read_float8_ministral3(t):
    return t["weight"].double().numpy() * float(t["weight_scale_inv"])


def read_float8_exponents(t, block):
    exponents = t["weight_scale_inv"].view(torch.uint8).numpy().astype(np.int64)
    return read_float8({**t, "weight_scale_inv": 2.0 ** (exponents - 127)}, block)


def nibbles(bytes_, high_first):
    parts = [bytes_ >> 4, bytes_ & 15] if high_first else [bytes_ & 15, bytes_ >> 4]
    return np.stack(parts, axis=-1).reshape(*bytes_.shape[:-1], -1)


def read_nvfp4(t, modelopt):
    codes = nibbles(t["weight" if modelopt else "weight_packed"], False)
    scale = t["weight_scale"].double().numpy()
    scale = scale * float(t["weight_scale_2"]) if modelopt else scale / float(t["weight_global_scale"][0])
    return np.array(E2M1)[codes] * np.repeat(scale, 16, axis=1)


def read_bitsandbytes(t):
    state = json.loads(t["weight.quant_state.bitsandbytes__nf4"].tobytes())
    absmax = t["weight.nested_quant_map"].astype(np.float64)[t["weight.absmax"]]
    absmax = absmax * np.repeat(t["weight.nested_absmax"], state["nested_blocksize"])[:absmax.size] + state["nested_offset"]
    codes = nibbles(t["weight"].reshape(-1), True)
    return (t["weight.quant_map"].astype(np.float64)[codes] * np.repeat(absmax, state["blocksize"])).reshape(state["shape"])


def read_bitsandbytes_fp4(t):
    state = json.loads(t["weight.quant_state.bitsandbytes__fp4"].tobytes())
    absmax = np.repeat(t["weight.absmax"].astype(np.float64), state["blocksize"])
    return (t["weight.quant_map"].astype(np.float64)[nibbles(t["weight"].reshape(-1), True)] * absmax).reshape(state["shape"])


def read_llm_int8(t):
    return t["weight"] * (t["SCB"].astype(np.float64) / 127)[:, None]


# ---- the folders ----------------------------------------------------------------------------------------------

COMPRESSED = {"quant_method": "compressed-tensors", "kv_cache_scheme": None}


def compressed(form, bits, kind, **more):
    weights = {"num_bits": bits, "type": kind, "symmetric": not more.get("zeros"), "strategy": more["strategy"],
               **more.get("weights", {})}
    return {**COMPRESSED, "format": form, "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}


def mistral4(name, block):
    """As Mistral Small 4 is published, whose experts are stacked. With `block` each block has a scale."""
    config = {"quant_method": "fp8", "activation_scheme": "dynamic" if block else "static", "weight_block_size": block}
    writer = (lambda r, N, K, size: float8(r, N, K, block, size)) if block else float8_ministral3
    return name, config, writer, (lambda t: read_float8(t, block)) if block else read_float8_ministral3


def of_blocks(size, kind):
    """A folder of 8-bit floats in square blocks, as DeepSeek and Qwen publish them."""
    config = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [size, size]}
    return kind, config, lambda r, N, K, scale: float8(r, N, K, (size, size), scale), lambda t: read_float8(t, (size, size))


# name: (model, quantization_config, writer, reader)
FOLDERS = {
    "gptq": ("llama", {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False, "sym": False},
             lambda *a: gptq(*a, v2=False, act_order=False), lambda t: read_gptq(t, False)),
    "gptq-falcon": ("falcon", {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False, "sym": False},
                    lambda *a: gptq(*a, v2=False, act_order=False), lambda t: read_gptq(t, False)),
    "gptq-act-order": ("qwen3", {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": True, "sym": False,
                                 "checkpoint_format": "gptq_v2"},
                       lambda *a: gptq(*a, v2=True, act_order=True), lambda t: read_gptq(t, True)),
    "awq": ("qwen3", {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}, awq, read_awq),
    "awq-experts": ("qwen3moe", {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}, awq, read_awq),
    "packed-int4": ("llama", compressed("pack-quantized", 4, "int", zeros=True, strategy="group"),
                    lambda *a: packed(*a, zeros=True), read_packed),
    "packed-int4-middle": ("qwen3", compressed("pack-quantized", 4, "int", strategy="group"),
                           lambda *a: packed(*a, zeros=False), read_packed),
    "packed-int8": ("llama", compressed("pack-quantized", 8, "int", strategy="channel"), packed_bytes, read_packed_bytes),
    "int8": ("qwen3", compressed("int-quantized", 8, "int", strategy="channel"), integers, read_integers),
    "float8-rows": ("llama", compressed("float-quantized", 8, "float", strategy="channel"),
                    lambda r, N, K, size: float8(r, N, K, None, size), lambda t: read_float8(t, None)),
    "float8-structure": ("llama", compressed("float-quantized", 8, "float", strategy="block", weights={"block_structure": [40, 24]}),
                         lambda r, N, K, size: float8(r, N, K, (40, 24), size, ""), lambda t: read_float8(t, (40, 24), "")),
    "float8-ministral3": ("ministral3", {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None},
                          float8_ministral3, read_float8_ministral3),
    "float8-mistral4": mistral4("mistral4", None),
    "float8-mistral4-blocks": mistral4("mistral4", [16, 8]),
    "float8-exponents": ("llama", {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [40, 24],
                                   "scale_fmt": "ue8m0"},
                         lambda *a: float8_exponents(*a, (40, 24)), lambda t: read_float8_exponents(t, (40, 24))),
    "float8-blocks": of_blocks(40, "qwen3"),
    "float8-128-llama": of_blocks(128, "wide llama"),
    "float8-128-qwen3": of_blocks(128, "wide qwen3"),
    "float8-128-experts": of_blocks(128, "wide qwen3moe"),
    "nvfp4": ("llama", compressed("nvfp4-pack-quantized", 4, "float", strategy="tensor_group"),
              lambda *a: nvfp4(*a, modelopt=False), lambda t: read_nvfp4(t, False)),
    "nvfp4-modelopt": ("qwen3", {"quant_method": "modelopt", "quant_algo": "NVFP4"},
                       lambda *a: nvfp4(*a, modelopt=True), lambda t: read_nvfp4(t, True)),
    "bnb-nf4": ("qwen3", {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4",
                          "bnb_4bit_use_double_quant": True}, bitsandbytes, read_bitsandbytes),
    "float8-modelopt": ("qwen3", {"quant_method": "modelopt", "quant_algo": "FP8"}, float8_whole, lambda t: read_float8(t, None)),
    "bnb-fp4": ("llama", {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "fp4",
                          "bnb_4bit_use_double_quant": False}, bitsandbytes_fp4, read_bitsandbytes_fp4),
    "bnb-int8": ("llama", {"quant_method": "bitsandbytes", "load_in_8bit": True}, llm_int8, read_llm_int8),
}


def matrices(name, data):
    """Yields the published name and the part [N][K] of each matrix in a parameter: transformers stores those of all
    experts in one, gate and up together."""
    base = name.removesuffix(".weight")
    if data.dim() == 2:
        return {base: data}
    parts = {"gate_proj": slice(0, data.shape[1] // 2), "up_proj": slice(data.shape[1] // 2, None)}
    parts = parts if base.endswith("gate_up_proj") else {"down_proj": slice(None)}
    base = base.rpartition(".")[0]
    return {f"{base}.{e}.{part}": data[e, rows] for e in range(data.shape[0]) for part, rows in parts.items()}


def stack_experts(name, experts, writer, reader, random):
    """Replaces each expert's matrix by a packed one. Returns the stacked tensors."""
    made = [writer(random, *matrix.shape, 0.2 / matrix.shape[1]**0.5) for matrix in experts]
    for matrix, parts in zip(experts, made):
        matrix.copy_(torch.from_numpy(np.ascontiguousarray(reader(parts))))
    scale = torch.stack([torch.as_tensor(parts["weight_scale_inv"]) for parts in made])
    tensors = {name: torch.stack([parts["weight"].view(torch.uint8) for parts in made]).view(torch.float8_e4m3fn),
               f"{name}_scale_inv": scale.reshape(len(made), 1, 1) if scale.dim() == 1 else scale}
    if "activation_scale" in made[0]:
        tensors[f"{name}_activation_scale"] = torch.stack([parts["activation_scale"] for parts in made])
    return tensors


def pack_model(model, writer, reader, seed):
    """Replaces the layers' matrices by packed ones. Returns the folder's tensors."""
    random = np.random.default_rng(seed)
    tensors = {}
    for name, parameter in model.named_parameters():
        if not name.removesuffix(".weight").endswith(PACKED_NAMES):
            parameter.data = parameter.data.bfloat16().float()
            tensors[name] = parameter.data.bfloat16()
            continue
        if parameter.dim() == 3 and model.config.model_type == "mistral4":
            tensors.update(stack_experts(name, parameter.data, writer, reader, random))
            continue
        for base, matrix in matrices(name, parameter.data).items():
            parts = writer(random, *matrix.shape, 0.2 / matrix.shape[1]**0.5)
            matrix.copy_(torch.from_numpy(np.ascontiguousarray(reader(parts))))
            for part, value in parts.items():
                tensors[f"{base}.{part}"] = value if isinstance(value, torch.Tensor) else torch.from_numpy(np.asarray(value))
    return tensors


def finish_mistral4(folder, quantization):
    """As published: a model with images, whose quantization_config is not that of the text alone."""
    make_folders.finish_ministral3(folder)

    def edit(config):
        del config["text_config"]["quantization_config"]
        config["quantization_config"] = {**quantization, "dequantize": False, "modules_to_not_convert": [
            "model.vision_tower", "model.multi_modal_projector", "lm_head"]}

    make_folders.edit_json(folder / "config.json", edit)


def write_folder(name):
    kind, config, writer, reader = FOLDERS[name]
    kept = {}
    plain = make_families.randomise

    def randomise(model, seed):
        kept["tensors"] = pack_model(plain(model, seed), writer, reader, seed)
        return model

    make_families.randomise = randomise
    try:
        model, runs, seed = make_families.golden(MODELS[kind])
    finally:
        make_families.randomise = plain
    folder = make_folders.OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model.config.save_pretrained(folder)
    make_folders.edit_json(folder / "config.json", lambda c: c.update(quantization_config=config, dtype="bfloat16",
                                                                     architectures=[type(model).__name__]))
    safetensors.torch.save_file({key: value.contiguous() for key, value in kept["tensors"].items()},
                                folder / "model.safetensors", {"format": "pt"})
    if kind == "mistral4":
        finish_mistral4(folder, config)
    make_folders.write_tokenizer(folder)
    make_families.write_golden(make_folders.OUT / f"{name}.txt", name, runs, seed)
    print(f"{name}: seed {seed}, {sum(path.stat().st_size for path in folder.iterdir())} bytes")


if __name__ == "__main__":
    wanted, make_folders.OUT = make_families.begin(FOLDERS, "folders")
    for folder_name in wanted:
        write_folder(folder_name)
