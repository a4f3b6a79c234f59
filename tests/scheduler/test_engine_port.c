/* The port to the real engine, over stand-ins for the functions of engine.h: each call reaches the
 * right function, in the order of the step. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/internal.h"
#include "support/suite_main.h"

enum { V = 32, HOST_BLOCKS = 7 };

struct engine {
    struct model_config info;
    struct engine_memory memory;
    char calls[64];
    int n_rows, n_samples;
    struct sampled results[4];
};

static void note(struct engine *engine, const char *call) {
    strncat(engine->calls, call, sizeof engine->calls - strlen(engine->calls) - 1);
}

const struct model_config *engine_model(const struct engine *engine) {
    return &engine->info;
}

const struct engine_memory *engine_memory(const struct engine *engine) {
    return &engine->memory;
}

int engine_max_rows(const struct engine *engine) {
    (void)engine;
    return 9;
}

int engine_max_logit_rows(const struct engine *engine) {
    (void)engine;
    return 5;
}

bool engine_on_host(const struct engine *engine) {
    (void)engine;
    return true;
}

int engine_row_quantum(const struct engine *engine) {
    (void)engine;
    return 16;
}

int engine_in_flight(const struct engine *engine) {
    (void)engine;
    return 1;
}

void engine_submit(struct engine *engine, const struct step *step) {
    note(engine, "submit ");
    engine->n_rows += step->M;
}

void engine_sample(struct engine *engine, const struct sample *samples, int n) {
    note(engine, "sample ");
    for (int i = 0; i < n; i++) engine->results[i] = (struct sampled){.id = samples[i].position};
    engine->n_samples += n;
}

const struct sampled *engine_wait(struct engine *engine) {
    note(engine, "wait ");
    return engine->results;
}

const float *engine_hidden(const struct engine *engine, int i) {
    static const float hidden[] = {1, 2, 3, 4};
    note((struct engine *)engine, "hidden ");
    return hidden + 2 * i;
}

int engine_hidden_size(const struct engine *engine) {
    (void)engine;
    return 2;
}

bool engine_failed(const struct engine *engine, struct err *err) {
    (void)engine;
    err_set(err, STATUS_SERVER_ERROR, NULL, "failed");
    return true;
}

bool engine_lost(const struct engine *engine) {
    (void)engine;
    return false;
}

int engine_host_blocks(const struct engine *engine, enum block_kind kind) {
    (void)engine;
    return kind == KV_WINDOW_BLOCKS ? 0 : HOST_BLOCKS;
}

bool engine_swap_reserve(struct engine *engine, enum block_kind kind, int n) {
    note(engine, kind == KV_WINDOW_BLOCKS ? "reserve windows " : "reserve ");
    return n <= HOST_BLOCKS;
}

void engine_swap_out(struct engine *engine, enum block_kind kind, const int32_t *block,
                     const int32_t *host_block, int n) {
    note(engine, kind == KV_WINDOW_BLOCKS ? "windows out " : "out ");
    ck_assert(block[0] == 1 && host_block[0] == 2 && n == 1);
}

void engine_swap_in(struct engine *engine, enum block_kind kind, const int32_t *host_block,
                    const int32_t *block, int n) {
    note(engine, kind == KV_WINDOW_BLOCKS ? "windows in " : "in ");
    ck_assert(block[0] == 1 && host_block[0] == 2 && n == 1);
}

bool engine_has_parts(const struct engine *engine) {
    (void)engine;
    return true;
}

void engine_part_get(const struct engine *engine, enum cache_part part, int i, void *out) {
    (void)engine;
    *(int *)out = 10 * (int)part + i;
}

void engine_part_put(struct engine *engine, enum cache_part part, int i, const void *in) {
    ck_assert_int_eq(10 * (int)part + i, *(const int *)in);
    note(engine, "put ");
}

void engine_swap_arrive(struct engine *engine) {
    note(engine, "arrive ");
}

void engine_parallel(struct engine *engine, void (*fn)(void *arg, int i), void *arg, int n) {
    note(engine, "parallel ");
    for (int i = 0; i < n; i++) fn(arg, i);
}

void engine_unload(struct engine *engine) {
    note(engine, "unload ");
}

enum status engine_load(struct engine *engine, const struct engine_load_watch *watch,
                        struct err *err) {
    (void)err;
    note(engine, "load ");
    watch->progress(watch->arg, "weights", 1);
    return STATUS_OK;
}

static void add(void *sum, int i) {
    *(int *)sum += i;
}

static void no_events(void *arg, const struct event *events, int n) {
    (void)arg, (void)events, (void)n;
}

static struct scheduler *scheduler_on(struct engine *engine, struct engine *draft) {
    struct scheduler_config config = {.max_num_seqs = 16,
                                      .max_num_batched_tokens = 16,
                                      .max_model_len = 16,
                                      .max_queued_requests = 4,
                                      .max_queued_tokens = 64,
                                      .n_blocks = 16,
                                      .block_size = 4,
                                      .max_logit_rows = 16,
                                      .speculation.max_tokens = 2,
                                      .fixed_drafts = true,
                                      .draft_engine = draft,
                                      .on_events = no_events};
    engine->info.V = V;
    if (draft) draft->info.V = V;
    return scheduler_new(&config, engine);
}

START_TEST(a_step_is_submitted_sampled_and_waited_for) {
    struct engine engine = {0};
    struct scheduler *scheduler = scheduler_on(&engine, NULL);
    const int32_t prompt[3] = {1, 2, 3};
    struct generation generation = {
        .prompt = prompt, .n_prompt = 3, .n = 1, .max_tokens = 2, .prompt_logprobs = -1};
    ck_assert_int_eq(scheduler_submit(scheduler, &generation, NULL), STATUS_OK);
    while (scheduler_step(scheduler)) {
    }
    ck_assert_str_eq(engine.calls, "submit sample wait submit sample wait ");
    ck_assert(engine.n_rows == 3 + 1 && engine.n_samples == 2);
    ck_assert_int_eq((int)scheduler->stats.generated_tokens, 2);
    scheduler_free(scheduler);
}
END_TEST

START_TEST(hidden_vectors_are_read_after_the_wait) {
    struct engine engine = {0};
    struct scheduler *scheduler = scheduler_on(&engine, NULL);
    const int32_t prompt[2] = {1, 2};
    double sum[2] = {0, 0};
    struct generation generation = {.prompt = prompt,
                                    .n_prompt = 2,
                                    .n = 1,
                                    .prompt_logprobs = -1,
                                    .hidden = HIDDEN_ALL,
                                    .hidden_sum = sum};
    ck_assert_int_eq(scheduler_submit(scheduler, &generation, NULL), STATUS_OK);
    while (scheduler_step(scheduler)) {
    }
    ck_assert_str_eq(engine.calls, "submit sample wait hidden hidden ");
    ck_assert(sum[0] == 1 + 3 && sum[1] == 2 + 4 && engine.n_samples == 0);
    scheduler_free(scheduler);
}
END_TEST

/* Its draws are positions, too, so all drafts are accepted. Of six tokens, the prompt's step yields
 * one, the next step three, the last one two. */
START_TEST(a_draft_engine_runs_between_the_steps) {
    struct engine engine = {0}, draft = {.memory = {.n_blocks = 8, .block_size = 4}};
    draft.memory.max_model_len = 16;
    struct scheduler *scheduler = scheduler_on(&engine, &draft);
    const struct draft_engine *d = &scheduler->draft_engine;
    const int32_t prompt[3] = {1, 2, 3};
    struct generation generation = {.prompt = prompt,
                                    .n_prompt = 3,
                                    .n = 1,
                                    .max_tokens = 6,
                                    .max_drafts = MAX_DRAFTS,
                                    .prompt_logprobs = -1};
    ck_assert(d->max_jobs == 5 && d->port.self == &draft);
    ck_assert_int_eq(scheduler_submit(scheduler, &generation, NULL), STATUS_OK);
    while (scheduler_step(scheduler)) {
    }
    ck_assert_str_eq(engine.calls, "submit sample wait submit sample wait submit sample wait ");
    ck_assert_str_eq(draft.calls, "submit sample wait submit sample wait submit sample wait ");
    ck_assert_int_eq(draft.n_rows, 4 + 1 + 2);
    ck_assert_int_eq((int)scheduler->stats.accepted_tokens, 3);
    scheduler_free(scheduler);
}
END_TEST

START_TEST(swapping_threads_and_failures_are_the_engine_s) {
    struct engine engine = {0};
    struct scheduler *scheduler = scheduler_on(&engine, NULL);
    const struct engine_port *port = &scheduler->port;
    const struct swap_port *swap = &port->swap;
    const int32_t block = 1, host_block = 2;
    struct err err = {0};
    ck_assert_int_eq(scheduler->config.max_mixed_prefill_tokens, 16);
    ck_assert_int_eq(scheduler->config.swap_from, 64);
    ck_assert(swap->n_host_blocks == HOST_BLOCKS && swap->n_host_windows == 0);
    ck_assert(swap->reserve(swap->self, true, HOST_BLOCKS));
    swap->out(swap->self, false, &block, &host_block, 1);
    swap->in(swap->self, true, &host_block, &block, 1);
    swap->arrive(swap->self);
    ck_assert_str_eq(engine.calls, "reserve windows out windows in arrive ");
    int sum = 0;
    port->parallel(port->self, add, &sum, 4);
    ck_assert(sum == 0 + 1 + 2 + 3 && strstr(engine.calls, "arrive parallel "));
    ck_assert(port->failed(port->self, &err));
    ck_assert_str_eq(err.message, "failed");
    scheduler_free(scheduler);
}
END_TEST

/* Both models are unloaded and loaded, the draft's after the other, and nothing is drafted of the
 * lost cache. */
START_TEST(a_draft_engine_is_unloaded_and_loaded_too) {
    struct engine engine = {0}, draft = {.memory = {.n_blocks = 8, .block_size = 4}};
    draft.memory.max_model_len = 16;
    struct scheduler *scheduler = scheduler_on(&engine, &draft);
    const int32_t prompt[3] = {1, 2, 3};
    struct generation generation = {
        .prompt = prompt, .n_prompt = 3, .n = 1, .max_tokens = 1, .prompt_logprobs = -1};
    scheduler->unload_due = true;
    ck_assert(!scheduler_step(scheduler));
    ck_assert_str_eq(engine.calls, "unload ");
    ck_assert_str_eq(draft.calls, "unload ");
    ck_assert_int_eq(scheduler_submit(scheduler, &generation, NULL), STATUS_OK);
    while (scheduler_step(scheduler)) {
    }
    ck_assert_str_eq(engine.calls, "unload load submit sample wait ");
    ck_assert_str_eq(draft.calls, "unload load ");
    scheduler_free(scheduler);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler_engine_port");
    TCase *core = tcase_create("core");
    tcase_add_test(core, a_step_is_submitted_sampled_and_waited_for);
    tcase_add_test(core, hidden_vectors_are_read_after_the_wait);
    tcase_add_test(core, a_draft_engine_runs_between_the_steps);
    tcase_add_test(core, a_draft_engine_is_unloaded_and_loaded_too);
    tcase_add_test(core, swapping_threads_and_failures_are_the_engine_s);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
