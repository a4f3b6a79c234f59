/* Command R (Cohere 2024): attention and MLP of a layer have the same normalised input, the norm
 * is a LayerNorm without bias, logits are scaled; Command R+ also norms queries and keys. In
 * Command R7B (Cohere 2024), three of four layers have a window and rotate; every fourth layer has
 * neither window nor positions. */
#include "engine/models/families/family.h"

static enum status finish(struct model_config *config, struct err *err) {
    (void)err;
    for (int i = 0; i < config->L; i++) config->layer[i].has_no_rope = !config->layer[i].slides;
    return STATUS_OK;
}

static const struct role_alias command_r_alias[] = {{ROLE_Q_NORM_HEADS, "self_attn.q_norm.weight"},
                                                    {ROLE_K_NORM_HEADS, "self_attn.k_norm.weight"},
                                                    {0}};
static const char *const command_r_hf[] = {"CohereForCausalLM", NULL};
static const char *const hf[] = {"Cohere2ForCausalLM", NULL};

const struct model_family model_cohere2 = {
    .gguf = "cohere2",
    .hf = hf,
    .roles = ROLES_ENDS | ROLES_ATTENTION | ROLE_BIT(ROLE_GATE) | ROLE_BIT(ROLE_UP) |
             ROLE_BIT(ROLE_DOWN),
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLES_ATTENTION_BIASES,
    .norm = NORM_LAYER,
    .activation = ACTIVATION_SILU,
    .has_parallel_branches = true,
    .positions = POSITIONS_ROPE_ADJACENT,
    .windows = WINDOWS_PATTERN,
    .full_every = 4,
    .scales = true,
    .ties = true,
    .folder = {.rotates_adjacent = true},
    .finish = finish,
};

const struct model_family model_command_r = {
    .gguf = "command-r",
    .hf = command_r_hf,
    .roles = ROLES_ENDS | ROLES_ATTENTION | ROLE_BIT(ROLE_GATE) | ROLE_BIT(ROLE_UP) |
             ROLE_BIT(ROLE_DOWN),
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLES_ATTENTION_BIASES | ROLES_QK_NORM_HEADS,
    .norm = NORM_LAYER,
    .activation = ACTIVATION_SILU,
    .has_parallel_branches = true,
    .positions = POSITIONS_ROPE_ADJACENT,
    .scales = true,
    .ties = true,
    .folder = {.alias = command_r_alias, .rotates_adjacent = true},
};
