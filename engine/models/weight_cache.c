/* DESIGN: matrices that are laid out once.
 *
 * A start spends its time on memory that the system zeroes and on weights that are laid out anew;
 * both give the same bytes every time. The file holds those bytes as they lie in memory, so it is
 * mapped read-only: processes that serve the same model share its pages, and they stay in memory
 * between two starts for as long as nothing else needs it.
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

#include "engine/models/weight_index.h"

/* ---- names ---------------------------------------------------------------------------------- */

static uint64_t key_of(const struct model *model, const struct engine_config *settings) {
    struct build_info build = build_info();
    struct buf key = {0};
    buf_printf(&key, "%s %s %.8s %" PRIu64 " %d %d %d of %d, %d roles", build.version, build.commit,
               weight_magic, model->config.stamp, (int)settings->dtype, (int)settings->quantization,
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

/* ---- taking --------------------------------------------------------------------------------- */

static void drop_matrices(struct model *model) {
    for (int layer = -1; layer < model->config.L; layer++)
        for (int role = 0; role < N_ROLES; role++) {
            struct matrix **w = &weight_index_tensors(model, layer)->w[role];
            if (*w) model->backend->memory->matrix_free(model->backend, *w);
            *w = NULL;
        }
    model->weight_bytes = 0;
}

/* Makes the model's matrices of the file's bytes; all of them, or none. */
static bool map_matrices(struct model *model, const struct weight_index *index) {
    const struct memory_ops *memory = model->backend->memory;
    assert(model->weight_bytes == 0);
    for (size_t i = 0; i < index->n; i++) {
        const struct weight_entry *e = &index->entry[i];
        struct matrix **w = &weight_index_tensors(model, e->layer)->w[e->role];
        struct matrix *made = memory->matrix_map(model->backend, (enum dtype)e->type, e->N, e->K,
                                                 index->data[i], (size_t)e->bytes);
        assert(!*w); /* the index has no matrix twice */
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
    struct weight_index index = {.key = key_of(model, settings)};
    char *path = path_of(settings, index.key);
    bool is_there = access(path, F_OK) == 0 && !mapping_open(&model->kept, path, NULL);
    bool taken = is_there && weight_index_read(&index, model, model->kept.data, model->kept.size) &&
                 weight_index_is_right(&index, model->backend) && map_matrices(model, &index);
    if (is_there && !taken) {
        mapping_close(&model->kept);
        log_line(LOG_WARNING, "%s is damaged, or no file of weights; it is written again", path);
    }
    weight_index_free(&index);
    mem_free(path);
    return taken;
}

/* ---- keeping -------------------------------------------------------------------------------- */

/* Whoever renames last wins; all write the same. */
static bool file_write(const char *path, const struct weight_index *index) {
    struct buf part = {0};
    buf_printf(&part, "%s.%d.part", path, (int)getpid());
    FILE *file = fopen(part.data, "wxe");
    bool good = file && weight_index_write(file, index);
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
    struct weight_index index = {.key = key_of(model, settings)};
    char *path = path_of(settings, index.key);
    weight_index_model(&index, model);
    assert(index.n > 0);
    if (file_write(path, &index))
        log_line(LOG_INFO, "weights are kept in %s: %.1f MiB", path, (double)index.end / (1 << 20));
    else
        log_line(LOG_WARNING, "weights are not kept, %s cannot be written: %s", path,
                 strerror(errno));
    weight_index_free(&index);
    mem_free(path);
}
