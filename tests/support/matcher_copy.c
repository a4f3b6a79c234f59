#include "support/matcher_copy.h"

#include <string.h>

#include "engine/grammar/run/automaton.h"

struct matcher *matcher_copy(const struct matcher *matcher) {
    struct matcher *copy = matcher_new(matcher->grammar, matcher->vocabulary);
    struct state **states = mem_try_alloc(matcher->max * sizeof(struct state *));
    int32_t *tokens = mem_try_alloc(matcher->max * sizeof *tokens);
    if (!copy || !states || !tokens) {
        matcher_free(copy);
        mem_free(states);
        mem_free(tokens);
        return NULL;
    }
    memcpy(states, matcher->states, matcher->n * sizeof(struct state *));
    memcpy(tokens, matcher->tokens, matcher->n * sizeof *tokens);
    pthread_mutex_lock(&copy->grammar->lock); /* collection reads all matchers */
    mem_free(copy->states);
    mem_free(copy->tokens);
    copy->states = states;
    copy->tokens = tokens;
    copy->n = matcher->n;
    copy->max = matcher->max;
    grammar_unlock(copy->grammar);
    return copy;
}
