"""Mutants of the ops on rows, and of what every kernel includes; tests/cuda_mutate.py says what the names mean."""
UNITS = ["rows"]
DROPS = ["device.cuh"]

MUTANTS = [
    ("device.cuh", "if (lane == 0) part[warp] = x;", "if (lane == 1) part[warp] = x;",
     "equivalent: every lane holds the warp's sum"),
    ("device.cuh", "if (lane == 0) part[warp] = x;", "part[warp] = x;"),
    ("device.cuh", "lane < THREADS / WARP ? part[lane] : 0.0f", "lane <= THREADS / WARP ? part[lane] : 0.0f"),
    ("device.cuh", "lane < THREADS / WARP ? part[lane] : 0.0f", "lane < THREADS / WARP - 1 ? part[lane] : 0.0f"),
    ("rows.cu", "const size_t at = (size_t)blockIdx.x * K;\n    float sum", "const size_t at = (size_t)blockIdx.x * (K + 1);\n    float sum"),
    ("rows.cu", "store_vec<N>(x + at + k, in);", ""),
    ("rows.cu", "row[k + i] = value;", "row[k] = value;"),
    ("rows.cu", "norm_factor(block_sum<NORM_THREADS>(squares), K, epsilon)", "norm_factor(block_sum<NORM_THREADS>(squares), NORM_THREADS, epsilon)"),
    ("rows.cu", "norm_value(row[k + i] - mean, r, gain[k + i])", "norm_value(row[k + i] - mean, r, gain[k])"),
    ("rows.cu", "norm_value(row[k + i] - mean, r, gain[k + i])", "norm_value(row[k + i], r, gain[k + i])"),
    ("rows.cu", "const size_t smem = (size_t)K * sizeof(float);", "const size_t smem = (size_t)(K - 1) * sizeof(float);"),
    ("rows.cu", "if (smem > DEFAULT_SMEM) allow_smem(kernel, smem);", ""),
    ("rows.cu", "    if (at >= n) return;\n    const Vec<T, N> in", "    if (at > n) return;\n    const Vec<T, N> in"),
    ("rows.cu", "(n + per_block - 1) / per_block", "n / per_block"),
    ("rows.cu", "const int column = (int)(at % (size_t)columns);", "const int column = (int)(at / (size_t)columns);"),
    ("rows.cu", "(size_t)row[blockIdx.x] * K", "(size_t)row[0] * K"),
    ("rows.cu", "if (length % Vec16<T>::N == 0)", "if (length % 2 == 0)"),
]
