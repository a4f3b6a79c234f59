/* The work of the scheduler itself in a step: plan, apply, commit and events, over an engine that
 * does nothing. It is a little for the step and a little for each running sequence. bench/steps.c
 * has the times. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "counted/work.h"
#include "support/fake_engine.h"
#include "support/suite_main.h"

#define N_STEPS 64

#define MAX_SEQS 1024

static _Atomic uint64_t n_events;

static void no_submit(void *self, const struct step *step) {
    (void)self, (void)step;
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
    struct engine_port port = {.V = FAKE_V,
                               .in_flight = in_flight,
                               .row_quantum = 16,
                               .submit = no_submit,
                               .sample = quick_sample,
                               .wait = no_wait};
    return scheduler_new_on(&config, &port);
}

/* Returns the work of N_STEPS steps in which n_seqs sequences decode after n_prompt tokens. */
static uint64_t steps_work(int n_seqs, int n_prompt) {
    struct scheduler *scheduler = busy_scheduler(n_seqs, n_prompt, N_STEPS + 64);
    struct generation *generations = mem_calloc((size_t)n_seqs, sizeof *generations);
    int32_t *prompts = mem_calloc((size_t)n_seqs * (size_t)n_prompt, sizeof *prompts);
    for (int i = 0; i < n_seqs; i++) {
        int32_t *prompt = prompts + (size_t)i * (size_t)n_prompt;
        prompt[0] = i;
        generations[i] = (struct generation){.prompt = prompt,
                                             .n_prompt = n_prompt,
                                             .n = 1,
                                             .max_tokens = N_STEPS + 64,
                                             .prompt_logprobs = -1};
        ck_assert_int_eq(scheduler_submit(scheduler, &generations[i], NULL), STATUS_OK);
    }
    for (int i = 0; i < 4; i++) scheduler_step(scheduler);
    ck_assert_int_eq(scheduler->running.n, n_seqs);
    uint64_t before = work_done();
    for (int i = 0; i < N_STEPS; i++) scheduler_step(scheduler);
    uint64_t work = work_done() - before;
    scheduler_free(scheduler);
    free(generations);
    free(prompts);
    return work;
}

enum { UNITS_A_STEP = 2000, UNITS_A_SEQUENCE = 450 };

/* The loop index is the number of steps in flight. */
START_TEST(a_step_is_little_work) {
    in_flight = _i;
    for (int n = 1; n <= MAX_SEQS; n *= 4) {
        uint64_t units = steps_work(n, 200) / N_STEPS;
        printf("%5d sequences, %d in flight: %llu units a step\n", n, in_flight,
               (unsigned long long)units);
        ck_assert_uint_lt(units, UNITS_A_STEP + UNITS_A_SEQUENCE * (uint64_t)n);
    }
    in_flight = 1;
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler_work");
    TCase *core = tcase_create("core");
    tcase_add_loop_test(core, a_step_is_little_work, 1, MAX_IN_FLIGHT + 1);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
