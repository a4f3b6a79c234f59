#include "engine/models/load/weight_index.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { DATA_ALIGNMENT = 4096, MATRIX_ALIGNMENT = 64 };
const char weight_magic[8] = "PSTKWGT1";

void weight_index_free(struct weight_index *index) {
    mem_free(index->entry);
    mem_free(index->data);
    mem_free(index->sum);
    *index = (struct weight_index){0};
}

/* Returns the offset of the matrices' bytes. */
static uint64_t data_at(uint64_t n, uint64_t n_pieces) {
    uint64_t end = sizeof(struct weight_header) + n * sizeof(struct weight_entry) +
                   n_pieces * sizeof(uint64_t);
    return (end + DATA_ALIGNMENT - 1) / DATA_ALIGNMENT * DATA_ALIGNMENT;
}

/* ---- sums ----------------------------------------------------------------------------------- */

struct summed {
    const uint8_t *data;
    size_t bytes;
    uint64_t sum;
};

static void sum_piece(void *arg, int i) {
    struct summed *piece = (struct summed *)arg + i;
    piece->sum = XXH3_64bits(piece->data, piece->bytes);
}

static uint64_t pieces_of(uint64_t bytes) {
    return bytes / WEIGHT_PIECE_BYTES + (bytes % WEIGHT_PIECE_BYTES > 0);
}

/* Returns the checksums of all pieces, computed on the backend's threads; the caller frees them. */
static uint64_t *sum_pieces(struct backend *b, const struct weight_index *index) {
    struct summed *pieces = mem_calloc(index->n_pieces, sizeof *pieces), *piece = pieces;
    uint64_t *sums = mem_calloc(index->n_pieces, sizeof *sums);
    for (size_t i = 0; i < index->n; i++) {
        uint64_t bytes = index->entry[i].bytes;
        for (uint64_t at = 0; at < bytes; at += WEIGHT_PIECE_BYTES, piece++)
            *piece = (struct summed){
                index->data[i] + at,
                bytes - at < WEIGHT_PIECE_BYTES ? bytes - at : WEIGHT_PIECE_BYTES, 0};
    }
    assert(piece == pieces + index->n_pieces);
    b->device->parallel(b, sum_piece, pieces, (int)index->n_pieces);
    for (size_t i = 0; i < index->n_pieces; i++) sums[i] = pieces[i].sum;
    mem_free(pieces);
    return sums;
}

uint64_t weight_index_sum(const struct weight_index *index) {
    XXH64_hash_t entries = XXH3_64bits(index->entry, index->n * sizeof *index->entry);
    return XXH3_64bits_withSeed(index->sum, index->n_pieces * sizeof *index->sum, entries);
}

bool weight_index_is_right(const struct weight_index *index, struct backend *b) {
    uint64_t *found = sum_pieces(b, index);
    bool same = memcmp(found, index->sum, index->n_pieces * sizeof *found) == 0;
    mem_free(found);
    return same;
}

/* ---- the matrices of a model ---------------------------------------------------------------- */

struct tensors *weight_index_tensors(const struct model *model, int layer) {
    return layer < 0 ? (struct tensors *)&model->ends : &model->layers[layer];
}

/* Marks the roles with a matrix in the layer on this rank, as load.c loads them. Returns their
 * number. */
static size_t mark_matrices(const struct model *model, int layer, bool has[N_ROLES]) {
    assert(layer >= -1 && layer < model->config.L);
    size_t n = 0;
    memset(has, 0, N_ROLES * sizeof *has);
    for (enum role role = 0; role < N_ROLES; role++) {
        const struct role_info *info = role_info(role);
        bool is_kept = info->K && info->split != SPLIT_HOST;
        if (!is_kept || !config_has_in(&model->config, role, layer)) continue;
        if (info->n_parts == 0) has[role] = true;
        for (int i = 0; i < info->n_parts; i++) has[info->parts[i]] = true;
    }
    for (enum role role = 0; role < N_ROLES; role++) {
        if (role_info(role)->split == SPLIT_FIRST && model->shard.rank > 0) has[role] = false;
        n += has[role];
    }
    return n;
}

/* Does the matrix have the shape of its role? */
static bool has_shape(const struct model *model, const struct weight_entry *e) {
    const struct role_info *info = role_info((enum role)e->role);
    int64_t N = role_extent(&model->part, info->N, e->layer);
    if (info->of_experts) N *= model->part.experts.E;
    return e->N == N && e->K == role_extent(&model->part, info->K, e->layer);
}

/* Is it a matrix of the model, and are its bytes inside the file? */
static bool entry_fits(const struct model *model, const struct weight_entry *e,
                       const struct weight_header *h) {
    bool has[N_ROLES];
    if (e->layer < -1 || e->layer >= model->config.L || e->role < 0 || e->role >= N_ROLES)
        return false;
    mark_matrices(model, e->layer, has);
    return has[e->role] && has_shape(model, e) && e->at % MATRIX_ALIGNMENT == 0 && e->bytes > 0 &&
           e->bytes <= h->file_bytes && e->at >= data_at(h->n_matrices, h->n_pieces) &&
           e->at <= h->file_bytes - e->bytes;
}

static size_t count_matrices(const struct model *model) {
    bool has[N_ROLES];
    size_t n = 0;
    for (int layer = -1; layer < model->config.L; layer++) n += mark_matrices(model, layer, has);
    return n;
}

/* ---- reading -------------------------------------------------------------------------------- */

static bool header_fits(const struct weight_header *h, const struct weight_index *index,
                        const struct model *model, size_t size) {
    if (memcmp(h->magic, weight_magic, sizeof weight_magic) != 0 || h->key != index->key)
        return false;
    return h->file_bytes == size && h->n_matrices > 0 && h->n_matrices == count_matrices(model) &&
           h->n_pieces <= INT32_MAX && data_at(h->n_matrices, h->n_pieces) <= size;
}

/* Entries are sorted by layer and role, so each matrix occurs once. */
static bool is_after(const struct weight_entry *e, const struct weight_entry *before) {
    return e->layer > before->layer || (e->layer == before->layer && e->role > before->role);
}

/* Do the entries fit the model, and does each of their pieces have a checksum? */
static bool entries_fit(struct weight_index *index, const struct model *model,
                        const struct weight_header *h, const uint8_t *file) {
    uint64_t pieces = 0;
    for (size_t i = 0; i < index->n; i++) {
        const struct weight_entry *e = &index->entry[i];
        if (!entry_fits(model, e, h) || (i > 0 && !is_after(e, e - 1))) return false;
        index->data[i] = file + e->at;
        pieces += pieces_of(e->bytes);
    }
    return pieces == index->n_pieces;
}

bool weight_index_read(struct weight_index *index, const struct model *model, const void *file,
                       size_t size) {
    struct weight_header h;
    const uint8_t *at = (const uint8_t *)file + sizeof h;
    if (size < sizeof h) return false;
    memcpy(&h, file, sizeof h);
    if (!header_fits(&h, index, model, size)) return false;
    index->n = h.n_matrices, index->n_pieces = h.n_pieces;
    index->entry = mem_calloc(index->n, sizeof *index->entry);
    index->data = mem_calloc(index->n, sizeof *index->data);
    index->sum = mem_calloc(index->n_pieces, sizeof *index->sum);
    memcpy(index->entry, at, index->n * sizeof *index->entry);
    memcpy(index->sum, at + index->n * sizeof *index->entry, index->n_pieces * sizeof *index->sum);
    return weight_index_sum(index) == h.entries_sum && entries_fit(index, model, &h, file);
}

/* ---- writing -------------------------------------------------------------------------------- */

void weight_index_model(struct weight_index *index, const struct model *model) {
    size_t most = (size_t)(model->config.L + 1) * N_ROLES;
    index->entry = mem_calloc(most, sizeof *index->entry);
    index->data = mem_calloc(most, sizeof *index->data);
    for (int layer = -1; layer < model->config.L; layer++)
        for (int role = 0; role < N_ROLES; role++) {
            const struct matrix *w = weight_index_tensors(model, layer)->w[role];
            if (!w) continue;
            struct weight_entry *e = &index->entry[index->n];
            enum dtype type;
            index->data[index->n++] = model->backend->memory->matrix_data(w, &type, &e->N, &e->K);
            e->layer = layer, e->role = role, e->type = (int32_t)type;
            e->bytes = model->backend->memory->matrix_bytes(w);
            index->n_pieces += pieces_of(e->bytes);
        }
    assert(index->n == count_matrices(model));
    index->end = data_at(index->n, index->n_pieces);
    for (size_t i = 0; i < index->n; i++) {
        struct weight_entry *e = &index->entry[i];
        assert(has_shape(model, e));
        e->at = (index->end + MATRIX_ALIGNMENT - 1) / MATRIX_ALIGNMENT * MATRIX_ALIGNMENT;
        index->end = e->at + e->bytes;
    }
    index->sum = sum_pieces(model->backend, index);
}

/* Writes at an offset of the file. A gap before it is filled with zeros. */
static bool put(FILE *file, uint64_t at, const void *data, size_t bytes) {
    return fseeko(file, (off_t)at, SEEK_SET) == 0 && fwrite(data, 1, bytes, file) == bytes;
}

bool weight_index_write(FILE *file, const struct weight_index *index) {
    struct weight_header h = {.key = index->key,
                              .file_bytes = index->end,
                              .n_matrices = index->n,
                              .n_pieces = index->n_pieces,
                              .entries_sum = weight_index_sum(index)};
    size_t entries = index->n * sizeof *index->entry;
    memcpy(h.magic, weight_magic, sizeof weight_magic);
    bool good = put(file, 0, &h, sizeof h) && put(file, sizeof h, index->entry, entries) &&
                put(file, sizeof h + entries, index->sum, index->n_pieces * sizeof *index->sum);
    for (size_t i = 0; i < index->n && good; i++)
        good = put(file, index->entry[i].at, index->data[i], (size_t)index->entry[i].bytes);
    return good;
}
