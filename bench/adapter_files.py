"""Makes adapters of random numbers for a model of llama's shapes: folders of PEFT, for speed only."""
import json
import pathlib
import random
import re
import struct
import subprocess

MODULES = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
           "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


def matrices(program, model):
    """[(layer, PEFT's name of the module, rows, columns)] of the model's layers, from `penstock inspect`."""
    text = subprocess.run([program, "inspect", "--tensors", model], check=True, capture_output=True, text=True).stdout
    found = re.findall(r"^  blk\.(\d+)\.(\w+)\.weight\s+\S+\s+\[(\d+) ?x ?(\d+)\]", text, re.M)
    return [(int(layer), MODULES[name], int(rows), int(columns)) for layer, name, columns, rows in found if name in MODULES]


def halves(draw, n):
    """n float16 numbers with random signs, from 2^-7 to 2^-6: sign and mantissa are random, the exponent is 8."""
    bits = int.from_bytes(draw.randbytes(2 * n), "little")
    every = int.from_bytes(b"\x01\x00" * n, "little")
    return (bits & (every * 0x83ff) | every * 0x2000).to_bytes(2 * n, "little")


def write(folder, shapes, rank, seed):
    """Writes an adapter of that rank which changes all matrices. The same seed gives the same bytes."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    draw, table, parts, at = random.Random(seed), {}, [], 0
    for layer, module, rows, columns in shapes:
        for half, shape in (("A", [rank, columns]), ("B", [rows, rank])):
            n_bytes = 2 * shape[0] * shape[1]
            name = f"base_model.model.model.layers.{layer}.{module}.lora_{half}.weight"
            table[name] = {"dtype": "F16", "shape": shape, "data_offsets": [at, at + n_bytes]}
            parts.append(halves(draw, n_bytes // 2))
            at += n_bytes
    head = json.dumps(table).encode()
    head += b" " * (-len(head) % 8)
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + b"".join(parts))
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "target_modules": sorted({m.split(".")[1] for _, m, _, _ in shapes})}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder
