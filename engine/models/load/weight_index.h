/* weight_index: the index of a weight cache file (weight_cache.h): its matrices, and checksums of
 * their bytes.
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
    uint64_t key;         /* hash of everything that the bytes depend on */
    uint64_t file_bytes;  /* of the whole file */
    uint64_t n_matrices;  /* entries after the header */
    uint64_t n_pieces;    /* checksums after the entries */
    uint64_t entries_sum; /* weight_index_sum of the entries and checksums */
};

/* One matrix: its place in the model, its type and shape, and the place of its bytes in the file.
 */
struct weight_entry {
    int32_t layer, role; /* layer -1: outside the layers */
    int32_t type, N, K, unused;
    uint64_t at, bytes;
};

/* The index of a model in memory, or of a file. */
struct weight_index {
    uint64_t key;
    size_t n, n_pieces;
    struct weight_entry *entry; /* [n] */
    const uint8_t **data;       /* [n] the matrices' bytes in memory */
    uint64_t *sum;              /* [n_pieces] checksums of their pieces, matrix after matrix */
    uint64_t end;               /* the file's size */
};

extern const char weight_magic[8];

/* Bytes of a piece with one checksum. The last piece of a matrix may be shorter. */
enum { WEIGHT_PIECE_BYTES = 4 << 20 };

/* Reads the index of a file's bytes, which must outlive it. Returns false unless the file has the
 * key index->key, exactly the matrices of the model's rank in their shapes, each within the file,
 * and a checksum for each piece. Counts in the file are checked before they set the size of an
 * allocation. weight_index_free frees the index, also after false. */
bool weight_index_read(struct weight_index *index, const struct model *model, const void *file,
                       size_t size);
void weight_index_free(struct weight_index *index);

/* Do the bytes of all pieces have the recorded checksums? Runs on the backend's threads. */
bool weight_index_is_right(const struct weight_index *index, struct backend *b);

/* Lists the matrices of a model in the order of a pass, and computes the checksums of their bytes.
 */
void weight_index_model(struct weight_index *index, const struct model *model);

/* Writes a whole file. Returns false if a write fails; errno has the reason. */
bool weight_index_write(FILE *file, const struct weight_index *index);

/* Returns the checksum of entries and checksums, for the header. */
uint64_t weight_index_sum(const struct weight_index *index);

/* Returns the tensors of a layer, or for -1 those outside the layers. */
struct tensors *weight_index_tensors(const struct model *model, int layer);

#endif
