"""Mutants of moving blocks of the cache; tests/cuda_mutate.py says what the names mean."""
UNITS = ["kv"]

MUTANTS = [
    ("kv.cu", "const bool is_value = y >= sizes.L;", "const bool is_value = y > sizes.L;"),
    ("kv.cu", "i < sizes.block_bytes; i += MOVE_THREADS * N", "i + N < sizes.block_bytes; i += MOVE_THREADS * N"),
    ("kv.cu", "i < sizes.block_bytes; i += MOVE_THREADS * N", "i <= sizes.block_bytes; i += MOVE_THREADS * N"),
    ("kv.cu", "(size_t)layer * p.layer_bytes;", "(size_t)layer * sizes.block_bytes;"),
    ("kv.cu", "cache->block_bytes % 16 == 0", "cache->block_bytes % 4 == 0"),
    ("kv.cu", "((size_t)i * 2 + is_value) * sizes.L + layer", "((size_t)i + is_value) * sizes.L + layer"),
    ("kv.cu", "g < sizes.n_scales; g += MOVE_THREADS", "g < sizes.n_scales - 1; g += MOVE_THREADS"),
    ("kv.cu", "is_value ? p.value_scale : p.key_scale", "p.key_scale"),
    ("kv.cu", "((size_t)layer * p.n_blocks + block) * sizes.n_scales", "block * sizes.n_scales"),
    ("kv.cu", "at + sizes.block_bytes)};", "at)};"),
]
