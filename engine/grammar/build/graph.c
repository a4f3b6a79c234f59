/* Adds expressions to a graph as nodes and edges. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/build/network.h"

uint32_t graph_node(struct graph *graph) {
    struct builder *b = graph->b;
    if (graph->n_nodes % 1024 == 0 && !builder_in_time(b)) return 0;
    if (graph->n_nodes >= (uint32_t)b->limits.max_states) {
        builder_fail(b,
                     "The grammar needs more than %d states; make it smaller, for example by "
                     "lower counts of repetitions.",
                     b->limits.max_states);
        return 0;
    }
    if (graph->n_nodes == graph->max_nodes) {
        graph->max_nodes = graph->max_nodes ? 2 * graph->max_nodes : 256;
        graph->first = mem_realloc(graph->first, graph->max_nodes * sizeof *graph->first);
        graph->counters = mem_realloc(graph->counters, graph->max_nodes * sizeof *graph->counters);
    }
    graph->first[graph->n_nodes] = 0;
    graph->counters[graph->n_nodes] = graph->counter;
    return graph->n_nodes++;
}

void graph_edge(struct graph *graph, uint32_t from, struct edge edge) {
    struct builder *b = graph->b;
    if (b->status != STATUS_OK) return;
    assert(from < graph->n_nodes && edge.to < graph->n_nodes);
    if (graph->n_edges % 1024 == 0) builder_in_time(b);
    if (graph->n_edges * sizeof *graph->edges >= b->limits.max_bytes) {
        builder_fail(b, "The grammar needs more than %zu MiB; make it smaller.",
                     b->limits.max_bytes >> 20);
        return;
    }
    if (graph->n_edges == graph->max_edges) {
        graph->max_edges = graph->max_edges ? 2 * graph->max_edges : 512;
        graph->edges = mem_realloc(graph->edges, graph->max_edges * sizeof *graph->edges);
    }
    graph->edges[graph->n_edges++] = (struct graph_edge){edge, graph->first[from]};
    graph->first[from] = graph->n_edges;
}

void graph_bytes(struct graph *graph, uint32_t from, int low, int high, uint32_t to) {
    graph_edge(graph, from, (struct edge){EDGE_BYTES, (uint8_t)low, (uint8_t)high, .to = to});
}

void graph_empty(struct graph *graph, uint32_t from, uint32_t to) {
    if (from != to) graph_edge(graph, from, (struct edge){.kind = EDGE_EMPTY, .to = to});
}

void graph_free(struct graph *graph) {
    mem_free(graph->edges);
    mem_free(graph->first);
    mem_free(graph->counters);
}

/* ---- expressions ---------------------------------------------------------------------------- */

static void draw_text(struct graph *graph, const struct expr *expr, uint32_t from, uint32_t to) {
    if (expr->n == 0) graph_empty(graph, from, to);
    for (size_t i = 0; i < expr->n && graph->b->status == STATUS_OK; i++) {
        uint32_t next = i + 1 == expr->n ? to : graph_node(graph);
        graph_bytes(graph, from, (uint8_t)expr->text[i], (uint8_t)expr->text[i], next);
        from = next;
    }
}

static void draw_sequence(struct graph *graph, const struct expr *expr, uint32_t from,
                          uint32_t to) {
    if (!expr->child) graph_empty(graph, from, to);
    for (const struct expr *e = expr->child; e && graph->b->status == STATUS_OK; e = e->next) {
        uint32_t next = e->next ? graph_node(graph) : to;
        graph_expr(graph, e, from, next);
        from = next;
    }
}

/* Adds the child `min` times, and then
 *     if unbounded, a loop:  from --> loop --child--> back --> loop,  loop --> to
 *     else max - min optional repeats:  from --> to,  from --child--> next */
static void draw_repeat(struct graph *graph, const struct expr *expr, uint32_t from, uint32_t to) {
    struct builder *b = graph->b;
    if (graph_counted(graph, expr, from, to)) return;
    for (int i = 0; i < expr->min && b->status == STATUS_OK; i++) {
        uint32_t next = graph_node(graph);
        graph_expr(graph, expr->child, from, next);
        from = next;
    }
    for (int i = expr->min; i < expr->max && b->status == STATUS_OK; i++) {
        uint32_t next = graph_node(graph);
        graph_empty(graph, from, to);
        graph_expr(graph, expr->child, from, next);
        from = next;
    }
    if (expr->max == NO_MAX) {
        uint32_t loop = graph_node(graph), back = graph_node(graph);
        graph_empty(graph, from, loop);
        graph_expr(graph, expr->child, loop, back);
        graph_empty(graph, back, loop);
        from = loop;
    }
    graph_empty(graph, from, to);
}

static int by_text(const void *a, const void *b) {
    const struct expr *x = *(const struct expr *const *)a, *y = *(const struct expr *const *)b;
    int order = memcmp(x->text, y->text, x->n < y->n ? x->n : y->n);
    return order ? order : (x->n > y->n) - (x->n < y->n);
}

static size_t common_prefix(const struct expr *x, const struct expr *y) {
    size_t n = 0;
    while (n < x->n && n < y->n && x->text[n] == y->text[n]) n++;
    return n;
}

/* Adds sorted texts as a trie, so that common beginnings share nodes. path[i] is the node after the
 * first i bytes of the previous text. If a longer text follows, the last byte of a text has a
 * separate node. */
static void draw_tree(struct graph *graph, const struct expr **texts, size_t n, uint32_t from,
                      uint32_t to) {
    size_t longest = 0;
    for (size_t i = 0; i < n; i++) longest = texts[i]->n > longest ? texts[i]->n : longest;
    uint32_t *path = mem_alloc((longest + 1) * sizeof *path);
    path[0] = from;
    for (size_t i = 0; i < n && graph->b->status == STATUS_OK; i++) {
        size_t at = i ? common_prefix(texts[i - 1], texts[i]) : 0, length = texts[i]->n;
        if (i && at == length) continue; /* a duplicate */
        bool goes_on = false;
        for (size_t j = i + 1; j < n && common_prefix(texts[i], texts[j]) == length; j++) {
            goes_on = texts[j]->n > length;
            if (goes_on) break;
        }
        for (; at < length && graph->b->status == STATUS_OK; at++) {
            uint8_t byte = (uint8_t)texts[i]->text[at];
            path[at + 1] = at + 1 < length || goes_on ? graph_node(graph) : to;
            graph_bytes(graph, path[at], byte, byte, path[at + 1]);
        }
        if (goes_on) graph_empty(graph, path[length], to);
    }
    mem_free(path);
}

/* Adds all texts as one trie and each other alternative separately. */
static void draw_alternatives(struct graph *graph, const struct expr *expr, uint32_t from,
                              uint32_t to) {
    size_t n = 0, max = 0;
    for (const struct expr *e = expr->child; e; e = e->next) max++;
    const struct expr **texts = mem_alloc((max + 1) * sizeof *texts);
    builder_works(graph->b, max * 10);
    for (const struct expr *e = expr->child; e; e = e->next) {
        if (graph->b->status != STATUS_OK) break;
        if (e->kind == EXPR_BYTES && e->n > 0)
            texts[n++] = e;
        else
            graph_expr(graph, e, from, to);
    }
    qsort(texts, n, sizeof *texts, by_text);
    draw_tree(graph, texts, n, from, to);
    mem_free(texts);
}

void graph_expr(struct graph *graph, const struct expr *expr, uint32_t from, uint32_t to) {
    if (graph->b->status != STATUS_OK) return;
    switch (expr->kind) {
    case EXPR_BYTES:
        draw_text(graph, expr, from, to);
        break;
    case EXPR_BYTE:
        graph_bytes(graph, from, 0, 255, to);
        break;
    case EXPR_CLASS:
        graph_class(graph, expr, from, to);
        break;
    case EXPR_CAT:
        draw_sequence(graph, expr, from, to);
        break;
    case EXPR_ALT:
        draw_alternatives(graph, expr, from, to);
        break;
    case EXPR_REPEAT:
        draw_repeat(graph, expr, from, to);
        break;
    case EXPR_CALL:
        graph_edge(graph, from, (struct edge){EDGE_CALL, .rule = (uint32_t)expr->rule, .to = to});
        break;
    case EXPR_AND:
    case EXPR_NOT:
    case EXPR_MULTIPLE:
        graph_regular(graph, expr, from, to);
        break;
    case EXPR_BEGIN:
        graph_edge(graph, from, (struct edge){.kind = EDGE_BEGIN, .to = to});
        break;
    case EXPR_AHEAD:
        assert(!"a look-ahead outside its reader");
        break;
    case EXPR_FAILED:
        assert(graph->b->status != STATUS_OK);
        break;
    }
}

/* ---- characters ----------------------------------------------------------------------------- */

/* Nodes from which one, two or three continuation bytes lead to `to`. node[0] is `to`; 0 means not
 * created yet, since node 0 is the start of a rule. */
struct tails {
    uint32_t node[4];
};

static uint32_t tail(struct graph *graph, struct tails *tails, int n) {
    for (int i = 1; i <= n; i++) {
        if (tails->node[i]) continue;
        tails->node[i] = graph_node(graph);
        graph_bytes(graph, tails->node[i], 0x80, 0xBF, tails->node[i - 1]);
    }
    return tails->node[n];
}

/* Adds the characters whose encodings have byte i between low[i] and high[i]. */
static void draw_encoded(struct graph *graph, const char *low, const char *high, int n,
                         uint32_t from, struct tails *tails) {
    for (int i = 0; i < n && graph->b->status == STATUS_OK; i++) {
        int left = n - 1 - i;
        bool is_full = true;
        for (int j = i + 1; j < n; j++) {
            is_full = is_full && (uint8_t)low[j] == 0x80 && (uint8_t)high[j] == 0xBF;
        }
        uint32_t next = is_full ? tail(graph, tails, left) : graph_node(graph);
        graph_bytes(graph, from, (uint8_t)low[i], (uint8_t)high[i], next);
        if (is_full) return;
        from = next;
    }
}

/* Splits a range until its encodings are a product of byte ranges, as RE2 does. */
static void draw_range(struct graph *graph, uint32_t low, uint32_t high, uint32_t from,
                       struct tails *tails) {
    static const uint32_t last[] = {0x7F, 0x7FF, 0xFFFF};
    for (int i = 0; i < 3; i++) {
        if (low <= last[i] && high > last[i]) {
            draw_range(graph, low, last[i], from, tails);
            draw_range(graph, last[i] + 1, high, from, tails);
            return;
        }
    }
    for (int bits = 6; bits <= 18 && high > 0x7F; bits += 6) {
        uint32_t mask = ((uint32_t)1 << bits) - 1;
        if ((low & ~mask) == (high & ~mask)) continue;
        uint32_t cut = low & mask ? low | mask : (high & mask) != mask ? (high & ~mask) - 1 : high;
        if (cut == high) continue;
        draw_range(graph, low, cut, from, tails);
        draw_range(graph, cut + 1, high, from, tails);
        return;
    }
    char first[4], end[4];
    int n = (int)utf8_write(low, first);
    utf8_write(high, end);
    draw_encoded(graph, first, end, n, from, tails);
}

void graph_class(struct graph *graph, const struct expr *expr, uint32_t from, uint32_t to) {
    struct tails tails = {{to}};
    for (int i = 0; i < expr->n_ranges && graph->b->status == STATUS_OK; i++) {
        draw_range(graph, expr->ranges[i].low, expr->ranges[i].high, from, &tails);
    }
}
