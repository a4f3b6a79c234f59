/* Granite (IBM 2024): llama's blocks with scales of the embedding, of scores and of each branch's
 * output, and a divisor of logits. Granite 4 (IBM 2025) without recurrent layers has gate and up
 * in one tensor of its folders, which say whether positions rotate. Its GGUF files are those of
 * Granite, or of the hybrid models. */
#include "engine/models/families/family.h"

/* The file has the inverse of the logits' scale. */
static enum status finish(struct model_config *config, struct err *err) {
    (void)err;
    config->logit_scale = 1 / config->logit_scale;
    return STATUS_OK;
}

static const char *const granite4_hf[] = {"GraniteMoeHybridForCausalLM", NULL};
static const struct role_alias alias[] = {{ROLE_GATE_UP, "shared_mlp.input_linear.weight"},
                                          {ROLE_DOWN, "shared_mlp.output_linear.weight"},
                                          {0}};
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
    .may_not_rotate = true,
    .folder = {.attention_scale = 1},
    .finish = finish,
};

const struct model_family model_granite4 = {
    .gguf = "granitehybrid",
    .written_as = "granite",
    .hf = granite4_hf,
    .roles = ROLES_LLAMA,
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLE_BIT(ROLE_ROPE_FACTORS) | ROLES_ATTENTION_BIASES,
    .norm = NORM_RMS,
    .activation = ACTIVATION_SILU,
    .positions = POSITIONS_ROPE_ADJACENT,
    .scales = true,
    .may_not_rotate = true,
    .folder = {.alias = alias,
               .fused = ROLE_BIT(ROLE_GATE_UP),
               .attention_scale = 1,
               .width_key = "shared_intermediate_size",
               .rotates_if_said = true},
    .finish = finish,
};
