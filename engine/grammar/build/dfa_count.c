/* DESIGN. Patterns with a large maxLength: the intersection of an automaton x with up to `max`
 * copies of a unit, usually a character, without a copy of x per count.
 *
 * States are those of x times the places in a unit. They become the nodes of a rule that counts
 * (count.c). `distance` is the least number of units from a state to the end of a match. An item at
 * state s keeps count + distance[s] <= max, so it always has a way to an end. An edge needs a check
 * only if it completes a unit or leads away from the end:
 *
 *     v --bytes--> w                 within a unit, no further from the end
 *     v --count--> · --bytes--> w    otherwise; up to max - distance[w]
 *
 * A minimum is part of x.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/build/keys.h"
#include "engine/grammar/build/network.h"

enum { FAR = UINT32_MAX };

struct product {
    struct dfa dfa;     /* accepts: x does, at the end of a unit */
    bool *ends_unit;    /* [dfa.n] does each edge to the state complete a unit? */
    uint32_t *distance; /* [dfa.n] FAR: no end is reachable */
    uint32_t *nodes;    /* [dfa.n] in the graph */
};

/* ---- states --------------------------------------------------------------------------------- */

/* Returns the state of x's state p, the unit's state q, and whether a unit ends there. */
static uint32_t place(struct builder *b, struct product *product, struct key_table *table,
                      const struct dfa *x, const uint32_t key[3]) {
    uint32_t at = key_place(table, key, 3);
    if (at == product->dfa.n) dfa_add(b, &product->dfa, key[2] && x->accepts[key[0]]);
    return at;
}

static void find_states(struct builder *b, const struct dfa *x, const struct dfa *unit,
                        struct product *product) {
    struct key_table *table = mem_calloc(1, sizeof *table);
    struct dfa *dfa = &product->dfa;
    dfa_classes_of_both(x, unit, dfa);
    place(b, product, table, x, (uint32_t[]){0, 0, 0});
    dfa->start = place(b, product, table, x, (uint32_t[]){x->start, unit->start, 1});
    for (uint32_t i = 1; i < dfa->n && b->status == STATUS_OK; i++) {
        const uint32_t p = key_numbers(table, i)[0], q = key_numbers(table, i)[1];
        for (uint32_t c = 0; c < dfa->n_classes && builder_works(b, 5); c++) {
            const uint8_t byte = dfa->first_of[c];
            uint32_t key[3] = {dfa_next(x, p, byte), dfa_next(unit, q, byte), 0};
            bool is_dead = !key[1] || (!key[0] && !x->accepts[0]);
            if (is_dead) key[0] = key[1] = 0;
            key[2] = unit->accepts[key[1]];
            if (key[2]) key[1] = unit->start;
            uint32_t to = place(b, product, table, x, key);
            if (b->status == STATUS_OK) dfa->next[(size_t)i * dfa->n_classes + c] = to;
        }
    }
    product->ends_unit = mem_calloc(dfa->n + 1, sizeof *product->ends_unit);
    for (uint32_t i = 0; i < dfa->n; i++) product->ends_unit[i] = key_numbers(table, i)[2];
    key_table_free(table);
}

/* ---- distances ------------------------------------------------------------------------------ */

/* The states that wait for a look at their predecessors: at the current distance, at the next. */
struct waiting_states {
    uint32_t *now, *next, n_now, n_next; /* [dfa.n] each */
};

/* Lists the predecessors of each state, once per class: those of state i are
 * from[first[i]]..from[first[i + 1]]. */
static uint32_t *predecessors(const struct dfa *dfa, uint32_t **first) {
    size_t n = (size_t)dfa->n * dfa->n_classes;
    uint32_t *at = mem_calloc((size_t)dfa->n + 2, sizeof *at);
    uint32_t *from = mem_alloc((n + 1) * sizeof *from);
    for (size_t i = 0; i < n; i++) at[dfa->next[i] + 2]++;
    for (uint32_t i = 2; i < dfa->n + 2; i++) at[i] += at[i - 1];
    for (size_t i = 0; i < n; i++) from[at[dfa->next[i] + 1]++] = (uint32_t)(i / dfa->n_classes);
    *first = at;
    return from;
}

static void come_closer(struct product *product, struct waiting_states *waiting, uint32_t state,
                        uint32_t to, uint32_t distance) {
    uint32_t steps = distance + product->ends_unit[to];
    if (product->distance[state] <= steps) return;
    product->distance[state] = steps;
    if (steps == distance)
        waiting->now[waiting->n_now++] = state;
    else
        waiting->next[waiting->n_next++] = state;
}

/* A search from the ends backwards, by distance (a breadth-first search with steps of 0 and 1). */
static void find_distances(struct builder *b, struct product *product) {
    const uint32_t n = product->dfa.n;
    uint32_t *first, *from = predecessors(&product->dfa, &first);
    struct waiting_states w = {.now = mem_alloc((2 * (size_t)n + 1) * sizeof *w.now),
                               .next = mem_alloc((2 * (size_t)n + 1) * sizeof *w.next)};
    product->distance = mem_alloc(((size_t)n + 1) * sizeof *product->distance);
    for (uint32_t i = 0; i < n; i++) {
        product->distance[i] = product->dfa.accepts[i] ? 0 : FAR;
        if (product->dfa.accepts[i]) w.now[w.n_now++] = i;
    }
    for (uint32_t distance = 0; w.n_now > 0; distance++) {
        while (w.n_now > 0 && builder_works(b, 5)) {
            uint32_t to = w.now[--w.n_now];
            if (product->distance[to] != distance) continue;
            for (uint32_t k = first[to]; k < first[to + 1]; k++)
                come_closer(product, &w, from[k], to, distance);
        }
        if (b->status != STATUS_OK) break;
        uint32_t *now = w.now;
        w.now = w.next, w.n_now = w.n_next;
        w.next = now, w.n_next = 0;
    }
    mem_free(w.now);
    mem_free(w.next);
    mem_free(from);
    mem_free(first);
}

/* ---- nodes ---------------------------------------------------------------------------------- */

/* The nodes after the checks of one state; states with equal checks share one. */
struct checks {
    struct counted_edge {
        uint32_t distance, node;
        bool adds;
    } list[16];
    int n;
};

/* Returns the node from which bytes lead from state `from` to `to`. */
static uint32_t checked(struct graph *graph, const struct product *product, struct checks *checks,
                        uint32_t from, uint32_t to, uint32_t max) {
    const uint32_t distance = product->distance[to];
    const bool adds = product->ends_unit[to];
    if (!adds && distance <= product->distance[from]) return product->nodes[from];
    for (int i = 0; i < checks->n; i++) {
        const struct counted_edge *check = &checks->list[i];
        if (check->distance == distance && check->adds == adds) return check->node;
    }
    uint32_t node = graph_node(graph);
    graph_count(graph, product->nodes[from], adds, max - distance, node);
    if (checks->n < 16) checks->list[checks->n++] = (struct counted_edge){distance, node, adds};
    return node;
}

static void draw_state(struct graph *graph, const struct product *product, uint32_t from,
                       uint32_t max) {
    struct checks checks = {0};
    const struct dfa *dfa = &product->dfa;
    for (int low = 0, high; low < 256 && graph->b->status == STATUS_OK; low = high + 1) {
        uint32_t to = dfa_next(dfa, from, (uint8_t)low);
        high = low;
        while (high < 255 && dfa_next(dfa, from, (uint8_t)(high + 1)) == to) high++;
        if (product->nodes[to] == 0) continue;
        uint32_t node = checked(graph, product, &checks, from, to, max);
        graph_bytes(graph, node, low, high, product->nodes[to]);
    }
}

static void draw(struct graph *graph, struct product *product, uint32_t max, uint32_t start,
                 uint32_t end) {
    const struct dfa *dfa = &product->dfa;
    product->nodes = mem_calloc((size_t)dfa->n + 1, sizeof *product->nodes);
    for (uint32_t i = 1; i < dfa->n && graph->b->status == STATUS_OK; i++)
        if (product->distance[i] <= max) product->nodes[i] = graph_node(graph);
    for (uint32_t i = 1; i < dfa->n && graph->b->status == STATUS_OK; i++) {
        if (!product->nodes[i]) continue;
        draw_state(graph, product, i, max);
        if (dfa->accepts[i]) graph_empty(graph, product->nodes[i], end);
    }
    if (product->nodes[dfa->start]) graph_empty(graph, start, product->nodes[dfa->start]);
}

static void draw_counted(struct graph *graph, const struct dfa *x, const struct dfa *unit,
                         uint32_t max, uint32_t from, uint32_t to) {
    struct product product = {0};
    uint32_t before;
    find_states(graph->b, x, unit, &product);
    if (graph->b->status == STATUS_OK) find_distances(graph->b, &product);
    if (graph->b->status == STATUS_OK) {
        int rule = graph_begin_counter(graph, from, to, &before);
        draw(graph, &product, max, graph->network->rules[rule].start,
             graph->network->rules[rule].end);
        graph_end_counter(graph, before);
    }
    dfa_free(&product.dfa);
    mem_free(product.ends_unit);
    mem_free(product.distance);
    mem_free(product.nodes);
}

/* ---- the choice ----------------------------------------------------------------------------- */

/* Up to this many times limits.max_copies a state of x is copied for each count: the result is a
 * deterministic automaton. */
enum { STATES_OF_A_COPY = 8 };

/* Returns the operand with the largest count, or NULL. */
static const struct expr *largest_count(const struct expr *expr) {
    const struct expr *found = NULL;
    for (const struct expr *e = expr->child; e; e = e->next) {
        bool is_larger = e->kind == EXPR_REPEAT && e->max > (found ? found->max : 1);
        if (is_larger) found = e;
    }
    return found;
}

/* Makes the automaton of the other operands, and of the minimum. */
static void make_others(struct builder *b, const struct expr *expr, const struct expr *counted,
                        struct dfa *x) {
    struct dfa others = {0};
    struct expr rest = *counted;
    rest.max = NO_MAX;
    bool has_others = expr->child != counted || counted->next;
    if (has_others) dfa_of_and(b, expr, counted, &others);
    if (!has_others) rest.min = 0;
    if (!has_others) dfa_of_expr(b, &rest, &others);
    rest.min = counted->min;
    if (b->status == STATUS_OK && rest.min > 0) {
        dfa_intersect_expr(b, &others, &rest, x);
        dfa_free(&others);
    } else {
        *x = others;
    }
}

bool graph_counted_and(struct graph *graph, const struct expr *expr, uint32_t from, uint32_t to) {
    struct builder *b = graph->b;
    const struct expr *counted = expr->kind == EXPR_AND ? largest_count(expr) : NULL;
    if (!graph->network || !counted || !counted->child) return false;
    struct dfa x = {0}, unit = {0};
    dfa_of_expr(b, counted->child, &unit);
    bool is_fit = b->status == STATUS_OK && dfa_is_prefix_free(&unit);
    if (is_fit) make_others(b, expr, counted, &x);
    const uint64_t states = (uint64_t)x.n * (uint64_t)counted->max;
    const uint64_t most = (uint64_t)b->limits.max_copies * STATES_OF_A_COPY;
    bool counts = is_fit && b->status == STATUS_OK && states > most;
    if (counts) draw_counted(graph, &x, &unit, (uint32_t)counted->max, from, to);
    dfa_free(&x);
    dfa_free(&unit);
    return counts || b->status != STATUS_OK;
}
