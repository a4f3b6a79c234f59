/* Encoders: a row sees its whole text, and the model gives vectors instead of tokens.
 *
 * BERT (Devlin et al. 2018): the rows of a token, its type and its position are added and
 * normalised; biases everywhere, a GELU without a gate, and norms of the stream after each branch.
 * RoBERTa (Liu et al. 2019) and XLM-RoBERTa keep two positions for padding. Nomic BERT (Nussbaum et
 * al. 2024): rotary positions, a SiLU gate, and no biases of matrices. ModernBERT (Warner et al.
 * 2024): norms before each branch, of which the first is that of the embedding, a GELU gate, and
 * windows in two of three layers, which rotate with another base. Jina BERT 2 (Günther et al.
 * 2023): scores that fall with the distance, and a GELU gate; its files for code also have norms of
 * queries and keys over all heads, a second norm after attention, and up before the gate. */
#include "engine/models/families/family.h"

static const char *const bert_hf[] = {"BertModel", "BertForMaskedLM", "BertForPreTraining", NULL};
static const char *const roberta_hf[] = {"RobertaModel", "RobertaForMaskedLM", "XLMRobertaModel",
                                         "XLMRobertaForMaskedLM", NULL};

/* Gains and biases of the first checkpoints are called gamma and beta. */
static const struct role_alias bert_alias[] = {
    {ROLE_TOKEN_EMBEDDING, "embeddings.word_embeddings.weight"},
    {ROLE_POSITION_EMBEDDING, "embeddings.position_embeddings.weight"},
    {ROLE_EMBEDDING_NORM, "embeddings.LayerNorm.weight"},
    {ROLE_EMBEDDING_NORM, "embeddings.LayerNorm.gamma"},
    {ROLE_EMBEDDING_NORM_BIAS, "embeddings.LayerNorm.bias"},
    {ROLE_EMBEDDING_NORM_BIAS, "embeddings.LayerNorm.beta"},
    {ROLE_Q, "attention.self.query.weight"},
    {ROLE_Q_BIAS, "attention.self.query.bias"},
    {ROLE_K, "attention.self.key.weight"},
    {ROLE_K_BIAS, "attention.self.key.bias"},
    {ROLE_V, "attention.self.value.weight"},
    {ROLE_V_BIAS, "attention.self.value.bias"},
    {ROLE_O, "attention.output.dense.weight"},
    {ROLE_O_BIAS, "attention.output.dense.bias"},
    {ROLE_ATTN_NORM, "attention.output.LayerNorm.weight"},
    {ROLE_ATTN_NORM, "attention.output.LayerNorm.gamma"},
    {ROLE_ATTN_NORM_BIAS, "attention.output.LayerNorm.bias"},
    {ROLE_ATTN_NORM_BIAS, "attention.output.LayerNorm.beta"},
    {ROLE_UP, "intermediate.dense.weight"},
    {ROLE_UP_BIAS, "intermediate.dense.bias"},
    {ROLE_DOWN, "output.dense.weight"},
    {ROLE_DOWN_BIAS, "output.dense.bias"},
    {ROLE_FFN_NORM, "output.LayerNorm.weight"},
    {ROLE_FFN_NORM, "output.LayerNorm.gamma"},
    {ROLE_FFN_NORM_BIAS, "output.LayerNorm.bias"},
    {ROLE_FFN_NORM_BIAS, "output.LayerNorm.beta"},
    {0}};
/* the heads that predict hidden tokens, and the pooler of their second task */
static const char *const unused[] = {"cls.", "lm_head.", "pooler.", "embeddings.position_ids",
                                     NULL};

#define ROLES_BERT                                                                                 \
    (ROLE_BIT(ROLE_TOKEN_EMBEDDING) | ROLE_BIT(ROLE_POSITION_EMBEDDING) |                          \
     ROLE_BIT(ROLE_TYPE_EMBEDDING) | ROLES_EMBEDDING_NORM | ROLE_BIT(ROLE_Q) | ROLE_BIT(ROLE_K) |  \
     ROLE_BIT(ROLE_V) | ROLE_BIT(ROLE_O) | ROLES_ATTENTION_BIASES | ROLES_NORMS_AFTER |            \
     ROLE_BIT(ROLE_UP) | ROLE_BIT(ROLE_UP_BIAS) | ROLE_BIT(ROLE_DOWN) | ROLE_BIT(ROLE_DOWN_BIAS))

const struct model_family model_bert = {
    .gguf = "bert",
    .hf = bert_hf,
    .roles = ROLES_BERT,
    .norm = NORM_LAYER,
    .norm_epsilon = 1e-12f,
    .activation = ACTIVATION_GELU,
    .may_norm_stream = true,
    .norms_stream = true,
    .norm_names = NORM_NAMES_OF_OUTPUTS,
    .is_encoder = true,
    .positions = POSITIONS_LEARNED,
    .ties = true,
    .folder = {.layers = "layer.", .alias = bert_alias, .unused = unused},
};

const struct model_family model_roberta = {
    .gguf = "roberta",
    .only_folders = true,
    .written_as = "bert",
    .hf = roberta_hf,
    .roles = ROLES_BERT,
    .norm = NORM_LAYER,
    .norm_epsilon = 1e-12f,
    .activation = ACTIVATION_GELU,
    .may_norm_stream = true,
    .norms_stream = true,
    .norm_names = NORM_NAMES_OF_OUTPUTS,
    .is_encoder = true,
    .positions = POSITIONS_LEARNED,
    .ties = true,
    .folder = {.layers = "layer.",
               .alias = bert_alias,
               .unused = unused,
               .pads_positions = true,
               .unused_positions = 2},
};

static const char *const nomic_hf[] = {"NomicBertModel", "NomicBertForMaskedLM", NULL};
static const struct role_alias nomic_alias[] = {
    {ROLE_TOKEN_EMBEDDING, "embeddings.word_embeddings.weight"},
    {ROLE_EMBEDDING_NORM, "emb_ln.weight"},
    {ROLE_EMBEDDING_NORM, "embeddings.LayerNorm.weight"},
    {ROLE_EMBEDDING_NORM_BIAS, "emb_ln.bias"},
    {ROLE_EMBEDDING_NORM_BIAS, "embeddings.LayerNorm.bias"},
    {ROLE_QKV, "attn.Wqkv.weight"},
    {ROLE_O, "attn.out_proj.weight"},
    {ROLE_ATTN_NORM, "norm1.weight"},
    {ROLE_ATTN_NORM_BIAS, "norm1.bias"},
    {ROLE_GATE, "mlp.fc12.weight"},
    {ROLE_UP, "mlp.fc11.weight"},
    {ROLE_DOWN, "mlp.fc2.weight"},
    {ROLE_FFN_NORM, "norm2.weight"},
    {ROLE_FFN_NORM_BIAS, "norm2.bias"},
    {0}};

const struct model_family model_nomic = {
    .gguf = "nomic-bert",
    .hf = nomic_hf,
    .roles = ROLE_BIT(ROLE_TOKEN_EMBEDDING) | ROLE_BIT(ROLE_TYPE_EMBEDDING) | ROLES_EMBEDDING_NORM |
             ROLE_BIT(ROLE_Q) | ROLE_BIT(ROLE_K) | ROLE_BIT(ROLE_V) | ROLE_BIT(ROLE_O) |
             ROLES_NORMS_AFTER | ROLE_BIT(ROLE_GATE) | ROLE_BIT(ROLE_UP) | ROLE_BIT(ROLE_DOWN),
    .norm = NORM_LAYER,
    .norm_epsilon = 1e-12f,
    .activation = ACTIVATION_SILU,
    .may_norm_stream = true,
    .norms_stream = true,
    .norm_names = NORM_NAMES_OF_OUTPUTS,
    .is_encoder = true,
    .positions = POSITIONS_ROPE_HALVES,
    .rope_base = 1000,
    .ties = true,
    .folder = {.alias = nomic_alias,
               .unused = unused,
               .fused = ROLES_FUSED_QKV,
               .activation = "swiglu"},
};

static const char *const modern_hf[] = {"ModernBertModel", "ModernBertForMaskedLM", NULL};
static const char *const modern_unused[] = {"head.", "decoder.", NULL};
static const struct role_alias modern_alias[] = {
    {ROLE_TOKEN_EMBEDDING, "embeddings.tok_embeddings.weight"},
    {ROLE_EMBEDDING_NORM, "embeddings.norm.weight"},
    {ROLE_ATTN_NORM, "attn_norm.weight"},
    {ROLE_QKV, "attn.Wqkv.weight"},
    {ROLE_O, "attn.Wo.weight"},
    {ROLE_FFN_NORM, "mlp_norm.weight"},
    {ROLE_GATE_UP, "mlp.Wi.weight"},
    {ROLE_DOWN, "mlp.Wo.weight"},
    {ROLE_OUTPUT_NORM, "final_norm.weight"},
    {0}};

const struct model_family model_modern = {
    .gguf = "modern-bert",
    .hf = modern_hf,
    .roles = ROLES_ENDS | ROLE_BIT(ROLE_EMBEDDING_NORM) | ROLES_ATTENTION |
             ROLE_BIT(ROLE_FFN_NORM) | ROLE_BIT(ROLE_GATE_UP) | ROLE_BIT(ROLE_DOWN),
    .norm = NORM_LAYER,
    .norm_epsilon = 1e-5f,
    .activation = ACTIVATION_GELU,
    .is_encoder = true,
    .first_lacks_norm = true,
    .positions = POSITIONS_ROPE_HALVES,
    .windows = WINDOWS_PATTERN,
    .full_every = 3,
    .full_is_first = true,
    .window_rotation = WINDOW_ROPE_LOCAL,
    .rope_base = 160000,
    .ties = true,
    .folder = {.alias = modern_alias,
               .unused = modern_unused,
               .fused = ROLES_FUSED_QKV,
               .window = 65},
};

static const char *const jina_hf[] = {"JinaBertForMaskedLM", "JinaBertModel", NULL};
#define JINA_ALIAS                                                                                 \
    {ROLE_TOKEN_EMBEDDING, "embeddings.word_embeddings.weight"},                                   \
        {ROLE_Q, "attention.self.query.weight"}, {ROLE_Q_BIAS, "attention.self.query.bias"},       \
        {ROLE_K, "attention.self.key.weight"}, {ROLE_K_BIAS, "attention.self.key.bias"},           \
        {ROLE_V, "attention.self.value.weight"}, {ROLE_V_BIAS, "attention.self.value.bias"},       \
        {ROLE_O, "attention.output.dense.weight"}, {ROLE_O_BIAS, "attention.output.dense.bias"},   \
        {ROLE_ATTN_NORM, "attention.output.LayerNorm.weight"}, {                                   \
        ROLE_ATTN_NORM_BIAS, "attention.output.LayerNorm.bias"                                     \
    }
static const struct role_alias jina_alias[] = {JINA_ALIAS,
                                               {ROLE_GATE_UP, "mlp.gated_layers.weight"},
                                               {ROLE_DOWN, "mlp.wo.weight"},
                                               {ROLE_DOWN_BIAS, "mlp.wo.bias"},
                                               {ROLE_FFN_NORM, "mlp.layernorm.weight"},
                                               {ROLE_FFN_NORM_BIAS, "mlp.layernorm.bias"},
                                               {0}};
static const struct role_alias jina_code_alias[] = {
    JINA_ALIAS,
    {ROLE_Q_NORM_ALL, "attention.self.layer_norm_q.weight"},
    {ROLE_Q_NORM_ALL_BIAS, "attention.self.layer_norm_q.bias"},
    {ROLE_K_NORM_ALL, "attention.self.layer_norm_k.weight"},
    {ROLE_K_NORM_ALL_BIAS, "attention.self.layer_norm_k.bias"},
    {ROLE_ATTN_NORM_2, "layer_norm_1.weight"},
    {ROLE_ATTN_NORM_2_BIAS, "layer_norm_1.bias"},
    {ROLE_GATE_UP, "mlp.up_gated_layer.weight"},
    {ROLE_DOWN, "mlp.down_layer.weight"},
    {ROLE_DOWN_BIAS, "mlp.down_layer.bias"},
    {ROLE_FFN_NORM, "layer_norm_2.weight"},
    {ROLE_FFN_NORM_BIAS, "layer_norm_2.bias"},
    {0}};

#define ROLES_JINA                                                                                 \
    (ROLE_BIT(ROLE_TOKEN_EMBEDDING) | ROLE_BIT(ROLE_TYPE_EMBEDDING) | ROLES_EMBEDDING_NORM |       \
     ROLE_BIT(ROLE_Q) | ROLE_BIT(ROLE_K) | ROLE_BIT(ROLE_V) | ROLE_BIT(ROLE_O) |                   \
     ROLES_ATTENTION_BIASES | ROLES_NORMS_AFTER | ROLE_BIT(ROLE_GATE) | ROLE_BIT(ROLE_UP) |        \
     ROLE_BIT(ROLE_DOWN) | ROLE_BIT(ROLE_DOWN_BIAS))
#define JINA_FIELDS                                                                                \
    .hf = jina_hf, .norm = NORM_LAYER, .norm_epsilon = 1e-12f, .activation = ACTIVATION_GELU,      \
    .may_norm_stream = true, .norms_stream = true, .norm_names = NORM_NAMES_OF_OUTPUTS,            \
    .is_encoder = true, .positions = POSITIONS_ALIBI, .may_fuse_mlp = true, .ties = true

static const struct model_family jina_code = {
    .gguf = "jina-bert-v2",
    JINA_FIELDS,
    .roles = ROLES_JINA | ROLE_BIT(ROLE_Q_NORM_ALL) | ROLE_BIT(ROLE_Q_NORM_ALL_BIAS) |
             ROLE_BIT(ROLE_K_NORM_ALL) | ROLE_BIT(ROLE_K_NORM_ALL_BIAS) |
             ROLE_BIT(ROLE_ATTN_NORM_2) | ROLE_BIT(ROLE_ATTN_NORM_2_BIAS),
    .up_is_first = true,
    .folder = {.layers = "layer.",
               .alias = jina_code_alias,
               .unused = unused,
               .fused = ROLE_BIT(ROLE_GATE_UP)},
};

const struct model_family model_jina = {
    .gguf = "jina-bert-v2",
    JINA_FIELDS,
    .roles = ROLES_JINA,
    .other_form = &jina_code,
    .other_has = ROLE_Q_NORM_ALL,
    .folder = {.layers = "layer.",
               .alias = jina_alias,
               .unused = unused,
               .fused = ROLE_BIT(ROLE_GATE_UP)},
};
