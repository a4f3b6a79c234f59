/* The llama family: pre-norm blocks of grouped-query attention with rotary positions and a
 * SiLU-gated MLP (Touvron et al. 2023; Ainslie et al. 2023). SmolLM2, Llama 1 to 3 and Mistral are
 * of this shape. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/model.h"

/* One tensor of a block: its name's ending, its shape, and where it goes. */
struct slot {
    const char *suffix;
    int N, K;
    struct matrix **matrix;
};

static enum status load_layer(struct model *model, const struct weights *weights,
                              const struct engine_config *config, int index, struct err *err) {
    const struct model_info *m = &model->info;
    struct layer *layer = &model->layers[index];
    int q = m->H * m->D, kv = m->G * m->D;
    const struct slot slots[] = {
        {"attn_q", q, m->K, &layer->wq},        {"attn_k", kv, m->K, &layer->wk},
        {"attn_v", kv, m->K, &layer->wv},       {"attn_output", m->K, q, &layer->wo},
        {"ffn_gate", m->F, m->K, &layer->gate}, {"ffn_up", m->F, m->K, &layer->up},
        {"ffn_down", m->K, m->F, &layer->down},
    };
    char name[64];
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
        snprintf(name, sizeof name, "blk.%d.%s.weight", index, slots[i].suffix);
        enum status status = model_take_matrix(model, weights, config, name, slots[i].N, slots[i].K,
                                               slots[i].matrix, err);
        if (status) return status;
    }
    snprintf(name, sizeof name, "blk.%d.attn_norm.weight", index);
    enum status status =
        model_take_vector(model, weights, config, name, m->K, &layer->attention_norm, err);
    if (status) return status;
    snprintf(name, sizeof name, "blk.%d.ffn_norm.weight", index);
    return model_take_vector(model, weights, config, name, m->K, &layer->mlp_norm, err);
}

/* inv_freq[i] = base^(-2i / D_rope), divided by the file's own factors where it has some
 * (Llama 3.1's long contexts are made so). */
static enum status load_frequencies(struct model *model, const struct weights *weights,
                                    struct err *err) {
    const struct model_info *m = &model->info;
    size_t n = (size_t)m->D_rope / 2;
    enum status status = STATUS_OK;
    const struct weight *factors = NULL;
    if (weights_lookup(weights, "rope_freqs.weight")) {
        status = weights_vector(weights, "rope_freqs.weight", (int)n, &factors, err);
        if (status) return status;
    }
    float *inv_freq = mem_alloc(n * sizeof *inv_freq);
    if (factors) dequantise(factors->type, factors->data, inv_freq, n);
    for (size_t i = 0; i < n; i++) {
        double power = pow((double)m->rope_base, 2.0 * (double)i / m->D_rope);
        inv_freq[i] = (float)(1.0 / (power * (factors ? (double)inv_freq[i] : 1.0)));
    }
    status = model_upload(model, inv_freq, n, &model->inv_freq, err);
    free(inv_freq);
    return status;
}

static enum status load(struct model *model, const struct weights *weights,
                        const struct engine_config *config, struct err *err) {
    const struct model_info *m = &model->info;
    enum status status = model_take_matrix(model, weights, config, "token_embd.weight", m->V, m->K,
                                           &model->embedding, err);
    if (status) return status;
    status = model_take_vector(model, weights, config, "output_norm.weight", m->K,
                               &model->final_norm, err);
    if (status) return status;
    model->head = model->embedding;
    if (weights_lookup(weights, "output.weight")) {
        status = model_take_matrix(model, weights, config, "output.weight", m->V, m->K,
                                   &model->head, err);
        if (status) return status;
    }
    status = load_frequencies(model, weights, err);
    for (int i = 0; i < m->L && !status; i++) {
        status = load_layer(model, weights, config, i, err);
        if (config->progress) config->progress(config->progress_arg, "weights", (i + 1.0) / m->L);
    }
    return status;
}

/* k and v of all rows into the cache, from norm(x); q for what comes next. */
static void project(struct model *model, int index, int M, struct kv_cache *cache) {
    struct backend *b = model->backend;
    const struct model_info *m = &model->info;
    struct activations *a = &model->act;
    struct layer *layer = &model->layers[index];
    const struct norm norm = {layer->attention_norm, m->rms_epsilon};
    const struct rope rope = {m->D_rope, model->inv_freq, model->family->rope};
    b->ops->matmul(b, (float *const[]){a->q, a->k, a->v}, a->x, &norm,
                   (struct matrix *const[]){layer->wq, layer->wk, layer->wv}, 3, M);
    b->ops->rope_write(b, cache, index, &rope, m->H, a->q, a->k, a->v);
}

/* mixed = attention */
static void attend(struct model *model, int index, const struct kv_cache *cache) {
    struct backend *b = model->backend;
    const struct model_info *m = &model->info;
    struct activations *a = &model->act;
    b->ops->attention(b, a->mixed, a->q, cache, index, m->H, 1.0f / sqrtf((float)m->D));
}

/* M rows: x += output(mixed), then x += down(silu(gate(norm(x))) * up(norm(x))). */
static void transform(struct model *model, int index, float *x, const float *mixed, int M) {
    struct backend *b = model->backend;
    struct layer *layer = &model->layers[index];
    const struct norm norm = {layer->mlp_norm, model->info.rms_epsilon};
    b->ops->matmul_add(b, x, mixed, layer->wo, M);
    b->ops->gated_mlp(b, x, &norm, layer->gate, layer->up, layer->down, M);
}

/* After the last layer's keys and values only the rows go on that want logits: their x and what
 * attention gave them move to `rows` and, as the queries are done with, to `q`. */
static void forward(struct model *model, const struct step *step, struct kv_cache *cache) {
    struct backend *b = model->backend;
    const struct model_info *m = &model->info;
    struct activations *a = &model->act;
    int last = m->L - 1;
    b->ops->step_begin(b, step, cache);
    b->ops->embed(b, a->x, model->embedding);
    for (int i = 0; i < last; i++) {
        project(model, i, step->M, cache);
        attend(model, i, cache);
        transform(model, i, a->x, a->mixed, step->M);
    }
    project(model, last, step->M, cache);
    if (step->R == 0) return;
    const struct norm norm = {model->final_norm, m->rms_epsilon};
    attend(model, last, cache);
    b->ops->gather(b, a->rows, a->x, m->K);
    b->ops->gather(b, a->q, a->mixed, m->H * m->D);
    transform(model, last, a->rows, a->q, step->R);
    b->ops->logits(b, a->logits, a->rows, &norm, model->head, step->R);
}

const struct model_family model_llama = {
    .architecture = "llama",
    .rope = ROPE_ADJACENT,
    .load = load,
    .forward = forward,
};
