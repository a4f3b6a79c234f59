/* changes: what a request's settings do to a row of logits before a token is chosen: steps 2 and 3
 * of sampling.c. Internal to engine/.
 *
 *     biases       a sum for each id that is listed
 *     forbidden    -inf: ids before min_tokens, ids that are not allowed, the last tokens of bad
 *                  words that are due
 *     history      penalties, what DRY takes off, the last tokens of n-grams that have come before
 *
 * What the history changes is first listed, then applied: on the host at once, and for a device
 * that samples in two places, as only the host has the history. For a token they change the logits;
 * for the candidates of a beam the history changes the log-softmax (sampler_best), while sums and
 * -inf come to the same before and after it. What a grammar's mask leaves out comes last, as it is
 * -inf whatever it was before. */
#ifndef PENSTOCK_ENGINE_CHANGES_H
#define PENSTOCK_ENGINE_CHANGES_H

#include "kernels/kernels.h"

/* Do a sample's settings change its row at all, but for its mask? Without them the row is read once
 * less, and stays as the model has left it. */
bool changes_logits(const struct sample *sample);

/* Adds the biases to logits[V], and makes what the settings forbid -inf. Repeated ids in the biases
 * add up. */
void bias_and_forbid(const struct sample *sample, float *logits, int V);

/* Copies the logits[V] of ids whose bits are set, in their order, and these ids; returns how many,
 * or -1 if there are more than `most`. */
int gather_allowed(const uint32_t *allowed, const float *logits, int V, int most, float *to,
                   int32_t *ids);

/* What the history changes, each id once: fills change[V] and returns how many. place[V] is
 * scratch, zero before and afterwards.
 *
 * The repetition penalty is that of Keskar et al. 2019, frequency and presence are OpenAI's; DRY is
 * that of llama-server. No token of the history is pending. */
int list_changes(const struct sample *sample, int32_t *place, struct logit_change *change);

/* Changes logits[V] by the n changes of a list. */
void apply_changes(const struct sampling *s, const struct logit_change *change, int n,
                   float *logits);

#endif
