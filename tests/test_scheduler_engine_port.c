/* The port to the real engine, over stand-ins for the functions of engine.h that it calls:
 * whatever thread a task runs on, each job is done once, with a sampler that no other task uses,
 * and shared logits stay as they were. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/internal.h"
#include "support/suite_main.h"

enum { V = 32, N_JOBS = 500 };

struct engine {
    struct model_info info;
    const struct step *step;
    float logits[N_JOBS][V];
    const int32_t *sampled;
};

struct sampler {
    _Atomic bool busy;
};

static _Atomic int n_samplers;

const struct model_info *engine_model(const struct engine *engine) {
    return &engine->info;
}

int engine_threads(const struct engine *engine) {
    (void)engine;
    return 4;
}

void engine_submit(struct engine *engine, const struct step *step) {
    engine->step = step;
}

float *engine_wait(struct engine *engine) {
    return engine->logits[0];
}

bool engine_samples(const struct engine *engine) {
    (void)engine;
    return false;
}

void engine_submit_samples(struct engine *engine, const struct step *step,
                           const struct sample *samples, int n) {
    (void)engine, (void)step, (void)samples, (void)n;
    ck_abort_msg("the host samples");
}

const struct sampled *engine_wait_samples(struct engine *engine) {
    (void)engine;
    ck_abort_msg("the host samples");
    return NULL;
}

bool engine_failed(const struct engine *engine, struct err *err) {
    (void)engine, (void)err;
    return false;
}

struct engine_swap *engine_swap(struct engine *engine) {
    (void)engine;
    return NULL;
}

int engine_swap_slots(const struct engine_swap *swap) {
    (void)swap;
    return 0;
}

bool engine_swap_reserve(struct engine_swap *swap, int n) {
    (void)swap, (void)n;
    return false;
}

void engine_swap_out(struct engine_swap *swap, const int32_t *block, const int32_t *slot, int n) {
    (void)swap, (void)block, (void)slot, (void)n;
}

void engine_swap_in(struct engine_swap *swap, const int32_t *slot, const int32_t *block, int n) {
    (void)swap, (void)slot, (void)block, (void)n;
}

void engine_swap_arrive(struct engine_swap *swap) {
    (void)swap;
}

int engine_in_flight(const struct engine *engine) {
    (void)engine;
    return 1;
}

void engine_sampled(struct engine *engine, const int32_t *id) {
    engine->sampled = id;
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

void engine_parallel(struct engine *engine, void (*fn)(void *arg, int i), void *arg, int n) {
    pthread_t threads[64];
    struct task tasks[64];
    ck_assert(n >= 1 && n <= engine_threads(engine)); /* more samplers could not work at once */
    for (int i = 0; i < n; i++) {
        tasks[i] = (struct task){fn, arg, i};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, run_task, &tasks[i]), 0);
    }
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
}

struct sampler *sampler_new(int size, const char *path) {
    ck_assert(size == V && !path);
    atomic_fetch_add(&n_samplers, 1);
    return mem_calloc(1, sizeof(struct sampler));
}

void sampler_free(struct sampler *sampler) {
    atomic_fetch_sub(&n_samplers, 1);
    free(sampler);
}

void sampler_sample(struct sampler *sampler, const struct sampling *sampling, float *logits,
                    const int32_t *history, int n_prompt, int n_output, int position, int choice,
                    struct sampled *out) {
    (void)sampling, (void)history;
    ck_assert(!atomic_exchange(&sampler->busy, true));
    ck_assert_int_eq(n_prompt + n_output, position);
    out->id = (int32_t)logits[0] + choice;
    out->rank++;
    memset(logits, 0, V * sizeof *logits);
    atomic_store(&sampler->busy, false);
}

void sampler_score(struct sampler *sampler, const float *logits, int32_t id, int n_top,
                   struct sampled *out) {
    ck_assert(!atomic_exchange(&sampler->busy, true));
    *out = (struct sampled){.id = id, .rank = 1, .logprob = logits[0] + (float)n_top};
    atomic_store(&sampler->busy, false);
}

static void no_events(void *arg, const struct event *events, int n) {
    (void)arg, (void)events, (void)n;
}

static struct scheduler *scheduler_on(struct engine *engine) {
    struct scheduler_config config = {.max_num_seqs = 16,
                                      .max_num_batched_tokens = 16,
                                      .max_model_len = 16,
                                      .max_queued_requests = 4,
                                      .max_queued_tokens = 64,
                                      .n_blocks = 16,
                                      .block_size = 4,
                                      .max_logit_rows = N_JOBS,
                                      .on_events = no_events};
    engine->info.V = V;
    return scheduler_new(&config, engine);
}

/* Of three jobs one is shared, one scores and one chooses alone; of seven one was dropped. The
 * shared ones read row 0. */
static void set_jobs(struct engine *engine, struct sample_job *jobs, const int32_t *history) {
    for (int i = 0; i < N_JOBS; i++) {
        engine->logits[i][0] = (float)i;
        jobs[i] = (struct sample_job){.row = i % 3 ? i : 0,
                                      .shared = i % 3 == 0,
                                      .score = i % 3 == 1,
                                      .dropped = i % 7 == 6,
                                      .history = history,
                                      .n_top = 2,
                                      .n_prompt = 2,
                                      .n_output = i % 3 == 1 ? 0 : 1,
                                      .position = 3,
                                      .choice = i};
    }
    for (int i = 0; i < V; i++) engine->logits[0][i] = 5;
}

START_TEST(each_job_is_done_once) {
    static struct engine engine;
    static struct sample_job jobs[N_JOBS];
    struct scheduler *scheduler = scheduler_on(&engine);
    const int32_t history[4] = {9, 8, 7, 6};
    set_jobs(&engine, jobs, history);
    scheduler->port.wait(scheduler->port.self, jobs, N_JOBS);
    for (int i = 0; i < N_JOBS; i++) {
        ck_assert_int_eq(jobs[i].out.rank, i % 7 != 6);
        if (i % 7 == 6) continue;
        if (i % 3 == 0) ck_assert_int_eq(jobs[i].out.id, 5 + i);
        if (i % 3 == 1) ck_assert(jobs[i].out.id == 6 && jobs[i].out.logprob == (float)(i + 2));
        if (i % 3 == 2) ck_assert_int_eq(jobs[i].out.id, 2 * i);
        if (i % 3 == 2) ck_assert_int_eq(engine.sampled[i], 2 * i < V ? 2 * i : 0);
    }
    for (int i = 0; i < V; i++) ck_assert(engine.logits[0][i] == 5);
    ck_assert_int_gt(atomic_load(&n_samplers), 0);
    scheduler_free(scheduler);
    ck_assert_int_eq(atomic_load(&n_samplers), 0);
}
END_TEST

START_TEST(steps_go_to_the_engine) {
    static struct engine engine;
    struct scheduler *scheduler = scheduler_on(&engine);
    const int32_t prompt[3] = {1, 2, 3};
    struct generation generation = {
        .prompt = prompt, .n_prompt = 3, .n = 1, .max_tokens = 2, .prompt_logprobs = -1};
    ck_assert_int_eq(scheduler_submit(scheduler, &generation, NULL), STATUS_OK);
    while (scheduler_step(scheduler)) ck_assert_int_ge(engine.step->M, 1);
    ck_assert_int_eq((int)scheduler->stats.generated_tokens, 2);
    scheduler_free(scheduler);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler_engine_port");
    TCase *core = tcase_create("core");
    tcase_add_test(core, each_job_is_done_once);
    tcase_add_test(core, steps_go_to_the_engine);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
