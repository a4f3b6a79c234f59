/* The time of the scheduler itself in a step: plan, apply, commit and events, over an engine that
 * does nothing: `steps`. The goal is 20 us and 0.1 us for each running sequence.
 * tests/scheduler/test_work.c bounds the work. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "scheduler/engine_port.h"
#include "scheduler/internal.h"

#define N_STEPS 300

#define MAX_SEQS 1024
#define VOCABULARY 256

static _Atomic uint64_t n_events;

/* A real step reads all weights, which evicts the scheduler's data from the caches. */
#define CACHES ((size_t)48 << 20)
static uint64_t *evicting; /* [CACHES], or NULL: the caches stay warm */
static uint64_t evicting_ns;

static void no_submit(void *self, const struct step *step) {
    (void)self, (void)step;
    if (!evicting) return;
    uint64_t began = now_ns();
    for (size_t i = 0; i < CACHES / sizeof *evicting; i += 8) evicting[i]++;
    evicting_ns += now_ns() - began;
}

/* For the steps in flight, by the number of the step. */
static struct sampled results[MAX_IN_FLIGHT][MAX_SEQS + MAX_SHARED_SAMPLES];
static uint64_t n_sampled, n_waits;

static void quick_sample(void *self, const struct sample *samples, int n) {
    (void)self;
    struct sampled *out = results[n_sampled++ % MAX_IN_FLIGHT];
    for (int i = 0; i < n; i++) {
        out[i].id = 1 + (samples[i].position & 7);
        out[i].n_top = 0;
    }
}

static const struct sampled *no_wait(void *self) {
    (void)self;
    return results[n_waits++ % MAX_IN_FLIGHT];
}

static void count_events(void *arg, const struct event *events, int n) {
    (void)arg, (void)events;
    n_events += (uint64_t)n;
}

static int in_flight = 1;

static struct scheduler *busy_scheduler(int n_seqs, int n_prompt, int n_output) {
    struct scheduler_config config = {.max_num_seqs = n_seqs,
                                      .max_num_batched_tokens = n_seqs * n_prompt,
                                      .max_model_len = n_prompt + n_output,
                                      .max_queued_requests = n_seqs,
                                      .max_queued_tokens = n_seqs * n_prompt,
                                      .n_blocks = n_seqs * ((n_prompt + n_output) / 16 + 2),
                                      .block_size = 16,
                                      .max_logit_rows = n_seqs,
                                      .prefix_caching = true,
                                      .on_events = count_events};
    struct engine_port port = {.V = VOCABULARY,
                               .in_flight = in_flight,
                               .row_quantum = 16,
                               .submit = no_submit,
                               .sample = quick_sample,
                               .wait = no_wait};
    return scheduler_new_on(&config, &port);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the microseconds of the median step, without the eviction, in which n_seqs sequences
 * decode after n_prompt tokens. */
static double median_step_us(int n_seqs, int n_prompt) {
    struct scheduler *scheduler = busy_scheduler(n_seqs, n_prompt, N_STEPS + 64);
    struct generation *generations = mem_calloc((size_t)n_seqs, sizeof *generations);
    int32_t *prompts = mem_calloc((size_t)n_seqs * (size_t)n_prompt, sizeof *prompts);
    static double us[N_STEPS];
    for (int i = 0; i < n_seqs; i++) {
        int32_t *prompt = prompts + (size_t)i * (size_t)n_prompt;
        prompt[0] = i;
        generations[i] = (struct generation){.prompt = prompt,
                                             .n_prompt = n_prompt,
                                             .n = 1,
                                             .max_tokens = N_STEPS + 64,
                                             .prompt_logprobs = -1};
        scheduler_submit(scheduler, &generations[i], NULL);
    }
    for (int i = 0; i < 4; i++) scheduler_step(scheduler);
    assert(scheduler->running.n == n_seqs);
    for (int i = 0; i < N_STEPS; i++) {
        uint64_t began = now_ns();
        evicting_ns = 0;
        scheduler_step(scheduler);
        us[i] = (double)(now_ns() - began - evicting_ns) * 1e-3;
    }
    scheduler_free(scheduler);
    mem_free(generations);
    mem_free(prompts);
    qsort(us, N_STEPS, sizeof *us, by_value);
    return us[N_STEPS / 2];
}

static void print_steps(int n_seqs, const char *caches) {
    printf("%5d sequences, %d in flight, %s caches: %6.1f us a step (goal %.1f)\n", n_seqs,
           in_flight, caches, median_step_us(n_seqs, 200), 20 + 0.1 * n_seqs);
}

int main(void) {
    for (in_flight = 1; in_flight <= MAX_IN_FLIGHT; in_flight++)
        for (int n = 1; n <= MAX_SEQS; n *= 4) print_steps(n, "warm");
    in_flight = 1;
    evicting = mem_large(CACHES);
    for (int n = 16; n <= 256; n *= 4) print_steps(n, "cold");
    mem_large_free(evicting, CACHES);
}
