"""Mutants of what is done to the vectors of heads; tests/cuda_mutate.py says what the names mean."""
UNITS = ["heads"]
DROPS = ["heads.cu"]

MUTANTS = [
    ("heads.cu", "if (i >= M * pairs) return;", "if (i > M * pairs) return;"),
    ("heads.cu", "position[i / pairs] * inv_freq[i % pairs]", "position[i % M] * inv_freq[i % pairs]"),
    ("heads.cu", "const int first = adjacent ? 2 * i : i, second = adjacent ? 2 * i + 1 : i + pairs;",
     "const int first = adjacent ? 2 * i : i, second = adjacent ? 2 * i + 1 : i + 1;"),
    ("heads.cu", "(turned ? a.D_rope : 0) + lane", "(turned ? a.D_rope + 1 : 0) + lane"),
    ("heads.cu", "if (head >= a.q.n + a.k.n + a.v.n) return;", "if (head > a.q.n + a.k.n + a.v.n) return;"),
    ("heads.cu", "offset = slot % a.block_size;", "offset = slot / a.block_size;"),
    ("heads.cu", "((size_t)block * g.n + head) * a.block_size + offset", "((size_t)block * a.q.n + head) * a.block_size + offset"),
    ("heads.cu", "const bool turned = (is_q || is_k) && a.D_rope > 0;", "const bool turned = a.D_rope > 0;"),
    ("heads.cu", "out[second] = from_float<OUT>(y * c + x * s);", "out[second] = from_float<OUT>(y * c - x * s);"),
    ("heads.cu", "g.bias + (size_t)head * a.D", "g.bias"),
]
