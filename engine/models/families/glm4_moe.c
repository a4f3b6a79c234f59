/* GLM-4.5 and 4.6 (Zhipu AI 2025): experts chosen and weighed by sigmoids with a correction, and a
 * shared expert; the first layers have a plain MLP. Half of each head rotates. Layers after the
 * last one, which predict further tokens, are ignored. */
#include "engine/models/families/family.h"

static const char *const hf[] = {"Glm4MoeForCausalLM", NULL};
static const struct role_alias alias[] = {{ROLE_SHARED_GATE, "mlp.shared_experts.gate_proj.weight"},
                                          {ROLE_SHARED_UP, "mlp.shared_experts.up_proj.weight"},
                                          {ROLE_SHARED_DOWN, "mlp.shared_experts.down_proj.weight"},
                                          {0}};

const struct model_family model_glm4_moe = {
    .gguf = "glm4moe",
    .hf = hf,
    .roles = ROLES_ENDS | ROLES_ATTENTION | ROLE_BIT(ROLE_FFN_NORM_ALIAS) | ROLE_BIT(ROLE_GATE) |
             ROLE_BIT(ROLE_UP) | ROLE_BIT(ROLE_DOWN) | ROLE_BIT(ROLE_ROUTER) |
             ROLE_BIT(ROLE_ROUTER_CORRECTION) | ROLE_BIT(ROLE_EXPERTS_GATE) |
             ROLE_BIT(ROLE_EXPERTS_UP) | ROLE_BIT(ROLE_EXPERTS_DOWN) | ROLE_BIT(ROLE_SHARED_GATE) |
             ROLE_BIT(ROLE_SHARED_UP) | ROLE_BIT(ROLE_SHARED_DOWN),
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLES_QKV_BIASES | ROLES_QK_NORM,
    .norm = NORM_RMS,
    .activation = ACTIVATION_SILU,
    .positions = POSITIONS_ROPE_HALVES,
    .weights = {.normalised_in_gguf = true, .normalised_in_folders = true},
    .by_sigmoid = true,
    .folder = {.alias = alias, .rope_part = 0.5f},
};
