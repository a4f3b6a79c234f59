/* Prints a model's program, and writes the program of a model whose weights are not loaded. */
#include <assert.h>

#include "engine/models/forward.h"

/* ---- a model without weights ---------------------------------------------------------------- */

/* Does the model's rank have tensors of the role? */
static bool is_on(const struct model *model, enum role role) {
    const enum split split = role_info(role)->split;
    return split != SPLIT_HOST && (split != SPLIT_FIRST || model->shard.rank == 0);
}

/* Marks the tensors of a role, or of the parts into which it is loaded. */
static void mark_role(struct tensors *t, enum role role, float *marks) {
    const struct role_info *info = role_info(role);
    for (int i = 0; i < max_int(info->n_parts, 1); i++) {
        const enum role part = info->n_parts ? info->parts[i] : role;
        if (role_info(part)->K)
            t->w[part] = (struct matrix *)(void *)(marks + part);
        else
            t->vec[part] = marks + part;
    }
}

/* The tensors of all layers, then those outside of layers, point into `marks`. */
static void mark_tensors(struct model *model, float *marks) {
    const int L = model->part.L;
    for (int i = 0; i <= L; i++)
        for (enum role role = 0; role < N_ROLES; role++) {
            const int layer = i < L ? i : -1;
            if (!is_on(model, role) || !config_has_in(&model->part, role, layer)) continue;
            mark_role(i < L ? &model->layers[i] : &model->ends, role, marks + i * (int)N_ROLES);
        }
}

/* The same for the tensors of an EAGLE-3 head, at the marks of its layer. */
static void mark_eagle(struct model *model, float *marks) {
    struct eagle_matrix matrices[N_EAGLE_MATRICES];
    const int L = model->config.L, n = eagle_matrices(model, matrices);
    for (int i = 0; i < n; i++)
        if (is_on(model, matrices[i].role)) *matrices[i].at = (struct matrix *)(void *)(marks + i);
    for (int i = 0; i < N_EAGLE_GAINS; i++)
        if (is_on(model, eagle_gains[i].role))
            model->layers[L - 1].vec[eagle_gains[i].role] = marks + N_EAGLE_MATRICES + i;
    model->eagle.inv_freq = marks;
}

void model_print_outline(const struct model_config *config, struct shard shard, FILE *out) {
    struct model model = {.config = *config, .shard = shard};
    assert(shard.rank >= 0 && shard.rank < shard.ranks);
    model.part = shard_config(config, shard.ranks);
    float *marks = mem_calloc(((size_t)config->L + 1) * N_ROLES, sizeof *marks);
    struct model_buffer buffers[N_MODEL_BUFFERS];
    model.layers = mem_calloc((size_t)config->L, sizeof *model.layers);
    model.act.max_rows = model.act.max_logit_rows = 1;
    mark_tensors(&model, marks);
    if (config->eagle.is_used) mark_eagle(&model, marks + (size_t)(config->L - 1) * N_ROLES);
    model.inv_freq = marks;
    if (config->window_rotation != WINDOW_ROPE_SAME) model.window_inv_freq = marks;
    model_buffers(&model.act, &model, buffers);
    for (int i = 0; i < N_MODEL_BUFFERS; i++)
        if (buffers[i].width > 0)
            *buffers[i].buffer = mem_calloc((size_t)buffers[i].width, sizeof **buffers[i].buffer);
    model_write_program(&model);
    model_print_program(&model, out);
    for (int i = 0; i < N_MODEL_BUFFERS; i++) mem_free(*buffers[i].buffer);
    program_free(&model.program);
    program_free(&model.ahead);
    mem_free(model.layers);
    mem_free(marks);
}

/* ---- the items of a row --------------------------------------------------------------------- */

/* A line that is being printed. */
struct line {
    const struct model *model;
    const struct op_row *row;
    FILE *out;
    bool has_item;
};

static void begin_item(struct line *line) {
    if (line->has_item) fputs(", ", line->out);
    line->has_item = true;
}

/* Finds a matrix of an EAGLE-3 head, with the sizes of the rank's part. */
static bool find_eagle(const struct line *line, const struct matrix *w, struct eagle_matrix *out) {
    struct model model = *line->model; /* the list has places in the model, which may be const */
    struct eagle_matrix all[N_EAGLE_MATRICES];
    const int n = model.config.eagle.is_used ? eagle_matrices(&model, all) : 0;
    for (int i = 0; i < n; i++) {
        const enum split split = role_info(all[i].role)->split;
        if (*all[i].at != w) continue;
        *out = all[i];
        if (split == SPLIT_OUTPUTS) out->N /= model.shard.ranks;
        if (split == SPLIT_INPUTS) out->K /= model.shard.ranks;
        return true;
    }
    return false;
}

/* Returns the role of a matrix in the row's layer or outside of layers. */
static enum role role_of(const struct line *line, const struct matrix *w) {
    const int layer = line->row->layer;
    const struct tensors *t = layer < 0 ? &line->model->ends : &line->model->layers[layer];
    enum role role = 0;
    while (role < N_ROLES && t->w[role] != w) role++;
    assert(role < N_ROLES);
    return role;
}

/* Returns the columns of a matrix, and its rows in *N: of all experts together. */
static int shape_of(const struct line *line, const struct matrix *w, int *N) {
    const struct model_config *m = &line->model->part;
    struct eagle_matrix of_head;
    if (find_eagle(line, w, &of_head)) return *N = of_head.N, of_head.K;
    const struct role_info *info = role_info(role_of(line, w));
    *N = role_extent(m, info->N, line->row->layer);
    if (info->of_experts) *N *= m->experts.E;
    return role_extent(m, info->K, line->row->layer);
}

static void print_matrix(struct line *line, const struct matrix *w) {
    if (!w) return;
    int N, K = shape_of(line, w, &N);
    struct eagle_matrix of_head;
    begin_item(line);
    const char *name = find_eagle(line, w, &of_head)
                           ? of_head.name
                           : config_role_gguf(&line->model->part, role_of(line, w));
    fprintf(line->out, "%s [%d x %d]", name, N, K);
}

static void print_mlp(struct line *line, const struct mlp *mlp) {
    print_matrix(line, mlp->gate.w);
    print_matrix(line, mlp->up.w);
    print_matrix(line, mlp->down.w);
}

static void print_matrices(struct line *line) {
    const struct op_row *row = line->row;
    switch (row->op) {
    case OP_EMBED:
        print_matrix(line, row->embedding.tokens);
        print_matrix(line, row->embedding.types);
        return print_matrix(line, row->embedding.positions);
    case OP_MATMUL:
    case OP_MATMUL_ADD:
        for (int i = 0; i < row->n_products; i++) print_matrix(line, row->products[i].w);
        return;
    case OP_MATMUL_HEADS:
        return print_matrix(line, row->head_linear.w);
    case OP_MLP:
        return print_mlp(line, &row->mlp);
    case OP_EXPERTS:
        print_matrix(line, row->experts.router.w);
        print_mlp(line, &row->experts.mlp);
        print_mlp(line, &row->experts.shared);
        return print_matrix(line, row->experts.shared_gate.w);
    case OP_LOGITS:
        return print_matrix(line, row->lm_head.linear.w);
    default:
        return;
    }
}

/* The numbers per row of products of a state: of qkv or xbc, of z or the output, or of b and dt. */
static int state_width(const struct line *line, bool is_output, int i) {
    const struct state_config *s = &line->model->part.state;
    if (is_output || i == 1) return s->Hv * s->dv;
    if (!s->by_channel) return i == 0 ? line->model->part.C : s->Hv;
    return i == 2 ? s->Hv : s->Hv * s->dv; /* dt, and each of q, k and v */
}

/* The numbers per row of queries, keys and outputs of attention. */
static int head_width(const struct line *line, bool is_output, int i) {
    const struct model_config *m = &line->model->part;
    const bool is_eagle = m->eagle.is_used && config_is_ahead(m, line->row->layer);
    const int H = is_eagle ? m->eagle.H : m->H;
    const struct op_row *row = line->row;
    const struct kv_heads heads = config_heads(m, row->layer);
    const struct latent_config *c = &m->latent;
    if (row->op == OP_LATENT_WRITE && !is_output) return m->H * (c->D_unrotated + c->D_rope);
    if (row->op == OP_ATTENTION && is_output && c->is_used) return m->H * c->rank;
    return is_output && i > 0 ? heads.G * heads.D : H * heads.D;
}

/* The numbers per row of the row's i-th output or input. */
static int width_of(const struct line *line, bool is_output, int i) {
    const struct op_row *row = line->row;
    const struct model_config *m = &line->model->part;
    int N, K;
    switch (row->op) {
    case OP_EMBED:
        return shape_of(
            line, row->embedding.tokens ? row->embedding.tokens : row->embedding.positions, &N);
    case OP_MATMUL:
    case OP_MATMUL_ADD:
        K = shape_of(line, row->products[is_output ? i : 0].w, &N);
        return is_output ? N : K;
    case OP_MATMUL_HEADS:
        return row->head_linear.H *
               (is_output ? row->head_linear.y_stride : row->head_linear.x_stride);
    case OP_ROPE_WRITE:
    case OP_LATENT_WRITE:
    case OP_ATTENTION:
        return head_width(line, is_output, i);
    case OP_SHORT_CONV:
        return row->short_conv.N;
    case OP_DELTA_RULE:
    case OP_STATE_SPACE:
        return state_width(line, is_output, i);
    case OP_MLP:
    case OP_EXPERTS:
        return is_output || i == 0 ? m->K : m->L * m->P;
    case OP_JOIN:
        return is_output ? 2 * row->K : row->K;
    case OP_LOGITS:
        K = shape_of(line, row->lm_head.linear.w, &N);
        return is_output ? N : K;
    case OP_SPREAD:
        return is_output ? row->spread.V : row->K;
    default:
        return row->K;
    }
}

/* Prints the name of the buffer that has a place: some have several parts (forward_recurrent.c). */
static void print_buffer(const struct line *line, const float *place) {
    struct model_activations a = line->model->act;
    struct model_buffer buffers[N_MODEL_BUFFERS];
    int i = 0;
    model_buffers(&a, line->model, buffers);
    for (; i < N_MODEL_BUFFERS; i++) {
        const float *begin = *buffers[i].buffer;
        const size_t n = model_buffer_bytes(&buffers[i], &a) / sizeof *begin;
        if (begin && place >= begin && place < begin + n) break;
    }
    assert(i < N_MODEL_BUFFERS);
    fprintf(line->out, "%s%s", *buffers[i].buffer == place ? "" : "part of ", buffers[i].name);
}

static void print_buffers(struct line *line, bool is_output) {
    const struct op_row *row = line->row;
    const int n = row->op == OP_MATMUL && is_output ? row->n_products : MAX_OP_BUFFERS;
    for (int i = 0; i < n; i++) {
        const float *buffer = is_output ? row->y[i] : row->x[i];
        const bool is_normed = !is_output && i == 0 && row->norm.gain;
        if (!buffer) continue;
        begin_item(line);
        if (is_normed) fputs("norm of ", line->out);
        print_buffer(line, buffer);
        fprintf(line->out, " [%d]", width_of(line, is_output, i));
    }
}

/* The part of the cache that an op reads, or writes too. */
static void print_cache(struct line *line, bool is_output) {
    const enum op op = line->row->op;
    const bool has_keys = op == OP_ROPE_WRITE || op == OP_LATENT_WRITE || op == OP_ATTENTION,
               has_state = op == OP_SHORT_CONV || op == OP_DELTA_RULE || op == OP_STATE_SPACE;
    if (!has_state && !(has_keys && is_output != (op == OP_ATTENTION))) return;
    begin_item(line);
    fprintf(line->out, "%s %d", has_keys ? "cache" : "state", line->row->cache_layer);
}

/* ---- the program ---------------------------------------------------------------------------- */

static void print_row(const struct model *model, const struct op_row *row, FILE *out) {
    static const char *const counts[N_COUNTS] = {[COUNT_ALL] = "M",
                                                 [COUNT_ALL_IF_READ] = "M if R",
                                                 [COUNT_READ] = "R",
                                                 [COUNT_LOGITS] = "logits",
                                                 [COUNT_HIDDEN] = "hidden"};
    struct line line = {model, row, out, false};
    char layer[16] = "-", rows[32];
    if (row->layer >= 0) snprintf(layer, sizeof layer, "%d", row->layer);
    snprintf(rows, sizeof rows, "%s", counts[row->count]);
    if (row->times) snprintf(rows, sizeof rows, "%s * %d", counts[row->count], row->times);
    fprintf(out, "  %5s  %-20s  %-8s  ", layer, op_name(row->op), rows);
    print_buffers(&line, false);
    print_cache(&line, false);
    print_matrices(&line);
    fputs(line.has_item ? " -> " : "-> ", out);
    line.has_item = false;
    print_buffers(&line, true);
    print_cache(&line, true);
    fputc('\n', out);
}

void model_print_program(const struct model *model, FILE *out) {
    const struct program *program = &model->program, *ahead = &model->ahead;
    const struct shard shard = model->shard;
    assert(program->n > 0);
    fputs("\nProgram", out);
    if (shard.ranks > 1) fprintf(out, " of rank %d of %d", shard.rank, shard.ranks);
    if (shard.rank > 0 && shard.rank < shard.ranks - 1) fputs(" and of the further ones", out);
    fprintf(out,
            ": %d ops of a step with M rows, R of which are read\n"
            "  layer  op                    rows      reads -> writes, [numbers per row]\n",
            program->n);
    for (int i = 0; i < program->n; i++) print_row(model, &program->rows[i], out);
    if (ahead->n > 0) fprintf(out, "\nProgram of guesses ahead: %d ops\n", ahead->n);
    for (int i = 0; i < ahead->n; i++) print_row(model, &ahead->rows[i], out);
}
