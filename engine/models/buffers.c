/* The buffers of a pass. */
#include <assert.h>
#include <string.h>

#include "engine/models/model.h"

void model_buffers(struct model_activations *a, const struct model *model,
                   struct model_buffer buffers[N_MODEL_BUFFERS]) {
    const struct model_config *m = &model->part;
    bool first = model->shard.rank == 0;
    bool post =
        config_has(m, ROLE_ATTN_POST_NORM) || config_has(m, ROLE_FFN_POST_NORM) || m->norms_stream;
    bool gates = config_has(m, ROLE_Q_GATED) || config_has(m, ROLE_ATTN_GATE);
    bool projects = first && config_has(m, ROLE_PROJECT_IN);
    const struct config_widths most = config_widest(m);
    int inputs = m->L * m->P, joins = first ? m->n_ahead * m->K : 0;
    int joined = m->eagle.is_used ? 2 * m->K : 2 * joins; /* all ranks multiply those of a head */
    const struct model_buffer all[N_MODEL_BUFFERS] = {
        {"x", &a->x, m->K, false},
        {"q", &a->q, most.q, false},
        {"k", &a->k, most.kv, false},
        {"v", &a->v, most.kv, false},
        {"attn_out", &a->attn_out, most.q, false},
        {"attn_gate", &a->attn_gate, gates ? m->H * m->D : 0, false},
        {"state_out", &a->state_out, m->mixes_both ? config_recurrent_width(m) : 0, false},
        {"latent", &a->latent, config_latent_width(m), false},
        {"branch", &a->branch, post ? m->K : 0, false},
        {"both", &a->both, m->experts.beside_mlp ? m->K : 0, false},
        {"inputs", &a->inputs, inputs, false},
        {"input_parts", &a->input_parts, inputs, false},
        {"logit_inputs", &a->logit_inputs, inputs, true},
        {"embedded", &a->embedded, projects ? m->K_embedding : 0, false},
        {"ahead_hidden", &a->ahead_hidden, joins, false},
        {"ahead_joined", &a->ahead_joined, joined, false},
        {"ahead_x", &a->ahead_x, m->n_ahead * m->K, false},
        {"ahead_kept", &a->ahead_kept, joins, true},
        {"guess_logits", &a->guess_logits, first && m->eagle.maps_ids ? m->eagle.V : 0, true},
        {"logit_x", &a->logit_x, m->K, true},
        {"logits", &a->logits, first && !m->is_encoder ? m->V : 0, true},
        {"hidden", &a->hidden, first ? m->K_embedding : 0, true},
        {"part", &a->part, first ? 0 : max_int(m->K, m->eagle.is_used ? joined : 0), false},
    };
    memcpy(buffers, all, sizeof all);
}

size_t model_buffer_bytes(const struct model_buffer *buffer, const struct model_activations *a) {
    int rows = buffer->per_logit_row ? a->max_logit_rows : a->max_rows;
    return (size_t)rows * (size_t)buffer->width * sizeof(float);
}

int64_t activations_bytes(const struct model *model, int max_rows, int max_logit_rows) {
    assert(max_rows > 0 && max_logit_rows >= 0);
    struct model_activations a = {.max_rows = max_rows, .max_logit_rows = max_logit_rows};
    struct model_buffer buffers[N_MODEL_BUFFERS];
    model_buffers(&a, model, buffers);
    int64_t bytes = 0;
    for (int i = 0; i < N_MODEL_BUFFERS; i++) bytes += (int64_t)model_buffer_bytes(&buffers[i], &a);
    return bytes;
}
