/* A head beside the model that guesses ahead (EAGLE-3: Li et al. 2025; forward_ahead.c): adds it as
 * the last layer of the model, and knows the tensors of its folder.
 *
 * Published folders name the layer "midlayer" or "layers.0", with or without "model." before it.
 * Here it is "midlayer". */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/models/layers.h"
#include "engine/models/model.h"

const struct eagle_gain eagle_gains[N_EAGLE_GAINS] = {
    {"midlayer.input_layernorm.weight", ROLE_AHEAD_EMBEDDING_NORM},
    {"midlayer.hidden_norm.weight", ROLE_AHEAD_HIDDEN_NORM},
    {"midlayer.post_attention_layernorm.weight", ROLE_FFN_NORM},
    {"norm.weight", ROLE_AHEAD_OUTPUT_NORM}};

int eagle_matrices(struct model *model, struct eagle_matrix out[N_EAGLE_MATRICES]) {
    const struct model_config *m = &model->config;
    const struct eagle_config *c = &m->eagle;
    const struct layer_config *layer = &m->layer[m->L - 1];
    struct eagle *e = &model->eagle;
    struct matrix **w = model->layers[m->L - 1].w;
    const int K = m->K, F = layer->F, q = c->H * layer->heads.D,
              kv = layer->heads.G * layer->heads.D;
    const struct eagle_matrix all[N_EAGLE_MATRICES] = {
        {"fc.weight", ROLE_AHEAD_PROJECTION, &e->tap[0], K, K, 0, N_TAPS * K},
        {"fc.weight", ROLE_AHEAD_PROJECTION, &e->tap[1], K, K, K, N_TAPS * K},
        {"fc.weight", ROLE_AHEAD_PROJECTION, &e->tap[2], K, K, 2 * K, N_TAPS * K},
        {"midlayer.self_attn.q_proj.weight", ROLE_Q, &w[ROLE_Q], q, 2 * K, 0, 2 * K},
        {"midlayer.self_attn.k_proj.weight", ROLE_K, &w[ROLE_K], kv, 2 * K, 0, 2 * K},
        {"midlayer.self_attn.v_proj.weight", ROLE_V, &w[ROLE_V], kv, 2 * K, 0, 2 * K},
        {"midlayer.self_attn.o_proj.weight", ROLE_O, &w[ROLE_O], K, q, 0, q},
        {"midlayer.mlp.gate_proj.weight", ROLE_GATE, &w[ROLE_GATE], F, K, 0, K},
        {"midlayer.mlp.up_proj.weight", ROLE_UP, &w[ROLE_UP], F, K, 0, K},
        {"midlayer.mlp.down_proj.weight", ROLE_DOWN, &w[ROLE_DOWN], K, F, 0, F},
        {"lm_head.weight", ROLE_OUTPUT, &e->head, c->V, K, 0, K},
        {"embed_tokens.weight", ROLE_TOKEN_EMBEDDING, &e->embedding, m->V, K, 0, K}};
    assert(c->is_used && m->n_ahead == 1);
    memcpy(out, all, sizeof all);
    return c->has_embedding ? N_EAGLE_MATRICES : N_EAGLE_MATRICES - 1;
}

/* ---- names ---------------------------------------------------------------------------------- */

/* Writes the tensor's name in the form of the table; "": it is not needed. Returns false for
 * tensors that are not known. */
static bool usual_name(char out[WEIGHT_MAX_RENAMED + 1], const char *name,
                       const struct eagle_matrix *matrices, int n) {
    static const char model[] = "model.", layer[] = "layers.0.";
    *out = 0;
    if (strncmp(name, model, sizeof model - 1) == 0) name += sizeof model - 1;
    if (strcmp(name, "t2d") == 0) return true; /* the other way of d2t */
    const bool is_numbered = strncmp(name, layer, sizeof layer - 1) == 0;
    if (is_numbered) name += sizeof layer - 1;
    snprintf(out, WEIGHT_MAX_RENAMED + 1, "%s%.50s", is_numbered ? "midlayer." : "", name);
    if (strcmp(out, "d2t") == 0) return true;
    for (int i = 0; i < n; i++)
        if (strcmp(out, matrices[i].name) == 0) return true;
    for (int i = 0; i < N_EAGLE_GAINS; i++)
        if (strcmp(out, eagle_gains[i].name) == 0) return true;
    return false;
}

static enum status name_tensors(struct weights *weights, const struct eagle_matrix *matrices, int n,
                                struct err *err) {
    char(*names)[WEIGHT_MAX_RENAMED + 1] = mem_calloc((size_t)weights->n, sizeof *names);
    for (int i = 0; i < weights->n; i++) {
        const char *name = weights->tensor[i].name;
        if (usual_name(names[i], name, matrices, n)) continue;
        mem_free(names);
        return err_set(err, STATUS_BAD_FILE, name,
                       "tensor %s is not supported in an EAGLE-3 head of 1 layer", name);
    }
    return weights_rename(weights, names, err);
}

/* ---- tensors -------------------------------------------------------------------------------- */

/* Tensors of whole numbers are listed, too (lists_ids): only ids may have them. */
static enum status check_types(const struct weights *weights, struct err *err) {
    for (int i = 0; i < weights->n; i++) {
        const struct weight *weight = &weights->tensor[i];
        const char *name = weights_name(weights, i);
        if (!*name || strcmp(name, "d2t") == 0) continue;
        if (weight->type == DTYPE_F32 || weight->type == DTYPE_F16 || weight->type == DTYPE_BF16)
            continue;
        return err_set(err, STATUS_BAD_FILE, weight->name,
                       "tensor %s: the type F32, F16 or BF16 was expected in an EAGLE-3 head",
                       weight->name);
    }
    return STATUS_OK;
}

static enum status check_tensors(const struct weights *weights, const struct eagle_matrix *matrices,
                                 int n, int K, struct err *err) {
    enum status status = check_types(weights, err);
    const struct weight *weight;
    for (int i = 0; i < n && !status; i++)
        status = weights_matrix(weights, matrices[i].name, matrices[i].N, matrices[i].columns,
                                &weight, err);
    for (int i = 0; i < N_EAGLE_GAINS && !status; i++)
        status = weights_vector(weights, eagle_gains[i].name, K, &weight, err);
    return status;
}

/* d2t has the offset of each of the head's ids to the model's. */
static enum status check_ids(struct model_config *config, const struct weights *weights,
                             struct err *err) {
    const struct eagle_config *c = &config->eagle;
    const struct weight *d2t = weights_lookup(weights, "d2t");
    config->eagle.maps_ids = d2t != NULL;
    if (!d2t && c->V == config->V) return STATUS_OK;
    if (!d2t)
        return err_set(err, STATUS_BAD_FILE, "d2t",
                       "tensor d2t is missing: it says which of the model's %d tokens are the %d "
                       "of the head (draft_vocab_size)",
                       config->V, c->V);
    if (d2t->type != (enum dtype)WEIGHT_RAW_I64 || d2t->n_elements != c->V || d2t->dim[0] != c->V)
        return err_set(err, STATUS_BAD_FILE, "d2t",
                       "tensor d2t: %d whole numbers of 64 bits were expected, one for each token "
                       "of the head (draft_vocab_size)",
                       c->V);
    for (int i = 0; i < c->V; i++) {
        int64_t offset;
        memcpy(&offset, (const char *)d2t->data + (size_t)i * sizeof offset, sizeof offset);
        if (offset >= -i && offset < config->V - i) continue;
        return err_set(err, STATUS_BAD_FILE, "d2t",
                       "tensor d2t: token %d of the head is token %d + %" PRId64
                       " of the model, which has %d tokens",
                       i, i, offset, config->V);
    }
    return STATUS_OK;
}

static enum status check_folder(struct model_config *config, struct hf_config *hf,
                                struct err *err) {
    struct model model = {.config = *config};
    struct eagle_matrix matrices[N_EAGLE_MATRICES];
    struct tensors *layers = mem_calloc((size_t)config->L, sizeof *layers);
    model.layers = layers;
    model.config.eagle.has_embedding = true;
    const int most = eagle_matrices(&model, matrices);
    enum status status = name_tensors(&hf->weights, matrices, most, err);
    config->eagle.has_embedding = weights_lookup(&hf->weights, "embed_tokens.weight") != NULL;
    const int n = config->eagle.has_embedding ? most : most - 1;
    if (!status) status = check_tensors(&hf->weights, matrices, n, config->K, err);
    if (!status) status = check_ids(config, &hf->weights, err);
    for (int i = 0; i < hf->weights.n; i++)
        config->eagle.n_parameters += hf->weights.tensor[i].n_elements;
    config->eagle.file_bytes = hf->file_bytes;
    mem_free(layers);
    return status;
}

/* ---- the layer ------------------------------------------------------------------------------ */

enum status eagle_add(struct model_config *config, const struct model_file *file, struct err *err) {
    struct hf_config *hf = file->eagle;
    struct layer_config *layer = &config->layer[config->L];
    assert(config->n_ahead == 0 && config->L > 0 && config->L <= MAX_LAYERS && hf);
    if (config->L == MAX_LAYERS)
        return err_set(err, STATUS_BAD_FILE, "num_hidden_layers",
                       "the model has %d layers, and one that guesses ahead would exceed the limit",
                       config->L);
    *layer = (struct layer_config){.is_dense = config->experts.is_used};
    config->L++;
    config->n_ahead = 1;
    config->eagle =
        (struct eagle_config){.is_used = true, .stamp = model_file_stamp(file->eagle_path)};
    enum status status = hf_eagle_read(config, hf, err);
    if (status) return status;
    assert(hf->packing.method == PACKING_NONE);
    status = check_folder(config, hf, err);
    return status ? blame_file(err, status, file->eagle_path) : STATUS_OK;
}

enum status eagle_check_model(const struct model_config *config, struct err *err) {
    bool has_windows = config->n_readers > 0;
    for (int i = 0; i < config->L; i++) has_windows |= config->layer[i].window > 0;
    const struct {
        bool found;
        const char *what;
    } parts[] = {{config->is_encoder, "no text (it is an encoder)"},
                 {config->C > 0 || config->lacks_attention, "recurrent layers"},
                 {config->latent.is_used, "latent attention"},
                 {has_windows, "layers with windows"},
                 {config->P > 0, "inputs of layers"},
                 {config->has_slopes, "slopes of positions (ALiBi)"},
                 {config->keys_serve, "keys that are values, too"},
                 {config->query_beta != 0, "scales of queries"},
                 {config->norms_values, "norms of values"},
                 {config->norms_stream, "norms of the stream"},
                 {config->K_embedding != config->K, "an embedding of another width"},
                 {config->n_unread_layers > 0, "a layer of its own that guesses ahead"}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i].found)
            return err_set(err, STATUS_BAD_FILE, "speculative-config",
                           "{speculative-config}: the method \"eagle3\" is not supported for a "
                           "model with %s, such as this one of the architecture \"%s\"; use "
                           "\"ngram\", \"suffix\", \"draft_model\" or \"mtp\"",
                           parts[i].what, config->architecture);
    return STATUS_OK;
}

struct model_config *eagle_config_new(const struct model_config *config) {
    const struct eagle_config *eagle = &config->eagle;
    const struct layer_config *layer = &config->layer[config->L - 1];
    struct model_config *own = mem_calloc(1, sizeof *own);
    assert(eagle->is_used && config->n_ahead == 1);
    own->L = config->L, own->n_ahead = 1, own->V = config->V;
    own->K = own->K_embedding = config->K, own->F = layer->F;
    own->H = eagle->H, own->G = layer->heads.G, own->D = layer->heads.D;
    own->norm = NORM_RMS, own->norm_epsilon = eagle->norm_epsilon;
    own->activation = ACTIVATION_SILU;
    own->embedding_scale = eagle->has_embedding ? 1 : config->embedding_scale;
    own->residual_scale = own->logit_scale = 1;
    own->attention_scale = 1 / sqrtf((float)own->D);
    own->rope = eagle->rope;
    own->eagle = *eagle;
    return own;
}
