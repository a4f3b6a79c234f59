/* Granite (IBM 2024): llama's blocks with scales of the embedding, of scores and of each branch's
 * output, and a divisor of logits. */
#include "engine/models/families/family.h"

/* The file has the inverse of the logits' scale. */
static enum status finish(struct model_config *config, struct err *err) {
    (void)err;
    config->logit_scale = 1 / config->logit_scale;
    return STATUS_OK;
}

static const char *const hf[] = {"GraniteForCausalLM", NULL};

const struct model_family model_granite = {
    .gguf = "granite",
    .hf = hf,
    .roles = ROLES_LLAMA,
    .optional = ROLES_LLAMA_OPTIONAL,
    .norm = NORM_RMS,
    .activation = ACTIVATION_SILU,
    .positions = POSITIONS_ROPE_ADJACENT,
    .scales = true,
    .folder = {.attention_scale = 1},
    .finish = finish,
};
