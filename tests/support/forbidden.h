/* Random lists of forbidden tokens: a bitmap of allowed ids, and words of several tokens, some of
 * which are due at the end of an output. */
#ifndef PENSTOCK_TESTS_FORBIDDEN_H
#define PENSTOCK_TESTS_FORBIDDEN_H

#include "kernels/sampling.h"

/* Fills allowed[(V + 31) / 32]: each id with a chance of `percent`, at least one id. The bits
 * beyond V are random, too. */
void draw_allowed(uint64_t *state, uint32_t *allowed, int V, int percent);

/* Fills words[n], in order. The tokens before the last are copied from a random place of the
 * history's output; in one of four words, one token is changed. */
void draw_bad_words(uint64_t *state, struct bad_word *words, int n, int V, const int32_t *output,
                    int n_output);

#endif
