/* Limits of a CPU: memory reads, and multiply-adds of bytes and of float32, on all compute threads
 * together. */
#include <string.h>

#include "bench/command/bench.h"

#define STREAM_BYTES ((size_t)256 << 20)
#define PASSES 5
#define PARTS 64

/* ---- memory --------------------------------------------------------------------------------- */

struct machine_reading {
    const uint64_t *data;
    size_t n_each;
    uint64_t *sum;
};

static void read_part(void *arg, int i) {
    const struct machine_reading *reading = arg;
    const uint64_t *data = reading->data + (size_t)i * reading->n_each;
    uint64_t lane[16] = {0};
    for (size_t k = 0; k + 16 <= reading->n_each; k += 16) {
        for (int j = 0; j < 16; j++) lane[j] += data[k + (size_t)j];
    }
    for (int j = 0; j < 16; j++) reading->sum[i] += lane[j];
}

/* Returns the seconds of the fastest of several passes over all parts. */
static double best_pass(struct engine *engine, void (*part)(void *arg, int i), void *arg) {
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < PASSES; i++) {
        uint64_t start = now_ns();
        engine_parallel(engine, part, arg, PARTS);
        uint64_t ns = now_ns() - start;
        if (ns < best) best = ns;
    }
    return (double)best * 1e-9;
}

double machine_read_rate(struct engine *engine) {
    uint64_t *data = mem_large(STREAM_BYTES), sums[PARTS] = {0};
    memset(data, 1, STREAM_BYTES);
    struct machine_reading reading = {data, STREAM_BYTES / sizeof *data / PARTS, sums};
    double seconds = best_pass(engine, read_part, &reading);
    mem_large_free(data, STREAM_BYTES);
    return (double)STREAM_BYTES / seconds;
}

/* ---- multiply-adds -------------------------------------------------------------------------- */

static struct machine_rate rate_of(struct engine *engine, const struct peak_loop *loop) {
    return (struct machine_rate){loop->multiply_adds * PARTS / best_pass(engine, loop->run, NULL),
                                 loop->instruction};
}

static const struct machine_rate none = {0, "none"};

struct machine_rate machine_int8_rate(struct engine *engine) {
    const struct peak_loops *loops = backend_cpu_peaks(NULL);
    return loops ? rate_of(engine, &loops->int8) : none;
}

struct machine_rate machine_float_rate(struct engine *engine) {
    const struct peak_loops *loops = backend_cpu_peaks(NULL);
    return loops ? rate_of(engine, &loops->float32) : none;
}
