/* Runs a program's ops by the table of a backend. */
#include "kernels/kernels.h"

#include <assert.h>

void program_add(struct program *program, const struct op_row *row) {
    assert(row->op <= OP_HIDDEN && row->count < N_COUNTS && row->times >= 0);
    if (program->n == program->room) {
        program->room = program->room ? 2 * program->room : 64;
        program->rows = mem_realloc(program->rows, (size_t)program->room * sizeof *program->rows);
    }
    program->rows[program->n++] = *row;
}

void program_free(struct program *program) {
    mem_free(program->rows);
    *program = (struct program){0};
}

/* Calls the function of a row for M rows. */
static void call_op(struct backend *b, const struct op_row *row, int M, const struct step *step,
                    struct kv_cache *cache) {
    const struct compute_ops *ops = b->compute;
    const struct norm *norm = row->norm.gain ? &row->norm : NULL;
    float *const *y = row->y, *const *x = row->x;
    const int layer = row->cache_layer;
    switch (row->op) {
    case OP_EMBED:
        return ops->embed(b, y[0], &row->embedding);
    case OP_MATMUL:
        return ops->matmul(b, y, x[0], norm, row->products, row->n_products, M);
    case OP_MATMUL_HEADS:
        return ops->matmul_heads(b, y[0], x[0], &row->head_linear, M);
    case OP_ROPE_WRITE:
        return ops->rope_write(b, cache, layer, &row->heads, y[0], y[1], y[2]);
    case OP_LATENT_WRITE:
        return ops->latent_write(b, cache, layer, &row->latent, y[0], x[0], y[1]);
    case OP_ATTENTION:
        return ops->attention(b, y[0], x[0], cache, layer, &row->attention);
    case OP_SHORT_CONV:
        return ops->short_conv(b, y[0], x[0], x[1], x[2], cache, layer, &row->short_conv);
    case OP_DELTA_RULE:
        return ops->delta_rule(b, y[0], &(struct delta_rows){x[0], x[1], x[2], x[3], x[4], x[5]},
                               cache, layer, &row->delta_rule);
    case OP_STATE_SPACE:
        return ops->state_space(b, y[0], &(struct space_rows){x[0], x[1], x[2]}, cache, layer,
                                &row->state_space);
    case OP_MATMUL_ADD:
        return ops->matmul_add(b, y[0], x[0], row->products, M);
    case OP_MLP:
        return ops->mlp(b, y[0], x[0], norm, &row->mlp, M);
    case OP_EXPERTS:
        return ops->experts(b, y[0], x[0], norm, &row->experts, M);
    case OP_NORM_ADD:
        return ops->norm_add(b, y[0], y[1], norm, M, row->K);
    case OP_ALL_REDUCE:
        return ops->all_reduce(b, y[0], y[1], M, row->K);
    case OP_GATHER:
        return ops->gather(b, y[0], x[0], row->K);
    case OP_RECALL:
        return ops->recall(b, y[0], x[0], M, row->K);
    case OP_JOIN:
        return ops->join(b, y[0], x[0], x[1], &row->join, M, row->K);
    case OP_NORM:
        return ops->norm(b, y[0], x[0], norm, M, row->K);
    case OP_LOGITS:
        return ops->logits(b, y[0], x[0], norm, &row->lm_head, M);
    case OP_SPREAD:
        return ops->spread(b, y[0], x[0], &row->spread, M, row->K);
    default:
        assert(row->op == OP_HIDDEN);
        return ops->hidden(b, y[0], x[0], norm, step_logits(step), M, row->K);
    }
}

void program_run(struct backend *b, const struct program *program, const struct step *step,
                 struct kv_cache *cache) {
    const int counts[N_COUNTS] = {[COUNT_ALL] = step->M,
                                  [COUNT_ALL_IF_READ] = step->R > 0 ? step->M : 0,
                                  [COUNT_READ] = step->R,
                                  [COUNT_LOGITS] = step_logits(step),
                                  [COUNT_HIDDEN] = step->n_hidden};
    assert(step->M <= program->max_rows && step->R <= program->max_read_rows);
    assert(counts[COUNT_LOGITS] >= 0 && step->n_hidden >= 0);
    TIME_OP(b, OP_STEP_BEGIN, compute->step_begin(b, step, cache));
    for (int i = 0; i < program->n; i++) {
        const struct op_row *row = &program->rows[i];
        const int M = counts[row->count] * (row->times ? row->times : 1);
        if (M == 0) continue;
        const uint64_t started = op_begin(b, row->op);
        call_op(b, row, M, step, cache);
        op_end(b, row->op, started);
    }
}
