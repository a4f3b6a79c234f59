"""A GGUF file whose greedy answers are a script: the token after position p depends on p alone.

The model is GPT-2 with zeros everywhere except for positions and the head. Position p is the vector with a 1 at p, and
a token's row of the head has a 1 at each position that it follows. So a prompt's length selects the answer.
"""
import re
import struct

from type_files import ARRAY, F32, I32, TEXT, U32, array, pair, text

CONTEXT, HEADS, F = 256, 4, 32
K = CONTEXT
CONTROL, NORMAL = 3, 1


def letters():
    """GPT-2's letters for bytes."""
    shown = [*range(ord("!"), ord("~") + 1), *range(0xa1, 0xad), *range(0xae, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return [chr(byte if byte in shown else 0x100 + hidden.index(byte)) for byte in range(256)]


def ids_of(words, content):
    """The tokens of ASCII text: a special token each, and one for each other byte."""
    pattern = "(" + "|".join(map(re.escape, words)) + ")"
    return [i for part in re.split(pattern, content)
            for i in ([256 + words.index(part)] if part in words else part.encode())]


def tensors(head):
    """Returns name, shape with the rows last, and floats of each tensor."""
    def zeros(*shape):
        n = 1
        for size in shape:
            n *= size
        return shape, [0.0] * n
    ones = (K,), [1.0] * K
    V = len(head) // K
    found = {"token_embd.weight": zeros(K, V), "output.weight": ((K, V), head),
             "position_embd.weight": ((K, CONTEXT), [float(i % (K + 1) == 0) for i in range(K * CONTEXT)]),
             "output_norm.weight": ones, "output_norm.bias": zeros(K)}
    for name, N, n in (("attn_qkv", 3 * K, K), ("attn_output", K, K), ("ffn_up", F, K), ("ffn_down", K, F)):
        found[f"blk.0.{name}.weight"], found[f"blk.0.{name}.bias"] = zeros(n, N), zeros(N)
    for name in ("attn_norm", "ffn_norm"):
        found[f"blk.0.{name}.weight"], found[f"blk.0.{name}.bias"] = ones, zeros(K)
    return found


def keys(words, template, eos):
    numbers = {"context_length": CONTEXT, "embedding_length": K, "feed_forward_length": F, "block_count": 1,
               "attention.head_count": HEADS}
    return [pair("general.architecture", TEXT, "gpt2"),
            *(pair(f"gpt2.{key}", U32, value) for key, value in numbers.items()),
            pair("gpt2.attention.layer_norm_epsilon", F32, 1e-5),
            pair("tokenizer.ggml.model", TEXT, "gpt2"), pair("tokenizer.ggml.pre", TEXT, "gpt-2"),
            array("tokenizer.ggml.tokens", TEXT, [*letters(), *words, "!!"]),
            array("tokenizer.ggml.token_type", I32, [NORMAL] * 256 + [CONTROL] * len(words) + [NORMAL]),
            array("tokenizer.ggml.merges", TEXT, ["! !"]),
            pair("tokenizer.ggml.eos_token_id", U32, 256 + words.index(eos)),
            pair("tokenizer.chat_template", TEXT, template)]


def write(path, words, template, eos, answers):
    """Writes the file. `answers`: {length of a prompt in tokens: its answer}."""
    V = 256 + len(words) + 1
    head = [0.0] * (V * K)
    for length, answer in answers.items():
        for i, token in enumerate(ids_of(words, answer)):
            head[token * K + length - 1 + i] = 1.0
    found, pairs = tensors(head), keys(words, template, eos)
    start, data = struct.pack("<4sIQQ", b"GGUF", 3, len(found), len(pairs)) + b"".join(pairs), b""
    for name, (shape, values) in found.items():
        start += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, len(data))
        data += struct.pack(f"<{len(values)}f", *values)
        data += bytes(-len(data) % 32)
    path.write_bytes(start + bytes(-len(start) % 32) + data)
