/* Chooses the tensors to quantise and their types, and converts rows. */
#include "engine/quantise/quantise.h"

#include <assert.h>
#include <string.h>

#include "kernels/backend.h"

static bool is_float(enum dtype type) {
    return type == DTYPE_F32 || type == DTYPE_F16 || type == DTYPE_BF16;
}

static enum dtype dtype_of(enum quantization wanted) {
    static const enum dtype types[] = {
        [QUANTIZATION_Q8_0] = DTYPE_Q8_0, [QUANTIZATION_Q4_0] = DTYPE_Q4_0,
        [QUANTIZATION_Q4_1] = DTYPE_Q4_1, [QUANTIZATION_Q5_0] = DTYPE_Q5_0,
        [QUANTIZATION_Q5_1] = DTYPE_Q5_1, [QUANTIZATION_Q4_K] = DTYPE_Q4_K,
        [QUANTIZATION_Q6_K] = DTYPE_Q6_K,
    };
    assert(quantization_is_blocks(wanted));
    return types[wanted];
}

enum dtype quantised_type(enum quantization wanted, const char *name, enum dtype type, int64_t K) {
    static const char *const kept[] = {"position_embd.", "token_types.", "ffn_gate_inp",
                                       "rope_",          "_norm.",       ".bias"};
    if (!quantization_is_blocks(wanted) || !is_float(type) || K % 32 != 0) return type;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (strstr(name, kept[i])) return type;
    enum dtype to = dtype_of(wanted);
    bool is_end = strncmp(name, "token_embd.", 11) == 0 || strncmp(name, "output.", 7) == 0;
    if (is_end && to != DTYPE_Q8_0) to = DTYPE_Q6_K;
    if (to == DTYPE_Q4_K && K % 256 != 0) to = DTYPE_Q5_0;
    if (to == DTYPE_Q6_K && K % 256 != 0) to = DTYPE_Q8_0;
    return to;
}

int64_t quantised_bytes(const struct weights *weights, enum quantization wanted) {
    int64_t bytes = 0;
    for (int i = 0; i < weights->n; i++) {
        const struct weight *weight = &weights->tensor[i];
        enum dtype type = weight->type;
        if (weight->n_dims > 1) {
            int64_t K = weight->is_transposed ? weight->dim[1] : weight->dim[0];
            type = quantised_type(wanted, weights_name(weights, i), type, K);
        }
        bytes += (int64_t)dtype_bytes(type, (size_t)weight->n_elements);
    }
    return bytes;
}

int64_t planned_bytes(const struct weights *weights, enum quantization wanted, int64_t file_bytes) {
    if (quantization_is_blocks(wanted)) return quantised_bytes(weights, wanted);
    for (int i = 0; i < weights->n; i++) {
        const struct weight *weight = &weights->tensor[i];
        enum dtype kept = dtype_kept(weight->type);
        if (kept == weight->type) continue;
        if (kept == DTYPE_F32) kept = DTYPE_BF16; /* products use 16 bits */
        file_bytes += (int64_t)dtype_bytes(kept, (size_t)weight->n_elements);
        file_bytes -= (int64_t)weight->bytes;
    }
    return file_bytes;
}

/* ---- rows ----------------------------------------------------------------------------------- */

struct quantise_rows_job {
    enum dtype to, from;
    const uint8_t *rows;
    uint8_t *out;
    int64_t n_rows, rows_at_once;
    size_t K;
    const struct weight_ops *ops; /* for quantising; NULL: rows are converted by dtype_kept */
};

static void quantise_some(void *arg, int i) {
    const struct quantise_rows_job *job = arg;
    int64_t first = i * job->rows_at_once, n = min_int64(job->rows_at_once, job->n_rows - first);
    size_t from = dtype_bytes(job->from, job->K), to = dtype_bytes(job->to, job->K);
    job->ops->quantise(job->to, job->out + (size_t)first * to, job->from,
                       job->rows + (size_t)first * from, (size_t)n * job->K);
}

void quantise_rows(struct backend *b, enum dtype to, void *out, enum dtype from, const void *rows,
                   int64_t n_rows, int K) {
    assert(K % dtype_block_elements((int)to) == 0 && is_float(from) && n_rows > 0);
    struct quantise_rows_job job = {to,     from, rows,      out,
                                    n_rows, 1,    (size_t)K, backend_cpu_weight_ops(NULL)};
    job.rows_at_once = (65536 + K - 1) / K;
    int64_t pieces = (n_rows + job.rows_at_once - 1) / job.rows_at_once;
    b->device->parallel(b, quantise_some, &job, (int)pieces);
}

static void keep_some(void *arg, int i) {
    const struct quantise_rows_job *job = arg;
    int64_t first = i * job->rows_at_once, n = min_int64(job->rows_at_once, job->n_rows - first);
    size_t from = dtype_bytes(job->from, job->K), to = dtype_bytes(job->to, job->K);
    keep_blocks(job->from, job->rows + (size_t)first * from, job->out + (size_t)first * to,
                (size_t)n * job->K);
}

void *kept_rows(struct backend *b, enum dtype type, const void *rows, int64_t n_rows, int K,
                size_t *bytes) {
    enum dtype to = dtype_kept(type);
    assert(to != type && K % dtype_block_elements((int)type) == 0 && n_rows > 0);
    *bytes = (size_t)n_rows * dtype_bytes(to, (size_t)K);
    struct quantise_rows_job job = {to, type, rows, mem_large(*bytes), n_rows, 1, (size_t)K, NULL};
    job.rows_at_once = (65536 + K - 1) / K;
    b->device->parallel(b, keep_some, &job,
                        (int)((n_rows + job.rows_at_once - 1) / job.rows_at_once));
    return job.out;
}
