/* LFM2 (Liquid AI 2025): most layers have a short convolution instead of attention. The others are
 * those of Qwen3, with norms of query and key heads. */
#include "engine/models/families/family.h"

static const char *const hf[] = {"Lfm2ForCausalLM", NULL};
static const struct role_alias alias[] = {{ROLE_ATTN_NORM, "operator_norm.weight"},
                                          {ROLE_FFN_NORM, "ffn_norm.weight"},
                                          {ROLE_O, "self_attn.out_proj.weight"},
                                          {ROLE_Q_NORM, "self_attn.q_layernorm.weight"},
                                          {ROLE_K_NORM, "self_attn.k_layernorm.weight"},
                                          {ROLE_GATE, "feed_forward.w1.weight"},
                                          {ROLE_UP, "feed_forward.w3.weight"},
                                          {ROLE_DOWN, "feed_forward.w2.weight"},
                                          {0}};

const struct model_family model_lfm2 = {
    .gguf = "lfm2",
    .hf = hf,
    .roles = ROLE_BIT(ROLE_TOKEN_EMBEDDING) | ROLE_BIT(ROLE_OUTPUT_NORM_ALIAS) | ROLES_ATTENTION |
             ROLES_QK_NORM | ROLES_SHORT_CONV | ROLES_GATED_MLP,
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLES_SHORT_CONV_BIASES,
    .norm = NORM_RMS,
    .norm_epsilon = 1e-5f,
    .activation = ACTIVATION_SILU,
    .positions = POSITIONS_ROPE_HALVES,
    .rope_base = 1000000,
    .taps = 3,
    .ties = true,
    .folder = {.alias = alias, .width_key = "block_ff_dim|intermediate_size"},
};
