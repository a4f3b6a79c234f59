/* kernels/profile: where the time of a pass goes, and the peak rates of the machine. */
#ifndef PENSTOCK_KERNELS_PROFILE_H
#define PENSTOCK_KERNELS_PROFILE_H

#include "kernels/backend.h"

enum op {
    OP_EMBED,
    OP_MATMUL,
    OP_ROPE_WRITE,
    OP_ATTENTION,
    OP_MATMUL_ADD,
    OP_MLP,
    OP_EXPERTS,
    OP_NORM_ADD,
    OP_ALL_REDUCE,
    OP_GATHER,
    OP_LOGITS,
    OP_SAMPLE, /* on the device */
    OP_DOWNLOAD,
    OP_STEP_BEGIN, /* a step's arrays are uploaded, and its blocks are copied */
    /* From a step's end to the start of the next one: nothing was queued. Where only steps are
     * timed, the copy of the next one's arrays is a part of it: it ends with the first kernel. */
    OP_BETWEEN,
    OP_STEP, /* all of a step: where only steps are timed */
    N_OPS,
};

/* "matmul" and so on. */
const char *op_name(enum op op);

/* Summed over the calls since timing began. Begins as zeros, but for only_steps.
 *
 * Where ops only queue work, a stamp is queued after each of them, and the time between two stamps
 * is that of the op between them. Stamps are read when there is no room for more, or at the end: so
 * the host waits no more often than without them. With only_steps a step has two stamps, and
 * runs as it does untimed: OP_STEP and OP_BETWEEN are all that is counted. */
struct op_times {
    bool only_steps;
    uint64_t ns[N_OPS], calls[N_OPS];
    uint64_t first, next;     /* stamps that were not yet read, by number: 0 is the first one */
    uint8_t before[N_STAMPS]; /* enum op: what ended with the stamp */
};

/* From now on every op of a step adds its time to `times`, which is the caller's; NULL ends that,
 * and then `times` is complete. For the thread that calls the ops, between two steps. */
void backend_time_ops(struct backend *b, struct op_times *times);

/* What op_begin and op_end do if ops are timed, or if a profiler wants ranges. */
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

/* Runs a pass: by compute->run if the backend has it; by forward(arg, step) if not, or if ops are
 * timed, because they must then be queued one by one. */
void step_run(struct backend *b, const struct step *step, struct kv_cache *cache,
              void (*forward)(void *arg, const struct step *step), void *arg);

/* A device that has timers calls this when it has queued the copy of a step's arrays: only its
 * kernels follow. Where only steps are timed, what is between two of them ends here. */
void step_copied(struct backend *b);

/* memory->fetch of a step's results, which is the step's end, and memory->await for it. */
void step_fetch(struct backend *b, int number, void *host, const void *device, size_t bytes);
void step_await(struct backend *b, int number);

/* ---- the machine ---------------------------------------------------------------------------- */

/* A loop of multiply-adds on registers: the peak rate of a CPU path's instructions. */
struct peak_loop {
    const char *instruction; /* "vpdpbusd, 512 bits" */
    double multiply_adds;    /* of one call of run, which is for ops->parallel */
    void (*run)(void *arg, int i);
};
struct peak_loops {
    struct peak_loop int8, float32;
};

/* The loops of the path `name`, chosen as for backend_cpu_logit_ops; NULL for plain C. */
const struct peak_loops *backend_cpu_peaks(const char *name);

/* How many compute threads suit this process: its affinity mask and cgroup CPU quota, rounded to
 * whole cores, at least 1. */
int backend_cpu_threads(void);

#endif
