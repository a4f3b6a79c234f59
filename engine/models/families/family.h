/* family: an architecture, as data. A family says which tensors a model has and what its file does
 * not say; the forward pass is the same for all of them (engine/models/forward.c). One file a
 * family (llama.c, ...), or a few that differ in little, and a row each in engine/models/family.c.
 * With roles.h the door of engine/models/families/. */
#ifndef PENSTOCK_ENGINE_FAMILIES_FAMILY_H
#define PENSTOCK_ENGINE_FAMILIES_FAMILY_H

#include "engine/models/families/roles.h"

enum position_kind {
    POSITIONS_ROPE_ADJACENT, /* rotary, in the layouts of kernels/ops.h */
    POSITIONS_ROPE_HALVES,
    POSITIONS_LEARNED, /* rows that are added to the tokens' */
};

enum window_kind {
    WINDOWS_NONE,    /* a file that has a window is refused */
    WINDOWS_LISTED,  /* the layers that the file lists; without a list it is refused */
    WINDOWS_PATTERN, /* all layers but each full_every-th, unless the file lists them */
    WINDOWS_ALL_LAYERS,
};

/* A tensor that a family's folders call by a name of their own. */
struct role_alias {
    enum role role;
    const char *name; /* as in role_info.folder */
};

/* How the folders of a family differ from most (roles.c, the column `folder`). All zero: not. */
struct folder_style {
    const char *layers;             /* before a layer's number; NULL: "layers." */
    const struct role_alias *alias; /* up to one without a name; NULL: none */
    role_set transposed;            /* matrices that lie there as columns, as in a Conv1D */
    bool adds_one;                  /* gains lie there without the 1 that the model adds */
    int unused_positions;           /* rows of the learned positions before that of position 0 */
    bool fuses_experts;             /* gate and up of all experts are one tensor */
    bool interleaves_experts;       /* in which their rows take turns */
    const char *activation; /* what config.json may call the activation besides its usual names */
    float attention_scale;  /* if config.json does not say it; 0: by the size of a head */
    float rope_part;        /* of a head that rotates, if config.json does not say it; 0: all */
    bool rotates_adjacent;  /* its rotary positions are those of GGUF files */
    /* Numbers that a text_config may leave out, as transformers does where they are those of its
     * class. 0: config.json must say them, but for G and D, which follow from others, and for the
     * window, which few models have. */
    int V, H, G, D, context_length, window;
};

struct model_family {
    const char *gguf;       /* general.architecture of a GGUF file; its name in messages */
    bool only_folders;      /* no GGUF file has that architecture... */
    const char *written_as; /* ...but one of this says the same; NULL: none does */
    const char *const *hf;  /* "architectures" of a config.json; NULL-terminated */
    role_set roles;         /* tensors that each file has: a sum of ROLE_BIT */
    role_set optional;      /* those that a file may have */
    enum norm_kind norm;
    float norm_epsilon; /* if config.json does not say it; 0: it must */
    enum activation activation;
    bool has_parallel_branches;   /* attention and MLP of a layer see the same rows */
    bool may_be_parallel;         /* a file may say so */
    bool scales_queries;          /* by position, where a file says so */
    bool may_norm_stream;         /* a file may say that norms are of the stream after a branch */
    enum position_kind positions; /* of a GGUF file; rotary ones of folders are in halves */
    enum window_kind windows;
    int full_every; /* of WINDOWS_PATTERN */
    enum window_rope window_rotation;
    float rope_base;  /* if a file does not say it; 0: 10000 */
    bool smooth_yarn; /* of a GGUF file: YaRN's range ends between pairs */
    bool scales; /* files may scale the embedding, branches or logits, else such a key is refused */
    /* do the weights of a token's experts add up to 1, where a file does not say it? */
    struct {
        bool normalised_in_gguf, normalised_in_folders;
    } weights;
    bool keys_may_serve; /* layers of a GGUF file without values take their keys for them */
    bool norms_values;   /* heads of values go through a norm without gains */
    int head_size; /* of layers that do not slide, if a config.json does not say it; 0: as others */
    bool by_sigmoid; /* experts are chosen and weighed by sigmoids; see struct experts */
    bool ties;       /* without "tie_word_embeddings" in a config.json the head is the embedding */
    struct folder_style folder;
    /* Works out what no reader knows, and refuses what the family cannot be: the last step of
     * reading a config. NULL: nothing. */
    enum status (*finish)(struct model_config *config, struct err *err);
};

/* The tensors of most families: pre-norm blocks of attention and a gated MLP. */
#define ROLES_ENDS (ROLE_BIT(ROLE_TOKEN_EMBEDDING) | ROLE_BIT(ROLE_OUTPUT_NORM))
#define ROLES_ATTENTION                                                                            \
    (ROLE_BIT(ROLE_ATTN_NORM) | ROLE_BIT(ROLE_Q) | ROLE_BIT(ROLE_K) | ROLE_BIT(ROLE_V) |           \
     ROLE_BIT(ROLE_O))
#define ROLES_GATED_MLP                                                                            \
    (ROLE_BIT(ROLE_FFN_NORM) | ROLE_BIT(ROLE_GATE) | ROLE_BIT(ROLE_UP) | ROLE_BIT(ROLE_DOWN))

/* Biases that a config.json turns on, by "attention_bias" and "mlp_bias". */
#define ROLES_QKV_BIASES (ROLE_BIT(ROLE_Q_BIAS) | ROLE_BIT(ROLE_K_BIAS) | ROLE_BIT(ROLE_V_BIAS))
#define ROLES_ATTENTION_BIASES (ROLES_QKV_BIASES | ROLE_BIT(ROLE_O_BIAS))
#define ROLES_MLP_BIASES                                                                           \
    (ROLE_BIT(ROLE_GATE_BIAS) | ROLE_BIT(ROLE_UP_BIAS) | ROLE_BIT(ROLE_DOWN_BIAS))

/* Norms that one turns on by "use_qk_norm". */
#define ROLES_QK_NORM (ROLE_BIT(ROLE_Q_NORM) | ROLE_BIT(ROLE_K_NORM))

/* And by "qk_layernorm". */
#define ROLES_QK_NORM_HEADS (ROLE_BIT(ROLE_Q_NORM_HEADS) | ROLE_BIT(ROLE_K_NORM_HEADS))

static inline bool family_has_experts(const struct model_family *family) {
    return family->roles & ROLE_BIT(ROLE_ROUTER);
}

/* The tensors that each file has, where gate and up of experts are one tensor or two. */
static inline role_set family_roles(const struct model_family *family, bool fuses_experts) {
    role_set apart = ROLE_BIT(ROLE_EXPERTS_GATE) | ROLE_BIT(ROLE_EXPERTS_UP);
    role_set biases = ROLE_BIT(ROLE_EXPERTS_GATE_BIAS) | ROLE_BIT(ROLE_EXPERTS_UP_BIAS);
    if (!fuses_experts || !(family->roles & apart)) return family->roles;
    role_set fused = ROLE_BIT(ROLE_EXPERTS_GATE_UP);
    if (family->roles & biases) fused |= ROLE_BIT(ROLE_EXPERTS_GATE_UP_BIAS);
    return (family->roles & ~(apart | biases)) | fused;
}

/* Norms that a model has not, by what its file says of its branches. */
static inline role_set family_absent_roles(const struct model_config *config) {
    role_set last = ROLE_BIT(ROLE_OUTPUT_NORM) | ROLE_BIT(ROLE_OUTPUT_NORM_BIAS);
    role_set between = ROLE_BIT(ROLE_FFN_NORM) | ROLE_BIT(ROLE_FFN_NORM_BIAS);
    return (config->norms_stream ? last : 0) | (config->has_parallel_branches ? between : 0);
}

extern const struct model_family model_llama, model_qwen2, model_qwen3, model_gpt2, model_gemma,
    model_gemma2, model_gemma3, model_gemma4, model_granite, model_olmo2, model_ernie4_5,
    model_seed_oss, model_glm4, model_exaone4, model_starcoder2, model_stablelm, model_cohere2,
    model_mistral, model_mistral3, model_opt, model_phi3, model_smollm3, model_gemma4_experts;
extern const struct model_family model_mixtral, model_qwen2moe, model_qwen3moe, model_olmoe,
    model_granitemoe; /* experts.c */
extern const struct model_family model_gpt_oss, model_glm4_moe;

#endif
