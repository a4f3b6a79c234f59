/* load: what loading the tensors of a model is made of. Folder-internal; on the thread that opens
 * the model. Statuses are those of model_load, and the sentence goes to loader.err. */
#ifndef PENSTOCK_ENGINE_LOAD_H
#define PENSTOCK_ENGINE_LOAD_H

#include "engine/models/model.h"

/* What is loaded, from where, and how. */
struct loader {
    struct model *model;
    const struct weights *weights;
    const struct engine_config *settings;
    bool has_matrices; /* already, from --weight-cache: only vectors are loaded */
    struct err *err;
};

/* Rows of one tensor in the file that become one tensor of the model: all of them, or a part of a
 * fused one. */
struct source {
    const struct weight *weight;
    int first, N, K; /* rows first .. first + N; K 0: a vector */
};

/* Loads rows of a source as one tensor, out->w[role] or out->vec[role], or this rank's part. */
enum status load_rows(const struct loader *l, struct tensors *out, enum role role,
                      const struct source *source);

/* Loads what a role of_experts has in a layer: matrices, or biases. */
enum status load_experts(const struct loader *l, struct tensors *out, enum role role, int layer);

/* Refuses a tensor with a block whose scale is NaN or infinite, with the model's path, the tensor
 * and the block. Looks at every block, on all threads; only rank 0 does, which loads something of
 * each matrix. */
enum status load_check_scales(const struct loader *l, const struct weight *weight);

#endif
