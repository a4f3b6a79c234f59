#!/usr/bin/env python3
"""Makes dequantise.bin: blocks of all weight types, and the weights that the `gguf` package (0.19 or later) reads from
them.

    python3 tests/vectors/make_dequantise.py > tests/vectors/dequantise.bin

ggml_blocks.py reads two types by ggml's library.

Little-endian, for each type: int32 type number, int32 number of weights, int32 bytes, the bytes, the float32 weights.
Bytes are random, except the halves (scales), which are random finite numbers, some of them subnormal. The scale bytes
of MXFP4 begin with 0, 1, 2 and 250.
"""
import sys

import numpy as np
from gguf.constants import GGMLQuantizationType as Type

from ggml_blocks import shape_of, weights_of

BLOCKS = {Type.F32: 64, Type.F16: 64, Type.BF16: 64, Type.Q4_0: 6, Type.Q4_1: 6, Type.Q5_0: 6,
          Type.Q5_1: 6, Type.Q8_0: 6, Type.Q4_K: 3, Type.Q5_K: 3, Type.Q6_K: 3, Type.Q2_K: 3, Type.Q3_K: 3,
          Type.IQ4_NL: 6, Type.IQ4_XS: 3, Type.TQ1_0: 3, Type.TQ2_0: 3, Type.MXFP4: 40,
          Type.IQ1_S: 6, Type.IQ1_M: 6, Type.IQ2_XXS: 6, Type.IQ2_XS: 6, Type.IQ2_S: 6, Type.IQ3_XXS: 6, Type.IQ3_S: 6,
          Type.NVFP4: 16}
BY_LIBRARY = {"Q1_0": 4, "Q2_0": 4}
HALVES = {Type.F16: [0], Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2],
          Type.Q8_0: [0], Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208],
          Type.Q2_K: [80, 82], Type.Q3_K: [108], Type.IQ4_NL: [0], Type.IQ4_XS: [0], Type.TQ1_0: [52],
          Type.TQ2_0: [64], Type.IQ1_S: [0], Type.IQ2_XXS: [0], Type.IQ2_XS: [0], Type.IQ2_S: [0], Type.IQ3_XXS: [0],
          Type.IQ3_S: [0]}

random = np.random.default_rng(20260101)
for kind, count in [*BLOCKS.items(), *BY_LIBRARY.items()]:
    name = kind if isinstance(kind, str) else kind.name
    number, elements, size = shape_of(name, kind)
    data = random.integers(0, 256, (count, size), dtype=np.uint8)
    for at in HALVES.get(kind, [0] if name in BY_LIBRARY else []):
        halves = random.normal(0, 0.1, count).astype(np.float16)
        halves[0] = 6e-8 * random.integers(1, 900)  # a subnormal
        data[:, at:at + 2] = halves.view(np.uint8).reshape(count, 2)
    if kind == Type.IQ1_M:  # a nibble of its scale in every second byte from 49
        for i in range(4):
            data[:, 49 + 2 * i] = data[:, 49 + 2 * i] & 15 | (0x1234 + 77 * np.arange(count) >> 4 * i & 15) << 4
    if kind == Type.NVFP4:
        data[0, :4], data[1, :4] = [0, 1, 7, 8], [0x7e, 0x7f, 0x80, 0xff]
    if kind == Type.MXFP4:
        data[:, 0] = np.minimum(data[:, 0], 250)  # above, weights are infinite
        data[:4, 0] = [0, 1, 2, 250]
    if kind in (Type.F32, Type.BF16):
        data = (random.normal(0, 1, count).astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.uint8)
        data = data.reshape(count, 4)[:, 4 - size:].copy()
    weights = weights_of(name, kind, data)
    assert np.isfinite(weights).all() and weights.size == count * elements
    head = np.array([number, weights.size, data.size], dtype="<i4")
    sys.stdout.buffer.write(head.tobytes() + data.tobytes() + weights.astype("<f4").tobytes())
