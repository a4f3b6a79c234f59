/* dummy: random weights, for a model of which only the shape is known. Folder-internal. */
#ifndef PENSTOCK_ENGINE_DUMMY_H
#define PENSTOCK_ENGINE_DUMMY_H

#include "engine/files/weights.h"
#include "engine/models/families/roles.h"

/* Makes the list of tensors that such a model has, matrices in `dtype`, vectors in float32. None
 * has data: it is made where it is wanted, from a seed of the tensor's own, its name's hash.
 * weights_free frees it. */
enum status dummy_weights(struct weights *out, const struct model_config *config, enum dtype dtype,
                          struct err *err);

/* All rows of a matrix, in the tensor's type: `bytes` of mem_large, which the caller frees. */
void *dummy_matrix(const struct weight *weight);

#endif
