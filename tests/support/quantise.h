/* quantise: from float32 to the block formats of GGUF, the plain way, for models that tests make.
 * The layouts follow the GGUF specification; a block's scale is chosen from its extremes, without a
 * search. */
#ifndef PENSTOCK_TESTS_QUANTISE_H
#define PENSTOCK_TESTS_QUANTISE_H

#include "kernels/kernels.h"

/* Turns n floats (a whole number of blocks) into `type`, which is f32, f16, bf16, q8_0, q4_0 or
 * q4_1; of other types it makes random blocks of such a size. `out` has room for dtype_bytes(type,
 * n). */
void quantise(enum dtype type, const float *x, void *out, size_t n);

#endif
