/* Prompts that are only read and share their beginning, as the questions over one state do: they
 * compute it once, and fill their steps. */
#include <check.h>

#include "engine/engine.h"
#include "scheduler/internal.h"
#include "support/suite_main.h"

enum { N = 400, STATE = 64, OWN = 5, BLOCK = 16, V = 256, CONTEXT = STATE + OWN };

static int32_t ids[N][CONTEXT];
static struct generation questions[N];
static struct engine *engine;
static struct scheduler *scheduler;
static int n_ended;

static void on_events(void *arg, const struct event *events, int n) {
    (void)arg;
    for (int i = 0; i < n; i++) n_ended += events[i].last;
}

/* All questions begin with the same state, and each has a token of its own. */
static void draw_questions(void) {
    static const int32_t labels[] = {5, 6};
    for (int i = 0; i < N; i++) {
        for (int t = 0; t < CONTEXT; t++) ids[i][t] = 3 + t * 7 % (V - 3);
        ids[i][STATE] = i % (V - 3);
        ids[i][STATE + 1] = i / (V - 3);
        questions[i] = (struct generation){.prompt = ids[i],
                                           .n_prompt = CONTEXT,
                                           .n = 1,
                                           .prompt_logprobs = -1,
                                           .logprob_ids = labels,
                                           .n_logprob_ids = 2};
    }
}

static void open_both(int rows, int seqs) {
    struct err err = {0};
    const struct engine_config config = {.model = "tests/vectors/families/qwen3.gguf",
                                         .threads = 1,
                                         .max_num_seqs = seqs,
                                         .max_num_batched_tokens = rows,
                                         .max_model_len = CONTEXT + 1,
                                         .block_size = BLOCK,
                                         .kv_memory = 8 << 20};
    ck_assert_msg(engine_open(&engine, &config, &err) == STATUS_OK, "%s", err.message);
    const struct engine_memory *memory = engine_memory(engine);
    const struct scheduler_config ours = {.max_num_seqs = seqs,
                                          .max_num_batched_tokens = rows,
                                          .max_logit_rows = engine_max_logit_rows(engine),
                                          .max_model_len = memory->max_model_len,
                                          .n_blocks = memory->n_blocks,
                                          .block_size = memory->block_size,
                                          .max_queued_requests = N,
                                          .max_queued_tokens = N * CONTEXT,
                                          .prefix_caching = true,
                                          .on_events = on_events};
    scheduler = scheduler_new(&ours, engine);
}

/* Asks the questions first..first + n and returns their steps; *rows is the number of rows. */
static uint64_t ask(int first, int n, uint64_t *rows) {
    struct scheduler_stats before, after;
    struct err err = {0};
    scheduler_stats(scheduler, &before);
    n_ended = 0;
    for (int i = first; i < first + n; i++)
        ck_assert_msg(scheduler_submit(scheduler, &questions[i], &err) == STATUS_OK, "%s",
                      err.message);
    while (n_ended < n) scheduler_step(scheduler);
    scheduler_stats(scheduler, &after);
    *rows = after.step_rows - before.step_rows;
    return after.steps - before.steps;
}

/* The limits of a step: its rows and its sequences. Each question computes its own rows. */
static const int limits[][2] = {{2048, 16}, {2048, 64}, {OWN * 8, 64}, {OWN * 100, 512}};
enum { N_LIMITS = sizeof limits / sizeof *limits };

START_TEST(questions_over_one_state_fill_their_steps) {
    const int max_rows = limits[_i][0], max_seqs = limits[_i][1];
    const int rows_a_step = max_rows / OWN < max_seqs ? max_rows / OWN : max_seqs;
    uint64_t rows;
    draw_questions();
    open_both(max_rows, max_seqs);
    ask(0, 1, &rows);
    ck_assert_uint_eq(rows, CONTEXT);
    const uint64_t steps = ask(1, N - 1, &rows);
    ck_assert_uint_eq(steps, (uint64_t)((N - 1 + rows_a_step - 1) / rows_a_step));
    ck_assert_uint_eq(rows, (N - 1) * OWN);
    scheduler_free(scheduler);
    engine_close(engine);
}
END_TEST

/* The first question computes the state, and the others wait for it. */
START_TEST(a_new_state_is_computed_once) {
    uint64_t rows;
    draw_questions();
    open_both(2048, 100);
    const uint64_t steps = ask(0, N, &rows);
    ck_assert_uint_eq(steps, 1 + (N - 1 + 99) / 100);
    ck_assert_uint_eq(rows, CONTEXT + (N - 1) * OWN);
    scheduler_free(scheduler);
    engine_close(engine);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler/questions");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 120);
    tcase_add_loop_test(core, questions_over_one_state_fill_their_steps, 0, N_LIMITS);
    tcase_add_test(core, a_new_state_is_computed_once);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
