/* DESIGN. A sequence's place in a grammar: the states behind each of its tokens.
 *
 * A mask (mask.c) is kept at the state, for every sequence that comes there. States are made and
 * freed while the grammar's lock is held, none that a matcher stands at is freed, and may_end never
 * changes, so matcher_may_end needs no lock. Where a matcher stands changes under the lock, because
 * whoever frees states looks at all matchers.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/automaton.h"

static void add_to_grammar(struct matcher *matcher) {
    pthread_mutex_lock(&matcher->grammar->lock);
    list_append(&matcher->grammar->matchers, &matcher->in_grammar);
    grammar_unlock(matcher->grammar);
}

struct matcher *matcher_new(struct grammar *grammar, const struct vocabulary *vocabulary) {
    struct matcher *matcher = mem_alloc(sizeof *matcher);
    *matcher = (struct matcher){
        .grammar = grammar_acquire(grammar), .vocabulary = vocabulary, .n = 1, .max = 256};
    matcher->states = mem_alloc(matcher->max * sizeof *matcher->states);
    matcher->states[0] = grammar->automaton.start;
    add_to_grammar(matcher);
    return matcher;
}

struct matcher *matcher_copy(const struct matcher *matcher) {
    struct matcher *copy = mem_alloc(sizeof *copy);
    *copy = *matcher;
    grammar_acquire(copy->grammar);
    copy->states = mem_alloc(copy->max * sizeof *copy->states);
    memcpy(copy->states, matcher->states, copy->n * sizeof *copy->states);
    copy->in_grammar = (struct list_node){0};
    add_to_grammar(copy);
    return copy;
}

void matcher_free(struct matcher *matcher) {
    if (!matcher) return;
    pthread_mutex_lock(&matcher->grammar->lock);
    list_remove(&matcher->grammar->matchers, &matcher->in_grammar);
    grammar_unlock(matcher->grammar);
    grammar_release(matcher->grammar);
    mem_free(matcher->states);
    mem_free(matcher);
}

static struct state *here(const struct matcher *matcher) {
    return matcher->states[matcher->n - 1];
}

bool matcher_may_end(const struct matcher *matcher) {
    return here(matcher)->may_end;
}

/* ---- masks ---------------------------------------------------------------------------------- */

static size_t mask_words(const struct vocabulary *v) {
    return ((size_t)v->V + 31) / 32;
}

static bool knows_mask(const struct matcher *matcher) {
    const struct state *state = here(matcher);
    return state->mask && state->mask->of == matcher->vocabulary->id;
}

/* Finds the mask of the matcher's state, unless it is known. The caller holds the lock. */
static bool find_mask(struct matcher *matcher, int64_t max_work) {
    struct grammar *grammar = matcher->grammar;
    struct state *state = here(matcher);
    if (knows_mask(matcher)) {
        if (state->n_wanted < UINT8_MAX) state->n_wanted++;
        return true;
    }
    grammar_collect(grammar);
    return mask_find(&grammar->automaton, matcher->vocabulary, state, max_work);
}

static bool has_any(const uint32_t *mask, const struct vocabulary *v) {
    bool any = false;
    for (size_t i = 0; i < mask_words(v) && !any; i++) any = mask[i] != 0;
    return any;
}

bool matcher_prepare(struct matcher *matcher, int max_work) {
    assert(max_work > 0);
    pthread_mutex_lock(&matcher->grammar->lock);
    bool is_known = find_mask(matcher, max_work);
    grammar_unlock(matcher->grammar);
    return is_known;
}

bool matcher_mask(struct matcher *matcher, uint32_t *mask) {
    const struct vocabulary *v = matcher->vocabulary;
    struct grammar *grammar = matcher->grammar;
    struct state *state = here(matcher);
    pthread_mutex_lock(&grammar->lock);
    find_mask(matcher, INT64_MAX);
    memcpy(mask, state->mask->bits, mask_words(v) * sizeof *mask);
    grammar_unlock(grammar);
    return state->may_end || has_any(mask, v);
}

bool matcher_may_go_on(struct matcher *matcher) {
    struct grammar *grammar = matcher->grammar;
    const struct vocabulary *v = matcher->vocabulary;
    struct state *state = here(matcher);
    pthread_mutex_lock(&grammar->lock);
    bool any = knows_mask(matcher) ? has_any(state->mask->bits, v)
                                   : mask_has_any(&grammar->automaton, v, state);
    grammar_unlock(grammar);
    return any;
}

/* ---- tokens --------------------------------------------------------------------------------- */

static void go_to(struct matcher *matcher, struct state *state) {
    if (matcher->n == matcher->max) {
        matcher->max *= 2;
        matcher->states = mem_realloc(matcher->states, matcher->max * sizeof *matcher->states);
    }
    matcher->states[matcher->n++] = state;
}

bool matcher_accept(struct matcher *matcher, int32_t id) {
    const struct vocabulary *v = matcher->vocabulary;
    struct automaton *a = &matcher->grammar->automaton;
    assert(id >= 0 && id < v->V);
    if (v->at[id] == v->at[id + 1]) return false;
    pthread_mutex_lock(&matcher->grammar->lock);
    struct state *state = here(matcher);
    for (uint32_t at = v->at[id]; at < v->at[id + 1] && state != a->dead; at++) {
        state = automaton_step(a, state, (uint8_t)v->bytes[at]);
    }
    if (state != a->dead) go_to(matcher, state);
    grammar_unlock(matcher->grammar);
    return state != a->dead;
}

void matcher_roll_back(struct matcher *matcher, int n) {
    assert(n >= 0 && (size_t)n < matcher->n);
    pthread_mutex_lock(&matcher->grammar->lock);
    matcher->n -= (size_t)n;
    grammar_unlock(matcher->grammar);
}

/* The only byte that may come, or -1 where there are several or the text may end. */
static int only_byte(struct automaton *a, struct state *state) {
    const struct network *network = a->network;
    int found = -1;
    if (state->may_end) return -1;
    for (int class = 0; class < network->n_classes; class ++) {
        struct state *next = state->next[class];
        if (!next) next = automaton_find(a, state, class);
        if (next == a->dead) continue;
        if (found >= 0 || network->size_of[class] != 1) return -1;
        found = network->first_of[class];
    }
    return found;
}

int matcher_forced(const struct matcher *matcher, char *bytes, int max) {
    struct automaton *a = &matcher->grammar->automaton;
    struct state *state = here(matcher);
    int n = 0;
    pthread_mutex_lock(&matcher->grammar->lock);
    while (n < max) {
        int byte = only_byte(a, state);
        if (byte < 0) break;
        bytes[n++] = (char)byte;
        state = automaton_step(a, state, (uint8_t)byte);
    }
    grammar_unlock(matcher->grammar);
    return n;
}

size_t grammar_match(struct grammar *grammar, const char *text, size_t n, bool *complete) {
    struct automaton *a = &grammar->automaton;
    struct state *state = a->start;
    size_t at = 0;
    pthread_mutex_lock(&grammar->lock);
    for (; at < n; at++) {
        struct state *next = automaton_step(a, state, (uint8_t)text[at]);
        if (next == a->dead) break;
        state = next;
    }
    *complete = state->may_end;
    grammar_unlock(grammar);
    return at;
}
