/* The Qwen families: llama's blocks, with rotary positions in halves. Qwen2 and 2.5 have biases of
 * queries, keys and values; Qwen3 has norms of query and key heads instead. Models with vision
 * (Qwen2-VL, 2.5-VL, 3-VL) rotate by three positions, in time, height and width. Those of text are
 * equal, so their text parts are the same models with other names. HunYuan's dense models (Tencent
 * 2025) have the norms of heads after the rotation.
 *
 * Qwen3-Next and Qwen3.5 (also 3.6 and 3.8) have gated delta rules in three of four layers. Their
 * other layers gate attention's output and rotate a quarter of a head. In folders the gains of all
 * norms but that of the rule are stored without the 1 that the model adds. Folders of Qwen3-Next
 * group the rows of two products by key head. GGUF files of Qwen3.5 tile the value heads. */
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
    FAMILY_USUAL,
    .windows = WINDOWS_LISTED,
};

const struct model_family model_qwen3 = {
    .gguf = "qwen3",
    .hf = qwen3_hf,
    .roles = ROLES_LLAMA | ROLE_BIT(ROLE_Q_NORM) | ROLE_BIT(ROLE_K_NORM),
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLE_BIT(ROLE_ROPE_FACTORS),
    FAMILY_USUAL,
    .windows = WINDOWS_LISTED,
};

const struct model_family model_qwen2vl = {
    .gguf = "qwen2vl",
    .hf = qwen2vl_hf,
    .roles = ROLES_LLAMA | ROLES_QKV_BIASES,
    .optional = ROLE_BIT(ROLE_OUTPUT),
    FAMILY_USUAL,
    .windows = WINDOWS_LISTED,
};

const struct model_family model_qwen3vl = {
    .gguf = "qwen3vl",
    .hf = qwen3vl_hf,
    .roles = ROLES_LLAMA | ROLES_QK_NORM,
    .optional = ROLE_BIT(ROLE_OUTPUT),
    FAMILY_USUAL,
};

const struct model_family model_hunyuan = {
    .gguf = "hunyuan-dense",
    .hf = hunyuan_hf,
    .roles = ROLES_LLAMA | ROLES_QK_NORM,
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLES_ATTENTION_BIASES,
    FAMILY_USUAL,
    .norms_heads_last = true,
    .folder = {.alias = hunyuan_alias},
};

static const char *const qwen3next_hf[] = {"Qwen3NextForCausalLM", NULL};
static const char *const qwen35_hf[] = {"Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration",
                                        NULL};
static const char *const qwen35moe_hf[] = {"Qwen3_5MoeForCausalLM",
                                           "Qwen3_5MoeForConditionalGeneration", NULL};
static const struct role_alias qwen35moe_alias[] = {{ROLE_EXPERTS_DOWN, "mlp.experts.down_proj"},
                                                    {0}};

#define ROLES_QWEN_DELTA                                                                           \
    (ROLES_ENDS | ROLES_GATED_ATTENTION | ROLES_DELTA | ROLE_BIT(ROLE_FFN_NORM))
#define ROLES_MLP (ROLE_BIT(ROLE_GATE) | ROLE_BIT(ROLE_UP) | ROLE_BIT(ROLE_DOWN))
#define ROLES_SHARING_EXPERTS                                                                      \
    (ROLE_BIT(ROLE_ROUTER) | ROLE_BIT(ROLE_EXPERTS_GATE) | ROLE_BIT(ROLE_EXPERTS_UP) |             \
     ROLE_BIT(ROLE_EXPERTS_DOWN) | ROLES_SHARED | ROLE_BIT(ROLE_SHARED_ROUTER))

#define QWEN_DELTA_FIELDS                                                                          \
    FAMILY_USUAL, .optional = ROLE_BIT(ROLE_OUTPUT), .norm_epsilon = 1e-6f, .rope_base = 10000000, \
                  .taps = 4, .states = STATE_DELTA, .ahead = AHEAD_NORMED,                         \
                  .norm_names = NORM_NAMES_AFTER_ATTENTION

const struct model_family model_qwen35 = {
    .gguf = "qwen35",
    .hf = qwen35_hf,
    .roles = ROLES_QWEN_DELTA | ROLES_MLP,
    QWEN_DELTA_FIELDS,
    .tiles_heads = true,
    .folder = {.adds_one = true, .rope_part = 0.25f},
};

/* Files with all experts of a layer in one tensor. */
static const struct model_family fused_qwen35moe = {
    .gguf = "qwen35moe",
    .only_folders = true,
    .hf = qwen35moe_hf,
    .roles = ROLES_QWEN_DELTA | ROLES_SHARING_EXPERTS,
    QWEN_DELTA_FIELDS,
    .weights = {.normalised_in_gguf = true, .normalised_in_folders = true},
    .tiles_heads = true,
    .folder = {.alias = qwen35moe_alias,
               .fused = ROLES_FUSED_EXPERTS,
               .adds_one = true,
               .width_key = "intermediate_size|moe_intermediate_size",
               .rope_part = 0.25f},
};

const struct model_family model_qwen35moe = {
    .gguf = "qwen35moe",
    .hf = qwen35moe_hf,
    .roles = ROLES_QWEN_DELTA | ROLES_SHARING_EXPERTS,
    QWEN_DELTA_FIELDS,
    .weights = {.normalised_in_gguf = true, .normalised_in_folders = true},
    .tiles_heads = true,
    .other_form = &fused_qwen35moe,
    .other_has = ROLE_EXPERTS_GATE_UP,
    .folder = {.adds_one = true,
               .width_key = "intermediate_size|moe_intermediate_size",
               .rope_part = 0.25f},
};

/* Some layers may have an MLP instead of experts. */
const struct model_family model_qwen3next = {
    .gguf = "qwen3next",
    .hf = qwen3next_hf,
    .roles = ROLES_QWEN_DELTA | ROLES_MLP | ROLES_SHARING_EXPERTS,
    QWEN_DELTA_FIELDS,
    .weights = {.normalised_in_gguf = true, .normalised_in_folders = true},
    .folder = {.fused = ROLE_BIT(ROLE_DELTA_QKVZ) | ROLE_BIT(ROLE_DELTA_B_DT),
               .adds_one = true,
               .rope_part = 0.25f},
};
