/* Times the ops of a step. Callers wrap each op in op_begin and op_end. Without timing
 * this costs two tests per op. A device's times are differences of stamps queued after the ops; the
 * host's times are differences of its clock. */
#include "kernels/profile.h"

#include <assert.h>
#include <stddef.h>

const char *op_name(enum op op) {
    static const char *const names[N_OPS] = {
        [OP_EMBED] = "embed",
        [OP_MATMUL] = "q k v",
        [OP_MATMUL_HEADS] = "product per head",
        [OP_LATENT_WRITE] = "latent vectors' write",
        [OP_ATTENTION] = "attention",
        [OP_SHORT_CONV] = "short convolution",
        [OP_DELTA_RULE] = "delta rule",
        [OP_STATE_SPACE] = "state space",
        [OP_ROPE_WRITE] = "rope and kv write",
        [OP_MLP] = "mlp",
        [OP_EXPERTS] = "experts",
        [OP_MATMUL_ADD] = "attention output",
        [OP_NORM_ADD] = "norm after a branch",
        [OP_GATHER] = "gather",
        [OP_RECALL] = "recall",
        [OP_JOIN] = "join",
        [OP_NORM] = "norm",
        [OP_LOGITS] = "head",
        [OP_SPREAD] = "spread logits",
        [OP_HIDDEN] = "hidden vectors",
        [OP_DOWNLOAD] = "download",
        [OP_SAMPLE] = "sampling",
        [OP_STEP_BEGIN] = "step's arrays",
        [OP_BETWEEN] = "between steps",
        [OP_STEP] = "step",
        [OP_ALL_REDUCE] = "all-reduce",
    };
    assert(op >= 0 && op < N_OPS);
    return names[op];
}

/* ---- stamps of a device --------------------------------------------------------------------- */

/* Adds the times of the stamps from `first` to `until`. */
static void read_stamps(struct backend *b, uint64_t until) {
    struct op_times *t = b->times;
    assert(until <= t->next);
    for (; t->first < until; t->first++) {
        int to = (int)(t->first % N_STAMPS);
        if (t->first > 0) /* the first stamp ends nothing */
            t->ns[t->before[to]] += b->timers->stamped_ns(b, (int)((t->first - 1) % N_STAMPS), to);
    }
}

/* Sets the stamp after `op`. The stamp before the oldest unread one must be kept, so at most
 * N_STAMPS - 1 are unread. */
static void set_stamp(struct backend *b, enum op op) {
    struct op_times *t = b->times;
    if (t->next - t->first >= N_STAMPS - 1) read_stamps(b, t->first + N_STAMPS / 2);
    assert(t->next - t->first < N_STAMPS - 1);
    t->before[t->next % N_STAMPS] = (uint8_t)op;
    b->timers->stamp(b, (int)(t->next++ % N_STAMPS));
}

/* ---- one op --------------------------------------------------------------------------------- */

static bool is_timed(const struct backend *b, enum op op) {
    return b->times && (!b->times->only_steps || op == OP_STEP || op == OP_BETWEEN);
}

uint64_t op_begin_watched(struct backend *b, enum op op) {
    if (b->ranges) b->ranges->push(op_name(op));
    return is_timed(b, op) && !b->timers ? now_ns() : 0;
}

void op_end_watched(struct backend *b, enum op op, uint64_t start) {
    if (b->ranges) b->ranges->pop();
    if (!is_timed(b, op)) return;
    b->times->calls[op]++;
    if (b->timers)
        set_stamp(b, op);
    else
        b->times->ns[op] += now_ns() - start;
}

/* Sets a stamp: the time since the previous stamp belongs to `op`. */
static void mark(struct backend *b, enum op op) {
    if (!b->timers || !is_timed(b, op)) return;
    b->times->calls[op]++;
    set_stamp(b, op);
}

/* ---- a step --------------------------------------------------------------------------------- */

void step_run(struct backend *b, const struct program *program, const struct step *step,
              struct kv_cache *cache) {
    if (b->ranges) b->ranges->push("step");
    bool ops_are_timed = b->times && !b->times->only_steps; /* then nothing may be replayed */
    if (ops_are_timed) mark(b, OP_BETWEEN);
    if (b->compute->run && !ops_are_timed)
        b->compute->run(b, program, step, cache);
    else
        program_run(b, program, step, cache);
}

void step_copied(struct backend *b) {
    if (b->times && b->times->only_steps) mark(b, OP_BETWEEN);
}

void step_fetch(struct backend *b, int number, void *host, const void *device, size_t bytes) {
    assert(number >= 0 && number < MAX_IN_FLIGHT);
    if (b->times && b->times->only_steps) mark(b, OP_STEP);
    TIME_OP(b, OP_DOWNLOAD, memory->fetch(b, number, host, device, bytes));
    if (b->ranges) b->ranges->pop(); /* the step's range, opened by step_run */
}

/* Waiting does not count as device time. */
void step_await(struct backend *b, int number) {
    assert(number >= 0 && number < MAX_IN_FLIGHT);
    if (b->timers)
        b->memory->await(b, number);
    else
        TIME_OP(b, OP_DOWNLOAD, memory->await(b, number));
}

void backend_time_ops(struct backend *b, struct op_times *times) {
    if (b->times) read_stamps(b, b->times->next);
    b->times = times;
}
