/* Experts as the op table has them: the router, the products by expert, the sum. Rows stay in the
 * device's memory, and so do the lists that say which expert has which. */
#ifndef PENSTOCK_CUDA_GEMM_EXPERTS_CUH
#define PENSTOCK_CUDA_GEMM_EXPERTS_CUH

#include "kernels/cuda/gemm/ops.cuh"
#include "kernels/cuda/gemm/route.cuh"

/* What lies between the kernels of the op, for max_rows rows. */
struct expert_workspace {
    struct expert_shape shape; /* E 0: there are none */
    int max_rows;
    void *memory;
    float *wide, *logits, *gate; /* [M][K] normed rows, [M][E], [M] */
    struct routing routing;
    void *x, *hidden, *up; /* by slot, of the activations' type: [slots][K], [slots][F] twice */
    void *shared;          /* [M][K] what the shared expert gives */
};

/* Fails with STATUS_USAGE if the device has no room. */
enum status expert_workspace_open(struct expert_workspace *work, const struct expert_shape *shape,
                                  enum dtype act, int max_rows, struct err *err);
void expert_workspace_close(struct expert_workspace *work);

/* As `experts` of the op table, on the stream and with activations of the type of `work`. Every
 * launch depends on M and the experts' shape alone, so that a graph may hold it. */
void gemm_experts(struct gemm_workspace *work, struct expert_workspace *of_experts, float *sum,
                  const float *x, const struct norm *norm, const struct experts *experts, int M);

#endif
