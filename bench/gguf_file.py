"""Reads a GGUF file with numpy only, its metadata and its tensors as float32, and writes it with halves.

The format is described at https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, the blocks in docs/formats.md.
"""
import struct

import numpy as np

NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


class Cursor:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        """One number, little-endian."""
        value, = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def string(self):
        n = self.take("Q")
        self.at += n
        return bytes(self.data[self.at - n:self.at]).decode("utf-8", "surrogateescape")

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind != ARRAY:
            return self.take(NUMBERS[kind])
        kind, n = self.take("I"), self.take("Q")
        return [self.value(kind) for _ in range(n)]


# ---- blocks: (numbers in a block, its fields, a function that makes floats [n][numbers] of n blocks) ---------------------

def nibbles(codes):
    """The low halves of a block's bytes are its first numbers, the high halves the others."""
    return np.concatenate([codes & 15, codes >> 4], axis=1).astype(np.float32)


def fifth_bits(blocks):
    shifts = np.arange(32, dtype=np.uint32)
    return (((blocks["h"][:, None] >> shifts) & 1) << 4).astype(np.float32)


def column(blocks, name):
    return blocks[name].astype(np.float32)[:, None]


def bf16(blocks):
    return (blocks["x"].astype(np.uint32) << 16).view(np.float32)


D, M, H, HALF = ("d", "<f2"), ("m", "<f2"), ("h", "<u4"), ("q", "u1", 16)
TYPES = {
    0: (1, [("x", "<f4", 1)], lambda b: b["x"]),
    1: (1, [("x", "<f2", 1)], lambda b: b["x"].astype(np.float32)),
    2: (32, [D, HALF], lambda b: (nibbles(b["q"]) - 8) * column(b, "d")),
    3: (32, [D, M, HALF], lambda b: nibbles(b["q"]) * column(b, "d") + column(b, "m")),
    6: (32, [D, H, HALF], lambda b: (nibbles(b["q"]) + fifth_bits(b) - 16) * column(b, "d")),
    7: (32, [D, M, H, HALF], lambda b: (nibbles(b["q"]) + fifth_bits(b)) * column(b, "d") + column(b, "m")),
    8: (32, [D, ("q", "i1", 32)], lambda b: b["q"].astype(np.float32) * column(b, "d")),
    30: (1, [("x", "<u2", 1)], bf16),
}


class GGUF:
    """`metadata` is a dict; `tensors` has each tensor's (type, shape, offset), rows first; self[name] is a float32 array."""

    def __init__(self, path):
        self.data = np.memmap(path, np.uint8, "r")
        cursor = Cursor(self.data)
        if cursor.take("I") != 0x46554747 or cursor.take("I") not in (2, 3):
            raise ValueError(f"{path} is not a GGUF file of version 2 or 3")
        n_tensors, n_values = cursor.take("Q"), cursor.take("Q")
        self.metadata = {cursor.string(): cursor.value(cursor.take("I")) for _ in range(n_values)}
        self.head = bytes(self.data[:cursor.at])
        self.tensors = dict(self.read_info(cursor) for _ in range(n_tensors))
        self.alignment = self.metadata.get("general.alignment", 32)
        self.start = self.aligned(cursor.at)

    def aligned(self, at):
        return -(-at // self.alignment) * self.alignment

    @staticmethod
    def read_info(cursor):
        name = cursor.string()
        shape = [cursor.take("Q") for _ in range(cursor.take("I"))]
        return name, (cursor.take("I"), shape[::-1], cursor.take("Q"))

    def __contains__(self, name):
        return name in self.tensors

    def __getitem__(self, name):
        kind, shape, offset = self.tensors[name]
        if kind not in TYPES:
            raise ValueError(f"{name} has GGUF type {kind}, which bench/gguf_file.py does not decode")
        numbers, fields, decode = TYPES[kind]
        blocks = np.frombuffer(self.data, np.dtype(fields), int(np.prod(shape)) // numbers, self.start + offset)
        return decode(blocks).reshape(shape)

    def write_halves(self, path):
        """Writes the same file with float16 matrices and float32 vectors."""
        infos, offset = bytearray(self.head), 0
        for name, (_, shape, _) in self.tensors.items():
            text, is_matrix = name.encode("utf-8", "surrogateescape"), len(shape) > 1
            infos += struct.pack(f"<Q{len(text)}sI{len(shape)}QIQ", len(text), text, len(shape), *shape[::-1],
                                 int(is_matrix), offset)
            offset = self.aligned(offset + int(np.prod(shape)) * (2 if is_matrix else 4))
        with open(path, "wb") as out:
            out.write(infos)
            for name, (_, shape, _) in self.tensors.items():
                out.write(bytes(self.aligned(out.tell()) - out.tell()))
                self[name].astype(np.float16 if len(shape) > 1 else np.float32).tofile(out)
