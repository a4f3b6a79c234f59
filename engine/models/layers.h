/* layers: the differences between a model's layers: windows, heads, and shared keys and values.
 * Folder-internal. */
#ifndef PENSTOCK_ENGINE_LAYERS_H
#define PENSTOCK_ENGINE_LAYERS_H

#include "engine/files/model_file.h"
#include "engine/models/families/family.h"

/* Makes the first layer after the model's own the last of its layers, if the file was opened to
 * guess ahead (ahead.c). Fails with STATUS_BAD_FILE if the model lacks one. */
enum status layers_add_ahead(struct model_config *config, const struct model_file *file,
                             const struct model_family *family, struct err *err);
/* Reads and checks the EAGLE-3 head with which the file was opened, and makes it the last of the
 * layers (eagle.c). Fails with STATUS_BAD_FILE; messages name the head's folder.
 * eagle_check_model then checks that the head's kind of layer can follow the model's. */
enum status eagle_add(struct model_config *config, const struct model_file *file, struct err *err);
enum status eagle_check_model(const struct model_config *config, struct err *err);

/* Returns the config of the head as a model: its sizes, norms and rotation are its own, and the
 * numbers of layers are the model's. mem_free frees it. */
struct model_config *eagle_config_new(const struct model_config *config);

/* Is it a tensor of that layer that copies the model's embedding or head? The layer uses the
 * model's. */
bool layers_shares_tensor(const struct model_config *config, int layer, const char *name);

/* Is it the tensor of a part of a convolution: of q, k or v? `name` is GGUF's whole name. */
bool layers_has_part(const struct model_config *config, enum role role, int layer,
                     const char *name);

/* Derives the settings of each layer from the file's values and checks them. Call it before the
 * tensors' shapes are needed. Fails with STATUS_BAD_FILE. */
enum status layers_finish(struct model_config *config, struct err *err);

/* Checks that the widths of experts are whole panels and tiles, that all experts together stay
 * below INT32_MAX rows, and that groups divide them. Sets the widths that follow from others. Fails
 * with STATUS_BAD_FILE. */
enum status layers_check_experts(struct model_config *config, struct err *err);

/* Fails with STATUS_BAD_FILE if layers have windows that the family does not support. */
enum status layers_check_windows(const struct model_config *config,
                                 const struct model_family *family, struct err *err);

/* Adds the tensors of latent attention that depend on its ranks. A GGUF file has each head's
 * matrices in one tensor, or in newer files in two; `weights` is NULL for a folder. */
void layers_add_latents(struct model_config *config, const struct weights *weights);

/* Finds the layers whose values are their keys. A GGUF file does not have a key for this: they are
 * the layers without a tensor of values. Only for families that allow it. */
void layers_find_values(struct model_config *config, const struct weights *weights);

/* Moves the numbers of xIELU from a folder's tensors to the layers. */
enum status layers_read_xielu(struct model_config *config, const struct weights *weights,
                              struct err *err);
/* Fails with STATUS_BAD_FILE if they are not finite or out of range. */
enum status layers_check_xielu(const struct model_config *config, struct err *err);
/* Returns them for the op of a layer; all 0 in a model without xIELU. */
struct xielu xielu_of(const struct model_config *config, int layer);

#endif
