/* shard: one rank's part of a model (roles.h says how each tensor is shared). Folder-internal. */
#ifndef PENSTOCK_ENGINE_SHARD_H
#define PENSTOCK_ENGINE_SHARD_H

#include "engine/files/tensors/weights.h"
#include "engine/models/families/roles.h"

/* One of `ranks` shards. */
struct shard {
    int rank, ranks;
};

/* Checks that `ranks` can share the model. Fails with STATUS_USAGE, and says which numbers of ranks
 * are possible, if they do not divide the heads, the MLP's width, the key heads or groups of
 * recurrent layers, or the blocks of the file's types. */
enum status shard_check(const struct model_config *config, const struct weights *weights, int ranks,
                        struct err *err);

/* Returns the config of one rank: with its share of H, G, F and the experts' widths. */
struct model_config shard_config(const struct model_config *config, int ranks);

/* The order of a tensor's rows or columns: `times` times the runs, each of n equal blocks. A shard
 * has its share of each block. */
enum { MAX_RUNS = 2 };
struct division {
    int times;
    struct {
        int n, size;
    } run[MAX_RUNS];
};

/* Returns the division of a tensor: of its `size` rows, or if ranks share its inputs, of its `size`
 * columns. */
struct division shard_division(const struct model_config *config, enum role role, int size);

/* A shard's part of a matrix. */
struct piece {
    int N, K;
    const void *rows; /* in the matrix's memory, or in `copy` */
    void *copy;
    size_t bytes; /* of `copy` */
};

/* Cuts the shard's part out of a divisible matrix of N rows of K. `division` is of the rows or
 * columns that are cut. piece_free frees it. */
void piece_cut(struct piece *piece, struct shard shard, enum split split,
               const struct division *division, enum dtype type, int N, int K, const void *rows);
void piece_free(struct piece *piece);

#endif
