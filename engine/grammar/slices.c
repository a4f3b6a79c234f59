/* Which states take all characters of a slice: the inside of strings and of free text, where a walk
 * over the whole vocabulary would be long. */
#include <string.h>

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
 * there is none; NULL: there are several. Bytes of one class lead to the same state. */
static struct state *behind(struct automaton *a, struct state *state, int low, int high, int more) {
    const uint8_t *class_of = a->network->class_of;
    struct state *found = NULL;
    for (int byte = low; byte <= high; byte++) {
        if (byte > low && class_of[byte] == class_of[byte - 1]) continue;
        struct state *next = automaton_step(a, state, (uint8_t)byte);
        if (more > 0 && next != a->dead) next = behind(a, next, 0x80, 0xBF, more - 1);
        if (!next || (found && found != next)) return NULL;
        found = next;
    }
    return found;
}

/* The one state behind all characters that begin with a lead byte; else as `behind`. */
static struct state *behind_lead(struct automaton *a, struct state *state, const struct lead *lead,
                                 int first) {
    struct state *next = automaton_step(a, state, (uint8_t)first);
    return next == a->dead ? next : behind(a, next, lead->low, lead->high, lead->more);
}

/* The one state behind every character of the slice; dead: none comes; NULL: it depends. */
static struct state *behind_any(struct automaton *a, const struct slice *slice,
                                struct state *state) {
    const uint8_t *class_of = a->network->class_of;
    struct state *found = NULL;
    for (int c = 0; c < 128; c++) {
        if (!slice->has[c]) continue;
        struct state *next = automaton_step(a, state, (uint8_t)c);
        if (found && found != next) return NULL;
        found = next;
    }
    for (size_t i = 0; i < sizeof leads / sizeof *leads; i++) {
        for (int first = leads[i].first; first <= leads[i].last; first++) {
            if (first > leads[i].first && class_of[first] == class_of[first - 1]) continue;
            if (behind_lead(a, state, &leads[i], first) != found) return NULL;
        }
    }
    return found;
}

/* How many characters of the slice may follow, whichever they are, up to MAX_CHARACTERS; -1: that
 * depends on them. */
static int characters_behind(struct automaton *a, const struct vocabulary *v, int slice,
                             struct state *state) {
    for (int n = 0; n < MAX_CHARACTERS; n++) {
        if (!state->knows_through[slice])
            state->through[slice] = behind_any(a, &v->slices[slice], state);
        state->knows_through[slice] = true;
        struct state *next = state->through[slice];
        if (!next) return -1;
        if (next == a->dead) return n;
        if (next == state) break;
        state = next;
    }
    return MAX_CHARACTERS;
}

/* The state to which most ASCII characters of the slice lead. */
static struct state *most_common(struct automaton *a, const struct slice *slice,
                                 struct state *state) {
    struct state *found = NULL;
    int votes = 0; /* Boyer and Moore's vote */
    for (int c = 0; c < 128; c++) {
        if (!slice->has[c]) continue;
        struct state *next = automaton_step(a, state, (uint8_t)c);
        if (votes == 0) found = next;
        votes += next == found ? 1 : -1;
    }
    return found;
}

bool slice_use(struct automaton *a, const struct vocabulary *v, int slice, struct state *state,
               struct slice_use *use) {
    const struct slice *s = &v->slices[slice];
    memset(use->differs, 0, sizeof use->differs);
    use->characters = characters_behind(a, v, slice, state);
    if (use->characters >= 0) return true;
    struct state *common = most_common(a, s, state);
    int behind = common == a->dead ? -1 : characters_behind(a, v, slice, common);
    if (behind < 0) return false;
    use->characters = min_int(behind + 1, MAX_CHARACTERS);
    for (int c = 0; c < 128; c++) {
        use->differs[c] = s->has[c] && automaton_step(a, state, (uint8_t)c) != common;
    }
    for (size_t i = 0; i < sizeof leads / sizeof *leads; i++) {
        for (int first = leads[i].first; first <= leads[i].last; first++) {
            use->differs[first] = behind_lead(a, state, &leads[i], first) != common;
        }
    }
    return true;
}
