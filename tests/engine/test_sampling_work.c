/* The work of one row for a sampling thread, on the plain path, whose every loop is counted. Each
 * setting has a bound for each id of the vocabulary: the number of times that the row is read, and
 * the work of its candidates. bench/sampling.c has the times. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "counted/work.h"
#include "engine/sampling/sampling.h"
#include "support/kernel_data.h"
#include "support/suite_main.h"

enum { MOST = 128256, HISTORY = 500, POSITIONS = 5 };

/* The address sanitizer adds branches to the loops, up to half of their own. */
#ifdef __SANITIZE_ADDRESS__
#define ADDED 1.5
#else
#define ADDED 1.0
#endif

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

/* Returns the mean units over positions, which draw different ids. */
static uint64_t row_work(const struct sampling *s, int V) {
    struct sampler *sampler = sampler_new(V, "plain");
    struct sampled out;
    uint64_t sum = 0;
    for (int position = 0; position < POSITIONS; position++) {
        const struct sample sample = {.sampling = s,
                                      .history = history,
                                      .n_prompt = HISTORY / 2,
                                      .n_output = HISTORY / 2,
                                      .position = position};
        memcpy(work, row, (size_t)V * sizeof *row);
        uint64_t before = work_done();
        sampler_sample(sampler, &sample, work, &out);
        sum += work_done() - before;
    }
    sampler_free(sampler);
    return sum / POSITIONS;
}

struct counted {
    const char *name;
    struct sampling sampling;
    double most; /* units for each id */
};

#define UNPENALISED .repetition_penalty = 1
#define UNSCORED .n_logprobs = -1
#define ALL .top_p = 1

static const struct counted cases[] = {
    {"greedy", {UNPENALISED, UNSCORED, ALL}, 2.5},
    {"temperature 1", {UNPENALISED, UNSCORED, ALL, .temperature = 1}, 14},
    {"0.8, top_p 0.95, top_k 40",
     {UNPENALISED, UNSCORED, .temperature = 0.8f, .top_p = 0.95f, .top_k = 40},
     5},
    {"0.8, top_p 0.95", {UNPENALISED, UNSCORED, .temperature = 0.8f, .top_p = 0.95f}, 16},
    {"1, min_p 0.05", {UNPENALISED, UNSCORED, ALL, .temperature = 1, .min_p = 0.05f}, 2.5},
    {"2, top_p 0.999", {UNPENALISED, UNSCORED, .temperature = 2, .top_p = 0.999f}, 190},
    {"1, top_k 1000", {UNPENALISED, UNSCORED, ALL, .temperature = 1, .top_k = 1000}, 11},
    {"greedy, logprobs 5", {UNPENALISED, ALL, .n_logprobs = 5}, 13},
    {"temperature 1, logprobs 5", {UNPENALISED, ALL, .temperature = 1, .n_logprobs = 5}, 16},
    {"greedy, penalties over 500",
     {UNSCORED, ALL, .presence_penalty = 0.5f, .frequency_penalty = 0.2f,
      .repetition_penalty = 1.1f},
     3},
};
enum { N_CASES = sizeof cases / sizeof *cases };

START_TEST(a_row_is_read_a_few_times) {
    static const int sizes[] = {49152, MOST};
    for (int k = 0; k < 2; k++) {
        make_row(sizes[k]);
        double each = (double)row_work(&cases[_i].sampling, sizes[k]) / sizes[k];
        printf("%6d ids, %-27s %6.2f units for each id\n", sizes[k], cases[_i].name, each);
        ck_assert_double_lt(each, cases[_i].most * ADDED);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine_sampling_work");
    TCase *core = tcase_create("core");
    tcase_add_loop_test(core, a_row_is_read_a_few_times, 0, N_CASES);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
