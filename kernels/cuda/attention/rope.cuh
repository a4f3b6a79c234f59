/* What happens to heads between their product and attention: bias, QK norm, RoPE and the write to
 * the cache; and the angles of RoPE. */
#ifndef PENSTOCK_CUDA_ROPE_CUH
#define PENSTOCK_CUDA_ROPE_CUH

#include "kernels/cuda/runtime/device.cuh"

/* Angles of a step's rows, made at their first use in the step, for all its layers. There is one
 * table, as most models have one list of frequencies; another list replaces it. */
struct angle_table {
    const float *inv_freq; /* NULL: not made in this step */
    int pairs;
    float scale;
    float *cosine, *sine; /* [max_rows][pairs] */
    int max_pairs;        /* that there is room for */
};

/* Bytes of so many pairs for a step of so many rows. */
size_t angles_bytes(int max_rows, int pairs);
/* Makes room for that, if there is less. Fails with STATUS_USAGE if the device has no room. */
enum status angles_alloc(struct angle_table *table, int max_rows, int pairs, cudaStream_t stream,
                         struct err *err);
void angles_free(struct angle_table *table);
/* Makes the cosines and sines of position[M] * inv_freq[pairs], times the rope's scale, if that was
 * not done. */
void angles_make(struct angle_table *table, const int32_t *position, const struct rope *rope, int M,
                 cudaStream_t stream);

/* One group of vectors of a row: queries, keys or values. */
struct head_group {
    void *x;           /* [M][n][D]; NULL: there is none */
    int n;             /* heads */
    const float *bias; /* [n][D], added first; NULL: none */
    const float *gain; /* [D] of an RMSNorm over each head (QK norm), or [n][D]; NULL: none */
    bool norms_own;    /* the norm is a LayerNorm, and each head has its own gains */
};

/* Queries are changed in place; keys and values are written to the cache, or in place if `cache` is
 * NULL. In an e4m3 cache a row at offset 0 sets its block's scales (kv_scale) from its prepared
 * vector, rounded to `act`. Bias, norm, rotation and scale are applied in this order; numbers above
 * D_rope are not rotated. */
struct rope_args {
    struct head_group q, k, v;
    int M, D, D_rope; /* D_rope 0: no rotation */
    float epsilon;
    enum rope_layout layout;
    const float *cosine, *sine;   /* [M][D_rope / 2] */
    const float *q_scale;         /* of queries, by position / q_scale_every; NULL: none */
    int q_scale_every;            /* above 1: padding has the position -1 */
    const int32_t *position;      /* [M]; read where there are such scales */
    const struct kv_cache *cache; /* without parts; NULL: keys and values are not written */
    int layer;
    const int32_t *slot; /* [M] */
};

void rope_prepare(enum dtype act, const struct rope_args *args, cudaStream_t stream);

#endif
