/* Ops on rows: each row is computed by the path's function, on whichever thread. Few rows are not
 * worth a hand-over and stay on the caller's thread. */
#include <string.h>

#include "kernels/cpu/cpu.h"

enum {
    PIECE = 4096
}; /* numbers that are worth a hand-over to another thread: about a microsecond */

struct rows_job {
    struct cpu *cpu;
    float *y;
    const struct matrix *w;
    size_t length; /* of a row */
    int M, rows;   /* rows in all, and in one piece */
};

/* Runs fn on pieces of rows that hold about PIECE numbers or more. */
static void run_rows(struct rows_job *job, void (*fn)(void *arg, int i, int thread)) {
    if (job->M == 0) return;
    size_t rows = (PIECE + job->length - 1) / job->length;
    job->rows = rows < (size_t)job->M ? (int)rows : job->M;
    pool_run(job->cpu->pool, fn, job, (job->M + job->rows - 1) / job->rows);
}

static int piece_end(const struct rows_job *job, int i) {
    int end = (i + 1) * job->rows;
    return end < job->M ? end : job->M;
}

static void embed_piece(void *arg, int i, int thread) {
    (void)thread;
    struct rows_job *job = arg;
    const struct step *step = job->cpu->step;
    for (int m = i * job->rows; m < piece_end(job, i); m++) {
        int32_t id = step->token[m];
        if (id < 0) id = step->sampled[late_token(id)];
        matrix_row(job->w, id, job->y + (size_t)m * job->length);
    }
}

void op_embed(struct backend *b, float *y, const struct matrix *embedding) {
    struct cpu *cpu = cpu_of(b);
    struct rows_job job = {
        .cpu = cpu, .y = y, .w = embedding, .M = cpu->step->M, .length = (size_t)embedding->K};
    run_rows(&job, embed_piece);
}

void op_gather(struct backend *b, float *y, const float *x, int K) {
    const struct step *step = cpu_of(b)->step;
    for (int i = 0; i < step->R; i++)
        memcpy(y + (size_t)i * (size_t)K, x + (size_t)step->logit_row[i] * (size_t)K,
               (size_t)K * sizeof *y);
}
