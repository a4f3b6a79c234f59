/* Where a step's time goes: an op table that watches each op and calls the backend's own. A pass
 * without it pays nothing; with it, two looks at the clock an op, or on a device a stamp. */
#include <assert.h>
#include <stddef.h>

#include "kernels/kernels.h"

const char *op_name(enum op op) {
    static const char *const names[N_OPS] = {
        [OP_EMBED] = "embed",
        [OP_MATMUL] = "q k v",
        [OP_ATTENTION] = "attention",
        [OP_ROPE_WRITE] = "rope and kv write",
        [OP_GATED_MLP] = "mlp",
        [OP_MATMUL_ADD] = "attention output",
        [OP_GATHER] = "gather",
        [OP_LOGITS] = "head",
        [OP_DOWNLOAD] = "download",
        [OP_SAMPLE] = "sampling",
        [OP_STEP_BEGIN] = "step's arrays",
        [OP_BETWEEN] = "between steps",
        [OP_STEP] = "step",
    };
    assert(op >= 0 && op < N_OPS);
    return names[op];
}

/* ---- stamps of a device --------------------------------------------------------------------- */

/* Adds what has passed up to stamp `until`, of which the one before it was read. */
static void read_stamps(struct backend *b, uint64_t until) {
    struct op_times *t = b->times;
    for (; t->first < until; t->first++) {
        int to = (int)(t->first % N_STAMPS);
        if (t->first > 0) /* before the first one nothing was timed */
            t->ns[t->before[to]] += b->timed->stamped_ns(b, (int)((t->first - 1) % N_STAMPS), to);
    }
}

/* The stamp behind `op`. The one before the oldest unread one must stay, so one less fits. */
static void set_stamp(struct backend *b, enum op op) {
    struct op_times *t = b->times;
    if (t->next - t->first >= N_STAMPS - 1) read_stamps(b, t->first + N_STAMPS / 2);
    t->before[t->next % N_STAMPS] = (uint8_t)op;
    b->timed->stamp(b, (int)(t->next++ % N_STAMPS));
}

/* ---- one op --------------------------------------------------------------------------------- */

static bool is_timed(const struct backend *b, enum op op) {
    return b->times && (!b->times->only_steps || op == OP_STEP || op == OP_BETWEEN);
}

static uint64_t begin(struct backend *b, enum op op) {
    if (b->ranges) b->ranges->push(op_name(op));
    return is_timed(b, op) && !b->timed->stamp ? now_ns() : 0;
}

static void end(struct backend *b, enum op op, uint64_t start) {
    if (b->ranges) b->ranges->pop();
    if (!is_timed(b, op)) return;
    b->times->calls[op]++;
    if (b->timed->stamp)
        set_stamp(b, op);
    else
        b->times->ns[op] += now_ns() - start;
}

/* One watched op: `call` on the backend's own table. */
#define TIMED(op, call)                                                                            \
    uint64_t start = begin(b, op);                                                                 \
    b->timed->call;                                                                                \
    end(b, op, start)

/* ---- the ops -------------------------------------------------------------------------------- */

/* What comes between two stamps, of which the second is set here: where there are stamps. */
static void mark(struct backend *b, enum op op) {
    if (!b->times || !b->timed->stamp || !is_timed(b, op)) return;
    b->times->calls[op]++;
    set_stamp(b, op);
}

static void open_step(struct backend *b) {
    if (b->ranges) b->ranges->push("step");
    mark(b, OP_BETWEEN);
}

/* A step that is replayed has no ops that could be timed, so one whose ops are is not replayed. */
static void run(struct backend *b, const struct step *step, struct kv_cache *cache,
                void (*forward)(void *arg, const struct step *step), void *arg) {
    open_step(b);
    if (b->times && !b->times->only_steps)
        forward(arg, step);
    else
        b->timed->run(b, step, cache, forward, arg);
}

static void step_begin(struct backend *b, const struct step *step, struct kv_cache *cache) {
    if (!b->timed->run) open_step(b);
    TIMED(OP_STEP_BEGIN, step_begin(b, step, cache));
}

static void sample(struct backend *b, struct device_sampler *sampler, float *logits,
                   const struct sample *samples, int n, int32_t *ids, struct sampled *results) {
    TIMED(OP_SAMPLE, sample(b, sampler, logits, samples, n, ids, results));
}

/* The copy of a step's results: the step's end. */
static void fetch(struct backend *b, int number, void *host, const void *device, size_t bytes) {
    if (b->times && b->times->only_steps) mark(b, OP_STEP);
    TIMED(OP_DOWNLOAD, fetch(b, number, host, device, bytes));
    if (b->ranges) b->ranges->pop();
}

static void embed(struct backend *b, float *y, const struct matrix *embedding) {
    TIMED(OP_EMBED, embed(b, y, embedding));
}

static void matmul(struct backend *b, float *const *y, const float *x, const struct norm *norm,
                   struct matrix *const *w, int n, int M) {
    TIMED(OP_MATMUL, matmul(b, y, x, norm, w, n, M));
}

static void matmul_add(struct backend *b, float *sum, const float *x, struct matrix *w, int M) {
    TIMED(OP_MATMUL_ADD, matmul_add(b, sum, x, w, M));
}

static void gated_mlp(struct backend *b, float *x, const struct norm *norm, struct matrix *gate,
                      struct matrix *up, struct matrix *down, int M) {
    TIMED(OP_GATED_MLP, gated_mlp(b, x, norm, gate, up, down, M));
}

static void rope_write(struct backend *b, struct kv_cache *cache, int layer,
                       const struct rope *rope, int H, float *q, float *k, const float *v) {
    TIMED(OP_ROPE_WRITE, rope_write(b, cache, layer, rope, H, q, k, v));
}

static void attention(struct backend *b, float *y, const float *q, const struct kv_cache *cache,
                      int layer, int H, float scale) {
    TIMED(OP_ATTENTION, attention(b, y, q, cache, layer, H, scale));
}

static void gather(struct backend *b, float *y, const float *x, int K) {
    TIMED(OP_GATHER, gather(b, y, x, K));
}

static void logits(struct backend *b, float *y, const float *x, const struct norm *norm,
                   struct matrix *w, int R) {
    TIMED(OP_LOGITS, logits(b, y, x, norm, w, R));
}

static void download(struct backend *b, void *host, const void *device, size_t bytes) {
    TIMED(OP_DOWNLOAD, download(b, host, device, bytes));
}

/* The host waits, which is no time of the device's. */
static void await(struct backend *b, int number) {
    if (b->timed->stamp) {
        b->timed->await(b, number);
        return;
    }
    TIMED(OP_DOWNLOAD, await(b, number));
}

/* ---- the table ------------------------------------------------------------------------------ */

void backend_watch_ops(struct backend *b, struct backend_ops *table, struct op_times *times) {
    assert(!b->timed);
    b->timed = b->ops;
    b->times = times;
    *table = *b->ops;
    if (table->run) table->run = run;
    table->step_begin = step_begin;
    if (table->sample) table->sample = sample;
    table->fetch = fetch;
    table->embed = embed;
    table->matmul = matmul;
    table->rope_write = rope_write;
    table->attention = attention;
    table->matmul_add = matmul_add;
    table->gated_mlp = gated_mlp;
    table->gather = gather;
    table->logits = logits;
    table->download = download;
    table->await = await;
    b->ops = table;
}

void backend_stop_watching(struct backend *b) {
    assert(b->timed);
    if (b->times) read_stamps(b, b->times->next);
    b->ops = b->timed;
    b->timed = NULL;
    b->times = NULL;
}
