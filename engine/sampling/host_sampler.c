/* host_sampler: samples a step's rows on the backend's compute threads, for backends without device
 * sampling.
 *
 * DESIGN. A backend's `parallel` does not say which thread runs a task. So there is one task per
 * sampler: task i owns sampler i and takes samples from a shared counter until none is left. The
 * result of a row does not depend on the sampler (sampler_sample). The choices of a forked prompt
 * share a row of logits, so each task works on a copy of it.
 */
#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "engine/sampling/sampling.h"
#include "kernels/backend.h"

#define MAX_SAMPLERS 64

struct host_sampler {
    int V, n_samplers;
    struct sampler *sampler[MAX_SAMPLERS];
    float *spare; /* [n_samplers][V] copies of shared rows */
    /* state of the current call: */
    float *logits;
    const struct sample *samples;
    int n_samples;
    struct sampled *results;
    _Atomic int next; /* the next sample to take */
};

static size_t spare_bytes(const struct host_sampler *s) {
    return (size_t)s->n_samplers * (size_t)s->V * sizeof *s->spare;
}

/* Each sampler has tables of V, so there are at most as many as compute threads. */
struct host_sampler *host_sampler_new(int V, int n_threads) {
    struct host_sampler *s = mem_calloc(1, sizeof *s);
    assert(V > 0 && n_threads > 0);
    s->V = V;
    s->n_samplers = n_threads < MAX_SAMPLERS ? n_threads : MAX_SAMPLERS;
    for (int i = 0; i < s->n_samplers; i++) s->sampler[i] = sampler_new(V, NULL);
    s->spare = mem_large(spare_bytes(s));
    return s;
}

void host_sampler_free(struct host_sampler *s) {
    if (!s) return;
    for (int i = 0; i < s->n_samplers; i++) sampler_free(s->sampler[i]);
    mem_large_free(s->spare, spare_bytes(s));
    mem_free(s);
}

static void run_one(struct host_sampler *s, int i, const struct sample *sample,
                    struct sampled *out) {
    size_t V = (size_t)s->V;
    float *logits = s->logits + (size_t)sample->row * V;
    assert(!sample->last_is_pending);
    if (!sample->sampling) {
        sampler_score(s->sampler[i], sample, logits, out);
        return;
    }
    if (sample->part) return; /* the first sample fills its result */
    if (sample->n_best > 0) {
        sampler_best(s->sampler[i], sample, logits, out);
        return;
    }
    if (sample->shared) logits = memcpy(s->spare + (size_t)i * V, logits, V * sizeof *logits);
    sampler_sample(s->sampler[i], sample, logits, out);
}

static void run_task(void *arg, int i) {
    struct host_sampler *s = arg;
    for (;;) {
        int n = atomic_fetch_add(&s->next, 1);
        if (n >= s->n_samples) return;
        run_one(s, i, &s->samples[n], &s->results[n]);
    }
}

void host_sampler_run(struct host_sampler *s, struct backend *b, float *logits,
                      const struct sample *samples, int n, struct sampled *results) {
    if (n == 0) return;
    s->logits = logits;
    s->samples = samples;
    s->n_samples = n;
    s->results = results;
    atomic_store(&s->next, 0);
    b->device->parallel(b, run_task, s, n < s->n_samplers ? n : s->n_samplers);
    assert(atomic_load(&s->next) >= n);
}
