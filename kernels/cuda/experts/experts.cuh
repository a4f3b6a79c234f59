/* Experts for the op table: the router, the products by expert, the sum. Rows and the assignment of
 * rows to experts stay on the device. */
#ifndef PENSTOCK_CUDA_EXPERTS_EXPERTS_CUH
#define PENSTOCK_CUDA_EXPERTS_EXPERTS_CUH

#include "kernels/cuda/experts/route.cuh"
#include "kernels/cuda/gemm/ops.cuh"

/* Data between the kernels of the op, for max_rows rows. */
struct expert_workspace {
    struct expert_shape shape; /* E 0: not used */
    int max_rows;
    void *memory;
    float *wide, *logits, *gate; /* [M][K] normalised rows, [M][E], [M] */
    struct routing routing;
    void *x, *hidden, *up; /* by slot, in the activations' type: [slots][K], [slots][F] twice */
    void *shared;          /* [M][K] output of the shared expert */
};

/* Fails with STATUS_USAGE if the device is out of memory. */
enum status expert_workspace_open(struct expert_workspace *work, const struct expert_shape *shape,
                                  enum dtype act, int max_rows, struct err *err);
void expert_workspace_close(struct expert_workspace *work);

/* Implements `experts` of the op table, on the stream and with the activations' type of `work`. All
 * launches depend only on M and the experts' shape, so a graph can contain them. */
void gemm_experts(struct gemm_workspace *work, struct expert_workspace *of_experts, float *sum,
                  const float *x, const struct norm *norm, const struct experts *experts, int M);

#endif
