/* Phi 1, 1.5 and 2 (Gunasekar et al. 2023): LayerNorm, biases everywhere, also in the head,
 * branches with the same input, an MLP without a gate, and rotary positions of a part of each
 * head. Phi 3 (Abdin et al. 2024): llama's blocks with queries, keys and values in one tensor, gate
 * and up in another, and a window on all layers. In Phi 4 mini a part of each head rotates. */
#include "engine/models/families/family.h"

static const char *const hf[] = {"PhiForCausalLM", NULL};
static const struct role_alias alias[] = {{ROLE_OUTPUT_NORM, "final_layernorm.weight"},
                                          {ROLE_OUTPUT_NORM_BIAS, "final_layernorm.bias"},
                                          {ROLE_O, "self_attn.dense.weight"},
                                          {ROLE_O_BIAS, "self_attn.dense.bias"},
                                          {ROLE_UP, "mlp.fc1.weight"},
                                          {ROLE_UP_BIAS, "mlp.fc1.bias"},
                                          {ROLE_DOWN, "mlp.fc2.weight"},
                                          {ROLE_DOWN_BIAS, "mlp.fc2.bias"},
                                          {0}};

const struct model_family model_phi = {
    .gguf = "phi2",
    .hf = hf,
    .roles = ROLES_ENDS | ROLES_ATTENTION | ROLE_BIT(ROLE_OUTPUT_NORM_BIAS) |
             ROLE_BIT(ROLE_OUTPUT_BIAS) | ROLE_BIT(ROLE_ATTN_NORM_BIAS) | ROLE_BIT(ROLE_Q_BIAS) |
             ROLE_BIT(ROLE_K_BIAS) | ROLE_BIT(ROLE_V_BIAS) | ROLE_BIT(ROLE_O_BIAS) |
             ROLE_BIT(ROLE_UP) | ROLE_BIT(ROLE_UP_BIAS) | ROLE_BIT(ROLE_DOWN) |
             ROLE_BIT(ROLE_DOWN_BIAS),
    .optional = ROLE_BIT(ROLE_OUTPUT),
    .norm = NORM_LAYER,
    .activation = ACTIVATION_GELU_TANH,
    .has_parallel_branches = true,
    .positions = POSITIONS_ROPE_HALVES,
    .folder = {.alias = alias, .rope_part = 0.5f},
};

static const char *const hf_3[] = {"Phi3ForCausalLM", NULL};

const struct model_family model_phi3 = {
    .gguf = "phi3",
    .hf = hf_3,
    .roles = ROLES_ENDS | ROLE_BIT(ROLE_ATTN_NORM) | ROLE_BIT(ROLE_QKV) | ROLE_BIT(ROLE_O) |
             ROLE_BIT(ROLE_FFN_NORM) | ROLE_BIT(ROLE_GATE_UP) | ROLE_BIT(ROLE_DOWN),
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLE_BIT(ROLE_ROPE_LONG) | ROLE_BIT(ROLE_ROPE_SHORT),
    FAMILY_USUAL,
    .windows = WINDOWS_ALL_LAYERS,
};
