/* engine/quantise: quantises float weights, while a model is loaded (--quantization) or into a file
 * (`penstock quantize`). Both choose the same types and round in the same way, so a quantised file
 * gives the same answers as a model that is quantised at each start. */
#ifndef PENSTOCK_ENGINE_QUANTISE_H
#define PENSTOCK_ENGINE_QUANTISE_H

#include "engine/files/model_file.h"
#include "kernels/dtype.h"

struct backend;

/* Returns the type of a matrix of rows of K after quantisation. The type stays the same if it is
 * not a float type, if rows are not whole blocks, for positions, and for routers. `name` is GGUF's,
 * with or without its layer. The embedding and the head become Q6_K if the layers have fewer bits,
 * because their errors affect the logits directly. If rows do not fit blocks of 256, Q5_0 replaces
 * Q4_K and Q8_0 replaces Q6_K. */
enum dtype quantised_type(enum quantization wanted, const char *name, enum dtype type, int64_t K);

/* Returns the bytes of all tensors after quantisation. If this equals their current size, there is
 * nothing to quantise. */
int64_t quantised_bytes(const struct weights *weights, enum quantization wanted);

/* Returns the planned bytes of weights for a model file of `file_bytes`: quantised, or with
 * LOOKUP_TYPES in their converted types. */
int64_t planned_bytes(const struct weights *weights, enum quantization wanted, int64_t file_bytes);

/* out[n_rows][K] of type `to` from rows of a float type, on all threads of the backend. */
void quantise_rows(struct backend *b, enum dtype to, void *out, enum dtype from, const void *rows,
                   int64_t n_rows, int K);

/* Converts rows [n_rows][K] of a LOOKUP_TYPE to the type in which they are stored, on all threads.
 * Returns mem_large memory of *bytes, which the caller frees. */
void *kept_rows(struct backend *b, enum dtype type, const void *rows, int64_t n_rows, int K,
                size_t *bytes);

#endif
