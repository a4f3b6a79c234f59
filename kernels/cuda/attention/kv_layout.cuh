/* kv_layout: the addresses of keys and values on the device. All code that accesses the paged cache
 * uses these functions.
 *
 *   layer     keys [n_blocks][G][B][D], values the same; kv_view points to those of one layer.
 *             Layers with a window may use other and fewer blocks (enum block_kind)
 *   position  p of a sequence is in block table[p / B], at offset p % B
 *   latents   a cache of latent attention has no values: a value is the first numbers of its key
 *
 * So a head's B positions in a block are contiguous: B * D elements, numbered by kv_element. If
 * elements have 16 bits, D is a multiple of 64 and B of 8, these consist of tiles of 8 positions:
 *
 *   tile      [D / 64][8][64]: columns of 64 numbers, in which each position has a line of 128
 *             bytes; the 16-byte piece i of line r is at i ^ r
 *
 * So wgmma can read a column of a tile directly, ldmatrix reads it without bank conflicts, and
 * tiles are copied to shared memory unchanged. Otherwise positions are contiguous.
 *
 * Elements of 8 bits (e4m3) have a scale per block, head, and keys or values: element * scale is
 * the number. The vector at offset 0 of the block sets the scale (kv_scale), a power of two. So the
 * bytes of a vector depend only on itself and on that vector, not on the division of the sequence
 * into steps. Later vectors of the block saturate at four times its size.
 */
#ifndef PENSTOCK_CUDA_KV_LAYOUT_CUH
#define PENSTOCK_CUDA_KV_LAYOUT_CUH

#include "kernels/cuda/runtime/device.cuh"
#include "kernels/cuda/runtime/ptx.cuh"

enum kv_type { KV_F32, KV_F16, KV_BF16, KV_E4M3 };

/* The keys and values of one layer. */
struct kv_view {
    enum kv_type type;
    int G, D, B;
    const void *keys, *values;            /* [n_blocks][G][B][D]; equal if values are in keys */
    const float *key_scale, *value_scale; /* [n_blocks][G]; read only for KV_E4M3 */
};

/* The type of a cache; `dtype` must be valid for caches. */
static inline enum kv_type kv_type_of(enum dtype dtype) {
    assert(dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16 || dtype == DTYPE_E4M3);
    return dtype == DTYPE_F32    ? KV_F32
           : dtype == DTYPE_F16  ? KV_F16
           : dtype == DTYPE_BF16 ? KV_BF16
                                 : KV_E4M3;
}

/* The view of one layer of a cache. */
static inline struct kv_view kv_view_of(const struct kv_cache *whole, int layer) {
    const struct kv_cache *cache = kv_alike(whole, &layer);
    const struct kv_config &c = cache->config;
    const size_t first = cache->layer[layer].first, at = first * cache->block_bytes;
    const size_t scale = first * (size_t)c.G;
    const enum kv_type type = kv_type_of(c.dtype);
    const uint8_t *values = cache->D_shared ? cache->keys : cache->values;
    struct kv_view view = {type, c.G, c.D, c.block_size, cache->keys + at, values + at};
    if (type == KV_E4M3) {
        view.key_scale = cache->key_scale + scale;
        view.value_scale = cache->value_scale + scale;
    }
    return view;
}

/* The index of the vector of D elements with a head's key or value. */
__host__ __device__ __forceinline__ size_t kv_vector(const struct kv_view &kv, int block, int head,
                                                     int offset) {
    return ((size_t)block * kv.G + head) * kv.B + offset;
}

constexpr int KV_TILE = 8, KV_COLUMN = 64; /* positions; numbers per line of a position */

/* Do caches with elements of `bytes` bytes consist of tiles? */
__host__ __device__ __forceinline__ bool kv_has_tiles(size_t bytes, int D, int B) {
    return bytes == 2 && D % KV_COLUMN == 0 && B % KV_TILE == 0;
}

/* The index of element d of a vector. */
__host__ __device__ __forceinline__ size_t kv_element(bool tiles, size_t vector, int d, int D) {
    if (!tiles) return vector * (size_t)D + (size_t)d;
    const int row = (int)(vector % KV_TILE), column = d / KV_COLUMN * KV_TILE + row;
    return (vector - (size_t)row) * (size_t)D + (size_t)column * KV_COLUMN +
           (size_t)(d % KV_COLUMN ^ row * 8);
}

/* The index of a vector's scale. */
__host__ __device__ __forceinline__ size_t kv_scale_index(const struct kv_view &kv, int block,
                                                          int head) {
    return (size_t)block * kv.G + head;
}

/* The scale of a block whose first vector has the largest magnitude `most`: the power of two that
 * maps it into (56, 112], a quarter of e4m3's range. */
__device__ __forceinline__ float kv_scale(float most) {
    if (!(most > 0x1p-100f && most < 0x1p100f)) return 1.0f;
    int exponent;
    const float fraction = frexpf(most * (1.0f / 112.0f), &exponent); /* [0.5, 1) */
    return ldexpf(1.0f, fraction > 0.5f ? exponent : exponent - 1);
}

/* Converts one element of each type to float. */
__device__ __forceinline__ float kv_float(float x) {
    return x;
}
__device__ __forceinline__ float kv_float(__half x) {
    return __half2float(x);
}
__device__ __forceinline__ float kv_float(__nv_bfloat16 x) {
    return __bfloat162float(x);
}

/* Moves an e4m3's exponent and mantissa to their place in a float; a product corrects the exponent,
 * subnormals included. The result is exact. The toolkit's conversion without a hardware instruction
 * has branches, is many times slower, and takes two minutes to compile. */
__device__ __forceinline__ float e4m3_moved(uint8_t bits) {
    const uint32_t sign = (bits & 0x80u) << 24, rest = bits & 0x7fu;
    if (rest == 0x7f) return __uint_as_float(0x7fffffffu); /* NaN */
    return __uint_as_float(sign | rest << 20) * 0x1p120f;
}
__device__ __forceinline__ float kv_float(__nv_fp8_e4m3 x) {
    if constexpr (CONVERTS_E4M3) return (float)x;
    return e4m3_moved(x.__x);
}

#endif
