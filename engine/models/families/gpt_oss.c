/* gpt-oss (OpenAI 2025): experts with biases everywhere and a clamped gate, an attention sink per
 * head, windows on every other layer. In a folder, the rows of an expert's gate and up alternate in
 * tensors that are columns, or MXFP4. */
#include "engine/models/families/family.h"

static const char *const hf[] = {"GptOssForCausalLM", NULL};
static const struct role_alias alias[] = {{ROLE_ROUTER, "mlp.router.weight"},
                                          {ROLE_ROUTER_BIAS, "mlp.router.bias"},
                                          {ROLE_EXPERTS_DOWN, "mlp.experts.down_proj"},
                                          {0}};

const struct model_family model_gpt_oss = {
    .gguf = "gpt-oss",
    .hf = hf,
    .roles = ROLES_ENDS | ROLES_ATTENTION | ROLES_ATTENTION_BIASES | ROLE_BIT(ROLE_SINKS) |
             ROLE_BIT(ROLE_FFN_NORM) | ROLE_BIT(ROLE_ROUTER) | ROLE_BIT(ROLE_ROUTER_BIAS) |
             ROLE_BIT(ROLE_EXPERTS_GATE) | ROLE_BIT(ROLE_EXPERTS_GATE_BIAS) |
             ROLE_BIT(ROLE_EXPERTS_UP) | ROLE_BIT(ROLE_EXPERTS_UP_BIAS) |
             ROLE_BIT(ROLE_EXPERTS_DOWN) | ROLE_BIT(ROLE_EXPERTS_DOWN_BIAS),
    .optional = ROLE_BIT(ROLE_OUTPUT),
    .norm = NORM_RMS,
    .norm_names = NORM_NAMES_AFTER_ATTENTION,
    .activation = ACTIVATION_CLAMPED,
    .positions = POSITIONS_ROPE_HALVES,
    .windows = WINDOWS_PATTERN,
    .full_every = 2,
    .rope_base = 150000,
    .smooth_yarn = true,
    .weights = {.normalised_in_gguf = true, .normalised_in_folders = true},
    .folder = {.alias = alias,
               .transposed = ROLE_BIT(ROLE_EXPERTS_GATE_UP) | ROLE_BIT(ROLE_EXPERTS_DOWN),
               .fused = ROLES_FUSED_EXPERTS,
               .interleaves_experts = true},
};
