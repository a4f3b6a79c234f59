/* weight_index: what a file of kept weights (weight_cache.h) says of its matrices, and of the sums
 * of their bytes.
 *
 *   file      header, matrices, sums of pieces, padding, the matrices' bytes, each 64-byte aligned
 *
 * Folder-internal; one thread at a time. */
#ifndef PENSTOCK_ENGINE_WEIGHT_INDEX_H
#define PENSTOCK_ENGINE_WEIGHT_INDEX_H

#include <stdio.h>

#include "engine/models/model.h"

struct weight_header {
    char magic[8];        /* weight_magic */
    uint64_t key;         /* of all that the bytes depend on */
    uint64_t file_bytes;  /* of the whole file */
    uint64_t n_matrices;  /* entries after the header */
    uint64_t n_pieces;    /* sums after the entries */
    uint64_t entries_sum; /* of entries and sums: weight_index_sum */
};

/* One matrix: where it belongs, what it is, and where its bytes are in the file. */
struct weight_entry {
    int32_t layer, role; /* layer -1: of none */
    int32_t type, N, K, unused;
    uint64_t at, bytes;
};

/* What is kept of a model, or found in a file. */
struct weight_index {
    uint64_t key;
    size_t n, n_pieces;
    struct weight_entry *entry; /* [n] */
    const uint8_t **data;       /* [n] where their bytes are in memory */
    uint64_t *sum;              /* [n_pieces] of their pieces, matrix after matrix */
    uint64_t end;               /* of the file */
};

extern const char weight_magic[8];

/* Bytes of a piece, which has a sum of its own. The last one of a matrix may be shorter. */
enum { WEIGHT_PIECE_BYTES = 4 << 20 };

/* Reads the index of a file's bytes, which must outlive it. False if it is not one of index->key
 * with exactly the matrices of the model's rank, in their shapes, each within the file, and a sum
 * for each piece. No count of the file decides how much is allocated before it is checked.
 * weight_index_free frees it, also then. */
bool weight_index_read(struct weight_index *index, const struct model *model, const void *file,
                       size_t size);
void weight_index_free(struct weight_index *index);

/* Are the bytes of all pieces those that were summed? On the backend's threads. */
bool weight_index_is_right(const struct weight_index *index, struct backend *b);

/* Lists the matrices of a model in the order in which a pass reads them, and sums their bytes. */
void weight_index_model(struct weight_index *index, const struct model *model);

/* Writes a whole file. False if a write fails: errno says why. */
bool weight_index_write(FILE *file, const struct weight_index *index);

/* The sum of entries and sums, for the header. */
uint64_t weight_index_sum(const struct weight_index *index);

/* The tensors of a layer; of -1: those of none. */
struct tensors *weight_index_tensors(const struct model *model, int layer);

#endif
