/* The llama family: pre-norm blocks of grouped-query attention with rotary positions and a
 * SiLU-gated MLP (Touvron et al. 2023; Ainslie et al. 2023). SmolLM2 and Llama 1 to 3 are of this
 * shape, and Mistral's GGUF files say that they are. */
#include "engine/models/families/family.h"

static const char *const hf[] = {"LlamaForCausalLM", NULL};

const struct model_family model_llama = {
    .gguf = "llama",
    .hf = hf,
    .roles = ROLES_ENDS | ROLES_ATTENTION | ROLES_GATED_MLP,
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLE_BIT(ROLE_ROPE_FACTORS) | ROLES_ATTENTION_BIASES |
                ROLES_MLP_BIASES,
    .norm = NORM_RMS,
    .activation = ACTIVATION_SILU,
    .positions = POSITIONS_ROPE_ADJACENT,
};
