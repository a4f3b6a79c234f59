/* changes: what a request's settings do to a row of logits before a token is chosen: steps 2 and 3
 * of sampling.c. Internal to engine/.
 *
 *     biases       a sum for each id that is listed
 *     forbidden    -inf: ids before min_tokens, ids that are not allowed, those that a grammar's
 *                  mask leaves out, the last tokens of bad words that are due
 *     penalties    repetition over prompt and output, then frequency and presence over the output
 *
 * For a token they change the logits; for the candidates of a beam the penalties change the
 * log-softmax (sampler_best), while sums and -inf come to the same before and after it. */
#ifndef PENSTOCK_ENGINE_CHANGES_H
#define PENSTOCK_ENGINE_CHANGES_H

#include "kernels/kernels.h"

/* Do a sample's settings change its row at all? Without them the row is read once less, and stays
 * as the model has left it. */
bool changes_logits(const struct sample *sample);

/* Adds the biases to logits[V], and makes what may not be chosen -inf. Repeated ids in the biases
 * add up. */
void bias_and_forbid(const struct sample *sample, float *logits, int V);

/* Applies the penalties to logits[V], if there are any: to each id of the history once, however
 * often it stands there. The repetition penalty is that of Keskar et al. 2019, the others are
 * OpenAI's. count[V] is scratch, zero before and afterwards: an id's count is how often the output
 * has it, -1 where only the prompt does. */
void penalise(const struct sample *sample, float *logits, int32_t *count);

#endif
