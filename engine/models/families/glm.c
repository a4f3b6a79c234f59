/* GLM-4 0414 (Zhipu AI 2025): norms before and after both branches, gate and up in one tensor, and
 * rotary positions of half of each head, in adjacent pairs. GLM-4 9B (Zhipu AI 2024) has the same
 * blocks without the norms after the branches.
 *
 * GLM-4.5 and 4.6 (Zhipu AI 2025) have experts chosen and weighed by sigmoids with a correction,
 * and a shared expert; the first layers have a plain MLP. Half of each head rotates. A layer
 * after the last one guesses ahead (forward_ahead.c). Solar Open (Upstage 2026) has such experts in
 * all layers, and whole heads rotate; its GGUF files are those of GLM-4.5. */
#include "engine/models/families/family.h"

static const char *const glm_hf[] = {"GlmForCausalLM", NULL};
static const char *const hf[] = {"Glm4ForCausalLM", NULL};
static const struct role_alias alias[] = {{ROLE_ATTN_POST_NORM, "post_self_attn_layernorm.weight"},
                                          {ROLE_FFN_POST_NORM, "post_mlp_layernorm.weight"},
                                          {0}};

static const char *const moe_hf[] = {"Glm4MoeForCausalLM", NULL};
static const struct role_alias moe_alias[] = {
    {ROLE_SHARED_GATE, "mlp.shared_experts.gate_proj.weight"},
    {ROLE_SHARED_UP, "mlp.shared_experts.up_proj.weight"},
    {ROLE_SHARED_DOWN, "mlp.shared_experts.down_proj.weight"},
    {0}};

static const char *const solar_open_hf[] = {"SolarOpenForCausalLM", NULL};

#define ROLES_MOE                                                                                  \
    (ROLE_BIT(ROLE_ROUTER) | ROLE_BIT(ROLE_ROUTER_CORRECTION) | ROLE_BIT(ROLE_EXPERTS_GATE) |      \
     ROLE_BIT(ROLE_EXPERTS_UP) | ROLE_BIT(ROLE_EXPERTS_DOWN) | ROLES_SHARED)

const struct model_family model_glm4 = {
    .gguf = "glm4",
    .hf = hf,
    .roles = ROLES_ENDS | ROLES_ATTENTION | ROLE_BIT(ROLE_ATTN_POST_NORM) |
             ROLE_BIT(ROLE_FFN_NORM) | ROLE_BIT(ROLE_GATE_UP) | ROLE_BIT(ROLE_DOWN) |
             ROLE_BIT(ROLE_FFN_POST_NORM),
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLES_QKV_BIASES,
    .norm = NORM_RMS,
    .activation = ACTIVATION_SILU,
    .positions = POSITIONS_ROPE_ADJACENT,
    .folder = {.alias = alias, .rope_part = 0.5f, .rotates_adjacent = true},
};

const struct model_family model_glm = {
    .gguf = "chatglm",
    .hf = glm_hf,
    .roles = ROLES_ENDS | ROLES_ATTENTION | ROLE_BIT(ROLE_FFN_NORM) | ROLE_BIT(ROLE_GATE_UP) |
             ROLE_BIT(ROLE_DOWN),
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLES_QKV_BIASES,
    .norm = NORM_RMS,
    .activation = ACTIVATION_SILU,
    .positions = POSITIONS_ROPE_ADJACENT,
    .folder = {.rope_part = 0.5f, .rotates_adjacent = true},
};

const struct model_family model_glm4_moe = {
    .gguf = "glm4moe",
    .hf = moe_hf,
    .roles = ROLES_LLAMA | ROLES_MOE,
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLES_QKV_BIASES | ROLES_QK_NORM,
    FAMILY_USUAL,
    .norm_names = NORM_NAMES_AFTER_ATTENTION,
    .weights = {.normalised_in_gguf = true, .normalised_in_folders = true},
    .by_sigmoid = true,
    .ahead = AHEAD_STREAM,
    .folder = {.alias = moe_alias, .rope_part = 0.5f},
};

const struct model_family model_solar_open = {
    .gguf = "solar_open",
    .only_folders = true,
    .written_as = "glm4moe",
    .hf = solar_open_hf,
    .roles = ROLES_ENDS | ROLES_ATTENTION | ROLE_BIT(ROLE_FFN_NORM) | ROLES_MOE,
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLES_QKV_BIASES,
    FAMILY_USUAL,
    .norm_names = NORM_NAMES_AFTER_ATTENTION,
    .rope_base = 1000000,
    .weights = {.normalised_in_folders = true},
    .by_sigmoid = true,
    .folder = {.alias = moe_alias, .width_key = "intermediate_size|moe_intermediate_size"},
};
