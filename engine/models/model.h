/* A model: its weights in the backend's layout and its forward pass. The public header of
 * engine/models/.
 *
 * A model's tensors are arrays over roles (roles.h) in every family. load/ fills them from the
 * file's tensors, forward.c writes the program that uses them. Shapes use the letters of kernels.h.
 * If several ranks compute one model, H, G and F are a rank's share (shard.h).
 */
#ifndef PENSTOCK_ENGINE_MODEL_H
#define PENSTOCK_ENGINE_MODEL_H

#include <stdio.h>

#include "engine/files/model_file.h"
#include "engine/models/shard.h"
#include "kernels/kernels.h"

/* Reads a model's config from a file and checks that the engine supports it. For a lone config.json
 * it also lists the tensors of such a model. Fails with STATUS_BAD_FILE if the architecture is
 * unknown (the message lists the known ones), a key is missing or wrong, dimensions do not fit each
 * other, or the model needs an unsupported feature without which answers would be wrong. */
enum status model_config_read(struct model_config *config, struct model_file *file,
                              struct err *err);

/* The differences between a folder's model and GGUF files of it. */
struct gguf_form {
    /* its name in GGUF files; NULL: the architecture does not exist in GGUF */
    const char *architecture;
    bool pairs; /* GGUF rotates adjacent numbers of a head, the folder numbers of its two halves */
    /* without a key, every full_every-th layer has full attention; 0: all layers have windows */
    int full_every;
    bool lists_windows; /* a key has a flag per layer */
    bool splits_mlp;    /* gate and up of an MLP are two tensors */
    bool says_branches; /* a key says whether branches have the same input */
};
struct gguf_form model_gguf_form(const struct model_config *config);

/* Finds the distinct windows of layers, with their key-value heads and query heads: a backend is
 * opened with them. Returns their number; MAX_WINDOWS + 1: more than a backend supports. */
int model_windows(const struct model_config *config, struct attention_window windows[MAX_WINDOWS]);

/* Computes inv_freq[D_rope / 2] = base^(-2i / D_rope), stretched by `rope` for contexts of at most
 * `length` tokens; or, unless `factors` is NULL, divided by factors[D_rope / 2] from the file. */
void rope_frequencies(float *inv_freq, const struct rope_config *rope, const float *factors,
                      int length);

/* Writes factors[D_rope / 2], the divisors of a model's frequencies up to its original context
 * length. A GGUF file may have them as a tensor. */
void rope_factors(float *factors, const struct rope_config *rope);

/* The tensors of one layer, or those outside the layers. NULL: the tensor does not exist, or not on
 * this rank. */
struct tensors {
    struct matrix *w[N_ROLES];
    float *vec[N_ROLES];                  /* float32 device memory */
    const struct low_ranks *low[N_ROLES]; /* the adapters of w; NULL: w cannot be adapted */
};

/* The tensors of an EAGLE-3 head (eagle.c) beside those in layers[L - 1]; empty without one. */
struct eagle {
    const struct weights *weights; /* its folder's; valid only while the model is loaded */
    struct matrix *tap[N_TAPS];    /* [K][K] the products of the vectors that it reads */
    struct matrix *head;           /* [eagle.V][K] */
    struct matrix *embedding;      /* [V][K]; NULL: the model's */
    int32_t *to;                   /* [eagle.V] the model's ids, device memory; NULL: the same */
    float *inv_freq;               /* [D_rope / 2] */
};

/* A matrix of the head: the columns from `first` on of a tensor [N][columns]. */
struct eagle_matrix {
    const char *name;   /* in its folder */
    enum role role;     /* the role of the model's that has the same form */
    struct matrix **at; /* in struct model */
    int N, K, first, columns;
};

/* A vector of K gains: a role of layers[L - 1]. */
struct eagle_gain {
    const char *name;
    enum role role;
};
enum { N_EAGLE_MATRICES = 12, N_EAGLE_GAINS = 4 };
extern const struct eagle_gain eagle_gains[N_EAGLE_GAINS];

struct model;

/* Lists the matrices of the head of model->config, and their places. Returns their number. */
int eagle_matrices(struct model *model, struct eagle_matrix out[N_EAGLE_MATRICES]);

/* An adapter's change of one matrix. */
struct adapter_part {
    int layer;
    enum role role;
    struct low_rank low; /* a and b point into the adapter's numbers */
};

/* A rank's part of an adapter in memory. It does not change after it was read. */
struct adapter {
    int n, rank;               /* parts; the largest rank */
    struct adapter_part *part; /* [n] */
    /* the matrices of all parts, each a multiple of ADAPTER_ALIGN bytes from the first; aligned */
    uint8_t *numbers;
    int64_t bytes; /* of `numbers` */
    void *memory;  /* that holds `numbers` */
};

enum { ADAPTER_ALIGN = 64 };

/* What a number holds. `version` is 0 for an empty number, and else never used twice. */
struct adapter_number {
    const struct adapter *adapter;
    _Atomic uint64_t version;
};

/* The place of an adapter's copy in adapter_copies.numbers. */
struct adapter_place {
    uint64_t version; /* of the copied adapter; 0: nothing is copied */
    int64_t first, end;
};

/* Copies of adapters on a device that cannot read host memory (adapter_copies.c). */
struct adapter_copies {
    uint8_t *numbers;            /* device memory; NULL: the backend reads host memory */
    int64_t bytes;               /* of `numbers` */
    struct low_rank *parts;      /* device memory, like model_adapters.parts */
    struct low_rank *host_parts; /* the content of `parts`, in host memory */
    struct adapter_place *place; /* [n + 1] by number */
};

/* The adapters that rows may use, by number: 1..n. Number 0 is the base model. */
struct model_adapters {
    int n;                               /* 0: adapters are off */
    struct low_ranks *ranks;             /* [L][N_ADAPTED], to which tensors.low points */
    struct low_rank *parts;              /* [L][N_ADAPTED][n + 1] in host memory */
    struct adapter_number *number;       /* [n + 1] */
    uint64_t n_versions;                 /* of the thread that loads adapters */
    struct row_adapters rows, read_rows; /* of a step: all, and those that are read */
    int32_t *of_logit_rows;    /* [max_logit_rows] the adapters of the rows that are read */
    int64_t bytes, used_bytes; /* for the numbers of all adapters, on all ranks together */
    struct adapter_copies copies;
};

/* Work buffers of a pass, in device memory for max_rows rows. Allocated once. */
struct model_activations {
    int max_rows, max_logit_rows;
    float *x;         /* [M][K] the residual stream */
    float *q, *k, *v; /* [M][H*D], [M][G*D], [M][G*D] */
    float *attn_out;  /* [M][H*D] the output of attention */
    float *state_out; /* [M][config_recurrent_width] in models that mix both; NULL in others */
    float *attn_gate; /* [M][H*D] its gates, in models that have them */
    float *latent;    /* [M][config_latent_width] of latent attention */
    /* [M][L*P] the per-layer inputs, and buffers for their parts, which are zero between steps */
    float *inputs, *input_parts;
    float *logit_inputs; /* [R][L*P] the inputs of the rows that need logits */
    /* [M][K] the output of a branch with a norm after it, or the stream between the norms of a
     * layer that norms the stream; zero between branches, or between layers */
    float *branch;
    float *both; /* [M][K] the sum of an MLP and parallel experts; zero between layers */
    /* [M][K_embedding] in models whose embedding has another width than the stream */
    float *embedded;
    /* Of a layer that guesses ahead, NULL without one: the hidden vectors that its rows read, their
     * join with embeddings, its stream, and the hidden vectors that the rows of the last
     * pass left: [M][K], [M][2K], [M][K], [R][K]. Ranks above 0 have only its stream, and the join
     * of an EAGLE-3 head */
    float *ahead_hidden, *ahead_joined, *ahead_x, *ahead_kept;
    float *guess_logits; /* [R][eagle.V] the logits of a head's own ids */
    float *logit_x;      /* [R][K] x of the rows that need logits */
    float *logits;       /* [rows with logits][V] only on rank 0 */
    /* float32 [rows that want it][K_embedding] their hidden vectors, only on rank 0 */
    float *hidden;
    /* [M][K] the partial sum of a rank above 0; zero except between an op and its all_reduce.
     * [M][2K] with an EAGLE-3 head, whose joins are shared */
    float *part;
};

struct model {
    struct model_config config; /* of the whole model */
    struct model_config part;   /* of this rank */
    struct shard shard;
    struct backend *backend;
    struct tensors ends;    /* embeddings, last norm, head */
    struct tensors *layers; /* [L] */
    struct eagle eagle;
    float *inv_freq;        /* [D_rope / 2]; NULL: the model does not rotate positions */
    float *window_inv_freq; /* of layers with windows; NULL: they rotate like the others */
    int n_query_scales;
    /* [n_query_scales] by position / rope.stretch.original_context; NULL: unused */
    float *query_scale;
    /* [L] factors of the stream after each layer, in host memory; NULL: unused */
    float *layer_scale;
    float *slopes; /* [H] of the rank's heads, for ALiBi; NULL: unused */
    float *ones;   /* [n_ones] gains of norms without gains; NULL: the model lacks such norms */
    int n_ones;
    struct model_activations act;
    struct model_adapters adapters;
    struct program program; /* the forward pass of this rank */
    struct program ahead;   /* that of the layer that guesses ahead; empty without one */
    int64_t weight_bytes;
    /* the mapped file of --weight-cache that holds the matrices; empty: they are in memory */
    struct mapping kept;
    /* bytes of the file that were read since its pages were last released */
    size_t unreleased_bytes;
};

/* Writes the model's programs, for its tensors and buffers. It fills act.logits and act.hidden of
 * rank 0. model_load, model_adapters_open and model_adapters_attach call it. */
void model_write_program(struct model *model);

/* The program that a step runs. */
static inline const struct program *model_program(const struct model *model,
                                                  const struct step *step) {
    assert(!step->is_ahead || model->ahead.n > 0);
    return step->is_ahead ? &model->ahead : &model->program;
}

/* ---- random weights (dummy.c), for a model of which only the shape is known ----------------- */

/* Lists the tensors of a model with this config: matrices in `dtype`, vectors in float32. They have
 * NULL data. Values are generated on use from a seed per tensor, the hash of its name. weights_free
 * frees the list. */
enum status dummy_weights(struct weights *out, const struct model_config *config, enum dtype dtype,
                          struct err *err);

/* Returns all rows of a random matrix, in the tensor's type: `bytes` of mem_large, which the caller
 * frees. */
void *dummy_matrix(const struct weight *weight);

/* ---- adapters (adapters.c) ------------------------------------------------------------------ */

/* Makes room for n adapters whose numbers have at most `bytes` on all ranks together. Call it once,
 * after model_load. model_adapters_close frees it. */
void model_adapters_open(struct model *model, int n, int64_t bytes);
void model_adapters_close(struct model *model);

/* Connects the loaded matrices with the adapters, after each model_load. On a device it allocates
 * memory for their copies, which model_unload frees. Fails with STATUS_USAGE if memory is short. */
enum status model_adapters_attach(struct model *model, struct err *err);

/* Can an adapter change this matrix of a layer? */
bool model_adapts(const struct model *model, enum role role, int layer);

/* Makes an adapter the one with that number, or empties the number. No pass that is running may
 * have rows with it. The caller owns the adapter, which must outlive its use. */
void model_adapter_set(struct model *model, int number, const struct adapter *adapter);
void model_adapter_clear(struct model *model, int number);

/* Returns an adapter with zeroed numbers and with room for `parts` parts; its n is 0. Returns NULL
 * if memory is short. adapter_free frees it. Any thread. */
struct adapter *adapter_new(int parts, int64_t bytes);

/* Frees an adapter with its parts and numbers; NULL is accepted. */
void adapter_free(struct adapter *adapter);

/* Sets the adapters of a pass's rows, before the pass. On a device it first copies those that are
 * not there yet. */
void model_adapters_begin(struct model *model, const struct step *step);

/* ---- copies of adapters on a device (adapter_copies.c), for adapters.c ---------------------- */

enum { N_ADAPTED = 11 }; /* matrices of a layer that adapters may change */

/* Returns the number of a role among these, or -1. */
int adapted_place(enum role role);

/* Allocates the copies' memory if the backend cannot read the host's; adapter_copies_close frees
 * it. No adapter is copied yet. */
enum status adapter_copies_open(struct model *model, struct err *err);
void adapter_copies_close(struct model *model);

/* Copies the adapters of a step's rows that are not on the device. */
void adapter_copies_update(struct model *model, const struct step *step);

/* Returns the role of a folder's tensor by its name there, and its layer (-1: outside of layers);
 * N_ROLES: the model's family does not know it. */
enum role model_folder_role(struct model_config *config, const char *name, int *layer);

/* Returns the family of that GGUF name, which must exist. */
const struct model_family *model_family_called(const char *name);

/* Returns the head's matrix, which is the token embedding if the two are tied. Only on rank 0. */
struct matrix *model_head(const struct model *model);

/* ---- buffers (buffers.c) -------------------------------------------------------------------- */

/* One buffer of the activations. */
struct model_buffer {
    const char *name;
    float **buffer;
    int width;          /* numbers per row; 0: this model or rank does not use it */
    bool per_logit_row; /* [max_logit_rows][width], otherwise [max_rows][width] */
};
enum { N_MODEL_BUFFERS = 23 };

/* Lists the buffers of `a`, for the model's part. */
void model_buffers(struct model_activations *a, const struct model *model,
                   struct model_buffer buffers[N_MODEL_BUFFERS]);

/* Returns the bytes of one buffer for the rows of `a`. */
size_t model_buffer_bytes(const struct model_buffer *buffer, const struct model_activations *a);

/* Returns the bytes of all buffers for these numbers of rows and logit rows, for the memory
 * plan. */
int64_t activations_bytes(const struct model *model, int max_rows, int max_logit_rows);

/* ---- the program as text (program_text.c) --------------------------------------------------- */

/* Prints a line per op of the model's program: its layer, its rows, the buffers and matrices that
 * it reads, and the buffers that it writes. */
void model_print_program(const struct model *model, FILE *out);

/* The same for a rank of a model whose weights are not loaded. shard_check must have passed. */
void model_print_outline(const struct model_config *config, struct shard shard, FILE *out);

#endif
