/* LFM2 (Liquid AI 2025): most layers have a short convolution instead of attention. The others are
 * those of Qwen3, with norms of query and key heads. LFM2 MoE has experts, chosen by sigmoids with
 * a correction, in all layers but the first ones. */
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

static const char *const moe_hf[] = {"Lfm2MoeForCausalLM", NULL};
static const struct role_alias moe_alias[] = {
    {ROLE_ATTN_NORM, "operator_norm.weight"},
    {ROLE_FFN_NORM, "ffn_norm.weight"},
    {ROLE_O, "self_attn.out_proj.weight"},
    {ROLE_Q_NORM, "self_attn.q_layernorm.weight"},
    {ROLE_K_NORM, "self_attn.k_layernorm.weight"},
    {ROLE_GATE, "feed_forward.w1.weight"},
    {ROLE_UP, "feed_forward.w3.weight"},
    {ROLE_DOWN, "feed_forward.w2.weight"},
    {ROLE_ROUTER, "feed_forward.gate.weight"},
    {ROLE_ROUTER_CORRECTION, "feed_forward.expert_bias"},
    {ROLE_EXPERTS_GATE, "feed_forward.experts.*.w1.weight"},
    {ROLE_EXPERTS_UP, "feed_forward.experts.*.w3.weight"},
    {ROLE_EXPERTS_DOWN, "feed_forward.experts.*.w2.weight"},
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

const struct model_family model_lfm2_moe = {
    .gguf = "lfm2moe",
    .hf = moe_hf,
    .roles = ROLE_BIT(ROLE_TOKEN_EMBEDDING) | ROLE_BIT(ROLE_OUTPUT_NORM_ALIAS) | ROLES_ATTENTION |
             ROLES_QK_NORM | ROLES_SHORT_CONV | ROLES_GATED_MLP | ROLE_BIT(ROLE_ROUTER) |
             ROLE_BIT(ROLE_ROUTER_CORRECTION) | ROLE_BIT(ROLE_EXPERTS_GATE) |
             ROLE_BIT(ROLE_EXPERTS_UP) | ROLE_BIT(ROLE_EXPERTS_DOWN),
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLES_SHORT_CONV_BIASES,
    .norm = NORM_RMS,
    .norm_epsilon = 1e-5f,
    .activation = ACTIVATION_SILU,
    .positions = POSITIONS_ROPE_HALVES,
    .rope_base = 1000000,
    .taps = 3,
    .ties = true,
    .weights = {.normalised_in_gguf = true, .normalised_in_folders = true},
    .by_sigmoid = true,
    .folder = {.alias = moe_alias},
};
