/* shard: what of a model one rank has (tensor parallelism: Shoeybi et al. 2019).
 *
 *   q, k, v, gate, up   whole rows of outputs: a rank's share of the heads, of the MLP's width
 *   o, down             columns of inputs: what goes with those heads, with that width
 *   norms               all of them, on every rank
 *   embedding, head     on rank 0 alone
 *
 * So o and down give each rank a part of a sum over the whole width, and there the ranks add up.
 * Folder-internal. */
#ifndef PENSTOCK_ENGINE_SHARD_H
#define PENSTOCK_ENGINE_SHARD_H

#include "engine/engine.h"
#include "engine/weights.h"

/* One of `ranks` shards. */
struct shard {
    int rank, ranks;
};

/* How a matrix is shared out. */
enum split { SPLIT_NONE, SPLIT_OUTPUTS, SPLIT_INPUTS };

/* Can so many ranks share a model of the llama family? Fails with STATUS_USAGE, and says how many
 * can, where heads, the MLP's width, or the blocks of the file's types do not divide. */
enum status shard_check(const struct model_info *info, const struct weights *weights, int ranks,
                        struct err *err);

/* The model as one rank has it: with its share of H, G and F. */
struct model_info shard_info(const struct model_info *info, int ranks);

/* A shard's part of a matrix. */
struct piece {
    int N, K;
    const void *rows; /* in the matrix's own memory, or in `made` */
    void *made;
    size_t bytes; /* of it */
};

/* Cuts the shard's part out of a matrix of N rows of K, which is divisible. */
void piece_cut(struct piece *piece, struct shard shard, enum split split, enum dtype type, int N,
               int K, const void *rows);
void piece_free(struct piece *piece);

#endif
