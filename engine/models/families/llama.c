/* The llama family: pre-norm blocks of grouped-query attention with rotary positions and a
 * SiLU-gated MLP (Touvron et al. 2023; Ainslie et al. 2023). SmolLM2 and Llama 1 to 3 belong to it,
 * and so do Mistral's GGUF files. ERNIE 4.5 (Baidu 2025) rotates adjacent pairs in folders too;
 * Seed-OSS (ByteDance 2025) has biases of queries, keys and values. In SmolLM3 (Hugging Face 2025)
 * every fourth layer is without rotary positions. CWM (Meta 2025) is Llama 3 with a window in three
 * of four layers; the first of four sees all positions. */
#include "engine/models/families/family.h"

static const char *const hf[] = {"LlamaForCausalLM", NULL};
static const char *const cwm_hf[] = {"CwmForCausalLM", NULL};
static const char *const ernie4_5_hf[] = {"Ernie4_5ForCausalLM", NULL};
static const char *const smollm3_hf[] = {"SmolLM3ForCausalLM", NULL};
static const char *const seed_oss_hf[] = {"SeedOssForCausalLM", NULL};

const struct model_family model_llama = {
    .gguf = "llama",
    .hf = hf,
    .roles = ROLES_LLAMA,
    .optional = ROLES_LLAMA_OPTIONAL,
    .norm = NORM_RMS,
    .activation = ACTIVATION_SILU,
    .positions = POSITIONS_ROPE_ADJACENT,
};

const struct model_family model_ernie4_5 = {
    .gguf = "ernie4_5",
    .hf = ernie4_5_hf,
    .roles = ROLES_LLAMA,
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLES_ATTENTION_BIASES | ROLES_MLP_BIASES,
    .norm = NORM_RMS,
    .activation = ACTIVATION_SILU,
    .positions = POSITIONS_ROPE_ADJACENT,
    .rope_base = 500000,
    .ties = true,
    .folder = {.rotates_adjacent = true},
};

const struct model_family model_seed_oss = {
    .gguf = "seed_oss",
    .hf = seed_oss_hf,
    .roles = ROLES_ENDS | ROLES_ATTENTION | ROLE_BIT(ROLE_FFN_NORM) | ROLE_BIT(ROLE_GATE) |
             ROLE_BIT(ROLE_UP) | ROLE_BIT(ROLE_DOWN),
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLES_QKV_BIASES | ROLES_MLP_BIASES,
    FAMILY_USUAL,
    .norm_names = NORM_NAMES_AFTER_ATTENTION,
};

enum { EVERY = 4 };

/* GGUF files do not list these layers. */
static enum status finish_smollm3(struct model_config *config, struct err *err) {
    (void)err;
    for (int i = EVERY - 1; i < config->L && !config->lists_ropes; i += EVERY)
        config->layer[i].has_no_rope = true;
    return STATUS_OK;
}

const struct model_family model_smollm3 = {
    .gguf = "smollm3",
    .hf = smollm3_hf,
    .roles = ROLES_LLAMA,
    .optional = ROLES_LLAMA_OPTIONAL,
    .norm = NORM_RMS,
    .activation = ACTIVATION_SILU,
    .positions = POSITIONS_ROPE_ADJACENT,
    .windows = WINDOWS_LISTED,
    .ties = true,
    .finish = finish_smollm3,
};

const struct model_family model_cwm = {
    .gguf = "cwm",
    .only_folders = true,
    .hf = cwm_hf,
    .roles = ROLES_LLAMA,
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLES_MLP_BIASES,
    FAMILY_USUAL,
    .windows = WINDOWS_PATTERN,
    .full_every = 4,
    .full_is_first = true,
    .rope_base = 1000000,
};
