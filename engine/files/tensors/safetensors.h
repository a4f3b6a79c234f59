/* safetensors: a file of tensors by the specification of Hugging Face's safetensors: 8 bytes with
 * the length of a header, the header in JSON, then the data of all tensors, adjacent and without
 * gaps.
 *
 * Opening checks the header's bounds. Listing checks each tensor (its name, its type, and that its
 * shape fits the bytes of its place) and that the tensors fill the data. No allocation has a size
 * that the file claims. One thread opens and lists, then any thread may read.
 */
#ifndef PENSTOCK_ENGINE_SAFETENSORS_H
#define PENSTOCK_ENGINE_SAFETENSORS_H

#include "engine/files/tensors/mapping.h"
#include "engine/files/tensors/weights.h"

struct json;

struct safetensors {
    struct mapping file; /* empty if the caller owns the bytes */
    size_t size;         /* bytes of the file */
    struct json *header; /* freed by safetensors_list */
    int n_tensors;       /* entries of the header */
    int n_computed;      /* tensors that are not listed, because the engine computes them */
    const uint8_t *data; /* [data_bytes] of the tensors */
    size_t data_bytes;
};

/* Maps the file at `path` and reads its header. Fails with STATUS_BAD_FILE and a sentence that
 * begins with the path. safetensors_close frees it, also after a failure. */
enum status safetensors_open(struct safetensors *out, const char *path, struct err *err);

/* Opens a file whose bytes are in memory. The caller owns the bytes; they must outlive the
 * result. */
enum status safetensors_open_memory(struct safetensors *out, const void *data, size_t size,
                                    struct err *err);
void safetensors_close(struct safetensors *file);

/* Adds the tensors to `weights`, which must have capacity for them; with `packed` also integer
 * tensors, the parts of packed matrices. Fails with STATUS_BAD_FILE, the tensor's name, the
 * expected and the found value. Call it once. */
enum status safetensors_list(struct safetensors *file, struct weights *weights, bool packed,
                             struct err *err);

/* Does the model compute this tensor (a mask, the frequencies of rotary positions), although some
 * checkpoints contain it? Such tensors are not listed. */
bool safetensors_is_computed(const char *name);

#endif
