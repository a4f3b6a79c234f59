/* The device's clock, and what the device can do at most. */
#ifndef PENSTOCK_CUDA_STAMPS_CUH
#define PENSTOCK_CUDA_STAMPS_CUH

#include "kernels/cuda/device.cuh"

/* Events that keep time. None is made until the first stamp. */
struct stamps {
    cudaEvent_t event[N_STAMPS];
    bool made;
};

/* As stamp and stamped_ns of the op table. */
void stamps_set(struct stamps *stamps, int i, cudaStream_t stream);
uint64_t stamps_between(const struct stamps *stamps, int from, int to);
void stamps_free(struct stamps *stamps);

/* As limits of the op table. */
void measure_limits(struct device_limits *out, cudaStream_t stream);

#endif
