/* roles: the tensors that models are made of, as one table: what each is called in a GGUF file
 * and in most folders, its shape, how ranks share it. A family is a subset of the roles (family.h);
 * loading, sharding and freeing are loops over it. A folder's names are only read by
 * engine/models/folder_names.c; everywhere else the names are GGUF's.
 *
 * Tensor parallelism (Shoeybi et al. 2019), a rank's share:
 *   q, k, v, gate, up   whole rows of outputs, and their biases: heads, a part of the MLP's width
 *   o, down             columns of inputs: those that belong to these heads, to this width
 *   experts             the same of each: a part of its width; routers are on every rank
 *   biases of o, down   on rank 0 alone, as they may be added only once
 *   norms               on every rank
 *   embeddings, head    on rank 0 alone
 * So o and down give each rank a part of a sum over the whole width, and there the ranks add up. */
#ifndef PENSTOCK_ENGINE_ROLES_H
#define PENSTOCK_ENGINE_ROLES_H

#include "engine/engine.h"

enum role {
    ROLE_TOKEN_EMBEDDING,
    ROLE_POSITION_EMBEDDING,
    ROLE_OUTPUT_NORM,
    ROLE_OUTPUT_NORM_BIAS,
    ROLE_OUTPUT,
    ROLE_PROJECT_IN, /* between an embedding of another width and the stream, and back */
    ROLE_PROJECT_OUT,
    ROLE_INPUTS_EMBEDDING,  /* what each layer gets of the token itself: a row for all layers */
    ROLE_INPUTS_PROJECTION, /* the same of the token's row in the stream, and its norm */
    ROLE_INPUTS_NORM,
    ROLE_ROPE_FACTORS,
    ROLE_ROPE_LONG, /* factors of contexts longer than the first one, and of others */
    ROLE_ROPE_SHORT,
    ROLE_ATTN_NORM, /* from here on: of each layer */
    ROLE_ATTN_NORM_BIAS,
    ROLE_Q,
    ROLE_Q_BIAS,
    ROLE_K,
    ROLE_K_BIAS,
    ROLE_V,
    ROLE_V_BIAS,
    ROLE_QKV, /* q, k and v in one tensor, in this order; loaded as three */
    ROLE_QKV_BIAS,
    ROLE_Q_NORM,
    ROLE_K_NORM,
    ROLE_Q_NORM_ALL, /* of all heads of a row together */
    ROLE_K_NORM_ALL,
    ROLE_Q_NORM_HEADS, /* LayerNorms of each head, with gains of its own */
    ROLE_K_NORM_HEADS,
    ROLE_O,
    ROLE_O_BIAS,
    ROLE_SINKS,
    ROLE_ATTN_POST_NORM,
    ROLE_FFN_NORM,
    ROLE_FFN_NORM_ALIAS, /* the norm before the MLP, where a GGUF file calls it one after attention;
                            loaded as ROLE_FFN_NORM */
    ROLE_FFN_NORM_BIAS,
    ROLE_GATE,
    ROLE_GATE_BIAS,
    ROLE_UP,
    ROLE_UP_BIAS,
    ROLE_GATE_UP, /* gate and up in one tensor, in this order; loaded as two */
    ROLE_DOWN,
    ROLE_DOWN_BIAS,
    ROLE_FFN_POST_NORM,
    ROLE_MLP_POST_NORM, /* of an MLP beside experts: a norm of what each of the two gives, before */
    ROLE_EXPERTS_POST_NORM, /* they are added up and go through ROLE_FFN_POST_NORM */
    ROLE_INPUT_GATE,        /* of the layer's own input, and its way into the stream */
    ROLE_INPUT_OUT,
    ROLE_INPUT_NORM,
    ROLE_LAYER_SCALE, /* of the stream behind the layer: one number */
    ROLE_ROUTER,      /* of experts: see struct experts of kernels/ops.h */
    ROLE_ROUTER_BIAS,
    ROLE_ROUTER_CORRECTION, /* added to scores that are compared */
    ROLE_ROUTER_GAIN,       /* of a norm of the router's own */
    ROLE_EXPERTS_NORM,      /* before experts, of which an MLP beside them has another */
    ROLE_EXPERTS_SCALE,     /* what each expert's weight is multiplied by */
    ROLE_EXPERTS_GATE,
    ROLE_EXPERTS_GATE_BIAS,
    ROLE_EXPERTS_UP,
    ROLE_EXPERTS_UP_BIAS,
    ROLE_EXPERTS_GATE_UP, /* of each expert gate and then up, or in turns; loaded as two */
    ROLE_EXPERTS_GATE_UP_BIAS,
    ROLE_EXPERTS_DOWN,
    ROLE_EXPERTS_DOWN_BIAS,
    ROLE_SHARED_GATE, /* of the shared expert's MLP */
    ROLE_SHARED_UP,
    ROLE_SHARED_DOWN,
    ROLE_SHARED_ROUTER, /* of the shared expert's weight */
    N_ROLES,
};

/* A set of roles is the sum of these. */
#define ROLE_BIT(role) ((role_set)1 << (role))

/* Lengths of tensors, in the letters of kernels.h. */
enum extent {
    EXTENT_NONE,
    EXTENT_V,
    EXTENT_K,
    EXTENT_EMBEDDING, /* the embedding's width: K but for some */
    EXTENT_F,
    EXTENT_2F,
    EXTENT_Q,   /* H * D */
    EXTENT_KV,  /* G * D */
    EXTENT_QKV, /* (H + 2 G) * D */
    EXTENT_D,
    EXTENT_P,
    EXTENT_LP, /* L * P */
    EXTENT_H,
    EXTENT_CONTEXT,
    EXTENT_ROPE, /* D_rope / 2 */
    EXTENT_ONE,
    EXTENT_E, /* experts */
    EXTENT_F_EXPERT,
    EXTENT_2F_EXPERT,
    EXTENT_F_SHARED,
};

/* How ranks share a tensor. */
enum split {
    SPLIT_NONE,    /* every rank has all of it */
    SPLIT_OUTPUTS, /* each has some of the rows */
    SPLIT_INPUTS,  /* each has some of the columns */
    SPLIT_FIRST,   /* rank 0 alone has it */
    SPLIT_HOST,    /* no device has it: the engine computes with it when it loads */
};

enum { MAX_PARTS = 3 };

struct role_info {
    const char *gguf; /* its name; of a layer's: after "blk.<layer>." */
    /* what most folders call it; of a layer's: after "layers.<layer>."; NULL: they have none */
    const char *folder;
    enum extent N, K; /* rows and columns; without K a vector of N floats */
    enum split split;
    bool is_bias;               /* dummy weights have biases of 0, and gains of 1 */
    int n_parts;                /* of a tensor that is loaded as several: */
    enum role parts[MAX_PARTS]; /* its rows in order */
    bool of_experts; /* the N rows of each of E experts, one after the other: in a GGUF file and in
                        some folders one tensor of 3 dimensions, in others a tensor for each, whose
                        number stands at the * of `folder`; biases: one tensor [E][N] */
    bool of_heads;   /* a vector for each head, in a folder a tensor each, as for experts */
    bool is_float32; /* the backend keeps it in float32, whatever it keeps others in */
};

const struct role_info *role_info(enum role role);

static inline bool role_is_of_layer(enum role role) {
    return role >= ROLE_ATTN_NORM;
}

/* The tensor's whole name; `layer` is ignored for a role that is not of a layer. */
enum { ROLE_NAME_BYTES = 64 };
void role_name(char out[ROLE_NAME_BYTES], enum role role, int layer);

/* The name that an expert's or a head's part of a role has where it is a tensor of its own. */
void role_piece_name(char out[ROLE_NAME_BYTES], enum role role, int layer, int piece);

/* How many tensors a folder may have a role in, a number each: experts or heads; 0: it has one. */
int role_pieces(const struct model_config *config, enum role role);

/* A length in a layer of a model, or of a rank's part of it; below 0: of what is of no layer. */
int role_extent(const struct model_config *config, enum extent extent, int layer);

/* May a file have that tensor in the layer, an MLP's or experts'? Below 0: is it of no layer? */
bool config_may_have_in(const struct model_config *config, enum role role, int layer);

/* Has a layer of the model that tensor? Its last ones may read the keys and values of others. Below
 * 0: is it there, and of no layer? */
bool config_has_in(const struct model_config *config, enum role role, int layer);

/* Does a layer do without that tensor, which a file may have all the same? */
bool config_ignores(const struct model_config *config, enum role role, int layer);

static inline bool config_has(const struct model_config *config, enum role role) {
    return config->roles & ROLE_BIT(role);
}

#endif
