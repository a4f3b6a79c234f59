/* changes: applies a request's settings to a row of logits before sampling: steps 2 and 3 of
 * sampling.c. Internal to engine/.
 *
 *     biases       the sum of the biases of each listed id
 *     bans         -inf: ids before min_tokens, ids that are not allowed, the last tokens of bad
 *                  words that are due
 *     history      penalties, DRY, the last tokens of repeated n-grams
 *
 * Changes by the history are first listed, then applied: at once on the host; for a device that
 * samples, in two places, because only the host has the history. For a sampled token they change
 * the logits. For the candidates of a beam, changes by the history apply to the log-softmax
 * (sampler_best), while sums and -inf give the same result before and after it. A grammar's mask is
 * applied last: its -inf does not depend on earlier changes. */
#ifndef PENSTOCK_ENGINE_CHANGES_H
#define PENSTOCK_ENGINE_CHANGES_H

#include "kernels/sampling.h"

/* Do a sample's settings, apart from its mask, change its row? If not, the row is read once less
 * and stays unchanged. */
bool changes_logits(const struct sample *sample);

/* Adds the biases to logits[V] and sets banned ids to -inf. Repeated ids in the biases add up. */
void bias_and_forbid(const struct sample *sample, float *logits, int V);

/* Copies the logits of the ids whose bits are set, in their order, and these ids. Returns their
 * number, or -1 if there are more than `most`. */
int gather_allowed(const uint32_t *allowed, const float *logits, int V, int most, float *to,
                   int32_t *ids);

/* Lists the changes by the history, each id once: fills change[V] and returns their number.
 * place[V] is scratch, zero before and afterwards.
 *
 * The repetition penalty follows Keskar et al. 2019, frequency and presence penalties follow
 * OpenAI, DRY follows llama-server. No token of the history may be pending. */
int list_changes(const struct sample *sample, int32_t *place, struct logit_change *change);

/* Applies the n changes of a list to logits[V]. */
void apply_changes(const struct sampling *s, const struct logit_change *change, int n,
                   float *logits);

#endif
