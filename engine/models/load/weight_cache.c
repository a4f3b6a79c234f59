/* DESIGN: matrices that are laid out once.
 *
 * A start spends its time on zeroing memory and on converting weights into the backend's layout;
 * the resulting bytes are the same every time. The file holds these bytes in their memory layout,
 * so it is mapped read-only. Processes that serve the same model share its pages, and the pages
 * stay in memory between two starts until something else needs the memory.
 *
 * The file gets its name only when it is complete. It is not synced to the disk. Instead, pieces of
 * 4 MiB have checksums, which every start verifies on all threads; this also reads the pages into
 * memory. A file that a crash, a full disk or another program has damaged is written again. If the
 * file is truncated while it is mapped, the process ends with a message
 * (engine/files/tensors/mapping.h).
 *
 * The name contains a stamp of the model's files. The stamp is computed just before they are
 * opened, and compared before a cache file is used and after the weights are loaded. Otherwise, if
 * the model is replaced in the meantime, the cache file would have the stamp of one model and the
 * weights of another.
 */
#include "engine/models/load/weight_cache.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "engine/models/load/weight_index.h"

/* ---- names ---------------------------------------------------------------------------------- */

static uint64_t key_of(const struct model *model, const struct engine_config *settings) {
    struct build_info build = build_info();
    struct buf key = {0};
    buf_printf(&key, "%s %s %.8s %" PRIu64 " %d %d %d of %d, %d roles, %d layers", build.version,
               build.commit, weight_magic, model->config.stamp, (int)settings->dtype,
               (int)settings->quantization, model->shard.rank, model->shard.ranks, (int)N_ROLES,
               model->config.L);
    uint64_t hash = XXH3_64bits(key.data, key.length);
    buf_free(&key);
    return hash;
}

/* Returns the path of the cache file; the caller frees it. */
static char *path_of(const struct engine_config *settings, uint64_t key) {
    char name[MODEL_NAME_BYTES];
    struct buf path = {0};
    model_path_name(name, settings->model);
    for (char *c = name; *c; c++)
        if (*c == '/') *c = '_';
    buf_printf(&path, "%s/%s-%016" PRIx64 ".weights", settings->weight_cache, name, key);
    return path.data;
}

/* ---- reading -------------------------------------------------------------------------------- */

static void drop_matrices(struct model *model) {
    for (int layer = -1; layer < model->config.L; layer++)
        for (int role = 0; role < N_ROLES; role++) {
            struct matrix **w = &weight_index_tensors(model, layer)->w[role];
            if (*w) model->backend->memory->matrix_free(model->backend, *w);
            *w = NULL;
        }
    model->weight_bytes = 0;
}

/* Maps the file's bytes as the model's matrices: all of them, or on failure none. */
static bool map_matrices(struct model *model, const struct weight_index *index) {
    const struct memory_ops *memory = model->backend->memory;
    assert(model->weight_bytes == 0);
    for (size_t i = 0; i < index->n; i++) {
        const struct weight_entry *e = &index->entry[i];
        struct matrix **w = &weight_index_tensors(model, e->layer)->w[e->role];
        struct matrix *made = memory->matrix_map(model->backend, (enum dtype)e->type, e->N, e->K,
                                                 index->data[i], (size_t)e->bytes);
        assert(!*w); /* the index lists each matrix once */
        if (!made) {
            drop_matrices(model);
            return false;
        }
        *w = made;
        model->weight_bytes += (int64_t)e->bytes;
    }
    return true;
}

/* Are the model's files the same as when they were opened? */
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

/* ---- writing -------------------------------------------------------------------------------- */

/* If several processes write the file, the last rename wins; all write the same bytes. */
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
