/* Garbage collection of an automaton's states. Sequences start and end, and counts and nesting
 * allow an unlimited number of states. States whose masks were reused keep them if there is room
 * for others. */
#include <assert.h>
#include <stdlib.h>

#include "engine/grammar/run/automaton.h"

/* Marked states and frames whose references were not visited yet. An explicit stack, since frames
 * nest as deeply as the text. */
struct marking {
    struct state **states;
    struct frame **frames;
    size_t n_states, max_states, n_frames, max_frames;
};

static void mark(struct marking *marking, struct state *state) {
    if (!state || state->is_marked) return;
    state->is_marked = true;
    if (marking->n_states == marking->max_states) {
        size_t max = marking->max_states ? 2 * marking->max_states : 256;
        marking->states = mem_realloc(marking->states, max * sizeof *marking->states);
        marking->max_states = max;
    }
    marking->states[marking->n_states++] = state;
}

static void mark_frame(struct marking *marking, const struct automaton *a, struct frame *frame) {
    bool is_here = frame >= a->here && frame <= a->here + a->network->n_rules;
    if (is_here || frame->is_marked) return;
    frame->is_marked = true;
    if (marking->n_frames == marking->max_frames) {
        size_t max = marking->max_frames ? 2 * marking->max_frames : 256;
        marking->frames = mem_realloc(marking->frames, max * sizeof *marking->frames);
        marking->max_frames = max;
    }
    marking->frames[marking->n_frames++] = frame;
}

/* Marks everything that is reachable from marked states. */
static void mark_all_behind(struct marking *marking, const struct automaton *a) {
    while (marking->n_states + marking->n_frames > 0) {
        if (marking->n_states > 0) {
            const struct state *state = marking->states[--marking->n_states];
            for (int i = 0; i < state->n_items; i++) mark_frame(marking, a, state->items[i].frame);
        } else {
            const struct frame *frame = marking->frames[--marking->n_frames];
            mark(marking, frame->origin);
            if (frame->ahead) mark_frame(marking, a, frame->far);
            for (int i = 0; i < frame->n_callers; i++)
                mark_frame(marking, a, frame->callers[i].frame);
        }
    }
    mem_free(marking->states);
    mem_free(marking->frames);
}

/* Was the mask reused? The sequence that computes a mask asks for it once more, so one request does
 * not count. */
static bool is_useful(const struct state *state) {
    return state->mask && state->n_wanted > 1;
}

static void mark_useful(struct marking *marking, const struct automaton *a) {
    for (uint32_t i = 0; i < a->n_buckets; i++) {
        for (struct state *s = a->buckets[i]; s; s = s->same_hash) {
            if (is_useful(s)) mark(marking, s);
        }
    }
}

/* Marks the states of matchers, the useful states, and all that these refer to. */
static void mark_used(struct grammar *grammar) {
    struct automaton *a = &grammar->automaton;
    struct marking marking = {0};
    mark(&marking, a->start);
    mark(&marking, a->dead);
    list_each(node, &grammar->matchers) {
        const struct matcher *matcher = list_entry(node, struct matcher, in_grammar);
        for (size_t i = 0; i < matcher->n; i++) mark(&marking, matcher->states[i]);
    }
    mark_useful(&marking, a);
    mark_all_behind(&marking, a);
}

/* Removes a marked state's references to states that will be freed. */
static void forget(struct automaton *a, struct state *state) {
    for (int i = 0; i < a->network->n_classes; i++) {
        if (state->next[i] && !state->next[i]->is_marked) state->next[i] = NULL;
    }
    for (int i = 0; i < N_SETS; i++) {
        const struct state *through = state->knows_through[i] ? state->through[i] : NULL;
        if (through && !through->is_marked) state->knows_through[i] = false;
    }
    for (struct known_frame **at = &state->frames, *known; (known = *at);) {
        if (known->frame->is_marked) {
            at = &known->next;
        } else {
            *at = known->next;
            mem_free(known);
        }
    }
    walk_free(state->walk);
    state->walk = NULL;
    if (is_useful(state)) return;
    mask_release(a, state->mask);
    state->mask = NULL;
}

static size_t bytes_of(const struct automaton *a, const struct state *state) {
    size_t bytes = sizeof *state + (size_t)a->network->n_classes * sizeof *state->next +
                   (size_t)state->n_items * sizeof *state->items;
    for (const struct known_frame *known = state->frames; known; known = known->next)
        bytes += sizeof *known;
    return bytes;
}

/* Frees unmarked states. Unmarks the others and returns their bytes. A mask is freed with its last
 * state. */
static size_t sweep(struct automaton *a) {
    size_t bytes = 0;
    for (uint32_t i = 0; i < a->n_buckets; i++) {
        for (struct state *s = a->buckets[i]; s; s = s->same_hash) {
            if (s->is_marked) forget(a, s);
        }
    }
    for (uint32_t i = 0; i < a->n_buckets; i++) {
        for (struct state **at = &a->buckets[i], *s; (s = *at);) {
            if (s->is_marked) {
                s->is_marked = false;
                s->n_wanted = 0;
                bytes += bytes_of(a, s);
                at = &s->same_hash;
            } else {
                *at = s->same_hash;
                a->n_states--;
                state_free(a, s);
            }
        }
    }
    return bytes;
}

static void free_unused(struct grammar *grammar) {
    struct automaton *a = &grammar->automaton;
    mark_used(grammar);
    size_t bytes = sweep(a);
    a->bytes = bytes + frames_sweep(a) + a->masks.bytes;
}

/* The first pass keeps useful states. It also resets n_wanted, so the second pass finds no useful
 * states. */
void grammar_collect(struct grammar *grammar) {
    struct automaton *a = &grammar->automaton;
    if (a->bytes <= a->max_bytes) return;
    free_unused(grammar);
    if (a->bytes > a->max_bytes / 2) free_unused(grammar);
    /* otherwise each call would collect */
    if (a->max_bytes < 2 * a->bytes) a->max_bytes = 2 * a->bytes;
}
