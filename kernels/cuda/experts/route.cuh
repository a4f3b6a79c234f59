/* The experts of each row, the rows of each expert, and the sum of the experts' outputs. All data
 * stays on the device, and no launch depends on it. */
#ifndef PENSTOCK_CUDA_EXPERTS_ROUTE_CUH
#define PENSTOCK_CUDA_EXPERTS_ROUTE_CUH

#include "kernels/cuda/gemm/grouped.cuh"

/* Device memory. A slot is the place of a row among the rows of one of its experts. */
struct routing {
    int32_t *expert;          /* [M][n_used] the experts of each row, in rising order */
    float *weight;            /* [M][n_used] the weights of these experts */
    int32_t *slot_of;         /* [M][n_used] the row's slot at each of them */
    int32_t *row_of;          /* [M * n_used] the row of a slot */
    int32_t *first;           /* [E + 1] the first slot of each expert */
    struct expert_rows *rows; /* [routing_blocks] */
};

/* Entries of `rows`: full blocks, plus one possibly partial block per expert. */
static inline int routing_blocks(int M, int n_used, int E) {
    const int slots = M * n_used;
    return slots / GROUPED_ROWS + (slots < E ? slots : E);
}

/* Converts x[n] to float. */
void route_widen(enum dtype act, float *y, const void *x, size_t n, cudaStream_t stream);

/* Fills in `routing` from the router's logits[M][E]. */
void route_rows(const struct routing *routing, const float *logits, int M,
                const struct experts *experts, cudaStream_t stream);

/* sum[M][K] += weight * y[slot] over each row's experts in rising order, and then +
 * sigmoid(gate[M]) * shared[M][K], or 1 * shared if `gate` is NULL; `shared` may be NULL. Rounded
 * once, at the end. */
void route_sum(enum dtype act, void *sum, const void *y, const struct routing *routing, int n_used,
               const void *shared, const float *gate, int M, int K, cudaStream_t stream);

#endif
