#include "support/matcher_copy.h"

#include <string.h>

#include "engine/grammar/run/automaton.h"

struct matcher *matcher_copy(const struct matcher *matcher) {
    struct matcher *copy = matcher_new(matcher->grammar, matcher->vocabulary);
    struct state **states = mem_try_alloc(matcher->max * sizeof(struct state *));
    if (!copy || !states) {
        matcher_free(copy);
        mem_free(states);
        return NULL;
    }
    memcpy(states, matcher->states, matcher->n * sizeof(struct state *));
    pthread_mutex_lock(&copy->grammar->lock); /* collection reads all matchers */
    mem_free(copy->states);
    copy->states = states;
    copy->n = matcher->n;
    copy->max = matcher->max;
    grammar_unlock(copy->grammar);
    return copy;
}
