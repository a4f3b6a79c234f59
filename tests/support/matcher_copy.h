/* A second matcher of the same sequence, to compare walks. */
#ifndef PENSTOCK_TESTS_MATCHER_COPY_H
#define PENSTOCK_TESTS_MATCHER_COPY_H

#include "engine/grammar/grammar.h"

/* Returns a matcher at the same position, with the same history to roll back. NULL: memory is
 * short. */
struct matcher *matcher_copy(const struct matcher *matcher);

#endif
