/* The device's clock and its peak rates. */
#ifndef PENSTOCK_CUDA_TIMING_CUH
#define PENSTOCK_CUDA_TIMING_CUH

#include "kernels/cuda/runtime/device.cuh"

/* Events that record times, created on first use. */
struct timers {
    cudaEvent_t event[N_STAMPS];
    bool made;
};

/* Implement stamp and stamped_ns of the op table. */
void timers_record(struct timers *timers, int i, cudaStream_t stream);
uint64_t timers_ns(const struct timers *timers, int from, int to);
void timers_free(struct timers *timers);

/* Implements limits of the op table. */
void measure_limits(struct device_limits *out, cudaStream_t stream);

#endif
