/* Shared by the files of engine/adapters/. A reader of a format (peft.c, gguf.c) lists the pairs of
 * tensors of a file; parts.c checks them and makes the parts of an adapter. */
#ifndef PENSTOCK_ENGINE_ADAPTERS_INTERNAL_H
#define PENSTOCK_ENGINE_ADAPTERS_INTERNAL_H

#include "engine/adapters/adapters.h"
#include "engine/models/families/family.h"

/* The two tensors of a projection. Dimensions are in GGUF's order. */
struct low_rank_pair {
    const struct weight *a; /* {K, rank}; NULL: not found */
    const struct weight *b; /* {rank, N} */
    float scale;
};

/* An adapter's file while it is read. */
struct adapter_file {
    const char *path;
    struct model *model;
    bool in_gguf;
    struct low_rank_pair *pairs; /* [L][N_ROLES] */
    struct err *err;
};

/* Adds a tensor, half 'a' or 'b' of the projection `role` of a layer. `layer` is -1 outside of
 * layers. Fails with STATUS_BAD_FILE if adapters cannot change that projection, or if it has that
 * half already. */
enum status pair_add(struct adapter_file *file, const struct weight *weight, char half,
                     enum role role, int layer, float scale);

/* Makes an adapter of all pairs for each rank. Fails as adapter_read does. */
enum status parts_make(struct adapter **out, const struct adapter_file *file,
                       const struct adapter_limits *limits);

/* The readers: each opens the file, adds its pairs, makes the adapter and closes the file. */
enum status peft_read(struct adapter **out, struct adapter_file *file,
                      const struct adapter_limits *limits);
enum status gguf_adapter_read(struct adapter **out, struct adapter_file *file,
                              const struct adapter_limits *limits);

/* Does the model have projections in the file's order of a head's numbers? If not, rows of queries
 * and keys are moved. */
enum rope_layout adapter_layout(const struct adapter_file *file);

/* Is `name` one of the model's names in GGUF files? */
bool adapter_is_for(const struct model_config *config, const char *name, size_t length);

#endif
