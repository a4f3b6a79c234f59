/* layers: the differences between a model's layers: windows, heads, and shared keys and values.
 * Folder-internal. */
#ifndef PENSTOCK_ENGINE_LAYERS_H
#define PENSTOCK_ENGINE_LAYERS_H

#include "engine/files/tensors/weights.h"
#include "engine/models/families/family.h"

/* Derives the settings of each layer from the file's values and checks them. Call it before the
 * tensors' shapes are needed. Fails with STATUS_BAD_FILE. */
enum status layers_finish(struct model_config *config, struct err *err);

/* Fails with STATUS_BAD_FILE if layers have windows that the family does not support. */
enum status layers_check_windows(const struct model_config *config,
                                 const struct model_family *family, struct err *err);

/* Finds the layers whose values are their keys. A GGUF file does not have a key for this: they are
 * the layers without a tensor of values. Only for families that allow it. */
void layers_find_values(struct model_config *config, const struct weights *weights);

/* forward_recurrent.c: attn_out = the recurrent layer of norm(x), and the states of the step's
 * sequences; and the layer's last product. Called by the thread that runs the pass. */
struct model;
void recurrent_layer(struct model *model, int layer, int M, struct kv_cache *cache);
struct linear recurrent_output(const struct model *model, int layer);

/* Moves the numbers of xIELU from a folder's tensors to the layers. */
enum status layers_read_xielu(struct model_config *config, const struct weights *weights,
                              struct err *err);
/* Fails with STATUS_BAD_FILE if they are not finite or out of range. */
enum status layers_check_xielu(const struct model_config *config, struct err *err);

#endif
