#!/usr/bin/env python3
"""Makes kernels/cpu/weights/grids.inc: the groups of values that the codes of IQ types represent, from the `gguf`
package.

    python3 tests/vectors/make_grids.py > kernels/cpu/weights/grids.inc

A grid lists groups of 8 values of 3 kinds, or of 4 values of 8 kinds. As numbers whose lowest digit is the first value,
its groups are in ascending order. So one bit per possible number describes the grid: a hexadecimal digit holds four of
them, the lowest first.
"""
import numpy as np
from gguf import quants

WIDTH = 88  # digits per line
GRIDS = [quants.IQ2_XXS, quants.IQ2_XS, quants.IQ2_S, quants.IQ3_XXS, quants.IQ3_S, quants.IQ1_S]

print("/* Made by tests/vectors/make_grids.py from what the gguf package knows of the format. */")
for kind in GRIDS:
    kind.init_grid()
    n, length = kind.grid_shape
    groups = kind.grid.reshape(n, length).astype(int)
    values = list(kind.grid_map)
    numbers = np.array([[values.index(value) for value in group] for group in groups]) @ len(values) ** np.arange(length)
    assert (np.diff(numbers) > 0).all()
    bits = np.zeros((len(values) ** length + 3) // 4 * 4, dtype=int)
    bits[numbers] = 1
    digits = "".join("0123456789abcdef"[digit] for digit in bits.reshape(-1, 4) @ [1, 2, 4, 8])
    print(f"[GRID_{kind.__name__}] =")
    lines = [digits[i:i + WIDTH] for i in range(0, len(digits), WIDTH)]
    print("\n".join(f'    "{line}"' for line in lines) + ",")
