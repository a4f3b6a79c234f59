/* Mistral (Jiang et al. 2023): llama's blocks, in which all layers may have a window. Converters of
 * GGUF files call it llama, and leave the window out. Ministral 3 (Mistral AI 2025) stretches
 * positions by YaRN and scales queries by their position; its files have a name of their own, and
 * its folders mostly see pictures too, as do Mistral Small's since 3.1, which scale nothing. */
#include "engine/models/families/family.h"

static const char *const hf[] = {"MistralForCausalLM", NULL};
static const char *const hf_3[] = {"Ministral3ForCausalLM", "Mistral3ForConditionalGeneration",
                                   NULL};

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

const struct model_family model_mistral3 = {
    .gguf = "mistral3",
    .hf = hf_3,
    .roles = ROLES_ENDS | ROLES_ATTENTION | ROLES_GATED_MLP,
    .optional = ROLE_BIT(ROLE_OUTPUT),
    .norm = NORM_RMS,
    .activation = ACTIVATION_SILU,
    .positions = POSITIONS_ROPE_ADJACENT,
    .windows = WINDOWS_ALL_LAYERS,
    .scales_queries = true,
};
