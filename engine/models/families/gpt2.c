/* Families with learned positions. GPT-2 (Radford et al. 2019) has LayerNorm, biases everywhere, an
 * MLP without a gate, and queries, keys and values in one tensor. OPT (Zhang et al. 2022) has
 * LayerNorm before each branch, biases everywhere, a ReLU without a gate, and two unused positions
 * at the start. Its 350M model normalises the stream after each branch, lacks the last norm, and
 * has an embedding of half the width. */
#include "engine/models/families/family.h"

static const char *const hf[] = {"GPT2LMHeadModel", NULL};
static const struct role_alias alias[] = {{ROLE_TOKEN_EMBEDDING, "wte.weight"},
                                          {ROLE_POSITION_EMBEDDING, "wpe.weight"},
                                          {ROLE_OUTPUT_NORM, "ln_f.weight"},
                                          {ROLE_OUTPUT_NORM_BIAS, "ln_f.bias"},
                                          {ROLE_ATTN_NORM, "ln_1.weight"},
                                          {ROLE_ATTN_NORM_BIAS, "ln_1.bias"},
                                          {ROLE_QKV, "attn.c_attn.weight"},
                                          {ROLE_QKV_BIAS, "attn.c_attn.bias"},
                                          {ROLE_O, "attn.c_proj.weight"},
                                          {ROLE_O_BIAS, "attn.c_proj.bias"},
                                          {ROLE_FFN_NORM, "ln_2.weight"},
                                          {ROLE_FFN_NORM_BIAS, "ln_2.bias"},
                                          {ROLE_UP, "mlp.c_fc.weight"},
                                          {ROLE_UP_BIAS, "mlp.c_fc.bias"},
                                          {ROLE_DOWN, "mlp.c_proj.weight"},
                                          {ROLE_DOWN_BIAS, "mlp.c_proj.bias"},
                                          {0}};

const struct model_family model_gpt2 = {
    .gguf = "gpt2",
    .hf = hf,
    .roles = ROLES_ENDS | ROLE_BIT(ROLE_POSITION_EMBEDDING) | ROLE_BIT(ROLE_OUTPUT_NORM_BIAS) |
             ROLE_BIT(ROLE_ATTN_NORM) | ROLE_BIT(ROLE_ATTN_NORM_BIAS) | ROLE_BIT(ROLE_QKV) |
             ROLE_BIT(ROLE_QKV_BIAS) | ROLE_BIT(ROLE_O) | ROLE_BIT(ROLE_O_BIAS) |
             ROLE_BIT(ROLE_FFN_NORM) | ROLE_BIT(ROLE_FFN_NORM_BIAS) | ROLE_BIT(ROLE_UP) |
             ROLE_BIT(ROLE_UP_BIAS) | ROLE_BIT(ROLE_DOWN) | ROLE_BIT(ROLE_DOWN_BIAS),
    .optional = ROLE_BIT(ROLE_OUTPUT),
    .norm = NORM_LAYER,
    .activation = ACTIVATION_GELU_TANH,
    .positions = POSITIONS_LEARNED,
    .ties = true,
    .folder = {.layers = "h.",
               .alias = alias,
               .transposed =
                   ROLE_BIT(ROLE_QKV) | ROLE_BIT(ROLE_O) | ROLE_BIT(ROLE_UP) | ROLE_BIT(ROLE_DOWN)},
};

static const char *const opt_hf[] = {"OPTForCausalLM", NULL};
static const struct role_alias opt_alias[] = {{ROLE_POSITION_EMBEDDING, "embed_positions.weight"},
                                              {ROLE_OUTPUT_NORM, "final_layer_norm.weight"},
                                              {ROLE_OUTPUT_NORM_BIAS, "final_layer_norm.bias"},
                                              {ROLE_ATTN_NORM, "self_attn_layer_norm.weight"},
                                              {ROLE_ATTN_NORM_BIAS, "self_attn_layer_norm.bias"},
                                              {ROLE_O, "self_attn.out_proj.weight"},
                                              {ROLE_O_BIAS, "self_attn.out_proj.bias"},
                                              {ROLE_FFN_NORM, "final_layer_norm.weight"},
                                              {ROLE_FFN_NORM_BIAS, "final_layer_norm.bias"},
                                              {ROLE_UP, "fc1.weight"},
                                              {ROLE_UP_BIAS, "fc1.bias"},
                                              {ROLE_DOWN, "fc2.weight"},
                                              {ROLE_DOWN_BIAS, "fc2.bias"},
                                              {0}};

const struct model_family model_opt = {
    .gguf = "opt",
    .only_folders = true,
    .hf = opt_hf,
    .roles = ROLES_ENDS | ROLES_ATTENTION | ROLE_BIT(ROLE_POSITION_EMBEDDING) |
             ROLE_BIT(ROLE_OUTPUT_NORM_BIAS) | ROLE_BIT(ROLE_ATTN_NORM_BIAS) |
             ROLE_BIT(ROLE_Q_BIAS) | ROLE_BIT(ROLE_K_BIAS) | ROLE_BIT(ROLE_V_BIAS) |
             ROLE_BIT(ROLE_O_BIAS) | ROLE_BIT(ROLE_FFN_NORM) | ROLE_BIT(ROLE_FFN_NORM_BIAS) |
             ROLE_BIT(ROLE_UP) | ROLE_BIT(ROLE_UP_BIAS) | ROLE_BIT(ROLE_DOWN) |
             ROLE_BIT(ROLE_DOWN_BIAS),
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLE_BIT(ROLE_PROJECT_IN) | ROLE_BIT(ROLE_PROJECT_OUT),
    .norm = NORM_LAYER,
    .norm_epsilon = 1e-5f,
    .activation = ACTIVATION_RELU,
    .may_norm_stream = true,
    .positions = POSITIONS_LEARNED,
    .ties = true,
    .folder = {.alias = opt_alias, .unused_positions = 2},
};
