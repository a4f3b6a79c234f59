/* model_config: a model as plain numbers. Two readers fill it, from a GGUF file's keys and from a
 * config.json (engine/files/). The model's family adds the facts that neither states, and checks it
 * (engine/models/families/family.h). The forward pass reads it (engine/models/forward.c). */
#ifndef PENSTOCK_ENGINE_MODEL_CONFIG_H
#define PENSTOCK_ENGINE_MODEL_CONFIG_H

#include <assert.h>

#include "kernels/memory.h"
#include "kernels/ops.h"

/* A set with one bit per enum role (engine/models/families/roles.h); there are more than 64
 * roles. */
__extension__ typedef unsigned __int128 role_set;

/* Generous bounds. Below them, the bytes of all keys and values of a sequence of full length, 2 * L
 * * G * D * 4 * context, fit in int64. */
enum { MAX_LAYERS = 1024, MAX_WIDTH = 1 << 20, MAX_HEADS = 65536, MAX_CONTEXT = 1 << 28 };

/* How RoPE is stretched to contexts longer than the original training context: `rope_type` of a
 * config.json, `rope.scaling.type` of a GGUF file. ROPE_DYNAMIC and ROPE_LONG depend on the length
 * of a context; here on the longest served one, so that keys in the cache stay valid. */
enum rope_scaling {
    ROPE_UNSCALED,
    ROPE_LINEAR,  /* all frequencies / factor */
    ROPE_LLAMA3,  /* low frequencies / factor (Llama 3.1's model card); GGUF has a tensor instead */
    ROPE_YARN,    /* low frequencies / factor, by a different rule (Peng et al. 2023) */
    ROPE_DYNAMIC, /* the base grows with the length beyond the original context ("NTK") */
    ROPE_LONG,    /* frequency i / factor i of one of two lists (LongRoPE: Ding et al. 2024) */
    ROPE_PART,    /* only the first `part` of a head's pairs rotates (Gemma 4) */
};

enum { MAX_ROPE_FACTORS = 256 };

struct rope_stretch {
    enum rope_scaling kind;
    double factor;
    double part;                              /* ROPE_PART */
    int original_context;                     /* tokens; all kinds but ROPE_LINEAR */
    double low_freq_factor, high_freq_factor; /* ROPE_LLAMA3 */
    double beta_fast, beta_slow; /* ROPE_YARN: range of turns in which it interpolates */
    bool truncates;              /* ROPE_YARN: the range is rounded to whole pairs */
    float attention_factor;      /* of cosines and sines; 0: not stated */
    float score_factor; /* ROPE_YARN with latent attention: scores are multiplied by its square */
    int n_factors;      /* ROPE_LONG of a config.json; GGUF files have tensors instead */
    float short_factor[MAX_ROPE_FACTORS], long_factor[MAX_ROPE_FACTORS];
};

enum { MAX_ROPE_SECTIONS = 4 };

/* Rotary positions. */
struct rope_config {
    bool is_used;    /* false: D_rope is 0 */
    bool may_be_off; /* a GGUF file may turn the rotation off */
    int D_rope;      /* leading dimensions of a head that are rotated */
    enum rope_layout layout;
    float part; /* rotated fraction of a head if config.json does not state it; 0: all */
    float base;
    /* pairs that rotate by each of the positions of an image; those of text are equal. Only for
     * GGUF files */
    int32_t sections[MAX_ROPE_SECTIONS];
    struct rope_stretch stretch;
};

/* The rotation in layers with windows, if the file does not state it per kind of layer. */
enum window_rope {
    WINDOW_ROPE_SAME,     /* as in other layers */
    WINDOW_ROPE_UNSCALED, /* with the same base, not stretched */
    WINDOW_ROPE_LOCAL,    /* with a separate base, not stretched */
};

/* Latent attention (struct latent of kernels/ops.h): D of the model is rank + D_rope, G is 1. */
struct latent_config {
    bool is_used;
    int rank;        /* of the latent vectors of keys and values */
    int q_rank;      /* of the latent vectors of queries; 0: queries have one matrix */
    int D_unrotated; /* numbers of a query or an expanded key that are not rotated */
    int D_rope;      /* those that are; they follow the others */
    int D_value;     /* numbers of an expanded value */
};

/* A mixture of experts in place of an MLP. */
struct expert_config {
    bool is_used;      /* false: E is 0 */
    int E, n_used;     /* experts per layer, experts per token */
    int F, F_shared;   /* width of an expert, of the shared expert; 0: the model lacks it */
    bool may_be_dense; /* some layers may have an MLP instead: layer[].is_dense */
    bool beside_mlp;   /* all layers have both, and their outputs are added (Gemma 4) */
    bool normalises;   /* the weights of a token's experts add up to 1 */
    bool by_sigmoid;   /* this and the following fields: see struct experts of kernels/ops.h */
    int n_groups, n_used_groups;
    bool always_groups; /* groups are chosen first, whatever method a folder names */
    float weight_scale;
};

/* What a recurrent layer keeps beside the numbers of its convolution. */
enum state_kind {
    STATE_CONV,  /* nothing: a short convolution */
    STATE_DELTA, /* a matrix per value head: struct delta_rule of kernels/ops.h */
    STATE_SPACE, /* a matrix per head: struct state_space */
};

struct state_config {
    enum state_kind kind;
    bool tiles; /* value heads of the file are tiled over the key heads, not grouped by them */
    /* a delta rule with a decay per channel (Kimi Delta Attention); Hk is Hv, and dk is dv */
    bool by_channel;
    /* key heads and value heads; of a state space, groups and heads */
    int Hk, Hv;
    int dk, dv;           /* their sizes */
    float dt_min, dt_max; /* of a state space */
    bool norms_first;
    bool lacks_norm; /* a state space without a norm */
};

/* Factors of the products of a layer (Falcon-H1). 0 stands for 1. */
struct layer_scales {
    float attn_in, key, attn_out; /* of queries, keys and values; of keys alone; of the output */
    float space_in, space_out;    /* of all products of a state space; of its output */
    float space_z, space_x, space_dt; /* the first also have a factor each */
    float space_b, space_c;
    float gate, down; /* of an MLP's gate and of its output */
};

static inline float scale_or_one(float scale) {
    return scale == 0 ? 1 : scale;
}

/* The numbers of xIELU (struct xielu of kernels/ops.h) as files have them: positive is
 * softplus(alpha_p), negative is beta + softplus(alpha_n), linear is beta, limit is eps. */
enum { XIELU_ALPHA_P, XIELU_ALPHA_N, XIELU_BETA, XIELU_EPS, N_XIELU };

/* Properties that may differ between layers. */
struct layer_config {
    int window;       /* the last positions that a row sees, its own included; 0: all positions */
    bool slides;      /* the layer is of the kind with windows, even if the context is shorter */
    bool has_no_rope; /* queries and keys are not rotated, unlike in other layers */
    bool is_dense;    /* the layer has an MLP instead of experts */
    struct kv_heads heads; /* 0: as in its kind of layer; see config_heads */
    int F;                 /* 0: as in its kind of layer; see config_width */
    int kv_layer;          /* the layer whose keys and values this layer reads, if not its own */
    bool values_are_keys;  /* the layer lacks a matrix of values */
    bool is_recurrent; /* the layer has a state instead of attention, or beside it (mixes_both) */
    bool lacks_mixer;  /* the layer has an MLP alone */
    bool lacks_mlp;    /* the layer has attention or a state alone */
    int n_recurrent;   /* recurrent layers before this one */
    int n_keyless;     /* layers before this one without keys and values */
    float xielu[N_XIELU]; /* for ACTIVATION_XIELU */
};

/* The names of norms in GGUF files, where they differ from the table of roles
 * (engine/models/families/roles.c). */
enum norm_names {
    NORM_NAMES_USUAL,
    NORM_NAMES_OF_EMBEDDING,    /* the last norm is called a norm of the embedding */
    NORM_NAMES_AFTER_ATTENTION, /* the norm before the MLP is called a norm after attention */
    NORM_NAMES_OF_OUTPUTS,      /* norms after branches are called norms of their outputs */
    NORM_NAMES_CUT,             /* the name of the norm before the MLP lacks ".weight" */
};

/* A head beside the model (EAGLE-3: Li et al. 2025) that guesses ahead as the last of the L layers.
 * That layer has its key-value heads and the width of its MLP. */
enum { N_TAPS = 3 };
struct eagle_config {
    bool is_used;
    int H; /* query heads */
    int V; /* tokens that it may guess */
    /* The vectors of the stream that it reads: 0 is the embedding, i the output of layer i - 1 */
    int32_t tap[N_TAPS];
    bool norms_stream;  /* its stream begins with the normed vector */
    bool has_embedding; /* else it uses the model's */
    bool maps_ids;      /* its ids are not the model's */
    float norm_epsilon;
    struct rope_config rope;
    int64_t n_parameters, file_bytes;
    uint64_t stamp; /* of the folder: model_file_stamp */
};

struct model_config {
    char name[128];        /* general.name, or the name of the file or folder */
    char architecture[32]; /* in GGUF's spelling: "llama" */
    char quantisation[32]; /* the most frequent weight type, e.g. "q4_1" */
    /* letters of kernels.h; K is the width of the residual stream. F is the width of an expert if
     * all layers have experts, else of the MLP. Layers may have different F, G and D: see
     * config_width and config_heads. */
    int V, K, F, L, H, G, D;
    struct kv_heads window_heads; /* of layers with windows; 0: as in others */
    /* number of last layers that read the cache of the last earlier layer of their kind */
    int n_readers;
    int F_readers; /* width of the MLPs in these; 0: F */
    int P;         /* width of each layer's own input to the stream; 0: not used */
    int C;         /* channels of a recurrent layer; 0: no layer is recurrent */
    int taps;      /* positions that their convolution sees */
    struct state_config state;
    bool mixes_both;       /* all layers have attention and a state, both of the same input */
    bool lacks_attention;  /* no layer has attention */
    bool has_single_parts; /* a layer has attention, a state or an MLP */
    struct layer_scales scales;
    bool keys_serve; /* layers without windows use their keys as values */
    bool norms_values;
    /* of layers without windows, if config.json states only that of the others; 0: all are equal */
    int head_size;
    int K_embedding;      /* width of the embedding and the head, usually K */
    int context_length;   /* the training context in tokens */
    int longest_context;  /* the maximum context that stretched positions may be asked to reach */
    int64_t n_parameters; /* of all tensors */
    /* parameters of the layers' matrices used per token (of experts only the used ones), and their
     * bytes in the file */
    int64_t n_layer_parameters, layer_bytes;
    int64_t file_bytes; /* size of the file or of random weights */
    uint64_t stamp; /* of the model's files just before they were opened; see model_file_stamp */
    role_set roles; /* the tensors of the model */
    enum norm_kind norm;
    enum norm_names norm_names;
    float norm_epsilon;
    enum activation activation;
    bool up_is_first;           /* in a tensor with gate and up of an MLP */
    bool has_parallel_branches; /* attention and MLP of a layer have the same input */
    bool norms_mlp_apart;       /* even then the MLP has a norm of its own */
    bool norms_heads_last;      /* norms of queries and keys follow the rotation */
    bool norms_stream;          /* norms apply to the stream after a branch rather than before it */
    /* Rows see both ways, so a prompt is computed in one step, and the model lacks a head
     * for text. */
    bool is_encoder;
    bool has_slopes;       /* scores fall with the distance of positions: ALiBi */
    int n_types;           /* rows of the token types; 0: the model adds none */
    bool first_lacks_norm; /* the first layer's input is the normalised embedding */
    bool lacks_text;       /* the head gives labels instead of text */
    struct expert_config experts;
    struct latent_config latent;
    struct rope_config rope;
    enum window_rope window_rotation;
    struct rope_config window_rope; /* of layers with windows, unless they rotate as the others */
    float embedding_scale;          /* factor of the tokens' rows */
    float residual_scale;           /* factor of each branch's output */
    float logit_scale;              /* factor of logits */
    float query_beta;               /* for scales of queries by position; 0: off */
    float attention_scale;          /* score = scale * q . k */
    float attention_cap;            /* of scores; 0: off */
    float logit_cap;                /* of logits; 0: off */
    int window;                     /* of the layers with windows; 0: no layer has a window */
    int full_every;                 /* every such layer lacks a window; 0: no layer does */
    bool full_is_first;             /* the first of these layers, rather than the last */
    bool lists_windows;     /* the file lists the layers with windows: layer[].window is set */
    bool lists_ropes;       /* the same for layer[].has_no_rope */
    int n_deepstack_layers; /* layers to which a vision part adds features; only for GGUF files */
    int n_unread_layers;    /* layers after the L that guess ahead; ignored */
    /* 1: the last of the L layers guesses ahead (engine/models/forward_ahead.c), and the others are
     * the model; 0: all are */
    int n_ahead;
    bool ahead_is_normed; /* its guesses continue from its normed output, not from its stream */
    struct eagle_config eagle; /* that layer is a head beside the model */
    struct layer_config layer[MAX_LAYERS];
};

/* The number of layers with an MLP in a model with experts. */
static inline int config_dense_layers(const struct model_config *config) {
    int n = 0;
    for (int i = 0; i < config->L; i++) n += config->layer[i].is_dense;
    return n;
}

/* Does any layer have an MLP, alone or beside experts? */
static inline bool config_has_mlps(const struct model_config *config) {
    const struct expert_config *e = &config->experts;
    return !e->is_used || e->beside_mlp || config_dense_layers(config) > 0;
}

/* The key-value heads of a layer. */
static inline struct kv_heads config_heads(const struct model_config *config, int layer) {
    assert(layer >= 0 && layer < MAX_LAYERS);
    const struct layer_config *l = &config->layer[layer];
    const struct kv_heads *kind = &config->window_heads;
    struct kv_heads heads = l->heads;
    if (heads.G == 0) heads.G = l->slides && kind->G ? kind->G : config->G;
    if (heads.D == 0) heads.D = l->slides && kind->D ? kind->D : config->D;
    if (config->latent.is_used) heads.D_shared = config->latent.rank;
    return heads;
}

/* Does a layer guess ahead, rather than belong to the model's own pass? */
static inline bool config_is_ahead(const struct model_config *config, int layer) {
    return layer >= config->L - config->n_ahead;
}

/* Does the model's own file have the layer that guesses ahead? */
static inline bool config_owns_ahead(const struct model_config *config) {
    return config->n_ahead > 0 && !config->eagle.is_used;
}

/* Does a layer have attention? */
static inline bool config_attends(const struct model_config *config, int layer) {
    const struct layer_config *l = &config->layer[layer];
    return !l->lacks_mixer && (!l->is_recurrent || config->mixes_both);
}

/* Does a layer read the keys and values of another layer? */
static inline bool config_reads(const struct model_config *config, int layer) {
    return layer >= config->L - config->n_readers;
}

/* The layer whose keys and values a layer reads. */
static inline int config_source(const struct model_config *config, int layer) {
    return config_reads(config, layer) ? config->layer[layer].kv_layer : layer;
}

/* The same layer's index in the cache, which has only the layers with keys and values. */
static inline int config_kv_layer(const struct model_config *config, int layer) {
    int source = config_source(config, layer);
    return source - config->layer[source].n_keyless;
}

/* The number of recurrent layers. */
static inline int config_recurrent_layers(const struct model_config *config) {
    assert(config->L > 0);
    const struct layer_config *last = &config->layer[config->L - 1];
    return last->n_recurrent + last->is_recurrent;
}

/* The width of a recurrent layer's output before its last product. */
static inline int config_recurrent_width(const struct model_config *config) {
    const struct state_config *state = &config->state;
    return config->C > 0 && state->kind != STATE_CONV ? state->Hv * state->dv : config->C;
}

/* The numbers of a recurrent layer's convolution per sequence, rounded up to a cache line if
 * matrices follow. */
static inline int config_conv_floats(const struct model_config *config) {
    int floats = config->C > 0 ? (config->taps - 1) * config->C : 0;
    return config->state.kind != STATE_CONV ? (floats + 15) / 16 * 16 : floats;
}

/* The numbers that a recurrent layer keeps per sequence: below INT_MAX, see layers_finish. */
static inline int config_state_floats(const struct model_config *config) {
    return config_conv_floats(config) + config->state.dk * config_recurrent_width(config);
}

/* The width of a layer's MLP. */
static inline int config_width(const struct model_config *config, int layer) {
    int own = config->layer[layer].F, readers = config->F_readers;
    if (own) return own;
    return readers && config_reads(config, layer) ? readers : config->F;
}

/* The width of the output of a layer's attention or convolution, before its last product. */
static inline int config_mixed_width(const struct model_config *config, int layer) {
    if (!config_attends(config, layer)) return config_recurrent_width(config);
    if (config->latent.is_used) return config->H * config->latent.D_value;
    return config->H * config_heads(config, layer).D;
}

/* The width of a row's queries in latent attention before they are multiplied with the keys'
 * matrix, and of its outputs before they are multiplied with the values' matrix: the larger of
 * both; 0 in other models. */
static inline int config_latent_width(const struct model_config *config) {
    int q = config->latent.D_unrotated + config->latent.D_rope;
    return config->H * (q > config->latent.rank ? q : config->latent.rank);
}

/* The numbers of a row that a recurrent layer keeps in the buffer of values: b and dt, or with a
 * decay per channel also their first products and those of z. */
static inline int config_gates_width(const struct model_config *config) {
    const struct state_config *state = &config->state;
    if (config->C == 0 || !state->by_channel) return config_recurrent_width(config);
    return 2 * state->dk + state->Hv * (state->dk + 1);
}

/* The maximum over all layers: width of a row's queries and attention's output, of its keys, and of
 * the MLP. The channels of recurrent layers use the buffer of queries, their gates that of keys, as
 * do the latent vectors of queries. */
struct config_widths {
    int q, kv, F;
};
static inline struct config_widths config_widest(const struct model_config *config) {
    struct config_widths most = {config->C, config_gates_width(config), config->F};
    for (int i = 0; i < config->L; i++) {
        struct kv_heads heads = config_heads(config, i);
        int q = config->H * heads.D, kv = heads.G * heads.D, F = config_width(config, i);
        int out = config_mixed_width(config, i);
        q = out > q ? out : q;
        kv = config->latent.q_rank > kv ? config->latent.q_rank : kv;
        most.q = q > most.q ? q : most.q;
        most.kv = kv > most.kv ? kv : most.kv;
        most.F = F > most.F ? F : most.F;
    }
    if (config->eagle.is_used) {
        const int q = config->eagle.H * config_heads(config, config->L - 1).D;
        most.q = q > most.q ? q : most.q;
    }
    return most;
}

/* Writes the heads of the layers with their own keys and values, at most [L]. Returns the number of
 * these layers. */
static inline int config_kv_heads(const struct model_config *config, struct kv_heads *heads) {
    int n = 0;
    for (int i = 0; i < config->L - config->n_readers; i++)
        if (config_attends(config, i)) heads[n++] = config_heads(config, i);
    return n;
}

/* The size of a head in layers with windows (`slides`) or in the others; 0: there is no such
 * layer. */
static inline int config_head_size(const struct model_config *config, bool slides) {
    for (int i = 0; i < config->L; i++)
        if (config->layer[i].slides == slides) return config_heads(config, i).D;
    return 0;
}

#endif
