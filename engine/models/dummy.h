/* dummy: random weights for a model of which only the shape is known. Folder-internal. */
#ifndef PENSTOCK_ENGINE_DUMMY_H
#define PENSTOCK_ENGINE_DUMMY_H

#include "engine/files/tensors/weights.h"
#include "engine/models/families/roles.h"

/* Lists the tensors of a model with this config: matrices in `dtype`, vectors in float32. They have
 * NULL data. Values are generated on use from a seed per tensor, the hash of its name. weights_free
 * frees the list. */
enum status dummy_weights(struct weights *out, const struct model_config *config, enum dtype dtype,
                          struct err *err);

/* Returns all rows of a random matrix, in the tensor's type: `bytes` of mem_large, which the caller
 * frees. */
void *dummy_matrix(const struct weight *weight);

#endif
