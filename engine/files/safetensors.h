/* safetensors: a file of tensors as the specification of Hugging Face's safetensors defines it: 8
 * bytes with the length of a header, the header in JSON, then the data of all tensors, one after
 * the other without gaps.
 *
 * Opening checks the header's bounds; listing checks each tensor (name, type, shape, that the shape
 * has as many bytes as its place) and that the tensors fill the data. Nothing is allocated by a
 * size that the file claims. Folder-internal; one thread opens and lists, then any may read.
 */
#ifndef PENSTOCK_ENGINE_SAFETENSORS_H
#define PENSTOCK_ENGINE_SAFETENSORS_H

#include "engine/files/mapping.h"
#include "engine/files/weights.h"

struct json;

struct safetensors {
    struct mapping file; /* unless the bytes are the caller's */
    size_t size;         /* bytes of the file */
    struct json *header; /* freed by safetensors_list */
    int n_tensors;       /* entries of the header */
    const uint8_t *data; /* [data_bytes] of the tensors */
    size_t data_bytes;
};

/* Maps the file at `path` and reads its header. Fails with STATUS_BAD_FILE and a sentence that
 * begins with the path. safetensors_close frees it, also after a failure. */
enum status safetensors_open(struct safetensors *out, const char *path, struct err *err);

/* The same over bytes in memory, which stay the caller's and must outlive the result. */
enum status safetensors_open_memory(struct safetensors *out, const void *data, size_t size,
                                    struct err *err);
void safetensors_close(struct safetensors *file);

/* Adds the tensors to `weights`, which has room for them; with `packed` also those of integers,
 * which are parts of packed matrices. Fails with STATUS_BAD_FILE, the tensor's
 * name, what was expected and what was found. Called once. */
enum status safetensors_list(struct safetensors *file, struct weights *weights, bool packed,
                             struct err *err);

/* Is the tensor one that some checkpoints hold though a model computes it (a mask, the frequencies
 * of rotary positions)? It is not listed. */
bool safetensors_is_computed(const char *name);

#endif
