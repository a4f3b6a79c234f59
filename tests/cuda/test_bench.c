/* `penstock bench` on a device: its output, and that timing does not change the results. ctest
 * label: slow */
#include <check.h>
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/commands/commands.h"
#include "support/suite_main.h"
#include "support/tiny_model.h"

/* Returns the output of `penstock bench` with these flags. */
static char *printed(char *model, int *code) {
    char path[] = "/tmp/penstock-bench-XXXXXX";
    char *flags[] = {
        "--model",         model,  "--device",      "cuda", "--max-num-seqs",           "4",
        "--bench-prompt",  "12",   "--bench-batch", "1,3",  "--bench-generate",         "6",
        "--bench-repeats", "2",    "--dtype",       "auto", "--max-num-batched-tokens", "5",
        "--load-format",   "dummy"};
    char *none[] = {NULL};
    struct options options;
    struct err err = {0};
    bool help = false;
    ck_assert_msg(options_parse(&options, "bench", sizeof flags / sizeof *flags, flags, none, &help,
                                &err) == STATUS_OK,
                  "%s", err.message);
    int fd = mkstemp(path), kept = dup(STDOUT_FILENO);
    fflush(stdout);
    dup2(fd, STDOUT_FILENO);
    *code = command_bench(&options);
    fflush(stdout);
    dup2(kept, STDOUT_FILENO);
    close(kept);
    char *text = mem_calloc(1 << 16, 1);
    ck_assert(pread(fd, text, (1 << 16) - 1, 0) > 0);
    close(fd);
    unlink(path);
    options_free(&options);
    return text;
}

START_TEST(every_class_has_its_line) {
    struct tiny_model tiny;
    int code;
    tiny_model_defaults(&tiny);
    char *file = tiny_model_temporary(&tiny), *text = printed(file, &code);
    ck_assert_int_eq(code, 0);
    const char *const lines[] = {"| pp 10 |",
                                 "| tg 1 |",
                                 "| tg 3 |",
                                 "| tg 3 | norms and products |",
                                 "| tg 3 | attention |",
                                 "| tg 3 | sampling |",
                                 "| pp 10 | head |",
                                 "over HTTP:",
                                 "\n| 1     |",
                                 "\n| 3     |",
                                 "limit: "};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        ck_assert_msg(strstr(text, lines[i]) != NULL, "%s is missing in:\n%s", lines[i], text);
    free(text);
    unlink(file), free(file);
}
END_TEST

/* ---- times ---------------------------------------------------------------------------------- */

static struct engine *open_small(const char *file) {
    struct engine_config config = {.model = file,
                                   .device = DEVICE_CUDA,
                                   .threads = 1,
                                   .max_num_seqs = 1,
                                   .max_num_batched_tokens = 8,
                                   .block_size = 16};
    struct engine *engine;
    struct err err = {0};
    ck_assert_msg(engine_open(&engine, &config, &err) == STATUS_OK, "%s", err.message);
    return engine;
}

enum { STEPS = 220, FEW = 12 }; /* the first: more time stamps than there is room for */

static int32_t run_steps(struct engine *engine, struct op_times *times, int n) {
    int32_t last = 7, start[] = {0, 1}, table[32], row = 0;
    const struct sampling greedy = SAMPLING_GREEDY;
    for (int i = 0; i < 32; i++) table[i] = i;
    engine_time_ops(engine, times);
    for (int32_t i = 0; i < n; i++) {
        int32_t at = i % 200;
        struct step step = {.M = 1,
                            .token = &last,
                            .position = &at,
                            .slot = &at,
                            .S = 1,
                            .row_start = start,
                            .table = table,
                            .table_stride = 32,
                            .R = 1,
                            .logit_row = &row};
        struct sample sample = {.sampling = &greedy, .position = at + 1, .history = &last};
        engine_submit(engine, &step);
        engine_sample(engine, &sample, 1);
        last = engine_wait(engine)->id;
    }
    engine_time_ops(engine, NULL);
    return last;
}

START_TEST(times_are_of_every_op) {
    static struct op_times all, steps = {.only_steps = true};
    struct tiny_model tiny;
    tiny_model_defaults(&tiny);
    char *file = tiny_model_temporary(&tiny);
    struct engine *engine = open_small(file);
    run_steps(engine, &all, STEPS);
    ck_assert_int_eq(run_steps(engine, &steps, FEW), run_steps(engine, NULL, FEW));
    for (int op = 0; op < N_OPS; op++) {
        bool once = op != OP_STEP && op != OP_GATHER && op != OP_NORM_ADD && op != OP_EXPERTS &&
                    op != OP_SHORT_CONV && op != OP_DELTA_RULE && op != OP_STATE_SPACE &&
                    op != OP_MATMUL_HEADS && op != OP_LATENT_WRITE && op != OP_JOIN &&
                    op != OP_NORM && op != OP_RECALL && op != OP_SPREAD &&
                    op != OP_HIDDEN &&   /* only in other models, or for embeddings */
                    op != OP_ALL_REDUCE; /* only with several ranks */
        ck_assert_msg(!once || all.calls[op] >= STEPS, "%s", op_name((enum op)op));
        ck_assert(op == OP_STEP || op == OP_BETWEEN || steps.calls[op] == 0);
    }
    ck_assert(steps.calls[OP_STEP] == FEW && steps.calls[OP_BETWEEN] == FEW);
    ck_assert(all.first == all.next && all.next > N_STAMPS);
    ck_assert(steps.first == steps.next && steps.next == 2 * FEW);
    engine_close(engine);
    unlink(file), free(file);
}
END_TEST

/* ---- ranges --------------------------------------------------------------------------------- */

START_TEST(a_profiler_sees_steps_and_ops) {
    struct tiny_model tiny;
    tiny_model_defaults(&tiny);
    char *file = tiny_model_temporary(&tiny);
    free(emu_ranges_taken());
    for (int looks = 0; looks < 2; looks++) {
        if (looks) setenv("NVTX_INJECTION64_PATH", "made-up.so", 1);
        struct engine *engine = open_small(file);
        run_steps(engine, NULL, FEW);
        char *ranges = emu_ranges_taken();
        int depth = 0, n = 0;
        for (const char *at = ranges; *at; at++) {
            depth += *at == '(' ? 1 : *at == ')' ? -1 : 0;
            n += *at == '(' && depth == 1;
            ck_assert_int_ge(depth, 0);
        }
        ck_assert_int_eq(depth, 0);
        ck_assert_int_eq(n, looks ? FEW : 0);
        if (looks) {
            ck_assert_ptr_eq(strstr(ranges, "step(step's arrays()embed()"), ranges);
            ck_assert_ptr_nonnull(strstr(ranges, "head()sampling()download())step("));
        }
        free(ranges);
        engine_close(engine);
    }
    unsetenv("NVTX_INJECTION64_PATH");
    unlink(file), free(file);
}
END_TEST

/* Layers with windows have separate blocks there. Sequences use them in turn. */
START_TEST(models_with_windows_are_measured) {
    struct tiny_model tiny;
    int code;
    tiny_model_defaults(&tiny);
    tiny.L = 3, tiny.E = 3, tiny.window = 23;
    char *file = tiny_model_temporary(&tiny), *text = printed(file, &code);
    ck_assert_int_eq(code, 0);
    ck_assert_ptr_nonnull(strstr(text, "| tg 3 |"));
    free(text);
    unlink(file), free(file);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cuda_bench");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 300);
    tcase_add_test(core, every_class_has_its_line);
    tcase_add_test(core, models_with_windows_are_measured);
    tcase_add_test(core, times_are_of_every_op);
    tcase_add_test(core, a_profiler_sees_steps_and_ops);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
