/* engine/quantise: float weights become blocks, while a model is loaded (--quantization) or into a
 * file (`penstock quantize`). Both choose the same type for a tensor and round alike, so a file
 * that was quantised gives the answers of one that is quantised at each start. */
#ifndef PENSTOCK_ENGINE_QUANTISE_H
#define PENSTOCK_ENGINE_QUANTISE_H

#include "engine/files/model_file.h"
#include "kernels/kernels.h"

/* The type that a matrix of rows of K becomes; its own where it stays: what is no float, rows that
 * are not whole blocks, positions, and matrices that choose experts. `name` is GGUF's, with or
 * without its layer. The embedding and the head become Q6_K where the layers have fewer bits,
 * because their errors go straight into the logits; rows that do not fit 256 become Q5_0 in the
 * place of Q4_K, and Q8_0 in that of Q6_K. */
enum dtype quantised_type(enum quantization wanted, const char *name, enum dtype type, int64_t K);

/* Bytes of the data of all tensors once they are quantised. Equal to what they have: there is
 * nothing to quantise. */
int64_t quantised_bytes(const struct weights *weights, enum quantization wanted);

/* Bytes of weights that a model of a file of `file_bytes` is planned with: quantised, or with those
 * that are looked up in the types that they are kept as. */
int64_t planned_bytes(const struct weights *weights, enum quantization wanted, int64_t file_bytes);

/* out[n_rows][K] of type `to` from rows of a float type, on all threads of the backend. */
void quantise_rows(struct backend *b, enum dtype to, void *out, enum dtype from, const void *rows,
                   int64_t n_rows, int K);

/* Rows [n_rows][K] of a type that is looked up, in the type that they are kept as, made on all
 * threads: mem_large of *bytes, which is set, for the caller to free. */
void *kept_rows(struct backend *b, enum dtype type, const void *rows, int64_t n_rows, int K,
                size_t *bytes);

#endif
