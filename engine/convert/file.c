/* DESIGN: `penstock quantize` makes a GGUF file with smaller matrices from a GGUF file or a folder.
 *
 * First the whole output is planned (struct conversion), then it is written. Tensors are read from
 * the mapped files in parts and written as they become ready, so memory use is small for files of
 * any size. The keys of a GGUF file are kept; for a folder, folder.c makes them. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/convert/convert.h"
#include "engine/convert/part_file.h"
#include "engine/models/load/load.h"
#include "engine/quantise/quantise.h"

enum { PART_BYTES = 16 << 20, RELEASE_BYTES = 64 << 20 };

static const char type_key[] = "general.file_type";
static const char version_key[] = "general.quantization_version";

struct file_writer {
    struct conversion *c;
    struct backend *backend;
    struct part_file file;
    uint8_t *room, *part; /* [part_bytes] rows before and after conversion */
    size_t part_bytes;    /* PART_BYTES, or one row if that is larger */
    int64_t unreleased_bytes;
};

/* ---- planning ------------------------------------------------------------------------------- */

/* llama.cpp's number for the type of most of a file's matrices. */
static uint32_t file_type_of(enum quantization type) {
    static const uint32_t numbers[] = {
        [QUANTIZATION_Q8_0] = 7,  [QUANTIZATION_Q4_0] = 2, [QUANTIZATION_Q4_1] = 3,
        [QUANTIZATION_Q5_0] = 8,  [QUANTIZATION_Q5_1] = 9, [QUANTIZATION_Q4_K] = 14,
        [QUANTIZATION_Q6_K] = 18,
    };
    assert(quantization_is_blocks(type));
    return numbers[type];
}

struct out_tensor *conversion_add(struct conversion *c, const char *name) {
    if (c->n == c->capacity) {
        c->capacity = 2 * c->capacity + 64;
        c->tensor = mem_realloc(c->tensor, (size_t)c->capacity * sizeof *c->tensor);
    }
    struct out_tensor *t = &c->tensor[c->n++];
    *t = (struct out_tensor){.E = 1, .n_parts = 1};
    assert(strlen(name) <= WEIGHT_MAX_NAME);
    memcpy(t->name, name, strlen(name) + 1);
    return t;
}

int64_t conversion_head(const struct conversion *c, struct buf *out) {
    struct gguf_tensor *list = mem_calloc((size_t)c->n + 1, sizeof *list);
    for (int i = 0; i < c->n; i++) {
        const struct out_tensor *t = &c->tensor[i];
        list[i] = (struct gguf_tensor){t->name, t->to, t->n_dims, t->dim};
    }
    int64_t bytes = gguf_write_head(out, &c->keys, list, c->n, c->alignment);
    mem_free(list);
    return bytes;
}

/* Takes over a file's tensors and keys; some matrices and two keys change. */
static enum status convert_gguf(struct conversion *c, struct err *err) {
    enum status status = gguf_open(&c->source.gguf, c->job->in, err);
    if (status) return status;
    const struct gguf *gguf = c->source.gguf;
    for (int i = 0; i < gguf->weights.n; i++) {
        const struct weight *weight = &gguf->weights.tensor[i];
        struct out_tensor *t = conversion_add(c, weight->name);
        t->weight = weight;
        t->from = t->to = weight->type;
        t->n_dims = weight->n_dims;
        memcpy(t->dim, weight->dim, sizeof t->dim);
        t->K = weight->dim[0], t->N = weight->n_elements / t->K;
        if (weight->n_dims > 1) t->to = quantised_type(c->job->type, t->name, t->from, t->K);
    }
    for (int i = 0; i < gguf->n_values; i++) {
        const struct gguf_value *value = &gguf->value[i];
        bool is_of_parts = strncmp(value->key, "split.", strlen("split.")) == 0;
        if (value != gguf_find(gguf, type_key) && value != gguf_find(gguf, version_key) &&
            !is_of_parts)
            gguf_put_value(&c->keys, value);
    }
    c->alignment = gguf->alignment;
    return STATUS_OK;
}

/* Fails if nothing becomes smaller. */
static enum status check_changes(const struct conversion *c, struct err *err) {
    for (int i = 0; i < c->n; i++)
        if (c->tensor[i].to != c->tensor[i].from && dtype_block_elements((int)c->tensor[i].to) > 1)
            return STATUS_OK;
    return err_set(err, STATUS_USAGE, "model",
                   "%s does not contain a float matrix that can be quantised to %s; its matrices "
                   "are quantised already, or their rows are not a multiple of 32",
                   c->job->in, value_name(quantization_names, c->job->type));
}

/* ---- rows ----------------------------------------------------------------------------------- */

/* The source's row of row r of the output. The second number of a pair is in the second half of the
 * rotated rows of a head. */
static int64_t row_before(const struct out_tensor *t, int64_t r) {
    if (t->weight->groups > 0) return weight_ungrouped_row(t->weight, r);
    if (t->D == 0 || r % t->D >= t->D_rope) return r;
    int64_t within = r % t->D;
    return r - within + within % 2 * (t->D_rope / 2) + within / 2;
}

/* Copies n rows of one matrix, starting at its row `begin`. */
static void copy_rows(const struct out_tensor *t, int64_t e, int64_t begin, int64_t n, char *to) {
    size_t row = dtype_bytes(t->from, (size_t)t->K), all = (size_t)t->N * (size_t)t->n_parts;
    const struct weight *weight = t->expert ? t->expert[e] : t->weight;
    const char *from = (const char *)weight->data + (t->expert ? 0 : (size_t)e * all * row);
    size_t step = weight->is_interleaved ? (size_t)t->n_parts : 1;
    size_t first = (size_t)t->part * (weight->is_interleaved ? 1 : (size_t)t->N);
    if (weight->is_transposed) {
        size_t size = dtype_bytes(t->from, 1);
        assert(t->D == 0);
        turn_rows(to, from + (first + (size_t)begin * step) * size, (size_t)n, (size_t)t->K, all,
                  step, size);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        size_t before = first + (size_t)row_before(t, begin + i) * step;
        memcpy(to + (size_t)i * row, from + before * row, row);
    }
}

const void *out_tensor_rows(const struct out_tensor *t, int64_t first, int64_t n, void *room) {
    size_t row = dtype_bytes(t->from, (size_t)t->K);
    if (t->made) return t->made + first;
    bool is_plain = !t->expert && t->n_parts == 1 && t->D == 0 && !t->weight->is_transposed &&
                    t->weight->groups == 0;
    if (is_plain) return (const char *)t->weight->data + (size_t)first * row;
    for (int64_t done = 0, run; done < n; done += run) {
        int64_t begin = (first + done) % t->N;
        run = min_int64(n - done, t->N - begin);
        copy_rows(t, (first + done) / t->N, begin, run, (char *)room + (size_t)done * row);
    }
    return room;
}

/* ---- writing -------------------------------------------------------------------------------- */

/* Converts floats of any type to float32. */
static void widen(const struct out_tensor *t, const void *rows, int64_t n, float *out) {
    size_t count = (size_t)(n * t->K);
    float more = t->weight && t->weight->adds_one ? 1 : 0;
    dequantise(t->from, rows, out, count);
    for (size_t i = 0; i < count; i++) out[i] += more;
}

static enum status write_rows(struct file_writer *w, const struct out_tensor *t, int64_t first,
                              int64_t n, struct err *err) {
    const void *rows = out_tensor_rows(t, first, n, w->room);
    size_t bytes = (size_t)n * dtype_bytes(t->to, (size_t)t->K);
    bool adds = t->weight && t->weight->adds_one;
    if (t->to == t->from && !adds) return part_file_write(&w->file, rows, bytes, err);
    if (t->to == DTYPE_F32)
        widen(t, rows, n, (float *)(void *)w->part);
    else
        quantise_rows(w->backend, t->to, w->part, t->from, rows, n, (int)t->K);
    return part_file_write(&w->file, w->part, bytes, err);
}

static size_t row_bytes(const struct out_tensor *t) {
    size_t from = dtype_bytes(t->from, (size_t)t->K), to = dtype_bytes(t->to, (size_t)t->K);
    return from > to ? from : to;
}

static enum status write_tensor(struct file_writer *w, const struct out_tensor *t,
                                struct err *err) {
    int64_t rows = t->E * t->N, at_once = (int64_t)(w->part_bytes / row_bytes(t));
    enum status status = STATUS_OK;
    for (int64_t row = 0; row < rows && !status; row += at_once) {
        int64_t n = min_int64(rows - row, at_once);
        status = write_rows(w, t, row, n, err);
        w->unreleased_bytes += n * (int64_t)row_bytes(t);
        if (w->unreleased_bytes < RELEASE_BYTES) continue;
        w->unreleased_bytes = 0;
        weights_release_file_pages(model_file_weights(&w->c->source));
    }
    return status ? status : part_file_pad(&w->file, w->c->alignment, err);
}

static enum status write_all(struct file_writer *w, struct err *err) {
    struct quantise_job *job = w->c->job;
    struct buf head = {0};
    int64_t done = 0, all = conversion_head(w->c, &head);
    enum status status = part_file_write(&w->file, head.data, head.length, err);
    buf_free(&head);
    if (!status) status = part_file_pad(&w->file, w->c->alignment, err);
    for (int i = 0; i < w->c->n && !status; i++) {
        const struct out_tensor *t = &w->c->tensor[i];
        status = write_tensor(w, t, err);
        done += t->E * t->N * (int64_t)dtype_bytes(t->to, (size_t)t->K);
        if (job->progress) job->progress(job->progress_arg, "weights", (double)done / (double)all);
    }
    return status;
}

/* Opens the output, writes it, and gives it its name. */
static enum status write_file(struct conversion *c, struct err *err) {
    struct backend_config config = {
        .threads = c->job->threads, .max_rows = 1, .max_k = 32, .max_seqs = 1};
    struct file_writer w = {.c = c, .part_bytes = PART_BYTES};
    enum status status = part_file_open(&w.file, c->job->out, err);
    if (status) return status;
    status = backend_cpu_open(&w.backend, &config, err);
    for (int i = 0; i < c->n; i++)
        if (row_bytes(&c->tensor[i]) > w.part_bytes) w.part_bytes = row_bytes(&c->tensor[i]);
    if (!status) {
        w.part = mem_large(2 * w.part_bytes);
        w.room = w.part + w.part_bytes;
        status = write_all(&w, err);
        if (!status) status = model_file_check(&c->source, err);
        mem_large_free(w.part, 2 * w.part_bytes);
        backend_close(w.backend);
    }
    c->job->bytes_out = w.file.bytes;
    enum status closed = part_file_close(&w.file, !status, status ? NULL : err);
    return status ? status : closed;
}

enum status engine_quantise(struct quantise_job *job, struct err *err) {
    enum { BLOCKS_VERSION = 2, USUAL_ALIGNMENT = 32 };
    struct conversion c = {.job = job, .source = {.path = job->in}, .alignment = USUAL_ALIGNMENT};
    struct stat info;
    bool is_folder = stat(job->in, &info) == 0 && S_ISDIR(info.st_mode);
    gguf_put_int(&c.keys, version_key, BLOCKS_VERSION);
    gguf_put_int(&c.keys, type_key, file_type_of(job->type));
    enum status status = is_folder ? convert_folder(&c, err) : convert_gguf(&c, err);
    if (!status) status = check_changes(&c, err);
    if (!status) {
        const struct gguf *gguf = c.source.gguf;
        job->bytes_in = gguf ? (int64_t)gguf->size : c.source.hf->file_bytes;
        status = write_file(&c, err);
    }
    for (int i = 0; i < c.n; i++) mem_free(c.tensor[i].expert), mem_free(c.tensor[i].made);
    mem_free(c.tensor);
    buf_free(&c.keys.text);
    model_file_close(&c.source);
    return status;
}
