/* engine/adapters: reads low-rank adapters (LoRA: Hu et al. 2021) of a loaded model, from a folder
 * of PEFT (adapter_config.json and adapter_model.safetensors) or from a GGUF file (general.type
 * "adapter"). The door of the room.
 *
 * An adapter is refused as a whole if any part of it could not be applied exactly. The message is
 * one sentence and names the tensor or key. Any thread may read adapters; the model is only read.
 */
#ifndef PENSTOCK_ENGINE_ADAPTERS_H
#define PENSTOCK_ENGINE_ADAPTERS_H

#include "engine/models/model.h"

enum { MAX_ADAPTER_RANK = 256 };

/* What an adapter may take. */
struct adapter_limits {
    int rank;      /* the largest rank of a part, 1..MAX_ADAPTER_RANK */
    int64_t bytes; /* of its numbers, on all ranks together */
};

/* Reads the adapter at `path` into out[ranks of the model], one for each rank. The caller frees
 * them with adapter_free. Fails with STATUS_BAD_FILE if the adapter is broken, was made for another
 * model or needs an unsupported feature, and with STATUS_USAGE if it exceeds a limit. */
enum status adapter_read(struct adapter **out, const char *path, struct model *model,
                         const struct adapter_limits *limits, struct err *err);

/* Returns the bytes of the numbers of an adapter of that rank that changes every matrix of a model
 * that it may change, on all of `ranks` ranks together. An upper bound, before the model is
 * loaded. */
int64_t adapter_most_bytes(const struct model_config *config, int rank, int ranks);

#endif
