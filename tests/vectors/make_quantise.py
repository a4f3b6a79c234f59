#!/usr/bin/env python3
"""Makes quantise.bin: float32 weights, and the blocks that the `gguf` package (0.18 or later) makes of them.

    python3 tests/vectors/make_quantise.py > tests/vectors/quantise.bin

Little-endian: int32 number of weights, the float32 weights; then for each type: int32 type number, int32 bytes, the
bytes. The package's rounding is that of ggml's reference. The blocks of 32 weights: ordinary ones of several sizes,
zeros, one number among zeros, equal numbers, two largest magnitudes of both signs, codes halfway between two, and
subnormal halves.
"""
import sys

import numpy as np
from gguf.constants import GGMLQuantizationType as Type
from gguf.quants import quantize

TYPES = [Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1]

random = np.random.default_rng(20260102)
blocks = [random.normal(0, 10.0 ** (i % 7 - 4), 32) for i in range(42)]
blocks += [np.zeros(32), np.eye(1, 32, 5)[0], -np.eye(1, 32, 31)[0], np.full(32, 0.25), np.full(32, -3.0)]
blocks += [np.where(np.arange(32) % 2, 1.0, -1.0), np.where(np.arange(32) % 2, -1.0, 1.0)]
blocks += [(np.arange(32) - 16) / 2.0, np.arange(32) / 2.0 - 8, np.arange(32) * 4.0 - 63.5, np.arange(32) - 127 / 2]
blocks += [random.normal(0, 1e-6, 32), np.linspace(-15, 16, 32), np.linspace(0, 31, 32)]
weights = np.array(blocks).astype(np.float32)
out = sys.stdout.buffer
out.write(np.array([weights.size], dtype="<i4").tobytes() + weights.astype("<f4").tobytes())
for kind in TYPES:
    data = quantize(weights, kind).reshape(-1)
    out.write(np.array([int(kind), data.size], dtype="<i4").tobytes() + data.tobytes())
