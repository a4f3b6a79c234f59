/* kernels/cuda: the CUDA backend's inside. docs/cuda/ has the conventions and each kernel's plan.
 *
 *   backend*.cu, step.cu, graph.cu, timing.cu   op tables, a step's arrays, CUDA graphs, timers
 *   runtime/    device selection, memory, staging, errors, cuBLAS, NCCL
 *   gemm/       weights and their products
 *   attention/  the KV cache, RoPE, attention, swapping
 *   rows/       norms, gates, bias, gather
 *   sampling/   a token for each row of logits
 *   persistent/ decode steps of small models as one grid
 *
 * Each NAME.cu has its kernels first, then the functions that launch them, which NAME.cuh declares.
 * Those are asynchronous: they queue work on the stream that they are given. Pointers are device
 * memory unless said. `act` is the type of activations: DTYPE_F32, DTYPE_F16 or DTYPE_BF16. All
 * arithmetic is in float32, and what is stored is rounded once.
 */
#ifndef PENSTOCK_CUDA_CUDA_H
#define PENSTOCK_CUDA_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

extern "C" {
#include "kernels/kernels.h"
}

/* The layers that share a list of blocks: those that keep all positions, and those with a window if
 * the cache has window blocks (struct kv_config). */
enum kv_kind { KV_WHOLE, KV_WINDOW, KV_KINDS };

/* The part of a cache that belongs to the layers of one kind: [L][n_blocks] blocks. */
struct kv_part {
    int L, n_blocks;
    size_t first; /* blocks of other parts before it */
};

struct kv_layer {
    enum kv_kind kind;
    size_t first; /* blocks of other layers before those of this one */
};

/* The paged cache. A block of one layer is [G][B][D] elements, a head's positions in one run
 * (kv_layout.cuh). A cache of layers whose heads differ has no blocks itself, but a cache of each
 * sort of layers that are alike. */
struct kv_cache {
    struct kv_config config; /* without its arrays */
    int n_alike;             /* 0: all layers are alike */
    struct kv_cache *alike[MAX_KV_KINDS];
    struct kv_place *place;        /* [L]; NULL where all are alike */
    size_t block_bytes;            /* of the keys of one block of one layer; as much for values */
    struct kv_part part[KV_KINDS]; /* of all layers; where they are not alike only L counts */
    struct kv_layer *layer;        /* [L]; where they are not alike only the kind counts */
    uint8_t *keys;                 /* the blocks of all layers, part by part */
    uint8_t *values;
    float *key_scale, *value_scale; /* [blocks][G]; NULL unless the elements are e4m3 */
};

/* Where a layer is: in which cache of `alike`, and its number there. */
struct kv_place {
    int alike, layer;
};

/* The cache of a layer alike all its others; the layer's number in it goes to *layer. */
static inline const struct kv_cache *kv_alike(const struct kv_cache *cache, int *layer) {
    if (cache->n_alike == 0) return cache;
    const struct kv_place at = cache->place[*layer];
    *layer = at.layer;
    return cache->alike[at.alike];
}

/* A step on the device: the arrays of struct step (kernels/step.h) and what is derived from them,
 * in one allocation that one copy fills. */
struct device_step {
    int M, R, n_copies;
    const int32_t *token, *position; /* [M] */
    const int32_t *sampled;          /* the ids of pending tokens: the sampler's memory */
    const int32_t *logit_row;        /* [R] */
    const int32_t *table;            /* [kinds][S] lines, all as long as the longest */
    /* By kind; NULL for window blocks if the cache has none. */
    const int32_t *slot[KV_KINDS];                          /* [M] */
    const int32_t *line[KV_KINDS];                          /* [M] start of its sequence's line */
    const int32_t *copy_from[KV_KINDS], *copy_to[KV_KINDS]; /* [n_copies] */
};

#endif
