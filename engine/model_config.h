/* model_config: what a model is, as plain numbers. Two readers fill it, from a GGUF file's keys and
 * from a config.json (engine/files/); the model's family adds what neither says, and checks it
 * (engine/models/families/family.h). The one forward pass reads it (engine/models/forward.c).
 * Included by engine.h. */
#ifndef PENSTOCK_ENGINE_MODEL_CONFIG_H
#define PENSTOCK_ENGINE_MODEL_CONFIG_H

#include "kernels/kernels.h"

/* Bounds that no model is near, and below which the bytes of all keys and values of a sequence of
 * full length, 2 * L * G * D * 4 * context, stay in int64. */
enum { MAX_LAYERS = 1024, MAX_WIDTH = 1 << 20, MAX_HEADS = 65536, MAX_CONTEXT = 1 << 28 };

/* How Llama 3.1 and later stretch RoPE to contexts longer than those that they were first trained
 * for: `rope_type` "llama3" of a config.json. A GGUF file has the factors as a tensor instead. */
struct rope_stretch {
    bool is_set;
    double factor, low_freq_factor, high_freq_factor;
    int original_context;
};

/* Rotary positions. */
struct rope_config {
    bool is_used; /* false: D_rope is 0 */
    int D_rope;   /* leading dimensions of a head that are rotated */
    enum rope_layout layout;
    float base;
    struct rope_stretch stretch;
};

/* What may differ from layer to layer. */
struct layer_config {
    int window;       /* the last positions that a row sees, its own included; 0: all */
    bool has_no_rope; /* though others have: queries and keys are not rotated */
};

struct model_config {
    char name[128];          /* general.name, or the name of the file or folder */
    char architecture[32];   /* as GGUF spells it: "llama" */
    char quantisation[32];   /* the most frequent weight type, e.g. "q4_1" */
    int V, K, F, L, H, G, D; /* letters of kernels.h; K is the width of the residual stream */
    int context_length;      /* tokens that the model was trained for */
    int64_t n_parameters, n_layer_parameters; /* of all tensors; of the layers' matrices */
    int64_t file_bytes;                       /* size of the file, or of random weights */
    /* the tensors that it has: a bit for each enum role (engine/models/families/roles.h) */
    uint64_t roles;
    enum norm_kind norm;
    float norm_epsilon;
    enum activation activation;
    struct rope_config rope;
    float embedding_scale; /* of the tokens' rows; 1: none */
    float attention_scale; /* score = scale * q . k */
    float attention_cap;   /* of scores; 0: none */
    float logit_cap;       /* of logits; 0: none */
    int window;            /* of the layers that have one; 0: none has */
    bool lists_windows;    /* the file says which layers have it: layer[].window is set */
    bool lists_ropes;      /* the same of layer[].has_no_rope */
    struct layer_config layer[MAX_LAYERS];
};

#endif
