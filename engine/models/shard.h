/* shard: what of a model one rank has (roles.h says how each tensor is shared). Folder-internal. */
#ifndef PENSTOCK_ENGINE_SHARD_H
#define PENSTOCK_ENGINE_SHARD_H

#include "engine/files/weights.h"
#include "engine/models/families/roles.h"

/* One of `ranks` shards. */
struct shard {
    int rank, ranks;
};

/* Can so many ranks share the model? Fails with STATUS_USAGE, and says how many can, where heads,
 * the MLP's width, or the blocks of the file's types do not divide. */
enum status shard_check(const struct model_config *config, const struct weights *weights, int ranks,
                        struct err *err);

/* The model as one rank has it: with its share of H, G, F and the experts' widths. */
struct model_config shard_config(const struct model_config *config, int ranks);

/* A shard's part of a matrix. */
struct piece {
    int N, K;
    const void *rows; /* in the matrix's own memory, or in `copy` */
    void *copy;
    size_t bytes; /* of it */
};

/* Cuts the shard's part out of a matrix of N rows of K, which is divisible: of each of `blocks`
 * equal blocks of rows where these are experts, else 1. piece_free frees it. */
void piece_cut(struct piece *piece, struct shard shard, enum split split, int blocks,
               enum dtype type, int N, int K, const void *rows);
void piece_free(struct piece *piece);

#endif
