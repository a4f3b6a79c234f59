/* Frees what an automaton has found and nobody stands at: sequences come and go, and with counts
 * and nesting there is no end of states. */
#include <assert.h>
#include <stdlib.h>

#include "engine/grammar/automaton.h"

/* States that are in use and whose items were not looked at yet. */
struct marking {
    struct state **stack;
    size_t n, max;
};

static void mark(struct marking *marking, struct state *state) {
    if (!state || state->is_marked) return;
    state->is_marked = true;
    if (marking->n == marking->max) {
        marking->max = marking->max ? 2 * marking->max : 256;
        marking->stack = mem_realloc(marking->stack, marking->max * sizeof *marking->stack);
    }
    marking->stack[marking->n++] = state;
}

/* Marks what matchers hold, and the states where rules of these began. */
static void mark_used(struct grammar *grammar) {
    struct automaton *a = &grammar->automaton;
    struct marking marking = {0};
    mark(&marking, a->start);
    mark(&marking, a->dead);
    list_each(node, &grammar->matchers) {
        const struct matcher *matcher = list_entry(node, struct matcher, in_grammar);
        for (size_t i = 0; i < matcher->n; i++) mark(&marking, matcher->states[i]);
    }
    while (marking.n > 0) {
        const struct state *state = marking.stack[--marking.n];
        for (int i = 0; i < state->n_items; i++) mark(&marking, state->items[i].frame->origin);
    }
    free(marking.stack);
}

/* Forgets what a state that stays knows of those that go. */
static void forget(struct automaton *a, struct state *state) {
    for (int i = 0; i < a->network->n_classes; i++) {
        if (state->next[i] && !state->next[i]->is_marked) state->next[i] = NULL;
    }
    for (int i = 0; i < N_SETS; i++) {
        if (!state->through[i] || state->through[i]->is_marked) continue;
        state->through[i] = NULL;
        state->knows_through[i] = false;
    }
    free(state->mask);
    walk_free(state->walk);
    state->mask = NULL;
    state->walk = NULL;
}

static size_t bytes_of(const struct automaton *a, const struct state *state) {
    size_t bytes = sizeof *state + (size_t)a->network->n_classes * sizeof *state->next +
                   (size_t)state->n_items * sizeof *state->items;
    for (const struct frame *f = state->frames; f; f = f->next) bytes += sizeof *f;
    return bytes;
}

void grammar_collect(struct grammar *grammar) {
    struct automaton *a = &grammar->automaton;
    if (a->bytes <= a->max_bytes) return;
    mark_used(grammar);
    for (uint32_t i = 0; i < a->n_buckets; i++) {
        for (struct state *s = a->buckets[i]; s; s = s->same_hash) {
            if (s->is_marked) forget(a, s);
        }
    }
    a->bytes = 0;
    for (uint32_t i = 0; i < a->n_buckets; i++) {
        for (struct state **at = &a->buckets[i], *s; (s = *at);) {
            if (s->is_marked) {
                s->is_marked = false;
                a->bytes += bytes_of(a, s);
                at = &s->same_hash;
            } else {
                *at = s->same_hash;
                a->n_states--;
                state_free(s);
            }
        }
    }
    if (a->max_bytes < 2 * a->bytes) a->max_bytes = 2 * a->bytes; /* else each call would collect */
}
