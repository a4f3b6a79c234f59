/* adapter_file: adapters with random numbers for any model, as GGUF files. The same description
 * gives the same bytes. */
#ifndef PENSTOCK_TESTS_ADAPTER_FILE_H
#define PENSTOCK_TESTS_ADAPTER_FILE_H

#include "engine/models/model.h"

struct made_adapter {
    int rank;
    float alpha; /* 0: no key, which stands for a scale of 1 */
    uint64_t seed;
    enum role only; /* 0: all projections that the model has in its layers; else only this one */
    enum dtype a_type, b_type; /* of the tensors: F32, F16 or BF16 */
    enum dtype rounds_to;      /* numbers are rounded to this type first; F32: they stay */
};

/* Appends the bytes of a GGUF file that adapts the model's projections. Numbers have about the
 * size at which the adapter changes most tokens of a tiny model. */
void adapter_file_bytes(const struct made_adapter *made, const struct model_config *config,
                        struct buf *out);

/* Writes it to a new file below $TMPDIR or /tmp. The caller deletes the file and frees the path
 * with free(). */
char *adapter_file_temporary(const struct made_adapter *made, const struct model_config *config);

#endif
