/* EXAONE 4 (LG AI Research 2025): norms only after the branches, and a norm per head of queries and
 * keys. In the 32B model three of four layers have a window; every fourth layer has neither window
 * nor positions. EXAONE MoE (K-EXAONE, LG AI Research 2026) has norms before the branches instead,
 * and in all layers but the first such experts as GLM-4.5 (glm.c). */
#include "engine/models/families/family.h"

static enum status finish(struct model_config *config, struct err *err) {
    bool has_windows = false;
    (void)err;
    for (int i = 0; i < config->L; i++) has_windows |= config->layer[i].slides;
    for (int i = 0; i < config->L && has_windows; i++)
        config->layer[i].has_no_rope = !config->layer[i].slides;
    return STATUS_OK;
}

static const char *const moe_hf[] = {"ExaoneMoeForCausalLM", "ExaoneMoEForCausalLM", NULL};
static const struct role_alias moe_alias[] = {
    {ROLE_ROUTER_CORRECTION, "mlp.e_score_correction_bias"},
    {ROLE_SHARED_GATE, "mlp.shared_experts.gate_proj.weight"},
    {ROLE_SHARED_UP, "mlp.shared_experts.up_proj.weight"},
    {ROLE_SHARED_DOWN, "mlp.shared_experts.down_proj.weight"},
    {0}};
static const char *const hf[] = {"Exaone4ForCausalLM", NULL};

const struct model_family model_exaone4 = {
    .gguf = "exaone4",
    .hf = hf,
    .roles = ROLES_ENDS | ROLE_BIT(ROLE_Q) | ROLE_BIT(ROLE_K) | ROLE_BIT(ROLE_V) |
             ROLE_BIT(ROLE_O) | ROLE_BIT(ROLE_Q_NORM) | ROLE_BIT(ROLE_K_NORM) |
             ROLE_BIT(ROLE_ATTN_POST_NORM) | ROLE_BIT(ROLE_GATE) | ROLE_BIT(ROLE_UP) |
             ROLE_BIT(ROLE_DOWN) | ROLE_BIT(ROLE_FFN_POST_NORM),
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLE_BIT(ROLE_ROPE_FACTORS),
    FAMILY_USUAL,
    .windows = WINDOWS_PATTERN,
    .full_every = 4,
    .finish = finish,
};

const struct model_family model_exaone_moe = {
    .gguf = "exaone-moe",
    .hf = moe_hf,
    .roles = ROLES_LLAMA | ROLES_QK_NORM | ROLE_BIT(ROLE_ROUTER) |
             ROLE_BIT(ROLE_ROUTER_CORRECTION) | ROLE_BIT(ROLE_EXPERTS_GATE) |
             ROLE_BIT(ROLE_EXPERTS_UP) | ROLE_BIT(ROLE_EXPERTS_DOWN) | ROLES_SHARED,
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLE_BIT(ROLE_ROPE_FACTORS),
    FAMILY_USUAL,
    .windows = WINDOWS_PATTERN,
    .full_every = 4,
    .weights = {.normalised_in_gguf = true, .normalised_in_folders = true},
    .by_sigmoid = true,
    .folder = {.alias = moe_alias},
    .finish = finish,
};
