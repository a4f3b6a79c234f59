"""Mutants of moving blocks of the cache; tests/cuda_mutate.py says what the names mean."""
UNITS = ["attention/kv", "runtime/memory", "step"]
PROGRAMS = ["kv", "swap"]

MUTANTS = [
    ("step.cu", "(blocks->copy_to[i] == blocks->copy_from[j] ||", "((i < j && blocks->copy_to[i] == blocks->copy_from[j]) ||"),
    ("step.cu", "(blocks->copy_to[i] == blocks->copy_from[j] ||", "((i > j && blocks->copy_to[i] == blocks->copy_from[j]) ||"),
    ("step.cu", "(i < j && blocks->copy_to[i] == blocks->copy_to[j])", "false"),
    ("runtime/memory.cu", 'cuda_check(cudaStreamSynchronize(nullptr), "waiting for memory to be cleared");', ";"),
    ("attention/kv.cu", "const bool is_value = y >= sizes.L;", "const bool is_value = y > sizes.L;"),
    ("attention/kv.cu", "i < sizes.block_bytes; i += MOVE_THREADS * N", "i + N < sizes.block_bytes; i += MOVE_THREADS * N"),
    ("attention/kv.cu", "i < sizes.block_bytes; i += MOVE_THREADS * N", "i <= sizes.block_bytes; i += MOVE_THREADS * N"),
    ("attention/kv.cu", "(size_t)layer * p.layer_bytes;", "(size_t)layer * sizes.block_bytes;"),
    ("attention/kv.cu", "cache->block_bytes % 16 == 0", "cache->block_bytes % 4 == 0"),
    ("attention/kv.cu", "(size_t)is_value * sizes.L + layer", "(size_t)is_value + layer"),
    ("attention/kv.cu", "g < sizes.n_scales; g += MOVE_THREADS", "g < sizes.n_scales - 1; g += MOVE_THREADS"),
    ("attention/kv.cu", "is_value ? p.value_scale : p.key_scale", "p.key_scale"),
    ("attention/kv.cu", "((size_t)layer * p.n_blocks + block) * sizes.n_scales", "block * sizes.n_scales"),
    ("attention/kv.cu", "at + sizes.block_bytes)};", "at)};"),
    ("attention/kv.cu", "p.listed ? list.block[i] : p.block[i]", "p.listed ? list.block[0] : p.block[i]"),
    ("attention/kv.cu", "memcpy(list.block, block, (size_t)n * sizeof *block);",
     "memcpy(list.block, block, (size_t)(n - 1) * sizeof *block);"),
    ("attention/kv.cu", "stage_blocks(stage, cache, kind, nullptr, n, list_of(block, n), true, stream);",
     "stage_blocks(stage, cache, kind, nullptr, n - 1, list_of(block, n), true, stream);"),
    ("attention/kv.cu", "p.keys + i * p.stride + ", "p.keys + "),
]
