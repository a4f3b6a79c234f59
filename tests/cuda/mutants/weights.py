"""Mutants of weights on their way to the device, of the embedding and of quantising; tests/cuda_mutate.py says what the
names mean."""
UNITS = ["gemm/embed", "gemm/pack", "runtime/staging", "gemm/matrix"]
PROGRAMS = ["weights", "op_options"]
DROPS = ["gemm/pack.cu"]

MUTANTS = [
    ("gemm/format.cuh", "const float value = weight * scale;", "const float value = weight;"),
    ("gemm/format.cuh", "add ? to_float(*y) + value : value", "value"),
    ("gemm/format.cuh", "id < 0 && sampled ? sampled[-1 - id] : id;", "id < 0 && sampled ? sampled[-id] : id;"),
    ("gemm/format.cuh", "const int32_t id = row[m];", "const int32_t id = row[0 * m];"),
    ("gemm/format.cuh", "side = id % GEMM_TILE / GEMM_GROUP;", "side = 0;"),
    ("gemm/format.cuh", "4 * g + t);", "4 * t + g);"),
    ("gemm/format.cuh", "if (k < w.K) put(row + k,", "put(row + k,"),
    ("gemm/format.cuh", "if (k + 1 < w.K)", "if (k < w.K)"),
    ("gemm/format.cuh", "words[2 * half + side]", "words[half + 2 * side]"),
    ("gemm/format.cuh", "const int fold = step / PART_STEPS<F>;", "const int fold = 0 * step;"),
    ("gemm/format.cuh", "v = {v.x + min, v.y + min};", "v = {v.x + min, v.y};"),
    ("gemm/embed.cu", "k < K; k += EMBED_THREADS)\n        put(", "k <= K; k += EMBED_THREADS)\n        put("),
    ("gemm/pack.cu", "most = fmaxf(most, fabsf(weight_at(type, row, k)));", "most = fmaxf(most, weight_at(type, row, k));"),
    ("gemm/pack.cu", "for (float other : part) most = fmaxf(most, other);", "most = part[0];"),
    ("gemm/pack.cu", "fmaxf(most / MAX_E4M3, FLT_MIN)", "most / MAX_E4M3",
     "a row of zeros has codes of NaN, read as 480, times a scale of 0"),
    ("gemm/pack.cu", "if (threadIdx.x == 0) scales[blockIdx.x] = scale;", "if (threadIdx.x == 0) scales[0] = scale;"),
    ("runtime/staging.cu", "cuda_check(cudaEventSynchronize(staging->sent[half]), \"waiting for weights to be sent\");", ""),
    ("runtime/staging.cu", "staging->turn = 1 - half;", "", "the same half each time is waited for: it is slower"),
    ("runtime/staging.cu", "left < COPY_BYTES ? left : COPY_BYTES", "left > 0 ? COPY_BYTES : left"),
    ("gemm/matrix.cu", "origin->rows + from, bytes", "origin->rows, bytes"),
    ("gemm/matrix.cu", "quantise_e4m3(codes, scales, from->type, from->rows, count,", "quantise_e4m3(codes, scales, from->type, from->rows, count - 1,"),
]
