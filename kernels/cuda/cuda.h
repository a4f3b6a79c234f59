/* kernels/cuda: the CUDA backend's inside. docs/cuda.md has the conventions and each kernel's plan.
 *
 *   device.cuh        what every kernel includes    ptx.cuh    instructions without a name in C++
 *   backend.cu        open, close, the op table     step.cu    a step's rows on the device
 *   matrix.cu         weights                       staging.cu the way that they come in
 *   quantise.cu       from floats to e4m3           embed.cu   rows of the embedding matrix
 *   random.cu         weights made of nothing
 *   gemm.cu           products, with gemm_*.cu      error.cu   the end after a failed call
 *   products.cu       the ops that they serve
 *   graph.cu          decode steps as CUDA graphs
 *   rows.cu           norms, gates, bias, gather    heads.cu   RoPE and what stands around it
 *   angles.cu         the table of RoPE's angles
 *   kv.cu             the cache and its blocks      kv_layout.cuh where a key stands in it
 *   swap.cu           blocks in the host's memory
 *   attention.cuh     attention and its plan; attention_work.cu is what the backend has for it
 *   find.cu           which device there is
 *   room.cu           memory that is taken at the start, and the sentence where there is none
 *   sample.cu         a token for each row of logits, with sample_math.cuh and sample_select.cuh
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

/* The paged cache. A block of one layer is [G][B][D] elements, a head's positions one after
 * another. */
struct kv_cache {
    struct kv_config config;
    size_t block_bytes; /* of the keys of one block of one layer; as much for values */
    size_t layer_bytes; /* of the keys of a layer: n_blocks of them */
    uint8_t *keys;      /* [L][n_blocks] blocks */
    uint8_t *values;
    float *key_scale, *value_scale; /* [L][n_blocks][G]; NULL unless the elements are e4m3 */
};

/* A step on the device: the arrays of struct step (kernels.h), and what is made from them. All lie
 * in one allocation that is filled by one copy. */
struct device_step {
    int M, S, R, n_copies;
    const int32_t *token, *position, *slot; /* [M] */
    const int32_t *sampled;                 /* what late tokens are: another op's memory */
    const int32_t *line;                    /* [M] where its sequence's line of the table begins */
    const int32_t *row_start;               /* [S + 1] */
    const int32_t *table;                   /* [S] lines, all as long as the longest */
    const int32_t *logit_row;               /* [R] */
    const int32_t *copy_from, *copy_to;     /* [n_copies] */
};

#endif
