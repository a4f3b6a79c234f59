/* Which states take all characters of a slice: the inside of strings and of free text, where a walk
 * over the whole vocabulary would be long. */
#include <assert.h>

#include "engine/grammar/automaton.h"

/* The lead bytes of characters beyond ASCII, with the range of the second byte and how many more
 * follow it (Unicode, table 3-7). */
static const struct lead {
    uint8_t first, last, low, high;
    int more;
} leads[] = {
    {0xC2, 0xDF, 0x80, 0xBF, 0}, {0xE0, 0xE0, 0xA0, 0xBF, 1}, {0xE1, 0xEC, 0x80, 0xBF, 1},
    {0xED, 0xED, 0x80, 0x9F, 1}, {0xEE, 0xEF, 0x80, 0xBF, 1}, {0xF0, 0xF0, 0x90, 0xBF, 2},
    {0xF1, 0xF3, 0x80, 0xBF, 2}, {0xF4, 0xF4, 0x80, 0x8F, 2},
};

/* The one state behind all bytes low..high and then `more` bytes that characters go on with; dead:
 * there are several, or none. */
static struct state *behind(struct automaton *a, struct state *state, int low, int high, int more) {
    struct state *found = NULL, *last = NULL;
    for (int byte = low; byte <= high; byte++) {
        struct state *next = automaton_step(a, state, (uint8_t)byte);
        if (next == last) continue;
        last = next;
        if (more > 0 && next != a->dead) next = behind(a, next, 0x80, 0xBF, more - 1);
        if (found && found != next) return a->dead;
        found = next;
    }
    return found;
}

/* The one state behind every character of the slice; dead: there is no such one. */
static struct state *behind_any(struct automaton *a, const struct slice *slice,
                                struct state *state) {
    struct state *found = NULL;
    for (int c = 0; c < 128; c++) {
        if (!slice->has[c]) continue;
        struct state *next = automaton_step(a, state, (uint8_t)c);
        if (next == a->dead || (found && found != next)) return a->dead;
        found = next;
    }
    for (size_t i = 0; i < sizeof leads / sizeof *leads; i++) {
        for (int first = leads[i].first; first <= leads[i].last; first++) {
            struct state *next = automaton_step(a, state, (uint8_t)first);
            if (next != a->dead) next = behind(a, next, leads[i].low, leads[i].high, leads[i].more);
            if (next != found) return a->dead;
        }
    }
    return found;
}

bool slice_passes(struct automaton *a, const struct vocabulary *v, int slice, struct state *state) {
    for (int n = 0; n < v->slices[slice].max_characters; n++) {
        struct state *next = state->through[slice];
        if (!next) next = behind_any(a, &v->slices[slice], state);
        state->through[slice] = next;
        if (next == a->dead) return false;
        if (next == state) return true;
        state = next;
    }
    return true;
}
