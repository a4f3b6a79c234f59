/* A folder's tensors in the form of a GGUF file: with GGUF's names, the experts of a layer in one
 * tensor, gate and up separate if a folder fuses them, rows instead of columns, gains and biases in
 * float32, and queries and keys in the order in which the family's GGUF files rotate them. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/convert/convert.h"
#include "engine/quantise/quantise.h"

struct lister {
    struct conversion *c;
    const struct gguf_form *form;
    struct err *err;
};

/* Do rows of that role belong to heads that rotate? */
static bool rotates(enum role role) {
    static const enum role roles[] = {ROLE_Q,      ROLE_Q_BIAS, ROLE_K,          ROLE_K_BIAS,
                                      ROLE_Q_NORM, ROLE_K_NORM, ROLE_Q_NORM_ALL, ROLE_K_NORM_ALL};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (roles[i] == role) return true;
    return false;
}

/* Vectors, routers, and tensors that are added to the stream stay exact. */
static enum dtype type_of(const struct lister *l, enum role role, const struct out_tensor *t) {
    const struct role_info *info = role_info(role);
    bool is_exact = info->is_float32 || info->is_bias || t->K == 1;
    if (is_exact || role == ROLE_POSITION_EMBEDDING) return DTYPE_F32;
    return quantised_type(l->c->job->type, t->name, t->from, t->K);
}

/* Adds one tensor of the output, part i of a source. */
static void add_part(const struct lister *l, enum role role, int layer, int i, int n_parts,
                     const struct weight *weight, const struct weight **expert) {
    const struct role_info *info = role_info(role);
    const struct model_config *m = &l->c->config;
    char name[ROLE_NAME_BYTES];
    config_role_name(name, m, role, layer);
    struct out_tensor *t = conversion_add(l->c, name);
    int pieces = role_pieces(m, role);
    int64_t E = pieces ? pieces : 1,
            N = info->of_heads ? config_heads(m, layer).D : role_extent(m, info->N, layer);
    bool is_row = info->K && N == 1; /* GGUF files store such a matrix as a vector */
    t->weight = weight, t->expert = expert, t->from = weight->type;
    t->part = i, t->n_parts = n_parts;
    t->E = E, t->N = N, t->K = info->K ? role_extent(m, info->K, layer) : 1;
    t->dim[0] = info->K ? t->K : N, t->dim[1] = info->K ? N : E, t->dim[2] = E;
    t->n_dims = (info->K && !is_row ? 2 : 1) + (pieces > 0);
    if (info->of_taps) t->n_dims = 2, t->dim[0] = m->taps, t->dim[1] = m->C;
    if (l->form->pairs && rotates(role))
        t->D = config_heads(m, layer).D, t->D_rope = m->rope.D_rope;
    t->to = type_of(l, role, t);
}

static enum status check_float(const struct lister *l, const struct weight *weight) {
    if (!weight->packed && dtype_block_elements((int)weight->type) == 1) return STATUS_OK;
    return err_set(l->err, STATUS_USAGE, "model",
                   "%s: tensor %s is quantised already; quantize makes a GGUF file of floats",
                   l->c->job->in, weight->name);
}

/* Finds the tensors of all experts or heads of a role, one each. The caller frees the array. */
static enum status find_pieces(const struct lister *l, enum role role, int layer,
                               const struct weight ***out) {
    int E = role_pieces(&l->c->config, role);
    const struct weight **expert = mem_calloc((size_t)E, sizeof *expert);
    enum status status = STATUS_OK;
    for (int e = 0; e < E && !status; e++) {
        char name[ROLE_NAME_BYTES];
        role_piece_name(name, role, layer, e);
        expert[e] = weights_lookup(&l->c->source.hf->weights, name);
        assert(expert[e]); /* folder_names_read has checked that all exist */
        status = check_float(l, expert[e]);
        if (!status && expert[e]->type != expert[0]->type)
            status = err_set(l->err, STATUS_BAD_FILE, expert[e]->name,
                             "tensor %s: expected type %s as of the first one, found %s",
                             expert[e]->name, dtype_name((int)expert[0]->type),
                             dtype_name((int)expert[e]->type));
    }
    *out = expert;
    return status;
}

/* Does the output have the parts of a fused tensor? */
static bool is_split(const struct lister *l, enum role role) {
    const struct role_info *info = role_info(role);
    bool is_mlp = role == ROLE_GATE_UP && l->form->splits_mlp;
    return info->n_parts > 0 && (info->of_experts || is_mlp);
}

static enum status add_role(const struct lister *l, enum role role, int layer) {
    const struct weight **expert = NULL;
    enum role parts[MAX_PARTS];
    const int n_parts = role_parts(&l->c->config, role, parts);
    char name[ROLE_NAME_BYTES];
    config_role_name(name, &l->c->config, role, layer);
    const struct weight *weight = weights_lookup(&l->c->source.hf->weights, name);
    enum status status = STATUS_OK;
    if (!weight && role_pieces(&l->c->config, role) > 0) {
        status = find_pieces(l, role, layer, &expert);
        weight = expert[0];
    }
    assert(weight);
    if (!status) status = check_float(l, weight);
    if (status) {
        mem_free(expert);
        return status;
    }
    if (is_split(l, role))
        for (int i = 0; i < n_parts; i++) add_part(l, parts[i], layer, i, n_parts, weight, NULL);
    else
        add_part(l, role, layer, 0, 1, weight, expert);
    return STATUS_OK;
}

/* Adds the factors that divide the frequencies, for families with a tensor for them. */
static void add_factors(const struct lister *l, enum role role, const float *factors) {
    struct out_tensor *t = conversion_add(l->c, role_info(role)->gguf);
    size_t n = (size_t)l->c->config.rope.D_rope / 2;
    t->made = mem_alloc(n * sizeof *t->made);
    memcpy(t->made, factors, n * sizeof *t->made);
    t->from = t->to = DTYPE_F32;
    t->n_dims = 1, t->dim[0] = t->N = (int64_t)n, t->K = 1;
}

static void add_rope(const struct lister *l) {
    const struct rope_config *rope = &l->c->config.rope;
    const struct rope_stretch *s = &rope->stretch;
    if (s->kind == ROPE_LONG) {
        add_factors(l, ROLE_ROPE_LONG, s->long_factor);
        add_factors(l, ROLE_ROPE_SHORT, s->short_factor);
    }
    if (s->kind != ROPE_LLAMA3 && s->kind != ROPE_PART) return;
    float *factors = mem_alloc((size_t)rope->D_rope / 2 * sizeof *factors);
    rope_factors(factors, rope);
    add_factors(l, ROLE_ROPE_FACTORS, factors);
    mem_free(factors);
}

enum status folder_tensors(struct conversion *c, const struct gguf_form *form, struct err *err) {
    const struct lister l = {c, form, err};
    enum status status = STATUS_OK;
    add_rope(&l);
    for (int layer = -1; layer < c->config.L; layer++)
        for (enum role role = 0; role < N_ROLES && !status; role++)
            if (config_has_in(&c->config, role, layer)) status = add_role(&l, role, layer);
    return status;
}
