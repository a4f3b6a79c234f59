/* Latent attention (DeepSeek-AI 2024): keys and values are one vector of some hundred numbers per
 * token, from which each head's matrices would expand them. The experts are those of GLM-4.5: the
 * first layers have a plain MLP, the others shared experts. DeepSeek V2 chooses experts by a
 * softmax, within the groups with the largest scores; V3, R1, Kimi K2 (Moonshot AI 2025) and
 * GLM-4.7-Flash (Z.ai 2026) by sigmoids with a correction. All of them are "deepseek2" in GGUF
 * files. Mistral Small 4 (Mistral AI 2026) chooses by a softmax, all its layers have experts, and
 * it scales queries by position.
 *
 * Kimi Linear (Moonshot AI 2025) has the attention and the experts of V3, but its attention does
 * not rotate, and three of four layers have a delta rule with a decay per channel instead. */
#include <math.h>

#include "engine/models/families/family.h"

#define ROLES                                                                                      \
    (ROLES_ENDS | ROLES_LATENT | ROLES_GATED_MLP | ROLE_BIT(ROLE_ROUTER) |                         \
     ROLE_BIT(ROLE_EXPERTS_GATE) | ROLE_BIT(ROLE_EXPERTS_UP) | ROLE_BIT(ROLE_EXPERTS_DOWN))
#define ROLES_OF_SHAPE (ROLE_BIT(ROLE_Q) | ROLES_LATENT_Q | ROLE_BIT(ROLE_KV_B) | ROLES_LATENT_B)

static const char *const none[] = {NULL};
static const char *const v2_hf[] = {"DeepseekV2ForCausalLM", NULL};
static const char *const v3_hf[] = {"DeepseekV3ForCausalLM", "KimiK2ForCausalLM", NULL};
static const char *const glm_hf[] = {"Glm4MoeLiteForCausalLM", NULL};
/* the second is also the class of folders without experts: model_mistral3 */
static const char *const mistral4_hf[] = {"Mistral4ForCausalLM", "Mistral3ForConditionalGeneration",
                                          NULL};
static const struct role_alias alias[] = {{ROLE_SHARED_GATE, "mlp.shared_experts.gate_proj.weight"},
                                          {ROLE_SHARED_UP, "mlp.shared_experts.up_proj.weight"},
                                          {ROLE_SHARED_DOWN, "mlp.shared_experts.down_proj.weight"},
                                          {0}};

static const struct role_alias mistral4_alias[] = {
    {ROLE_SHARED_GATE, "mlp.shared_experts.gate_proj.weight"},
    {ROLE_SHARED_UP, "mlp.shared_experts.up_proj.weight"},
    {ROLE_SHARED_DOWN, "mlp.shared_experts.down_proj.weight"},
    {ROLE_EXPERTS_GATE_UP, "mlp.experts.gate_up_proj"},
    {ROLE_EXPERTS_DOWN, "mlp.experts.down_proj"},
    {0}};

/* Scores are divided by the root of the expanded size of a query, and multiplied by the square of
 * YaRN's factor. */
static enum status finish(struct model_config *config, struct err *err) {
    const struct latent_config *latent = &config->latent;
    const float factor = config->rope.stretch.score_factor;
    (void)err;
    config->attention_scale = 1 / sqrtf((float)(latent->D_unrotated + latent->D_rope));
    if (factor > 0) config->attention_scale *= factor * factor;
    return STATUS_OK;
}

/* For GGUF files, whose keys say how experts are chosen. */
const struct model_family model_deepseek2 = {
    .gguf = "deepseek2",
    .hf = none,
    .roles = ROLES,
    .optional =
        ROLE_BIT(ROLE_OUTPUT) | ROLE_BIT(ROLE_ROUTER_CORRECTION) | ROLES_SHARED | ROLES_OF_SHAPE,
    .norm = NORM_RMS,
    .activation = ACTIVATION_SILU,
    .positions = POSITIONS_ROPE_ADJACENT,
    .has_latents = true,
    .ahead = AHEAD_STREAM,
    .finish = finish,
};

const struct model_family model_deepseek_v2 = {
    .gguf = "deepseek_v2",
    .only_folders = true,
    .hf = v2_hf,
    .roles = ROLES,
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLES_SHARED | ROLES_OF_SHAPE,
    .norm = NORM_RMS,
    .norm_epsilon = 1e-6f,
    .activation = ACTIVATION_SILU,
    .positions = POSITIONS_ROPE_ADJACENT,
    .has_latents = true,
    .folder = {.alias = alias, .rotates_adjacent = true, .D = 64},
    .finish = finish,
};

const struct model_family model_deepseek_v3 = {
    .gguf = "deepseek_v3",
    .only_folders = true,
    .hf = v3_hf,
    .roles = ROLES | ROLE_BIT(ROLE_ROUTER_CORRECTION),
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLES_SHARED | ROLES_OF_SHAPE,
    .norm = NORM_RMS,
    .norm_epsilon = 1e-6f,
    .activation = ACTIVATION_SILU,
    .positions = POSITIONS_ROPE_ADJACENT,
    .weights = {.normalised_in_folders = true},
    .has_latents = true,
    .by_sigmoid = true,
    .folder = {.alias = alias, .rotates_adjacent = true, .D = 64},
    .ahead = AHEAD_STREAM,
    .finish = finish,
};

const struct model_family model_glm4_moe_lite = {
    .gguf = "glm4_moe_lite",
    .only_folders = true,
    .hf = glm_hf,
    .roles = ROLES | ROLE_BIT(ROLE_ROUTER_CORRECTION),
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLES_SHARED | ROLES_OF_SHAPE,
    .norm = NORM_RMS,
    .norm_epsilon = 1e-5f,
    .activation = ACTIVATION_SILU,
    .positions = POSITIONS_ROPE_ADJACENT,
    .weights = {.normalised_in_folders = true},
    .has_latents = true,
    .by_sigmoid = true,
    .folder = {.alias = alias, .rotates_adjacent = true, .D = 64},
    .ahead = AHEAD_STREAM,
    .finish = finish,
};

static const char *const kimi_hf[] = {"KimiLinearForCausalLM", NULL};
#define BLOCK "block_sparse_moe."
/* transformers writes the names of experts also in layers with an MLP. */
static const struct role_alias kimi_alias[] = {
    {ROLE_STATE_CONV, "self_attn.q_conv1d.weight"},
    {ROLE_STATE_CONV, "self_attn.k_conv1d.weight"},
    {ROLE_STATE_CONV, "self_attn.v_conv1d.weight"},
    {ROLE_STATE_DECAY, "self_attn.A_log"},
    {ROLE_STATE_DT_BIAS, "self_attn.dt_bias"},
    {ROLE_STATE_NORM, "self_attn.o_norm.weight"},
    {ROLE_DELTA_B, "self_attn.b_proj.weight"},
    {ROLE_DELTA_DT, "self_attn.f_b_proj.weight"},
    {ROLE_DELTA_Z, "self_attn.g_b_proj.weight"},
    {ROLE_GATE, "mlp.gate_proj.weight"},
    {ROLE_GATE, BLOCK "gate_proj.weight"},
    {ROLE_UP, "mlp.up_proj.weight"},
    {ROLE_UP, BLOCK "up_proj.weight"},
    {ROLE_DOWN, "mlp.down_proj.weight"},
    {ROLE_DOWN, BLOCK "down_proj.weight"},
    {ROLE_ROUTER, BLOCK "gate.weight"},
    {ROLE_ROUTER_CORRECTION, BLOCK "gate.e_score_correction_bias"},
    {ROLE_EXPERTS_GATE, BLOCK "experts.*.w1.weight"},
    {ROLE_EXPERTS_UP, BLOCK "experts.*.w3.weight"},
    {ROLE_EXPERTS_DOWN, BLOCK "experts.*.w2.weight"},
    {ROLE_SHARED_GATE, BLOCK "shared_experts.gate_proj.weight"},
    {ROLE_SHARED_UP, BLOCK "shared_experts.up_proj.weight"},
    {ROLE_SHARED_DOWN, BLOCK "shared_experts.down_proj.weight"},
    {0}};

const struct model_family model_kimi_linear = {
    .gguf = "kimi-linear",
    .hf = kimi_hf,
    .roles = ROLES | ROLES_CHANNEL_DELTA | ROLE_BIT(ROLE_ROUTER_CORRECTION),
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLES_SHARED | ROLES_LATENT_Q | ROLE_BIT(ROLE_KV_B) |
                ROLES_LATENT_B,
    .norm = NORM_RMS,
    .norm_epsilon = 1e-5f,
    .activation = ACTIVATION_SILU,
    .positions = POSITIONS_NONE,
    .weights = {.normalised_in_gguf = true, .normalised_in_folders = true},
    .taps = 4,
    .states = STATE_DELTA,
    .by_channel = true,
    .has_latents = true,
    .by_sigmoid = true,
    .folder = {.alias = kimi_alias, .D = 64},
    .finish = finish,
};

/* Its groups would rank by the sum of their two best experts, and no published model has groups. */
static enum status finish_mistral4(struct model_config *config, struct err *err) {
    if (config->experts.n_groups > 1)
        return err_set(err, STATUS_BAD_FILE, "n_group",
                       "key n_group: only 1 is supported in a model of the architecture "
                       "\"mistral4\", found %d",
                       config->experts.n_groups);
    return finish(config, err);
}

const struct model_family model_mistral4 = {
    .gguf = "mistral4",
    .hf = mistral4_hf,
    .roles = ROLES,
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLES_SHARED | ROLES_OF_SHAPE,
    .norm = NORM_RMS,
    .norm_epsilon = 1e-6f,
    .activation = ACTIVATION_SILU,
    .positions = POSITIONS_ROPE_ADJACENT,
    .scales_queries = true,
    .weights = {.normalised_in_gguf = true, .normalised_in_folders = true},
    .has_latents = true,
    .always_groups = true,
    .folder = {.alias = mistral4_alias,
               .fused = ROLES_FUSED_EXPERTS,
               .rotates_adjacent = true,
               .D = 64},
    .finish = finish_mistral4,
};
