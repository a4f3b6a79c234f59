/* The time of one row for a sampling thread, in microseconds of its processor time, on the best
 * path, by setting: `sampling`. tests/engine/test_sampling_work.c bounds the work. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/sampling/sampling.h"

enum { MOST = 128256, HISTORY = 500, POSITIONS = 20, REPEATS = 8 };

static float row[MOST], work[MOST];
static int32_t history[HISTORY];

/* Returns a number from 0 to 1. */
static float draw(void) {
    static uint64_t state = 11;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(state >> 40) * 0x1p-24f;
}

/* Like a model's row: most ids near the middle, and likely ones with falling logits all over the
 * vocabulary. */
static void make_row(int V) {
    for (int i = 0; i < V; i++)
        row[i] = 1.5f * fminf(2 * (draw() + draw() + draw() + draw()) - 4, 3) - 6;
    for (int i = 0; i < 200; i++) {
        int id = (int)(draw() * (float)V);
        row[id] = 12 - 2.2f * logf((float)(i + 1));
    }
    for (int i = 0; i < HISTORY; i++) history[i] = (int)(draw() * (float)V);
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
};

#define UNPENALISED .repetition_penalty = 1
#define UNSCORED .n_logprobs = -1
#define ALL .top_p = 1

static const struct timed cases[] = {
    {"greedy", {UNPENALISED, UNSCORED, ALL}},
    {"temperature 1", {UNPENALISED, UNSCORED, ALL, .temperature = 1}},
    {"0.8, top_p 0.95, top_k 40",
     {UNPENALISED, UNSCORED, .temperature = 0.8f, .top_p = 0.95f, .top_k = 40}},
    {"0.8, top_p 0.95", {UNPENALISED, UNSCORED, .temperature = 0.8f, .top_p = 0.95f}},
    {"1, min_p 0.05", {UNPENALISED, UNSCORED, ALL, .temperature = 1, .min_p = 0.05f}},
    {"2, top_p 0.999", {UNPENALISED, UNSCORED, .temperature = 2, .top_p = 0.999f}},
    {"1, top_k 1000", {UNPENALISED, UNSCORED, ALL, .temperature = 1, .top_k = 1000}},
    {"greedy, logprobs 5", {UNPENALISED, ALL, .n_logprobs = 5}},
    {"temperature 1, logprobs 5", {UNPENALISED, ALL, .temperature = 1, .n_logprobs = 5}},
    {"greedy, penalties over 500",
     {UNSCORED, ALL, .presence_penalty = 0.5f, .frequency_penalty = 0.2f,
      .repetition_penalty = 1.1f}},
};
enum { N_CASES = sizeof cases / sizeof *cases };

int main(void) {
    static const int sizes[] = {49152, MOST};
    for (int k = 0; k < 2; k++) {
        make_row(sizes[k]);
        for (int i = 0; i < N_CASES; i++)
            printf("%6d ids, %-27s %8.1f us\n", sizes[k], cases[i].name,
                   row_us(&cases[i].sampling, sizes[k]));
    }
}
