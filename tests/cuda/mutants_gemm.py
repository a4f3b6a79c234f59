"""Bugs to plant in the products' kernels, for tests/cuda_mutate.py: tables by subject, in its form."""
K = "kernels/cuda/"

# Files whose synchronisation is dropped, call by call.
DROPS = {"gemm": [K + "gemm_skinny.cu", K + "gemm_tiled.cu", K + "gemm_float.cu"]}

# File, what stands there (once), what is put in its place; and where the mutant cannot be found, why.
MUTANTS = {
    "gemm": [
        # the skinny kernel
        (K + "gemm_skinny.cu", "range_start(p.w.slabs, p.w.ranges, warp + 1), lane)", "range_start(p.w.slabs, p.w.ranges, warp + 1) - 1, lane)"),
        (K + "gemm_skinny.cu", "if (begin + i < end) load(", "if (begin + i <= end) load("),
        (K + "gemm_skinny.cu", "if (here + 1 < end) load_columns<F, ALIGNED>(x[(i + 1) % 2]", "if (here + 1 < end) load_columns<F, ALIGNED>(x[i % 2]"),
        (K + "gemm_skinny.cu", "load(w[i], here + F::AHEAD)", "load(w[i], here + 1)"),
        (K + "gemm_skinny.cu", "const int m = c * GROUP + lane / 4, t = lane % 4;", "const int m = c * GROUP + lane / 8, t = lane % 4;"),
        (K + "gemm_skinny.cu", "rows[c].left = (m < p.M ? p.w.K : 0)", "rows[c].left = (m <= p.M ? p.w.K : 0)",
         "row M gets the numbers of another in the place of zeros, and is not stored"),
        (K + "gemm_skinny.cu", "if (k < row.left) v =", "if (k <= row.left) v ="),
        (K + "gemm_skinny.cu", "k + i < row.left ? bits_as", "k + i <= row.left ? bits_as"),
        (K + "gemm_skinny.cu", "m = c * GROUP + lane % 4 * 2 + i % 2, n = lane / 4 + i / 2 * 8", "m = c * GROUP + lane % 4 * 2 + i / 2, n = lane / 4 + i % 2 * 8"),
        (K + "gemm_skinny.cu", "range < p.w.ranges; range++", "range < p.w.ranges - 1; range++"),
        (K + "gemm_skinny.cu", "float total = 0.0f;\n            for (int range = 0; range < p.w.ranges; range++)",
         "float total = 0.0f;\n            for (int range = p.w.ranges - 1; range >= 0; range--)"),
        (K + "gemm_skinny.cu", "sizeof(float) * p.w.ranges * C * GROUP * SUMS_WIDE;", "sizeof(float) * p.w.ranges * C * GROUP * TILE;"),
        # the tiled kernel
        (K + "gemm_tiled.cu", "cp_async_wait<S::STAGES - 2>();", "cp_async_wait<S::STAGES - 1>();"),
        (K + "gemm_tiled.cu", "const int ahead = slab + S::STAGES - 1;", "const int ahead = slab + S::STAGES;"),
        (K + "gemm_tiled.cu", "ring + ahead % S::STAGES * R::STAGE, p, ahead", "ring + (ahead + 1) % S::STAGES * R::STAGE, p, ahead"),
        (K + "gemm_tiled.cu", "if (ahead < slabs) fill_stage", "if (ahead <= slabs) fill_stage"),
        (K + "gemm_tiled.cu", "stage + x_offset(row, column / 8) + column % 8 * 2", "stage + row * (SLAB * 2) + column / 8 * 16 + column % 8 * 2"),
        (K + "gemm_tiled.cu", "return row * (SLAB * 2) + (chunk ^ ((row & 1) << 2 | (row & 2))) * 16;", "return row * (SLAB * 2) + chunk * 16;",
         "the same bytes at other places: it is slower, by conflicts of banks, and not wrong"),
        (K + "gemm_tiled.cu", "const bool there = m < p.M && k < p.w.K;", "const bool there = m <= p.M && k < p.w.K;"),
        (K + "gemm_tiled.cu", "const bool there = m < p.M && k < p.w.K;", "const bool there = m < p.M && k <= p.w.K;"),
        (K + "gemm_tiled.cu", "const bool there = i / EACH < tiles;", "const bool there = i / EACH <= tiles;"),
        (K + "gemm_tiled.cu", "if (slab + 1 == range_start(slabs, p.w.ranges, range + 1)) {", "if (slab + 2 == range_start(slabs, p.w.ranges, range + 1)) {"),
        (K + "gemm_tiled.cu", "acc[n][c][i] = 0.0f;", ""),
        (K + "gemm_tiled.cu", "stage + R::SCALES + (tile + n) * F::SCALE_BYTES", "stage + R::SCALES + tile * F::SCALE_BYTES"),
        (K + "gemm_tiled.cu", "(int)blockIdx.y * S::NB + here, i % columns", "(int)blockIdx.y * S::NB + here + 1, i % columns"),
        (K + "gemm_tiled.cu", "cp_async16(to, from, there ? 16 : 0);\n        } else", "cp_async16(to, from, 16);\n        } else"),
        (K + "gemm_tiled.cu", "BYTES = ALL > S::SUMS_BYTES ? ALL : S::SUMS_BYTES;", "BYTES = ALL / S::STAGES * 2;"),
        # what they share
        (K + "gemm_format.cuh", "and_or(halves, 0x00800080u, 0xc300c300u)", "and_or(halves, 0x00800080u, 0x43004300u)"),
        (K + "gemm_format.cuh", "nibbles<T>(w.code[step], r)), 32)", "nibbles<T>(w.code[step], r)), 31)"),
        (K + "gemm_format.cuh", "const int by = 8 * (step % 2) + 2 * r - 4;", "const int by = 8 * (step % 2) + r - 4;"),
        (K + "gemm_format.cuh", "r % 2 ? 0x3424 : 0x1404", "r % 2 ? 0x3424 : 0x0414"),
        (K + "gemm_format.cuh", "acc[c][i] = fmaf(folded[i], F::scale(w, part, i / 2), acc[c][i]);", "acc[c][i] = fmaf(folded[i], F::scale(w, part, i % 2), acc[c][i]);"),
        (K + "gemm_format.cuh", "fmaf(sums[c][i % 2], F::min", "fmaf(sums[c][i / 2], F::min"),
        (K + "gemm_format.cuh", "tile.supers + slab / SUPER_SLABS", "tile.supers + (slab + 1) / SUPER_SLABS"),
        (K + "gemm_format.cuh", "if (m >= p.M || n >= N) return;", "if (m > p.M || n >= N) return;"),
        (K + "gemm_format.cuh", "if (m >= p.M || n >= N) return;", "if (m >= p.M || n > N) return;"),
        (K + "gemm_format.cuh", "up = up + p.end.bias[N + n]", "up = up + p.end.bias[n]"),
        # packing, float32
        (K + "gemm_pack.cu", "if (slab % SUPER_SLABS == 0)", "if (slab % SUPER_SLABS == 1)"),
        (K + "gemm_pack.cu", "if (slab % each == 0)", "if (slab % each == 0 && slab > 0)"),
        (K + "gemm_pack.cu", "if (*number >= p.count) return nullptr;", "if (*number > p.count) return nullptr;"),
        (K + "gemm_pack.cu", "if (slab >= p.w.slabs) return;", "if (slab > p.w.slabs) return;"),
        (K + "gemm_float.cu", "const int deep = min(FLOAT_DEEP, p.w.K - k);", "const int deep = FLOAT_DEEP;",
         "more terms of 0 * 0 change no sum but that of an infinity, or a -0"),
        (K + "gemm_float.cu", "r < rows && at < K ?", "r <= rows && at < K ?"),
        (K + "gemm_float.cu", "acc[e] = fmaf(xs[i][m + e], ws[i][n], acc[e]);", "acc[e] = acc[e] + xs[i][m + e] * ws[i][n];"),
    ],
}
