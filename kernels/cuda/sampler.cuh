/* The op that samples: from tokens and settings as the engine has them to rows that sample.cuh
 * works on. */
#ifndef PENSTOCK_CUDA_SAMPLER_CUH
#define PENSTOCK_CUDA_SAMPLER_CUH

#include "kernels/cuda/device.cuh"

/* As sampler_new, sampler_free and sample of the op table. */
struct device_sampler *device_sampler_new(int V, int sequences, int most);
void device_sampler_free(struct device_sampler *sampler, cudaStream_t stream);
void device_sampler_run(struct device_sampler *sampler, float *logits, const struct sample *samples,
                        int n, int32_t *ids, struct sampled *results, cudaStream_t stream);

#endif
