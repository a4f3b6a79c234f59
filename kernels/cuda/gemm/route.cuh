/* Which experts each row goes through, which rows each expert has, and the sum of what comes of
 * them. All of it stays on the device, and no launch depends on it. */
#ifndef PENSTOCK_CUDA_GEMM_ROUTE_CUH
#define PENSTOCK_CUDA_GEMM_ROUTE_CUH

#include "kernels/cuda/gemm/grouped.cuh"

/* Device memory. A slot is one row's place among the rows of one of its experts. */
struct routing {
    int32_t *expert;          /* [M][n_used] each row's experts, by rising number */
    float *weight;            /* [M][n_used] and their weights */
    int32_t *slot_of;         /* [M][n_used] where the row stands among those of the expert */
    int32_t *row_of;          /* [M * n_used] the row of a slot */
    int32_t *first;           /* [E + 1] where an expert's slots begin */
    struct expert_rows *rows; /* [routing_blocks] */
};

/* Entries of `rows`: whole blocks, and one for each expert that may have a part of one. */
static inline int routing_blocks(int M, int n_used, int E) {
    const int slots = M * n_used;
    return slots / GROUPED_ROWS + (slots < E ? slots : E);
}

/* Floats of x[n]. */
void route_widen(enum dtype act, float *y, const void *x, size_t n, cudaStream_t stream);

/* Fills in `routing` from the router's logits[M][E]. */
void route_rows(const struct routing *routing, const float *logits, int M,
                const struct experts *experts, cudaStream_t stream);

/* sum[M][K] += weight * y[slot] over each row's experts in the order of their numbers, and then
 * + sigmoid(gate[M]) * shared[M][K], or 1 * shared without `gate`; `shared` may be NULL. Rounded
 * once, at the end. */
void route_sum(enum dtype act, void *sum, const void *y, const struct routing *routing, int n_used,
               const void *shared, const float *gate, int M, int K, cudaStream_t stream);

#endif
