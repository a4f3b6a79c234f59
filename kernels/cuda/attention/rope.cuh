/* The processing of heads between their product and attention: bias, QK norm, RoPE and the write to
 * the cache; and the angles of RoPE. */
#ifndef PENSTOCK_CUDA_ROPE_CUH
#define PENSTOCK_CUDA_ROPE_CUH

#include "kernels/cuda/runtime/device.cuh"

/* Angles of a step's rows, computed at their first use in the step for all its layers. There is one
 * table, because most models have one list of frequencies; another list replaces it. */
struct angle_table {
    const float *inv_freq; /* NULL: not computed in this step */
    int pairs;
    float scale;
    float *cosine, *sine; /* [max_rows][pairs] */
    int max_pairs;        /* capacity */
};

/* Bytes of a table for max_rows rows and `pairs` pairs. */
size_t angles_bytes(int max_rows, int pairs);
/* Grows the table to that size if it is smaller. Fails with STATUS_USAGE if the device is out of
 * memory. */
enum status angles_alloc(struct angle_table *table, int max_rows, int pairs, cudaStream_t stream,
                         struct err *err);
void angles_free(struct angle_table *table);
/* Computes the cosines and sines of position[M] * inv_freq[pairs], multiplied by the rope's scale,
 * unless the step has them already. */
void angles_make(struct angle_table *table, const int32_t *position, const struct rope *rope, int M,
                 cudaStream_t stream);

/* One group of vectors of a row: queries, keys or values. */
struct head_group {
    void *x;           /* [M][n][D]; NULL: the group is absent */
    int n;             /* heads */
    const float *bias; /* [n][D], added first; NULL: zero */
    const float *gain; /* [D] gains of an RMSNorm per head (QK norm), or [n][D]; NULL: no norm */
    bool norms_own;    /* the norm is a LayerNorm with separate gains per head */
};

/* Queries are changed in place. Keys and values are written to the cache, or changed in place if
 * `cache` is NULL. In an e4m3 cache a row at offset 0 sets its block's scales (kv_scale) from its
 * processed vector, rounded to `act`. Bias, norm, rotation and scale are applied in this order;
 * numbers above D_rope are not rotated. */
struct rope_args {
    struct head_group q, k, v;
    int M, D, D_rope; /* D_rope 0: no rotation */
    float epsilon;
    enum rope_layout layout;
    const float *cosine, *sine;   /* [M][D_rope / 2] */
    const float *q_scale;         /* of queries, by position / q_scale_every; NULL: 1 */
    int q_scale_every;            /* above 1: padding has position -1 */
    const int32_t *position;      /* [M]; read if there are such scales */
    /* a cache of equal layers; NULL: keys and values are not written */
    const struct kv_cache *cache;
    int layer;
    const int32_t *slot; /* [M] */
};

void rope_prepare(enum dtype act, const struct rope_args *args, cudaStream_t stream);

#endif
