/* DESIGN: matrices that are laid out once.
 *
 * A start spends its time on memory that the system zeroes and on weights that are laid out anew;
 * both give the same bytes every time. The file holds those bytes as they lie in memory, so it is
 * mapped read-only: processes that serve the same model share its pages, and they stay in memory
 * between two starts for as long as nothing else needs it.
 *
 *   file      header, matrices, sums of pieces, padding, the matrices' bytes, each 64-byte aligned
 *
 * The file has its name only when it is whole. It is not forced to the disk: pieces of 4 MiB have
 * sums, which every start compares, on all threads; that also brings the pages in. A file that a
 * crash, a full disk or another program has damaged is written again; one that is cut short while
 * it is mapped ends the process with a sentence (engine/files/mapping.h).
 *
 * The name has a stamp of the model's files. It is taken just before they are opened, and compared
 * before a file is taken and after the weights are loaded: otherwise a model that replaces another
 * one meanwhile would be kept with the weights of the other.
 */
#include "engine/models/weight_cache.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { PIECE_BYTES = 4 << 20, DATA_ALIGNMENT = 4096, MATRIX_ALIGNMENT = 64 };
static const char magic[8] = "PSTKWGT1";

struct header {
    char magic[8];
    uint64_t key;                                         /* of all that the bytes depend on */
    uint64_t file_bytes, n_matrices, n_pieces, index_sum; /* of what stands between it and bytes */
};

/* One matrix: where it belongs, what it is, and where its bytes are in the file. */
struct entry {
    int32_t layer, role; /* layer -1: of none */
    int32_t type, N, K, unused;
    uint64_t at, bytes;
};

/* What is kept of a model, or found in a file. */
struct index {
    uint64_t key;
    size_t n, n_pieces;
    struct entry *entry;  /* [n] */
    const uint8_t **data; /* [n] where their bytes are in memory */
    uint64_t *sum;        /* [n_pieces] of their pieces, matrix after matrix */
    uint64_t end;         /* of the file */
};

/* ---- names ---------------------------------------------------------------------------------- */

static uint64_t key_of(const struct model *model, const struct engine_config *settings) {
    struct build_info build = build_info();
    struct buf key = {0};
    buf_printf(&key, "%s %s %.8s %" PRIu64 " %d %d %d of %d, %d roles", build.version, build.commit,
               magic, model->config.stamp, (int)settings->dtype, (int)settings->quantization,
               model->shard.rank, model->shard.ranks, (int)N_ROLES);
    uint64_t hash = XXH3_64bits(key.data, key.length);
    buf_free(&key);
    return hash;
}

/* The caller frees it. */
static char *path_of(const struct engine_config *settings, uint64_t key) {
    char name[MODEL_NAME_BYTES];
    struct buf path = {0};
    model_path_name(name, settings->model);
    for (char *c = name; *c; c++)
        if (*c == '/') *c = '_';
    buf_printf(&path, "%s/%s-%016" PRIx64 ".weights", settings->weight_cache, name, key);
    return path.data;
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

static size_t pieces_of(uint64_t bytes) {
    return (size_t)((bytes + PIECE_BYTES - 1) / PIECE_BYTES);
}

/* The sums of all pieces, on the backend's threads; the caller frees them. */
static uint64_t *sum_pieces(struct backend *b, const struct index *index) {
    struct summed *pieces = mem_calloc(index->n_pieces, sizeof *pieces), *piece = pieces;
    uint64_t *sums = mem_calloc(index->n_pieces, sizeof *sums);
    for (size_t i = 0; i < index->n; i++) {
        uint64_t bytes = index->entry[i].bytes;
        for (uint64_t at = 0; at < bytes; at += PIECE_BYTES, piece++)
            *piece = (struct summed){index->data[i] + at,
                                     bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES, 0};
    }
    assert(piece == pieces + index->n_pieces);
    b->device->parallel(b, sum_piece, pieces, (int)index->n_pieces);
    for (size_t i = 0; i < index->n_pieces; i++) sums[i] = pieces[i].sum;
    mem_free(pieces);
    return sums;
}

static uint64_t sum_index(const struct index *index) {
    XXH64_hash_t entries = XXH3_64bits(index->entry, index->n * sizeof *index->entry);
    return XXH3_64bits_withSeed(index->sum, index->n_pieces * sizeof *index->sum, entries);
}

static void index_free(struct index *index) {
    mem_free(index->entry);
    mem_free(index->data);
    mem_free(index->sum);
    *index = (struct index){0};
}

/* Where the matrices' bytes begin. */
static uint64_t data_at(size_t n, size_t n_pieces) {
    uint64_t end = sizeof(struct header) + n * sizeof(struct entry) + n_pieces * sizeof(uint64_t);
    return (end + DATA_ALIGNMENT - 1) / DATA_ALIGNMENT * DATA_ALIGNMENT;
}

/* ---- taking --------------------------------------------------------------------------------- */

static struct tensors *tensors_of(const struct model *model, int layer) {
    return layer < 0 ? (struct tensors *)&model->ends : &model->layers[layer];
}

/* Is this a matrix of the model, with its bytes inside the file? */
static bool entry_fits(const struct model *model, const struct entry *e, const struct header *h) {
    return e->layer >= -1 && e->layer < model->config.L && e->role >= 0 && e->role < N_ROLES &&
           e->at % MATRIX_ALIGNMENT == 0 && e->bytes > 0 && e->bytes <= h->file_bytes &&
           e->at >= data_at(h->n_matrices, h->n_pieces) && e->at <= h->file_bytes - e->bytes;
}

/* Reads the index of a mapped file; false when it is not one that was written for this model. */
static bool index_read(struct index *index, const struct model *model, const struct mapping *file) {
    struct header h;
    const uint8_t *at = file->data + sizeof h;
    size_t most = (size_t)(model->config.L + 1) * N_ROLES;
    if (file->size < sizeof h) return false;
    memcpy(&h, file->data, sizeof h);
    if (memcmp(h.magic, magic, sizeof magic) != 0 || h.key != index->key) return false;
    if (h.file_bytes != file->size) return false;
    if (h.n_matrices == 0 || h.n_matrices > most || h.n_pieces > INT32_MAX ||
        data_at(h.n_matrices, h.n_pieces) > file->size)
        return false;
    index->n = h.n_matrices, index->n_pieces = h.n_pieces;
    index->entry = mem_calloc(index->n, sizeof *index->entry);
    index->data = mem_calloc(index->n, sizeof *index->data);
    index->sum = mem_calloc(index->n_pieces, sizeof *index->sum);
    memcpy(index->entry, at, index->n * sizeof *index->entry);
    memcpy(index->sum, at + index->n * sizeof *index->entry, index->n_pieces * sizeof *index->sum);
    size_t pieces = 0;
    bool fits = sum_index(index) == h.index_sum;
    for (size_t i = 0; i < index->n && fits; i++) {
        fits = entry_fits(model, &index->entry[i], &h);
        if (!fits) break;
        index->data[i] = file->data + index->entry[i].at;
        pieces += pieces_of(index->entry[i].bytes);
    }
    return fits && pieces == index->n_pieces;
}

static bool sums_are_right(struct backend *b, const struct index *index) {
    uint64_t *found = sum_pieces(b, index);
    bool same = memcmp(found, index->sum, index->n_pieces * sizeof *found) == 0;
    mem_free(found);
    return same;
}

static void drop_matrices(struct model *model) {
    for (int layer = -1; layer < model->config.L; layer++)
        for (int role = 0; role < N_ROLES; role++) {
            struct matrix **w = &tensors_of(model, layer)->w[role];
            if (*w) model->backend->memory->matrix_free(model->backend, *w);
            *w = NULL;
        }
    model->weight_bytes = 0;
}

/* Makes the model's matrices of the file's bytes; all of them, or none. */
static bool map_matrices(struct model *model, const struct index *index) {
    const struct memory_ops *memory = model->backend->memory;
    assert(model->weight_bytes == 0);
    for (size_t i = 0; i < index->n; i++) {
        const struct entry *e = &index->entry[i];
        struct matrix **w = &tensors_of(model, e->layer)->w[e->role];
        struct matrix *made = *w ? NULL
                                 : memory->matrix_map(model->backend, (enum dtype)e->type, e->N,
                                                      e->K, index->data[i], (size_t)e->bytes);
        if (!made) {
            drop_matrices(model);
            return false;
        }
        *w = made;
        model->weight_bytes += (int64_t)e->bytes;
    }
    return true;
}

/* Are the model's files those that were opened? */
static bool files_are_same(const struct model *model, const struct engine_config *settings) {
    return model_file_stamp(settings->model) == model->config.stamp;
}

bool weight_cache_take(struct model *model, const struct engine_config *settings) {
    if (!files_are_same(model, settings)) return false;
    struct index index = {.key = key_of(model, settings)};
    char *path = path_of(settings, index.key);
    bool is_there = access(path, F_OK) == 0 && !mapping_open(&model->kept, path, NULL);
    bool taken = is_there && index_read(&index, model, &model->kept) &&
                 sums_are_right(model->backend, &index) && map_matrices(model, &index);
    if (is_there && !taken) {
        mapping_close(&model->kept);
        log_line(LOG_WARNING, "%s is damaged, or no file of weights; it is written again", path);
    }
    index_free(&index);
    mem_free(path);
    return taken;
}

/* ---- keeping -------------------------------------------------------------------------------- */

/* Lists the model's matrices in the order in which a pass reads them. */
static void index_model(struct index *index, const struct model *model) {
    size_t most = (size_t)(model->config.L + 1) * N_ROLES;
    index->entry = mem_calloc(most, sizeof *index->entry);
    index->data = mem_calloc(most, sizeof *index->data);
    for (int layer = -1; layer < model->config.L; layer++)
        for (int role = 0; role < N_ROLES; role++) {
            const struct matrix *w = tensors_of(model, layer)->w[role];
            if (!w) continue;
            struct entry *e = &index->entry[index->n];
            enum dtype type;
            index->data[index->n++] = model->backend->memory->matrix_data(w, &type, &e->N, &e->K);
            e->layer = layer, e->role = role, e->type = (int32_t)type;
            e->bytes = model->backend->memory->matrix_bytes(w);
            index->n_pieces += pieces_of(e->bytes);
        }
    index->end = data_at(index->n, index->n_pieces);
    for (size_t i = 0; i < index->n; i++) {
        struct entry *e = &index->entry[i];
        e->at = (index->end + MATRIX_ALIGNMENT - 1) / MATRIX_ALIGNMENT * MATRIX_ALIGNMENT;
        index->end = e->at + e->bytes;
    }
    index->sum = sum_pieces(model->backend, index);
}

/* Writes at a place of the file, which begins with zeros up to there. */
static bool put(FILE *file, uint64_t at, const void *data, size_t bytes) {
    return fseeko(file, (off_t)at, SEEK_SET) == 0 && fwrite(data, 1, bytes, file) == bytes;
}

static bool index_write(FILE *file, const struct index *index) {
    struct header h = {.key = index->key,
                       .file_bytes = index->end,
                       .n_matrices = index->n,
                       .n_pieces = index->n_pieces,
                       .index_sum = sum_index(index)};
    size_t entries = index->n * sizeof *index->entry;
    memcpy(h.magic, magic, sizeof magic);
    bool good = put(file, 0, &h, sizeof h) && put(file, sizeof h, index->entry, entries) &&
                put(file, sizeof h + entries, index->sum, index->n_pieces * sizeof *index->sum);
    for (size_t i = 0; i < index->n && good; i++)
        good = put(file, index->entry[i].at, index->data[i], (size_t)index->entry[i].bytes);
    return good;
}

/* Whoever renames last wins; all write the same. */
static bool file_write(const char *path, const struct index *index) {
    struct buf part = {0};
    buf_printf(&part, "%s.%d.part", path, (int)getpid());
    FILE *file = fopen(part.data, "wxe");
    bool good = file && index_write(file, index);
    if (file && fclose(file) != 0) good = false;
    int cause = errno;
    if (good && rename(part.data, path) != 0) cause = errno, good = false;
    if (file && !good) unlink(part.data);
    buf_free(&part);
    errno = cause;
    return good;
}

void weight_cache_keep(const struct model *model, const struct engine_config *settings) {
    if (!files_are_same(model, settings)) {
        log_line(LOG_WARNING, "weights are not kept: the files of %s changed while they were read",
                 settings->model);
        return;
    }
    struct index index = {.key = key_of(model, settings)};
    char *path = path_of(settings, index.key);
    index_model(&index, model);
    assert(index.n > 0);
    if (file_write(path, &index))
        log_line(LOG_INFO, "weights are kept in %s: %.1f MiB", path, (double)index.end / (1 << 20));
    else
        log_line(LOG_WARNING, "weights are not kept, %s cannot be written: %s", path,
                 strerror(errno));
    index_free(&index);
    mem_free(path);
}
