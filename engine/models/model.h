/* A model: its weights in the backend's layout and its forward pass. The door of engine/models/.
 *
 * A model's tensors are arrays over roles (roles.h), whatever its family; load.c fills them from
 * the weights view, forward.c runs them over the op table. Shapes use the letters of kernels.h; H,
 * G and F are a rank's share of them where several ranks compute one model (shard.h).
 */
#ifndef PENSTOCK_ENGINE_MODEL_H
#define PENSTOCK_ENGINE_MODEL_H

#include "engine/files/model_file.h"
#include "engine/models/shard.h"

/* Reads what a file says of its model, and checks that it can be served; of a config.json it also
 * makes the list of tensors that such a model has. Fails with STATUS_BAD_FILE: an unknown
 * architecture (with those that are known), a key that is missing or wrong, letters that do not fit
 * each other, or a feature that would silently give wrong answers. */
enum status model_config_read(struct model_config *config, struct model_file *file,
                              struct err *err);

/* How GGUF files of a folder's model differ from it. */
struct gguf_form {
    const char *architecture; /* what they call it; NULL: there are none */
    bool pairs;     /* neighbours of a head rotate there, and in the folder numbers of its halves */
    int full_every; /* without a key, among layers with windows each such layer has none; 0: all
                       have */
    bool lists_windows; /* a flag for each layer says it */
};
struct gguf_form model_gguf_form(const struct model_config *config);

/* The windows of the layers with the heads behind them, each pair once, and how many there are:
 * what a backend is opened with; MAX_WINDOWS + 1: more than are served. */
int model_windows(const struct model_config *config, struct attention_window windows[MAX_WINDOWS]);

/* inv_freq[D_rope / 2] = base^(-2i / D_rope), stretched as `rope` says for contexts of `length`
 * tokens at most, or divided by a file's own factors[D_rope / 2] unless they are NULL. */
void rope_frequencies(float *inv_freq, const struct rope_config *rope, const float *factors,
                      int length);

/* factors[D_rope / 2] that a model's own frequencies are divided by in contexts of its length: what
 * a GGUF file may have as a tensor. */
void rope_factors(float *factors, const struct rope_config *rope);

/* N rows of K out of columns that are `column` numbers long, of which each `step`th counts; a
 * number has `size` bytes. Tiles keep both sides in the cache. */
void turn_rows(char *rows, const char *from, size_t N, size_t K, size_t column, size_t step,
               size_t size);

/* The tensors of one layer, or those that belong to none; NULL: not there, or not of this rank. */
struct tensors {
    struct matrix *w[N_ROLES];
    float *vec[N_ROLES]; /* float32 device memory */
};

/* Buffers that a pass works in, device memory for max_rows rows. Made once. */
struct activations {
    int max_rows, max_logit_rows;
    float *x;         /* [M][K] the residual stream */
    float *q, *k, *v; /* [M][H*D], [M][G*D], [M][G*D] */
    float *attn_out;  /* [M][H*D] what attention gives */
    /* [M][L*P] what the layers add of their own; and what that is made of, zero between steps */
    float *inputs, *input_parts;
    float *logit_inputs; /* [R][L*P] the inputs of the rows that want logits */
    /* [M][K] what a branch with a norm after it gives, or the stream between the norms of a layer
     * that norms the stream; zero between branches, or between layers */
    float *branch;
    float *both;     /* [M][K] what an MLP and experts beside it give; zero between layers */
    float *embedded; /* [M][K_embedding] of models whose embedding has a width of its own */
    float *logit_x;  /* [R][K] x of the rows that want logits */
    float *logits;   /* [R][V]; on rank 0 alone */
    /* [M][K] what a rank above 0 adds to the stream; zero but between an op and its all_reduce */
    float *part;
};

struct model {
    struct model_config config; /* the whole model's */
    struct model_config part;   /* this rank's */
    struct shard shard;
    struct backend *backend;
    struct tensors ends;    /* embeddings, last norm, head */
    struct tensors *layers; /* [L] */
    float *inv_freq;        /* [D_rope / 2]; NULL: no rotary positions */
    float *window_inv_freq; /* of the layers that slide; NULL: they rotate as the others */
    int n_query_scales;
    /* [n_query_scales] by position / rope.stretch.original_context; NULL: none */
    float *query_scale;
    float *layer_scale; /* [L] of the stream behind each layer, the host's; NULL: none */
    float *ones;        /* [n_ones] gains of norms that have none; NULL: there are no such norms */
    int n_ones;
    struct activations act;
    int64_t weight_bytes;
    struct mapping kept;     /* whose bytes the matrices are (--weight-cache); empty: their own */
    size_t unreleased_bytes; /* of the file that were read since its pages were released */
};

/* Loads all weights and makes the activation buffers. `model` is all zero but for config, shard and
 * backend. On failure the caller still closes it. */
enum status model_load(struct model *model, const struct weights *weights,
                       const struct engine_config *settings, struct err *err);
void model_close(struct model *model);

/* One pass: fills act.logits[R][V] of rank 0. */
void model_forward(struct model *model, const struct step *step, struct kv_cache *cache);

/* The head's matrix; the token embedding where the two are tied. Of rank 0. */
struct matrix *model_head(const struct model *model);

/* Bytes of all activation buffers for so many rows and logit rows: what the memory plan counts. */
int64_t activations_bytes(const struct model *model, int max_rows, int max_logit_rows);

#endif
