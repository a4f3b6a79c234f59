/* Mistral (Jiang et al. 2023): llama's blocks; all layers may have a window. In Ministral (Mistral
 * AI 2024), some layers have it. Converters to GGUF use the architecture llama and drop the
 * window. Ministral 3 (Mistral AI 2025) stretches positions by YaRN and scales queries by
 * position; its files use a separate architecture. Most of its folders include a vision model, as
 * do those of Mistral Small since 3.1, which does not scale queries. */
#include "engine/models/families/family.h"

static const char *const hf[] = {"MistralForCausalLM", "MinistralForCausalLM", NULL};
static const char *const hf_3[] = {"Ministral3ForCausalLM", "Mistral3ForConditionalGeneration",
                                   NULL};

const struct model_family model_mistral = {
    .gguf = "mistral",
    .only_folders = true,
    .written_as = "llama",
    .hf = hf,
    .roles = ROLES_LLAMA,
    .optional = ROLE_BIT(ROLE_OUTPUT),
    FAMILY_USUAL,
    .windows = WINDOWS_ALL_LAYERS,
};

const struct model_family model_mistral3 = {
    .gguf = "mistral3",
    .hf = hf_3,
    .roles = ROLES_LLAMA,
    .optional = ROLE_BIT(ROLE_OUTPUT),
    .norm = NORM_RMS,
    .activation = ACTIVATION_SILU,
    .positions = POSITIONS_ROPE_ADJACENT,
    .windows = WINDOWS_ALL_LAYERS,
    .scales_queries = true,
};
