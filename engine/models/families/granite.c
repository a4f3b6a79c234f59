/* Granite (IBM 2024): llama's blocks with scales of the embedding, of scores and of each branch's
 * output, and a divisor of logits. Granite 4 (IBM 2025) has gate and up in one tensor of its
 * folders, which say whether positions rotate. Most layers of its hybrid models are state spaces;
 * the larger ones have experts beside a shared MLP. GGUF files of models without recurrent layers
 * may be those of Granite. */
#include "engine/models/families/family.h"

/* The file has the inverse of the logits' scale. */
static enum status finish(struct model_config *config, struct err *err) {
    (void)err;
    config->logit_scale = 1 / config->logit_scale;
    return STATUS_OK;
}

static const char *const granite4_hf[] = {"GraniteMoeHybridForCausalLM", NULL};
#define ALIAS_SPACE                                                                                \
    {ROLE_STATE_CONV, "mamba.conv1d.weight"}, {ROLE_STATE_DECAY, "mamba.A_log"},                   \
        {ROLE_STATE_DT_BIAS, "mamba.dt_bias"}, {ROLE_STATE_NORM, "mamba.norm.weight"},             \
        {ROLE_STATE_OUT, "mamba.out_proj.weight"}, {                                               \
        0                                                                                          \
    }

static const struct role_alias alias[] = {{ROLE_GATE_UP, "shared_mlp.input_linear.weight"},
                                          {ROLE_DOWN, "shared_mlp.output_linear.weight"},
                                          ALIAS_SPACE};
static const struct role_alias experts_alias[] = {
    {ROLE_ROUTER, "block_sparse_moe.router.layer.weight"},
    {ROLE_EXPERTS_GATE_UP, "block_sparse_moe.input_linear.weight"},
    {ROLE_EXPERTS_DOWN, "block_sparse_moe.output_linear.weight"},
    {ROLE_SHARED_DOWN, "shared_mlp.output_linear.weight"},
    ALIAS_SPACE};
static const char *const hf[] = {"GraniteForCausalLM", NULL};

const struct model_family model_granite = {
    .gguf = "granite",
    .hf = hf,
    .roles = ROLES_LLAMA,
    .optional = ROLES_LLAMA_OPTIONAL,
    .norm = NORM_RMS,
    .activation = ACTIVATION_SILU,
    .positions = POSITIONS_ROPE_ADJACENT,
    .scales = true,
    .may_not_rotate = true,
    .folder = {.attention_scale = 1},
    .finish = finish,
};

const struct model_family model_granite4 = {
    .gguf = "granitehybrid",
    .written_as = "granite",
    .hf = granite4_hf,
    .roles = ROLES_LLAMA | ROLES_SPACE,
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLE_BIT(ROLE_ROPE_FACTORS) | ROLES_ATTENTION_BIASES,
    .norm = NORM_RMS,
    .activation = ACTIVATION_SILU,
    .positions = POSITIONS_ROPE_ADJACENT,
    .scales = true,
    .may_not_rotate = true,
    .taps = 4,
    .states = STATE_SPACE,
    .folder = {.alias = alias,
               .fused = ROLE_BIT(ROLE_GATE_UP),
               .attention_scale = 1,
               .width_key = "shared_intermediate_size",
               .rotates_if_said = true},
    .finish = finish,
};

const struct model_family model_granite4_experts = {
    .gguf = "granitehybrid",
    .hf = granite4_hf,
    .roles = ROLES_ENDS | ROLES_ATTENTION | ROLES_SPACE | ROLES_SHARED | ROLE_BIT(ROLE_FFN_NORM) |
             ROLE_BIT(ROLE_ROUTER) | ROLE_BIT(ROLE_EXPERTS_GATE) | ROLE_BIT(ROLE_EXPERTS_UP) |
             ROLE_BIT(ROLE_EXPERTS_DOWN),
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLE_BIT(ROLE_ROPE_FACTORS) | ROLES_ATTENTION_BIASES,
    .norm = NORM_RMS,
    .activation = ACTIVATION_SILU,
    .positions = POSITIONS_ROPE_ADJACENT,
    .scales = true,
    .may_not_rotate = true,
    .taps = 4,
    .states = STATE_SPACE,
    .weights = {.normalised_in_gguf = true, .normalised_in_folders = true},
    .folder = {.alias = experts_alias,
               .fused = ROLES_FUSED_EXPERTS | ROLE_BIT(ROLE_SHARED_GATE_UP),
               .attention_scale = 1,
               .rotates_if_said = true},
    .finish = finish,
};
