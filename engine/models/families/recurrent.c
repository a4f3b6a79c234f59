/* Families with recurrent layers. LFM2 (Liquid AI 2025): most layers have a short convolution
 * instead of attention. The others are
 * those of Qwen3, with norms of query and key heads. LFM2 MoE has experts, chosen by sigmoids with
 * a correction, in all layers but the first ones.
 *
 * Others have state spaces (struct state_space of kernels/ops.h). Mamba 2 (Dao and Gu 2024) has
 * nothing else. Bamba (IBM and others 2024) has attention in some layers, and an MLP in all.
 * Nemotron-H (NVIDIA 2025) has one part per layer: a state space, attention without positions, or
 * an MLP with a squared ReLU. Falcon-H1 (TII 2025) has attention and a state space in each layer,
 * both of the same input, and a factor for each product; GGUF files have the factors in the
 * matrices. */
#include "engine/models/families/family.h"

#define LFM2_ALIASES                                                                               \
    {ROLE_OUTPUT_NORM, "embedding_norm.weight"}, {ROLE_ATTN_NORM, "operator_norm.weight"},         \
        {ROLE_FFN_NORM, "ffn_norm.weight"}, {ROLE_O, "self_attn.out_proj.weight"},                 \
        {ROLE_Q_NORM, "self_attn.q_layernorm.weight"},                                             \
        {ROLE_K_NORM, "self_attn.k_layernorm.weight"}, {ROLE_GATE, "feed_forward.w1.weight"},      \
        {ROLE_UP, "feed_forward.w3.weight"}, {                                                     \
        ROLE_DOWN, "feed_forward.w2.weight"                                                        \
    }

static const char *const hf[] = {"Lfm2ForCausalLM", NULL};
static const struct role_alias alias[] = {LFM2_ALIASES, {0}};

static const char *const moe_hf[] = {"Lfm2MoeForCausalLM", NULL};
static const struct role_alias moe_alias[] = {
    LFM2_ALIASES,
    {ROLE_ROUTER, "feed_forward.gate.weight"},
    {ROLE_ROUTER_CORRECTION, "feed_forward.expert_bias"},
    {ROLE_EXPERTS_GATE, "feed_forward.experts.*.w1.weight"},
    {ROLE_EXPERTS_UP, "feed_forward.experts.*.w3.weight"},
    {ROLE_EXPERTS_DOWN, "feed_forward.experts.*.w2.weight"},
    {0}};

#define ROLES_LFM2                                                                                 \
    (ROLE_BIT(ROLE_TOKEN_EMBEDDING) | ROLE_BIT(ROLE_OUTPUT_NORM) | ROLES_ATTENTION |               \
     ROLES_QK_NORM | ROLES_SHORT_CONV | ROLES_GATED_MLP)
#define LFM2_FIELDS                                                                                \
    FAMILY_USUAL, .optional = ROLE_BIT(ROLE_OUTPUT) | ROLES_SHORT_CONV_BIASES,                     \
                  .norm_epsilon = 1e-5f, .rope_base = 1000000, .taps = 3, .ties = true,            \
                  .norm_names = NORM_NAMES_OF_EMBEDDING

const struct model_family model_lfm2 = {
    .gguf = "lfm2",
    .hf = hf,
    .roles = ROLES_LFM2,
    LFM2_FIELDS,
    .folder = {.alias = alias, .width_key = "block_ff_dim|intermediate_size"},
};

const struct model_family model_lfm2_moe = {
    .gguf = "lfm2moe",
    .hf = moe_hf,
    .roles = ROLES_LFM2 | ROLE_BIT(ROLE_ROUTER) | ROLE_BIT(ROLE_ROUTER_CORRECTION) |
             ROLE_BIT(ROLE_EXPERTS_GATE) | ROLE_BIT(ROLE_EXPERTS_UP) | ROLE_BIT(ROLE_EXPERTS_DOWN),
    LFM2_FIELDS,
    .weights = {.normalised_in_gguf = true, .normalised_in_folders = true},
    .by_sigmoid = true,
    .folder = {.alias = moe_alias},
};

/* ---- state spaces --------------------------------------------------------------------------- */

static const char *const bamba_hf[] = {"BambaForCausalLM", NULL};
static const char *const mamba2_hf[] = {"Mamba2ForCausalLM", NULL};
static const char *const nemotron_h_hf[] = {"NemotronHForCausalLM", NULL};
static const char *const falcon_h1_hf[] = {"FalconH1ForCausalLM", NULL};

static const struct role_alias bamba_alias[] = {{ROLE_OUTPUT_NORM, "final_layernorm.weight"},
                                                {ROLE_FFN_NORM, "pre_ff_layernorm.weight"},
                                                {ROLE_GATE, "feed_forward.gate_proj.weight"},
                                                {ROLE_UP, "feed_forward.up_proj.weight"},
                                                {ROLE_DOWN, "feed_forward.down_proj.weight"},
                                                {ROLE_STATE_CONV, "mamba.conv1d.weight"},
                                                {ROLE_STATE_DECAY, "mamba.A_log"},
                                                {ROLE_STATE_DT_BIAS, "mamba.dt_bias"},
                                                {ROLE_STATE_NORM, "mamba.norm.weight"},
                                                {ROLE_STATE_OUT, "mamba.out_proj.weight"},
                                                {0}};
/* Newer folders name the embedding and the last norm as most families do. */
static const struct role_alias mixer_alias[] = {{ROLE_TOKEN_EMBEDDING, "embeddings.weight"},
                                                {ROLE_TOKEN_EMBEDDING, "embed_tokens.weight"},
                                                {ROLE_OUTPUT_NORM, "norm_f.weight"},
                                                {ROLE_OUTPUT_NORM, "norm.weight"},
                                                {ROLE_ATTN_NORM, "norm.weight"},
                                                {ROLE_SPACE_IN, "mixer.in_proj.weight"},
                                                {ROLE_SPACE_CONV_BIAS, "mixer.conv1d.bias"},
                                                {ROLE_SPACE_SKIP, "mixer.D"},
                                                {ROLE_STATE_CONV, "mixer.conv1d.weight"},
                                                {ROLE_STATE_DECAY, "mixer.A_log"},
                                                {ROLE_STATE_DT_BIAS, "mixer.dt_bias"},
                                                {ROLE_STATE_NORM, "mixer.norm.weight"},
                                                {ROLE_STATE_OUT, "mixer.out_proj.weight"},
                                                {ROLE_Q, "mixer.q_proj.weight"},
                                                {ROLE_K, "mixer.k_proj.weight"},
                                                {ROLE_V, "mixer.v_proj.weight"},
                                                {ROLE_O, "mixer.o_proj.weight"},
                                                {ROLE_UP, "mixer.up_proj.weight"},
                                                {ROLE_DOWN, "mixer.down_proj.weight"},
                                                {0}};

/* Its GGUF files are those of granitehybrid. */
const struct model_family model_bamba = {
    .gguf = "bamba",
    .only_folders = true,
    .hf = bamba_hf,
    .roles = ROLES_LLAMA | ROLES_SPACE,
    .optional = ROLE_BIT(ROLE_OUTPUT),
    FAMILY_USUAL,
    .taps = 4,
    .states = STATE_SPACE,
    .folder = {.alias = bamba_alias, .rope_part = 0.5f},
};

const struct model_family model_mamba2 = {
    .gguf = "mamba2",
    .hf = mamba2_hf,
    .roles = ROLES_ENDS | ROLE_BIT(ROLE_ATTN_NORM) | ROLES_SPACE,
    .optional = ROLE_BIT(ROLE_OUTPUT),
    .norm = NORM_RMS,
    .norm_epsilon = 1e-5f,
    .activation = ACTIVATION_SILU,
    .positions = POSITIONS_NONE,
    .taps = 4,
    .states = STATE_SPACE,
    .lacks_attention = true,
    /* folders do not state a context; this is the one of GGUF files */
    .folder = {.alias = mixer_alias, .H = 1, .G = 1, .D = 16, .context_length = 1 << 20},
};

const struct model_family model_nemotron_h = {
    .gguf = "nemotron_h",
    .hf = nemotron_h_hf,
    .roles = ROLES_ENDS | ROLES_ATTENTION | ROLES_SPACE | ROLE_BIT(ROLE_UP) | ROLE_BIT(ROLE_DOWN),
    .optional = ROLE_BIT(ROLE_OUTPUT),
    .norm = NORM_RMS,
    .norm_epsilon = 1e-5f,
    .activation = ACTIVATION_RELU_SQUARED,
    .positions = POSITIONS_NONE,
    .taps = 4,
    .states = STATE_SPACE,
    .has_single_parts = true,
    .folder = {.alias = mixer_alias},
};

const struct model_family model_falcon_h1 = {
    .gguf = "falcon-h1",
    .hf = falcon_h1_hf,
    .norm_names = NORM_NAMES_CUT,
    .roles = ROLES_LLAMA | ROLES_SPACE,
    .optional = ROLE_BIT(ROLE_OUTPUT),
    FAMILY_USUAL,
    .norm_epsilon = 1e-5f,
    .scales = true,
    .taps = 4,
    .states = STATE_SPACE,
    .mixes_both = true,
    .folder = {.alias = bamba_alias},
};
