/* Finds the states in which all characters of a slice are allowed: inside strings and free text,
 * where a walk over the vocabulary would be long. */
#include <string.h>

#include "engine/grammar/run/automaton.h"

/* Lead bytes of characters outside ASCII, the range of the second byte, and the number of further
 * bytes (Unicode, table 3-7). */
static const struct lead {
    uint8_t first, last, low, high;
    int more;
} leads[] = {
    {0xC2, 0xDF, 0x80, 0xBF, 0}, {0xE0, 0xE0, 0xA0, 0xBF, 1}, {0xE1, 0xEC, 0x80, 0xBF, 1},
    {0xED, 0xED, 0x80, 0x9F, 1}, {0xEE, 0xEF, 0x80, 0xBF, 1}, {0xF0, 0xF0, 0x90, 0xBF, 2},
    {0xF1, 0xF3, 0x80, 0xBF, 2}, {0xF4, 0xF4, 0x80, 0x8F, 2},
};

/* Returns the one state after all bytes low..high and `more` continuation bytes. dead: no such
 * bytes are allowed; NULL: they lead to several states. Bytes of one class lead to the same
 * state. */
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

/* Returns the one state after all characters with this lead byte; dead and NULL as in `behind`. */
static struct state *behind_lead(struct automaton *a, struct state *state, const struct lead *lead,
                                 int first) {
    struct state *next = automaton_step(a, state, (uint8_t)first);
    return next == a->dead ? next : behind(a, next, lead->low, lead->high, lead->more);
}

/* The ASCII characters of each set; beyond: it also has all other characters. */
static const struct characters {
    uint8_t low, high;
    bool beyond;
} sets[N_SETS] = {
    [SET_SLICE] = {' ', 127, true},  [SET_SLICE_WITHOUT_TAGS] = {' ', 127, true},
    [SET_LOWER] = {'a', 'z', false}, [SET_UPPER] = {'A', 'Z', false},
    [SET_DIGIT] = {'0', '9', false}, [SET_BEYOND] = {1, 0, true},
};

bool set_has(enum character_set set, int c) {
    if (c < sets[set].low || c > sets[set].high) return false;
    return c != '"' && c != '\\' && (c != '<' || set != SET_SLICE_WITHOUT_TAGS);
}

/* Returns the one state after every character outside ASCII; dead and NULL as in `behind`. */
static struct state *behind_beyond(struct automaton *a, struct state *state) {
    const uint8_t *class_of = a->network->class_of;
    struct state *found = NULL;
    for (size_t i = 0; i < sizeof leads / sizeof *leads; i++) {
        for (int first = leads[i].first; first <= leads[i].last; first++) {
            if (first > leads[i].first && class_of[first] == class_of[first - 1]) continue;
            struct state *next = behind_lead(a, state, &leads[i], first);
            if (!next || (found && found != next)) return NULL;
            found = next;
        }
    }
    return found;
}

static struct state *behind_any(struct automaton *a, enum character_set set, struct state *state) {
    struct state *found = NULL;
    for (int c = sets[set].low; c <= sets[set].high; c++) {
        if (!set_has(set, c)) continue;
        struct state *next = automaton_step(a, state, (uint8_t)c);
        if (found && found != next) return NULL;
        found = next;
    }
    if (!sets[set].beyond) return found;
    struct state *beyond = behind_beyond(a, state);
    return found && found != beyond ? NULL : beyond;
}

struct state *automaton_find_through(struct automaton *a, enum character_set set,
                                     struct state *state) {
    struct state *found = behind_any(a, set, state);
    state->through[set] = found;
    state->knows_through[set] = true;
    return found;
}

/* Returns how many characters of the slice may follow, whichever they are, up to MAX_CHARACTERS;
 * -1: the number depends on the characters. */
static int characters_behind(struct automaton *a, enum character_set slice, struct state *state) {
    for (int n = 0; n < MAX_CHARACTERS; n++) {
        struct state *next = automaton_through(a, slice, state);
        if (!next) return -1;
        if (next == a->dead) return n;
        if (next == state) break;
        state = next;
    }
    return MAX_CHARACTERS;
}

/* The majority vote of Boyer and Moore. */
static void vote(struct state **found, int *votes, struct state *next) {
    if (*votes == 0) *found = next;
    *votes += next == *found ? 1 : -1;
}

struct state *automaton_most_common(struct automaton *a, enum character_set set,
                                    struct state *state, bool differs[256]) {
    struct state *behind[256] = {0}, *found = a->dead;
    int votes = 0;
    for (int c = sets[set].low; c <= sets[set].high; c++) {
        if (set_has(set, c)) vote(&found, &votes, behind[c] = automaton_step(a, state, (uint8_t)c));
    }
    for (size_t i = 0; sets[set].beyond && i < sizeof leads / sizeof *leads; i++) {
        for (int first = leads[i].first; first <= leads[i].last; first++) {
            behind[first] = behind_lead(a, state, &leads[i], first);
            if (behind[first] && set == SET_BEYOND) vote(&found, &votes, behind[first]);
        }
    }
    for (int byte = 0; byte < 256; byte++) {
        bool is_lead = sets[set].beyond && byte >= 0xC2 && byte <= 0xF4;
        differs[byte] = (is_lead || set_has(set, byte)) && behind[byte] != found;
    }
    return found;
}

bool slice_use(struct automaton *a, enum character_set slice, struct state *state,
               struct slice_use *use) {
    memset(use->differs, 0, sizeof use->differs);
    use->characters = characters_behind(a, slice, state);
    if (use->characters >= 0) return true;
    struct state *common = automaton_most_common(a, slice, state, use->differs);
    int behind = common == a->dead ? -1 : characters_behind(a, slice, common);
    if (behind < 0) return false;
    use->characters = min_int(behind + 1, MAX_CHARACTERS);
    return true;
}
