/* OLMo 2 and 3 (Team OLMo 2024, 2025): norms after the branches instead of before, and one norm
 * over all heads of queries and of keys. In OLMo 3 three of four layers have a window, and only
 * every fourth layer uses stretched positions. GGUF files call both olmo2. */
#include "engine/models/families/family.h"

static const char *const hf[] = {"Olmo2ForCausalLM", "Olmo3ForCausalLM", NULL};

const struct model_family model_olmo2 = {
    .gguf = "olmo2",
    .hf = hf,
    .roles = ROLES_ENDS | ROLE_BIT(ROLE_Q) | ROLE_BIT(ROLE_K) | ROLE_BIT(ROLE_V) |
             ROLE_BIT(ROLE_O) | ROLE_BIT(ROLE_Q_NORM_ALL) | ROLE_BIT(ROLE_K_NORM_ALL) |
             ROLE_BIT(ROLE_ATTN_POST_NORM) | ROLE_BIT(ROLE_GATE) | ROLE_BIT(ROLE_UP) |
             ROLE_BIT(ROLE_DOWN) | ROLE_BIT(ROLE_FFN_POST_NORM),
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLES_ATTENTION_BIASES,
    FAMILY_USUAL,
    .windows = WINDOWS_PATTERN,
    .full_every = 4,
    .window_rotation = WINDOW_ROPE_UNSCALED,
    .rope_base = 500000,
};
