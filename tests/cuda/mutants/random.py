"""Mutants of random weights; tests/cuda_mutate.py says what the names mean."""
UNITS = ["gemm/random"]

MUTANTS = [
    ("gemm/random.cu", "if (at >= to) return;", ""),
    ("gemm/random.cu", "word_at(w.seed, at / each)", "word_at(w.seed, (at - from) / each)"),
    ("gemm/random.cu", "to - at < each ? to - at : each", "each"),
    ("gemm/random.cu", "code == -128 ? 0 : code", "code"),
    ("gemm/random.cu", "if (scale >= 0 && scale < w.scale_bytes)", "if (scale >= 0 && scale < 1)"),
    ("gemm/random.cu", "w.min_at >= 0 && min >= 0 && min < 2", "min >= 0 && min < 2"),
    ("gemm/random.cu", "(to - from + at_once - 1) / at_once", "(to - from) / at_once"),
    ("gemm/random.cu", "j < bytes; j++)", "j + 1 < bytes; j++)"),
]
