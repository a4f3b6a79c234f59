/* engine/sampling: tokens from rows of logits, on the host. kernels/sampling.h defines settings and
 * results (struct sampling, struct sample, struct sampled); sampling.c documents the order of
 * operations. */
#ifndef PENSTOCK_ENGINE_SAMPLING_H
#define PENSTOCK_ENGINE_SAMPLING_H

#include "kernels/sampling.h"

struct backend;

/* ---- one row -------------------------------------------------------------------------------- */

/* Scratch of one sampling thread: tables of the vocabulary's size. `path` is the CPU path whose
 * vector functions it uses (kernels.h), NULL for the best. Results do not depend on it. */
struct sampler;
struct sampler *sampler_new(int V, const char *path);
void sampler_free(struct sampler *sampler);

/* Samples a token from logits[V], which it may change. It uses the sample's settings, counter,
 * history (without a pending token) and mask. The same inputs give the same token and bits on every
 * machine and thread. Draws use Philox 4x32-10 (Salmon et al. 2011), keyed by the seed, at counter
 * (position, choice). */
void sampler_sample(struct sampler *sampler, const struct sample *sample, float *logits,
                    struct sampled *out);

/* Computes the logprobs of a sample without sampling: of its `scored` id, and of its ids or of the
 * n_top best in logits[V]. */
void sampler_score(struct sampler *sampler, const struct sample *sample, const float *logits,
                   struct sampled *out);

/* Finds the best of logits[V], which it changes, for a beam: out[sample_parts(sample->n_best)]. */
void sampler_best(struct sampler *sampler, const struct sample *sample, float *logits,
                  struct sampled *out);

/* ---- changes by the history, for a device that samples -------------------------------------- */

struct change_lists;
struct change_lists *change_lists_new(int V, int max_samples);
void change_lists_free(struct change_lists *lists); /* NULL does nothing */

/* Lists the changes of the samples whose settings require it: [n], valid until the next call; NULL
 * if no sample does. No token of their histories may be pending. */
const struct logit_changes *change_lists_fill(struct change_lists *lists,
                                              const struct sample *samples, int n);

/* ---- all rows of a step --------------------------------------------------------------------- */

/* Samplers for as many rows at once as there are threads. */
struct host_sampler;
struct host_sampler *host_sampler_new(int V, int n_threads);
void host_sampler_free(struct host_sampler *sampler); /* NULL does nothing */

/* results[i] = the result of samples[i], for n samples of logits[R][V], computed in parallel on the
 * backend's threads. The logits may change. No token before a sample may be pending. */
void host_sampler_run(struct host_sampler *sampler, struct backend *b, float *logits,
                      const struct sample *samples, int n, struct sampled *results);

#endif
