/* layers: the differences between a model's layers: windows, heads, and shared keys and values.
 * Folder-internal. */
#ifndef PENSTOCK_ENGINE_LAYERS_H
#define PENSTOCK_ENGINE_LAYERS_H

#include "engine/files/tensors/weights.h"
#include "engine/models/families/family.h"

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

struct model;
struct tensors;
struct kv_cache;

/* Returns a layer's product with its bias (N_ROLES: none) and its adapters. */
struct linear linear_of(const struct tensors *t, enum role w, enum role bias);

/* The same for the last product of a branch: with the residual scale. */
struct linear ending_of(const struct model *model, const struct tensors *t, enum role w,
                        enum role bias);

/* forward_recurrent.c: attn_out = the recurrent layer of norm(x), and the states of the step's
 * sequences; and the layer's last product. Called by the thread that runs the pass. */
void recurrent_layer(struct model *model, int layer, int M, struct kv_cache *cache);
struct linear recurrent_output(const struct model *model, int layer);

/* Moves the numbers of xIELU from a folder's tensors to the layers. */
enum status layers_read_xielu(struct model_config *config, const struct weights *weights,
                              struct err *err);
/* Fails with STATUS_BAD_FILE if they are not finite or out of range. */
enum status layers_check_xielu(const struct model_config *config, struct err *err);

/* The outputs of a layer's attention or state, before their last product. */
struct mixed {
    const float *attn_out;
    const float *state_out; /* NULL: the layer does not have both */
};

/* Returns the numbers of xIELU in a layer of a model that has it. */
struct xielu xielu_of(const struct model *model, const struct tensors *t);

/* forward_latent.c: writes the latent vectors and rotated keys of a layer's M rows to the cache,
 * and if rows are read, the output of attention to attn_out. */
void latent_mix(struct model *model, int layer, int M, bool is_read, struct kv_cache *cache);

#endif
