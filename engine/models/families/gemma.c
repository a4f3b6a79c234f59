/* Gemma (Gemma Team 2024): llama's blocks with a GELU gate and scaled embeddings. Gemma 2 adds a
 * norm after each branch, windows on every other layer, and soft caps of scores and logits. Gemma 3
 * replaces the caps by norms of query and key heads; five of six layers have windows and a separate
 * rotary base. Gemma 4 does not scale scores, also normalises values, and multiplies the stream by
 * a number after each layer. Its layers without windows differ in the size and number of heads, may
 * use their keys as values, and rotate a part of a head. The last layers may read the keys and
 * values of other layers, and layers may add their own inputs. Its 26B model has experts beside
 * each MLP: each of the two and the router have a separate norm of the same stream; the two outputs
 * are normalised and added. In GGUF files the gains include the 1 that the model adds; in folders
 * they do not. Gemma 4 does not add 1. */
#include <math.h>

#include "engine/models/families/family.h"

/* Layers of the 27B models. */
enum { LAYERS_OF_27B = 46, LAYERS_OF_27B_3 = 62 };

static enum status finish(struct model_config *config, struct err *err) {
    (void)err;
    config->embedding_scale = sqrtf((float)config->K);
    return STATUS_OK;
}

/* No key states the scale of queries. It follows from the size of a head, except in the 27B model,
 * where it follows from the stream's width per head. */
static enum status finish_2(struct model_config *config, struct err *err) {
    int L = config_has(config, ROLE_Q_NORM) ? LAYERS_OF_27B_3 : LAYERS_OF_27B;
    if (config->attention_scale == 0 && config->L == L)
        config->attention_scale = 1 / sqrtf((float)config->K / (float)config->H);
    return finish(config, err);
}

/* The last layer sees all positions. */
static enum status finish_4(struct model_config *config, struct err *err) {
    config->attention_scale = 1;
    if (!config->layer[config->L - 1].slides) return finish(config, err);
    return err_set(err, STATUS_BAD_FILE, "layer_types",
                   "key layer_types: only \"full_attention\" is supported in the last layer of a "
                   "model of the architecture \"gemma4\"");
}

static const char *const hf[] = {"GemmaForCausalLM", NULL};
static const char *const hf_2[] = {"Gemma2ForCausalLM", NULL};
static const char *const hf_3[] = {"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration", NULL};
static const char *const hf_embedding[] = {"Gemma3TextModel", NULL};
static const char *const hf_4[] = {"Gemma4ForCausalLM", "Gemma4ForConditionalGeneration",
                                   "Gemma4UnifiedForCausalLM",
                                   "Gemma4UnifiedForConditionalGeneration", NULL};
static const struct role_alias alias[] = {{ROLE_FFN_NORM, "pre_feedforward_layernorm.weight"}, {0}};
static const struct role_alias alias_4[] = {{ROLE_FFN_NORM, "pre_feedforward_layernorm.weight"},
                                            {ROLE_ROUTER, "router.proj.weight"},
                                            {ROLE_EXPERTS_GATE_UP, "experts.gate_up_proj"},
                                            {ROLE_EXPERTS_DOWN, "experts.down_proj"},
                                            {0}};

#define GEMMA_FIELDS                                                                               \
    .norm = NORM_RMS, .activation = ACTIVATION_GELU_TANH, .positions = POSITIONS_ROPE_HALVES,      \
    .ties = true
#define GEMMA3_WINDOWS                                                                             \
    .windows = WINDOWS_PATTERN, .full_every = 6, .window_rotation = WINDOW_ROPE_LOCAL,             \
    .rope_base = 1000000
#define GEMMA4_FIELDS                                                                              \
    GEMMA_FIELDS, .windows = WINDOWS_LISTED, .window_rotation = WINDOW_ROPE_LOCAL,                 \
                  .rope_base = 1000000, .keys_may_serve = true, .norms_values = true,              \
                  .head_size = 512

/* Its config.json says "gelu" and means the tanh approximation. */
const struct model_family model_gemma = {
    .gguf = "gemma",
    .hf = hf,
    .roles = ROLES_LLAMA,
    GEMMA_FIELDS,
    .folder = {.adds_one = true, .activation = "gelu"},
    .finish = finish,
};

const struct model_family model_gemma2 = {
    .gguf = "gemma2",
    .hf = hf_2,
    .roles = ROLES_LLAMA | ROLE_BIT(ROLE_ATTN_POST_NORM) | ROLE_BIT(ROLE_FFN_POST_NORM),
    GEMMA_FIELDS,
    .windows = WINDOWS_PATTERN,
    .full_every = 2,
    .folder = {.alias = alias, .adds_one = true},
    .finish = finish_2,
};

/* The config.json of the 4B and 12B models omits default values. */
const struct model_family model_gemma3 = {
    .gguf = "gemma3",
    .hf = hf_3,
    .roles = ROLES_LLAMA | ROLE_BIT(ROLE_Q_NORM) | ROLE_BIT(ROLE_K_NORM) |
             ROLE_BIT(ROLE_ATTN_POST_NORM) | ROLE_BIT(ROLE_FFN_POST_NORM),
    .optional = ROLE_BIT(ROLE_OUTPUT),
    GEMMA_FIELDS,
    .norm_epsilon = 1e-6f,
    GEMMA3_WINDOWS,
    .folder = {.alias = alias,
               .adds_one = true,
               .V = 262208,
               .H = 8,
               .G = 4,
               .D = 256,
               .context_length = 131072,
               .window = 4096,
               .attention_scale = 0.0625f},
    .finish = finish_2,
};

/* An encoder with Gemma 3's layers (EmbeddingGemma: Vera et al. 2025). */
const struct model_family model_gemma_embedding = {
    .gguf = "gemma-embedding",
    .hf = hf_embedding,
    .roles = ROLES_LLAMA | ROLE_BIT(ROLE_Q_NORM) | ROLE_BIT(ROLE_K_NORM) |
             ROLE_BIT(ROLE_ATTN_POST_NORM) | ROLE_BIT(ROLE_FFN_POST_NORM),
    GEMMA_FIELDS,
    .norm_epsilon = 1e-6f,
    .is_encoder = true,
    GEMMA3_WINDOWS,
    .folder = {.alias = alias, .adds_one = true},
    .finish = finish_2,
};

#define ROLES_GEMMA4                                                                               \
    (ROLES_LLAMA | ROLES_QK_NORM | ROLE_BIT(ROLE_ATTN_POST_NORM) | ROLE_BIT(ROLE_FFN_POST_NORM) |  \
     ROLE_BIT(ROLE_LAYER_SCALE))

const struct model_family model_gemma4 = {
    .gguf = "gemma4",
    .hf = hf_4,
    .roles = ROLES_GEMMA4,
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLE_BIT(ROLE_ROPE_FACTORS) |
                ROLE_BIT(ROLE_INPUTS_EMBEDDING) | ROLE_BIT(ROLE_INPUTS_PROJECTION) |
                ROLE_BIT(ROLE_INPUTS_NORM) | ROLE_BIT(ROLE_INPUT_GATE) | ROLE_BIT(ROLE_INPUT_OUT) |
                ROLE_BIT(ROLE_INPUT_NORM),
    GEMMA4_FIELDS,
    .folder = {.alias = alias},
    .finish = finish_4,
};

/* The same with experts beside each MLP, recognised by the presence of expert tensors. */
const struct model_family model_gemma4_experts = {
    .gguf = "gemma4",
    .hf = hf_4,
    .roles = ROLES_GEMMA4 | ROLE_BIT(ROLE_MLP_POST_NORM) | ROLE_BIT(ROLE_EXPERTS_NORM) |
             ROLE_BIT(ROLE_EXPERTS_POST_NORM) | ROLE_BIT(ROLE_ROUTER) | ROLE_BIT(ROLE_ROUTER_GAIN) |
             ROLE_BIT(ROLE_EXPERTS_SCALE) | ROLE_BIT(ROLE_EXPERTS_GATE) |
             ROLE_BIT(ROLE_EXPERTS_UP) | ROLE_BIT(ROLE_EXPERTS_DOWN),
    .optional = ROLE_BIT(ROLE_OUTPUT) | ROLE_BIT(ROLE_ROPE_FACTORS),
    GEMMA4_FIELDS,
    .weights = {.normalised_in_gguf = true, .normalised_in_folders = true},
    .folder = {.alias = alias_4, .fused = ROLES_FUSED_EXPERTS},
    .finish = finish_4,
};
