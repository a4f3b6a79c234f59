/* Intersections and complements of regular expressions, as deterministic automata over bytes (the
 * subset construction of Rabin and Scott 1959, and products). State 0 is where no text of the
 * operand goes on any more: all its bytes lead back to it. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/automaton.h"

/* Adds a state, all of whose bytes lead to 0. */
static uint32_t dfa_add(struct builder *b, struct dfa *dfa, bool accepts) {
    size_t bytes = (size_t)dfa->n * sizeof *dfa->next;
    if (dfa->n % 64 == 0 && !builder_in_time(b)) return 0;
    if (bytes > b->limits.max_bytes || dfa->n > (uint32_t)b->limits.max_states) {
        builder_fail(b,
                     "Its patterns need more than %d states, or %zu MiB, where they must hold "
                     "together or end a text; make them smaller.",
                     b->limits.max_states, b->limits.max_bytes >> 20);
        return 0;
    }
    if (dfa->n == dfa->max) {
        dfa->max = dfa->max ? 2 * dfa->max : 16;
        dfa->next = mem_realloc(dfa->next, dfa->max * sizeof *dfa->next);
        dfa->accepts = mem_realloc(dfa->accepts, dfa->max * sizeof *dfa->accepts);
    }
    memset(dfa->next[dfa->n], 0, sizeof *dfa->next);
    dfa->accepts[dfa->n] = accepts;
    return dfa->n++;
}

void dfa_free(struct dfa *dfa) {
    free(dfa->next);
    free(dfa->accepts);
}

/* ---- a table from keys to states ------------------------------------------------------------ */

/* Keys are runs of `n` numbers; the state of a key is its place. */
struct key_table {
    struct key {
        uint32_t *numbers, n, hash, next; /* index + 1 of the same bucket */
    } * keys;
    uint32_t n, max, buckets[1024];
};

static uint32_t hash_numbers(const uint32_t *numbers, uint32_t n) {
    uint32_t hash = 2166136261u;
    for (uint32_t i = 0; i < n; i++) hash = (hash ^ numbers[i]) * 16777619u, hash ^= hash >> 15;
    return hash;
}

/* The place of a key, which is copied if it is new. */
static uint32_t key_place(struct key_table *table, const uint32_t *numbers, uint32_t n) {
    uint32_t hash = hash_numbers(numbers, n), *bucket = &table->buckets[hash % 1024];
    for (uint32_t i = *bucket; i; i = table->keys[i - 1].next) {
        const struct key *key = &table->keys[i - 1];
        if (key->hash == hash && key->n == n &&
            (n == 0 || memcmp(key->numbers, numbers, n * sizeof *numbers) == 0))
            return i - 1;
    }
    if (table->n == table->max) {
        table->max = table->max ? 2 * table->max : 64;
        table->keys = mem_realloc(table->keys, table->max * sizeof *table->keys);
    }
    uint32_t *copy = mem_alloc((n + 1) * sizeof *copy);
    if (n) memcpy(copy, numbers, n * sizeof *numbers);
    table->keys[table->n] = (struct key){copy, n, hash, *bucket};
    *bucket = ++table->n;
    return table->n - 1;
}

static void key_table_free(struct key_table *table) {
    for (uint32_t i = 0; i < table->n; i++) free(table->keys[i].numbers);
    free(table->keys);
    free(table);
}

/* ---- from a draft --------------------------------------------------------------------------- */

/* A set of a draft's nodes. */
struct node_set {
    uint32_t *nodes, n, stamp, *seen; /* [n_nodes] each */
};

static void set_add(const struct draft *draft, struct node_set *set, uint32_t node) {
    if (set->seen[node] == set->stamp) return;
    set->seen[node] = set->stamp;
    set->nodes[set->n++] = node;
    (void)draft;
}

/* Adds what follows without a byte, and sorts. */
static int by_number(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void set_close(const struct draft *draft, struct node_set *set, bool at_begin) {
    for (uint32_t i = 0; i < set->n; i++) {
        for (uint32_t e = draft->first[set->nodes[i]]; e; e = draft->edges[e - 1].next) {
            const struct edge *edge = &draft->edges[e - 1].edge;
            if (edge->kind == EDGE_EMPTY || (edge->kind == EDGE_BEGIN && at_begin))
                set_add(draft, set, edge->to);
        }
    }
    qsort(set->nodes, set->n, sizeof *set->nodes, by_number);
}

/* Where the bytes of a state lead: for each run of bytes that no edge of its nodes divides, the set
 * of nodes behind it. */
static void expand(struct builder *b, const struct draft *draft, struct dfa *dfa,
                   struct key_table *table, struct node_set *set, uint32_t state, uint32_t end) {
    bool begins[257] = {[0] = true};
    for (uint32_t i = 0; i < table->keys[state].n; i++) {
        uint32_t node = table->keys[state].numbers[i];
        for (uint32_t e = draft->first[node]; e; e = draft->edges[e - 1].next) {
            const struct edge *edge = &draft->edges[e - 1].edge;
            if (edge->kind == EDGE_BYTES) begins[edge->low] = begins[edge->high + 1] = true;
        }
    }
    uint32_t to = 0;
    for (int byte = 0; byte < 256 && b->status == STATUS_OK; byte++) {
        if (begins[byte]) {
            set->n = 0;
            set->stamp++;
            for (uint32_t i = 0; i < table->keys[state].n; i++) {
                uint32_t node = table->keys[state].numbers[i];
                for (uint32_t e = draft->first[node]; e; e = draft->edges[e - 1].next) {
                    const struct edge *edge = &draft->edges[e - 1].edge;
                    if (edge->kind == EDGE_BYTES && edge->low <= byte && byte <= edge->high)
                        set_add(draft, set, edge->to);
                }
            }
            set_close(draft, set, false);
            to = key_place(table, set->nodes, set->n);
            if (to == dfa->n) dfa_add(b, dfa, set->seen[end] == set->stamp);
        }
        if (b->status == STATUS_OK) dfa->next[state][byte] = to;
    }
}

/* The state in which a text begins. */
static uint32_t begin_dfa(struct builder *b, const struct draft *draft, struct dfa *dfa,
                          struct key_table *table, struct node_set *set, const uint32_t ends[2],
                          bool at_begin) {
    set->n = 0;
    set->stamp++;
    set_add(draft, set, ends[0]);
    set_close(draft, set, at_begin);
    uint32_t state = key_place(table, set->nodes, set->n);
    if (state == dfa->n) dfa_add(b, dfa, set->seen[ends[1]] == set->stamp);
    return state;
}

void dfa_of_draft(struct builder *b, const struct draft *draft, uint32_t start, uint32_t end,
                  struct dfa *dfa) {
    struct key_table *table = mem_calloc(1, sizeof *table);
    struct node_set set = {.stamp = 1};
    set.nodes = mem_alloc((draft->n_nodes + 1) * sizeof *set.nodes);
    set.seen = mem_calloc(draft->n_nodes + 1, sizeof *set.seen);
    key_place(table, NULL, 0); /* state 0: no node */
    dfa_add(b, dfa, false);
    dfa->start = begin_dfa(b, draft, dfa, table, &set, (uint32_t[]){start, end}, false);
    dfa->first = begin_dfa(b, draft, dfa, table, &set, (uint32_t[]){start, end}, true);
    for (uint32_t i = 1; i < dfa->n && b->status == STATUS_OK; i++) {
        if (i % 8 == 0) builder_in_time(b); /* a state may have thousands of nodes */
        expand(b, draft, dfa, table, &set, i, end);
    }
    free(set.nodes);
    free(set.seen);
    key_table_free(table);
}

/* ---- operations ----------------------------------------------------------------------------- */

static void make(struct builder *b, const struct expr *expr, struct dfa *dfa);

/* Both at once: states are pairs. */
static void intersect(struct builder *b, const struct dfa *x, const struct dfa *y,
                      struct dfa *out) {
    struct key_table *table = mem_calloc(1, sizeof *table);
    key_place(table, (uint32_t[]){0, 0}, 2);
    dfa_add(b, out, x->accepts[0] && y->accepts[0]);
    out->start = key_place(table, (uint32_t[]){x->start, y->start}, 2);
    if (out->start == out->n) dfa_add(b, out, x->accepts[x->start] && y->accepts[y->start]);
    for (uint32_t i = 0; i < out->n && b->status == STATUS_OK; i++) {
        const uint32_t *p = x->next[table->keys[i].numbers[0]];
        const uint32_t *q = y->next[table->keys[i].numbers[1]];
        uint32_t to = 0;
        for (int byte = 0; byte < 256 && b->status == STATUS_OK; byte++) {
            bool is_same = byte && p[byte] == p[byte - 1] && q[byte] == q[byte - 1];
            if (!is_same) to = key_place(table, (uint32_t[]){p[byte], q[byte]}, 2);
            if (to == out->n) dfa_add(b, out, x->accepts[p[byte]] && y->accepts[q[byte]]);
            if (b->status == STATUS_OK) out->next[i][byte] = to;
        }
    }
    key_table_free(table);
}

/* Is it a DFA none of whose texts begins another? */
static bool is_prefix_free(const struct dfa *dfa) {
    for (uint32_t i = 0; i < dfa->n; i++) {
        for (int byte = 0; byte < 256 && dfa->accepts[i]; byte++) {
            if (dfa->next[i][byte]) return false;
        }
    }
    return dfa->n > 0 && !dfa->accepts[dfa->start];
}

/* x and `repeat`, whose child is `unit`, prefix-free: states are (of x, of the unit, units so far).
 * Most counts need no more states than x alone has, times the count. */
static void intersect_counted(struct builder *b, const struct dfa *x, const struct dfa *unit,
                              const struct expr *repeat, struct dfa *out) {
    struct key_table *table = mem_calloc(1, sizeof *table);
    uint32_t min = (uint32_t)repeat->min;
    uint32_t most = repeat->max == NO_MAX ? min : (uint32_t)repeat->max;
    key_place(table, (uint32_t[]){0, 0, 0}, 3);
    dfa_add(b, out, false);
    out->start = key_place(table, (uint32_t[]){x->start, unit->start, 0}, 3);
    if (out->start == out->n) dfa_add(b, out, min == 0 && x->accepts[x->start]);
    for (uint32_t i = 1; i < out->n && b->status == STATUS_OK; i++) {
        uint32_t p = table->keys[i].numbers[0], q = table->keys[i].numbers[1], to = 0;
        uint32_t count = table->keys[i].numbers[2], key[3];
        for (int byte = 0; byte < 256 && b->status == STATUS_OK; byte++) {
            bool is_same = byte && x->next[p][byte] == x->next[p][byte - 1] &&
                           unit->next[q][byte] == unit->next[q][byte - 1];
            key[0] = x->next[p][byte], key[1] = unit->next[q][byte], key[2] = count;
            if (unit->accepts[key[1]]) {
                key[1] = unit->start;
                key[2] = count < most ? count + 1 : most;
            }
            bool is_over = repeat->max != NO_MAX && count == most;
            bool is_dead = !key[0] && !x->accepts[0];
            if (is_over || is_dead || !key[1]) key[0] = key[1] = key[2] = 0;
            if (!is_same) to = key_place(table, key, 3);
            if (to == out->n)
                dfa_add(b, out, x->accepts[key[0]] && key[1] == unit->start && key[2] >= min);
            if (b->status == STATUS_OK) out->next[i][byte] = to;
        }
    }
    key_table_free(table);
}

/* x and one more operand. */
static void intersect_expr(struct builder *b, const struct dfa *x, const struct expr *expr,
                           struct dfa *out) {
    struct dfa other = {0};
    bool is_counted = expr->kind == EXPR_REPEAT && expr->child;
    make(b, is_counted ? expr->child : expr, &other);
    if (b->status == STATUS_OK && is_counted && !is_prefix_free(&other)) {
        dfa_free(&other);
        other = (struct dfa){0};
        is_counted = false;
        make(b, expr, &other);
    }
    if (b->status == STATUS_OK && is_counted)
        intersect_counted(b, x, &other, expr, out);
    else if (b->status == STATUS_OK)
        intersect(b, x, &other, out);
    dfa_free(&other);
}

static void make_and(struct builder *b, const struct expr *expr, struct dfa *dfa) {
    make(b, expr->child, dfa);
    for (const struct expr *e = expr->child->next; e && b->status == STATUS_OK; e = e->next) {
        struct dfa both = {0};
        intersect_expr(b, dfa, e, &both);
        dfa_free(dfa);
        *dfa = both;
    }
}

/* Does divisor divide remainder * 10^digits? */
static bool divides(int divisor, uint32_t remainder, int digits) {
    for (; digits > 0; digits--)
        remainder = (uint32_t)((uint64_t)remainder * 10 % (uint32_t)divisor);
    return remainder == 0;
}

/* Multiples of divisor / 10^scale. Behind `scale` digits of a fraction only zeros may follow.
 *
 *     1 start, 2 behind '-', 3 behind a first 0, then [place][remainder of the digits so far]:
 *     place 0 is before the point, place i behind the point and i - 1 digits */
static void make_multiples(struct builder *b, const struct expr *expr, struct dfa *dfa) {
    uint32_t first = 4, size = (uint32_t)expr->divisor, scale = (uint32_t)expr->scale;
    uint32_t last = scale ? scale + 1 : 2, n = size * (last + 1);
    for (uint32_t i = 0; i < first; i++) dfa_add(b, dfa, i == 3);
    for (uint32_t i = 0; i < n && b->status == STATUS_OK; i++) {
        int place = (int)(i / size), left = expr->scale - (place ? place - 1 : 0);
        dfa_add(b, dfa, place != 1 && divides(expr->divisor, i % size, left));
    }
    if (b->status != STATUS_OK) return;
    dfa->start = 1;
    dfa->next[1]['-'] = 2;
    dfa->next[1]['0'] = dfa->next[2]['0'] = 3;
    dfa->next[3]['.'] = first + size;
    for (uint32_t digit = 1; digit < 10; digit++) {
        dfa->next[1]['0' + digit] = dfa->next[2]['0' + digit] = first + digit % size;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t place = i / size, remainder = i % size, *next = dfa->next[first + i];
        uint32_t behind = first + (place == 0 ? 0 : place < last ? place + 1 : last) * size;
        if (place == 0) next['.'] = first + size + remainder;
        for (uint32_t digit = 0; digit < 10 && place <= scale; digit++) {
            next['0' + digit] = behind + (remainder * 10 + digit) % size;
        }
        if (place > scale) next['0'] = behind + remainder;
    }
}

static void make(struct builder *b, const struct expr *expr, struct dfa *dfa) {
    if (expr->kind == EXPR_AND) {
        make_and(b, expr, dfa);
    } else if (expr->kind == EXPR_MULTIPLE) {
        make_multiples(b, expr, dfa);
    } else if (expr->kind == EXPR_NOT) {
        make(b, expr->child, dfa);
        for (uint32_t i = 0; i < dfa->n; i++) dfa->accepts[i] = !dfa->accepts[i];
    } else {
        struct draft draft = {.b = b};
        uint32_t start = draft_node(&draft), end = draft_node(&draft);
        if (b->status == STATUS_OK) draft_expr(&draft, expr, start, end);
        if (b->status == STATUS_OK) dfa_of_draft(b, &draft, start, end, dfa);
        draft_free(&draft);
    }
}

/* ---- into the draft of a grammar ------------------------------------------------------------ */

bool *dfa_find_live(const struct dfa *dfa) {
    bool *live = mem_calloc(dfa->n + 1, sizeof *live), changed = true;
    for (uint32_t i = 0; i < dfa->n; i++) live[i] = dfa->accepts[i];
    while (changed) {
        changed = false;
        for (uint32_t i = dfa->n; i-- > 0;) {
            for (int byte = 0; byte < 256 && !live[i]; byte++) {
                if (live[dfa->next[i][byte]]) live[i] = changed = true;
            }
        }
    }
    return live;
}

static void draw_state(struct draft *draft, const struct dfa *dfa, const uint32_t *nodes,
                       uint32_t state) {
    for (int low = 0, high; low < 256; low = high + 1) {
        uint32_t to = dfa->next[state][low];
        for (high = low; high < 255 && dfa->next[state][high + 1] == to; high++) continue;
        if (nodes[to]) draft_bytes(draft, nodes[state], low, high, nodes[to]);
    }
}

static void draw_dfa(struct draft *draft, const struct dfa *dfa, uint32_t from, uint32_t to) {
    uint32_t *nodes = mem_calloc(dfa->n + 1, sizeof *nodes); /* 0: it reaches no end */
    bool *live = dfa_find_live(dfa);
    for (uint32_t i = 0; i < dfa->n && draft->b->status == STATUS_OK; i++) {
        if (live[i]) nodes[i] = draft_node(draft);
    }
    for (uint32_t i = 0; i < dfa->n && draft->b->status == STATUS_OK; i++) {
        if (!nodes[i]) continue;
        draw_state(draft, dfa, nodes, i);
        if (dfa->accepts[i]) draft_empty(draft, nodes[i], to);
    }
    if (nodes[dfa->start]) draft_empty(draft, from, nodes[dfa->start]);
    free(live);
    free(nodes);
}

void draft_regular(struct draft *draft, const struct expr *expr, uint32_t from, uint32_t to) {
    struct dfa dfa = {0};
    make(draft->b, expr, &dfa);
    if (draft->b->status == STATUS_OK) draw_dfa(draft, &dfa, from, to);
    dfa_free(&dfa);
}
