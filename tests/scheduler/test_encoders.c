/* Encoders: the bits of an input's vectors are the same alone and beside other inputs, of one text
 * or two, for any
 * number of rows and sequences of a step, on every path and any number of threads; and text is
 * refused. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/engine_port.h"
#include "scheduler/internal.h"
#include "support/instructions.h"
#include "support/kernel_data.h"
#include "support/suite_main.h"

enum { N_INPUTS = 64, CONTEXT = 320, MAX_K = 48, V = 299 };

static const char *const models[] = {
    "tests/vectors/encoders/bert", "tests/vectors/encoders/modernbert",
    "tests/vectors/encoders/gemma3", "tests/vectors/encoders/jina"};
enum { N_MODELS = sizeof models / sizeof *models };

/* ---- inputs --------------------------------------------------------------------------------- */

/* The inputs of a test, and the sums of their hidden vectors: alone, and in a run. */
static int32_t ids[N_INPUTS][CONTEXT];
static struct generation inputs[N_INPUTS];
static double alone[N_INPUTS][MAX_K], sums[N_INPUTS][MAX_K];

static void draw_inputs(void) {
    static const enum hidden_rows kinds[] = {HIDDEN_FIRST, HIDDEN_LAST, HIDDEN_ALL};
    uint64_t state = 5;
    for (int i = 0; i < N_INPUTS; i++) {
        int n = i == 7 ? CONTEXT : i == 9 ? 290 : 1 + random_below(&state, 60);
        for (int t = 0; t < n; t++) ids[i][t] = 3 + random_below(&state, V - 3);
        inputs[i] = (struct generation){.prompt = ids[i],
                                        .n_prompt = n,
                                        .n = 1,
                                        .n_second = i % 4 == 1 ? n / 2 : 0,
                                        .prompt_logprobs = -1,
                                        .hidden = kinds[i % 3],
                                        .hidden_sum = sums[i]};
    }
}

/* ---- a run ---------------------------------------------------------------------------------- */

struct setting {
    const char *path;
    int threads, rows, seqs;
};

static int n_ended;

static void on_events(void *arg, const struct event *events, int n) {
    (void)arg;
    for (int i = 0; i < n; i++) {
        ck_assert_int_eq(events[i].finish, FINISH_LENGTH);
        n_ended += events[i].last;
    }
}

static struct engine *open_engine(const char *model, const struct setting *setting) {
    struct engine *engine = NULL;
    struct err err = {0};
    const struct engine_config config = {.model = model,
                                         .threads = setting->threads,
                                         .cpu_path = setting->path,
                                         .max_num_seqs = setting->seqs,
                                         .max_num_batched_tokens = setting->rows,
                                         .max_model_len = CONTEXT,
                                         .block_size = 16,
                                         .kv_memory = 8 << 20};
    ck_assert_msg(engine_open(&engine, &config, &err) == STATUS_OK, "%s: %s", model, err.message);
    ck_assert_int_le(engine_hidden_size(engine), MAX_K);
    return engine;
}

static struct scheduler *open_scheduler(struct engine *engine, const struct setting *setting) {
    const struct engine_memory *memory = engine_memory(engine);
    return scheduler_new(
        &(struct scheduler_config){.max_num_seqs = setting->seqs,
                                   .max_num_batched_tokens = engine_max_rows(engine),
                                   .max_logit_rows = engine_max_logit_rows(engine),
                                   .whole_prompts = true,
                                   .max_model_len = memory->max_model_len,
                                   .n_blocks = memory->n_blocks,
                                   .block_size = memory->block_size,
                                   .max_queued_requests = N_INPUTS,
                                   .max_queued_tokens = 1 << 20,
                                   .on_events = on_events},
        engine);
}

/* Runs inputs from..end-1 together. */
static void run_together(struct scheduler *s, int from, int end) {
    struct err err = {0};
    n_ended = 0;
    for (int i = from; i < end; i++) {
        memset(sums[i], 0, sizeof sums[i]);
        ck_assert_msg(scheduler_submit(s, &inputs[i], &err) == STATUS_OK, "%s", err.message);
    }
    while (n_ended < end - from) scheduler_step(s);
}

START_TEST(vectors_do_not_depend_on_other_inputs) {
    static const int limits[][2] = {{CONTEXT, 64}, {700, 3}, {2000, 64}}; /* rows, sequences */
    const struct setting first = {"plain", 1, CONTEXT, 1};
    draw_inputs();
    struct engine *engine = open_engine(models[_i], &first);
    struct scheduler *s = open_scheduler(engine, &first);
    for (int i = 0; i < N_INPUTS; i++) run_together(s, i, i + 1);
    memcpy(alone, sums, sizeof sums);
    scheduler_free(s);
    engine_close(engine);
    for (const char *const *path = backend_cpu_paths(); *path; path++) {
        for (int i = 0; i < 3; i++) {
            const struct setting setting = {*path, 1 + i % 2, limits[i][0], limits[i][1]};
            engine = open_engine(models[_i], &setting);
            s = open_scheduler(engine, &setting);
            run_together(s, 0, N_INPUTS);
            for (int k = 0; k < N_INPUTS; k++)
                ck_assert_msg(memcmp(sums[k], alone[k], sizeof sums[k]) == 0,
                              "%s on %s, %d rows: input %d of %d tokens differs", models[_i], *path,
                              setting.rows, k, inputs[k].n_prompt);
            scheduler_free(s);
            engine_close(engine);
        }
    }
}
END_TEST

/* The last tokens of a prompt have type 1: none, the last, all but the first, all. */
START_TEST(each_token_has_its_own_type) {
    enum { N = 9, N_KINDS = 4 };
    static const int n_second[N_KINDS] = {0, 1, N - 1, N};
    const struct setting setting = {NULL, 1, CONTEXT, N_KINDS};
    draw_inputs();
    struct engine *engine = open_engine(models[0], &setting);
    struct scheduler *s = open_scheduler(engine, &setting);
    for (int i = 0; i < N_KINDS; i++) {
        inputs[i].prompt = ids[0];
        inputs[i].n_prompt = N;
        inputs[i].hidden = HIDDEN_ALL;
        inputs[i].n_second = n_second[i];
    }
    for (int t = 0; t < N; t++) ids[0][t] = 3 + t;
    run_together(s, 0, N_KINDS);
    for (int i = 1; i < N_KINDS; i++)
        for (int k = 0; k < i; k++)
            ck_assert_msg(memcmp(sums[i], sums[k], sizeof sums[i]) != 0,
                          "the types of %d and of %d tokens give the same vectors", n_second[k],
                          n_second[i]);
    scheduler_free(s);
    engine_close(engine);
}
END_TEST

START_TEST(text_and_long_inputs_are_refused) {
    const struct setting setting = {NULL, 1, CONTEXT, 4};
    struct err err = {0};
    draw_inputs();
    struct engine *engine = open_engine(models[0], &setting);
    struct scheduler *s = open_scheduler(engine, &setting);
    struct generation text = inputs[0];
    text.max_tokens = 3;
    ck_assert_int_eq(scheduler_submit(s, &text, &err), STATUS_INVALID_REQUEST);
    ck_assert_ptr_nonnull(strstr(err.message, "encoder"));
    text = inputs[0];
    text.n_prompt = CONTEXT + 1;
    ck_assert_int_eq(scheduler_submit(s, &text, &err), STATUS_INVALID_REQUEST);
    ck_assert_ptr_nonnull(strstr(err.message, "320"));
    scheduler_free(s);
    engine_close(engine);
}
END_TEST

int main(void) {
    instructions_carry_out();
    Suite *suite = suite_create("scheduler/encoders");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 120);
    tcase_add_loop_test(core, vectors_do_not_depend_on_other_inputs, 0, N_MODELS);
    tcase_add_test(core, each_token_has_its_own_type);
    tcase_add_test(core, text_and_long_inputs_are_refused);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
