/* GPT-2 (Radford et al. 2019): LayerNorm, biases everywhere, learned positions, an MLP without a
 * gate, and queries, keys and values in one tensor. */
#include "engine/models/family.h"

static const char *const hf[] = {"GPT2LMHeadModel", NULL};

const struct model_family model_gpt2 = {
    .gguf = "gpt2",
    .hf = hf,
    .roles = ROLES_ENDS | ROLE_BIT(ROLE_POSITION_EMBEDDING) | ROLE_BIT(ROLE_OUTPUT_NORM_BIAS) |
             ROLE_BIT(ROLE_ATTN_NORM) | ROLE_BIT(ROLE_ATTN_NORM_BIAS) | ROLE_BIT(ROLE_QKV) |
             ROLE_BIT(ROLE_QKV_BIAS) | ROLE_BIT(ROLE_O) | ROLE_BIT(ROLE_O_BIAS) |
             ROLE_BIT(ROLE_FFN_NORM) | ROLE_BIT(ROLE_FFN_NORM_BIAS) | ROLE_BIT(ROLE_UP) |
             ROLE_BIT(ROLE_UP_BIAS) | ROLE_BIT(ROLE_DOWN) | ROLE_BIT(ROLE_DOWN_BIAS),
    .optional = ROLE_BIT(ROLE_OUTPUT),
    .norm = NORM_LAYER,
    .activation = ACTIVATION_GELU_TANH,
    .positions = POSITIONS_LEARNED,
    .ties = true,
};
