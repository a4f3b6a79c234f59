/* folder_names: from the names that tensors have in a folder to the engine's. Folder-internal. */
#ifndef PENSTOCK_ENGINE_FOLDER_NAMES_H
#define PENSTOCK_ENGINE_FOLDER_NAMES_H

#include "engine/files/model_file.h"
#include "engine/models/families/family.h"

/* Gives the tensors of a folder the names that the engine asks by, and notes which optional ones
 * are there. All that are missing, of another shape, or unknown to the family are named in one
 * sentence. Of a model with several parts (text_config) the tensors of what sees or hears are left
 * out, and a line of the log says so. */
enum status folder_names_read(struct model_config *config, struct weights *weights,
                              const struct model_family *family, const struct hf_config *hf,
                              struct err *err);

#endif
