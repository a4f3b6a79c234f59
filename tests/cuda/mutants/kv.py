"""Mutants of moving blocks of the cache; tests/cuda_mutate.py says what the names mean."""
UNITS = ["kv"]

MUTANTS = [
    ("kv.cu", "const bool is_value = y >= L;", "const bool is_value = y > L;"),
    ("kv.cu", "i < block_bytes; i += MOVE_THREADS * N", "i + N < block_bytes; i += MOVE_THREADS * N"),
    ("kv.cu", "i < block_bytes; i += MOVE_THREADS * N", "i <= block_bytes; i += MOVE_THREADS * N"),
    ("kv.cu", "(size_t)layer * p.layer_bytes + ", "(size_t)layer * block_bytes + "),
    ("kv.cu", "cache->block_bytes % 16 == 0", "cache->block_bytes % 4 == 0"),
    ("kv.cu", "(((size_t)i * 2 + is_value) * L + layer)", "(((size_t)i + is_value) * L + layer)"),
]
