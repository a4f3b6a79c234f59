/* The cost of one row for a sampling thread, in microseconds of its processor time, on the best
 * path. The goals are for a vocabulary of 49,152. The asserted bound has room for a busy machine
 * and for one without vector units. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/sampling/sampling.h"
#include "support/kernel_data.h"
#include "support/suite_main.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOWER 50
#else
#define SLOWER 1
#endif

enum { MOST = 128256, HISTORY = 500, POSITIONS = 20, REPEATS = 8 };

static float row[MOST], work[MOST];
static int32_t history[HISTORY];

/* Like a model's row: most ids near the middle, and likely ones with falling logits all over the
 * vocabulary. */
static void make_row(int V) {
    uint64_t state = 11;
    for (int i = 0; i < V; i++) row[i] = 1.5f * fminf(random_float(&state), 3) - 6;
    for (int i = 0; i < 200; i++) {
        int id = random_below(&state, V);
        row[id] = 12 - 2.2f * logf((float)(i + 1));
    }
    for (int i = 0; i < HISTORY; i++) history[i] = random_below(&state, V);
}

static double thread_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* Returns the mean over positions, which draw different ids, of the least of many calls. At the
 * start of each call the row is in the second-level cache, as after the head. */
static double row_us(const struct sampling *s, int V) {
    struct sampler *sampler = sampler_new(V, NULL);
    double sum = 0;
    struct sampled out;
    for (int position = 0; position < POSITIONS; position++) {
        const struct sample sample = {.sampling = s,
                                      .history = history,
                                      .n_prompt = HISTORY / 2,
                                      .n_output = HISTORY / 2,
                                      .position = position};
        double best = INFINITY;
        for (int i = 0; i < REPEATS; i++) {
            memcpy(work, row, (size_t)V * sizeof *row);
            double began = thread_us();
            sampler_sample(sampler, &sample, work, &out);
            best = fmin(best, thread_us() - began);
        }
        sum += best;
    }
    sampler_free(sampler);
    return sum / POSITIONS;
}

struct timed {
    const char *name;
    struct sampling sampling;
    double goal_us; /* at 49,152 ids */
};

#define UNPENALISED .repetition_penalty = 1
#define UNSCORED .n_logprobs = -1
#define ALL .top_p = 1

static const struct timed cases[] = {
    {"greedy", {UNPENALISED, UNSCORED, ALL}, 3},
    {"temperature 1", {UNPENALISED, UNSCORED, ALL, .temperature = 1}, 25},
    {"0.8, top_p 0.95, top_k 40",
     {UNPENALISED, UNSCORED, .temperature = 0.8f, .top_p = 0.95f, .top_k = 40},
     30},
    {"0.8, top_p 0.95", {UNPENALISED, UNSCORED, .temperature = 0.8f, .top_p = 0.95f}, 30},
    {"1, min_p 0.05", {UNPENALISED, UNSCORED, ALL, .temperature = 1, .min_p = 0.05f}, 30},
    {"2, top_p 0.999", {UNPENALISED, UNSCORED, .temperature = 2, .top_p = 0.999f}, 10000},
    {"1, top_k 1000", {UNPENALISED, UNSCORED, ALL, .temperature = 1, .top_k = 1000}, 100},
    {"greedy, logprobs 5", {UNPENALISED, ALL, .n_logprobs = 5}, 30},
    {"temperature 1, logprobs 5", {UNPENALISED, ALL, .temperature = 1, .n_logprobs = 5}, 50},
    {"greedy, penalties over 500",
     {UNSCORED, ALL, .presence_penalty = 0.5f, .frequency_penalty = 0.2f,
      .repetition_penalty = 1.1f},
     10},
};
enum { N_CASES = sizeof cases / sizeof *cases };

START_TEST(a_row_costs_little) {
    static const int sizes[] = {49152, MOST};
    for (int k = 0; k < 2; k++) {
        int V = sizes[k];
        make_row(V);
        for (int i = 0; i < N_CASES; i++) {
            double goal = cases[i].goal_us * V / sizes[0];
            double us = row_us(&cases[i].sampling, V);
            printf("%6d ids, %-27s %8.1f us (goal %.0f)\n", V, cases[i].name, us, goal);
            ck_assert_double_lt(us, 50 * SLOWER * goal);
        }
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine_sampling_speed");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 120);
    tcase_add_test(core, a_row_costs_little);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
