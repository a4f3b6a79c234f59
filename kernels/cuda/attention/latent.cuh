/* The keys of latent attention (struct latent of kernels/ops.h): a row's latent vector, normalised,
 * and its rotated numbers, which the cache keeps as one key. Its value is the latent vector. */
#ifndef PENSTOCK_CUDA_LATENT_CUH
#define PENSTOCK_CUDA_LATENT_CUH

#include "kernels/cuda/attention/rope.cuh"

/* Pointers are device memory; rows have type `act`. */
struct latent_args {
    /* [M][H][rank + D_rope]: the last D_rope numbers of each head are written, and the others are
     * multiplied by the scale of the position */
    void *q;
    const void *from; /* [M][H][D_unrotated + D_rope] */
    const void *k;    /* [M][rank + D_rope] */
    int M, H, rank, D_unrotated, D_rope;
    const float *gain; /* [rank] of the RMSNorm */
    float epsilon;
    enum rope_layout layout;
    const float *cosine, *sine; /* [M][D_rope / 2] */
    const float *q_scale;       /* of queries, by position / q_scale_every; NULL: 1 */
    int q_scale_every;          /* above 1: padding has position -1 */
    const int32_t *position;    /* [M]; read if there are such scales */
    const int32_t *slot;        /* [M] below 0: padding, without a key */
};

/* Rotates the ends of queries and keys, and writes the keys to a layer of a cache of equal layers
 * whose keys contain the values (D_shared = rank). */
void latent_prepare(enum dtype act, const struct latent_args *args, const struct kv_cache *cache,
                    int layer, cudaStream_t stream);

#endif
