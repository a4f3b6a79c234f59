/* Intersections and complements of regular expressions as deterministic automata over bytes (the
 * subset construction of Rabin and Scott 1959, and products). State 0 is the sink: all its bytes
 * lead back to it. Bytes that no state distinguishes share a column of the tables. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/build/keys.h"
#include "engine/grammar/build/network.h"

/* ---- classes of bytes ----------------------------------------------------------------------- */

/* Assigns a byte to the class with the same key, or to a new class. Called for bytes in ascending
 * order, before states exist. */
static void add_byte(struct dfa *dfa, int byte, uint32_t key, uint32_t keys[256]) {
    uint32_t class = 0;
    while (class < dfa->n_classes && keys[class] != key) class ++;
    if (class == dfa->n_classes) {
        keys[class] = key;
        dfa->first_of[dfa->n_classes++] = (uint8_t)byte;
    }
    dfa->class_of[byte] = (uint8_t) class;
}

/* Forms classes of adjacent bytes that no edge of the graph divides. */
static void classes_of_graph(const struct graph *graph, struct dfa *dfa) {
    bool begins[257] = {[0] = true};
    uint32_t keys[256], run = 0;
    for (uint32_t e = 0; e < graph->n_edges; e++) {
        const struct edge *edge = &graph->edges[e].edge;
        if (edge->kind == EDGE_BYTES) begins[edge->low] = begins[edge->high + 1] = true;
    }
    for (int byte = 0; byte < 256; byte++) add_byte(dfa, byte, run += begins[byte], keys);
}

void dfa_classes_of_both(const struct dfa *x, const struct dfa *y, struct dfa *out) {
    uint32_t keys[256];
    for (int byte = 0; byte < 256; byte++)
        add_byte(out, byte, (uint32_t)x->class_of[byte] << 8 | y->class_of[byte], keys);
}

/* Hashes each class's column of successors. Equal columns have equal hashes. */
static void hash_columns(const struct dfa *dfa, uint64_t hashes[256]) {
    for (uint32_t c = 0; c < dfa->n_classes; c++) hashes[c] = 0;
    for (uint32_t i = 0; i < dfa->n; i++) {
        const uint32_t *next = dfa->next + (size_t)i * dfa->n_classes;
        for (uint32_t c = 0; c < dfa->n_classes; c++)
            hashes[c] = (hashes[c] ^ next[c]) * 0x9E3779B97F4A7C15u, hashes[c] ^= hashes[c] >> 29;
    }
}

static bool same_column(const struct dfa *dfa, uint32_t x, uint32_t y) {
    for (uint32_t i = 0; i < dfa->n; i++) {
        const uint32_t *next = dfa->next + (size_t)i * dfa->n_classes;
        if (next[x] != next[y]) return false;
    }
    return true;
}

/* Joins classes with equal columns. */
static void join_classes(struct dfa *dfa) {
    uint32_t becomes[256], kept[256], n = 0;
    uint64_t hashes[256];
    hash_columns(dfa, hashes);
    for (uint32_t c = 0; c < dfa->n_classes; c++) {
        uint32_t same = 0;
        while (same < n && (hashes[kept[same]] != hashes[c] || !same_column(dfa, kept[same], c)))
            same++;
        if (same == n) kept[n++] = c;
        becomes[c] = same;
    }
    for (uint32_t i = 0; i < dfa->n; i++)
        for (uint32_t c = 0; c < n; c++)
            dfa->next[(size_t)i * n + c] = dfa->next[(size_t)i * dfa->n_classes + kept[c]];
    for (int byte = 0; byte < 256; byte++)
        dfa->class_of[byte] = (uint8_t)becomes[dfa->class_of[byte]];
    for (uint32_t c = 0; c < n; c++) dfa->first_of[c] = dfa->first_of[kept[c]];
    dfa->n_classes = n;
}

/* ---- states --------------------------------------------------------------------------------- */

uint32_t dfa_add(struct builder *b, struct dfa *dfa, bool accepts) {
    const size_t row = dfa->n_classes * sizeof *dfa->next, bytes = dfa->n * row;
    assert(dfa->n_classes > 0);
    if (dfa->n % 64 == 0 && !builder_in_time(b)) return 0;
    if (bytes > b->limits.max_bytes || dfa->n > (uint32_t)b->limits.max_states) {
        builder_fail(b,
                     "Its patterns need more than %d states, or %zu MiB, if they apply together or "
                     "end a text; make them smaller.",
                     b->limits.max_states, b->limits.max_bytes >> 20);
        return 0;
    }
    if (dfa->n == dfa->max) {
        dfa->max = dfa->max ? 2 * dfa->max : 16;
        dfa->next = mem_realloc(dfa->next, dfa->max * row);
        dfa->accepts = mem_realloc(dfa->accepts, dfa->max * sizeof *dfa->accepts);
    }
    memset((char *)dfa->next + bytes, 0, row);
    dfa->accepts[dfa->n] = accepts;
    return dfa->n++;
}

void dfa_free(struct dfa *dfa) {
    mem_free(dfa->next);
    mem_free(dfa->accepts);
}

/* ---- from a graph --------------------------------------------------------------------------- */

/* A set of nodes. A node is in the set if seen[node] == stamp. */
struct node_set {
    uint32_t *nodes, n, stamp, *seen; /* [n_nodes] each */
};

static void set_add(const struct graph *graph, struct node_set *set, uint32_t node) {
    if (set->seen[node] == set->stamp) return;
    set->seen[node] = set->stamp;
    set->nodes[set->n++] = node;
    (void)graph;
}

static int by_number(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Adds the nodes that empty edges reach, and sorts. */
static void set_close(const struct graph *graph, struct node_set *set, bool at_begin) {
    for (uint32_t i = 0; i < set->n; i++) {
        for (uint32_t e = graph->first[set->nodes[i]]; e; e = graph->edges[e - 1].next) {
            const struct edge *edge = &graph->edges[e - 1].edge;
            if (edge->kind == EDGE_EMPTY || (edge->kind == EDGE_BEGIN && at_begin))
                set_add(graph, set, edge->to);
        }
    }
    qsort(set->nodes, set->n, sizeof *set->nodes, by_number);
}

/* Finds the successors of a state. Its classes are ranges of bytes; the successor is computed once
 * per range between two bounds of the edges that leave the state's nodes. */
static void expand(struct builder *b, const struct graph *graph, struct dfa *dfa,
                   struct key_table *table, struct node_set *set, uint32_t state, uint32_t end) {
    bool begins[257] = {[0] = true};
    for (uint32_t i = 0; i < table->keys[state].n; i++) {
        uint32_t node = key_numbers(table, state)[i];
        for (uint32_t e = graph->first[node]; e; e = graph->edges[e - 1].next) {
            const struct edge *edge = &graph->edges[e - 1].edge;
            if (edge->kind == EDGE_BYTES) begins[edge->low] = begins[edge->high + 1] = true;
        }
    }
    uint32_t to = 0;
    for (uint32_t class = 0; class < dfa->n_classes && b->status == STATUS_OK; class ++) {
        const int byte = dfa->first_of[class];
        if (begins[byte]) {
            set->n = 0;
            set->stamp++;
            for (uint32_t i = 0; i < table->keys[state].n; i++) {
                uint32_t node = key_numbers(table, state)[i];
                for (uint32_t e = graph->first[node]; e; e = graph->edges[e - 1].next) {
                    const struct edge *edge = &graph->edges[e - 1].edge;
                    if (edge->kind == EDGE_BYTES && edge->low <= byte && byte <= edge->high)
                        set_add(graph, set, edge->to);
                }
            }
            set_close(graph, set, false);
            builder_works(b, table->keys[state].n + 8 * (size_t)set->n);
            to = key_place(table, set->nodes, set->n);
            if (to == dfa->n) dfa_add(b, dfa, set->seen[end] == set->stamp);
        }
        if (b->status == STATUS_OK) dfa->next[(size_t)state * dfa->n_classes + class] = to;
    }
}

/* Returns the start state; at_begin: at the beginning of the text. */
static uint32_t begin_dfa(struct builder *b, const struct graph *graph, struct dfa *dfa,
                          struct key_table *table, struct node_set *set, const uint32_t ends[2],
                          bool at_begin) {
    set->n = 0;
    set->stamp++;
    set_add(graph, set, ends[0]);
    set_close(graph, set, at_begin);
    uint32_t state = key_place(table, set->nodes, set->n);
    if (state == dfa->n) dfa_add(b, dfa, set->seen[ends[1]] == set->stamp);
    return state;
}

void dfa_of_graph(struct builder *b, const struct graph *graph, uint32_t start, uint32_t end,
                  struct dfa *dfa) {
    struct key_table *table = mem_calloc(1, sizeof *table);
    struct node_set set = {.stamp = 1};
    set.nodes = mem_alloc((graph->n_nodes + 1) * sizeof *set.nodes);
    set.seen = mem_calloc(graph->n_nodes + 1, sizeof *set.seen);
    classes_of_graph(graph, dfa);
    key_place(table, NULL, 0); /* state 0: the empty set */
    dfa_add(b, dfa, false);
    dfa->start = begin_dfa(b, graph, dfa, table, &set, (uint32_t[]){start, end}, false);
    dfa->first = begin_dfa(b, graph, dfa, table, &set, (uint32_t[]){start, end}, true);
    for (uint32_t i = 1; i < dfa->n && b->status == STATUS_OK; i++) {
        expand(b, graph, dfa, table, &set, i, end);
    }
    if (b->status == STATUS_OK) join_classes(dfa);
    mem_free(set.nodes);
    mem_free(set.seen);
    key_table_free(table);
}

/* ---- operations ----------------------------------------------------------------------------- */

/* Intersects two automata. States are pairs. */
static void intersect(struct builder *b, const struct dfa *x, const struct dfa *y,
                      struct dfa *out) {
    struct key_table *table = mem_calloc(1, sizeof *table);
    dfa_classes_of_both(x, y, out);
    key_place(table, (uint32_t[]){0, 0}, 2);
    dfa_add(b, out, x->accepts[0] && y->accepts[0]);
    out->start = key_place(table, (uint32_t[]){x->start, y->start}, 2);
    if (out->start == out->n) dfa_add(b, out, x->accepts[x->start] && y->accepts[y->start]);
    for (uint32_t i = 0; i < out->n && b->status == STATUS_OK; i++) {
        const uint32_t p = key_numbers(table, i)[0], q = key_numbers(table, i)[1];
        for (uint32_t c = 0; c < out->n_classes && builder_works(b, 5); c++) {
            const uint8_t byte = out->first_of[c];
            uint32_t both[2] = {dfa_next(x, p, byte), dfa_next(y, q, byte)};
            uint32_t to = key_place(table, both, 2);
            if (to == out->n) dfa_add(b, out, x->accepts[both[0]] && y->accepts[both[1]]);
            if (b->status == STATUS_OK) out->next[(size_t)i * out->n_classes + c] = to;
        }
    }
    key_table_free(table);
}

bool dfa_is_prefix_free(const struct dfa *dfa) {
    for (uint32_t i = 0; i < dfa->n; i++) {
        for (uint32_t c = 0; c < dfa->n_classes && dfa->accepts[i]; c++) {
            if (dfa->next[(size_t)i * dfa->n_classes + c]) return false;
        }
    }
    return dfa->n > 0 && !dfa->accepts[0] && !dfa->accepts[dfa->start];
}

/* Intersects x with a repeat of the prefix-free `unit`. States are (state of x, state of the unit,
 * number of complete units). Most counts need at most count times as many states as x. */
static void intersect_counted(struct builder *b, const struct dfa *x, const struct dfa *unit,
                              const struct expr *repeat, struct dfa *out) {
    struct key_table *table = mem_calloc(1, sizeof *table);
    uint32_t min = (uint32_t)repeat->min;
    uint32_t most = repeat->max == NO_MAX ? min : (uint32_t)repeat->max;
    dfa_classes_of_both(x, unit, out);
    key_place(table, (uint32_t[]){0, 0, 0}, 3);
    dfa_add(b, out, false);
    out->start = key_place(table, (uint32_t[]){x->start, unit->start, 0}, 3);
    if (out->start == out->n) dfa_add(b, out, min == 0 && x->accepts[x->start]);
    for (uint32_t i = 1; i < out->n && b->status == STATUS_OK; i++) {
        const uint32_t p = key_numbers(table, i)[0], q = key_numbers(table, i)[1];
        uint32_t count = key_numbers(table, i)[2], key[3];
        for (uint32_t c = 0; c < out->n_classes && builder_works(b, 5); c++) {
            const uint8_t byte = out->first_of[c];
            key[0] = dfa_next(x, p, byte), key[1] = dfa_next(unit, q, byte), key[2] = count;
            if (unit->accepts[key[1]]) {
                key[1] = unit->start;
                key[2] = count < most ? count + 1 : most;
            }
            bool is_over = repeat->max != NO_MAX && count == most;
            bool is_dead = !key[0] && !x->accepts[0];
            if (is_over || is_dead || !key[1]) key[0] = key[1] = key[2] = 0;
            uint32_t to = key_place(table, key, 3);
            if (to == out->n)
                dfa_add(b, out, x->accepts[key[0]] && key[1] == unit->start && key[2] >= min);
            if (b->status == STATUS_OK) out->next[(size_t)i * out->n_classes + c] = to;
        }
    }
    key_table_free(table);
}

void dfa_intersect_expr(struct builder *b, const struct dfa *x, const struct expr *expr,
                        struct dfa *out) {
    struct dfa other = {0};
    bool is_counted = expr->kind == EXPR_REPEAT && expr->child;
    dfa_of_expr(b, is_counted ? expr->child : expr, &other);
    if (b->status == STATUS_OK && is_counted && !dfa_is_prefix_free(&other)) {
        dfa_free(&other);
        other = (struct dfa){0};
        is_counted = false;
        dfa_of_expr(b, expr, &other);
    }
    if (b->status == STATUS_OK && is_counted)
        intersect_counted(b, x, &other, expr, out);
    else if (b->status == STATUS_OK)
        intersect(b, x, &other, out);
    dfa_free(&other);
}

void dfa_of_and(struct builder *b, const struct expr *expr, const struct expr *without,
                struct dfa *dfa) {
    bool is_first = true;
    for (const struct expr *e = expr->child; e && b->status == STATUS_OK; e = e->next) {
        struct dfa both = {0};
        if (e == without) continue;
        if (is_first)
            dfa_of_expr(b, e, &both);
        else
            dfa_intersect_expr(b, dfa, e, &both);
        dfa_free(dfa);
        *dfa = both;
        is_first = false;
    }
}

/* Is remainder * 10^digits a multiple of divisor? */
static bool divides(int divisor, uint32_t remainder, int digits) {
    for (; digits > 0; digits--)
        remainder = (uint32_t)((uint64_t)remainder * 10 % (uint32_t)divisor);
    return remainder == 0;
}

static void link(struct dfa *dfa, uint32_t from, uint32_t byte, uint32_t to) {
    dfa->next[(size_t)from * dfa->n_classes + dfa->class_of[byte]] = to;
}

/* Multiples of divisor / 10^scale. After `scale` digits of a fraction only zeros may follow.
 *
 *     1 start, 2 after '-', 3 after a leading 0, then [place][remainder of the digits so far]:
 *     place 0 is before the point, place i after the point and i - 1 digits */
static void make_multiples(struct builder *b, const struct expr *expr, struct dfa *dfa) {
    uint32_t first = 4, size = (uint32_t)expr->divisor, scale = (uint32_t)expr->scale;
    uint32_t last = scale ? scale + 1 : 2, n = size * (last + 1);
    uint32_t keys[256];
    for (int byte = 0; byte < 256; byte++) {
        bool is_digit = byte >= '0' && byte <= '9';
        add_byte(dfa, byte, is_digit || byte == '-' || byte == '.' ? (uint32_t)byte : 0, keys);
    }
    for (uint32_t i = 0; i < first; i++) dfa_add(b, dfa, i == 3);
    for (uint32_t i = 0; i < n && b->status == STATUS_OK; i++) {
        int place = (int)(i / size), left = expr->scale - (place ? place - 1 : 0);
        dfa_add(b, dfa, place != 1 && divides(expr->divisor, i % size, left));
    }
    if (b->status != STATUS_OK) return;
    dfa->start = 1;
    link(dfa, 1, '-', 2);
    link(dfa, 1, '0', 3);
    link(dfa, 2, '0', 3);
    link(dfa, 3, '.', first + size);
    for (uint32_t digit = 1; digit < 10; digit++) {
        link(dfa, 1, '0' + digit, first + digit % size);
        link(dfa, 2, '0' + digit, first + digit % size);
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t place = i / size, remainder = i % size, state = first + i;
        uint32_t behind = first + (place == 0 ? 0 : place < last ? place + 1 : last) * size;
        if (place == 0) link(dfa, state, '.', first + size + remainder);
        for (uint32_t digit = 0; digit < 10 && place <= scale; digit++)
            link(dfa, state, '0' + digit, behind + (remainder * 10 + digit) % size);
        if (place > scale) link(dfa, state, '0', behind + remainder);
    }
}

void dfa_of_expr(struct builder *b, const struct expr *expr, struct dfa *dfa) {
    if (expr->kind == EXPR_AND) {
        dfa_of_and(b, expr, NULL, dfa);
    } else if (expr->kind == EXPR_MULTIPLE) {
        make_multiples(b, expr, dfa);
    } else if (expr->kind == EXPR_NOT) {
        dfa_of_expr(b, expr->child, dfa);
        for (uint32_t i = 0; i < dfa->n; i++) dfa->accepts[i] = !dfa->accepts[i];
    } else {
        struct graph graph = {.b = b};
        uint32_t start = graph_node(&graph), end = graph_node(&graph);
        if (b->status == STATUS_OK) graph_expr(&graph, expr, start, end);
        if (b->status == STATUS_OK) dfa_of_graph(b, &graph, start, end, dfa);
        graph_free(&graph);
    }
}

/* ---- into the graph of a grammar ------------------------------------------------------------ */

void graph_regular(struct graph *graph, const struct expr *expr, uint32_t from, uint32_t to) {
    struct dfa dfa = {0};
    if (graph_counted_and(graph, expr, from, to)) return;
    dfa_of_expr(graph->b, expr, &dfa);
    if (graph->b->status == STATUS_OK) dfa_draw(graph, &dfa, from, to);
    dfa_free(&dfa);
}
