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
enum { N_WIDTHS = 7 };
struct widths {
    int H, G;    /* heads of attention; 0: ranks do not share them */
    int G_eagle; /* key-value heads of an EAGLE-3 head, which divide its query heads */
    int Hk;      /* key heads or groups of recurrent layers */
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
 * divisor. Latent attention has one key head, which every rank has. An EAGLE-3 head has widths of
 * its own: its tensors are not in the model's blocks. */
static struct widths common_widths(const struct model_config *config) {
    const int L = config->L - config->eagle.is_used;
    struct widths w = {.H = config->lacks_attention ? 0 : config->H};
    if (config->eagle.is_used) w.G_eagle = config->layer[L].heads.G;
    for (int i = 0; i < L; i++) {
        w.of[1].n = common(w.of[1].n, config_width(config, i));
        if (!config_attends(config, i)) continue;
        w.of[0].n = common(w.of[0].n, config_mixed_width(config, i));
        if (!config->latent.is_used) w.G = common(w.G, config_heads(config, i).G);
    }
    return w;
}

/* The width of the blocks of value heads that ranks share: see shard_division. */
static int value_width(const struct model_config *config) {
    const struct state_config *s = &config->state;
    return s->kind == STATE_CONV ? 0 : (s->tiles ? s->Hk : s->Hv) * s->dv;
}

static struct widths widths_of(const struct model_config *config, const struct weights *weights) {
    const struct expert_config *e = &config->experts;
    const bool has_mlp = config_has_mlps(config), has_states = config->C > 0;
    const bool is_conv = config->state.kind == STATE_CONV, is_eagle = config->eagle.is_used;
    struct widths w = common_widths(config);
    struct {
        const char *what;
        int n;
        enum role role;
        int quantum;
    } all[N_WIDTHS] = {
        {"attention's output", w.of[0].n, ROLE_O, 1},
        {"an MLP", has_mlp ? w.of[1].n : 0, ROLE_DOWN, 1},
        {"the MLP of the EAGLE-3 head", is_eagle ? config->layer[config->L - 1].F : 0, N_ROLES, 1},
        {"experts", e->F, ROLE_EXPERTS_DOWN, EXPERT_QUANTUM},
        {"a shared expert", e->F_shared, ROLE_SHARED_DOWN, EXPERT_QUANTUM},
        {"channels of a convolution", has_states && is_conv ? config->C : 0, ROLE_CONV_OUT, 1},
        {"value heads of a recurrent layer", has_states ? value_width(config) : 0,
         config->state.by_channel ? ROLE_O : ROLE_STATE_OUT, 1}};
    w.Hk = has_states && !is_conv ? config->state.Hk : 0;
    for (int i = 0; i < N_WIDTHS; i++) {
        const bool has_blocks = all[i].n > 0 && all[i].role < N_ROLES;
        int block = has_blocks ? largest_block(weights, all[i].role, config) : 1;
        if (block < all[i].quantum) block = all[i].quantum;
        w.of[i] = (struct width){all[i].what, all[i].n, block};
    }
    return w;
}

static bool can_share(const struct widths *w, int ranks) {
    assert(ranks > 0);
    bool divides =
        w->H % ranks == 0 && w->G_eagle % ranks == 0 && w->G % ranks == 0 && w->Hk % ranks == 0;
    for (int i = 0; i < N_WIDTHS; i++)
        divides = divides && w->of[i].n % ranks == 0 && w->of[i].n / ranks % w->of[i].block == 0;
    return divides;
}

static enum status refuse(const struct widths *w, int ranks, struct err *err) {
    struct buf possible = {0};
    for (int n = 1, last = 0; n <= MAX_RANKS; n++) {
        if (!can_share(w, n)) continue;
        buf_printf(&possible, "%s%d", last ? ", " : "", n);
        last = n;
    }
    struct buf widths = {0};
    if (w->H) buf_printf(&widths, "%d query heads, ", w->H);
    if (w->G) buf_printf(&widths, "%d key-value heads, ", w->G);
    if (w->G_eagle) buf_printf(&widths, "%d key-value heads of the EAGLE-3 head, ", w->G_eagle);
    if (w->Hk) buf_printf(&widths, "%d key heads or groups of recurrent layers, ", w->Hk);
    for (const struct width *each = w->of; each < w->of + N_WIDTHS; each++)
        if (each->n)
            buf_printf(&widths, "%s of %d in blocks of %d, ", each->what, each->n, each->block);
    assert(widths.length > 2);
    widths.data[widths.length - 2] = '\0';
    enum status status = err_set(err, STATUS_USAGE, "tensor-parallel-size",
                                 "{tensor-parallel-size} %d does not divide this model: %s; "
                                 "possible: %s",
                                 ranks, widths.data, possible.data);
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
    if (ranks > 1 && config_has(config, ROLE_Q_NORM_ALL))
        return err_set(err, STATUS_USAGE, "tensor-parallel-size",
                       "{tensor-parallel-size} %d: the model \"%s\" normalises its queries over "
                       "all heads, which several ranks cannot do; give 1",
                       ranks, config->architecture);
    struct widths w = widths_of(config, weights);
    return ranks == 1 || can_share(&w, ranks) ? STATUS_OK : refuse(&w, ranks, err);
}

/* Divides the states of recurrent layers. */
static void divide_states(struct model_config *part, int ranks) {
    struct state_config *s = &part->state;
    if (part->C == 0) return;
    assert(part->C % ranks == 0 && s->Hk % ranks == 0 && s->Hv % ranks == 0);
    part->C /= ranks;
    s->Hk /= ranks;
    s->Hv /= ranks;
}

struct model_config shard_config(const struct model_config *config, int ranks) {
    struct model_config part = *config;
    const bool has_latents = config->latent.is_used;
    assert(config->lacks_attention || part.H % ranks == 0);
    assert(config->lacks_attention || has_latents || part.G % ranks == 0);
    assert(part.experts.F % ranks == 0 && (!config_has_mlps(config) || part.F % ranks == 0));
    if (!config->lacks_attention) part.H /= ranks;
    part.eagle.H /= ranks;
    if (!config->lacks_attention && !has_latents) part.G /= ranks;
    part.F /= ranks;
    part.experts.F /= ranks;
    part.experts.F_shared /= ranks;
    part.window_heads.G /= ranks;
    part.F_readers /= ranks;
    for (int i = 0; i < part.L; i++) part.layer[i].heads.G /= ranks, part.layer[i].F /= ranks;
    divide_states(&part, ranks);
    return part;
}

/* ---- pieces --------------------------------------------------------------------------------- */

/* Does the role have a row, or a number, of each channel of a convolution before matrices? */
static bool is_of_channels(enum role role) {
    return role == ROLE_DELTA_QKV || role == ROLE_SPACE_XBC || role == ROLE_STATE_CONV ||
           role == ROLE_SPACE_CONV_BIAS;
}

/* Does the role have rows, numbers or columns of each value head of a delta rule? */
static bool is_of_value_heads(enum role role) {
    return role == ROLE_DELTA_Z || role == ROLE_DELTA_B || role == ROLE_DELTA_DT ||
           role == ROLE_STATE_DECAY || role == ROLE_STATE_DT_BIAS || role == ROLE_STATE_OUT;
}

/*     channels of a delta rule    [q of all key heads][k][v of all value heads]
 *     channels of a state space   [x of all heads][B of all groups][C]
 *
 * Tiled value heads are blocks of one head per key head, and each rank has some key heads. */
struct division shard_division(const struct model_config *config, enum role role, int size) {
    const struct role_info *info = role_info(role);
    const struct state_config *s = &config->state;
    const int keys = s->Hk * s->dk, values = s->Hv * s->dv;
    const int tiles = s->kind == STATE_DELTA && s->tiles ? s->Hv / s->Hk : 1;
    struct division d = {1, {{1, size}}};
    assert(size > 0);
    if (info->of_experts && info->split == SPLIT_OUTPUTS)
        d.run[0].n = config->experts.E, d.run[0].size = size / config->experts.E;
    if (info->of_taps) d.times = config->taps, d.run[0].size = size / config->taps;
    if (is_of_channels(role) && s->kind == STATE_DELTA)
        return (struct division){d.times, {{2, keys}, {tiles, values / tiles}}};
    if (is_of_channels(role)) return (struct division){d.times, {{1, values}, {2, keys}}};
    if (is_of_value_heads(role)) d.run[0].n = tiles, d.run[0].size = size / tiles;
    return d;
}

/* The number of rows or columns. */
static int division_size(const struct division *d) {
    int size = 0;
    for (int i = 0; i < MAX_RUNS; i++) size += d->run[i].n * d->run[i].size;
    return d->times * size;
}

/* Copies the shard's part of each block; `unit` is the bytes of `per_unit` rows or columns. */
static void copy_parts(char *to, const char *from, struct shard shard, const struct division *d,
                       size_t unit, size_t per_unit) {
    for (int t = 0; t < d->times; t++)
        for (int i = 0; i < MAX_RUNS; i++)
            for (int n = 0; n < d->run[i].n; n++) {
                const size_t block = (size_t)d->run[i].size / per_unit * unit;
                const size_t part = block / (size_t)shard.ranks;
                memcpy(to, from + (size_t)shard.rank * part, part);
                to += part, from += block;
            }
}

/* The shard's rows of each block become one matrix; those of one block stay in place. */
static void cut_rows(struct piece *piece, struct shard shard, const struct division *d,
                     size_t row_bytes, const void *rows) {
    assert(piece->N == division_size(d) && piece->N % shard.ranks == 0);
    piece->N /= shard.ranks;
    const size_t bytes = (size_t)piece->N * row_bytes;
    piece->rows = (const char *)rows + (size_t)shard.rank * bytes;
    if (d->times == 1 && d->run[0].n == 1 && d->run[1].n == 0) return;
    piece->bytes = bytes;
    piece->rows = piece->copy = mem_large(bytes);
    copy_parts(piece->copy, rows, shard, d, row_bytes, 1);
}

void piece_cut(struct piece *piece, struct shard shard, enum split split,
               const struct division *division, enum dtype type, int N, int K, const void *rows) {
    assert(shard.rank >= 0 && shard.rank < shard.ranks && N > 0 && K > 0);
    const size_t row_bytes = dtype_bytes(type, (size_t)K);
    const size_t per_block = (size_t)dtype_block_elements((int)type);
    *piece = (struct piece){.N = N, .K = K, .rows = rows};
    if (shard.ranks == 1 || (split != SPLIT_OUTPUTS && split != SPLIT_INPUTS)) return;
    if (split == SPLIT_OUTPUTS) {
        cut_rows(piece, shard, division, row_bytes, rows);
        return;
    }
    assert(K == division_size(division) && (size_t)K % ((size_t)shard.ranks * per_block) == 0);
    piece->K = K / shard.ranks;
    const size_t bytes = dtype_bytes(type, (size_t)piece->K);
    piece->bytes = (size_t)N * bytes;
    piece->rows = piece->copy = mem_large(piece->bytes);
    for (size_t n = 0; n < (size_t)N; n++)
        copy_parts((char *)piece->copy + n * bytes, (const char *)rows + n * row_bytes, shard,
                   division, dtype_bytes(type, per_block), per_block);
}

void piece_free(struct piece *piece) {
    mem_large_free(piece->copy, piece->bytes);
}
