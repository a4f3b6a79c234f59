/* Speed on a GPU. Each test runs three times, because the measurements would disturb each other:
 * without time stamps, for the speed; with a time stamp at the begin and end of each step, for the
 * gaps between steps; and with a time stamp after each op, for the time per class of kernels. In
 * the last run, steps are not replayed as graphs and kernels do not overlap, so the sum of the
 * parts exceeds the time of a step. If the host is slower than the GPU, as with small models, an
 * op's time is the host's. Bytes are the minimum that must move: weights once per step, keys and
 * values of each sequence once per chunk, logits once. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/command/bench.h"

enum part { PRODUCTS, ATTENTION, ROWS, HEAD, SAMPLING, STEP, N_PARTS };

static const char *const part_name[N_PARTS] = {
    "norms and products",     "attention", "embedding, RoPE, cache", "head", "sampling",
    "begin, end and between",
};

/* Indexed by enum op. */
static const enum part part_of[N_OPS] = {
    [OP_EMBED] = ROWS,          [OP_MATMUL] = PRODUCTS,     [OP_ROPE_WRITE] = ROWS,
    [OP_ATTENTION] = ATTENTION, [OP_MATMUL_ADD] = PRODUCTS, [OP_MLP] = PRODUCTS,
    [OP_EXPERTS] = PRODUCTS,    [OP_GATHER] = ROWS,         [OP_LOGITS] = HEAD,
    [OP_SAMPLE] = SAMPLING,     [OP_DOWNLOAD] = STEP,       [OP_STEP_BEGIN] = STEP,
    [OP_BETWEEN] = STEP,        [OP_STEP] = STEP,           [OP_SHORT_CONV] = ROWS,
    [OP_DELTA_RULE] = ROWS,     [OP_STATE_SPACE] = ROWS,    [OP_MATMUL_HEADS] = PRODUCTS,
    [OP_LATENT_WRITE] = ROWS,   [OP_HIDDEN] = HEAD,         [OP_JOIN] = ROWS,
    [OP_NORM] = ROWS,
};

/* ---- minimum work of a test ----------------------------------------------------------------- */

struct work {
    double bytes, flops;
};

/* A test: S sequences, `steps` steps of `rows` tokens each, from position `from`. */
struct test {
    const char *kind;
    int number, S, steps, rows, from;
};

static void count_work(const struct engine *engine, const struct test *t,
                       struct work work[N_PARTS]) {
    const struct model_config *m = engine_model(engine);
    int64_t layers, head;
    engine_weights_read(engine, t->S * t->rows, &layers, &head);
    double steps = t->steps, rows = (double)t->S * t->rows * t->steps, logits = t->S * steps;
    double end = t->from + steps * t->rows, cached = 0;
    for (int i = 1; i <= t->steps; i++) cached += t->from + (double)i * t->rows;
    double pairs = t->S * (end * (end + 1) - (double)t->from * (t->from + 1)) / 2;
    work[PRODUCTS] =
        (struct work){steps * (double)layers, 2 * rows * (double)m->n_layer_parameters};
    work[HEAD] = (struct work){steps * (double)head, 2 * logits * m->V * (double)m->K};
    work[ATTENTION] =
        (struct work){t->S * cached * (double)engine_memory(engine)->kv_bytes_per_token,
                      4 * pairs * m->H * m->D * (double)m->L};
    work[SAMPLING] = (struct work){logits * m->V * 4.0, 0};
}

/* ---- tables --------------------------------------------------------------------------------- */

static void print_share(double rate, double limit, double unit) {
    if (rate <= 0)
        printf(" |");
    else if (limit > 0)
        printf(" %.1f (%.0f %%) |", rate / unit, 100 * rate / limit);
    else
        printf(" %.1f |", rate / unit);
}

static void print_classes(const struct engine *engine, const struct test *t,
                          const struct op_times *times, const struct device_limits *limits) {
    struct work work[N_PARTS] = {0};
    uint64_t ns[N_PARTS] = {0}, all = 0;
    count_work(engine, t, work);
    for (int op = 0; op < N_OPS; op++) ns[part_of[op]] += times->ns[op], all += times->ns[op];
    for (int i = 0; i < N_PARTS; i++) {
        double seconds = (double)ns[i] * 1e-9;
        printf("| %s %d | %s | %.1f | %.1f %% |", t->kind, t->number, part_name[i],
               seconds * 1e6 / t->steps, all ? 100.0 * (double)ns[i] / (double)all : 0.0);
        print_share(seconds > 0 ? work[i].bytes / seconds : 0, limits->bytes_per_s, 1e9);
        print_share(seconds > 0 ? work[i].flops / seconds : 0, limits->flops_per_s, 1e12);
        printf("\n");
    }
}

/* ---- runs ----------------------------------------------------------------------------------- */

/* Fills the contexts, then runs a test. Returns the seconds of the test only. */
static double run_test(struct driver *d, const struct test *t, struct op_times *times) {
    assert(t->S > 0 && t->rows > 0 && t->steps > 0);
    for (int i = 0; i < t->from; i++) driver_step(d, t->S, 1, i);
    if (times) engine_time_ops(d->engine, times);
    double seconds = t->rows > 1 ? driver_prefill(d, t->rows * t->steps, t->rows)
                                 : driver_decode(d, t->S, t->steps, t->from);
    if (times) engine_time_ops(d->engine, NULL);
    return seconds;
}

static void print_speed(struct driver *d, const struct test *t, int repeats,
                        const struct device_limits *limits) {
    assert(repeats > 0);
    double *seconds = mem_calloc((size_t)repeats, sizeof *seconds);
    struct work work[N_PARTS] = {0};
    struct op_times gaps = {.only_steps = true};
    double bytes = 0, flops = 0;
    run_test(d, t, NULL); /* loads kernels and captures graphs */
    for (int i = 0; i < repeats; i++) seconds[i] = run_test(d, t, NULL);
    double median = bench_median(seconds, repeats);
    run_test(d, t, &gaps);
    count_work(d->engine, t, work);
    for (int i = 0; i < N_PARTS; i++) bytes += work[i].bytes, flops += work[i].flops;
    printf("| %s %d | %.1f | %.3f |", t->kind, t->number,
           (double)t->S * t->rows * t->steps / median, median * 1e3 / t->steps);
    print_share(bytes / median, limits->bytes_per_s, 1e9);
    print_share(flops / median, limits->flops_per_s, 1e12);
    int between = gaps.calls[OP_BETWEEN] > 1 ? (int)gaps.calls[OP_BETWEEN] - 1 : 1;
    printf(" %.1f |\n", (double)gaps.ns[OP_BETWEEN] * 1e-3 / between);
    mem_free(seconds);
}

/* Lists the tests: prompts in whole chunks, then batches. Returns their number. */

static int list_tests(const struct bench *bench, struct test *tests) {
    int n = 0, chunk = bench->options->engine.max_num_batched_tokens;
    assert(chunk > 0);
    for (int i = 0; i < bench->prompts.n; i++) {
        int length = bench->prompts.value[i];
        int rows = length < chunk ? length : chunk, steps = length / rows;
        tests[n++] = (struct test){"pp", steps * rows, 1, steps, rows, 0};
    }
    for (int i = 0; i < bench->batches.n; i++) {
        int S = bench->batches.value[i];
        tests[n++] = (struct test){"tg", S, S, bench->options->bench.generate, 1, BENCH_CONTEXT};
    }
    return n;
}

/* ---- entry point ---------------------------------------------------------------------------- */

static void print_limits(const struct engine *engine, const struct device_limits *limits) {
    printf("%s, %s, %s\n", engine_model(engine)->name, engine_model(engine)->quantisation,
           engine_backend_name(engine));
    if (limits->bytes_per_s > 0)
        printf("limit: a copy on the device moves %.0f GB/s, read and written\n",
               limits->bytes_per_s * 1e-9);
    else
        printf("limit: the bandwidth was not measured\n");
    if (limits->flops_per_s > 0)
        printf("limit: cuBLAS's product of 8192 x 8192 x 8192 in bfloat16 reaches %.0f TFLOP/s\n\n",
               limits->flops_per_s * 1e-12);
    else
        printf("limit: no large product was measured, because cuBLAS was not found\n\n");
}

void bench_device(const struct bench *bench) {
    struct engine *engine = bench->engine;
    const struct options *options = bench->options;
    struct test tests[2 * BENCH_MAX_LIST];
    struct device_limits limits;
    struct driver d;
    int n = list_tests(bench, tests);
    engine_limits(engine, &limits);
    print_limits(engine, &limits);
    printf("| test | tok/s | ms/step | GB/s (of the limit) | TFLOP/s (of the limit) | us between "
           "steps |\n|---|---|---|---|---|---|\n");
    for (int i = 0; i < n; i++) {
        driver_init(&d, engine, options->engine.max_num_batched_tokens, tests[i].S);
        print_speed(&d, &tests[i], options->bench.repeats, &limits);
        driver_free(&d);
    }
    printf("\n| test | kernels | us/step | share | GB/s (of the limit) | TFLOP/s (of the limit) "
           "|\n|---|---|---|---|---|---|\n");
    for (int i = 0; i < n; i++) {
        struct op_times times = {0};
        driver_init(&d, engine, options->engine.max_num_batched_tokens, tests[i].S);
        run_test(&d, &tests[i], &times);
        print_classes(engine, &tests[i], &times, &limits);
        driver_free(&d);
    }
}
