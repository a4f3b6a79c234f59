/* family: an architecture as data. A family lists the tensors of its models and the facts that
 * their files do not state; the forward pass is the same for all families
 * (engine/models/forward.c). There is one file per family (llama.c, ...) or group of similar
 * families, and one row per family in engine/models/family.c. Together with roles.h this is the
 * door of engine/models/families/. */
#ifndef PENSTOCK_ENGINE_FAMILIES_FAMILY_H
#define PENSTOCK_ENGINE_FAMILIES_FAMILY_H

#include "engine/models/families/roles.h"

enum position_kind {
    POSITIONS_ROPE_ADJACENT, /* rotary, with the layouts of kernels/ops.h */
    POSITIONS_ROPE_HALVES,
    POSITIONS_LEARNED, /* rows added to the token's row */
    POSITIONS_ALIBI,   /* scores that fall with the distance */
    POSITIONS_NONE,    /* only the order of a state's rows, and the mask, tell positions apart */
};

enum window_kind {
    WINDOWS_NONE,    /* a file with a window is refused */
    WINDOWS_LISTED,  /* the file lists the layers; without a list it is refused */
    WINDOWS_PATTERN, /* all layers except every full_every-th, unless the file lists them */
    WINDOWS_ALL_LAYERS,
};

/* A tensor with a different name in the folders of a family. */
struct role_alias {
    enum role role;
    const char *name; /* the name, in the form of role_info.folder */
};

/* Differences of a family's folders from the usual form (roles.c, column `folder`). All zero: no
 * difference. */
struct folder_style {
    /* beginnings of the names of tensors that the model does not use; NULL: empty */
    const char *const *unused;
    bool pads_positions; /* the learned positions before position 0 are for padding: RoBERTa */
    const char *layers;  /* prefix of a layer's number; NULL: "layers." */
    const struct role_alias *alias; /* ends with an entry without a name; NULL: empty */
    role_set roles;                 /* required tensors that GGUF files have as keys */
    role_set transposed;            /* matrices stored as columns, as in a Conv1D */
    bool turns_by_shape;            /* those whose shape is that of rows are stored as rows */
    bool adds_one;                  /* gains are stored without the 1 that the model adds */
    int unused_positions;           /* rows of the learned positions before position 0 */
    bool groups_qkv;                /* rows of ROLE_QKV are in groups (struct weight) */
    role_set fused;                 /* tensors that hold those of several roles of the family */
    bool interleaves_experts;       /* rows of gate and up alternate in a fused tensor */
    const char *activation;         /* another name of the activation in config.json */
    /* default if config.json does not state it; 0: from the size of a head */
    float attention_scale;
    float rope_part; /* rotated fraction of a head if config.json does not state it; 0: all */
    /* another name of the activation, for its approximation by tanh */
    const char *tanh_activation;
    bool has_falcon_keys;  /* config.json has Falcon's keys (hf_own_keys.c) */
    bool rotates_if_said;  /* only if "position_embedding_type" is "rope" */
    const char *width_key; /* key of the MLP's width; NULL: "intermediate_size" */
    bool rotates_adjacent; /* rotary positions use adjacent pairs, as in GGUF files */
    /* Defaults of a text_config that omits the values of its class in transformers. 0: config.json
     * must state them, except G and D, which follow from others, and the window, which few models
     * have. */
    int V, H, G, D, context_length, window;
};

/* How layers after the last one guess ahead (engine/models/forward_ahead.c). */
enum ahead_kind {
    AHEAD_NONE,   /* such layers do not exist, or they are not served */
    AHEAD_STREAM, /* further guesses continue from the layer's stream */
    AHEAD_NORMED, /* they continue from its norm */
};

struct model_family {
    const char *gguf;  /* general.architecture of a GGUF file; also its name in messages */
    bool only_folders; /* GGUF files do not support this architecture */
    bool may_fuse_mlp; /* a GGUF file has gate and up in one tensor, or in two */
    bool up_is_first;  /* in that tensor, also in folders */
    /* the architecture of GGUF files that are made from its folders, if that is another one */
    const char *written_as;
    const char *const *hf; /* "architectures" of a config.json; NULL-terminated */
    /* the family of files that have the tensor other_has instead; NULL: there are no such files */
    const struct model_family *other_form;
    enum role other_has;
    role_set roles;    /* required tensors: a sum of ROLE_BIT */
    role_set optional; /* optional tensors */
    enum norm_kind norm;
    enum norm_names norm_names; /* in GGUF files */
    float norm_epsilon;         /* default if config.json does not state it; 0: it is required */
    enum activation activation;
    bool has_parallel_branches;   /* attention and MLP of a layer have the same input */
    bool may_be_parallel;         /* a file may request that, or the opposite */
    bool norms_mlp_apart;         /* branches with the same input have norms of their own */
    bool scales_queries;          /* by position, if a file requests it */
    bool norms_heads_last;        /* norms of queries and keys follow the rotation */
    bool may_norm_stream;         /* a file may request norms of the stream after a branch */
    bool norms_stream;            /* all files have such norms */
    bool is_encoder;              /* see struct model_config */
    bool first_lacks_norm;        /* see struct model_config */
    enum position_kind positions; /* for GGUF files; rotary positions in folders use halves */
    enum window_kind windows;
    int full_every;     /* for WINDOWS_PATTERN */
    bool full_is_first; /* the first of full_every layers lacks a window, rather than the last */
    enum window_rope window_rotation;
    float rope_base;  /* default if a file does not state it; 0: 10000 */
    bool smooth_yarn; /* for GGUF files: YaRN's range ends between pairs */
    /* files may scale the embedding, branches or logits; otherwise such keys are refused */
    bool scales;
    /* default of the file: do the weights of a token's experts add up to 1? */
    struct {
        bool normalised_in_gguf, normalised_in_folders;
    } weights;
    bool keys_may_serve; /* layers of a GGUF file without values use their keys as values */
    bool norms_values;   /* heads of values go through a norm without gains */
    /* of layers without a window, if config.json does not state it; 0: as in other layers */
    int head_size;
    int taps;               /* usual length of its short convolutions; 0: it has none */
    enum state_kind states; /* what its recurrent layers keep beside them */
    /* see struct model_config */
    bool mixes_both, lacks_attention;
    bool has_single_parts; /* a layer has attention, a state or an MLP */
    bool tiles_heads;      /* GGUF files tile the value heads of these */
    bool by_channel;       /* delta rules with a decay per channel, and gates by sigmoid */
    bool may_not_rotate;   /* a GGUF file may turn positions off */
    bool has_latents;      /* latent attention */
    bool by_sigmoid;       /* experts are chosen and weighed by sigmoids; see struct experts */
    bool always_groups;    /* see struct expert_config */
    enum ahead_kind ahead;
    bool ties; /* the head is the embedding if config.json lacks "tie_word_embeddings" */
    struct folder_style folder;
    /* The last step of reading a config: computes values that depend on several keys, and refuses
     * unsupported models. NULL: nothing to do. */
    enum status (*finish)(struct model_config *config, struct err *err);
};

/* The fields of most families: RMS norms, SiLU, rotary positions in halves. */
#define FAMILY_USUAL                                                                               \
    .norm = NORM_RMS, .activation = ACTIVATION_SILU, .positions = POSITIONS_ROPE_HALVES

/* The tensors of most families: pre-norm blocks of attention and a gated MLP. */
#define ROLES_ENDS (ROLE_BIT(ROLE_TOKEN_EMBEDDING) | ROLE_BIT(ROLE_OUTPUT_NORM))
#define ROLES_ATTENTION                                                                            \
    (ROLE_BIT(ROLE_ATTN_NORM) | ROLE_BIT(ROLE_Q) | ROLE_BIT(ROLE_K) | ROLE_BIT(ROLE_V) |           \
     ROLE_BIT(ROLE_O))
#define ROLES_GATED_MLP                                                                            \
    (ROLE_BIT(ROLE_FFN_NORM) | ROLE_BIT(ROLE_GATE) | ROLE_BIT(ROLE_UP) | ROLE_BIT(ROLE_DOWN))

/* Biases that config.json enables by "attention_bias" and "mlp_bias". */
#define ROLES_QKV_BIASES (ROLE_BIT(ROLE_Q_BIAS) | ROLE_BIT(ROLE_K_BIAS) | ROLE_BIT(ROLE_V_BIAS))
#define ROLES_ATTENTION_BIASES (ROLES_QKV_BIASES | ROLE_BIT(ROLE_O_BIAS))
#define ROLES_MLP_BIASES                                                                           \
    (ROLE_BIT(ROLE_GATE_BIAS) | ROLE_BIT(ROLE_UP_BIAS) | ROLE_BIT(ROLE_DOWN_BIAS))

/* llama's blocks: their tensors, and those that a file may add. */
#define ROLES_LLAMA (ROLES_ENDS | ROLES_ATTENTION | ROLES_GATED_MLP)
#define ROLES_LLAMA_OPTIONAL                                                                       \
    (ROLE_BIT(ROLE_OUTPUT) | ROLE_BIT(ROLE_ROPE_FACTORS) | ROLES_ATTENTION_BIASES |                \
     ROLES_MLP_BIASES)

/* The shared expert, whose weight is 1 without ROLE_SHARED_ROUTER. */
#define ROLES_SHARED                                                                               \
    (ROLE_BIT(ROLE_SHARED_GATE) | ROLE_BIT(ROLE_SHARED_UP) | ROLE_BIT(ROLE_SHARED_DOWN))

/* Latent attention: its tensors, those of queries with and without a latent vector, and those that
 * newer GGUF files have in place of ROLE_KV_B. */
#define ROLES_LATENT                                                                               \
    (ROLE_BIT(ROLE_ATTN_NORM) | ROLE_BIT(ROLE_KV_A) | ROLE_BIT(ROLE_KV_A_NORM) | ROLE_BIT(ROLE_O))
#define ROLES_LATENT_Q (ROLE_BIT(ROLE_Q_A) | ROLE_BIT(ROLE_Q_A_NORM) | ROLE_BIT(ROLE_Q_B))
#define ROLES_LATENT_B (ROLE_BIT(ROLE_K_B) | ROLE_BIT(ROLE_V_B))

/* The numbers of xIELU. */
#define ROLES_XIELU                                                                                \
    (ROLE_BIT(ROLE_XIELU_ALPHA_P) | ROLE_BIT(ROLE_XIELU_ALPHA_N) | ROLE_BIT(ROLE_XIELU_BETA) |     \
     ROLE_BIT(ROLE_XIELU_EPS))

/* The norm of an embedding, and the norms after the branches of an encoder. */
#define ROLES_EMBEDDING_NORM (ROLE_BIT(ROLE_EMBEDDING_NORM) | ROLE_BIT(ROLE_EMBEDDING_NORM_BIAS))
#define ROLES_NORMS_AFTER                                                                          \
    (ROLE_BIT(ROLE_ATTN_NORM) | ROLE_BIT(ROLE_ATTN_NORM_BIAS) | ROLE_BIT(ROLE_FFN_NORM) |          \
     ROLE_BIT(ROLE_FFN_NORM_BIAS))

/* Layers with a short convolution instead of attention, and the biases that config.json enables by
 * "conv_bias". */
#define ROLES_SHORT_CONV (ROLE_BIT(ROLE_CONV_IN) | ROLE_BIT(ROLE_CONV) | ROLE_BIT(ROLE_CONV_OUT))
#define ROLES_SHORT_CONV_BIASES                                                                    \
    (ROLE_BIT(ROLE_CONV_IN_BIAS) | ROLE_BIT(ROLE_CONV_BIAS) | ROLE_BIT(ROLE_CONV_OUT_BIAS))

/* Layers with a gated delta rule instead of attention, and attention with gated outputs. */
#define ROLES_DELTA                                                                                \
    (ROLE_BIT(ROLE_DELTA_QKV) | ROLE_BIT(ROLE_DELTA_Z) | ROLE_BIT(ROLE_DELTA_B) |                  \
     ROLE_BIT(ROLE_DELTA_DT) | ROLE_BIT(ROLE_STATE_CONV) | ROLE_BIT(ROLE_STATE_DECAY) |            \
     ROLE_BIT(ROLE_STATE_DT_BIAS) | ROLE_BIT(ROLE_STATE_NORM) | ROLE_BIT(ROLE_STATE_OUT))
#define ROLES_CHANNEL_DELTA                                                                        \
    (ROLE_BIT(ROLE_Q) | ROLE_BIT(ROLE_K) | ROLE_BIT(ROLE_V) | ROLE_BIT(ROLE_O) |                   \
     ROLE_BIT(ROLE_DELTA_B) | ROLE_BIT(ROLE_DELTA_DT_A) | ROLE_BIT(ROLE_DELTA_DT) |                \
     ROLE_BIT(ROLE_DELTA_Z_A) | ROLE_BIT(ROLE_DELTA_Z) | ROLE_BIT(ROLE_STATE_CONV) |               \
     ROLE_BIT(ROLE_STATE_DECAY) | ROLE_BIT(ROLE_STATE_DT_BIAS) | ROLE_BIT(ROLE_STATE_NORM))
#define ROLES_GATED_ATTENTION                                                                      \
    (ROLE_BIT(ROLE_ATTN_NORM) | ROLE_BIT(ROLE_Q_GATED) | ROLE_BIT(ROLE_K) | ROLE_BIT(ROLE_V) |     \
     ROLE_BIT(ROLE_O) | ROLE_BIT(ROLE_Q_NORM) | ROLE_BIT(ROLE_K_NORM))

/* Layers with a state space instead of attention. */
#define ROLES_SPACE                                                                                \
    (ROLE_BIT(ROLE_SPACE_IN) | ROLE_BIT(ROLE_SPACE_CONV_BIAS) | ROLE_BIT(ROLE_SPACE_SKIP) |        \
     ROLE_BIT(ROLE_STATE_CONV) | ROLE_BIT(ROLE_STATE_DECAY) | ROLE_BIT(ROLE_STATE_DT_BIAS) |       \
     ROLE_BIT(ROLE_STATE_NORM) | ROLE_BIT(ROLE_STATE_OUT))

/* A layer that guesses ahead, beside the tensors of the family's layers. */
#define ROLES_AHEAD                                                                                \
    (ROLE_BIT(ROLE_AHEAD_PROJECTION) | ROLE_BIT(ROLE_AHEAD_EMBEDDING_NORM) |                       \
     ROLE_BIT(ROLE_AHEAD_HIDDEN_NORM) | ROLE_BIT(ROLE_AHEAD_OUTPUT_NORM))

/* Norms that config.json enables by "use_qk_norm". */
#define ROLES_QK_NORM (ROLE_BIT(ROLE_Q_NORM) | ROLE_BIT(ROLE_K_NORM))

/* Tensors that hold those of several roles. */
#define ROLES_FUSED_QKV (ROLE_BIT(ROLE_QKV) | ROLE_BIT(ROLE_QKV_BIAS))
#define ROLES_FUSED_EXPERTS (ROLE_BIT(ROLE_EXPERTS_GATE_UP) | ROLE_BIT(ROLE_EXPERTS_GATE_UP_BIAS))

/* Norms that config.json enables by "qk_layernorm". */
#define ROLES_QK_NORM_HEADS (ROLE_BIT(ROLE_Q_NORM_HEADS) | ROLE_BIT(ROLE_K_NORM_HEADS))

static inline bool family_has_experts(const struct model_family *family) {
    return family->roles & ROLE_BIT(ROLE_ROUTER);
}

/* Replaces roles by the fused ones that hold them, where `roles` has all their parts. */
static inline role_set roles_fused(role_set roles, role_set fused) {
    for (enum role role = 0; role < N_ROLES; role++) {
        const struct role_info *info = role_info(role);
        role_set parts = 0;
        if (!(fused & ROLE_BIT(role))) continue;
        for (int i = 0; i < info->n_parts; i++) parts |= ROLE_BIT(info->parts[i]);
        if ((roles & parts) == parts) roles = (roles & ~parts) | ROLE_BIT(role);
    }
    return roles;
}

/* The norms that a model lacks, according to its file's branches. */
static inline role_set family_absent_roles(const struct model_config *config) {
    role_set last = ROLE_BIT(ROLE_OUTPUT_NORM) | ROLE_BIT(ROLE_OUTPUT_NORM_BIAS);
    role_set between = ROLE_BIT(ROLE_FFN_NORM) | ROLE_BIT(ROLE_FFN_NORM_BIAS);
    bool shares = config->has_parallel_branches && !config->norms_mlp_apart;
    return (config->norms_stream ? last : 0) | (shares ? between : 0);
}

extern const struct model_family model_llama, model_qwen2, model_qwen3, model_gpt2, model_gemma,
    model_gemma2, model_gemma3, model_qwen2vl, model_qwen3vl, model_gemma4, model_granite,
    model_olmo2, model_ernie4_5, model_seed_oss, model_glm4, model_exaone4, model_starcoder2,
    model_stablelm, model_cohere2, model_mistral, model_mistral3, model_opt, model_phi3,
    model_smollm3, model_gemma4_experts, model_glm, model_command_r, model_granite4,
    model_granite4_experts, model_phi, model_falcon, model_gptneox, model_arcee, model_nemotron,
    model_hunyuan, model_apertus, model_lfm2, model_lfm2_moe, model_qwen3next, model_qwen35,
    model_qwen35moe, model_cwm, model_jais2, model_exaone_moe;
extern const struct model_family model_bamba, model_mamba2, model_nemotron_h,
    model_falcon_h1; /* recurrent.c */
extern const struct model_family model_deepseek2, model_deepseek_v2, model_deepseek_v3,
    model_glm4_moe_lite, model_kimi_linear, model_mistral4; /* deepseek.c */
extern const struct model_family model_mixtral, model_qwen2moe, model_qwen3moe, model_olmoe,
    model_granitemoe, model_minimax_m2, model_qwen3vlmoe, model_ernie4_5_moe, model_dots1,
    model_hunyuan_moe, model_afmoe; /* experts.c */
extern const struct model_family model_gpt_oss, model_glm4_moe, model_solar_open;
extern const struct model_family model_bert, model_roberta, model_nomic, model_modern,
    model_gemma_embedding, model_jina;

#endif
