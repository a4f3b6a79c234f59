/* Speed on a CPU, and the share of the machine's memory bandwidth that decoding uses.
 *
 * pp N: a prompt of N tokens, in chunks of --max-num-batched-tokens. tg B: B sequences decode
 * together, each from a context of BENCH_CONTEXT tokens. Each figure is the median of
 * --bench-repeats runs. The machine's limits are measured in the same run with the model's number
 * of threads. The bytes of a decode step are the weights once, and the keys and values of each
 * sequence. At the end, each test runs once more with a time per op, to show which ops dominate.
 */
#include <stdio.h>
#include <stdlib.h>

#include "bench/command/bench.h"

/* Fills the contexts one position at a time, so that a step fits any --max-num-batched-tokens. */
static double decode_once(struct driver *d, int batch, int n) {
    for (int i = 0; i < BENCH_CONTEXT; i++) driver_step(d, batch, 1, i);
    return driver_decode(d, batch, n, BENCH_CONTEXT);
}

/* ---- speed ---------------------------------------------------------------------------------- */

double bench_prefill_seconds(struct driver *d, const struct options *options, int n) {
    double *seconds = mem_calloc((size_t)options->bench.repeats, sizeof *seconds);
    for (int i = 0; i < options->bench.repeats; i++)
        seconds[i] = driver_prefill(d, n, options->engine.max_num_batched_tokens);
    double median = bench_median(seconds, options->bench.repeats);
    mem_free(seconds);
    return median;
}

double bench_decode_seconds(struct driver *d, const struct options *options, int batch) {
    const int n = options->bench.generate;
    double *seconds = mem_calloc((size_t)options->bench.repeats, sizeof *seconds);
    for (int i = 0; i < options->bench.repeats; i++) seconds[i] = decode_once(d, batch, n);
    double median = bench_median(seconds, options->bench.repeats);
    mem_free(seconds);
    return median / n;
}

static void print_prefill(struct driver *d, const struct options *options, int n) {
    const double seconds = bench_prefill_seconds(d, options, n);
    printf("| pp %-5d | %10.1f | %9.2f |          |\n", n, n / seconds, seconds * 1e3);
}

static void print_decode(struct driver *d, const struct options *options, int batch,
                         double bandwidth) {
    const int n = options->bench.generate;
    const double step = bench_decode_seconds(d, options, batch);
    const struct engine_memory *memory = engine_memory(d->engine);
    int64_t layers, head;
    engine_weights_read(d->engine, batch, &layers, &head);
    double bytes = (double)(layers + head) +
                   (double)batch * (BENCH_CONTEXT + n / 2) * (double)memory->kv_bytes_per_token;
    printf("| tg %-5d | %10.1f | %9.2f | %6.1f %% |\n", batch, batch / step, step * 1e3,
           100 * bytes / step / bandwidth);
}

/* ---- parts of a step ------------------------------------------------------------------------ */

/* Prints the ops that take more than 0.1 % of the time, per step. */
static void print_parts(const char *test, int n, const struct op_times *times, int steps) {
    uint64_t all = 0;
    for (int op = 0; op < N_OPS; op++) all += times->ns[op];
    printf("| %s %-5d |", test, n);
    for (int op = 0; op < N_OPS; op++)
        if (times->ns[op] * 1000 > all)
            printf(" %s %.2f ms (%.1f %%)", op_name(op), (double)times->ns[op] * 1e-6 / steps,
                   100.0 * (double)times->ns[op] / (double)all);
    printf(" |\n");
}

/* ---- tables --------------------------------------------------------------------------------- */

/* Prints the model and the machine's limits. Returns the bandwidth in bytes per second. */
static double print_machine(struct engine *engine) {
    double bandwidth = machine_read_rate(engine);
    struct machine_rate int8 = machine_int8_rate(engine), float32 = machine_float_rate(engine);
    printf("%s, %s, %s\n", engine_model(engine)->name, engine_model(engine)->quantisation,
           engine_backend_name(engine));
    printf("memory read: %.1f GB/s\n", bandwidth * 1e-9);
    printf("int8: %.1f G multiply-adds/s (%s)\n", int8.per_second * 1e-9, int8.instruction);
    printf("float32: %.1f G multiply-adds/s (%s)\n\n", float32.per_second * 1e-9,
           float32.instruction);
    return bandwidth;
}

void bench_host(const struct bench *bench) {
    const struct options *options = bench->options;
    const struct bench_list *prompts = &bench->prompts, *batches = &bench->batches;
    const int max_rows = options->engine.max_num_batched_tokens,
              n_decoded = options->bench.generate;
    struct driver d;
    double bandwidth = print_machine(bench->engine);
    printf("| test     |      tok/s |   ms/step | bandwidth |\n|---|---|---|---|\n");
    driver_init(&d, bench->engine, max_rows, 1);
    for (int i = 0; i < prompts->n; i++) print_prefill(&d, options, prompts->value[i]);
    driver_free(&d);
    driver_init(&d, bench->engine, max_rows, batches->max);
    for (int i = 0; i < batches->n; i++) print_decode(&d, options, batches->value[i], bandwidth);
    printf("\n| test     | parts of a step |\n|---|---|\n");
    for (int i = 0; i < batches->n; i++) {
        struct op_times times = {0};
        engine_time_ops(d.engine, &times);
        decode_once(&d, batches->value[i], n_decoded);
        engine_time_ops(d.engine, NULL);
        print_parts("tg", batches->value[i], &times, BENCH_CONTEXT + n_decoded);
    }
    driver_free(&d);
    driver_init(&d, bench->engine, max_rows, 1);
    for (int i = 0; i < prompts->n; i++) {
        struct op_times times = {0};
        engine_time_ops(d.engine, &times);
        driver_prefill(&d, prompts->value[i], max_rows);
        engine_time_ops(d.engine, NULL);
        print_parts("pp", prompts->value[i], &times, 1);
    }
    driver_free(&d);
}
