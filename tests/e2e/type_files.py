"""Tiny GGUF files of one weight type each, with random bytes from a seed: test_types.py serves them, and
tests/vectors/make_types.py computes the expected results. This file knows only one thing about the bytes: the scale of
a block, which is set so that weights are about as large as those of trained models.
"""
import dataclasses
import random
import struct

K, F, V, D, H, G, LAYERS, CONTEXT = 256, 512, 299, 64, 4, 2, 2, 96
EPSILON, THETA = 1e-6, 1e6
U32, F32, TEXT, ARRAY, I32 = 4, 6, 8, 9, 5  # types of values in GGUF


@dataclasses.dataclass(frozen=True)
class Kind:
    """A type's number in GGUF, the weights and bytes of a block, and the parts of a block that are not random."""
    number: int
    weights: int
    size: int
    halves: dict = dataclasses.field(default_factory=dict)  # offset: about which number
    masked: dict = dataclasses.field(default_factory=dict)  # offset: the mask of random bits, and the bits that are set


KINDS = {
    # between 1/16 and 1/8, of both signs
    "F32": Kind(0, 1, 4, masked={2: (0x7f, 0x80), 3: (0x80, 0x3d)}),
    "F16": Kind(1, 1, 2, masked={1: (0x83, 0x2c)}),
    "BF16": Kind(30, 1, 2, masked={0: (0x7f, 0x80), 1: (0x80, 0x3d)}),
    "Q8_0": Kind(8, 32, 34, {0: .00125}),
    "Q6_K": Kind(14, 256, 210, {208: 7e-5}),
    "Q5_0": Kind(6, 32, 22, {0: .01}),
    "Q5_1": Kind(7, 32, 24, {0: .01, 2: -.155}),
    "Q5_K": Kind(13, 256, 176, {0: .00018, 2: .0028}),
    "Q4_0": Kind(2, 32, 18, {0: .02}),
    "Q4_1": Kind(3, 32, 20, {0: .02, 2: -.15}),
    "Q4_K": Kind(12, 256, 144, {0: .00035, 2: .0026}),
    "IQ4_NL": Kind(20, 32, 18, {0: .0013}),
    "IQ4_XS": Kind(23, 256, 136, {0: 7e-5}),
    "MXFP4": Kind(39, 32, 17, masked={0: (1, 122)}),
    "Q3_K": Kind(11, 256, 110, {108: .0021}),
    "Q2_K": Kind(10, 256, 84, {80: .0065, 82: .0097}),
    "TQ1_0": Kind(34, 256, 54, {52: .11}),
    "TQ2_0": Kind(35, 256, 66, {64: .075}),
    "Q1_0": Kind(41, 128, 18, {0: .085}),
    "Q2_0": Kind(42, 64, 18, {0: .075}),
    "IQ1_S": Kind(19, 256, 50, {0: .0125}),
    "IQ2_XXS": Kind(16, 256, 66, {0: .0016}),
    "IQ3_XXS": Kind(18, 256, 98, {0: .00065}),
    "IQ3_S": Kind(21, 256, 110, {0: .0006}),
    # the scale of IQ1_M is a half, with a nibble in each second byte from 49: 0x2266 is 0.0125
    "IQ1_M": Kind(29, 256, 56, masked={49: (15, 0x60), 51: (15, 0x60), 53: (15, 0x20), 55: (15, 0x20)}),
    "IQ2_XS": Kind(17, 256, 74, {0: .0016}),
    "IQ2_S": Kind(22, 256, 82, {0: .0016}),
    "NVFP4": Kind(40, 64, 36, masked={i: (7, 0x10) for i in range(4)}),
}


def blocks(kind, n, rng):
    """Returns the bytes of n weights."""
    count = n // kind.weights
    data = bytearray(rng.randbytes(count * kind.size))
    signs = (-1, 1) if len(kind.halves) == 1 else (1,)  # codes are not around 0, so weights would not be either
    for at, scale in kind.halves.items():
        halves = struct.pack(f"<{count}e", *(rng.choice(signs) * scale * rng.uniform(.75, 1.25) for _ in range(count)))
        data[at::kind.size], data[at + 1::kind.size] = halves[::2], halves[1::2]
    for at, (kept, bits) in kind.masked.items():
        data[at::kind.size] = data[at::kind.size].translate(bytes(byte & kept | bits for byte in range(256)))
    return bytes(data)


def floats(n, rng):
    """Gains."""
    return struct.pack(f"<{n}f", *(rng.uniform(.5, 1.5) for _ in range(n)))


def tensors(name, seed):
    """Returns name, rows (None: a vector), columns and bytes of each tensor, in the order of the file."""
    kind, rng = KINDS[name], random.Random(f"{name} {seed}")
    matrices = {"attn_q": (H * D, K), "attn_k": (G * D, K), "attn_v": (G * D, K), "attn_output": (K, H * D),
                "ffn_gate": (F, K), "ffn_up": (F, K), "ffn_down": (K, F)}
    vectors = {"attn_norm": K, "ffn_norm": K, "attn_q_norm": D, "attn_k_norm": D}
    found = [(f"{word}.weight", V, K, blocks(kind, V * K, rng)) for word in ("token_embd", "output")]
    for i in range(LAYERS):
        found += [(f"blk.{i}.{word}.weight", N, n, blocks(kind, N * n, rng)) for word, (N, n) in matrices.items()]
        found += [(f"blk.{i}.{word}.weight", None, n, floats(n, rng)) for word, n in vectors.items()]
    return found + [("output_norm.weight", None, K, floats(K, rng))]


# ---- the file -------------------------------------------------------------------------------------------------

def text(word):
    data = word.encode()
    return struct.pack("<Q", len(data)) + data


def pair(key, kind, value):
    data = text(value) if kind == TEXT else struct.pack("<f" if kind == F32 else "<I", value)
    return text(key) + struct.pack("<I", kind) + data


def array(key, kind, values):
    data = b"".join(text(v) if kind == TEXT else struct.pack("<i", v) for v in values)
    return text(key) + struct.pack("<IIQ", ARRAY, kind, len(values)) + data


def vocabulary():
    """GPT-2's letters for bytes, a token that joins two of them, and one that ends a text."""
    shown = [*range(ord("!"), ord("~") + 1), *range(0xa1, 0xad), *range(0xae, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    letters = [chr(byte if byte in shown else 0x100 + hidden.index(byte)) for byte in range(256)]
    words = [*letters, "<|endoftext|>", "th", *(f"[PAD{i}]" for i in range(V - 258))]
    return words, [3 if i == 256 else 1 if i < 258 else 5 for i in range(V)]  # control, normal, unused


def keys():
    words, kinds = vocabulary()
    numbers = {"context_length": CONTEXT, "embedding_length": K, "feed_forward_length": F, "block_count": LAYERS,
               "attention.head_count": H, "attention.head_count_kv": G, "attention.key_length": D, "attention.value_length": D}
    return [pair("general.architecture", TEXT, "qwen3"),
            *(pair(f"qwen3.{key}", U32, value) for key, value in numbers.items()),
            pair("qwen3.attention.layer_norm_rms_epsilon", F32, EPSILON), pair("qwen3.rope.freq_base", F32, THETA),
            pair("tokenizer.ggml.model", TEXT, "gpt2"), pair("tokenizer.ggml.pre", TEXT, "qwen2"),
            array("tokenizer.ggml.tokens", TEXT, words), array("tokenizer.ggml.token_type", I32, kinds),
            array("tokenizer.ggml.merges", TEXT, ["t h"]), pair("tokenizer.ggml.eos_token_id", U32, 256)]


def write(path, name, seed):
    """Writes the file of a type."""
    found, pairs = tensors(name, seed), keys()
    head, data = struct.pack("<4sIQQ", b"GGUF", 3, len(found), len(pairs)) + b"".join(pairs), b""
    for word, rows, columns, content in found:
        shape = [columns] if rows is None else [columns, rows]
        number = 0 if rows is None else KINDS[name].number
        head += text(word) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, number, len(data))
        data += content + bytes(-len(content) % 32)
    path.write_bytes(head + bytes(-len(head) % 32) + data)
