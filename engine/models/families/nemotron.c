/* Families with llama's attention and an MLP without a gate. Arcee (Arcee AI 2025) and Nemotron
 * (NVIDIA 2024) have a squared ReLU; Nemotron has LayerNorms whose stored gains lack a 1, and
 * rotary positions of a part of each head. Apertus (Swiss AI 2025) has xIELU with numbers of each
 * layer, and norms of query and key heads. Jais 2 (MBZUAI 2025) has a squared ReLU, LayerNorms and
 * biases everywhere. */
#include "engine/models/families/family.h"

static const char *const arcee_hf[] = {"ArceeForCausalLM", NULL};
static const char *const apertus_hf[] = {"ApertusForCausalLM", NULL};
static const struct role_alias apertus_alias[] = {{ROLE_ATTN_NORM, "attention_layernorm.weight"},
                                                  {ROLE_FFN_NORM, "feedforward_layernorm.weight"},
                                                  {0}};
static const char *const jais2_hf[] = {"Jais2ForCausalLM", NULL};
static const char *const hf[] = {"NemotronForCausalLM", NULL};

#define ROLES_BIASES (ROLES_ATTENTION_BIASES | ROLE_BIT(ROLE_UP_BIAS) | ROLE_BIT(ROLE_DOWN_BIAS))

const struct model_family model_arcee = {
    .gguf = "arcee",
    .hf = arcee_hf,
    .roles = ROLES_ENDS | ROLES_ATTENTION | ROLE_BIT(ROLE_FFN_NORM) | ROLE_BIT(ROLE_UP) |
             ROLE_BIT(ROLE_DOWN),
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLE_BIT(ROLE_ROPE_FACTORS) | ROLES_BIASES,
    .norm = NORM_RMS,
    .activation = ACTIVATION_RELU_SQUARED,
    .positions = POSITIONS_ROPE_ADJACENT,
};

const struct model_family model_nemotron = {
    .gguf = "nemotron",
    .hf = hf,
    .roles = ROLES_ENDS | ROLES_ATTENTION | ROLE_BIT(ROLE_OUTPUT_NORM_BIAS) |
             ROLE_BIT(ROLE_ATTN_NORM_BIAS) | ROLE_BIT(ROLE_FFN_NORM) |
             ROLE_BIT(ROLE_FFN_NORM_BIAS) | ROLE_BIT(ROLE_UP) | ROLE_BIT(ROLE_DOWN),
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLES_BIASES,
    .norm = NORM_LAYER,
    .activation = ACTIVATION_RELU_SQUARED,
    .positions = POSITIONS_ROPE_HALVES,
    .folder = {.adds_one = true, .rope_part = 0.5f},
};

const struct model_family model_apertus = {
    .gguf = "apertus",
    .hf = apertus_hf,
    .roles = ROLES_ENDS | ROLES_ATTENTION | ROLES_QK_NORM | ROLE_BIT(ROLE_FFN_NORM) |
             ROLE_BIT(ROLE_UP) | ROLE_BIT(ROLE_DOWN),
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLE_BIT(ROLE_ROPE_FACTORS) | ROLES_ATTENTION_BIASES,
    .norm = NORM_RMS,
    .activation = ACTIVATION_XIELU,
    .positions = POSITIONS_ROPE_HALVES,
    .rope_base = 12000000,
    .folder = {.alias = apertus_alias, .roles = ROLES_XIELU},
};

const struct model_family model_jais2 = {
    .gguf = "jais2",
    .hf = jais2_hf,
    .roles = ROLES_ENDS | ROLES_ATTENTION | ROLE_BIT(ROLE_OUTPUT_NORM_BIAS) |
             ROLE_BIT(ROLE_ATTN_NORM_BIAS) | ROLE_BIT(ROLE_FFN_NORM) |
             ROLE_BIT(ROLE_FFN_NORM_BIAS) | ROLE_BIT(ROLE_UP) | ROLE_BIT(ROLE_DOWN) | ROLES_BIASES,
    .optional = ROLE_BIT(ROLE_OUTPUT),
    .norm = NORM_LAYER,
    .activation = ACTIVATION_RELU_SQUARED,
    .positions = POSITIONS_ROPE_HALVES,
};
