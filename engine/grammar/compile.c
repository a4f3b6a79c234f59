/* Compiles the text of a grammar or of a search: calls the reader of its kind and builds the
 * network or the deterministic automaton. */
#include <assert.h>
#include <stdlib.h>

#include "engine/grammar/grammar.h"

#include "engine/grammar/build/network.h"
#include "engine/grammar/read/read.h"
#include "engine/grammar/schema/schema.h"

/* ---- grammars ------------------------------------------------------------------------------- */

static struct expr *read(struct builder *b, enum grammar_kind kind, const char *text, size_t n) {
    switch (kind) {
    case GRAMMAR_JSON_OBJECT:
        return json_call(b, JSON_RULE_OBJECT);
    case GRAMMAR_JSON_SCHEMA:
        return schema_read(b, text, n, false);
    case GRAMMAR_JSON_SCHEMA_STRICT:
        return schema_read(b, text, n, true);
    case GRAMMAR_REGEX:
        return pattern_read(b, "The regular expression", text, n, REGEX_WHOLE);
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

enum status grammar_compile(enum grammar_kind kind, const char *text, size_t n,
                            const struct grammar_limits *limits, struct grammar **out,
                            struct err *err) {
    struct err ignored;
    struct builder b;
    if (!builder_begin(&b, limits, n, err ? err : &ignored)) return b.status;
    int root = rule_new(&b, NULL);
    rule_define(&b, root, read(&b, kind, text, n));
    struct network *network = network_new(&b, root);
    enum status status = builder_end(&b);
    assert((status == STATUS_OK) == (network != NULL));
    if (network) *out = grammar_new(network, b.limits.max_bytes, false);
    return status;
}

/* ---- searches ------------------------------------------------------------------------------- */

enum { MAX_NODES = 16000 }; /* of the graph; the automaton's states are sets of its nodes */

/* Checks that a match exists and that no match is empty. A pattern that matches later in a text
 * also matches at its beginning. */
static void check(struct builder *b, const struct dfa *dfa, const bool *live) {
    assert(live[dfa->first] || !live[dfa->start]);
    if (dfa->accepts[dfa->first])
        builder_fail(b, "The regular expression matches the empty text, which is everywhere.");
    else if (!live[dfa->first])
        builder_fail(b, "The regular expression matches no text.");
}

static struct search *build_search(struct builder *b, const char *text, size_t n) {
    struct graph graph = {.b = b};
    struct dfa dfa = {0};
    struct search *search = NULL;
    const int max_states = b->limits.max_states;
    struct expr *expr = pattern_read(b, "The regular expression", text, n, REGEX_STOP);
    b->limits.max_states = MAX_NODES;
    uint32_t start = graph_node(&graph), end = graph_node(&graph);
    if (b->status == STATUS_OK) graph_expr(&graph, expr, start, end);
    b->limits.max_states = min_int(max_states, UINT16_MAX);
    if (b->status == STATUS_OK) dfa_of_graph(b, &graph, start, end, &dfa);
    bool *live = b->status == STATUS_OK ? dfa_find_live(&dfa) : NULL;
    if (live) check(b, &dfa, live);
    if (b->status == STATUS_OK) search = search_new(&dfa, live);
    mem_free(live);
    dfa_free(&dfa);
    graph_free(&graph);
    return search;
}

enum status search_compile(const char *text, size_t n, const struct grammar_limits *limits,
                           struct search **out, struct err *err) {
    struct err ignored;
    struct builder b;
    *out = NULL;
    if (!builder_begin(&b, limits, n, err ? err : &ignored)) return b.status;
    *out = build_search(&b, text, n);
    enum status status = builder_end(&b);
    assert((status == STATUS_OK) == (*out != NULL));
    return status;
}
