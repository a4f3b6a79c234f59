/* OPT (Zhang et al. 2022): LayerNorm before each branch, biases everywhere, a ReLU without a gate,
 * and learned positions whose first two rows are not used. The 350M model normalises the stream
 * after each branch, lacks the last norm, and has an embedding of half the width. */
#include "engine/models/families/family.h"

static const char *const hf[] = {"OPTForCausalLM", NULL};
static const struct role_alias alias[] = {{ROLE_POSITION_EMBEDDING, "embed_positions.weight"},
                                          {ROLE_OUTPUT_NORM, "final_layer_norm.weight"},
                                          {ROLE_OUTPUT_NORM_BIAS, "final_layer_norm.bias"},
                                          {ROLE_ATTN_NORM, "self_attn_layer_norm.weight"},
                                          {ROLE_ATTN_NORM_BIAS, "self_attn_layer_norm.bias"},
                                          {ROLE_O, "self_attn.out_proj.weight"},
                                          {ROLE_O_BIAS, "self_attn.out_proj.bias"},
                                          {ROLE_FFN_NORM, "final_layer_norm.weight"},
                                          {ROLE_FFN_NORM_BIAS, "final_layer_norm.bias"},
                                          {ROLE_UP, "fc1.weight"},
                                          {ROLE_UP_BIAS, "fc1.bias"},
                                          {ROLE_DOWN, "fc2.weight"},
                                          {ROLE_DOWN_BIAS, "fc2.bias"},
                                          {0}};

const struct model_family model_opt = {
    .gguf = "opt",
    .only_folders = true,
    .hf = hf,
    .roles = ROLES_ENDS | ROLES_ATTENTION | ROLE_BIT(ROLE_POSITION_EMBEDDING) |
             ROLE_BIT(ROLE_OUTPUT_NORM_BIAS) | ROLE_BIT(ROLE_ATTN_NORM_BIAS) |
             ROLE_BIT(ROLE_Q_BIAS) | ROLE_BIT(ROLE_K_BIAS) | ROLE_BIT(ROLE_V_BIAS) |
             ROLE_BIT(ROLE_O_BIAS) | ROLE_BIT(ROLE_FFN_NORM) | ROLE_BIT(ROLE_FFN_NORM_BIAS) |
             ROLE_BIT(ROLE_UP) | ROLE_BIT(ROLE_UP_BIAS) | ROLE_BIT(ROLE_DOWN) |
             ROLE_BIT(ROLE_DOWN_BIAS),
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLE_BIT(ROLE_PROJECT_IN) | ROLE_BIT(ROLE_PROJECT_OUT),
    .norm = NORM_LAYER,
    .norm_epsilon = 1e-5f,
    .activation = ACTIVATION_RELU,
    .may_norm_stream = true,
    .positions = POSITIONS_LEARNED,
    .ties = true,
    .folder = {.alias = alias, .unused_positions = 2},
};
