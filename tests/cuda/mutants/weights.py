"""Mutants of weights on their way to the device, of the embedding and of quantising; tests/cuda_mutate.py says what the
names mean."""
UNITS = ["embed", "quantise", "staging", "matrix"]
DROPS = ["quantise.cu"]

MUTANTS = [
    ("embed.cu", "id < 0 ? sampled[-1 - id] : id;", "id < 0 ? sampled[-id] : id;"),
    ("embed.cu", "const int32_t id = token[blockIdx.x];", "const int32_t id = token[0];"),
    ("embed.cu", "side = id % TILE / GROUP;", "side = 0;"),
    ("embed.cu", "4 * g + t);", "4 * t + g);"),
    ("embed.cu", "if (k < w.K) row[k]", "row[k]"),
    ("embed.cu", "if (k + 1 < w.K)", "if (k < w.K)"),
    ("embed.cu", "a[2 * half + side]", "a[half + 2 * side]"),
    ("embed.cu", "const int fold = step / PART_STEPS<F>;", "const int fold = 0 * step;"),
    ("embed.cu", "v = {v.x + min, v.y + min};", "v = {v.x + min, v.y};"),
    ("embed.cu", "k < K; k += EMBED_THREADS) to[k]", "k <= K; k += EMBED_THREADS) to[k]"),
    ("quantise.cu", "most = fmaxf(most, fabsf(weight_at(type, row, k)));", "most = fmaxf(most, weight_at(type, row, k));"),
    ("quantise.cu", "for (float other : part) most = fmaxf(most, other);", "most = part[0];"),
    ("quantise.cu", "fmaxf(most / MOST_E4M3, FLT_MIN)", "most / MOST_E4M3",
     "a row of zeros has codes of NaN, read as 480, times a scale of 0"),
    ("quantise.cu", "if (threadIdx.x == 0) scales[blockIdx.x] = scale;", "if (threadIdx.x == 0) scales[0] = scale;"),
    ("staging.cu", "cuda_must(cudaEventSynchronize(staging->sent[half]), \"waiting for weights to be sent\");", ""),
    ("staging.cu", "staging->turn = 1 - half;", "", "the same half each time is waited for: it is slower"),
    ("staging.cu", "left < COPY_BYTES ? left : COPY_BYTES", "left > 0 ? COPY_BYTES : left"),
    ("matrix.cu", "origin->rows + from, to - from", "origin->rows, to - from"),
    ("matrix.cu", "quantise_e4m3(codes, scales, from->type, from->rows, count,", "quantise_e4m3(codes, scales, from->type, from->rows, count - 1,"),
]
