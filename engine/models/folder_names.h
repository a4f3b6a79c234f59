/* folder_names: from the tensor names of a folder to the engine's. Folder-internal. */
#ifndef PENSTOCK_ENGINE_FOLDER_NAMES_H
#define PENSTOCK_ENGINE_FOLDER_NAMES_H

#include "engine/files/model_file.h"
#include "engine/models/families/family.h"

/* Returns the family, or its form for folders with fused experts if `weights` has such a tensor. */
const struct model_family *folder_style_choose(const struct model_family *family,
                                               const struct weights *weights);

/* Sets the values of `hf` that depend on the family. Call it before the config is read. */
void folder_style_begin(struct hf_config *hf, const struct model_family *family);

/* Gives the tensors of a folder the engine's names, and records which optional ones exist. Fails
 * with one sentence that names the missing tensors, those of another shape, and those unknown to
 * the family. In a model with several parts (text_config), the tensors for vision and audio are
 * left out, and a log line says so. */
enum status folder_names_read(struct model_config *config, struct weights *weights,
                              const struct model_family *family, const struct hf_config *hf,
                              struct err *err);

/* Returns the usual name, after "layers.<layer>.", of a tensor of the layer that guesses ahead, if
 * `rest` is one of Qwen's own names for it; otherwise NULL (ahead.c). */
const char *folder_ahead_name(const char *rest);

#endif
