/* Families with a mixture of experts (struct experts of kernels/ops.h). Mixtral (Jiang et al. 2024)
 * is Mistral with experts; its GGUF files use the architecture llama. The MoE variants of Qwen2 and
 * Qwen3 may have a plain MLP in some layers; Qwen2's have a gated shared expert. The text part of
 * Qwen3-VL is Qwen3's variant. OLMoE (Muennighoff et al. 2024) has a norm over all heads. Granite's
 * MoE models have Granite's scales. MiniMax M2 (MiniMax 2025) scores by sigmoids with a correction,
 * and has norms over all heads. ERNIE 4.5 (Baidu 2025) scores by a softmax with a correction; some
 * layers have a plain MLP. Dots 1 (Xiaohongshu 2025) has Qwen3's attention and such experts as
 * GLM-4.5 (glm.c): sigmoids with a correction, in groups, and shared ones; the first layers have a
 * plain MLP. HunYuan's MoE models (Tencent 2025) have the attention of its dense ones (qwen.c), and
 * a shared expert as wide as an MLP. AFMoE (Trinity, Arcee AI 2025) has norms before and after both
 * branches, gates of attention's output, scaled embeddings and such experts as Dots 1; every fourth
 * layer has neither window nor positions. */
#include <math.h>

#include "engine/models/families/family.h"

#define ROLES_EXPERTS                                                                              \
    (ROLE_BIT(ROLE_FFN_NORM) | ROLE_BIT(ROLE_ROUTER) | ROLE_BIT(ROLE_EXPERTS_GATE) |               \
     ROLE_BIT(ROLE_EXPERTS_UP) | ROLE_BIT(ROLE_EXPERTS_DOWN))

/* The file has a divisor. */
static enum status finish_granite(struct model_config *config, struct err *err) {
    (void)err;
    config->logit_scale = 1 / config->logit_scale;
    return STATUS_OK;
}

static const char *const afmoe_hf[] = {"AfmoeForCausalLM", NULL};
static const char *const dots1_hf[] = {"Dots1ForCausalLM", NULL};
static const char *const ernie_hf[] = {"Ernie4_5_MoeForCausalLM", NULL};
static const char *const granite_hf[] = {"GraniteMoeForCausalLM", NULL};
static const char *const hunyuan_hf[] = {"HunYuanMoEV1ForCausalLM", NULL};
static const char *const olmoe_hf[] = {"OlmoeForCausalLM", NULL};
static const char *const minimax_m2_hf[] = {"MiniMaxM2ForCausalLM", NULL};
static const char *const mixtral_hf[] = {"MixtralForCausalLM", NULL};
static const char *const qwen2_hf[] = {"Qwen2MoeForCausalLM", NULL};
static const char *const qwen3_hf[] = {"Qwen3MoeForCausalLM", NULL};
static const char *const qwen3vl_hf[] = {"Qwen3VLMoeForConditionalGeneration", NULL};

static const struct role_alias mixtral_alias[] = {
    {ROLE_ROUTER, "block_sparse_moe.gate.weight"},
    {ROLE_EXPERTS_GATE, "block_sparse_moe.experts.*.w1.weight"},
    {ROLE_EXPERTS_UP, "block_sparse_moe.experts.*.w3.weight"},
    {ROLE_EXPERTS_DOWN, "block_sparse_moe.experts.*.w2.weight"},
    {ROLE_ROUTER_CORRECTION, "block_sparse_moe.e_score_correction_bias"},
    {0}};

/* Published folders have columns; transformers writes rows. */
static const struct role_alias qwen3vl_alias[] = {{ROLE_EXPERTS_DOWN, "mlp.experts.down_proj"},
                                                  {0}};

#define ALIAS_SHARED                                                                               \
    {ROLE_SHARED_GATE, "mlp.shared_experts.gate_proj.weight"},                                     \
        {ROLE_SHARED_UP, "mlp.shared_experts.up_proj.weight"}, {                                   \
        ROLE_SHARED_DOWN, "mlp.shared_experts.down_proj.weight"                                    \
    }

static const struct role_alias ernie_alias[] = {
    {ROLE_ROUTER_CORRECTION, "mlp.moe_statics.e_score_correction_bias"}, ALIAS_SHARED, {0}};
static const struct role_alias shared_alias[] = {ALIAS_SHARED, {0}};
static const struct role_alias afmoe_alias[] = {{ROLE_FFN_NORM, "pre_mlp_layernorm.weight"},
                                                {ROLE_FFN_POST_NORM, "post_mlp_layernorm.weight"},
                                                {ROLE_ROUTER, "mlp.router.gate.weight"},
                                                {ROLE_ROUTER_CORRECTION, "mlp.expert_bias"},
                                                ALIAS_SHARED,
                                                {0}};
static const struct role_alias hunyuan_alias[] = {
    {ROLE_Q_NORM, "self_attn.query_layernorm.weight"},
    {ROLE_K_NORM, "self_attn.key_layernorm.weight"},
    {ROLE_ROUTER, "mlp.gate.wg.weight"},
    {ROLE_SHARED_GATE, "mlp.shared_mlp.gate_proj.weight"},
    {ROLE_SHARED_UP, "mlp.shared_mlp.up_proj.weight"},
    {ROLE_SHARED_DOWN, "mlp.shared_mlp.down_proj.weight"},
    {0}};

static const struct role_alias granite_alias[] = {
    {ROLE_ROUTER, "block_sparse_moe.router.layer.weight"},
    {ROLE_EXPERTS_GATE_UP, "block_sparse_moe.input_linear.weight"},
    {ROLE_EXPERTS_DOWN, "block_sparse_moe.output_linear.weight"},
    {0}};

const struct model_family model_granitemoe = {
    .gguf = "granitemoe",
    .hf = granite_hf,
    .roles = ROLES_ENDS | ROLES_ATTENTION | ROLES_EXPERTS,
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLE_BIT(ROLE_ROPE_FACTORS) | ROLES_ATTENTION_BIASES,
    .norm = NORM_RMS,
    .activation = ACTIVATION_SILU,
    .positions = POSITIONS_ROPE_ADJACENT,
    .scales = true,
    .weights = {.normalised_in_gguf = true, .normalised_in_folders = true},
    .folder = {.alias = granite_alias, .attention_scale = 1, .fused = ROLES_FUSED_EXPERTS},
    .finish = finish_granite,
};

const struct model_family model_olmoe = {
    .gguf = "olmoe",
    .hf = olmoe_hf,
    .roles = ROLES_ENDS | ROLES_ATTENTION | ROLES_EXPERTS | ROLE_BIT(ROLE_Q_NORM_ALL) |
             ROLE_BIT(ROLE_K_NORM_ALL),
    .optional = ROLE_BIT(ROLE_OUTPUT),
    FAMILY_USUAL,
};

const struct model_family model_mixtral = {
    .gguf = "llama",
    .hf = mixtral_hf,
    .roles = ROLES_ENDS | ROLES_ATTENTION | ROLES_EXPERTS,
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLE_BIT(ROLE_ROPE_FACTORS),
    .norm = NORM_RMS,
    .activation = ACTIVATION_SILU,
    .positions = POSITIONS_ROPE_ADJACENT,
    .windows = WINDOWS_ALL_LAYERS,
    .weights = {.normalised_in_gguf = true, .normalised_in_folders = true},
    .folder = {.alias = mixtral_alias},
};

const struct model_family model_qwen2moe = {
    .gguf = "qwen2moe",
    .hf = qwen2_hf,
    .roles = ROLES_LLAMA | ROLES_EXPERTS | ROLES_SHARED | ROLE_BIT(ROLE_SHARED_ROUTER) |
             ROLES_QKV_BIASES,
    .optional = ROLE_BIT(ROLE_OUTPUT),
    FAMILY_USUAL,
    .windows = WINDOWS_LISTED,
};

const struct model_family model_qwen3moe = {
    .gguf = "qwen3moe",
    .hf = qwen3_hf,
    .roles = ROLES_LLAMA | ROLES_EXPERTS | ROLES_QK_NORM,
    .optional = ROLE_BIT(ROLE_OUTPUT),
    FAMILY_USUAL,
    .windows = WINDOWS_LISTED,
    .weights = {.normalised_in_gguf = true},
};

const struct model_family model_minimax_m2 = {
    .gguf = "minimax-m2",
    .hf = minimax_m2_hf,
    .roles = ROLES_ENDS | ROLES_ATTENTION | ROLES_EXPERTS | ROLE_BIT(ROLE_ROUTER_CORRECTION) |
             ROLE_BIT(ROLE_Q_NORM_ALL) | ROLE_BIT(ROLE_K_NORM_ALL),
    .optional = ROLE_BIT(ROLE_OUTPUT),
    FAMILY_USUAL,
    .rope_base = 5000000,
    .weights = {.normalised_in_gguf = true, .normalised_in_folders = true},
    .by_sigmoid = true,
    .folder = {.alias = mixtral_alias},
};

const struct model_family model_qwen3vlmoe = {
    .gguf = "qwen3vlmoe",
    .hf = qwen3vl_hf,
    .roles = ROLES_LLAMA | ROLES_EXPERTS | ROLES_QK_NORM,
    .optional = ROLE_BIT(ROLE_OUTPUT),
    FAMILY_USUAL,
    .weights = {.normalised_in_gguf = true, .normalised_in_folders = true},
    .folder = {.alias = qwen3vl_alias,
               .transposed = ROLE_BIT(ROLE_EXPERTS_GATE_UP) | ROLE_BIT(ROLE_EXPERTS_DOWN),
               .turns_by_shape = true,
               .fused = ROLES_FUSED_EXPERTS},
};

const struct model_family model_ernie4_5_moe = {
    .gguf = "ernie4_5-moe",
    .hf = ernie_hf,
    .roles = ROLES_LLAMA | ROLES_EXPERTS,
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLE_BIT(ROLE_ROUTER_CORRECTION) | ROLES_SHARED,
    .norm = NORM_RMS,
    .activation = ACTIVATION_SILU,
    .positions = POSITIONS_ROPE_ADJACENT,
    .rope_base = 500000,
    .weights = {.normalised_in_gguf = true, .normalised_in_folders = true},
    .ties = true,
    .folder = {.alias = ernie_alias, .rotates_adjacent = true},
};

const struct model_family model_dots1 = {
    .gguf = "dots1",
    .hf = dots1_hf,
    .roles = ROLES_LLAMA | ROLES_QK_NORM | ROLES_EXPERTS | ROLE_BIT(ROLE_ROUTER_CORRECTION) |
             ROLES_SHARED,
    .optional = ROLE_BIT(ROLE_OUTPUT),
    FAMILY_USUAL,
    .windows = WINDOWS_LISTED,
    .by_sigmoid = true,
    .folder = {.alias = shared_alias},
};

const struct model_family model_hunyuan_moe = {
    .gguf = "hunyuan-moe",
    .hf = hunyuan_hf,
    .roles = ROLES_ENDS | ROLES_ATTENTION | ROLES_QK_NORM | ROLES_EXPERTS | ROLES_SHARED,
    .optional = ROLE_BIT(ROLE_OUTPUT),
    FAMILY_USUAL,
    .norms_heads_last = true,
    .weights = {.normalised_in_gguf = true, .normalised_in_folders = true},
    .folder = {.alias = hunyuan_alias},
};

static enum status finish_afmoe(struct model_config *config, struct err *err) {
    (void)err;
    for (int i = 0; i < config->L; i++) config->layer[i].has_no_rope = !config->layer[i].slides;
    config->embedding_scale = sqrtf((float)config->K);
    return STATUS_OK;
}

const struct model_family model_afmoe = {
    .gguf = "afmoe",
    .hf = afmoe_hf,
    .roles = ROLES_LLAMA | ROLES_QK_NORM | ROLE_BIT(ROLE_ATTN_GATE) |
             ROLE_BIT(ROLE_ATTN_POST_NORM) | ROLE_BIT(ROLE_FFN_POST_NORM) | ROLES_EXPERTS |
             ROLE_BIT(ROLE_ROUTER_CORRECTION) | ROLES_SHARED,
    .optional = ROLE_BIT(ROLE_OUTPUT),
    FAMILY_USUAL,
    .windows = WINDOWS_PATTERN,
    .full_every = 4,
    .weights = {.normalised_in_gguf = true, .normalised_in_folders = true},
    .by_sigmoid = true,
    .folder = {.alias = afmoe_alias},
    .finish = finish_afmoe,
};
