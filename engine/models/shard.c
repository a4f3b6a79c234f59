#include "engine/models/shard.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "kernels/backend.h"

/* A width that ranks share, in blocks that must stay whole. */
struct width {
    const char *what;
    int n, block;
};

/* Everything that must divide by the number of ranks. */
enum { N_WIDTHS = 4 };
struct widths {
    int H, G;
    struct width of[N_WIDTHS];
};

/* Returns the largest block of a role's tensors, over all layers: blocks are powers of two. Loading
 * reports missing tensors. */
static int largest_block(const struct weights *weights, enum role role,
                         const struct model_config *config) {
    int largest = 1;
    for (int i = 0; i < config->L; i++) {
        char name[ROLE_NAME_BYTES];
        role_name(name, role, i);
        const struct weight *weight = weights_lookup(weights, name);
        if (!weight && role_info(role)->of_experts) {
            role_piece_name(name, role, i, 0);
            weight = weights_lookup(weights, name);
        }
        int block = weight ? dtype_block_elements((int)weight->type) : 1;
        if (block > largest) largest = block;
    }
    return largest;
}

/* Returns the greatest common divisor; b if a is 0. */
static int common(int a, int b) {
    while (a != 0) {
        int rest = b % a;
        b = a;
        a = rest;
    }
    return b;
}

/* Returns the widths of attention and MLPs over all layers; if layers differ, their common
 * divisor. */
static struct widths common_widths(const struct model_config *config) {
    struct widths w = {.H = config->H};
    for (int i = 0; i < config->L; i++) {
        struct kv_heads heads = config_heads(config, i);
        w.G = common(w.G, heads.G);
        w.of[0].n = common(w.of[0].n, config->H * heads.D);
        w.of[1].n = common(w.of[1].n, config_width(config, i));
    }
    return w;
}

static struct widths widths_of(const struct model_config *config, const struct weights *weights) {
    const struct expert_config *e = &config->experts;
    bool has_mlp = config_has_mlps(config);
    struct widths w = common_widths(config);
    struct {
        const char *what;
        int n;
        enum role role;
        int quantum;
    } all[N_WIDTHS] = {{"attention's output", w.of[0].n, ROLE_O, 1},
                       {"an MLP", has_mlp ? w.of[1].n : 0, ROLE_DOWN, 1},
                       {"experts", e->F, ROLE_EXPERTS_DOWN, EXPERT_QUANTUM},
                       {"a shared expert", e->F_shared, ROLE_SHARED_DOWN, EXPERT_QUANTUM}};
    for (int i = 0; i < N_WIDTHS; i++) {
        int block = all[i].n ? largest_block(weights, all[i].role, config) : 1;
        if (block < all[i].quantum) block = all[i].quantum;
        w.of[i] = (struct width){all[i].what, all[i].n, block};
    }
    return w;
}

static bool can_share(const struct widths *w, int ranks) {
    assert(ranks > 0);
    bool divides = w->H % ranks == 0 && w->G % ranks == 0;
    for (int i = 0; i < N_WIDTHS; i++)
        divides = divides && w->of[i].n % ranks == 0 && w->of[i].n / ranks % w->of[i].block == 0;
    return divides;
}

static enum status refuse(const struct widths *w, int ranks, struct err *err) {
    struct buf possible = {0};
    for (int n = 1, last = 0; n <= MAX_RANKS && n <= w->G; n++) {
        if (!can_share(w, n)) continue;
        buf_printf(&possible, "%s%d", last ? ", " : "", n);
        last = n;
    }
    struct buf widths = {0};
    for (const struct width *each = w->of; each < w->of + N_WIDTHS; each++)
        if (each->n)
            buf_printf(&widths, ", %s of %d in blocks of %d", each->what, each->n, each->block);
    enum status status =
        err_set(err, STATUS_USAGE, "tensor-parallel-size",
                "{tensor-parallel-size} %d does not divide this model: %d query heads, %d "
                "key-value heads%s; possible: %s",
                ranks, w->H, w->G, widths.data, possible.data);
    buf_free(&possible);
    buf_free(&widths);
    return status;
}

enum status shard_check(const struct model_config *config, const struct weights *weights, int ranks,
                        struct err *err) {
    if (ranks < 1 || ranks > MAX_RANKS)
        return err_set(err, STATUS_USAGE, "tensor-parallel-size",
                       "{tensor-parallel-size} %d is out of range; 1 to %d is possible", ranks,
                       MAX_RANKS);
    if (ranks > 1 && config->C > 0)
        return err_set(err, STATUS_USAGE, "tensor-parallel-size",
                       "{tensor-parallel-size} %d: the model \"%s\" has recurrent layers, which "
                       "several ranks cannot share; give 1",
                       ranks, config->architecture);
    if (ranks > 1 && config->latent.is_used)
        return err_set(err, STATUS_USAGE, "tensor-parallel-size",
                       "{tensor-parallel-size} %d: the model \"%s\" has latent attention, which "
                       "several ranks cannot share; give 1",
                       ranks, config->architecture);
    if (ranks > 1 && config_has(config, ROLE_Q_NORM_ALL))
        return err_set(err, STATUS_USAGE, "tensor-parallel-size",
                       "{tensor-parallel-size} %d: the model \"%s\" normalises its queries over "
                       "all heads, which several ranks cannot do; give 1",
                       ranks, config->architecture);
    struct widths w = widths_of(config, weights);
    return ranks == 1 || can_share(&w, ranks) ? STATUS_OK : refuse(&w, ranks, err);
}

struct model_config shard_config(const struct model_config *config, int ranks) {
    struct model_config part = *config;
    assert(part.H % ranks == 0 && part.G % ranks == 0 && part.experts.F % ranks == 0);
    assert(!config_has_mlps(config) || part.F % ranks == 0);
    part.H /= ranks;
    part.G /= ranks;
    part.F /= ranks;
    part.experts.F /= ranks;
    part.experts.F_shared /= ranks;
    part.window_heads.G /= ranks;
    part.F_readers /= ranks;
    for (int i = 0; i < part.L; i++) part.layer[i].heads.G /= ranks, part.layer[i].F /= ranks;
    return part;
}

/* The shard's rows of each block become one matrix. */
static void cut_blocks(struct piece *piece, struct shard shard, int blocks, size_t row_bytes,
                       const void *rows) {
    assert(piece->N % (blocks * shard.ranks) == 0);
    size_t block = (size_t)(piece->N / blocks) * row_bytes, part = block / (size_t)shard.ranks;
    piece->N /= shard.ranks;
    piece->rows = (const char *)rows + (size_t)shard.rank * part;
    if (blocks == 1) return;
    piece->bytes = (size_t)blocks * part;
    piece->copy = mem_large(piece->bytes);
    for (size_t i = 0; i < (size_t)blocks; i++)
        memcpy((char *)piece->copy + i * part, (const char *)piece->rows + i * block, part);
    piece->rows = piece->copy;
}

void piece_cut(struct piece *piece, struct shard shard, enum split split, int blocks,
               enum dtype type, int N, int K, const void *rows) {
    assert(shard.rank >= 0 && shard.rank < shard.ranks && N > 0 && K > 0);
    size_t row_bytes = dtype_bytes(type, (size_t)K), rank = (size_t)shard.rank;
    *piece = (struct piece){.N = N, .K = K, .rows = rows};
    if (shard.ranks == 1 || (split != SPLIT_OUTPUTS && split != SPLIT_INPUTS)) return;
    if (split == SPLIT_OUTPUTS) {
        cut_blocks(piece, shard, blocks, row_bytes, rows);
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
