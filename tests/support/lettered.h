/* lettered: a vocabulary of letters, and random grammars over it, for tests of constrained
 * requests. */
#ifndef PENSTOCK_TESTS_LETTERED_H
#define PENSTOCK_TESTS_LETTERED_H

#include <stdint.h>

#include "engine/grammar/grammar.h"
#include "scheduler/sequence/thoughts.h"

/* The tokens are the strings of a, b, c and d in the order of their length. The last two have no
 * text. */
struct vocabulary *lettered_vocabulary(int V);

/* Returns a random limit on thoughts between letters of this vocabulary of V tokens. */
struct thought_limit draw_thoughts(uint64_t *random, const struct vocabulary *vocabulary, int V);

/* Returns a random grammar: a choice of texts, some of which are prefixes of others, or a pattern
 * that may continue, end early or end at one length. */
struct grammar *draw_grammar(uint64_t *random);

#endif
