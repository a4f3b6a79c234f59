/* weight_cache: a file of a model's matrices in the backend's layout (--weight-cache). The next
 * start maps them instead of reading and converting the model's files. Folder-internal; on the
 * thread that opens the model. */
#ifndef PENSTOCK_ENGINE_WEIGHT_CACHE_H
#define PENSTOCK_ENGINE_WEIGHT_CACHE_H

#include "engine/models/model.h"

/* Maps all matrices of this rank from its file in the folder settings->weight_cache. Returns false
 * and maps nothing if the file does not exist or its checksums are wrong; the latter is logged. The
 * file's name depends on everything that its bytes depend on: the model's files, the settings, the
 * rank, the program. */
bool weight_cache_take(struct model *model, const struct engine_config *settings);

/* Writes the file after everything is loaded. If the disk is full, it writes no file and logs a
 * line. */
void weight_cache_keep(const struct model *model, const struct engine_config *settings);

#endif
