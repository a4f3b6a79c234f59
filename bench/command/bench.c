/* `penstock bench`: speed of prefill and decode over prompt lengths and batch sizes. First it
 * drives the engine directly, without scheduler and HTTP, to measure the model. Then it serves the
 * same batches over HTTP, to measure the overhead per step. */
#include "bench/command/bench.h"

#include <stdio.h>
#include <stdlib.h>

#include "server/commands/commands.h"

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, ascending);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* Reads "1,2,4". Returns false if a value is not a number from 1 to `max`, or if there are too
 * many. */
static bool read_list(const char *text, int max, struct bench_list *list) {
    *list = (struct bench_list){0};
    while (list->n < BENCH_MAX_LIST) {
        char *end;
        long value = strtol(text, &end, 10);
        if (end == text || value < 1 || value > max || (*end && *end != ',')) return false;
        list->value[list->n++] = (int)value;
        if (value > list->max) list->max = (int)value;
        if (*end == 0) return true;
        text = end + 1;
    }
    return false;
}

/* Do prompts and batches fit into the planned memory? */
static int check_fits(const struct bench *bench) {
    const struct engine_memory *memory = engine_memory(bench->engine);
    const int longest = bench->prompts.max, batch = bench->batches.max;
    const int decoded = BENCH_CONTEXT + bench->options->bench.generate;
    const int size = memory->block_size, blocks = (decoded + size - 1) / size;
    int64_t each = memory->n_blocks / batch * (int64_t)size;
    /* blocks that a decoding sequence sees, plus one for the step that fills the next block */
    int seen = memory->n_window_blocks > 0 ? window_blocks_seen(memory->window, size) + 1 : 0;
    if (engine_model(bench->engine)->is_encoder) {
        fprintf(stderr, "penstock: bench measures models that give text, and this is an encoder\n");
        return 2;
    }
    bool windows_fit = memory->n_window_blocks / batch >= min_int(blocks, seen);
    if (longest > memory->max_model_len) {
        fprintf(stderr, "penstock: a prompt of %d tokens is longer than the context of %d\n",
                longest, memory->max_model_len);
        return 2;
    }
    if (decoded > each || decoded > memory->max_model_len || !windows_fit) {
        fprintf(stderr,
                "penstock: %d sequences of %d tokens do not fit; give more --kv-cache-memory\n",
                batch, decoded);
        return 2;
    }
    return 0;
}

int command_bench(struct options *options) {
    struct bench bench = {.options = options};
    if (!read_list(options->bench.prompt, 1 << 20, &bench.prompts) ||
        !read_list(options->bench.batch, options->engine.max_num_seqs, &bench.batches)) {
        fprintf(stderr,
                "penstock: bench takes lists like 128,512 (prompts) and 1,2,4 (batches, each at "
                "most --max-num-seqs)\n");
        return 2;
    }
    struct err err;
    int code = find_models(options);
    if (code == 0 && options->bench.scaling) return bench_scaling(options);
    if (code == 0) code = open_engine(&bench.engine, options);
    if (code == 0) code = check_fits(&bench);
    if (code == 0 && engine_on_host(bench.engine))
        bench_host(&bench);
    else if (code == 0)
        bench_device(&bench);
    fflush(stdout);
    if (code == 0 && !engine_failed(bench.engine, &err)) code = bench_http(&bench);
    if (bench.engine && engine_failed(bench.engine, &err)) {
        print_error(&err);
        code = EXIT_DEVICE_FAILED;
    }
    engine_close(bench.engine);
    return code;
}
