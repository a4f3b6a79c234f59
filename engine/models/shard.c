#include "engine/models/shard.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* What has to be divided, and the blocks that may not be cut. */
struct widths {
    int H, G, F, mixed; /* mixed: H * D */
    int o_block, down_block;
};

/* The largest block of a role's tensors, over all layers: blocks are powers of two. A tensor that
 * is missing is reported when it is loaded. */
static int largest_block(const struct weights *weights, enum role role, int L) {
    int largest = 1;
    for (int i = 0; i < L; i++) {
        char name[ROLE_NAME_BYTES];
        role_name(name, role, i);
        const struct weight *weight = weights_lookup(weights, name);
        int block = weight ? dtype_block_elements((int)weight->type) : 1;
        if (block > largest) largest = block;
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

enum status shard_check(const struct model_config *config, const struct weights *weights, int ranks,
                        struct err *err) {
    if (ranks < 1 || ranks > MAX_RANKS)
        return err_set(err, STATUS_USAGE, "tensor-parallel-size",
                       "--tensor-parallel-size %d is out of range; 1 to %d is possible", ranks,
                       MAX_RANKS);
    if (ranks > 1 && config_has(config, ROLE_Q_NORM_ALL))
        return err_set(err, STATUS_USAGE, "tensor-parallel-size",
                       "--tensor-parallel-size %d: the model \"%s\" norms its queries over all "
                       "heads at once, which several ranks cannot do; give 1",
                       ranks, config->architecture);
    if (ranks > 1 && config->experts.is_used)
        return err_set(err, STATUS_USAGE, "tensor-parallel-size",
                       "--tensor-parallel-size %d: a model with experts cannot be shared by ranks; "
                       "leave the option out",
                       ranks);
    struct widths w = {
        .H = config->H, .G = config->G, .F = config->F, .mixed = config->H * config->D};
    w.o_block = largest_block(weights, ROLE_O, config->L);
    w.down_block = largest_block(weights, ROLE_DOWN, config->L);
    return ranks == 1 || can_share(&w, ranks) ? STATUS_OK : refuse(&w, ranks, err);
}

struct model_config shard_config(const struct model_config *config, int ranks) {
    struct model_config part = *config;
    assert(part.H % ranks == 0 && part.G % ranks == 0 && part.F % ranks == 0);
    part.H /= ranks;
    part.G /= ranks;
    part.F /= ranks;
    return part;
}

void piece_cut(struct piece *piece, struct shard shard, enum split split, enum dtype type, int N,
               int K, const void *rows) {
    assert(shard.rank >= 0 && shard.rank < shard.ranks && N > 0 && K > 0);
    size_t row_bytes = dtype_bytes(type, (size_t)K), rank = (size_t)shard.rank;
    *piece = (struct piece){.N = N, .K = K, .rows = rows};
    if (shard.ranks == 1 || (split != SPLIT_OUTPUTS && split != SPLIT_INPUTS)) return;
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
    piece->rows = piece->copy = mem_large(piece->bytes);
    for (size_t n = 0; n < (size_t)N; n++)
        memcpy((char *)piece->copy + n * bytes, (const char *)rows + n * row_bytes + rank * bytes,
               bytes);
}

void piece_free(struct piece *piece) {
    mem_large_free(piece->copy, piece->bytes);
}
