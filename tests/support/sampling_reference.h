/* The simple sampler with which the engine's is compared. */
#ifndef PENSTOCK_TESTS_SAMPLING_REFERENCE_H
#define PENSTOCK_TESTS_SAMPLING_REFERENCE_H

#include "engine/sampling/sampling.h"

struct reference;
struct reference *reference_new(int V);
void reference_free(struct reference *reference);

/* Same contracts as sampler_sample, and sampler_score for a sample without ids. */
void reference_sample(struct reference *reference, const struct sample *sample, float *logits,
                      struct sampled *out);
void reference_score(struct reference *reference, const float *logits, int32_t id, int n_top,
                     struct sampled *out);

#endif
