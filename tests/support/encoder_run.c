#include "support/encoder_run.h"

#include <check.h>
#include <string.h>

#include "scheduler/internal.h"
#include "support/kernel_data.h"

void encoder_run_draw(struct encoder_run *run, int longest) {
    static const enum hidden_rows kinds[] = {HIDDEN_FIRST, HIDDEN_LAST, HIDDEN_ALL};
    uint64_t state = 5;
    ck_assert(longest > 0 && longest <= ENCODER_CONTEXT);
    for (int i = 0; i < ENCODER_INPUTS; i++) {
        const int usual = longest < 60 ? longest : 60;
        int n = i == 7   ? longest
                : i == 9 ? longest - longest / 10
                         : 1 + random_below(&state, usual);
        for (int t = 0; t < n; t++) run->ids[i][t] = 3 + random_below(&state, ENCODER_V - 3);
        run->inputs[i] = (struct generation){.prompt = run->ids[i],
                                             .n_prompt = n,
                                             .n = 1,
                                             .n_second = i % 4 == 1 ? n / 2 : 0,
                                             .prompt_logprobs = -1,
                                             .hidden = kinds[i % 3],
                                             .hidden_sum = run->sums[i]};
    }
}

static void on_events(void *arg, const struct event *events, int n) {
    struct encoder_run *run = arg;
    for (int i = 0; i < n; i++) {
        ck_assert_int_eq(events[i].finish, FINISH_LENGTH);
        run->n_ended += events[i].last;
    }
}

void encoder_run_open(struct encoder_run *run, const struct engine_config *config) {
    struct err err = {0};
    struct engine_config ours = *config;
    ours.max_model_len = ENCODER_CONTEXT;
    ours.block_size = 16;
    if (ours.kv_memory == 0) ours.kv_memory = 8 << 20;
    ck_assert_msg(engine_open(&run->engine, &ours, &err) == STATUS_OK, "%s: %s", config->model,
                  err.message);
    ck_assert_int_le(engine_hidden_size(run->engine), ENCODER_MAX_K);
    const struct engine_memory *memory = engine_memory(run->engine);
    run->scheduler = scheduler_new(
        &(struct scheduler_config){.max_num_seqs = config->max_num_seqs,
                                   .max_num_batched_tokens = engine_max_rows(run->engine),
                                   .max_logit_rows = engine_max_logit_rows(run->engine),
                                   .whole_prompts = true,
                                   .max_model_len = memory->max_model_len,
                                   .n_blocks = memory->n_blocks,
                                   .block_size = memory->block_size,
                                   .max_queued_requests = ENCODER_INPUTS,
                                   .max_queued_tokens = 1 << 20,
                                   .on_events = on_events,
                                   .arg = run},
        run->engine);
}

void encoder_run_close(struct encoder_run *run) {
    scheduler_free(run->scheduler);
    engine_close(run->engine);
}

void encoder_run_together(struct encoder_run *run, const int *order, int n) {
    struct err err = {0};
    run->n_ended = 0;
    for (int i = 0; i < n; i++) {
        memset(run->sums[order[i]], 0, sizeof run->sums[order[i]]);
        ck_assert_msg(scheduler_submit(run->scheduler, &run->inputs[order[i]], &err) == STATUS_OK,
                      "%s", err.message);
    }
    while (run->n_ended < n) scheduler_step(run->scheduler);
}
