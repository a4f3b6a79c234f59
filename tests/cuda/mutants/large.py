"""Mutants of places in matrices of more than 2^31 bytes; tests/cuda_mutate.py says what the names mean."""
UNITS = ["gemm/skinny", "gemm/tiled", "gemm/float", "gemm/pack", "gemm/embed"]

MUTANTS = [
    ("gemm/format.cuh", "w.codes + (size_t)tile * w.slabs * F::CODE_BYTES", "w.codes + tile * w.slabs * F::CODE_BYTES"),
    ("gemm/float.cu", "from[(size_t)r * K + at]", "from[r * K + at]"),
    ("gemm/embed.cu", "(a.w.codes) + (size_t)id * K;", "(a.w.codes) + id * K;"),
    ("gemm/pack.cu", "((size_t)(p.first_tile + tile) * GEMM_TILE + r) * p.w.K;", "((p.first_tile + tile) * GEMM_TILE + r) * p.w.K;"),
    ("gemm/pack.cu", "whole(tiles * (size_t)w->slabs * F::CODE_BYTES)", "whole((size_t)(w->tiles * w->slabs * F::CODE_BYTES))"),
    ("gemm/skinny.cuh", "return {p.x, p.w.K, dyn_smem<float>()};", "return {p.x + (p.w.tiles > 2000), p.w.K, dyn_smem<float>()};"),
]
