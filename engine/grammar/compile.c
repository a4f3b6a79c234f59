/* Compiles the text of a grammar: applies the limits, calls the reader of its kind, builds the
 * network. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/automaton.h"

static struct grammar_limits limits_of(const struct grammar_limits *given) {
    struct grammar_limits limits = given ? *given : (struct grammar_limits){0};
    if (!limits.max_text) limits.max_text = (size_t)256 << 10;
    if (!limits.max_depth) limits.max_depth = 64;
    if (!limits.max_states) limits.max_states = 50000;
    if (!limits.max_bytes) limits.max_bytes = (size_t)16 << 20;
    if (!limits.max_ms) limits.max_ms = 500;
    return limits;
}

void builder_init(struct builder *b, const struct grammar_limits *limits, struct err *err) {
    *b = (struct builder){.limits = limits_of(limits), .err = err};
    b->deadline_ns = builder_thread_ns() + (uint64_t)b->limits.max_ms * 1000000;
    b->spare.kind = EXPR_FAILED;
    for (int i = 0; i < N_JSON_RULES; i++) b->json_rules[i] = -1;
}

bool builder_takes(struct builder *b, size_t n) {
    if (n <= b->limits.max_text) return true;
    builder_fail(b, "The grammar has %zu bytes; at most %zu are taken.", n, b->limits.max_text);
    return false;
}

static struct expr *read(struct builder *b, enum grammar_kind kind, const char *text, size_t n,
                         enum regex_match match) {
    switch (kind) {
    case GRAMMAR_JSON_OBJECT:
        return json_call(b, JSON_RULE_OBJECT);
    case GRAMMAR_JSON_SCHEMA:
        return schema_read(b, text, n);
    case GRAMMAR_REGEX:
        return pattern_read(b, "The regular expression", text, n, match);
    case GRAMMAR_CHOICE:
        return choice_read(b, text, n);
    case GRAMMAR_GBNF:
        return gbnf_read(b, text, n);
    case GRAMMAR_STRUCTURAL_TAG:
        return structural_tag_read(b, text, n);
    }
    assert(!"a kind of grammar");
    return &b->spare;
}

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

/* ---- compiling ------------------------------------------------------------------------------ */

static struct grammar *grammar_new(struct network *network, const struct builder *b) {
    struct grammar *grammar = mem_calloc(1, sizeof *grammar);
    grammar->owners = 1;
    pthread_mutex_init(&grammar->lock, NULL);
    grammar->network = network;
    list_init(&grammar->matchers);
    automaton_init(&grammar->automaton, network, b->limits.max_bytes);
    count_bytes(grammar);
    return grammar;
}

static enum status compile(enum grammar_kind kind, const char *text, size_t n,
                           enum regex_match match, const struct grammar_limits *limits,
                           struct grammar **out, struct err *err) {
    struct err ignored;
    struct builder b;
    builder_init(&b, limits, err ? err : &ignored);
    if (!builder_takes(&b, n)) return b.status;
    b.arena = arena_new(b.limits.max_bytes);
    int root = rule_new(&b, NULL);
    rule_define(&b, root, read(&b, kind, text, n, match));
    struct network *network = network_new(&b, root);
    arena_free(b.arena);
    assert((b.status == STATUS_OK) == (network != NULL));
    if (network) *out = grammar_new(network, &b);
    return b.status;
}

enum status grammar_compile(enum grammar_kind kind, const char *text, size_t n,
                            const struct grammar_limits *limits, struct grammar **out,
                            struct err *err) {
    return compile(kind, text, n, REGEX_WHOLE, limits, out, err);
}

enum status pattern_compile(const struct builder *b, const char *pattern, struct grammar **out) {
    struct grammar_limits limits = b->limits;
    uint64_t now = builder_thread_ns();
    if (now >= b->deadline_ns) return STATUS_INVALID_REQUEST;
    limits.max_ms = (int)((b->deadline_ns - now) / 1000000) + 1;
    enum status status =
        compile(GRAMMAR_REGEX, pattern, strlen(pattern), REGEX_SEARCH, &limits, out, NULL);
    if (status != STATUS_OK) return status;
    (*out)->is_private = true;
    live_bytes_add(-(ptrdiff_t)atomic_exchange(&(*out)->bytes, 0));
    return status;
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
