/* Networks: the compiled form of the builder's rules as nodes and edges, and the graphs and
 * deterministic automata that lead to them.
 *
 *   rules --graph_expr--> struct graph --network_new--> struct network       with calls
 *                         struct graph --dfa_of_graph-> struct dfa           without calls
 *
 * A network is immutable. One thread builds it. Private to engine/grammar. */
#ifndef PENSTOCK_GRAMMAR_NETWORK_H
#define PENSTOCK_GRAMMAR_NETWORK_H

#include "engine/grammar/build/build.h"

enum edge_kind {
    EDGE_BYTES,
    EDGE_EMPTY,
    EDGE_CALL,
    EDGE_COUNT,  /* empty; adds `low` to the item's count, which stays at most `bound` */
    EDGE_ENOUGH, /* empty; only if the item's count is at least `bound` */
    EDGE_BEGIN,  /* empty; only at the beginning of the text; only in graphs of searches */
};

struct edge {
    uint8_t kind, low, high; /* range of an EDGE_BYTES */
    bool is_tail;            /* a call that is the last step of its rule */
    union {
        uint32_t rule;  /* called by an EDGE_CALL */
        uint32_t bound; /* of an EDGE_COUNT or EDGE_ENOUGH */
    };
    uint32_t to;
};

struct node {
    uint32_t edges, n_edges; /* index of the first edge, number of edges */
    uint32_t counter;        /* the node's rule if it counts, index + 1; 0: it does not */
    bool is_end;             /* the end of its rule */
    bool is_kept;            /* a byte, or a call that is not a tail call, leaves the node */
};

struct network {
    struct node *nodes;
    struct edge *edges;
    uint32_t n_nodes, n_edges;
    struct network_rule {
        uint32_t start, end;
        bool is_nullable, is_productive;
        /* of a rule that counts: from `least` on a count is enough, and a smaller one is better;
         * up to `most` each EDGE_COUNT lets it pass */
        uint32_t least, most;
    } * rules;
    int n_rules, max_rules, root;
    bool counts;           /* a rule counts */
    int n_classes;         /* number of byte classes; no edge distinguishes bytes of one class */
    uint8_t class_of[256]; /* class of each byte */
    uint8_t first_of[256]; /* lowest byte of each class */
    uint8_t size_of[256];  /* bytes of each class; 0 means 256 */
    size_t bytes;
};

/* Nodes and edges while they are added; network_new copies them into a network. */
struct graph {
    struct builder *b;
    struct network *network; /* to which rules that count are added; NULL: there are no calls */
    uint32_t counter;        /* of new nodes */
    struct graph_edge {
        struct edge edge;
        uint32_t next; /* next edge of the same node, index + 1; 0: last */
    } * edges;
    uint32_t n_edges, max_edges;
    uint32_t *first;    /* first edge of each node, index + 1 */
    uint32_t *counters; /* counter of each node */
    uint32_t n_nodes, max_nodes;
};

/* Adds a node and returns its index. Above the limit the builder fails and the result is 0. */
uint32_t graph_node(struct graph *graph);
void graph_edge(struct graph *graph, uint32_t from, struct edge edge);
void graph_bytes(struct graph *graph, uint32_t from, int low, int high, uint32_t to);
void graph_empty(struct graph *graph, uint32_t from, uint32_t to);
void graph_free(struct graph *graph);

/* Adds a rule that counts between two nodes and returns its index. New nodes belong to it until
 * graph_end_counter gets the same `before`. */
int graph_begin_counter(struct graph *graph, uint32_t from, uint32_t to, uint32_t *before);
void graph_end_counter(struct graph *graph, uint32_t before);

/* Adds an EDGE_COUNT of the rule under construction. */
void graph_count(struct graph *graph, uint32_t from, bool adds, uint32_t bound, uint32_t to);

/* Adds a repeat with large counts as a rule that counts. False: it is better drawn copy by copy.
 * (count.c) */
bool graph_counted(struct graph *graph, const struct expr *repeat, uint32_t from, uint32_t to);

/* Adds an EXPR_AND with a large count of characters as a rule that counts. False: it has none, or
 * few states without. (dfa_count.c) */
bool graph_counted_and(struct graph *graph, const struct expr *expr, uint32_t from, uint32_t to);

/* Adds an expression between two nodes. No new edge enters `from` or leaves `to`. */
void graph_expr(struct graph *graph, const struct expr *expr, uint32_t from, uint32_t to);

/* Adds the UTF-8 encodings of a class's characters. */
void graph_class(struct graph *graph, const struct expr *expr, uint32_t from, uint32_t to);

/* Adds an EXPR_AND or EXPR_NOT as a deterministic automaton (dfa.c). */
void graph_regular(struct graph *graph, const struct expr *expr, uint32_t from, uint32_t to);

/* A deterministic automaton over byte classes; no state distinguishes bytes of one class. State 0
 * is the sink: all its bytes lead back to it. */
struct dfa {
    uint32_t n, max, n_classes;
    uint8_t class_of[256]; /* class of each byte */
    uint8_t first_of[256]; /* lowest byte of each class */
    uint32_t *next;        /* [n][n_classes] */
    bool *accepts;         /* [n] */
    uint32_t start;
    /* the start state at the beginning of a text; differs from `start` only after an EDGE_BEGIN */
    uint32_t first;
};

static inline uint32_t dfa_next(const struct dfa *dfa, uint32_t state, uint8_t byte) {
    return dfa->next[(size_t)state * dfa->n_classes + dfa->class_of[byte]];
}

/* Builds the automaton of a graph without calls. The caller frees it, even after a failure. */
void dfa_of_graph(struct builder *b, const struct graph *graph, uint32_t start, uint32_t end,
                  struct dfa *dfa);
void dfa_free(struct dfa *dfa);

/* Builds the automaton of an expression without calls; without: an operand of an EXPR_AND that is
 * left out, or NULL. The caller frees it, even after a failure. */
void dfa_of_expr(struct builder *b, const struct expr *expr, struct dfa *dfa);
void dfa_of_and(struct builder *b, const struct expr *expr, const struct expr *without,
                struct dfa *dfa);

/* Intersects x with another operand of an EXPR_AND. */
void dfa_intersect_expr(struct builder *b, const struct dfa *x, const struct expr *expr,
                        struct dfa *out);

/* Is no matching text the beginning of another one? The empty text is a beginning of all texts. In
 * a complement the sink accepts and stays in itself, so its texts begin others. */
bool dfa_is_prefix_free(const struct dfa *dfa);

/* Forms the common refinement of two automata's classes. */
void dfa_classes_of_both(const struct dfa *x, const struct dfa *y, struct dfa *out);

/* Adds a state whose bytes all lead to state 0. */
uint32_t dfa_add(struct builder *b, struct dfa *dfa, bool accepts);

/* Returns for each state whether an accepting state is reachable. The caller frees the array.
 * (dfa_draw.c) */
bool *dfa_find_live(const struct dfa *dfa);

/* Adds the automaton to a graph between two nodes. */
void dfa_draw(struct graph *graph, const struct dfa *dfa, uint32_t from, uint32_t to);

/* Builds the network of the builder's rules. Returns NULL if the builder failed. A grammar that
 * matches no text is a failure too. */
struct network *network_new(struct builder *b, int root);
void network_free(struct network *network);

#endif
