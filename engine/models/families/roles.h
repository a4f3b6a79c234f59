/* roles: the tensors of models as one table: their names in GGUF files and in most folders, their
 * shapes, their division among ranks. A family is a subset of the roles (family.h); loading,
 * sharding and freeing are loops over it. Only engine/models/folder_names.c reads a folder's names;
 * all other code uses GGUF's names.
 *
 * Tensor parallelism (Shoeybi et al. 2019), a rank's share:
 *   q, k, v, gate, up   whole rows of outputs, and their biases: heads, a part of the MLP's width
 *   o, down             columns of inputs: those of these heads, of this width
 *   experts             the same for each: a part of its width; routers are on every rank
 *   biases of o, down   only on rank 0, because they are added once
 *   norms               on every rank
 *   recurrent layers    channels of a short convolution; key heads of a delta rule, or groups of a
 *                       state space, with their value heads; their gains, decays and taps
 *   latent attention    query heads; the latent vectors of keys and values are on every rank
 *   embeddings, head    only on rank 0
 * So o and down give each rank a part of a sum over the whole width, and the ranks add these parts.
 */
#ifndef PENSTOCK_ENGINE_ROLES_H
#define PENSTOCK_ENGINE_ROLES_H

#include "engine/config/config.h"

enum role {
    ROLE_TOKEN_EMBEDDING,
    ROLE_POSITION_EMBEDDING,
    ROLE_TYPE_EMBEDDING,
    ROLE_EMBEDDING_NORM,
    ROLE_EMBEDDING_NORM_BIAS,
    ROLE_OUTPUT_NORM,
    ROLE_OUTPUT_NORM_BIAS,
    ROLE_OUTPUT,
    ROLE_OUTPUT_BIAS,
    ROLE_PROJECT_IN, /* between an embedding of another width and the stream, and back */
    ROLE_PROJECT_OUT,
    ROLE_INPUTS_EMBEDDING, /* each layer's input from the token itself: one row for all layers */
    /* each layer's input from the token's row in the stream, and its norm */
    ROLE_INPUTS_PROJECTION,
    ROLE_INPUTS_NORM,
    ROLE_ROPE_FACTORS,
    ROLE_ROPE_LONG, /* factors for contexts longer than the original one, and for shorter ones */
    ROLE_ROPE_SHORT,
    ROLE_ATTN_NORM, /* this role and all below belong to a layer */
    ROLE_ATTN_NORM_BIAS,
    /* of attention alone, if the norm above is of an MLP with the same input; in encoders a second
     * norm after attention */
    ROLE_ATTN_NORM_2,
    ROLE_ATTN_NORM_2_BIAS,
    ROLE_Q,
    ROLE_Q_BIAS,
    ROLE_K,
    ROLE_K_BIAS,
    ROLE_V,
    ROLE_V_BIAS,
    ROLE_QKV, /* q, k and v in one tensor, in this order; loaded as three */
    ROLE_QKV_BIAS,
    ROLE_Q_GATED, /* each head's q followed by its gate in one tensor; loaded as q and the next */
    ROLE_ATTN_GATE,
    ROLE_Q_NORM,
    ROLE_K_NORM,
    ROLE_Q_NORM_ALL, /* over all heads of a row together */
    ROLE_K_NORM_ALL,
    ROLE_Q_NORM_ALL_BIAS, /* with these both are LayerNorms */
    ROLE_K_NORM_ALL_BIAS,
    ROLE_Q_NORM_HEADS, /* a LayerNorm per head with separate gains */
    ROLE_K_NORM_HEADS,
    /* latent attention: queries from a normalised latent vector instead of ROLE_Q */
    ROLE_Q_A,
    ROLE_Q_A_NORM,
    ROLE_Q_B,
    ROLE_KV_A, /* the latent vector of keys and values, then the rotated numbers of the key */
    ROLE_KV_A_NORM,
    ROLE_KV_B, /* of each head a part of its key and its value; loaded as the next two */
    ROLE_K_B,  /* of each head [rank][numbers of the key]: it is multiplied with queries */
    ROLE_V_B,  /* of each head [numbers of the value][rank] */
    ROLE_O,
    ROLE_O_BIAS,
    ROLE_SINKS,
    ROLE_CONV_IN, /* gates in and out, and inputs x of a short convolution; loaded as three */
    ROLE_CONV_IN_BIAS,
    ROLE_CONV_GATE_IN,
    ROLE_CONV_GATE_IN_BIAS,
    ROLE_CONV_GATE_OUT,
    ROLE_CONV_GATE_OUT_BIAS,
    ROLE_CONV_X,
    ROLE_CONV_X_BIAS,
    ROLE_CONV, /* its weights: a vector [taps][C] in memory, [C][taps] in files */
    ROLE_CONV_BIAS,
    ROLE_CONV_OUT,
    ROLE_CONV_OUT_BIAS,
    ROLE_DELTA_QKV, /* for a gated delta rule: see struct delta_rule of kernels/ops.h */
    ROLE_DELTA_Z,
    ROLE_DELTA_QKVZ, /* both in one tensor, grouped by key head; loaded as two */
    ROLE_DELTA_B,
    ROLE_DELTA_DT,
    ROLE_DELTA_B_DT, /* the same */
    /* with a decay per channel: the first products of dt and z, which are inputs of the two above;
     * q, k, v and the output are ROLE_Q, ROLE_K, ROLE_V and ROLE_O */
    ROLE_DELTA_DT_A,
    ROLE_DELTA_Z_A,
    ROLE_SPACE_IN, /* for a state space: z, then x, B and C, then dt; loaded as three */
    ROLE_SPACE_Z,
    ROLE_SPACE_XBC,
    ROLE_SPACE_DT,
    ROLE_SPACE_CONV_BIAS,
    ROLE_SPACE_SKIP,
    ROLE_STATE_CONV,  /* of both, and the following: as ROLE_CONV */
    ROLE_STATE_DECAY, /* -exp(A_log); folders store A_log */
    ROLE_STATE_DT_BIAS,
    ROLE_STATE_NORM,
    ROLE_STATE_OUT,
    ROLE_ATTN_POST_NORM,
    ROLE_FFN_NORM,
    ROLE_FFN_NORM_BIAS,
    ROLE_GATE,
    ROLE_GATE_BIAS,
    ROLE_UP,
    ROLE_UP_BIAS,
    ROLE_GATE_UP, /* gate and up in one tensor, in the order of role_parts; loaded as two */
    ROLE_DOWN,
    ROLE_DOWN_BIAS,
    ROLE_XIELU_ALPHA_P, /* numbers of xIELU: keys in GGUF files, tensors in folders */
    ROLE_XIELU_ALPHA_N,
    ROLE_XIELU_BETA,
    ROLE_XIELU_EPS,
    ROLE_FFN_POST_NORM,
    ROLE_MLP_POST_NORM,     /* for an MLP beside experts: norms of the outputs of the two, before */
    ROLE_EXPERTS_POST_NORM, /* they are added and go through ROLE_FFN_POST_NORM */
    ROLE_INPUT_GATE,        /* gate of the layer's own input, and its projection into the stream */
    ROLE_INPUT_OUT,
    ROLE_INPUT_NORM,
    ROLE_LAYER_SCALE, /* factor of the stream after the layer: one number */
    /* of a layer that guesses ahead (engine/models/forward_ahead.c): the product of the joined
     * embedding and hidden vector, both norms before it, and the norm before the head */
    ROLE_AHEAD_PROJECTION,
    ROLE_AHEAD_EMBEDDING_NORM,
    ROLE_AHEAD_HIDDEN_NORM,
    ROLE_AHEAD_OUTPUT_NORM,
    ROLE_ROUTER, /* for experts: see struct experts of kernels/ops.h */
    ROLE_ROUTER_BIAS,
    ROLE_ROUTER_CORRECTION, /* added to the scores for comparison */
    ROLE_ROUTER_GAIN,       /* of the router's own norm */
    ROLE_EXPERTS_NORM,      /* before experts that have an MLP beside them */
    ROLE_EXPERTS_SCALE,     /* factor of each expert's weight */
    ROLE_EXPERTS_GATE,
    ROLE_EXPERTS_GATE_BIAS,
    ROLE_EXPERTS_UP,
    ROLE_EXPERTS_UP_BIAS,
    ROLE_EXPERTS_GATE_UP, /* each expert's gate followed by up, or alternating; loaded as two */
    ROLE_EXPERTS_GATE_UP_BIAS,
    ROLE_EXPERTS_DOWN,
    ROLE_EXPERTS_DOWN_BIAS,
    ROLE_SHARED_GATE, /* for the shared expert's MLP */
    ROLE_SHARED_UP,
    ROLE_SHARED_GATE_UP, /* both in one tensor, in this order; loaded as two */
    ROLE_SHARED_DOWN,
    ROLE_SHARED_ROUTER, /* for the shared expert's weight */
    N_ROLES,
};

/* A set of roles is a sum of these. */
#define ROLE_BIT(role) ((role_set)1 << (role))

/* Dimensions of tensors, in the letters of kernels.h. */
enum extent {
    EXTENT_NONE,
    EXTENT_V,
    EXTENT_K,
    EXTENT_2K,
    EXTENT_EMBEDDING, /* the embedding's width: usually K */
    EXTENT_F,
    EXTENT_2F,
    EXTENT_Q,    /* H * D; with latent attention, H times the numbers of an expanded query */
    EXTENT_OUT,  /* attention's output: H times the numbers of a value */
    EXTENT_RANK, /* of latent attention: numbers of a latent vector */
    EXTENT_Q_RANK,
    EXTENT_UNROTATED, /* numbers of an expanded key that are not rotated */
    EXTENT_KV_B,      /* H times those and the numbers of a value */
    EXTENT_K_B,       /* H times the rank */
    EXTENT_KV,        /* G * D */
    EXTENT_QKV,       /* (H + 2 G) * D */
    EXTENT_D,
    EXTENT_P,
    EXTENT_LP, /* L * P */
    EXTENT_H,
    EXTENT_CONTEXT,
    EXTENT_TYPES,
    EXTENT_ROPE, /* D_rope / 2 */
    EXTENT_ONE,
    EXTENT_E, /* experts */
    EXTENT_F_EXPERT,
    EXTENT_2F_EXPERT,
    EXTENT_F_SHARED,
    EXTENT_2F_SHARED,
    EXTENT_C, /* channels of a recurrent layer */
    EXTENT_3C,
    EXTENT_TAPS_C,
    EXTENT_2Q,
    EXTENT_HV, /* value heads of a delta rule, or heads of a state space */
    EXTENT_2HV,
    EXTENT_DT,         /* numbers dt: one for each of the value heads, or for each channel */
    EXTENT_GATE_RANK,  /* with a decay per channel: numbers of the first products of dt and z */
    EXTENT_GATE_IN,    /* the input of dt and z: those, or K */
    EXTENT_STATE_NORM, /* gains of the norm of its outputs */
    EXTENT_HV_DV,
    EXTENT_C_Z, /* its channels and their gates */
    EXTENT_SPACE_IN,
};

/* The division of a tensor among ranks. */
enum split {
    SPLIT_NONE,    /* every rank has the whole tensor */
    SPLIT_OUTPUTS, /* each rank has some of the rows */
    SPLIT_INPUTS,  /* each rank has some of the columns */
    SPLIT_FIRST,   /* only rank 0 has it */
    SPLIT_HOST,    /* only the engine uses it, while loading */
};

enum { MAX_PARTS = 4 };

struct role_info {
    const char *gguf; /* name in GGUF; for a layer's tensor: after "blk.<layer>." */
    /* name in most folders; for a layer's tensor: after "layers.<layer>."; NULL: folders lack it */
    const char *folder;
    enum extent N, K; /* rows and columns; without K a vector of N floats */
    enum split split;
    bool is_bias;               /* dummy weights have biases of 0 and gains of 1 */
    int n_parts;                /* for a tensor that is loaded as several: */
    enum role parts[MAX_PARTS]; /* its rows in the usual order: see role_parts */
    /* the N rows of each of E experts, concatenated: in a GGUF file and in some folders one tensor
     * of 3 dimensions, in other folders one tensor each, whose number replaces the * of `folder`;
     * biases: one tensor [E][N] */
    bool of_experts;
    bool of_heads;   /* one vector per head; in a folder one tensor each, as for experts */
    bool of_latents; /* a matrix per head, in GGUF files as a third dimension, or ROLE_KV_B */
    bool is_flat;    /* a vector that files may store with two dimensions */
    /* a row of `taps` numbers per channel, in folders with a dimension of 1; with a decay per
     * channel one tensor each of q, k and v */
    bool of_taps;
    bool is_float32; /* the backend always stores it in float32 */
};

const struct role_info *role_info(enum role role);

/* Returns the division of a model's tensor: the one of the table, except that all value heads of a
 * delta rule have the same gains. */
enum split role_split(const struct model_config *config, enum role role);

static inline bool role_is_of_layer(enum role role) {
    return role >= ROLE_ATTN_NORM;
}

/* Writes the tensor's whole usual name; `layer` is ignored for a role that does not belong to
 * layers. Norms may have other names: config_role_name. */
enum { ROLE_NAME_BYTES = 64 };
void role_name(char out[ROLE_NAME_BYTES], enum role role, int layer);

/* Returns the name in the GGUF files of a model's family, in the form of role_info.gguf. */
const char *config_role_gguf(const struct model_config *config, enum role role);

/* Writes the tensor's whole name in these files; `layer` as for role_name. */
void config_role_name(char out[ROLE_NAME_BYTES], const struct model_config *config, enum role role,
                      int layer);

/* Writes the name of one expert's or head's part of a role, if it is a separate tensor. */
void role_piece_name(char out[ROLE_NAME_BYTES], enum role role, int layer, int piece);

/* Returns the number of tensors in which a folder may store a role, one per expert or head; 0: one
 * tensor. */
int role_pieces(const struct model_config *config, enum role role);

/* Returns a dimension in a layer of a model or of a rank's part of it; layer below 0: outside of
 * layers. */
int role_extent(const struct model_config *config, enum extent extent, int layer);

/* Writes the roles of a fused tensor's parts in the order of its rows. Returns their number; 0: the
 * tensor is of one role. */
int role_parts(const struct model_config *config, enum role role, enum role parts[MAX_PARTS]);

/* Are the rows of that tensor in groups, of each part in turn, in all files? Returns the number of
 * groups and writes the rows of each part in a group; 0: no. */
int role_groups(const struct model_config *config, enum role role, int layer, int rows[MAX_PARTS]);

/* May a file have that tensor in the layer, considering whether it has an MLP or experts? Layer
 * below 0: may it exist outside of layers? */
bool config_may_have_in(const struct model_config *config, enum role role, int layer);

/* Does a layer of the model have that tensor? Its last layers may read the keys and values of
 * others. Layer below 0: does it exist outside of layers? */
bool config_has_in(const struct model_config *config, enum role role, int layer);

/* Does a layer ignore that tensor even if a file has it? */
bool config_ignores(const struct model_config *config, enum role role, int layer);

static inline bool config_has(const struct model_config *config, enum role role) {
    return config->roles & ROLE_BIT(role);
}

#endif
