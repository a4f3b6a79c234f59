#include "support/sequence_runner.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ROWS 64
#define MOST_HIDDEN_ROWS 320

struct engine *runner_open(const char *model, bool float32, const char *cpu_path, int threads) {
    return runner_open_kv(model, float32, cpu_path, threads, KV_DTYPE_AUTO);
}

struct engine *runner_open_config(struct engine_config *config) {
    struct engine *engine;
    struct err err;
    config->max_num_seqs = config->max_num_batched_tokens = MOST_ROWS;
    config->block_size = 16;
    if (config->max_model_len == 0) config->max_model_len = 2048;
    config->kv_memory = 256 << 20;
    if (engine_open(&engine, config, &err)) {
        fprintf(stderr, "%s: %s\n", config->model, err.message);
        exit(1);
    }
    return engine;
}

struct engine *runner_open_kv(const char *model, bool float32, const char *cpu_path, int threads,
                              enum kv_dtype kv_dtype) {
    return runner_open_config(
        &(struct engine_config){.model = model,
                                .threads = threads,
                                .dtype = float32 ? COMPUTE_FLOAT32 : COMPUTE_AUTO,
                                .cpu_path = cpu_path,
                                .kv_dtype = kv_dtype});
}

struct engine *runner_open_ranks(const char *model, bool float32, int threads,
                                 enum kv_dtype kv_dtype, int ranks) {
    return runner_open_config(
        &(struct engine_config){.model = model,
                                .threads = threads,
                                .ranks = ranks,
                                .dtype = float32 ? COMPUTE_FLOAT32 : COMPUTE_AUTO,
                                .kv_dtype = kv_dtype});
}

/* Submits rows first..first + n - 1 of a sequence; all want logits, or their hidden vectors. */
static void submit(struct engine *engine, const int32_t *tokens, int first, int n, bool hidden) {
    int32_t position[MOST_HIDDEN_ROWS], slot[MOST_HIDDEN_ROWS], row[MOST_HIDDEN_ROWS];
    int32_t table[2048 / 16];
    int32_t start[2] = {0, n}, state = 0;
    for (int i = 0; i < 2048 / 16; i++) table[i] = i;
    for (int i = 0; i < n; i++) position[i] = slot[i] = first + i, row[i] = i;
    struct step step = {.M = n,
                        .token = tokens + first,
                        .position = position,
                        .slot = slot,
                        .S = 1,
                        .row_start = start,
                        .table = table,
                        .table_stride = 2048 / 16,
                        .state = &state,
                        .R = n,
                        .n_hidden = hidden ? n : 0,
                        .logit_row = row};
    engine_submit(engine, &step);
}

float *runner_logits(struct engine *engine, const int32_t *tokens, int first, int n) {
    submit(engine, tokens, first, n, false);
    return engine_read_logits(engine);
}

const float *runner_prompt_logits(struct engine *engine, const int32_t *tokens, int n,
                                  int adapter) {
    int32_t position[MOST_ROWS], table[MOST_ROWS], number[MOST_ROWS];
    const int32_t start[2] = {0, n}, none = 0, last = n - 1;
    ck_assert(n > 0 && n <= MOST_ROWS);
    for (int i = 0; i < MOST_ROWS; i++) position[i] = table[i] = i, number[i] = adapter;
    const struct step step = {.M = n,
                              .token = tokens,
                              .position = position,
                              .slot = position,
                              .adapter = adapter >= 0 ? number : NULL,
                              .S = 1,
                              .row_start = start,
                              .table = table,
                              .table_stride = MOST_ROWS,
                              .state = &none,
                              .R = 1,
                              .logit_row = &last};
    engine_submit(engine, &step);
    return engine_read_logits(engine);
}

void runner_must_refuse(const struct engine_config *config, const char *param, const char *words) {
    struct engine *engine;
    struct err err = {0};
    ck_assert_int_eq(engine_open(&engine, config, &err), STATUS_USAGE);
    ck_assert_str_eq(err.param, param);
    ck_assert_msg(strstr(err.message, words), "\"%s\" lacks \"%s\"", err.message, words);
}

void runner_hidden(struct engine *engine, const int32_t *tokens, int n) {
    submit(engine, tokens, 0, n, true);
    engine_sample(engine, NULL, 0);
    engine_wait(engine);
}

double runner_logsumexp(const float *row, int n) {
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++) max = (double)row[i] > max ? (double)row[i] : max;
    for (int i = 0; i < n; i++) sum += exp((double)row[i] - max);
    return max + log(sum);
}

int runner_argmax(const float *row, int n) {
    int best = 0;
    for (int i = 1; i < n; i++) {
        if (row[i] > row[best]) best = i;
    }
    return best;
}
