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

/* out[n_rows][K] of type `to` from rows of a float type, on all threads of the backend. */
void quantise_rows(struct backend *b, enum dtype to, void *out, enum dtype from, const void *rows,
                   int64_t n_rows, int K);

#endif
