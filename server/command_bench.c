/* `penstock bench`: speed of prefill and decode over batch sizes, and what share of the machine's
 * memory bandwidth decoding makes use of. The engine is driven directly, without scheduler and
 * HTTP: this is what the model can do. Where a device samples, bench_device.c has its own tables.
 * At last the same batches are served over HTTP, and what that adds to a step is shown.
 *
 * pp N: a prompt of N tokens, in chunks of --max-num-batched-tokens. tg B: B sequences decode side
 * by side, each from its own context of 16 tokens. Each figure is the median of --bench-repeats
 * runs. The machine's limits are measured in the same run with as many threads as the model uses;
 * the bytes of a decode step are the weights once and the keys and values of every sequence. At the
 * end each test runs once more with every op timed, so that the next bottleneck is seen.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/bench_device.h"
#include "server/bench_driver.h"
#include "server/bench_machine.h"
#include "server/bench_served.h"
#include "server/commands.h"

#define MAX_LIST 32
#define CONTEXT BENCH_CONTEXT

/* Contexts are filled one sequence at a time, so that they fit any row budget. */
static double decode_once(struct driver *d, int batch, int n) {
    for (int i = 0; i < CONTEXT; i++) driver_step(d, batch, 1, i);
    return driver_decode(d, batch, n, CONTEXT);
}

/* ---- the parts of a step -------------------------------------------------------------------- */

/* Once more with every op timed: what a step's time is made of. `steps` is how many steps the times
 * are of. */
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

static void prefill_parts(struct driver *d, int n, int chunk) {
    struct op_times times = {0};
    engine_time_ops(d->engine, &times);
    driver_prefill(d, n, chunk);
    engine_time_ops(d->engine, NULL);
    print_parts("pp", n, &times, 1);
}

static void decode_parts(struct driver *d, int batch, int n) {
    struct op_times times = {0};
    engine_time_ops(d->engine, &times);
    decode_once(d, batch, n);
    engine_time_ops(d->engine, NULL);
    print_parts("tg", batch, &times, CONTEXT + n);
}

/* ---- the table ------------------------------------------------------------------------------ */

/* Reads "1,2,4"; returns how many numbers, or -1 when one is no number in 1..most. */
static int read_list(const char *text, int most, int *out) {
    int n = 0;
    while (n < MAX_LIST) {
        char *end;
        long value = strtol(text, &end, 10);
        if (end == text || value < 1 || value > most || (*end && *end != ',')) return -1;
        out[n++] = (int)value;
        if (*end == 0) return n;
        text = end + 1;
    }
    return -1;
}

static void bench_prefill(struct driver *d, const struct options *options, int n) {
    double *seconds = mem_calloc((size_t)options->bench_repeats, sizeof *seconds);
    for (int i = 0; i < options->bench_repeats; i++) {
        seconds[i] = driver_prefill(d, n, options->max_num_batched_tokens);
    }
    double middle = bench_median(seconds, options->bench_repeats);
    printf("| pp %-5d | %10.1f | %9.2f |          |\n", n, n / middle, middle * 1e3);
    free(seconds);
}

static void bench_decode(struct driver *d, const struct options *options, int batch,
                         double bandwidth) {
    int n = options->bench_generate;
    double *seconds = mem_calloc((size_t)options->bench_repeats, sizeof *seconds);
    for (int i = 0; i < options->bench_repeats; i++) seconds[i] = decode_once(d, batch, n);
    double step = bench_median(seconds, options->bench_repeats) / n;
    const struct engine_memory *memory = engine_memory(d->engine);
    double bytes = (double)memory->weights +
                   (double)batch * (CONTEXT + n / 2) * (double)memory->kv_bytes_per_token;
    printf("| tg %-5d | %10.1f | %9.2f | %6.1f %% |\n", batch, batch / step, step * 1e3,
           100 * bytes / step / bandwidth);
    free(seconds);
}

static int largest(const int *list, int n) {
    int most = 0;
    for (int i = 0; i < n; i++) most = list[i] > most ? list[i] : most;
    return most;
}

/* Says what is measured, and the machine's limits; returns the bandwidth. */
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

static void bench(struct engine *engine, const struct options *options, const int *prompts,
                  int n_prompts, const int *batches, int n_batches) {
    struct driver driver;
    double bandwidth = print_machine(engine);
    printf("| test     |      tok/s |   ms/step | bandwidth |\n|---|---|---|---|\n");
    int most = largest(batches, n_batches);
    driver_init(&driver, engine, options->max_num_batched_tokens, 1);
    for (int i = 0; i < n_prompts; i++) bench_prefill(&driver, options, prompts[i]);
    driver_free(&driver);
    driver_init(&driver, engine, options->max_num_batched_tokens, most);
    for (int i = 0; i < n_batches; i++) bench_decode(&driver, options, batches[i], bandwidth);
    printf("\n| test     | parts of a step |\n|---|---|\n");
    for (int i = 0; i < n_batches; i++) decode_parts(&driver, batches[i], options->bench_generate);
    driver_free(&driver);
    driver_init(&driver, engine, options->max_num_batched_tokens, 1);
    for (int i = 0; i < n_prompts; i++)
        prefill_parts(&driver, prompts[i], options->max_num_batched_tokens);
    driver_free(&driver);
}

/* Do the lists fit the memory that was planned? */
static int check_fits(const struct engine *engine, const struct options *options, int longest,
                      int most) {
    const struct engine_memory *memory = engine_memory(engine);
    int64_t each = memory->n_blocks / most * (int64_t)memory->block_size;
    if (longest > memory->max_model_len) {
        fprintf(stderr, "penstock: a prompt of %d tokens is longer than the context of %d\n",
                longest, memory->max_model_len);
        return 2;
    }
    if (CONTEXT + options->bench_generate > each ||
        CONTEXT + options->bench_generate > memory->max_model_len) {
        fprintf(stderr,
                "penstock: %d sequences of %d tokens do not fit; give more --kv-cache-memory\n",
                most, CONTEXT + options->bench_generate);
        return 2;
    }
    return 0;
}

int command_bench(const struct options *options) {
    int prompts[MAX_LIST], batches[MAX_LIST];
    int n_prompts = read_list(options->bench_prompt, 1 << 20, prompts);
    int n_batches = read_list(options->bench_batch, options->max_num_seqs, batches);
    if (n_prompts < 0 || n_batches < 0) {
        fprintf(stderr,
                "penstock: bench takes lists like 128,512 (prompts) and 1,2,4 (batches, each at "
                "most --max-num-seqs)\n");
        return 2;
    }
    struct engine *engine;
    struct err err;
    int code = open_engine(&engine, options);
    if (code) return code;
    code = check_fits(engine, options, largest(prompts, n_prompts), largest(batches, n_batches));
    if (code == 0 && engine_samples(engine))
        bench_device(engine, options, prompts, n_prompts, batches, n_batches);
    else if (code == 0)
        bench(engine, options, prompts, n_prompts, batches, n_batches);
    fflush(stdout);
    if (code == 0 && !engine_failed(engine, &err))
        code = bench_served(engine, options, batches, n_batches);
    if (code != 2 && engine_failed(engine, &err)) {
        print_error(&err);
        code = EXIT_DEVICE_FAILED;
    }
    engine_close(engine);
    return code;
}
