/* layers: what differs from layer to layer of a model: windows, heads, whose keys and values it
 * reads. Folder-internal. */
#ifndef PENSTOCK_ENGINE_LAYERS_H
#define PENSTOCK_ENGINE_LAYERS_H

#include "engine/files/weights.h"
#include "engine/models/families/family.h"

/* Works out what a file says of its layers, and checks it: before the tensors' shapes are known.
 * Fails with STATUS_BAD_FILE. */
enum status layers_finish(struct model_config *config, struct err *err);

/* Fails with STATUS_BAD_FILE where layers have windows that the family has not. */
enum status layers_check_windows(const struct model_config *config,
                                 const struct model_family *family, struct err *err);

/* In a GGUF file no key says which layers take their keys for values: those without a tensor of
 * them, in families that may. */
void layers_find_values(struct model_config *config, const struct weights *weights);

#endif
