/* Gemma 2 (Gemma Team 2024): llama's blocks with a norm after each branch too, a GELU gate,
 * windows on every other layer, soft caps of scores and of logits, and scaled embeddings. The
 * gains of a GGUF file have the 1 in them that the model adds; those of a folder have not. */
#include <math.h>

#include "engine/models/family.h"

enum { LAYERS_OF_27B = 46 };

/* No key says how queries are scaled. It is by the size of a head, but in the 27B model by the
 * width of the stream for each head. */
static enum status finish(struct model_config *config, struct err *err) {
    (void)err;
    config->embedding_scale = sqrtf((float)config->K);
    if (config->attention_scale == 0 && config->L == LAYERS_OF_27B)
        config->attention_scale = 1 / sqrtf((float)config->K / (float)config->H);
    return STATUS_OK;
}

static const char *const hf[] = {"Gemma2ForCausalLM", NULL};
static const struct role_alias alias[] = {{ROLE_FFN_NORM, "pre_feedforward_layernorm.weight"}, {0}};

const struct model_family model_gemma2 = {
    .gguf = "gemma2",
    .hf = hf,
    .roles = ROLES_ENDS | ROLES_ATTENTION | ROLES_GATED_MLP | ROLE_BIT(ROLE_ATTN_POST_NORM) |
             ROLE_BIT(ROLE_FFN_POST_NORM),
    .norm = NORM_RMS,
    .activation = ACTIVATION_GELU_TANH,
    .positions = POSITIONS_ROPE_HALVES,
    .windows = WINDOWS_EVEN_LAYERS,
    .ties = true,
    .folder = {.alias = alias, .adds_one = true},
    .finish = finish,
};
