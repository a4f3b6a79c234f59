/* kernels/cuda: internals of the CUDA backend. docs/cuda/ documents the conventions and each
 * kernel's design.
 *
 *   backend*.cu, step.cu, graph.cu, timing.cu   op tables, a step's arrays, CUDA graphs, timers
 *   runtime/    device selection, memory, staging, errors, cuBLAS, NCCL
 *   gemm/       weights and their products
 *   experts/    the router, the rows of each expert, and their products
 *   attention/  the KV cache, RoPE, attention, swapping, keys of latent attention
 *   recurrent/  layers that keep a state per sequence, and the states
 *   low_rank/   products of adapters
 *   rows/       norms, gates, bias, gather
 *   sampling/   a token for each row of logits
 *   persistent/ decode steps of small models as one grid
 *
 * Each NAME.cu has its kernels first, then the functions that launch them, which NAME.cuh declares.
 * The functions are asynchronous: they queue work on the given stream. Pointers are device memory
 * unless stated. `act` is the type of activations: DTYPE_F32, DTYPE_F16 or DTYPE_BF16. All
 * arithmetic is in float32, and stored results are rounded once.
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

/* The part of a cache for the layers of one kind: [L][n_blocks] blocks. */
struct kv_part {
    int L, n_blocks;
    size_t first; /* number of blocks in earlier parts */
};

struct kv_layer {
    enum block_kind kind;
    size_t first; /* number of blocks of earlier layers */
};

/* The paged cache. A block of one layer is [G][B][D] elements; the positions of a head are
 * contiguous (kv_layout.cuh). If heads differ between layers, this cache has no blocks itself but
 * one cache per group of equal layers. */
struct kv_cache {
    struct kv_config config; /* without its arrays */
    int n_alike;             /* 0: all layers are equal */
    struct kv_cache *alike[MAX_KV_KINDS];
    struct kv_place *place; /* [L]; NULL if all layers are equal */
    /* Above 0: the first D_shared numbers of a key are its value, and there are no values. If
     * layers differ, only the caches in `alike` have this number. */
    int D_shared;
    size_t block_bytes; /* bytes of the keys of one block of one layer; values take the same */
    struct kv_part part[N_BLOCK_KINDS]; /* for all layers; if they differ, only L is used */
    struct kv_layer *layer;             /* [L]; if layers differ, only the kind is used */
    uint8_t *keys;                      /* the blocks of all layers, part by part */
    uint8_t *values;                    /* NULL with D_shared */
    float *key_scale, *value_scale;     /* [blocks][G]; NULL unless the elements are e4m3 */
    float *states; /* of recurrent layers (recurrent/states.cuh); NULL: there are none */
};

/* The place of a layer: its cache in `alike`, and its number there. */
struct kv_place {
    int alike, layer;
};

/* Returns the cache of the layers equal to this one, and replaces *layer by its number there. */
static inline const struct kv_cache *kv_alike(const struct kv_cache *cache, int *layer) {
    if (cache->n_alike == 0) return cache;
    const struct kv_place at = cache->place[*layer];
    *layer = at.layer;
    return cache->alike[at.alike];
}

/* Rows of a step that have the same adapter. The rows of all tiles are the step's rows, each once;
 * those of the base model have adapter 0. */
enum { ADAPTER_TILE = 8 };
struct adapter_tile {
    int32_t adapter, n;        /* n: its rows; 0: the tile is unused */
    int32_t row[ADAPTER_TILE]; /* [n] ascending */
};
struct adapter_tiles {
    const struct adapter_tile *tile; /* [n] device memory */
    int n;                           /* 0: no row of the step has an adapter */
};

/* A step on the device: the arrays of struct step (kernels/step.h) and derived arrays, in one
 * allocation that one copy fills. */
struct device_step {
    int M, R, n_copies;
    const int32_t *token, *position; /* [M] */
    const int32_t *type;             /* [M] the row's token type; NULL unless rows see both ways */
    const int32_t *sampled;          /* ids of pending tokens, in the sampler's memory */
    const int32_t *logit_row;        /* [R] */
    const int32_t *table;            /* [kinds][S] lines, all as long as the longest */
    /* By kind; NULL for window blocks if the cache does not use them. */
    const int32_t *slot[N_BLOCK_KINDS]; /* [M] */
    /* [M] offset of the sequence's line */
    const int32_t *line[N_BLOCK_KINDS];
    const int32_t *copy_from[N_BLOCK_KINDS], *copy_to[N_BLOCK_KINDS]; /* [n_copies] */
    /* Of recurrent layers; NULL if the cache has no states. S is the number of sequences, or M for
     * a graph: sequences without rows are then padding. */
    int S;
    const int32_t *row_start;             /* [S + 1] */
    const int32_t *state, *state_after;   /* [S], [M] */
    const int32_t *state_from, *state_to; /* [n_state_copies] */
    /* The adapters of all rows, and of the rows that are read: row r of the latter is logit_row[r]
     * of the step. */
    struct adapter_tiles tiles[2];
    const int32_t *next;       /* [M] the next tokens; NULL if the step has none */
    const int32_t *hidden_row; /* [M] of a step of guesses (struct step, is_ahead), or NULL */
};

#endif
