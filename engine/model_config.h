/* model_config: what a model is, as plain numbers. Two readers fill it, from a GGUF file's keys and
 * from a config.json (engine/files/); the model's family adds what neither says, and checks it
 * (engine/models/families/family.h). The one forward pass reads it (engine/models/forward.c).
 * Included by engine.h. */
#ifndef PENSTOCK_ENGINE_MODEL_CONFIG_H
#define PENSTOCK_ENGINE_MODEL_CONFIG_H

#include "kernels/kernels.h"

/* A bit for each enum role (engine/models/families/roles.h), of which there are more than 64. */
__extension__ typedef unsigned __int128 role_set;

/* Bounds that no model is near, and below which the bytes of all keys and values of a sequence of
 * full length, 2 * L * G * D * 4 * context, stay in int64. */
enum { MAX_LAYERS = 1024, MAX_WIDTH = 1 << 20, MAX_HEADS = 65536, MAX_CONTEXT = 1 << 28 };

/* How RoPE is stretched to contexts longer than those that a model was first trained for: the
 * `rope_type` of a config.json, the `rope.scaling.type` of a GGUF file. The last two depend on the
 * length of a context; here on the longest that is served, so that keys in the cache stay right. */
enum rope_scaling {
    ROPE_UNSCALED,
    ROPE_LINEAR,  /* all frequencies / factor */
    ROPE_LLAMA3,  /* the low ones / factor (Llama 3.1's model card); GGUF has a tensor instead */
    ROPE_YARN,    /* the low ones / factor, by another rule (Peng et al. 2023) */
    ROPE_DYNAMIC, /* the base grows with the length beyond the model's own ("NTK") */
    ROPE_LONG,    /* frequency i / its own factor, of two lists (LongRoPE: Ding et al. 2024) */
    ROPE_PART,    /* of all pairs of a head the first `part` turn, the others stay (Gemma 4) */
};

enum { MAX_ROPE_FACTORS = 256 };

struct rope_stretch {
    enum rope_scaling kind;
    double factor;
    double part;                              /* ROPE_PART */
    int original_context;                     /* tokens; all kinds but ROPE_LINEAR */
    double low_freq_factor, high_freq_factor; /* ROPE_LLAMA3 */
    double beta_fast, beta_slow;              /* ROPE_YARN: turns between which it interpolates */
    bool truncates;                           /* ROPE_YARN: that range begins and ends at pairs */
    float attention_factor;                   /* of cosines and sines; 0: none */
    int n_factors; /* ROPE_LONG of a config.json; a GGUF file has them as tensors */
    float short_factor[MAX_ROPE_FACTORS], long_factor[MAX_ROPE_FACTORS];
};

/* Rotary positions. */
struct rope_config {
    bool is_used; /* false: D_rope is 0 */
    int D_rope;   /* leading dimensions of a head that are rotated */
    enum rope_layout layout;
    float part; /* of a head, if a config.json does not say it; 0: all */
    float base;
    struct rope_stretch stretch;
};

/* How the layers with windows rotate, where the file does not say it of each kind of layer. */
enum window_rope {
    WINDOW_ROPE_SAME,     /* as the others */
    WINDOW_ROPE_UNSCALED, /* with their base, not stretched */
    WINDOW_ROPE_LOCAL,    /* with a base of their own, not stretched */
};

/* Experts in the place of an MLP. */
struct expert_config {
    bool is_used;      /* false: the model has none, and E is 0 */
    int E, n_used;     /* experts of a layer, and how many of them a token goes through */
    int F, F_shared;   /* widths of an expert, of the shared one; 0: there is none */
    bool may_be_dense; /* some layers may have an MLP in their place: layer[].is_dense */
    bool beside_mlp;   /* all layers have both, and add up what both give (Gemma 4) */
    bool normalises;   /* the weights of a token's experts add up to 1 */
    bool by_sigmoid;   /* this and what follows: see struct experts of kernels/ops.h */
    int n_groups, n_used_groups;
    float weight_scale;
};

/* What may differ from layer to layer. */
struct layer_config {
    int window;            /* the last positions that a row sees, its own included; 0: all */
    bool slides;           /* of the kind that has windows, though the context may be shorter */
    bool has_no_rope;      /* though others have: queries and keys are not rotated */
    bool is_dense;         /* an MLP, though others have experts */
    struct kv_heads heads; /* 0: those of its kind; see config_heads */
    int F;                 /* 0: that of its kind; see config_width */
    int kv_layer;          /* of one that reads another's keys and values: whose */
    bool values_are_keys;  /* it has no matrix of values */
};

struct model_config {
    char name[128];        /* general.name, or the name of the file or folder */
    char architecture[32]; /* as GGUF spells it: "llama" */
    char quantisation[32]; /* the most frequent weight type, e.g. "q4_1" */
    /* letters of kernels.h; K is the width of the residual stream. Where all layers have experts, F
     * is the width of one of them, else that of the others' MLP. Layers may have another F, G and
     * D: see config_width and config_heads. */
    int V, K, F, L, H, G, D;
    struct kv_heads window_heads; /* of layers that slide; 0: as of the others */
    int n_readers;   /* last layers: each reads what the last one of its kind before them wrote */
    int F_readers;   /* of the MLPs in these; 0: F */
    int P;           /* width of what each layer adds to the stream of its own; 0: nothing */
    bool keys_serve; /* layers that do not slide take their keys for values, too */
    bool norms_values;
    int head_size; /* of layers that do not slide, where a config.json has only that of the others;
                      0: it has that of all */
    int K_embedding;      /* the width of the embedding and the head: K but for some */
    int context_length;   /* tokens that the model was trained for */
    int longest_context;  /* tokens that stretched positions may be asked to reach */
    int64_t n_parameters; /* of all tensors */
    /* of the layers' matrices, those that a token is multiplied with: of experts the part that it
     * goes through; and their bytes as the file has them */
    int64_t n_layer_parameters, layer_bytes;
    int64_t file_bytes; /* size of the file, or of random weights */
    uint64_t stamp;     /* of the model's files just before they were opened; model_file_stamp */
    role_set roles;     /* the tensors that it has */
    enum norm_kind norm;
    float norm_epsilon;
    enum activation activation;
    bool has_parallel_branches; /* attention and MLP of a layer see the same rows */
    bool norms_stream;          /* norms are of the stream after a branch, not before it */
    struct expert_config experts;
    struct rope_config rope;
    enum window_rope window_rotation;
    struct rope_config window_rope; /* of the layers that slide, unless they rotate as the others */
    float embedding_scale;          /* of the tokens' rows; 1: none */
    float residual_scale;           /* of what a branch adds to the stream; 1: none */
    float logit_scale;              /* of logits; 1: none */
    float query_beta;               /* of queries' scales by position (load.c); 0: none */
    float attention_scale;          /* score = scale * q . k */
    float attention_cap;            /* of scores; 0: none */
    float logit_cap;                /* of logits; 0: none */
    int window;                     /* of the layers that have one; 0: none has */
    int full_every;      /* among layers with windows each such layer has none; 0: all have */
    bool lists_windows;  /* the file says which layers have it: layer[].window is set */
    bool lists_ropes;    /* the same of layer[].has_no_rope */
    int n_unread_layers; /* behind the L, which guess tokens beyond the next one; not read */
    struct layer_config layer[MAX_LAYERS];
};

/* How many layers of a model with experts have an MLP in their place. */
static inline int config_dense_layers(const struct model_config *config) {
    int n = 0;
    for (int i = 0; i < config->L; i++) n += config->layer[i].is_dense;
    return n;
}

/* Has a layer an MLP, alone or beside experts? */
static inline bool config_has_mlps(const struct model_config *config) {
    const struct expert_config *e = &config->experts;
    return !e->is_used || e->beside_mlp || config_dense_layers(config) > 0;
}

/* The key-value heads of a layer. */
static inline struct kv_heads config_heads(const struct model_config *config, int layer) {
    const struct layer_config *l = &config->layer[layer];
    const struct kv_heads *kind = &config->window_heads;
    struct kv_heads heads = l->heads;
    if (heads.G == 0) heads.G = l->slides && kind->G ? kind->G : config->G;
    if (heads.D == 0) heads.D = l->slides && kind->D ? kind->D : config->D;
    return heads;
}

/* Does a layer read the keys and values of another, and have none? */
static inline bool config_reads(const struct model_config *config, int layer) {
    return layer >= config->L - config->n_readers;
}

/* The layer whose keys and values a layer reads. */
static inline int config_kv_layer(const struct model_config *config, int layer) {
    return config_reads(config, layer) ? config->layer[layer].kv_layer : layer;
}

/* The width of a layer's MLP. */
static inline int config_width(const struct model_config *config, int layer) {
    int own = config->layer[layer].F, readers = config->F_readers;
    if (own) return own;
    return readers && config_reads(config, layer) ? readers : config->F;
}

/* The largest of any layer: queries and keys of a row, and the MLP. */
struct config_widths {
    int q, kv, F;
};
static inline struct config_widths config_widest(const struct model_config *config) {
    struct config_widths most = {0, 0, config->F};
    for (int i = 0; i < config->L; i++) {
        struct kv_heads heads = config_heads(config, i);
        int q = config->H * heads.D, kv = heads.G * heads.D, F = config_width(config, i);
        most.q = q > most.q ? q : most.q;
        most.kv = kv > most.kv ? kv : most.kv;
        most.F = F > most.F ? F : most.F;
    }
    return most;
}

/* The heads of the keys and values that layers have, [L] at most; returns how many layers that
 * are: all but the last that read others'. */
static inline int config_kv_heads(const struct model_config *config, struct kv_heads *heads) {
    int n = config->L - config->n_readers;
    for (int i = 0; i < n; i++) heads[i] = config_heads(config, i);
    return n;
}

/* The size of a head in layers that slide, or in the others; 0: there is no such layer. */
static inline int config_head_size(const struct model_config *config, bool slides) {
    for (int i = 0; i < config->L; i++)
        if (config->layer[i].slides == slides) return config_heads(config, i).D;
    return 0;
}

#endif
