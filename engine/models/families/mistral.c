/* Mistral (Jiang et al. 2023): llama's blocks, in which all layers may have a window. Converters of
 * GGUF files call it llama, and leave the window out. */
#include "engine/models/families/family.h"

static const char *const hf[] = {"MistralForCausalLM", NULL};

const struct model_family model_mistral = {
    .gguf = "mistral",
    .only_folders = true,
    .written_as = "llama",
    .hf = hf,
    .roles = ROLES_ENDS | ROLES_ATTENTION | ROLES_GATED_MLP,
    .optional = ROLE_BIT(ROLE_OUTPUT),
    .norm = NORM_RMS,
    .activation = ACTIVATION_SILU,
    .positions = POSITIONS_ROPE_HALVES,
    .windows = WINDOWS_ALL_LAYERS,
};
