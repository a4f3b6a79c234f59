/* The host's sampler of a step's rows, with stand-ins for the samplers of one row. Each sample is
 * computed once, by a sampler that no other task uses at that time, and shared logits stay
 * unchanged, for any assignment of tasks to threads. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sampling/sampling.h"
#include "kernels/backend.h"
#include "support/suite_main.h"

enum { V = 32, N_SAMPLES = 500, THREADS = 4 };

struct sampler {
    _Atomic bool busy;
};

static _Atomic int n_samplers;

/* ---- stand-ins ------------------------------------------------------------------------------ */

struct sampler *sampler_new(int size, const char *path) {
    ck_assert(size == V && !path);
    atomic_fetch_add(&n_samplers, 1);
    return mem_calloc(1, sizeof(struct sampler));
}

void sampler_free(struct sampler *sampler) {
    atomic_fetch_sub(&n_samplers, 1);
    free(sampler);
}

void sampler_sample(struct sampler *sampler, const struct sample *sample, float *logits,
                    struct sampled *out) {
    ck_assert(!atomic_exchange(&sampler->busy, true));
    ck_assert_int_eq(sample->n_prompt + sample->n_output, sample->position);
    out->id = (int32_t)logits[0] + sample->choice;
    out->rank++;
    memset(logits, 0, V * sizeof *logits);
    atomic_store(&sampler->busy, false);
}

void sampler_score(struct sampler *sampler, const struct sample *sample, const float *logits,
                   struct sampled *out) {
    ck_assert(!atomic_exchange(&sampler->busy, true));
    *out = (struct sampled){
        .id = sample->scored, .rank = 1, .logprob = logits[0] + (float)sample->n_top};
    atomic_store(&sampler->busy, false);
}

void sampler_best(struct sampler *sampler, const struct sample *sample, float *logits,
                  struct sampled *out) {
    ck_assert(!atomic_exchange(&sampler->busy, true));
    for (int part = 0; part < sample_parts(sample->n_best); part++) {
        out[part].rank++;
        out[part].id = (int32_t)logits[0] + part;
    }
    atomic_store(&sampler->busy, false);
}

struct task {
    void (*fn)(void *arg, int i);
    void *arg;
    int i;
};

static void *run_task(void *arg) {
    struct task *task = arg;
    task->fn(task->arg, task->i);
    return NULL;
}

static void parallel(struct backend *b, void (*fn)(void *arg, int i), void *arg, int n) {
    pthread_t threads[64];
    struct task tasks[64];
    (void)b;
    ck_assert(n >= 1 && n <= THREADS); /* more samplers could not work at the same time */
    for (int i = 0; i < n; i++) {
        tasks[i] = (struct task){fn, arg, i};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, run_task, &tasks[i]), 0);
    }
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
}

static const struct device_ops device = {.parallel = parallel};
static struct backend backend = {.device = &device};

/* ---- tests ---------------------------------------------------------------------------------- */

/* One of three samples is shared, one scores and one chooses. The shared ones read row 0. */
static void set_samples(struct sample *samples, const int32_t *history, float *logits) {
    static const struct sampling sampling = {.top_p = 1};
    for (int i = 0; i < N_SAMPLES; i++) {
        logits[i * V] = (float)i;
        samples[i] = (struct sample){.row = i % 3 ? i : 0,
                                     .sampling = i % 3 == 1 ? NULL : &sampling,
                                     .scored = 6,
                                     .n_top = 2,
                                     .position = 3,
                                     .choice = i,
                                     .history = history,
                                     .n_prompt = 2,
                                     .n_output = 1,
                                     .shared = i % 3 == 0};
    }
    for (int i = 0; i < V; i++) logits[i] = 5;
}

START_TEST(each_sample_is_computed_once) {
    static float logits[N_SAMPLES * V];
    static struct sample samples[N_SAMPLES];
    static struct sampled results[N_SAMPLES + 1];
    const int32_t history[3] = {9, 8, 7};
    struct host_sampler *sampler = host_sampler_new(V, THREADS);
    ck_assert_int_eq(atomic_load(&n_samplers), THREADS);
    set_samples(samples, history, logits);
    host_sampler_run(sampler, &backend, logits, samples, N_SAMPLES, results);
    for (int i = 0; i < N_SAMPLES; i++) {
        ck_assert_int_eq(results[i].rank, 1);
        if (i % 3 == 0) ck_assert_int_eq(results[i].id, 5 + i);
        if (i % 3 == 1) ck_assert(results[i].id == 6 && results[i].logprob == (float)(i + 2));
        if (i % 3 == 2) ck_assert_int_eq(results[i].id, 2 * i);
    }
    ck_assert_int_eq(results[N_SAMPLES].rank, 0);
    for (int i = 0; i < V; i++) ck_assert(logits[i] == 5);
    host_sampler_free(sampler);
    ck_assert_int_eq(atomic_load(&n_samplers), 0);
}
END_TEST

START_TEST(few_samples_need_few_tasks) {
    static float logits[N_SAMPLES * V];
    static struct sample samples[N_SAMPLES];
    struct sampled results[2] = {0};
    const int32_t history[3] = {9, 8, 7};
    struct host_sampler *sampler = host_sampler_new(V, 1);
    set_samples(samples, history, logits);
    host_sampler_run(sampler, &backend, logits, samples, 0, results);
    ck_assert_int_eq(results[0].rank, 0);
    host_sampler_run(sampler, &backend, logits, samples + 2, 1, results);
    ck_assert_int_eq(results[0].id, 4);
    ck_assert_int_eq(results[1].rank, 0);
    host_sampler_free(sampler);
}
END_TEST

/* One call computes the best tokens of a beam's row, for any number of results that they fill. */
START_TEST(the_best_of_a_row_fill_several_results) {
    static float logits[2 * V];
    static const struct sampling sampling = {.top_p = 1};
    const struct sample first = {.row = 1, .sampling = &sampling, .n_best = 45, .shared = true};
    struct sample samples[4] = {first, first, first, {.sampling = &sampling, .row = 0}};
    struct sampled results[4] = {0};
    struct host_sampler *sampler = host_sampler_new(V, THREADS);
    samples[1].part = samples[2].part = true;
    logits[V] = 20;
    host_sampler_run(sampler, &backend, logits, samples, 4, results);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(results[i].rank, 1);
        ck_assert_int_eq(results[i].id, 20 + i);
    }
    ck_assert_int_eq(results[3].rank, 1);
    host_sampler_free(sampler);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine_host_sampler");
    TCase *core = tcase_create("core");
    tcase_add_test(core, each_sample_is_computed_once);
    tcase_add_test(core, few_samples_need_few_tasks);
    tcase_add_test(core, the_best_of_a_row_fill_several_results);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
