/* Overwrite a window block or a state of a cache on the device with NaNs. Later steps that read it
 * find them. */
#ifndef PENSTOCK_TESTS_CUDA_POISON_H
#define PENSTOCK_TESTS_CUDA_POISON_H

#include <stdint.h>

struct backend;
struct kv_cache;

#ifdef __cplusplus
extern "C" {
#endif

void poison_on_cuda(struct backend *b, struct kv_cache *cache, int32_t window_block);
void poison_state_on_cuda(struct backend *b, struct kv_cache *cache, int32_t state);

#ifdef __cplusplus
}
#endif

#endif
