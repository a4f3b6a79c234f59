/* Compiled grammars: creation, references, and their memory count. */
#include <assert.h>
#include <stdlib.h>

#include "engine/grammar/run/automaton.h"

/* ---- memory --------------------------------------------------------------------------------- */

static atomic_size_t live_bytes; /* of all grammars and searches of the process */

void live_bytes_add(ptrdiff_t bytes) {
    atomic_fetch_add_explicit(&live_bytes, (size_t)bytes, memory_order_relaxed);
}

size_t grammar_live_bytes(void) {
    return atomic_load_explicit(&live_bytes, memory_order_relaxed);
}

static void count_bytes(struct grammar *grammar) {
    size_t before = atomic_load_explicit(&grammar->bytes, memory_order_relaxed);
    size_t bytes = sizeof *grammar + grammar->network->bytes + grammar->automaton.bytes;
    if (bytes == before) return;
    atomic_store_explicit(&grammar->bytes, bytes, memory_order_relaxed);
    live_bytes_add((ptrdiff_t)bytes - (ptrdiff_t)before);
}

void grammar_unlock(struct grammar *grammar) {
    count_bytes(grammar);
    pthread_mutex_unlock(&grammar->lock);
}

size_t grammar_bytes(struct grammar *grammar) {
    return atomic_load_explicit(&grammar->bytes, memory_order_relaxed);
}

/* ---- owners --------------------------------------------------------------------------------- */

struct grammar *grammar_new(struct network *network, size_t max_bytes, bool is_private) {
    struct grammar *grammar = mem_calloc(1, sizeof *grammar);
    grammar->owners = 1;
    pthread_mutex_init(&grammar->lock, NULL);
    grammar->network = network;
    grammar->is_private = is_private;
    list_init(&grammar->matchers);
    automaton_init(&grammar->automaton, network, max_bytes);
    if (!is_private) count_bytes(grammar);
    return grammar;
}

struct grammar *grammar_acquire(struct grammar *grammar) {
    int before = atomic_fetch_add(&grammar->owners, 1);
    assert(before > 0);
    (void)before;
    return grammar;
}

bool grammar_is_broken(const struct grammar *grammar) {
    return atomic_load(&grammar->is_broken);
}

static void free_automaton(void *automaton) {
    automaton_free(automaton);
}

void grammar_release(struct grammar *grammar) {
    if (!grammar) return;
    int before = atomic_fetch_sub(&grammar->owners, 1);
    assert(before > 0);
    if (before > 1) return;
    live_bytes_add(-(ptrdiff_t)grammar_bytes(grammar));
    mem_scope_free(&grammar->rest, free_automaton, &grammar->automaton);
    network_free(grammar->network);
    pthread_mutex_destroy(&grammar->lock);
    mem_free(grammar);
}
