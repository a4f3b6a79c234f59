/* Refuses blocks with broken scales. The check is part of loading, which reads the pages anyway. */
#include <assert.h>
#include <stdatomic.h>

#include "engine/models/load/internal.h"

enum { PIECE_BLOCKS = 8192 };

struct check_job {
    const struct weight *weight;
    size_t n_blocks;
    atomic_size_t first; /* the first broken block; n_blocks: none found yet */
};

static void check_piece(void *arg, int i) {
    struct check_job *job = arg;
    enum dtype type = job->weight->type;
    size_t from = (size_t)i * PIECE_BLOCKS, n = job->n_blocks - from;
    if (n > PIECE_BLOCKS) n = PIECE_BLOCKS;
    const char *data = (const char *)job->weight->data + from * (size_t)dtype_block_bytes(type);
    size_t broken = dtype_broken_block(type, data, n), first = atomic_load(&job->first);
    if (broken == n) return;
    while (from + broken < first &&
           !atomic_compare_exchange_weak(&job->first, &first, from + broken)) {
    }
}

enum status load_check_scales(const struct loader *l, const struct weight *weight) {
    size_t per = (size_t)dtype_block_elements((int)weight->type);
    if (per == 1 || weight->packed || l->settings->dummy || l->model->shard.rank > 0)
        return STATUS_OK;
    struct backend *b = l->model->backend;
    struct check_job job = {.weight = weight, .n_blocks = (size_t)weight->n_elements / per};
    atomic_init(&job.first, job.n_blocks);
    b->device->parallel(b, check_piece, &job,
                        (int)((job.n_blocks + PIECE_BLOCKS - 1) / PIECE_BLOCKS));
    size_t first = atomic_load(&job.first);
    if (first == job.n_blocks) return STATUS_OK;
    assert(first < job.n_blocks);
    return err_set(l->err, STATUS_BAD_FILE, weight->name,
                   "%s: tensor %s: block %zu of %zu (%s) has a scale that is NaN or infinite; "
                   "finite scales were expected, so the file is damaged",
                   l->settings->model, weight->name, first, job.n_blocks,
                   dtype_name((int)weight->type));
}
