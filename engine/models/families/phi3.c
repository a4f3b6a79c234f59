/* Phi 3 (Abdin et al. 2024): llama's blocks with queries, keys and values in one tensor, gate and
 * up in another, and a window on all layers. In Phi 4 mini a part of each head rotates. */
#include "engine/models/families/family.h"

static const char *const hf[] = {"Phi3ForCausalLM", NULL};

const struct model_family model_phi3 = {
    .gguf = "phi3",
    .hf = hf,
    .roles = ROLES_ENDS | ROLE_BIT(ROLE_ATTN_NORM) | ROLE_BIT(ROLE_QKV) | ROLE_BIT(ROLE_O) |
             ROLE_BIT(ROLE_FFN_NORM) | ROLE_BIT(ROLE_GATE_UP) | ROLE_BIT(ROLE_DOWN),
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLE_BIT(ROLE_ROPE_LONG) | ROLE_BIT(ROLE_ROPE_SHORT),
    .norm = NORM_RMS,
    .activation = ACTIVATION_SILU,
    .positions = POSITIONS_ROPE_HALVES,
    .windows = WINDOWS_ALL_LAYERS,
};
