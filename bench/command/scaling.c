/* The report of `penstock bench --scaling`: speed by the number of threads, on the machine of a
 * user who may send it. Each number of threads has an engine of its own, because an engine's
 * threads and the places of its weights are fixed. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

#include "bench/command/bench.h"
#include "server/commands/commands.h"

enum { PROMPT = 512, STREAMS = 16 }; /* of the table, if they fit into the plan */

enum { ONE_STREAM, STREAMS_TOGETHER, A_PROMPT, N_SPEEDS };

struct scaling_row {
    int threads;
    double bytes_per_s;     /* read from memory */
    double int8_per_s;      /* multiply-adds in registers */
    double speed[N_SPEEDS]; /* tokens per second */
};

int scaling_threads(int most, int threads[SCALING_ROWS]) {
    int n = 0;
    assert(most > 0);
    for (int next = 1; next < most && n < SCALING_ROWS - 1; next *= 2) threads[n++] = next;
    threads[n++] = most;
    return n;
}

/* ---- the machine ---------------------------------------------------------------------------- */

/* Prints the name of the first processor, or the machine's kind. */
static void print_cpu_name(const char *otherwise) {
    char line[256], name[256] = "";
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && !name[0] && fgets(line, sizeof line, file))
        if (sscanf(line, "model name : %255[^\n]", name) != 1) name[0] = 0;
    if (file) fclose(file);
    printf("%s", name[0] ? name : otherwise);
}

static void print_machine(void) {
    struct utsname system = {0};
    struct sysinfo memory = {0};
    const struct cpu_counts counts = backend_cpu_counts();
    uname(&system);
    sysinfo(&memory);
    print_cpu_name(system.machine);
    printf(", %d processors, %d cores, memory nodes: %d, %.0f GiB, %s %s\n", counts.processors,
           counts.cores, counts.nodes, (double)memory.totalram * memory.mem_unit / (1 << 30),
           system.sysname, system.release);
}

static double load_average(void) {
    double load = 0;
    return getloadavg(&load, 1) == 1 ? load : -1;
}

/* ---- measuring ------------------------------------------------------------------------------ */

static void measure(struct engine *engine, const struct options *options, int prompt, int streams,
                    struct scaling_row *row) {
    const int max_rows = options->engine.max_num_batched_tokens;
    struct driver d;
    row->threads = engine_threads(engine);
    row->bytes_per_s = machine_read_rate(engine);
    row->int8_per_s = machine_int8_rate(engine).per_second;
    driver_init(&d, engine, max_rows, 1);
    row->speed[A_PROMPT] = prompt / bench_prefill_seconds(&d, options, prompt);
    row->speed[ONE_STREAM] = 1 / bench_decode_seconds(&d, options, 1);
    driver_free(&d);
    driver_init(&d, engine, max_rows, streams);
    row->speed[STREAMS_TOGETHER] = streams / bench_decode_seconds(&d, options, streams);
    driver_free(&d);
}

static void print_cell(double value, double first, int decimals) {
    printf(" %.*f | %.2f |", decimals, value, first > 0 ? value / first : 0.0);
}

static void print_row(const struct scaling_row *row, const struct scaling_row *first) {
    printf("| %d |", row->threads);
    print_cell(row->bytes_per_s * 1e-9, first->bytes_per_s * 1e-9, 1);
    print_cell(row->int8_per_s * 1e-9, first->int8_per_s * 1e-9, 0);
    for (int i = 0; i < N_SPEEDS; i++) print_cell(row->speed[i], first->speed[i], 1);
    printf("\n");
    fflush(stdout);
}

static void print_head(const struct engine *engine, const struct options *options, int prompt,
                       int streams) {
    const struct build_info build = build_info();
    printf("Penstock %s %s, %s, %s, %s, threads %s%s\n", build.version, build.commit,
           engine_model(engine)->name, engine_model(engine)->quantisation,
           engine_backend_name(engine), options->engine.cpu_affinity ? "bound to " : "not bound",
           options->engine.cpu_affinity ? options->engine.cpu_affinity : "");
    print_machine();
    printf(
        "load %.1f before the run; each speed is the median of %d runs; \"times\" is relative to "
        "the first row\n\n",
        load_average(), options->bench.repeats);
    printf("| threads | memory read, GB/s | times | int8, G multiply-adds/s | times | one stream, "
           "tok/s | times | %d streams, tok/s | times | prompt of %d, tok/s | times |\n"
           "|---|---|---|---|---|---|---|---|---|---|---|\n",
           streams, prompt);
}

/* The largest batch and prompt, up to those of the table, that the engine's plan holds. Returns
 * false if not even one sequence decodes. */
static bool choose_sizes(const struct engine *engine, const struct options *options, int *prompt,
                         int *streams) {
    const struct engine_memory *memory = engine_memory(engine);
    const int decoded = BENCH_CONTEXT + options->bench.generate, size = memory->block_size;
    const int room = memory->n_blocks / ((decoded + size - 1) / size);
    const int context = min_int(memory->max_model_len, memory->n_blocks * size);
    *prompt = min_int(PROMPT, context);
    *streams = min_int(min_int(STREAMS, options->engine.max_num_seqs), room);
    return *streams > 0 && decoded <= context;
}

/* True if the report can be made with this engine; else says why not. */
static bool may_scale(const struct engine *engine, const struct options *options, int *prompt,
                      int *streams) {
    if (!engine_on_host(engine))
        print_failure("--scaling measures a CPU; give --device cpu");
    else if (options->engine.ranks > 1)
        print_failure("--scaling measures one rank; leave out --tensor-parallel-size");
    else if (engine_model(engine)->is_encoder)
        print_failure("--scaling measures models that give text, and this is an encoder");
    else if (!choose_sizes(engine, options, prompt, streams))
        print_failure("a sequence of %d tokens does not fit; give more --kv-cache-memory, or a "
                      "smaller --bench-generate",
                      BENCH_CONTEXT + options->bench.generate);
    else
        return true;
    return false;
}

/* Measures one number of threads with the engine, which it closes. */
static int scaling_row(struct engine *engine, const struct options *options, int prompt,
                       int streams, struct scaling_row *row, const struct scaling_row *first) {
    struct err err;
    measure(engine, options, prompt, streams, row);
    const bool failed = engine_failed(engine, &err);
    if (failed) print_error(&err);
    if (!failed) print_row(row, first);
    engine_close(engine);
    return failed ? EXIT_DEVICE_FAILED : 0;
}

int bench_scaling(const struct options *options) {
    struct options one = *options;
    struct scaling_row rows[SCALING_ROWS];
    struct engine *engine = NULL;
    int threads[SCALING_ROWS], prompt, streams, code = open_engine(&engine, options);
    if (code) return code;
    if (!may_scale(engine, options, &prompt, &streams)) code = 2;
    if (code == 0) print_head(engine, options, prompt, streams);
    const int n = scaling_threads(engine_threads(engine), threads);
    engine_close(engine);
    for (int i = 0; i < n && code == 0; i++) {
        one.engine.threads = threads[i];
        code = open_engine(&engine, &one);
        if (code == 0) code = scaling_row(engine, options, prompt, streams, &rows[i], &rows[0]);
    }
    if (code == 0) printf("\nload %.1f after the run\n", load_average());
    return code;
}
