/* Random lists of what a sample may not choose: a bitmap of allowed ids, and words of several
 * tokens, of which some are due at the end of an output. */
#ifndef PENSTOCK_TESTS_FORBIDDEN_H
#define PENSTOCK_TESTS_FORBIDDEN_H

#include "kernels/kernels.h"

/* Fills allowed[(V + 31) / 32]: each id with `percent`, at least one of them. The bits beyond V are
 * random too. */
void draw_allowed(uint64_t *state, uint32_t *allowed, int V, int percent);

/* Fills words[n], in their order. The tokens before the last are those of the history's output,
 * from a random place on, or, in one of four, with one changed. */
void draw_bad_words(uint64_t *state, struct bad_word *words, int n, int V, const int32_t *output,
                    int n_output);

#endif
