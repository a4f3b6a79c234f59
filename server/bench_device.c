/* Speed on a device. Three runs of each test, for what one of them shows another would disturb:
 * plain, for the speed; with a stamp at each step's begin and end, for what lies between steps; and
 * with a stamp behind each op, for the classes of kernels. In the last one steps are not replayed
 * as graphs and no kernel begins before the one in front has ended, so that its parts add up to
 * more than the step; where the host is slower than the device, as with small models, an op's time
 * is the host's. Bytes are those that must move at least: weights once, keys and values of every
 * sequence once for each chunk, logits once. */
#include "server/bench_device.h"

#include <stdio.h>
#include <stdlib.h>

#include "server/bench_driver.h"

enum part { PRODUCTS, ATTENTION, ROWS, HEAD, SAMPLING, STEP, N_PARTS };

static const char *const part_name[N_PARTS] = {
    "norms and products",     "attention", "embedding, RoPE, cache", "head", "sampling",
    "begin, end and between",
};

/* By enum op. */
static const enum part part_of[N_OPS] = {
    [OP_EMBED] = ROWS,          [OP_MATMUL] = PRODUCTS,     [OP_ROPE_WRITE] = ROWS,
    [OP_ATTENTION] = ATTENTION, [OP_MATMUL_ADD] = PRODUCTS, [OP_GATED_MLP] = PRODUCTS,
    [OP_GATHER] = ROWS,         [OP_LOGITS] = HEAD,         [OP_SAMPLE] = SAMPLING,
    [OP_DOWNLOAD] = STEP,       [OP_STEP_BEGIN] = STEP,     [OP_BETWEEN] = STEP,
    [OP_STEP] = STEP,
};

/* ---- what a test must move and compute ------------------------------------------------------ */

struct work {
    double bytes, flops;
};

/* A test: S sequences, `steps` of `rows` tokens each, from position `from` on. */
struct test {
    const char *kind;
    int number, S, steps, rows, from;
};

static double layer_weights(const struct model_info *m) {
    double heads = (double)m->H * m->D, kv = (double)m->G * m->D;
    return m->L * ((double)m->K * (2 * heads + 2 * kv) + 3.0 * m->K * m->F);
}

static void count_work(const struct engine *engine, const struct test *t,
                       struct work work[N_PARTS]) {
    const struct model_info *m = engine_model(engine);
    int64_t layers, head;
    engine_weights_read(engine, &layers, &head);
    double steps = t->steps, rows = (double)t->S * t->rows * t->steps, logits = t->S * steps;
    double end = t->from + steps * t->rows, cached = 0;
    for (int i = 1; i <= t->steps; i++) cached += t->from + (double)i * t->rows;
    double pairs = t->S * (end * (end + 1) - (double)t->from * (t->from + 1)) / 2;
    work[PRODUCTS] = (struct work){steps * (double)layers, 2 * rows * layer_weights(m)};
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

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, ascending);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* Seconds of a test, its contexts filled before. */
static double run_test(struct driver *d, const struct test *t, struct op_times *times) {
    for (int i = 0; i < t->from; i++) driver_step(d, t->S, 1, i);
    if (times) engine_time_ops(d->engine, times);
    double seconds = t->rows > 1 ? driver_prefill(d, t->rows * t->steps, t->rows)
                                 : driver_decode(d, t->S, t->steps, t->from);
    if (times) engine_time_ops(d->engine, NULL);
    return seconds;
}

static void print_speed(struct driver *d, const struct test *t, int repeats,
                        const struct device_limits *limits) {
    double *seconds = mem_calloc((size_t)repeats, sizeof *seconds);
    struct work work[N_PARTS] = {0};
    struct op_times gaps = {.only_steps = true};
    double bytes = 0, flops = 0;
    run_test(d, t, NULL); /* loads kernels, and captures graphs */
    for (int i = 0; i < repeats; i++) seconds[i] = run_test(d, t, NULL);
    double middle = bench_median(seconds, repeats);
    run_test(d, t, &gaps);
    count_work(d->engine, t, work);
    for (int i = 0; i < N_PARTS; i++) bytes += work[i].bytes, flops += work[i].flops;
    printf("| %s %d | %.1f | %.3f |", t->kind, t->number,
           (double)t->S * t->rows * t->steps / middle, middle * 1e3 / t->steps);
    print_share(bytes / middle, limits->bytes_per_s, 1e9);
    print_share(flops / middle, limits->flops_per_s, 1e12);
    int between = gaps.calls[OP_BETWEEN] > 1 ? (int)gaps.calls[OP_BETWEEN] - 1 : 1;
    printf(" %.1f |\n", (double)gaps.ns[OP_BETWEEN] * 1e-3 / between);
    free(seconds);
}

enum { MOST_TESTS = 64 };

static int list_tests(struct test *tests, const struct options *options, const int *prompts,
                      int n_prompts, const int *batches, int n_batches) {
    int n = 0, chunk = options->max_num_batched_tokens;
    for (int i = 0; i < n_prompts; i++) {
        int rows = prompts[i] < chunk ? prompts[i] : chunk;
        int steps = prompts[i] / rows; /* whole chunks */
        tests[n++] = (struct test){"pp", steps * rows, 1, steps, rows, 0};
    }
    for (int i = 0; i < n_batches; i++)
        tests[n++] =
            (struct test){"tg", batches[i], batches[i], options->bench_generate, 1, BENCH_CONTEXT};
    return n;
}

/* ---- the whole ------------------------------------------------------------------------------ */

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

void bench_device(struct engine *engine, const struct options *options, const int *prompts,
                  int n_prompts, const int *batches, int n_batches) {
    struct test tests[MOST_TESTS];
    struct device_limits limits;
    struct driver d;
    int n = list_tests(tests, options, prompts, n_prompts, batches, n_batches);
    engine_limits(engine, &limits);
    print_limits(engine, &limits);
    printf("| test | tok/s | ms/step | GB/s (of the limit) | TFLOP/s (of the limit) | us between "
           "steps |\n|---|---|---|---|---|---|\n");
    for (int i = 0; i < n; i++) {
        driver_init(&d, engine, options->max_num_batched_tokens, tests[i].S);
        print_speed(&d, &tests[i], options->bench_repeats, &limits);
        driver_free(&d);
    }
    printf("\n| test | kernels | us/step | share | GB/s (of the limit) | TFLOP/s (of the limit) "
           "|\n|---|---|---|---|---|---|\n");
    for (int i = 0; i < n; i++) {
        struct op_times times = {0};
        driver_init(&d, engine, options->max_num_batched_tokens, tests[i].S);
        run_test(&d, &tests[i], &times);
        print_classes(engine, &tests[i], &times, &limits);
        driver_free(&d);
    }
}
