/* DESIGN. Repeats with large counts as rules that count, in place of a copy per count.
 *
 * An item in such a rule has a count (run/states.c). "x{2,9000}" is this rule:
 *
 *     start --count--> body --x--> again --enough: 2--> end
 *                       ^            │
 *                       └───count────┘            count: adds 1, up to 9000
 *
 * The count is checked before the body, so every item has a way to the end. A body that may be
 * empty would pass the edges without a byte; such a repeat is drawn copy by copy.
 */
#include <assert.h>
#include <stdlib.h>

#include "engine/grammar/build/network.h"

/* ---- rules that count ----------------------------------------------------------------------- */

int graph_begin_counter(struct graph *graph, uint32_t from, uint32_t to, uint32_t *before) {
    struct network *network = graph->network;
    assert(network && network->n_rules > 0);
    if (network->n_rules == network->max_rules) {
        network->max_rules *= 2;
        network->rules =
            mem_realloc(network->rules, (size_t)network->max_rules * sizeof *network->rules);
    }
    int rule = network->n_rules++;
    *before = graph->counter;
    graph->counter = (uint32_t)rule + 1;
    uint32_t start = graph_node(graph), end = graph_node(graph);
    network->counts = true;
    network->rules[rule] = (struct network_rule){.start = start, .end = end, .most = UINT32_MAX};
    graph_edge(graph, from, (struct edge){EDGE_CALL, .rule = (uint32_t)rule, .to = to});
    return rule;
}

void graph_end_counter(struct graph *graph, uint32_t before) {
    assert(graph->counter > 0 && graph->counter != before);
    graph->counter = before;
}

void graph_count(struct graph *graph, uint32_t from, bool adds, uint32_t bound, uint32_t to) {
    assert(graph->counter > 0);
    struct network_rule *rule = &graph->network->rules[graph->counter - 1];
    if (bound < rule->most) rule->most = bound;
    graph_edge(graph, from, (struct edge){EDGE_COUNT, .low = adds, .bound = bound, .to = to});
}

/* ---- the choice ----------------------------------------------------------------------------- */

/* Copies of up to limits.max_copies nodes are drawn. If the smallest count is large, up to
 * MAX_UNROLLED are: where the ends of a body are ambiguous, a place of a rule has many counts, and
 * counts below the smallest one do not replace each other. */
enum { NODES_OF_REGULAR = 64, MAX_UNROLLED = 10000, LARGE_MIN = 400, MAX_VISITS = 200 };

/* May the expression match the empty text? Also true if this takes long to find out. */
static bool may_be_empty(const struct builder *b, const struct expr *expr, int *visits) {
    if (!expr || --*visits < 0) return true;
    bool all = expr->kind != EXPR_ALT;
    switch (expr->kind) {
    case EXPR_BYTES:
        return expr->n == 0;
    case EXPR_BYTE:
    case EXPR_CLASS:
        return false;
    case EXPR_CALL:
        return may_be_empty(b, b->rules[expr->rule].body, visits);
    case EXPR_REPEAT:
        return expr->min == 0 || may_be_empty(b, expr->child, visits);
    case EXPR_CAT:
    case EXPR_ALT:
    case EXPR_AND:
        for (const struct expr *e = expr->child; e; e = e->next)
            if (may_be_empty(b, e, visits) != all) return !all;
        return all;
    default:
        return true;
    }
}

static size_t nodes_of(const struct expr *expr);

static size_t nodes_of_all(const struct expr *expr) {
    size_t n = 1;
    for (const struct expr *e = expr->child; e && n <= MAX_UNROLLED; e = e->next) n += nodes_of(e);
    return n;
}

/* About how many nodes an expression takes; above MAX_UNROLLED any larger number. */
static size_t nodes_of(const struct expr *expr) {
    int copies = expr->kind == EXPR_REPEAT ? max_int(expr->min, expr->max) : 1;
    switch (expr->kind) {
    case EXPR_BYTES:
        return expr->n;
    case EXPR_CLASS:
        return expr->n_ranges > 1 ? 4 : 1;
    case EXPR_CAT:
    case EXPR_ALT:
        return nodes_of_all(expr);
    case EXPR_REPEAT:
        return (size_t)max_int(copies, 1) * nodes_of(expr->child);
    case EXPR_AND:
    case EXPR_NOT:
    case EXPR_MULTIPLE:
        return NODES_OF_REGULAR;
    default:
        return 1;
    }
}

static bool is_worth_counting(const struct graph *graph, const struct expr *repeat) {
    int copies = max_int(repeat->min, repeat->max), visits = MAX_VISITS;
    if (!graph->network || !repeat->child || copies < 2) return false;
    size_t nodes = nodes_of(repeat->child);
    int most = repeat->min > LARGE_MIN ? MAX_UNROLLED : graph->b->limits.max_copies;
    if (nodes * (size_t)copies <= (size_t)most) return false;
    return !may_be_empty(graph->b, repeat->child, &visits);
}

bool graph_counted(struct graph *graph, const struct expr *repeat, uint32_t from, uint32_t to) {
    if (!is_worth_counting(graph, repeat)) return false;
    const bool is_open = repeat->max == NO_MAX;
    const uint32_t min = (uint32_t)repeat->min, max = is_open ? min : (uint32_t)repeat->max;
    uint32_t before, after = is_open ? graph_node(graph) : to;
    int rule = graph_begin_counter(graph, from, after, &before);
    uint32_t body = graph_node(graph), again = graph_node(graph);
    if (graph->b->status != STATUS_OK) return true;
    const uint32_t start = graph->network->rules[rule].start, end = graph->network->rules[rule].end;
    graph->network->rules[rule].least = min;
    graph_count(graph, start, true, max, body);
    graph_count(graph, again, true, max, body);
    if (min == 0) graph_empty(graph, start, end);
    if (min > 1)
        graph_edge(graph, again, (struct edge){EDGE_ENOUGH, .bound = min, .to = end});
    else
        graph_empty(graph, again, end);
    graph_expr(graph, repeat->child, body, again);
    graph_end_counter(graph, before);
    if (is_open) { /* any number of further copies */
        struct expr rest = *repeat;
        rest.min = 0;
        graph_expr(graph, &rest, after, to);
    }
    return true;
}
