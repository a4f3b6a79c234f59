"""Mutants of the ops on rows, and of what every kernel includes; tests/cuda_mutate.py says what the names mean."""
UNITS = ["rows/rows"]
DROPS = ["runtime/device.cuh"]

MUTANTS = [
    ("runtime/device.cuh", "if (lane == 0) part[warp] = x;", "if (lane == 1) part[warp] = x;",
     "equivalent: every lane holds the warp's sum"),
    ("runtime/device.cuh", "if (lane == 0) part[warp] = x;", "part[warp] = x;"),
    ("runtime/device.cuh", "lane < THREADS / WARP ? part[lane] : 0.0f", "lane <= THREADS / WARP ? part[lane] : 0.0f"),
    ("runtime/device.cuh", "lane < THREADS / WARP ? part[lane] : 0.0f", "lane < THREADS / WARP - 1 ? part[lane] : 0.0f"),
    ("rows/rows.cu", "const size_t at = (size_t)blockIdx.x * K;\n    float sum", "const size_t at = (size_t)blockIdx.x * (K + 1);\n    float sum"),
    ("rows/rows.cu", "if (ADD) store_vec<N>(x + at + k, Vec<T, N>{});", ""),
    ("rows/rows.cu", "if (ADD) out = load_vec<N>(y + at + k);", ""),
    ("rows/rows.cu", "if (LAYER && bias)", "if (bias)"),
    ("rows/rows.cu", "value = to_float(out.v[i]) + value;", "value = to_float(out.v[0]) + value;"),
    ("rows/rows.cu", "capped(to_float(in.v[i]) * scale, cap)", "capped(to_float(in.v[i]), cap) * scale"),
    ("rows/math.cuh", "gate > CLAMP_LIMIT ? CLAMP_LIMIT : gate", "gate"),
    ("rows/math.cuh", "up > CLAMP_LIMIT ? CLAMP_LIMIT : up", "up"),
    ("rows/math.cuh", "    u = u < -CLAMP_LIMIT ? -CLAMP_LIMIT : u;\n", ""),
    ("rows/math.cuh", "(u + 1.0f)", "u"),
    ("rows/math.cuh", "if (kind == ACTIVATION_RELU) return x < 0.0f ? 0.0f : x;", ""),
    ("rows/math.cuh", "return cap == 0.0f ? x : cap * tanhf(x / cap);", "return cap * tanhf(x / cap);"),
    ("rows/rows.cu", "row[k + i] = value;", "row[k] = value;"),
    ("rows/rows.cu", "norm_factor(block_sum<NORM_THREADS>(squares), K, epsilon)", "norm_factor(block_sum<NORM_THREADS>(squares), NORM_THREADS, epsilon)"),
    ("rows/rows.cu", "norm_value(row[k + i] - mean, r, gain[k + i])", "norm_value(row[k + i] - mean, r, gain[k])"),
    ("rows/rows.cu", "norm_value(row[k + i] - mean, r, gain[k + i])", "norm_value(row[k + i], r, gain[k + i])"),
    ("rows/rows.cu", "const size_t smem = (size_t)K * sizeof(float);", "const size_t smem = (size_t)(K - 1) * sizeof(float);"),
    ("rows/rows.cu", "if (smem > DEFAULT_SMEM) allow_smem(kernel, smem);", ""),
    ("rows/rows.cu", "    if (at >= n) return;\n    const Vec<T, N> in", "    if (at > n) return;\n    const Vec<T, N> in"),
    ("rows/rows.cu", "(n + per_block - 1) / per_block", "n / per_block"),
    ("rows/rows.cu", "const int column = (int)(at % (size_t)columns);", "const int column = (int)(at / (size_t)columns);"),
    ("rows/rows.cu", "(size_t)row[blockIdx.x] * K", "(size_t)row[0] * K"),
    ("rows/rows.cu", "if (length % Vec16<T>::N == 0)", "if (length % 2 == 0)"),
]
