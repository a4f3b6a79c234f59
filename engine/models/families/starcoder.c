/* Families with LayerNorm and rotary positions. StarCoder 2 (Lozhkov et al. 2024) has biases
 * everywhere, an MLP without a gate, and a window on all layers. StableLM 2 (Bellagente et al.
 * 2024) has a gate and rotates a quarter of each head. In StableLM's 12B model the branches are
 * parallel, and each head of queries and keys has a separate norm. */
#include "engine/models/families/family.h"

#define ROLES_NORM_BIASES                                                                          \
    (ROLE_BIT(ROLE_OUTPUT_NORM_BIAS) | ROLE_BIT(ROLE_ATTN_NORM_BIAS) | ROLE_BIT(ROLE_FFN_NORM_BIAS))

static const char *const starcoder2_hf[] = {"Starcoder2ForCausalLM", NULL};
static const char *const stablelm_hf[] = {"StableLmForCausalLM", NULL};
static const struct role_alias alias[] = {{ROLE_UP, "mlp.c_fc.weight"},
                                          {ROLE_UP_BIAS, "mlp.c_fc.bias"},
                                          {ROLE_DOWN, "mlp.c_proj.weight"},
                                          {ROLE_DOWN_BIAS, "mlp.c_proj.bias"},
                                          {0}};

const struct model_family model_starcoder2 = {
    .gguf = "starcoder2",
    .hf = starcoder2_hf,
    .roles = ROLES_ENDS | ROLES_ATTENTION | ROLES_NORM_BIASES | ROLE_BIT(ROLE_FFN_NORM) |
             ROLE_BIT(ROLE_UP) | ROLE_BIT(ROLE_DOWN),
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLES_ATTENTION_BIASES | ROLE_BIT(ROLE_UP_BIAS) |
                ROLE_BIT(ROLE_DOWN_BIAS),
    .norm = NORM_LAYER,
    .activation = ACTIVATION_GELU_TANH,
    .positions = POSITIONS_ROPE_HALVES,
    .windows = WINDOWS_ALL_LAYERS,
    .ties = true,
    .folder = {.alias = alias},
};

const struct model_family model_stablelm = {
    .gguf = "stablelm",
    .hf = stablelm_hf,
    .roles = ROLES_ENDS | ROLES_ATTENTION | ROLES_NORM_BIASES | ROLES_GATED_MLP,
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLES_QKV_BIASES | ROLES_QK_NORM_HEADS,
    .norm = NORM_LAYER,
    .activation = ACTIVATION_SILU,
    .may_be_parallel = true,
    .positions = POSITIONS_ROPE_HALVES,
    .folder = {.rope_part = 0.25f},
};
