/* A model: its weights in the backend's layout and its forward pass. Internal to engine/.
 *
 * One `struct model_family` stands for each architecture, in a file of its own (model_llama.c,
 * ...): it takes its tensors from the weights view and writes the forward pass once over the op
 * table. Shapes use the letters of kernels.h.
 */
#ifndef PENSTOCK_ENGINE_MODEL_H
#define PENSTOCK_ENGINE_MODEL_H

#include "engine/engine.h"
#include "engine/weights.h"

/* One transformer block. Norm gains are [K] float32 device memory. */
struct layer {
    float *attention_norm;           /* [K] */
    struct matrix *wq, *wk, *wv;     /* [H*D][K], [G*D][K], [G*D][K] */
    struct matrix *wo;               /* [K][H*D] */
    float *mlp_norm;                 /* [K] */
    struct matrix *gate, *up, *down; /* [F][K], [F][K], [K][F] */
};

/* Buffers that a pass works in, device memory for max_rows rows. Made once. */
struct activations {
    int max_rows, max_logit_rows;
    float *x;         /* [M][K] the residual stream */
    float *q, *k, *v; /* [M][H*D], [M][G*D], [M][G*D] */
    float *mixed;     /* [M][H*D] what attention gives */
    float *rows;      /* [R][K] */
    float *logits;    /* [R][V] */
};

struct model {
    struct model_info info;
    struct backend *backend;
    const struct model_family *family;
    struct matrix *embedding; /* [V][K] */
    struct matrix *head;      /* [V][K]; the embedding itself where the two are tied */
    float *final_norm;        /* [K] */
    float *inv_freq;          /* [D_rope / 2] */
    struct layer *layers;     /* [L] */
    struct activations act;
    int64_t weight_bytes;
    size_t file_bytes; /* of the file that were read since its pages were let go */
};

struct model_family {
    const char *architecture;
    enum rope_layout rope;
    /* Takes the tensors. What was taken when it fails is given back by model_close. */
    enum status (*load)(struct model *model, const struct weights *weights,
                        const struct engine_config *config, struct err *err);
    /* One pass: fills act.logits[R][V]. */
    void (*forward)(struct model *model, const struct step *step, struct kv_cache *cache);
};

/* The family of an architecture's name, or NULL. */
const struct model_family *model_family_find(const char *architecture);

/* Loads all weights of info's architecture and makes the activation buffers. `model` is all zero
 * but for info and backend. On failure the caller still closes it. */
enum status model_load(struct model *model, const struct weights *weights,
                       const struct engine_config *config, struct err *err);
void model_close(struct model *model);

/* Takes the matrix `name` of N rows of K; a NULL `out` after a failure. Used by the families. */
enum status model_take_matrix(struct model *model, const struct weights *weights,
                              const struct engine_config *config, const char *name, int N, int K,
                              struct matrix **out, struct err *err);

/* Takes the float vector `name` of n gains into device memory. */
enum status model_take_vector(struct model *model, const struct weights *weights,
                              const struct engine_config *config, const char *name, int n,
                              float **out, struct err *err);

/* Takes n floats into device memory of the model's: they count as weights. Fails with STATUS_USAGE
 * where there is no room. */
enum status model_upload(struct model *model, const float *values, size_t n, float **out,
                         struct err *err);

/* Bytes of all activation buffers for so many rows and logit rows: what the memory plan counts. */
int64_t activations_bytes(const struct model_info *info, int max_rows, int max_logit_rows);

extern const struct model_family model_llama;

#endif
