/* weight_cache: the matrices of a model as the backend has laid them out, kept in a file
 * (--weight-cache), so that the next start maps them instead of reading the model's own and laying
 * them out again. Folder-internal; on the thread that opens the model. */
#ifndef PENSTOCK_ENGINE_WEIGHT_CACHE_H
#define PENSTOCK_ENGINE_WEIGHT_CACHE_H

#include "engine/models/model.h"

/* Takes all matrices of this rank from its file in the folder settings->weight_cache. False where
 * there is none, or where its bytes are not what was written, of which the log has a line; nothing
 * is taken then. The file's name changes with all that its bytes depend on: the model's files, the
 * settings, the rank, the program. */
bool weight_cache_take(struct model *model, const struct engine_config *settings);

/* Writes that file, when all is loaded. A full disk costs the file and a line of the log. */
void weight_cache_keep(const struct model *model, const struct engine_config *settings);

#endif
