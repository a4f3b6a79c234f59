"""Mutants of embedding, dequantising and the plain product; tests/cuda_mutate.py says what the names mean."""
UNITS = ["embed", "matmul_plain"]

MUTANTS = [
    ("embed.cu", "k < K; k += EMBED_THREADS", "k <= K; k += EMBED_THREADS"),
    ("embed.cu", "int32_t id = token[blockIdx.x];", "int32_t id = token[0];"),
    ("dequantise.cuh", "return i < 16 ? p[i] & 15 : p[i - 16] >> 4;", "return i < 16 ? p[i] >> 4 : p[i - 16] & 15;"),
    ("dequantise.cuh", "return i < 4 ? p[i] & 63 :", "return i <= 4 ? p[i] & 63 :"),
    ("dequantise.cuh", "[192 + j / 16]", "[192 + j / 32]"),
    ("dequantise.cuh", "(p[i / 8] >> (i % 8) & 1) << 4", "(p[i / 8] >> (i % 8) & 1) << 3"),
    ("matmul_plain.cu", "for (int k = 0; k < K; k++)", "for (int k = 0; k <= K; k++)"),
    ("matmul_plain.cu", "if (n >= N) return;", "if (n > N) return;"),
    ("matmul_plain.cu", "y[m * N + n] =", "y[m * K + n] ="),
    ("matmul_plain.cu", "const size_t m = blockIdx.y;", "const size_t m = 0;"),
]
