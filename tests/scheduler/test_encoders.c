/* Encoders: the bits of an input's vectors are the same alone and beside other inputs, of one text
 * or two, for any number of rows and sequences of a step, on every path and any number of threads;
 * and text is refused. */
#include <check.h>
#include <string.h>

#include "support/encoder_run.h"
#include "support/instructions.h"
#include "support/suite_main.h"

static const char *const models[] = {"tests/vectors/encoders/bert",
                                     "tests/vectors/encoders/modernbert",
                                     "tests/vectors/encoders/gemma3", "tests/vectors/encoders/jina",
                                     "tests/vectors/encoders/jina_code"};
enum { N_MODELS = sizeof models / sizeof *models };

static struct encoder_run run;
static double alone[ENCODER_INPUTS][ENCODER_MAX_K];

struct setting {
    const char *path;
    int threads, rows, seqs;
};

static void open_run(const char *model, const struct setting *setting) {
    encoder_run_open(&run, &(struct engine_config){.model = model,
                                                   .threads = setting->threads,
                                                   .cpu_path = setting->path,
                                                   .max_num_seqs = setting->seqs,
                                                   .max_num_batched_tokens = setting->rows});
}

START_TEST(vectors_do_not_depend_on_other_inputs) {
    static const int limits[][2] = {{ENCODER_CONTEXT, 64}, {700, 3}, {2000, 64}}; /* rows, seqs */
    const struct setting first = {"plain", 1, ENCODER_CONTEXT, 1};
    int order[ENCODER_INPUTS];
    encoder_run_draw(&run, ENCODER_CONTEXT);
    open_run(models[_i], &first);
    for (int i = 0; i < ENCODER_INPUTS; i++) {
        order[i] = i;
        encoder_run_together(&run, &i, 1);
    }
    memcpy(alone, run.sums, sizeof alone);
    encoder_run_close(&run);
    for (const char *const *path = backend_cpu_paths(); *path; path++) {
        for (int i = 0; i < 3; i++) {
            const struct setting setting = {*path, 1 + i % 2, limits[i][0], limits[i][1]};
            open_run(models[_i], &setting);
            encoder_run_together(&run, order, ENCODER_INPUTS);
            for (int k = 0; k < ENCODER_INPUTS; k++)
                ck_assert_msg(memcmp(run.sums[k], alone[k], sizeof alone[k]) == 0,
                              "%s on %s, %d rows: input %d of %d tokens differs", models[_i], *path,
                              setting.rows, k, run.inputs[k].n_prompt);
            encoder_run_close(&run);
        }
    }
}
END_TEST

/* The last tokens of a prompt have type 1: none, the last, all but the first, all. */
START_TEST(each_token_has_its_own_type) {
    enum { N = 9, N_KINDS = 4 };
    static const int n_second[N_KINDS] = {0, 1, N - 1, N}, order[N_KINDS] = {0, 1, 2, 3};
    const struct setting setting = {NULL, 1, ENCODER_CONTEXT, N_KINDS};
    encoder_run_draw(&run, ENCODER_CONTEXT);
    open_run(models[0], &setting);
    for (int i = 0; i < N_KINDS; i++) {
        run.inputs[i].prompt = run.ids[0];
        run.inputs[i].n_prompt = N;
        run.inputs[i].hidden = HIDDEN_ALL;
        run.inputs[i].n_second = n_second[i];
    }
    for (int t = 0; t < N; t++) run.ids[0][t] = 3 + t;
    encoder_run_together(&run, order, N_KINDS);
    for (int i = 1; i < N_KINDS; i++)
        for (int k = 0; k < i; k++)
            ck_assert_msg(memcmp(run.sums[i], run.sums[k], sizeof run.sums[i]) != 0,
                          "the types of %d and of %d tokens give the same vectors", n_second[k],
                          n_second[i]);
    encoder_run_close(&run);
}
END_TEST

START_TEST(text_and_long_inputs_are_refused) {
    const struct setting setting = {NULL, 1, ENCODER_CONTEXT, 4};
    struct err err = {0};
    encoder_run_draw(&run, ENCODER_CONTEXT);
    open_run(models[0], &setting);
    struct generation text = run.inputs[0];
    text.max_tokens = 3;
    ck_assert_int_eq(scheduler_submit(run.scheduler, &text, &err), STATUS_INVALID_REQUEST);
    ck_assert_ptr_nonnull(strstr(err.message, "encoder"));
    text = run.inputs[0];
    text.n_prompt = ENCODER_CONTEXT + 1;
    ck_assert_int_eq(scheduler_submit(run.scheduler, &text, &err), STATUS_INVALID_REQUEST);
    ck_assert_ptr_nonnull(strstr(err.message, "320"));
    encoder_run_close(&run);
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
