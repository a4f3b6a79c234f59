/* Products, with as few launches as their matrices allow: of few rows the norm is part of the
 * product, and a gate with what it gates is one product where they are of one format. */
#include "kernels/cuda/products.cuh"

#include "kernels/cuda/room.cuh"
#include "kernels/cuda/rows.cuh"

enum { WORK_ALIGNMENT = 256 };

enum status products_open(struct products *p, enum dtype act, int max_rows, int max_k,
                          cudaStream_t stream, struct err *err) {
    static const struct room room = {"what products work in", "max-num-batched-tokens",
                                     "lower --max-num-batched-tokens"};
    const size_t wanted = (size_t)max_rows * (size_t)max_k * (act == DTYPE_F32 ? 4 : 2);
    const size_t bytes = (wanted + WORK_ALIGNMENT - 1) / WORK_ALIGNMENT * WORK_ALIGNMENT;
    *p = {};
    p->act = act;
    p->stream = stream;
    const enum status status = room_device(&p->memory, 3 * bytes, &room, err);
    if (status) return status;
    p->normed = p->memory;
    p->gate = (char *)p->memory + bytes;
    p->up = (char *)p->memory + 2 * bytes;
    return STATUS_OK;
}

void products_close(struct products *p) {
    cuda_must(cudaFree(p->memory), "freeing memory for products");
}

/* The rows that go into some products. The norm stays where all of them take it; else it is done,
 * and there is none any more. Without rows to add, it only reads x. */
static const void *rows_for(struct products *p, const struct gemm_job *jobs, int n, const float *x,
                            const struct norm **norm, int M) {
    bool taken = true;
    for (int i = 0; i < n; i++) taken = taken && gemm_takes_norm(jobs[i].w, M);
    if (!*norm || taken) return x;
    rows_norm(p->act, p->normed, const_cast<float *>(x), NULL, (*norm)->gain, NULL, M, jobs->w->K,
              (*norm)->epsilon, p->stream);
    *norm = NULL;
    return p->normed;
}

static void multiply(struct products *p, const struct gemm_job *jobs, int n, const float *x,
                     const struct norm *norm, int M) {
    const void *rows = rows_for(p, jobs, n, x, &norm, M);
    gemm_many(jobs, n, rows, norm, M, p->stream);
}

void products_multiply(struct products *p, float *const *y, const float *x, const struct norm *norm,
                       struct matrix *const *w, int n, int M) {
    struct gemm_job jobs[GEMM_MOST_JOBS];
    for (int i = 0; i < n;) {
        int count = 0;
        for (; i < n && count < GEMM_MOST_JOBS; i++) jobs[count++] = {&w[i]->packed, y[i]};
        multiply(p, jobs, count, x, norm, M);
    }
}

void products_add(struct products *p, float *sum, const void *x, const struct matrix *w, int M) {
    struct gemm_epilogue end = {};
    end.residual = sum;
    gemm(&w->packed, sum, x, M, &end, p->stream);
}

/* p->gate = silu(n times gate^T) * (n times up^T), where n = norm(x). */
static void gate_rows(struct products *p, const float *x, const struct norm *norm,
                      const struct gemm_weights *gate, const struct gemm_weights *up, int M) {
    if (gemm_is_pair(gate, up, M)) {
        const struct gemm_job pair = {gate, p->gate, NULL, up};
        multiply(p, &pair, 1, x, norm, M);
        return;
    }
    const struct gemm_job apart[] = {{gate, p->gate}, {up, p->up}};
    multiply(p, apart, 2, x, norm, M);
    rows_gate(p->act, GATE_SILU, p->gate, p->gate, p->up, (size_t)M * (size_t)gate->N, p->stream);
}

void products_gated(struct products *p, float *x, const struct norm *norm,
                    const struct matrix *gate, const struct matrix *up, const struct matrix *down,
                    int M) {
    gate_rows(p, x, norm, &gate->packed, &up->packed, M);
    products_add(p, x, p->gate, down, M);
}

void products_logits(struct products *p, float *y, const float *x, const struct norm *norm,
                     const struct matrix *head, int R) {
    struct gemm_epilogue end = {};
    end.float_out = true;
    const struct gemm_job job = {&head->packed, y, &end};
    multiply(p, &job, 1, x, norm, R);
}
