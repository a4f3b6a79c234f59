/* Families whose folders hold the rows of queries, keys and values of a key head together. GPT-NeoX
 * (Black et al. 2022), also Pythia: LayerNorm, biases, an MLP without a gate, and rotary positions
 * of a part of each head. Branches have the same input and a norm each, or follow one another.
 * Falcon (Almazrouei et al. 2023) with rotary positions: no biases. The 7B model has one key head;
 * later ones have more, and the 40B model has a norm for each branch. */
#include "engine/models/families/family.h"

static const char *const neox_hf[] = {"GPTNeoXForCausalLM", NULL};
static const struct role_alias neox_alias[] = {{ROLE_TOKEN_EMBEDDING, "embed_in.weight"},
                                               {ROLE_OUTPUT, "embed_out.weight"},
                                               {ROLE_OUTPUT_NORM, "final_layer_norm.weight"},
                                               {ROLE_OUTPUT_NORM_BIAS, "final_layer_norm.bias"},
                                               {ROLE_QKV, "attention.query_key_value.weight"},
                                               {ROLE_QKV_BIAS, "attention.query_key_value.bias"},
                                               {ROLE_O, "attention.dense.weight"},
                                               {ROLE_O_BIAS, "attention.dense.bias"},
                                               {ROLE_UP, "mlp.dense_h_to_4h.weight"},
                                               {ROLE_UP_BIAS, "mlp.dense_h_to_4h.bias"},
                                               {ROLE_DOWN, "mlp.dense_4h_to_h.weight"},
                                               {ROLE_DOWN_BIAS, "mlp.dense_4h_to_h.bias"},
                                               {0}};

const struct model_family model_gptneox = {
    .gguf = "gptneox",
    .hf = neox_hf,
    .roles = ROLES_ENDS | ROLES_ATTENTION | ROLES_ATTENTION_BIASES |
             ROLE_BIT(ROLE_OUTPUT_NORM_BIAS) | ROLE_BIT(ROLE_ATTN_NORM_BIAS) |
             ROLE_BIT(ROLE_FFN_NORM) | ROLE_BIT(ROLE_FFN_NORM_BIAS) | ROLE_BIT(ROLE_UP) |
             ROLE_BIT(ROLE_UP_BIAS) | ROLE_BIT(ROLE_DOWN) | ROLE_BIT(ROLE_DOWN_BIAS),
    .optional = ROLE_BIT(ROLE_OUTPUT),
    .norm = NORM_LAYER,
    .activation = ACTIVATION_GELU,
    .has_parallel_branches = true,
    .may_be_parallel = true,
    .norms_mlp_apart = true,
    .positions = POSITIONS_ROPE_HALVES,
    .folder = {.alias = neox_alias,
               .groups_qkv = true,
               .fused = ROLES_FUSED_QKV,
               .tanh_activation = "gelu_fast",
               .rope_part = 0.25f},
};

static const char *const falcon_hf[] = {"FalconForCausalLM", NULL};
static const struct role_alias falcon_alias[] = {
    {ROLE_TOKEN_EMBEDDING, "word_embeddings.weight"},
    {ROLE_OUTPUT_NORM, "ln_f.weight"},
    {ROLE_OUTPUT_NORM_BIAS, "ln_f.bias"},
    {ROLE_ATTN_NORM, "input_layernorm.weight"},
    {ROLE_ATTN_NORM, "ln_mlp.weight"},
    {ROLE_ATTN_NORM_BIAS, "input_layernorm.bias"},
    {ROLE_ATTN_NORM_BIAS, "ln_mlp.bias"},
    {ROLE_QKV, "self_attention.query_key_value.weight"},
    {ROLE_O, "self_attention.dense.weight"},
    {ROLE_UP, "mlp.dense_h_to_4h.weight"},
    {ROLE_DOWN, "mlp.dense_4h_to_h.weight"},
    {0}};

const struct model_family model_falcon = {
    .gguf = "falcon",
    .hf = falcon_hf,
    .roles = ROLES_ENDS | ROLES_ATTENTION | ROLE_BIT(ROLE_OUTPUT_NORM_BIAS) |
             ROLE_BIT(ROLE_ATTN_NORM_BIAS) | ROLE_BIT(ROLE_UP) | ROLE_BIT(ROLE_DOWN),
    .optional =
        ROLE_BIT(ROLE_OUTPUT) | ROLE_BIT(ROLE_ATTN_NORM_2) | ROLE_BIT(ROLE_ATTN_NORM_2_BIAS),
    .norm = NORM_LAYER,
    .norm_epsilon = 1e-5f,
    .activation = ACTIVATION_GELU,
    .has_parallel_branches = true,
    .positions = POSITIONS_ROPE_HALVES,
    .ties = true,
    .folder = {.layers = "h.",
               .alias = falcon_alias,
               .groups_qkv = true,
               .fused = ROLES_FUSED_QKV,
               .width_key = "ffn_hidden_size",
               .has_falcon_keys = true,
               .context_length = 2048},
};
