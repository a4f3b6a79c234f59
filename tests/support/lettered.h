/* lettered: a vocabulary of letters, and grammars drawn at random over it, for tests of what runs
 * constrained requests. */
#ifndef PENSTOCK_TESTS_LETTERED_H
#define PENSTOCK_TESTS_LETTERED_H

#include <stdint.h>

#include "engine/grammar/grammar.h"

/* The strings of a, b, c and d by their length are the tokens of V; the last two have no text. */
struct vocabulary *lettered_vocabulary(int V);

/* One of several kinds: texts to choose from, of which some begin others, or a pattern that may go
 * on, end early or end at one length. */
struct grammar *draw_grammar(uint64_t *random);

#endif
