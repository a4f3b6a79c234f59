/* SmolLM3 (Hugging Face 2025): llama's blocks; every fourth layer is without rotary positions. */
#include "engine/models/families/family.h"

enum { EVERY = 4 };

/* GGUF files do not list these layers. */
static enum status finish(struct model_config *config, struct err *err) {
    (void)err;
    for (int i = EVERY - 1; i < config->L && !config->lists_ropes; i += EVERY)
        config->layer[i].has_no_rope = true;
    return STATUS_OK;
}

static const char *const hf[] = {"SmolLM3ForCausalLM", NULL};

const struct model_family model_smollm3 = {
    .gguf = "smollm3",
    .hf = hf,
    .roles = ROLES_LLAMA,
    .optional = ROLES_LLAMA_OPTIONAL,
    .norm = NORM_RMS,
    .activation = ACTIVATION_SILU,
    .positions = POSITIONS_ROPE_ADJACENT,
    .windows = WINDOWS_LISTED,
    .ties = true,
    .finish = finish,
};
