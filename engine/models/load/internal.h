/* Functions for loading the tensors of a model. Folder-internal; on the thread that opens the
 * model. Statuses are those of model_load; the message goes to loader.err. */
#ifndef PENSTOCK_ENGINE_LOAD_INTERNAL_H
#define PENSTOCK_ENGINE_LOAD_INTERNAL_H

#include "engine/models/model.h"

/* The destination, the source and the settings of loading. */
struct loader {
    struct model *model;
    const struct weights *weights;
    const struct engine_config *settings;
    bool has_matrices; /* matrices are already loaded from --weight-cache: load only vectors */
    struct err *err;
};

/* Rows of one tensor in the file that become one tensor of the model: all of them, or a part of a
 * fused one. */
struct source {
    const struct weight *weight;
    int first, N, K; /* rows first .. first + N; K 0: a vector */
};

/* Loads the tensors of the model's EAGLE-3 head from its folder, and its frequencies
 * (load_eagle.c). load_eagle_free frees those that are not in the layers. */
enum status load_eagle(const struct loader *l);
void load_eagle_free(struct model *model);

/* Loads the frequencies of a rotation. */
enum status load_rotation(const struct loader *l, const struct rope_config *rope, float **out);

/* Loads rows of a source, or this rank's part of them, as the tensor out->w[role] or
 * out->vec[role]. */
enum status load_rows(const struct loader *l, struct tensors *out, enum role role,
                      const struct source *source);

/* Loads a role of_experts in a layer: matrices, or biases. */
enum status load_experts(const struct loader *l, struct tensors *out, enum role role, int layer);

/* Loads the weights of a short convolution, [C][taps] in the file, as [taps][C]. */
enum status load_taps(const struct loader *l, struct tensors *out, enum role role, int layer);

/* Loads a vector that files may store with two dimensions. */
enum status load_flat(const struct loader *l, struct tensors *out, enum role role, int layer);

/* Loads the matrices of the heads of latent attention: a tensor of 3 dimensions for the keys,
 * another one for the values, or ROLE_KV_B with both. */
enum status load_latents(const struct loader *l, struct tensors *out, enum role role, int layer);

/* Copies n floats to device memory. */
enum status load_floats(struct model *model, const float *values, int n, float **out,
                        struct err *err);

/* Loads the frequencies of rotary positions, divided by the file's factors if it has a tensor of
 * them. */
enum status load_frequencies(const struct loader *l);

/* Loads the scales of queries, 1 + beta * log(1 + i) for positions in the i-th stretch, each as
 * long as the original context (Llama 4: Meta 2025); and the slopes of the rank's heads, for ALiBi.
 */
enum status load_query_scales(const struct loader *l);
enum status load_slopes(const struct loader *l);

/* Fails if a block of a tensor has a scale that is NaN or infinite; the message has the model's
 * path, the tensor and the block. Checks every block on all threads. Only rank 0 checks, because it
 * loads a part of each matrix. */
enum status load_check_scales(const struct loader *l, const struct weight *weight);

#endif
