/* kernels/profile: the time of each op in a pass, and the peak rates of the machine. */
#ifndef PENSTOCK_KERNELS_PROFILE_H
#define PENSTOCK_KERNELS_PROFILE_H

#include "kernels/backend.h"
#include "kernels/program.h"

/* Times and calls per op since timing began. The caller zeroes it and sets only_steps.
 *
 * If ops only queue work, a stamp is queued after each op. The time of an op is the difference of
 * the stamps around it. Stamps are read when the buffer is full and at the end, so the host waits
 * no more often than without timing. With only_steps a step has two stamps and runs as without
 * timing; only OP_STEP and OP_BETWEEN are counted. */
struct op_times {
    bool only_steps;
    uint64_t ns[N_OPS], calls[N_OPS];
    uint64_t first, next;     /* range of the unread stamps, counted from 0 */
    uint8_t before[N_STAMPS]; /* enum op: the op before the stamp */
};

/* Starts timing: each op of a step adds its time to `times`, which the caller owns. NULL stops
 * timing and completes `times`. Call it between two steps, on the thread that calls the ops. */
void backend_time_ops(struct backend *b, struct op_times *times);

/* The parts of op_begin and op_end for timed ops and for a profiler's ranges. */
uint64_t op_begin_watched(struct backend *b, enum op op);
void op_end_watched(struct backend *b, enum op op, uint64_t start);

static inline uint64_t op_begin(struct backend *b, enum op op) {
    return b->times || b->ranges ? op_begin_watched(b, op) : 0;
}
static inline void op_end(struct backend *b, enum op op, uint64_t start) {
    if (b->times || b->ranges) op_end_watched(b, op, start);
}

/* Calls an op of one of the backend's tables:
 * TIME_OP(b, OP_GATHER, compute->gather(b, y, x, K)). */
#define TIME_OP(b, op, call)                                                                       \
    do {                                                                                           \
        uint64_t started_ = op_begin(b, op);                                                       \
        (b)->call;                                                                                 \
        op_end(b, op, started_);                                                                   \
    } while (0)

/* Runs a pass by compute->run. Calls program_run if the backend lacks `run`, or if ops are timed,
 * because timed ops must be queued one by one. */
void step_run(struct backend *b, const struct program *program, const struct step *step,
              struct kv_cache *cache);

/* A device with timers calls this after it has queued the upload of a step's arrays; only the
 * step's kernels follow. With only_steps, OP_BETWEEN ends here. */
void step_copied(struct backend *b);

/* memory->fetch of a step's results, which ends the step, and memory->await for them. */
void step_fetch(struct backend *b, int number, void *host, const void *device, size_t bytes);
void step_await(struct backend *b, int number);

/* ---- the machine ---------------------------------------------------------------------------- */

/* A loop of multiply-adds on registers: the peak rate of a CPU path's instructions. */
struct peak_loop {
    const char *instruction; /* "vpdpbusd, 512 bits" */
    double multiply_adds;    /* per call of `run`, which is a function for device->parallel */
    void (*run)(void *arg, int i);
};
struct peak_loops {
    struct peak_loop int8, float32;
};

/* Returns the loops of the path `name`, chosen as by backend_cpu_logit_ops; NULL for plain C. */
const struct peak_loops *backend_cpu_peaks(const char *name);

/* The processors that this process may use. */
struct cpu_counts {
    int processors, cores, nodes; /* hardware threads, cores, memory nodes; each at least 1 */
};
struct cpu_counts backend_cpu_counts(void);

/* Returns the number of compute threads for this process: its affinity mask and cgroup CPU quota,
 * rounded to whole cores, at least 1. */
int backend_cpu_threads(void);

#endif
