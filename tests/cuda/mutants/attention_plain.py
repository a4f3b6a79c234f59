"""Mutants of the plain attention; tests/cuda_mutate.py says what the names mean."""
UNITS = ["attention_plain"]
DROPS = ["attention_plain.cu"]

MUTANTS = [
    ("attention_plain.cu", "n = a.position[m] + 1;", "n = a.position[m];"),
    ("attention_plain.cu", "n = a.position[m] + 1;", "n = a.position[m] + 2;"),
    ("attention_plain.cu", "if (lane < count) {", "if (lane <= count) {"),
    ("attention_plain.cu", "j < count; j++", "j < WARP; j++"),
    ("attention_plain.cu", "out[i] = out[i] * old;", "out[i] = out[i];"),
    ("attention_plain.cu", "sum = fmaf(sum, old, warp_sum(weight));", "sum = sum + warp_sum(weight);"),
    ("attention_plain.cu", "const int g = h * a.G / a.H,", "const int g = h % a.G,"),
    ("attention_plain.cu", "table[position / a.block_size]", "table[position / a.block_size + 1]"),
    ("attention_plain.cu", "(size_t)a.sequence[m] * a.table_stride", "(size_t)m * a.table_stride"),
    ("attention_plain.cu", "const float now = fmaxf(most, warp_max(score)),", "const float now = fmaxf(most, score),"),
]
