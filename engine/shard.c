#include "engine/shard.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- who can share -------------------------------------------------------------------------- */

/* What has to be divided, and the blocks that may not be cut. */
struct widths {
    int H, G, F, mixed; /* mixed: H * D */
    int o_block, down_block;
};

static int larger(int a, int b) {
    return a > b ? a : b;
}

/* The largest block of a kind of tensor, over all layers: blocks are powers of two. A tensor that
 * is missing is told of by whoever wants it. */
static int largest_block(const struct weights *weights, const char *suffix, int L) {
    int largest = 1;
    for (int i = 0; i < L; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.%s.weight", i, suffix);
        const struct weight *weight = weights_lookup(weights, name);
        if (weight) largest = larger(largest, dtype_block_elements((int)weight->type));
    }
    return largest;
}

static bool can_share(const struct widths *w, int ranks) {
    return w->H % ranks == 0 && w->G % ranks == 0 && w->F % ranks == 0 &&
           w->mixed / ranks % w->o_block == 0 && w->F / ranks % w->down_block == 0;
}

static enum status refuse(const struct widths *w, int ranks, struct err *err) {
    struct buf possible = {0};
    for (int n = 1, last = 0; n <= MAX_RANKS && n <= w->G; n++) {
        if (!can_share(w, n)) continue;
        buf_printf(&possible, "%s%d", last ? ", " : "", n);
        last = n;
    }
    enum status status = err_set(
        err, STATUS_USAGE, "tensor-parallel-size",
        "--tensor-parallel-size %d does not divide this model: %d query heads, %d key-value "
        "heads, attention's output of %d in blocks of %d, an MLP of %d in blocks of %d; "
        "possible: %s",
        ranks, w->H, w->G, w->mixed, w->o_block, w->F, w->down_block, possible.data);
    buf_free(&possible);
    return status;
}

enum status shard_check(const struct model_info *info, const struct weights *weights, int ranks,
                        struct err *err) {
    if (ranks < 1 || ranks > MAX_RANKS)
        return err_set(err, STATUS_USAGE, "tensor-parallel-size",
                       "--tensor-parallel-size %d is out of range; 1 to %d is possible", ranks,
                       MAX_RANKS);
    struct widths w = {.H = info->H, .G = info->G, .F = info->F, .mixed = info->H * info->D};
    w.o_block = largest_block(weights, "attn_output", info->L);
    w.down_block = largest_block(weights, "ffn_down", info->L);
    return ranks == 1 || can_share(&w, ranks) ? STATUS_OK : refuse(&w, ranks, err);
}

struct model_info shard_info(const struct model_info *info, int ranks) {
    struct model_info part = *info;
    assert(part.H % ranks == 0 && part.G % ranks == 0 && part.F % ranks == 0);
    part.H /= ranks;
    part.G /= ranks;
    part.F /= ranks;
    return part;
}

/* ---- cutting -------------------------------------------------------------------------------- */

void piece_cut(struct piece *piece, struct shard shard, enum split split, enum dtype type, int N,
               int K, const void *rows) {
    size_t row_bytes = dtype_bytes(type, (size_t)K), rank = (size_t)shard.rank;
    *piece = (struct piece){.N = N, .K = K, .rows = rows};
    if (shard.ranks == 1 || split == SPLIT_NONE) return;
    if (split == SPLIT_OUTPUTS) {
        assert(N % shard.ranks == 0);
        piece->N = N / shard.ranks;
        piece->rows = (const char *)rows + rank * (size_t)piece->N * row_bytes;
        return;
    }
    assert(K % (shard.ranks * dtype_block_elements((int)type)) == 0);
    piece->K = K / shard.ranks;
    size_t bytes = dtype_bytes(type, (size_t)piece->K);
    piece->bytes = (size_t)N * bytes;
    piece->rows = piece->made = mem_large(piece->bytes);
    for (size_t n = 0; n < (size_t)N; n++)
        memcpy((char *)piece->made + n * bytes, (const char *)rows + n * row_bytes + rank * bytes,
               bytes);
}

void piece_free(struct piece *piece) {
    mem_large_free(piece->made, piece->bytes);
}
