/* What is done to the vectors of heads between their product and the attention. */
#ifndef PENSTOCK_CUDA_HEADS_CUH
#define PENSTOCK_CUDA_HEADS_CUH

#include "kernels/cuda/device.cuh"

/* cosine and sine [M][pairs] of the angles position * inv_freq: one launch a step serves all its
 * layers. */
void heads_angles(float *cosine, float *sine, const int32_t *position, const float *inv_freq, int M,
                  int pairs, cudaStream_t stream);

/* One group of vectors of a row: queries, keys or values. */
struct head_group {
    void *x;           /* [M][n][D]; NULL: there is none */
    int n;             /* heads */
    const float *bias; /* [n][D], added first; NULL: none */
    const float *gain; /* [D] of an RMSNorm over each head (QK norm); NULL: none */
};

/* Queries are changed in place; keys and values are read and go to the cache, or back in place
 * where `cache` is NULL. In a cache of e4m3 a row at offset 0 sets its block's scales (kv_scale),
 * of the vector as it is when prepared and rounded to `act`. Bias, norm and turn come in this
 * order; what the turn does not reach (above D_rope) stays. */
struct heads_args {
    struct head_group q, k, v;
    int M, D, D_rope; /* D_rope 0: nothing is turned */
    float epsilon;
    enum rope_layout layout;
    const float *cosine, *sine;   /* [M][D_rope / 2] */
    const struct kv_cache *cache; /* NULL: keys and values are not written */
    int layer;
    const int32_t *slot; /* [M] */
};

void heads_prepare(enum dtype act, const struct heads_args *args, cudaStream_t stream);

#endif
