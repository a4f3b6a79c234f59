/* `penstock bench`: speed of prefill and decode over batch sizes, and what share of the machine's
 * memory bandwidth decoding makes use of. The engine is driven directly, without scheduler and
 * HTTP: this is what the model can do.
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

#include "server/bench_machine.h"
#include "server/commands.h"

#define MAX_LIST 32
#define CONTEXT 16

/* The arrays of a step, planned once for the largest. */
struct driver {
    struct engine *engine;
    struct step step;
    int32_t *token, *position, *slot, *row_start, *table, *logit_row;
    int blocks_each, block_size;
};

static void driver_init(struct driver *d, struct engine *engine, int max_rows, int max_seqs) {
    const struct engine_memory *memory = engine_memory(engine);
    *d = (struct driver){.engine = engine, .block_size = memory->block_size};
    d->blocks_each = memory->n_blocks / max_seqs;
    size_t rows = (size_t)max_rows, seqs = (size_t)max_seqs;
    d->token = mem_calloc(rows, sizeof(int32_t));
    d->position = mem_calloc(rows, sizeof(int32_t));
    d->slot = mem_calloc(rows, sizeof(int32_t));
    d->row_start = mem_calloc(seqs + 1, sizeof(int32_t));
    d->logit_row = mem_calloc(seqs, sizeof(int32_t));
    d->table = mem_calloc(seqs * (size_t)d->blocks_each, sizeof(int32_t));
    for (size_t i = 0; i < seqs * (size_t)d->blocks_each; i++) d->table[i] = (int32_t)i;
    d->step = (struct step){.token = d->token,
                            .position = d->position,
                            .slot = d->slot,
                            .row_start = d->row_start,
                            .table = d->table,
                            .logit_row = d->logit_row,
                            .table_stride = d->blocks_each};
}

static void driver_free(struct driver *d) {
    free(d->token);
    free(d->position);
    free(d->slot);
    free(d->row_start);
    free(d->logit_row);
    free(d->table);
}

/* Runs `rows` tokens of each of S sequences from `position` on; the last row of each wants
 * logits. */
static void run_step(struct driver *d, int S, int rows, int position) {
    int M = 0;
    for (int s = 0; s < S; s++) {
        d->row_start[s] = M;
        for (int i = 0; i < rows; i++, M++) {
            int at = position + i;
            d->token[M] = (at * 131 + s * 7919) % engine_model(d->engine)->V;
            d->position[M] = at;
            d->slot[M] = d->table[s * d->blocks_each + at / d->block_size] * d->block_size +
                         at % d->block_size;
        }
        d->logit_row[s] = M - 1;
    }
    d->row_start[S] = M;
    d->step.M = M;
    d->step.S = S;
    d->step.R = S;
    engine_submit(d->engine, &d->step);
    engine_wait(d->engine);
}

/* ---- one figure ----------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, ascending);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static double prefill_once(struct driver *d, int n, int chunk) {
    uint64_t start = now_ns();
    for (int at = 0; at < n; at += chunk) run_step(d, 1, n - at < chunk ? n - at : chunk, at);
    return (double)(now_ns() - start) * 1e-9;
}

/* Contexts are filled one sequence at a time, so that they fit any row budget. */
static double decode_once(struct driver *d, int batch, int n) {
    for (int i = 0; i < CONTEXT; i++) run_step(d, batch, 1, i);
    uint64_t start = now_ns();
    for (int i = 0; i < n; i++) run_step(d, batch, 1, CONTEXT + i);
    return (double)(now_ns() - start) * 1e-9;
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
    prefill_once(d, n, chunk);
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
        seconds[i] = prefill_once(d, n, options->max_num_batched_tokens);
    }
    double middle = median(seconds, options->bench_repeats);
    printf("| pp %-5d | %10.1f | %9.2f |          |\n", n, n / middle, middle * 1e3);
    free(seconds);
}

static void bench_decode(struct driver *d, const struct options *options, int batch,
                         double bandwidth) {
    int n = options->bench_generate;
    double *seconds = mem_calloc((size_t)options->bench_repeats, sizeof *seconds);
    for (int i = 0; i < options->bench_repeats; i++) seconds[i] = decode_once(d, batch, n);
    double step = median(seconds, options->bench_repeats) / n;
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

static int bench(struct engine *engine, const struct options *options, const int *prompts,
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
    return 0;
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
    int code = open_engine(&engine, options);
    if (code) return code;
    code = check_fits(engine, options, largest(prompts, n_prompts), largest(batches, n_batches));
    if (code == 0) code = bench(engine, options, prompts, n_prompts, batches, n_batches);
    engine_close(engine);
    return code;
}
