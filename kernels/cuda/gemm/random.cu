/* Random weights: one thread per piece. kernels/cpu/weights/random.c documents them. */
#include "kernels/cuda/gemm/matrix.cuh"

#include "kernels/cuda/runtime/ptx.cuh"

constexpr int RANDOM_THREADS = 256, WORDS = 8; /* the largest piece has 8 float32 */

__device__ static uint64_t word_at(uint64_t seed, uint64_t i) {
    uint64_t x = seed + (i + 1) * 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

/* A float weight's bits in its type. */
__device__ static uint32_t float_bits(const struct random_weights &w, int code) {
    const float value = (float)(code == -128 ? 0 : code) * w.unit;
    if (w.type == DTYPE_F32) return __float_as_uint(value);
    if (w.type == DTYPE_BF16) return __float_as_uint(value) >> 16; /* exact: at most 7 bits */
    return __half_as_ushort(__float2half_rn(value));
}

__device__ static uint32_t block_byte(const struct random_weights &w, uint64_t at, uint32_t byte) {
    const int in_block = (int)(at % (uint64_t)w.block_bytes);
    const int scale = in_block - w.scale_at, min = in_block - w.min_at;
    if (scale >= 0 && scale < w.scale_bytes) return w.scale >> 8 * scale & 255;
    if (w.min_at >= 0 && min >= 0 && min < 2) return w.min >> 8 * min & 255;
    return byte;
}

__global__ void __launch_bounds__(RANDOM_THREADS)
    random_kernel(uint8_t *data, struct random_weights w, size_t from, size_t to) {
    grid_begin();
    const size_t each = (size_t)w.piece_bytes;
    const size_t at = from + ((size_t)blockIdx.x * RANDOM_THREADS + threadIdx.x) * each;
    if (at >= to) return;
    const uint64_t word = word_at(w.seed, at / each);
    uint32_t piece[WORDS] = {};
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const uint32_t byte = (uint32_t)(word >> 8 * j & 255);
        if (w.scale_at >= 0)
            piece[j / 4] |= block_byte(w, at + (uint64_t)j, byte) << 8 * (j % 4);
        else if (w.type == DTYPE_F32)
            piece[j] = float_bits(w, (int8_t)byte);
        else
            piece[j / 2] |= float_bits(w, (int8_t)byte) << 16 * (j % 2);
    }
    uint8_t *out = data + (at - from);
    const size_t bytes = to - at < each ? to - at : each;
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
        if (4 * (size_t)i + 4 <= bytes)
            reinterpret_cast<uint32_t *>(out)[i] = piece[i];
        else
            for (size_t j = 4 * (size_t)i; j < bytes; j++)
                out[j] = (uint8_t)(piece[i] >> 8 * (j % 4));
    }
}

void random_rows(void *data, const struct random_weights *w, size_t from, size_t to,
                 cudaStream_t stream) {
    assert(from % (size_t)w->piece_bytes == 0);
    const size_t at_once = (size_t)w->piece_bytes * RANDOM_THREADS;
    launch(random_kernel, dim3((unsigned)((to - from + at_once - 1) / at_once)),
           dim3(RANDOM_THREADS), 0, stream, static_cast<uint8_t *>(data), *w, from, to);
}
