/* The Qwen families: llama's blocks, with rotary positions in halves. Qwen2 and 2.5 have biases of
 * queries, keys and values; Qwen3 has norms of query and key heads instead. */
#include "engine/models/families/family.h"

static const char *const qwen2_hf[] = {"Qwen2ForCausalLM", NULL};
static const char *const qwen3_hf[] = {"Qwen3ForCausalLM", NULL};

const struct model_family model_qwen2 = {
    .gguf = "qwen2",
    .hf = qwen2_hf,
    .roles = ROLES_LLAMA | ROLE_BIT(ROLE_Q_BIAS) | ROLE_BIT(ROLE_K_BIAS) | ROLE_BIT(ROLE_V_BIAS),
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLE_BIT(ROLE_ROPE_FACTORS),
    .norm = NORM_RMS,
    .activation = ACTIVATION_SILU,
    .positions = POSITIONS_ROPE_HALVES,
    .windows = WINDOWS_LISTED,
};

const struct model_family model_qwen3 = {
    .gguf = "qwen3",
    .hf = qwen3_hf,
    .roles = ROLES_LLAMA | ROLE_BIT(ROLE_Q_NORM) | ROLE_BIT(ROLE_K_NORM),
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLE_BIT(ROLE_ROPE_FACTORS),
    .norm = NORM_RMS,
    .activation = ACTIVATION_SILU,
    .positions = POSITIONS_ROPE_HALVES,
    .windows = WINDOWS_LISTED,
};
