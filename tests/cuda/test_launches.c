/* The number of kernels of a decode step per layer is at most six. It is the difference between two
 * models with different numbers of layers. Between the graphs of two steps there are one copy (the
 * next step's arrays and the settings of its samples) and one kernel (sampling). */
#include <check.h>
#include <emu_count.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/engine.h"
#include "support/adapter_file.h"
#include "support/suite_main.h"
#include "support/tiny_model.h"

enum { MAX_IN_DECODE = 6, MAX_ROWS = 40, BLOCK_SIZE = 4 };

struct variety {
    enum dtype dtype;
    int K, F;
    enum compute_dtype compute;
    enum kv_dtype kv;
    enum quantization quantization;
    bool wgmma, adapts;
};
static const struct variety varieties[] = {
    {DTYPE_BF16, 64, 96, COMPUTE_BFLOAT16, KV_DTYPE_BFLOAT16, QUANTIZATION_NONE},
    {DTYPE_F16, 64, 96, COMPUTE_FLOAT16, KV_DTYPE_FP8, QUANTIZATION_NONE},
    {DTYPE_Q8_0, 64, 96, COMPUTE_BFLOAT16, KV_DTYPE_FLOAT16, QUANTIZATION_NONE},
    {DTYPE_Q4_1, 64, 96, COMPUTE_FLOAT16, KV_DTYPE_FP8, QUANTIZATION_NONE},
    {DTYPE_BF16, 64, 96, COMPUTE_BFLOAT16, KV_DTYPE_FP8, QUANTIZATION_FP8},
};
enum { N_VARIETIES = sizeof varieties / sizeof *varieties };

static struct engine *open_layers(const struct variety *v, int L) {
    struct tiny_model tiny = {.V = 300,
                              .K = v->K,
                              .F = v->F,
                              .L = L,
                              .H = 4,
                              .G = 2,
                              .D = 16,
                              .context_length = 64,
                              .dtype = v->dtype,
                              .seed = 1};
    char *file = tiny_model_temporary(&tiny);
    const struct engine_config config = {.model = file,
                                         .threads = 1,
                                         .dtype = v->compute,
                                         .quantization = v->quantization,
                                         .wgmma = v->wgmma,
                                         .kv_dtype = v->kv,
                                         .max_num_seqs = MAX_ROWS,
                                         .max_num_batched_tokens = MAX_ROWS,
                                         .block_size = BLOCK_SIZE,
                                         .kv_memory = 1 << 20,
                                         .max_adapters = v->adapts,
                                         .max_adapter_rank = 4,
                                         .device = DEVICE_CUDA};
    struct engine *engine;
    struct err err;
    ck_assert_msg(engine_open(&engine, &config, &err) == STATUS_OK, "%s", err.message);
    unlink(file);
    free(file);
    return engine;
}

/* Loads an adapter of all projections as number 1. */
static void load_adapter(struct engine *engine) {
    const struct made_adapter made = {.rank = 4, .seed = 3};
    char *file = adapter_file_temporary(&made, engine_model(engine));
    struct adapter_facts facts;
    struct err err;
    int number;
    ck_assert_msg(!engine_adapter_load(engine, file, &number, &facts, &err), "%s", err.message);
    ck_assert_int_eq(number, 1);
    unlink(file);
    free(file);
}

/* Submits one row of each of M sequences, each at the start of a separate block. `samples`: the
 * settings of the samples, if known already. With `adapts` the first row has adapter 1. */
static void submit_rows(struct engine *engine, int M, const struct sample *samples, bool adapts) {
    const int32_t adapter[MAX_ROWS] = {1};
    int32_t token[MAX_ROWS], position[MAX_ROWS], slot[MAX_ROWS], number[MAX_ROWS + 1];
    for (int m = 0; m < M; m++) {
        token[m] = TINY_BYTE + m;
        position[m] = 0;
        slot[m] = m * BLOCK_SIZE;
    }
    for (int m = 0; m <= M; m++) number[m] = m;
    const struct step step = {.M = M,
                              .token = token,
                              .position = position,
                              .slot = slot,
                              .adapter = adapts ? adapter : NULL,
                              .S = M,
                              .row_start = number,
                              .table = number,
                              .table_stride = 1,
                              .R = M,
                              .logit_row = number,
                              .samples = samples,
                              .n_samples = samples ? M : 0};
    engine_submit(engine, &step);
}

static void submit_decode(struct engine *engine, int M, const struct sample *samples) {
    submit_rows(engine, M, samples, false);
}

/* Returns the number of kernels of a decode step of M rows. */
static unsigned long kernels(const struct variety *v, int L, int M) {
    struct engine *engine = open_layers(v, L);
    if (v->adapts) load_adapter(engine);
    const unsigned long before = emu_grids_run();
    submit_rows(engine, M, NULL, v->adapts);
    ck_assert_ptr_nonnull(engine_read_logits(engine));
    const unsigned long ran = emu_grids_run() - before;
    engine_close(engine);
    return ran;
}

START_TEST(a_layer_is_six_kernels) {
    const struct variety *v = &varieties[_i];
    for (int M = 1; M <= 16; M += 5)
        ck_assert_uint_eq(kernels(v, 3, M) - kernels(v, 1, M), 2 * MAX_IN_DECODE);
}
END_TEST

/* With e4m3 activations one more kernel per product converts the rows, with the norm if there is
 * one. */
START_TEST(of_e4m3_it_is_ten) {
    const struct variety v = {DTYPE_BF16,       64,  96, COMPUTE_BFLOAT16, KV_DTYPE_BFLOAT16,
                              QUANTIZATION_FP8, true};
    for (int M = 1; M <= MAX_ROWS; M += 13)
        ck_assert_uint_eq(kernels(&v, 3, M) - kernels(&v, 1, M), 2 * (MAX_IN_DECODE + 4));
}
END_TEST

/* A row with an adapter costs ten kernels; an engine that could have adapters costs none. */
START_TEST(with_adapters_it_is_sixteen) {
    struct variety v = varieties[_i];
    v.adapts = true;
    ck_assert_uint_eq(kernels(&v, 3, 6) - kernels(&v, 1, 6), 2 * (MAX_IN_DECODE + 10));
    struct engine *engine = open_layers(&v, 1);
    const unsigned long before = emu_grids_run();
    submit_decode(engine, 6, NULL);
    ck_assert_ptr_nonnull(engine_read_logits(engine));
    const unsigned long of_base = emu_grids_run() - before;
    engine_close(engine);
    ck_assert_uint_eq(of_base, kernels(&varieties[_i], 1, 6));
}
END_TEST

/* With many rows the norms are separate kernels. */
START_TEST(of_many_rows_it_is_eight) {
    ck_assert_uint_eq(kernels(&varieties[0], 3, 33) - kernels(&varieties[0], 1, 33),
                      2 * (MAX_IN_DECODE + 2));
}
END_TEST

/* By wgmma one more kernel per product arranges the rows, with the norm if there is one. */
START_TEST(of_many_rows_by_wgmma_it_is_ten) {
    struct variety v = varieties[_i];
    v.wgmma = true;
    for (int M = 17; M <= MAX_ROWS; M += 20)
        ck_assert_uint_eq(kernels(&v, 3, M) - kernels(&v, 1, M), 2 * (MAX_IN_DECODE + 4));
}
END_TEST

/* Steps of the same rows by mma.sync and by wgmma, with an adapter and without. From the third step
 * on they are replayed graphs. */
START_TEST(logits_by_wgmma_are_those_of_mma) {
    enum { STEPS = 4 };
    for (int M = 17; M <= MAX_ROWS; M += 15) {
        struct variety v = varieties[_i / 2];
        v.adapts = _i % 2;
        struct engine *by_mma = open_layers(&v, 2);
        v.wgmma = true;
        struct engine *by_wgmma = open_layers(&v, 2);
        if (v.adapts) load_adapter(by_mma), load_adapter(by_wgmma);
        for (int i = 0; i < STEPS; i++) {
            submit_rows(by_mma, M, NULL, v.adapts);
            submit_rows(by_wgmma, M, NULL, v.adapts);
            const float *want = engine_read_logits(by_mma), *got = engine_read_logits(by_wgmma);
            ck_assert(want && got);
            ck_assert_mem_eq(got, want, (size_t)M * 300 * sizeof *want);
        }
        engine_close(by_mma);
        engine_close(by_wgmma);
    }
}
END_TEST

static uint32_t mask[(300 + 31) / 32] = {[5] = ~0u};
static const struct logit_bias bias = {7, 3.0f};
static const struct {
    struct sampling sampling;
    bool masked;
} settings[] = {
    {{.top_p = 1, .repetition_penalty = 1, .n_logprobs = -1}, false},
    {{.top_p = 0.9f, .temperature = 1, .repetition_penalty = 1, .n_logprobs = 5}, true},
    {{.top_p = 1, .repetition_penalty = 1, .n_logprobs = -1, .n_bias = 1, .bias = &bias}, false},
};
enum { N_SETTINGS = sizeof settings / sizeof *settings };

/* Makes one sample per row. */
static void fill_samples(struct sample *samples, int M) {
    static const int32_t history[] = {TINY_BYTE};
    for (int m = 0; m < M; m++)
        samples[m] = (struct sample){.row = m,
                                     .sampling = &settings[m % N_SETTINGS].sampling,
                                     .mask = settings[m % N_SETTINGS].masked ? mask : NULL,
                                     .history = history,
                                     .n_prompt = 1,
                                     .sequence = (uint64_t)m + 1};
}

/* Keeps two steps in flight, as a server does in decode. Returns the work between their graphs. */
static struct emu_between run_steps(struct engine *engine, int M, const struct sample *samples,
                                    bool known) {
    enum { STEPS = 6 };
    struct emu_between between;
    for (int step = 0; step < STEPS; step++) {
        submit_decode(engine, M, known ? samples : NULL);
        engine_sample(engine, samples, M);
        if (step > 0) ck_assert_ptr_nonnull(engine_wait(engine));
    }
    ck_assert_ptr_nonnull(engine_wait(engine));
    emu_between_graphs(&between);
    return between;
}

START_TEST(between_two_graphs_are_a_copy_and_a_kernel) {
    struct sample samples[MAX_ROWS];
    const int M = _i == 0 ? MAX_ROWS : 6;
    struct engine *engine = open_layers(&varieties[_i], 2);
    fill_samples(samples, M);
    struct emu_between between = run_steps(engine, M, samples, true);
    ck_assert_uint_eq(between.copies, 1);
    ck_assert_uint_eq(between.launches, 1);
    ck_assert_uint_eq(between.copies_elsewhere, 0);
    between = run_steps(engine, M, samples, false);
    ck_assert_uint_eq(between.copies, 1);
    ck_assert_uint_eq(between.launches, 1);
    ck_assert_uint_eq(between.copies_elsewhere, 1); /* the settings, parallel to the step */
    engine_close(engine);
}
END_TEST

/* Settings that do not fit next to a step's arrays are copied separately, and so are settings whose
 * histories the host reads while the step runs. */
START_TEST(settings_may_be_too_many_or_late) {
    enum { M = 40, MANY = 1000 };
    static struct logit_bias many[MANY];
    const struct sampling ways[] = {
        {.top_p = 1, .repetition_penalty = 1, .n_logprobs = -1, .n_bias = MANY, .bias = many},
        {.top_p = 1, .repetition_penalty = 1, .n_logprobs = -1, .no_repeat_ngram = 2}};
    struct sample samples[M];
    struct engine *engine = open_layers(&varieties[0], 2);
    for (int i = 0; i < MANY; i++) many[i] = (struct logit_bias){i % 300, 0.5f};
    for (int which = 0; which < 2; which++) {
        fill_samples(samples, M);
        for (int m = 0; m < M; m++) samples[m].sampling = &ways[which];
        const struct emu_between between = run_steps(engine, M, samples, true);
        ck_assert_uint_eq(between.copies, 1);
        ck_assert_uint_eq(between.copies_elsewhere, 1);
    }
    engine_close(engine);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cuda_launches");
    TCase *cases = tcase_create("launches");
    tcase_set_timeout(cases, 120);
    tcase_add_loop_test(cases, a_layer_is_six_kernels, 0, N_VARIETIES);
    tcase_add_test(cases, of_many_rows_it_is_eight);
    tcase_add_loop_test(cases, of_many_rows_by_wgmma_it_is_ten, 0, 2);
    tcase_add_loop_test(cases, logits_by_wgmma_are_those_of_mma, 0, 4);
    tcase_add_loop_test(cases, with_adapters_it_is_sixteen, 0, N_VARIETIES);
    tcase_add_test(cases, of_e4m3_it_is_ten);
    tcase_add_loop_test(cases, between_two_graphs_are_a_copy_and_a_kernel, 0, N_VARIETIES);
    tcase_add_test(cases, settings_may_be_too_many_or_late);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
