/* The Qwen families: llama's blocks, with rotary positions in halves. Qwen2 and 2.5 have biases of
 * queries, keys and values; Qwen3 has norms of query and key heads instead. Models with vision
 * (Qwen2-VL, 2.5-VL, 3-VL) rotate by three positions, in time, height and width. Those of text are
 * equal, so their text parts are the same models with other names. HunYuan's dense models (Tencent
 * 2025) have the norms of heads after the rotation. */
#include "engine/models/families/family.h"

static const char *const qwen2_hf[] = {"Qwen2ForCausalLM", NULL};
static const char *const qwen3_hf[] = {"Qwen3ForCausalLM", NULL};
static const char *const qwen2vl_hf[] = {"Qwen2VLForConditionalGeneration",
                                         "Qwen2_5_VLForConditionalGeneration", NULL};
static const char *const qwen3vl_hf[] = {"Qwen3VLForConditionalGeneration", NULL};
static const char *const hunyuan_hf[] = {"HunYuanDenseV1ForCausalLM", NULL};
static const struct role_alias hunyuan_alias[] = {{ROLE_Q_NORM, "self_attn.query_layernorm.weight"},
                                                  {ROLE_K_NORM, "self_attn.key_layernorm.weight"},
                                                  {0}};

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

const struct model_family model_qwen2vl = {
    .gguf = "qwen2vl",
    .hf = qwen2vl_hf,
    .roles = ROLES_LLAMA | ROLES_QKV_BIASES,
    .optional = ROLE_BIT(ROLE_OUTPUT),
    .norm = NORM_RMS,
    .activation = ACTIVATION_SILU,
    .positions = POSITIONS_ROPE_HALVES,
    .windows = WINDOWS_LISTED,
};

const struct model_family model_qwen3vl = {
    .gguf = "qwen3vl",
    .hf = qwen3vl_hf,
    .roles = ROLES_LLAMA | ROLES_QK_NORM,
    .optional = ROLE_BIT(ROLE_OUTPUT),
    .norm = NORM_RMS,
    .activation = ACTIVATION_SILU,
    .positions = POSITIONS_ROPE_HALVES,
};

const struct model_family model_hunyuan = {
    .gguf = "hunyuan-dense",
    .hf = hunyuan_hf,
    .roles = ROLES_LLAMA | ROLES_QK_NORM,
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLES_ATTENTION_BIASES,
    .norm = NORM_RMS,
    .activation = ACTIVATION_SILU,
    .norms_heads_last = true,
    .positions = POSITIONS_ROPE_HALVES,
    .folder = {.alias = hunyuan_alias},
};
