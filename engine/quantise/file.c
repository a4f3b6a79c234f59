/* `penstock quantize`: a GGUF file with smaller matrices. Tensors are read from the mapped file, a
 * part at a time, and written as they become ready: little memory is taken, whatever the file's
 * size. */
#include <assert.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "engine/engine.h"
#include "engine/quantise/gguf_write.h"
#include "engine/quantise/quantise.h"

enum { PART_BYTES = 16 << 20, RELEASE_BYTES = 64 << 20 };

struct work {
    struct quantise_job *job;
    struct backend *backend;
    struct gguf *gguf;
    enum dtype *type; /* [tensors] of the output */
    struct part_file file;
    uint8_t *part; /* [PART_BYTES] or a row, if that is larger */
    size_t part_bytes;
    int64_t unreleased_bytes;
};

/* llama.cpp's numbers for what most of a file's matrices are. */
static uint32_t file_type_of(enum quantization type) {
    static const uint32_t numbers[] = {
        [QUANTIZATION_Q8_0] = 7,  [QUANTIZATION_Q4_0] = 2, [QUANTIZATION_Q4_1] = 3,
        [QUANTIZATION_Q5_0] = 8,  [QUANTIZATION_Q5_1] = 9, [QUANTIZATION_Q4_K] = 14,
        [QUANTIZATION_Q6_K] = 18,
    };
    assert(quantization_is_blocks(type));
    return numbers[type];
}

/* Chooses the types; fails where none changes. */
static enum status choose_types(struct work *w, struct err *err) {
    const struct weights *weights = &w->gguf->weights;
    bool changes = false;
    w->type = mem_calloc((size_t)weights->n + 1, sizeof *w->type);
    for (int i = 0; i < weights->n; i++) {
        const struct weight *weight = &weights->tensor[i];
        w->type[i] = weight->type;
        if (weight->n_dims > 1)
            w->type[i] = quantised_type(w->job->type, weight->name, weight->type, weight->dim[0]);
        changes |= w->type[i] != weight->type;
        size_t row = dtype_bytes(w->type[i], (size_t)weight->dim[0]);
        if (row > w->part_bytes) w->part_bytes = row;
    }
    if (changes) return STATUS_OK;
    return err_set(err, STATUS_USAGE, "model",
                   "%s has no float matrix that could be quantised to %s; its matrices are "
                   "quantised already, or their rows are no multiple of 32",
                   w->job->in, value_name(quantization_names, w->job->type));
}

static enum status write_quantised(struct work *w, const struct weight *weight, enum dtype to,
                                   struct err *err) {
    size_t K = (size_t)weight->dim[0], from_row = dtype_bytes(weight->type, K);
    size_t to_row = dtype_bytes(to, K);
    int64_t rows = weight->n_elements / weight->dim[0];
    int64_t at_once = (int64_t)(w->part_bytes / to_row);
    enum status status = STATUS_OK;
    for (int64_t row = 0; row < rows && !status; row += at_once) {
        int64_t n = rows - row < at_once ? rows - row : at_once;
        const char *from = (const char *)weight->data + (size_t)row * from_row;
        quantise_rows(w->backend, to, w->part, weight->type, from, n, (int)K);
        status = part_file_write(&w->file, w->part, (size_t)n * to_row, err);
    }
    return status;
}

static enum status write_tensor(struct work *w, int i, struct err *err) {
    const struct weight *weight = &w->gguf->weights.tensor[i];
    enum status status = w->type[i] == weight->type
                             ? part_file_write(&w->file, weight->data, weight->bytes, err)
                             : write_quantised(w, weight, w->type[i], err);
    if (!status) status = part_file_pad(&w->file, w->gguf->alignment, err);
    w->unreleased_bytes += (int64_t)weight->bytes;
    if (w->unreleased_bytes >= RELEASE_BYTES) {
        w->unreleased_bytes = 0;
        weights_release_file_pages(&w->gguf->weights);
    }
    return status;
}

static enum status write_all(struct work *w, struct err *err) {
    struct buf head = {0};
    int64_t done = 0, all = (int64_t)w->gguf->size;
    gguf_write_head(&head, w->gguf, w->type, file_type_of(w->job->type));
    enum status status = part_file_write(&w->file, head.data, head.length, err);
    buf_free(&head);
    if (!status) status = part_file_pad(&w->file, w->gguf->alignment, err);
    for (int i = 0; i < w->gguf->weights.n && !status; i++) {
        status = write_tensor(w, i, err);
        done += (int64_t)w->gguf->weights.tensor[i].bytes;
        if (w->job->progress)
            w->job->progress(w->job->progress_arg, "weights", (double)done / (double)all);
    }
    return status;
}

/* Opens the output, fills it, and gives it its name. */
static enum status write_file(struct work *w, struct err *err) {
    struct backend_config config = {
        .threads = w->job->threads, .max_rows = 1, .max_k = 32, .max_seqs = 1};
    enum status status = part_file_open(&w->file, w->job->out, err);
    if (status) return status;
    status = backend_cpu_open(&w->backend, &config, err);
    if (!status) {
        w->part = mem_large(w->part_bytes);
        status = write_all(w, err);
        mem_large_free(w->part, w->part_bytes);
        backend_close(w->backend);
    }
    w->job->bytes_in = (int64_t)w->gguf->size;
    w->job->bytes_out = w->file.bytes;
    enum status closed = part_file_close(&w->file, !status, status ? NULL : err);
    return status ? status : closed;
}

enum status engine_quantise(struct quantise_job *job, struct err *err) {
    struct work w = {.job = job, .part_bytes = PART_BYTES};
    struct stat info;
    if (stat(job->in, &info) == 0 && S_ISDIR(info.st_mode))
        return err_set(err, STATUS_USAGE, "model",
                       "%s is a folder; quantize reads a GGUF file (a folder is quantised as it is "
                       "loaded: penstock serve %s --quantization %s)",
                       job->in, job->in, value_name(quantization_names, job->type));
    enum status status = gguf_open(&w.gguf, job->in, err);
    if (status) return status;
    status = choose_types(&w, err);
    if (!status) status = write_file(&w, err);
    free(w.type);
    gguf_close(w.gguf);
    return status;
}
