"""Mutants of moving blocks of the cache; tests/cuda_mutate.py says what the names mean."""
UNITS = ["kv", "room"]
PROGRAMS = ["kv", "swap"]

MUTANTS = [
    ("room.cu", 'cuda_must(cudaStreamSynchronize(nullptr), "waiting for memory to be cleared");', ";"),
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
    ("kv.cu", "p.listed ? list.block[i] : p.block[i]", "p.listed ? list.block[0] : p.block[i]"),
    ("kv.cu", "memcpy(list.block, block, (size_t)n * sizeof *block);",
     "memcpy(list.block, block, (size_t)(n - 1) * sizeof *block);"),
    ("kv.cu", "move(cache, in_stage(stage), in_cache(cache, nullptr), n, list_of(block, n), stream);",
     "move(cache, in_stage(stage), in_cache(cache, nullptr), n - 1, list_of(block, n), stream);"),
]
