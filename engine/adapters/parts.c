/* The parts of an adapter: the pairs of a file, checked against the model's matrices, in the
 * model's order of rows. Pairs of 16-bit floats stay as they are, all others become float32. If
 * ranks share the model, each gets an adapter of its own, whose parts are cut as its matrices are:
 * for matrices with some of the rows, a whole and these rows of b; for matrices with some of the
 * columns, these columns of a and b whole.
 *
 * A fused tensor (q, k and v in one, or gate and up) becomes a part for each matrix. They share a,
 * and each has its rows of b:
 *
 *     file    a [rank][K]   b [N_q + N_k + N_v][rank]
 *     parts   q: a, b of rows 0..      k: a, b of the next N_k rows      v: a, b of the last rows
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "engine/adapters/internal.h"

/* ---- pairs ---------------------------------------------------------------------------------- */

static enum status refuse_role(const struct adapter_file *file, const struct weight *weight,
                               enum role role) {
    const char *what = "a part of the model that adapters cannot change here";
    if (role == ROLE_TOKEN_EMBEDDING || role == ROLE_POSITION_EMBEDDING)
        what = "the embedding, which adapters cannot change here";
    else if (role == ROLE_OUTPUT)
        what = "the head, which adapters cannot change here";
    else if (role >= ROLE_ROUTER)
        what = "experts or their router, which adapters cannot change here";
    return err_set(file->err, STATUS_BAD_FILE, weight->name,
                   "tensor %s is for %s; train the adapter only on the projections of attention "
                   "and MLPs",
                   weight->name, what);
}

/* The matrices of a role: its own, or those of a fused tensor. */
static int roles_of(const struct model_config *config, enum role role, enum role out[MAX_PARTS]) {
    const int n = role_parts(config, role, out);
    if (n == 0) out[0] = role;
    return n > 0 ? n : 1;
}

static bool can_adapt(const struct model *model, enum role role, int layer) {
    enum role roles[MAX_PARTS];
    int n = roles_of(&model->config, role, roles);
    for (int i = 0; i < n; i++)
        if (!model_adapts(model, roles[i], layer)) return false;
    return true;
}

enum status pair_add(struct adapter_file *file, const struct weight *weight, char half,
                     enum role role, int layer, float scale) {
    const struct model *model = file->model;
    assert((half == 'a' || half == 'b') && layer < model->config.L);
    if (role == N_ROLES)
        return err_set(file->err, STATUS_BAD_FILE, weight->name,
                       "tensor %s is not of the model \"%s\" (%s, %d layers): the adapter was made "
                       "for another base model",
                       weight->name, model->config.name, model->config.architecture,
                       model->config.L);
    /* the model does not use the keys and values of such a layer */
    if (layer >= 0 && config_ignores(&model->config, role, layer)) return STATUS_OK;
    if (!can_adapt(model, role, layer)) return refuse_role(file, weight, role);
    struct low_rank_pair *pair = &file->pairs[(size_t)layer * N_ROLES + role];
    const struct weight **to = half == 'a' ? &pair->a : &pair->b;
    if (*to)
        return err_set(file->err, STATUS_BAD_FILE, weight->name,
                       "tensors %s and %s are for the same projection; expected one", (*to)->name,
                       weight->name);
    *to = weight;
    pair->scale = scale;
    return STATUS_OK;
}

/* ---- checks --------------------------------------------------------------------------------- */

/* Rows of a pair that become one part. */
struct matrix_slice {
    const struct low_rank_pair *pair;
    enum role role, of; /* the part's; the file's tensor, which may be fused */
    int layer;
    int first, N; /* rows of b, in the model's order */
    int all, K;   /* rows of b, and columns of a, in the file */
    int from_K;   /* the rank's columns of a: [from_K, from_K + part_K) */
    int part_K;
    bool has_a; /* the part stores a, which the next slices of its pair share */
};

static enum status check_half(const struct adapter_file *file, const struct weight *weight,
                              const char *half, int64_t row, int64_t rows) {
    if (weight->n_dims <= 2 && weight->dim[0] == row && weight->dim[1] == rows) return STATUS_OK;
    return err_set(file->err, STATUS_BAD_FILE, weight->name,
                   "tensor %s: expected %" PRId64 " rows of %" PRId64 " numbers (matrix %s), found "
                   "%" PRId64 " of %" PRId64
                   ": the adapter was made for another base model, or the "
                   "file is broken",
                   weight->name, rows, row, half, weight->dim[1], weight->dim[0]);
}

static enum status check_pair(const struct adapter_file *file, const struct low_rank_pair *pair,
                              enum role role, int layer, const struct adapter_limits *limits) {
    const struct model_config *config = &file->model->config;
    const struct role_info *info = role_info(role);
    if (!pair->a || !pair->b) {
        const struct weight *found = pair->a ? pair->a : pair->b;
        return err_set(file->err, STATUS_BAD_FILE, found->name,
                       "tensor %s has no partner: a projection needs both matrices, A and B",
                       found->name);
    }
    int64_t rank = pair->a->n_dims <= 2 ? pair->a->dim[1] : 0;
    if (rank < 1 || rank > MAX_ADAPTER_RANK)
        return err_set(file->err, STATUS_BAD_FILE, pair->a->name,
                       "tensor %s has rank %" PRId64 "; ranks from 1 to %d are served",
                       pair->a->name, rank, (int)MAX_ADAPTER_RANK);
    if (rank > limits->rank)
        return err_set(file->err, STATUS_USAGE, "max-lora-rank",
                       "tensor %s has rank %" PRId64 ", more than {max-lora-rank} %d; give "
                       "{max-lora-rank} %" PRId64 " at start-up",
                       pair->a->name, rank, limits->rank, rank);
    enum status status = check_half(file, pair->a, "A", role_extent(config, info->K, layer), rank);
    if (!status) status = check_half(file, pair->b, "B", rank, role_extent(config, info->N, layer));
    if (!status && !isfinite(pair->scale))
        status =
            err_set(file->err, STATUS_BAD_FILE, pair->a->name,
                    "tensor %s has a scale that is not finite; check its alpha", pair->a->name);
    return status;
}

/* Reduces a slice to a rank's part of it. */
static void cut_slice(struct matrix_slice *slice, struct shard shard) {
    const enum split split = role_info(slice->role)->split;
    if (split == SPLIT_OUTPUTS) {
        assert(slice->N % shard.ranks == 0);
        slice->N /= shard.ranks;
        slice->first += shard.rank * slice->N;
    } else if (split == SPLIT_INPUTS) {
        assert(slice->K % shard.ranks == 0);
        slice->part_K = slice->K / shard.ranks;
        slice->from_K = shard.rank * slice->part_K;
    } else {
        assert(shard.ranks == 1 || split == SPLIT_NONE);
    }
}

/* Fills slice[MAX_PARTS] with the whole parts of a pair. Returns their number. */
static int slice_pair(struct matrix_slice *slice, const struct adapter_file *file,
                      const struct low_rank_pair *pair, enum role role, int layer) {
    const struct model_config *config = &file->model->config;
    enum role roles[MAX_PARTS];
    int n = roles_of(config, role, roles), first = 0;
    for (int i = 0; i < n; i++, first += slice[i - 1].N)
        slice[i] = (struct matrix_slice){.pair = pair,
                                         .role = roles[i],
                                         .of = role,
                                         .layer = layer,
                                         .first = first,
                                         .N = role_extent(config, role_info(roles[i])->N, layer),
                                         .all = (int)pair->b->dim[1],
                                         .K = (int)pair->a->dim[0],
                                         .part_K = (int)pair->a->dim[0],
                                         .has_a = i == 0};
    assert(first == pair->b->dim[1]);
    return n;
}

/* ---- numbers -------------------------------------------------------------------------------- */

/* An adapter being made. */
struct parts_making {
    const struct adapter_file *file;
    struct shard shard; /* the rank whose parts are made */
    struct adapter *adapter;
    int capacity;
    int64_t bytes; /* of `numbers`, then those that are used */
    float *rows;   /* scratch for one matrix of a pair */
    int64_t most_rows;
};

/* Calls fn for every slice of the file. */
static enum status each_slice(struct parts_making *m,
                              enum status (*fn)(struct parts_making *m,
                                                const struct matrix_slice *slice)) {
    const struct model_config *config = &m->file->model->config;
    enum status status = STATUS_OK;
    for (int layer = 0; layer < config->L; layer++)
        for (enum role role = 0; role < N_ROLES && !status; role++) {
            const struct low_rank_pair *pair = &m->file->pairs[(size_t)layer * N_ROLES + role];
            struct matrix_slice slices[MAX_PARTS];
            if (!pair->a) continue;
            int n = slice_pair(slices, m->file, pair, role, layer);
            for (int i = 0; i < n && !status; i++) {
                cut_slice(&slices[i], m->shard);
                status = fn(m, &slices[i]);
            }
        }
    return status;
}

/* The type in which both matrices are kept. */
static enum dtype type_of(const struct low_rank_pair *pair) {
    const enum dtype type = pair->a->type;
    const bool is_short = type == DTYPE_F16 || type == DTYPE_BF16;
    return is_short && pair->b->type == type ? type : DTYPE_F32;
}

/* The bytes of a matrix in an adapter's numbers. */
static int64_t matrix_bytes(const struct low_rank_pair *pair, int64_t numbers) {
    const int64_t bytes = (int64_t)dtype_bytes(type_of(pair), (size_t)numbers);
    return (bytes + ADAPTER_ALIGN - 1) / ADAPTER_ALIGN * ADAPTER_ALIGN;
}

static enum status count_slice(struct parts_making *m, const struct matrix_slice *slice) {
    const int64_t rank = slice->pair->a->dim[1];
    m->capacity++;
    m->bytes += matrix_bytes(slice->pair, (int64_t)low_rank_numbers((int)rank, slice->N));
    m->bytes += slice->has_a ? matrix_bytes(slice->pair, rank * slice->part_K) : 0;
    m->most_rows = max_int64(m->most_rows, rank * max_int(slice->all, slice->K));
    return STATUS_OK;
}

/* Returns the row of the file's B that is row n of a slice. Files may keep the rows of fused
 * queries, keys and values in groups, and the pairs of a rotated head in another order. */
static int64_t row_of(const struct adapter_file *file, const struct matrix_slice *slice, int n) {
    const struct model_config *config = &file->model->config;
    const struct folder_style *style = &model_family_called(config->architecture)->folder;
    const struct kv_heads heads = config_heads(config, slice->layer);
    const bool turns = slice->role == ROLE_Q || slice->role == ROLE_K;
    const enum rope_layout from = adapter_layout(file), to = config->rope.layout;
    if (turns && config->rope.is_used && config->rope.D_rope > 0 && from != to) {
        int D = config->rope.D_rope, head = n / heads.D * heads.D, d = n % heads.D;
        if (d < D && to == ROPE_ADJACENT)
            d = d / 2 + d % 2 * (D / 2);
        else if (d < D)
            d = d % (D / 2) * 2 + d / (D / 2);
        n = head + d;
    }
    const int64_t row = slice->first + n;
    struct weight grouped = {.n_dims = 2, .dim = {slice->K, slice->all}};
    grouped.groups = role_groups(config, slice->of, slice->layer, grouped.group_rows);
    if (!file->in_gguf && style->groups_qkv && slice->of == ROLE_QKV) {
        const int rows[] = {config->H / heads.G * heads.D, heads.D, heads.D};
        grouped.groups = heads.G;
        memcpy(grouped.group_rows, rows, sizeof rows);
    }
    return grouped.groups > 0 ? weight_ungrouped_row(&grouped, row) : row;
}

static enum status read_finite(const struct parts_making *m, const struct weight *weight,
                               float *out) {
    dequantise(weight->type, weight->data, out, (size_t)weight->n_elements);
    for (int64_t i = 0; i < weight->n_elements; i++)
        if (!isfinite(out[i]))
            return err_set(m->file->err, STATUS_BAD_FILE, weight->name,
                           "tensor %s: number %" PRId64 " is not finite; the adapter is broken",
                           weight->name, i);
    return STATUS_OK;
}

/* A matrix as it is kept: numbers of `element` bytes. `rows` are the file's, or m->rows. */
struct kept_matrix {
    const uint8_t *rows;
    size_t element;
};

static struct kept_matrix kept_of(const struct parts_making *m, const struct matrix_slice *slice,
                                  const struct weight *weight) {
    const enum dtype type = type_of(slice->pair);
    const void *rows = type == DTYPE_F32 ? (const void *)m->rows : weight->data;
    return (struct kept_matrix){rows, dtype_bytes(type, 1)};
}

/* Copies the rank's columns of a. */
static void copy_a(const struct matrix_slice *slice, struct kept_matrix from, uint8_t *to) {
    const size_t rank = (size_t)slice->pair->a->dim[1], n = (size_t)slice->part_K * from.element;
    assert(slice->from_K + slice->part_K <= slice->K);
    for (size_t r = 0; r < rank; r++) {
        const size_t first = r * (size_t)slice->K + (size_t)slice->from_K;
        memcpy(to + r * n, from.rows + first * from.element, n);
    }
}

/* Copies the slice's rows of b as panels. */
static void copy_b(const struct parts_making *m, const struct matrix_slice *slice,
                   struct kept_matrix from, uint8_t *to) {
    const int rank = (int)slice->pair->a->dim[1];
    for (int n = 0; n < slice->N; n++) {
        const size_t row = (size_t)row_of(m->file, slice, n) * (size_t)rank;
        for (int r = 0; r < rank; r++)
            memcpy(to + low_rank_at(rank, n, r) * from.element,
                   from.rows + (row + (size_t)r) * from.element, from.element);
    }
}

/* Returns room for a matrix in the adapter's numbers. */
static uint8_t *take_room(struct parts_making *m, const struct low_rank_pair *pair,
                          int64_t numbers) {
    uint8_t *room = m->adapter->numbers + m->bytes;
    m->bytes += matrix_bytes(pair, numbers);
    assert(m->bytes <= m->adapter->bytes);
    return room;
}

static enum status make_a(struct parts_making *m, const struct matrix_slice *slice,
                          struct low_rank *low) {
    const struct low_rank_pair *pair = slice->pair;
    enum status status = read_finite(m, pair->a, m->rows);
    if (status) return status;
    uint8_t *to = take_room(m, pair, pair->a->dim[1] * slice->part_K);
    copy_a(slice, kept_of(m, slice, pair->a), to);
    low->a = to;
    return read_finite(m, pair->b, m->rows);
}

static enum status make_part(struct parts_making *m, const struct matrix_slice *slice) {
    struct adapter *adapter = m->adapter;
    const struct low_rank_pair *pair = slice->pair;
    const int rank = (int)pair->a->dim[1];
    struct adapter_part *part = &adapter->part[adapter->n++];
    assert(adapter->n <= m->capacity);
    *part = (struct adapter_part){slice->layer, slice->role, {.rank = rank, .scale = pair->scale}};
    part->low.type = type_of(pair);
    if (!slice->has_a) part->low.a = part[-1].low.a; /* m->rows are still those of b */
    enum status status = slice->has_a ? make_a(m, slice, &part->low) : STATUS_OK;
    if (status) return status;
    uint8_t *b = take_room(m, pair, (int64_t)low_rank_numbers(rank, slice->N));
    copy_b(m, slice, kept_of(m, slice, pair->b), b);
    part->low.b_panels = b;
    adapter->rank = max_int(adapter->rank, rank);
    return STATUS_OK;
}

static enum status check_pairs(const struct adapter_file *file,
                               const struct adapter_limits *limits) {
    const int L = file->model->config.L;
    enum status status = STATUS_OK;
    int n = 0;
    for (int layer = 0; layer < L; layer++)
        for (enum role role = 0; role < N_ROLES && !status; role++) {
            const struct low_rank_pair *pair = &file->pairs[(size_t)layer * N_ROLES + role];
            if (!pair->a && !pair->b) continue;
            status = check_pair(file, pair, role, layer, limits);
            n++;
        }
    if (status || n > 0) return status;
    return err_set(file->err, STATUS_BAD_FILE, "lora_path",
                   "the adapter has no tensors for this model");
}

static enum status check_apart(const struct adapter_file *file) {
    /* a fused tensor and one of its parts would both change a matrix */
    const int L = file->model->config.L;
    for (int layer = 0; layer < L; layer++)
        for (enum role role = 0; role < N_ROLES; role++) {
            const struct low_rank_pair *pairs = &file->pairs[(size_t)layer * N_ROLES];
            enum role parts[MAX_PARTS];
            int n = role_parts(&file->model->config, role, parts);
            for (int i = 0; i < n && pairs[role].a; i++)
                if (pairs[parts[i]].a)
                    return err_set(file->err, STATUS_BAD_FILE, pairs[role].a->name,
                                   "tensors %s and %s change the same matrix; expected one",
                                   pairs[role].a->name, pairs[parts[i]].a->name);
        }
    return STATUS_OK;
}

/* Makes the adapter of m->shard. */
static enum status make_shard(struct parts_making *m, int64_t bytes, struct adapter **out) {
    m->adapter = *out = adapter_new(m->capacity, bytes);
    if (!m->adapter) return err_out_of_memory(m->file->err);
    m->bytes = 0;
    enum status status = each_slice(m, make_part);
    assert(status || m->bytes == bytes);
    return status;
}

static enum status make_shards(struct parts_making *m, int ranks, struct adapter **out) {
    const int64_t bytes = m->bytes; /* all ranks have as many */
    enum status status = STATUS_OK;
    m->rows = mem_try_calloc((size_t)m->most_rows, sizeof *m->rows);
    if (!m->rows) status = err_out_of_memory(m->file->err);
    for (int r = 0; r < ranks && !status; r++) {
        m->shard.rank = r;
        status = make_shard(m, bytes, &out[r]);
    }
    mem_free(m->rows);
    for (int r = 0; r < ranks && status; r++) {
        adapter_free(out[r]);
        out[r] = NULL;
    }
    return status;
}

enum status parts_make(struct adapter **out, const struct adapter_file *file,
                       const struct adapter_limits *limits) {
    const int ranks = file->model->shard.ranks;
    struct parts_making m = {.file = file, .shard = {0, ranks}};
    enum status status = check_pairs(file, limits);
    if (!status) status = check_apart(file);
    if (status) return status;
    each_slice(&m, count_slice);
    const int64_t bytes = ranks * m.bytes;
    if (bytes > limits->bytes)
        return err_set(file->err, STATUS_USAGE, "lora-memory",
                       "the adapter takes %" PRId64 " KiB, and %" PRId64
                       " KiB of {lora-memory} are "
                       "left; unload another one, or give more at start-up",
                       bytes >> 10, limits->bytes >> 10);
    return make_shards(&m, ranks, out);
}
