/* Adds expressions to a graph as nodes and edges. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/automaton.h"

uint32_t draft_node(struct draft *draft) {
    struct builder *b = draft->b;
    if (draft->n_nodes % 1024 == 0 && !builder_in_time(b)) return 0;
    if (draft->n_nodes >= (uint32_t)b->limits.max_states) {
        builder_fail(b,
                     "The grammar needs more than %d states; make it smaller, for example by "
                     "lower counts of repetitions.",
                     b->limits.max_states);
        return 0;
    }
    if (draft->n_nodes == draft->max_nodes) {
        draft->max_nodes = draft->max_nodes ? 2 * draft->max_nodes : 256;
        draft->first = mem_realloc(draft->first, draft->max_nodes * sizeof *draft->first);
    }
    draft->first[draft->n_nodes] = 0;
    return draft->n_nodes++;
}

void draft_edge(struct draft *draft, uint32_t from, struct edge edge) {
    struct builder *b = draft->b;
    if (b->status != STATUS_OK) return;
    assert(from < draft->n_nodes && edge.to < draft->n_nodes);
    if (draft->n_edges % 1024 == 0) builder_in_time(b);
    if (draft->n_edges * sizeof *draft->edges >= b->limits.max_bytes) {
        builder_fail(b, "The grammar needs more than %zu MiB; make it smaller.",
                     b->limits.max_bytes >> 20);
        return;
    }
    if (draft->n_edges == draft->max_edges) {
        draft->max_edges = draft->max_edges ? 2 * draft->max_edges : 512;
        draft->edges = mem_realloc(draft->edges, draft->max_edges * sizeof *draft->edges);
    }
    draft->edges[draft->n_edges++] = (struct draft_edge){edge, draft->first[from]};
    draft->first[from] = draft->n_edges;
}

void draft_bytes(struct draft *draft, uint32_t from, int low, int high, uint32_t to) {
    draft_edge(draft, from, (struct edge){EDGE_BYTES, (uint8_t)low, (uint8_t)high, .to = to});
}

void draft_empty(struct draft *draft, uint32_t from, uint32_t to) {
    if (from != to) draft_edge(draft, from, (struct edge){.kind = EDGE_EMPTY, .to = to});
}

void draft_free(struct draft *draft) {
    mem_free(draft->edges);
    mem_free(draft->first);
}

/* ---- expressions ---------------------------------------------------------------------------- */

static void draw_text(struct draft *draft, const struct expr *expr, uint32_t from, uint32_t to) {
    if (expr->n == 0) draft_empty(draft, from, to);
    for (size_t i = 0; i < expr->n && draft->b->status == STATUS_OK; i++) {
        uint32_t next = i + 1 == expr->n ? to : draft_node(draft);
        draft_bytes(draft, from, (uint8_t)expr->text[i], (uint8_t)expr->text[i], next);
        from = next;
    }
}

static void draw_sequence(struct draft *draft, const struct expr *expr, uint32_t from,
                          uint32_t to) {
    if (!expr->child) draft_empty(draft, from, to);
    for (const struct expr *e = expr->child; e && draft->b->status == STATUS_OK; e = e->next) {
        uint32_t next = e->next ? draft_node(draft) : to;
        draft_expr(draft, e, from, next);
        from = next;
    }
}

/* Adds the child `min` times, and then
 *     if unbounded, a loop:  from --> loop --child--> back --> loop,  loop --> to
 *     else max - min optional repeats:  from --> to,  from --child--> next */
static void draw_repeat(struct draft *draft, const struct expr *expr, uint32_t from, uint32_t to) {
    struct builder *b = draft->b;
    for (int i = 0; i < expr->min && b->status == STATUS_OK; i++) {
        uint32_t next = draft_node(draft);
        draft_expr(draft, expr->child, from, next);
        from = next;
    }
    for (int i = expr->min; i < expr->max && b->status == STATUS_OK; i++) {
        uint32_t next = draft_node(draft);
        draft_empty(draft, from, to);
        draft_expr(draft, expr->child, from, next);
        from = next;
    }
    if (expr->max == NO_MAX) {
        uint32_t loop = draft_node(draft), back = draft_node(draft);
        draft_empty(draft, from, loop);
        draft_expr(draft, expr->child, loop, back);
        draft_empty(draft, back, loop);
        from = loop;
    }
    draft_empty(draft, from, to);
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
static void draw_tree(struct draft *draft, const struct expr **texts, size_t n, uint32_t from,
                      uint32_t to) {
    size_t longest = 0;
    for (size_t i = 0; i < n; i++) longest = texts[i]->n > longest ? texts[i]->n : longest;
    uint32_t *path = mem_alloc((longest + 1) * sizeof *path);
    path[0] = from;
    for (size_t i = 0; i < n && draft->b->status == STATUS_OK; i++) {
        size_t at = i ? common_prefix(texts[i - 1], texts[i]) : 0, length = texts[i]->n;
        if (i && at == length) continue; /* a duplicate */
        bool goes_on = false;
        for (size_t j = i + 1; j < n && common_prefix(texts[i], texts[j]) == length; j++) {
            goes_on = texts[j]->n > length;
            if (goes_on) break;
        }
        for (; at < length && draft->b->status == STATUS_OK; at++) {
            uint8_t byte = (uint8_t)texts[i]->text[at];
            path[at + 1] = at + 1 < length || goes_on ? draft_node(draft) : to;
            draft_bytes(draft, path[at], byte, byte, path[at + 1]);
        }
        if (goes_on) draft_empty(draft, path[length], to);
    }
    mem_free(path);
}

/* Adds all texts as one trie and each other alternative separately. */
static void draw_alternatives(struct draft *draft, const struct expr *expr, uint32_t from,
                              uint32_t to) {
    size_t n = 0, max = 0;
    for (const struct expr *e = expr->child; e; e = e->next) max++;
    const struct expr **texts = mem_alloc((max + 1) * sizeof *texts);
    builder_works(draft->b, max * 10);
    for (const struct expr *e = expr->child; e; e = e->next) {
        if (draft->b->status != STATUS_OK) break;
        if (e->kind == EXPR_BYTES && e->n > 0)
            texts[n++] = e;
        else
            draft_expr(draft, e, from, to);
    }
    qsort(texts, n, sizeof *texts, by_text);
    draw_tree(draft, texts, n, from, to);
    mem_free(texts);
}

void draft_expr(struct draft *draft, const struct expr *expr, uint32_t from, uint32_t to) {
    if (draft->b->status != STATUS_OK) return;
    switch (expr->kind) {
    case EXPR_BYTES:
        draw_text(draft, expr, from, to);
        break;
    case EXPR_BYTE:
        draft_bytes(draft, from, 0, 255, to);
        break;
    case EXPR_CLASS:
        draft_class(draft, expr, from, to);
        break;
    case EXPR_CAT:
        draw_sequence(draft, expr, from, to);
        break;
    case EXPR_ALT:
        draw_alternatives(draft, expr, from, to);
        break;
    case EXPR_REPEAT:
        draw_repeat(draft, expr, from, to);
        break;
    case EXPR_CALL:
        draft_edge(draft, from, (struct edge){EDGE_CALL, .rule = (uint32_t)expr->rule, .to = to});
        break;
    case EXPR_AND:
    case EXPR_NOT:
    case EXPR_MULTIPLE:
        draft_regular(draft, expr, from, to);
        break;
    case EXPR_BEGIN:
        draft_edge(draft, from, (struct edge){.kind = EDGE_BEGIN, .to = to});
        break;
    case EXPR_FAILED:
        assert(draft->b->status != STATUS_OK);
        break;
    }
}

/* ---- characters ----------------------------------------------------------------------------- */

/* Nodes from which one, two or three continuation bytes lead to `to`. node[0] is `to`; 0 means not
 * created yet, since node 0 is the start of a rule. */
struct tails {
    uint32_t node[4];
};

static uint32_t tail(struct draft *draft, struct tails *tails, int n) {
    for (int i = 1; i <= n; i++) {
        if (tails->node[i]) continue;
        tails->node[i] = draft_node(draft);
        draft_bytes(draft, tails->node[i], 0x80, 0xBF, tails->node[i - 1]);
    }
    return tails->node[n];
}

/* Adds the characters whose encodings have byte i between low[i] and high[i]. */
static void draw_encoded(struct draft *draft, const char *low, const char *high, int n,
                         uint32_t from, struct tails *tails) {
    for (int i = 0; i < n && draft->b->status == STATUS_OK; i++) {
        int left = n - 1 - i;
        bool is_full = true;
        for (int j = i + 1; j < n; j++) {
            is_full = is_full && (uint8_t)low[j] == 0x80 && (uint8_t)high[j] == 0xBF;
        }
        uint32_t next = is_full ? tail(draft, tails, left) : draft_node(draft);
        draft_bytes(draft, from, (uint8_t)low[i], (uint8_t)high[i], next);
        if (is_full) return;
        from = next;
    }
}

/* Splits a range until its encodings are a product of byte ranges, as RE2 does. */
static void draw_range(struct draft *draft, uint32_t low, uint32_t high, uint32_t from,
                       struct tails *tails) {
    static const uint32_t last[] = {0x7F, 0x7FF, 0xFFFF};
    for (int i = 0; i < 3; i++) {
        if (low <= last[i] && high > last[i]) {
            draw_range(draft, low, last[i], from, tails);
            draw_range(draft, last[i] + 1, high, from, tails);
            return;
        }
    }
    for (int bits = 6; bits <= 18 && high > 0x7F; bits += 6) {
        uint32_t mask = ((uint32_t)1 << bits) - 1;
        if ((low & ~mask) == (high & ~mask)) continue;
        uint32_t cut = low & mask ? low | mask : (high & mask) != mask ? (high & ~mask) - 1 : high;
        if (cut == high) continue;
        draw_range(draft, low, cut, from, tails);
        draw_range(draft, cut + 1, high, from, tails);
        return;
    }
    char first[4], end[4];
    int n = (int)utf8_write(low, first);
    utf8_write(high, end);
    draw_encoded(draft, first, end, n, from, tails);
}

void draft_class(struct draft *draft, const struct expr *expr, uint32_t from, uint32_t to) {
    struct tails tails = {{to}};
    for (int i = 0; i < expr->n_ranges && draft->b->status == STATUS_OK; i++) {
        draw_range(draft, expr->ranges[i].low, expr->ranges[i].high, from, &tails);
    }
}
