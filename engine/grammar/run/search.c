/* DESIGN. Finds the first match of a regular expression in a text that arrives byte by byte.
 *
 * The expression is compiled to one complete deterministic automaton, so a byte costs one table
 * lookup per open match, for any expression. A new match may begin at each byte. If two open
 * matches reach the same state, only the earlier one is kept: both end together, and the earlier
 * one is longer. So there are never more open matches than states. States from which no match is
 * reachable become state 0, which ends an open match.
 *
 * The automaton is immutable, so any number of threads may search with it. The position of a search
 * is in its run, which belongs to one thread at a time.
 */
#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/run/automaton.h"

enum state_kind {
    IS_MATCH = 1,
    GOES_ON = 2, /* a match is reachable with more text */
};

struct search {
    atomic_int owners;
    uint32_t n_states, n_classes;
    uint32_t start, first; /* as in struct dfa */
    uint8_t class_of[256]; /* no state distinguishes bytes of one class */
    uint16_t *next;        /* [n_states][n_classes] */
    uint8_t *kinds;        /* [n_states] sum of state_kind */
};

/* ---- building ------------------------------------------------------------------------------- */

struct search *search_new(const struct dfa *dfa, const bool *live) {
    struct search *search = mem_calloc(1, sizeof *search);
    assert(dfa->n <= UINT16_MAX + 1);
    atomic_init(&search->owners, 1);
    search->n_states = dfa->n;
    search->start = dfa->start;
    search->first = dfa->first;
    search->n_classes = dfa->n_classes;
    memcpy(search->class_of, dfa->class_of, sizeof search->class_of);
    search->next = mem_alloc((size_t)dfa->n * search->n_classes * sizeof *search->next);
    search->kinds = mem_calloc(dfa->n, sizeof *search->kinds);
    for (uint32_t i = 0; i < dfa->n; i++) {
        if (dfa->accepts[i]) search->kinds[i] = IS_MATCH;
        for (uint32_t c = 0; c < dfa->n_classes; c++) {
            uint32_t to = dfa->next[i * dfa->n_classes + c];
            search->next[i * dfa->n_classes + c] = (uint16_t)(live[to] ? to : 0);
            if (live[to]) search->kinds[i] |= GOES_ON;
        }
    }
    live_bytes_add((ptrdiff_t)search_bytes(search));
    return search;
}

struct search *search_acquire(struct search *search) {
    int owners = atomic_fetch_add(&search->owners, 1);
    assert(owners > 0);
    (void)owners;
    return search;
}

void search_release(struct search *search) {
    if (!search || atomic_fetch_sub(&search->owners, 1) > 1) return;
    live_bytes_add(-(ptrdiff_t)search_bytes(search));
    mem_free(search->next);
    mem_free(search->kinds);
    mem_free(search);
}

size_t search_bytes(const struct search *search) {
    size_t state = search->n_classes * sizeof *search->next + sizeof *search->kinds;
    return sizeof *search + search->n_states * state;
}

int search_states(const struct search *search) {
    return (int)search->n_states;
}

/* ---- searching ------------------------------------------------------------------------------ */

/* Keeps a moved thread, unless it has ended or an earlier thread is in the same state. */
static void keep(const struct search *search, struct search_run *run, size_t begin, uint32_t state,
                 size_t *length) {
    if (state == 0 || run->seen[state] == run->stamp) return;
    run->seen[state] = run->stamp;
    if ((search->kinds[state] & IS_MATCH) && *length == 0) *length = run->at + 1 - begin;
    if (search->kinds[state] & GOES_ON)
        run->threads[run->n++] = (struct search_thread){begin, state};
}

static void next_stamp(const struct search *search, struct search_run *run) {
    if (!run->seen) run->seen = mem_calloc(search->n_states, sizeof *run->seen);
    if (++run->stamp) return;
    memset(run->seen, 0, search->n_states * sizeof *run->seen);
    run->stamp = 1;
}

size_t search_step(const struct search *search, struct search_run *run, uint8_t byte) {
    const uint16_t *next = search->next + search->class_of[byte];
    const size_t row = search->n_classes;
    const int before = run->n;
    size_t length = 0;
    next_stamp(search, run);
    if (run->n == run->max) {
        run->max = run->max ? 2 * run->max : 8;
        run->threads = mem_realloc(run->threads, (size_t)run->max * sizeof *run->threads);
    }
    run->n = 0;
    for (int i = 0; i < before; i++) {
        struct search_thread thread = run->threads[i];
        keep(search, run, thread.begin, next[thread.state * row], &length);
    }
    keep(search, run, run->at, next[(run->at ? search->start : search->first) * row], &length);
    run->at++;
    return length;
}

size_t search_open(const struct search_run *run) {
    return run->n ? run->at - run->threads[0].begin : 0;
}

void search_run_free(struct search_run *run) {
    mem_free(run->threads);
    mem_free(run->seen);
    *run = (struct search_run){0};
}
