/* Where a step's time goes: an op table that times each op and calls the backend's own. A pass
 * without it pays nothing; with it, two looks at the clock an op. */
#include <assert.h>
#include <stddef.h>

#include "kernels/kernels.h"

const char *op_name(enum op op) {
    static const char *const names[N_OPS] = {
        [OP_EMBED] = "embed",         [OP_MATMUL] = "q k v",
        [OP_ATTENTION] = "attention", [OP_ROPE_WRITE] = "rope and kv write",
        [OP_GATED_MLP] = "mlp",       [OP_MATMUL_ADD] = "attention output",
        [OP_GATHER] = "gather",       [OP_LOGITS] = "head",
        [OP_DOWNLOAD] = "download",   [OP_ALL_REDUCE] = "all-reduce",
    };
    assert(op >= 0 && op < N_OPS);
    return names[op];
}

/* One timed op: `call` on the backend's own table. */
#define TIMED(op, call)                                                                            \
    uint64_t start = now_ns();                                                                     \
    b->timed->call;                                                                                \
    b->times->ns[op] += now_ns() - start;                                                          \
    b->times->calls[op]++

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

static void gated_mlp(struct backend *b, float *sum, const float *x, const struct norm *norm,
                      struct matrix *gate, struct matrix *up, struct matrix *down, int M) {
    TIMED(OP_GATED_MLP, gated_mlp(b, sum, x, norm, gate, up, down, M));
}

static void all_reduce(struct backend *b, float *x, float *part, int M, int K) {
    TIMED(OP_ALL_REDUCE, all_reduce(b, x, part, M, K));
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

static void await(struct backend *b, int mark) {
    TIMED(OP_DOWNLOAD, await(b, mark));
}

void backend_time_ops(struct backend *b, struct backend_ops *table, struct op_times *times) {
    assert(!b->times);
    b->timed = b->ops;
    b->times = times;
    *table = *b->ops;
    table->embed = embed;
    table->matmul = matmul;
    table->rope_write = rope_write;
    table->attention = attention;
    table->matmul_add = matmul_add;
    table->gated_mlp = gated_mlp;
    table->all_reduce = all_reduce;
    table->gather = gather;
    table->logits = logits;
    table->download = download;
    table->await = await;
    b->ops = table;
}

void backend_stop_timing(struct backend *b) {
    assert(b->times);
    b->ops = b->timed;
    b->timed = NULL;
    b->times = NULL;
}
