/* quantise: converts float32 to the block formats of GGUF, in a simple way, for models that tests
 * make. The layouts follow the GGUF specification. The scale of a block is computed from its
 * extremes, without a search. */
#ifndef PENSTOCK_TESTS_QUANTISE_H
#define PENSTOCK_TESTS_QUANTISE_H

#include "kernels/dtype.h"

/* Converts n floats (whole blocks) to `type`: f32, f16, bf16, q8_0, q4_0 or q4_1. For other types
 * it writes random blocks of that size. `out` has room for dtype_bytes(type, n). */
void quantise(enum dtype type, const float *x, void *out, size_t n);

#endif
