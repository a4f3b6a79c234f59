/* Loads a model: copies the tensors of its file, or this rank's parts, into the backend's layout.
 * The public header of engine/models/load/, on the thread that opens the model.
 *
 *   load.c          each role's tensor, the activation buffers, closing
 *   load_experts.c  tensors whose layout in files is another one
 *   positions.c     numbers of positions
 *   load_check.c    the scales of quantised blocks
 *   weight_cache.c  the file of --weight-cache, whose index is weight_index.c
 */
#ifndef PENSTOCK_ENGINE_LOAD_H
#define PENSTOCK_ENGINE_LOAD_H

#include "engine/models/model.h"

/* Loads all weights and allocates the activation buffers. In `model`, only config, shard, backend
 * and adapters are set; the rest is zero. After a failure the caller still unloads it. */
enum status model_load(struct model *model, const struct weights *weights,
                       const struct engine_config *settings, struct err *err);

/* Frees the results of model_load, which other threads do not read. The rest stays: config, shard,
 * limits of rows, adapters. The model may be loaded again with another backend. */
void model_unload(struct model *model);

/* Copies N rows of K out of columns that are `column` numbers long; row n is entry n * step of each
 * column. A number has `size` bytes. Tiles keep both sides in the cache. */
void turn_rows(char *rows, const char *from, size_t N, size_t K, size_t column, size_t step,
               size_t size);

/* Allocates the buffers of a pass (model_buffers) for the rows of a step; frees those that were
 * allocated. Fails with STATUS_USAGE if memory is short. */
enum status activations_open(struct model *model, const struct engine_config *settings,
                             struct err *err);
void activations_close(struct model *model);

#endif
