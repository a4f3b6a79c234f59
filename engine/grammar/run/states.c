/* DESIGN. The states of an automaton, created when they are first reached.
 *
 * A state is a set of items (node, frame), closed under three rules. An item before a call adds the
 * start of the called rule. An item before a nullable rule also adds the node after the call. An
 * item at the end of a rule adds every item that waits for the rule. A tail call, the last step of
 * its rule, is not waited for: the called rule ends in place of its caller, so a loop written as
 * tail recursion stays finite.
 *
 * A frame stands for a rule and the items that continue after it (frames.c). A "here" frame refers
 * to the item's own state, so equal sets at different places of a text are one state. Only items
 * that wait for a byte or a call are kept. Guarded by the grammar's lock.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/run/automaton.h"

/* Limits of a state: its items, and its items that differ only in their frames, which are compared
 * one by one. Above a limit the grammar is too ambiguous. */
enum { MAX_ITEMS = 20000, MAX_FRAMES = 500 };

/* Comparisons that cost as much as one trie node. */
enum { COMPARISONS_OF_A_NODE = 4 };

/* ---- making a state ------------------------------------------------------------------------- */

/* Does x make y superfluous? Both are at one node. Of counts that are enough, the smallest one
 * allows all that the others do. */
static bool replaces(const struct automaton *a, const struct item *x, const struct item *y) {
    uint32_t counter = a->network->nodes[x->node].counter;
    if (x->frame != y->frame) return false;
    if (x->count == y->count) return true;
    return counter && x->count < y->count && x->count >= a->network->rules[counter - 1].least;
}

static void add_item(struct automaton *a, uint32_t node, uint32_t count, struct frame *frame) {
    struct making *making = &a->making;
    struct item item = {node, count, frame};
    int n_same = 0;
    for (uint32_t i = making->last[node]; i; i = making->same_node[i - 1], n_same++) {
        if (replaces(a, &making->items[i - 1], &item)) return;
    }
    a->work += n_same / COMPARISONS_OF_A_NODE;
    if (n_same == MAX_FRAMES) making->is_too_ambiguous = true;
    if (making->is_too_ambiguous) return;
    if (making->n == making->max) {
        making->max = making->max ? 2 * making->max : 64;
        size_t max = (size_t)making->max;
        making->items = mem_realloc(making->items, max * sizeof *making->items);
        making->same_node = mem_realloc(making->same_node, max * sizeof *making->same_node);
    }
    making->items[making->n] = item;
    making->same_node[making->n] = making->last[node];
    making->last[node] = (uint32_t)++making->n;
}

/* Adds the items that wait for a rule that has ended. If the rule is empty, `follow` has added them
 * already. */
static void complete(struct automaton *a, const struct frame *frame) {
    const struct network *network = a->network;
    struct state *origin = frame->origin;
    if (frame == &a->here[network->n_rules]) a->making.may_end = true;
    for (int i = 0; i < frame->n_callers; i++)
        add_item(a, frame->callers[i].node, frame->callers[i].count, frame->callers[i].frame);
    if (!origin) return;
    for (int i = 0; i < origin->n_items; i++) {
        const struct item *item = &origin->items[i];
        const struct node *node = &network->nodes[item->node];
        for (uint32_t e = node->edges; e < node->edges + node->n_edges; e++) {
            const struct edge *edge = &network->edges[e];
            if (edge->kind == EDGE_CALL && !edge->is_tail && edge->rule == frame->rule)
                add_item(a, edge->to, item->count, frame_in_later(a, item->frame, origin));
        }
    }
}

static void follow(struct automaton *a, struct item item) {
    const struct network *network = a->network;
    const struct node *node = &network->nodes[item.node];
    for (uint32_t e = node->edges; e < node->edges + node->n_edges; e++) {
        const struct edge *edge = &network->edges[e];
        bool counts = edge->kind == EDGE_COUNT && item.count + edge->low <= edge->bound;
        bool is_enough = edge->kind == EDGE_ENOUGH && item.count >= edge->bound;
        if (edge->kind == EDGE_EMPTY || counts || is_enough) {
            add_item(a, edge->to, item.count + (counts ? edge->low : 0), item.frame);
        } else if (edge->kind == EDGE_CALL) {
            const struct network_rule *rule = &network->rules[edge->rule];
            add_item(a, rule->start, 0, edge->is_tail ? item.frame : &a->here[edge->rule]);
            if (rule->is_nullable) add_item(a, edge->to, item.count, item.frame);
        }
    }
    if (node->is_end) complete(a, item.frame);
}

static void begin_making(struct automaton *a) {
    a->making.n = 0;
    a->making.may_end = a->making.is_too_ambiguous = false;
}

/* ---- sharing equal states ------------------------------------------------------------------- */

int item_order(const struct item *x, const struct item *y) {
    if (x->node != y->node) return x->node < y->node ? -1 : 1;
    if (x->count != y->count) return x->count < y->count ? -1 : 1;
    uint32_t p = x->frame->serial, q = y->frame->serial;
    return (p > q) - (p < q);
}

static int by_item(const void *a, const void *b) {
    return item_order(a, b);
}

/* Insertion sort for few items, qsort for many. */
void sort_items(struct item *items, int n) {
    if (n > 24) {
        qsort(items, (size_t)n, sizeof *items, by_item);
        return;
    }
    for (int i = 1; i < n; i++) {
        struct item item = items[i];
        int at = i;
        for (; at > 0 && item_order(&item, &items[at - 1]) < 0; at--) items[at] = items[at - 1];
        items[at] = item;
    }
}

static uint32_t hash_items(const struct item *items, int n, bool may_end) {
    uint64_t hash = may_end ? 0x9E3779B97F4A7C15u : 0;
    for (int i = 0; i < n; i++) {
        hash ^= (uint64_t)items[i].node << 32 | items[i].frame->serial;
        hash += items[i].count;
        hash *= 0xD6E8FEB86659FD93u;
        hash ^= hash >> 29;
    }
    return (uint32_t)(hash >> 16);
}

static void grow_buckets(struct automaton *a) {
    uint32_t n = a->n_buckets ? 2 * a->n_buckets : 64;
    struct state **buckets = mem_calloc(n, sizeof *buckets);
    for (uint32_t i = 0; i < a->n_buckets; i++) {
        for (struct state *s = a->buckets[i], *next; s; s = next) {
            next = s->same_hash;
            s->same_hash = buckets[s->hash % n];
            buckets[s->hash % n] = s;
        }
    }
    mem_free(a->buckets);
    a->buckets = buckets;
    a->n_buckets = n;
}

static size_t state_bytes(const struct automaton *a, int n_items) {
    size_t links = (size_t)a->network->n_classes * sizeof(struct state *);
    return sizeof(struct state) + links + (size_t)n_items * sizeof(struct item);
}

static struct state *state_new(struct automaton *a, const struct item *items, int n, uint32_t hash,
                               bool may_end) {
    if (a->n_states >= a->n_buckets) grow_buckets(a);
    struct state *state = mem_alloc(state_bytes(a, n));
    size_t links = (size_t)a->network->n_classes * sizeof(struct state *);
    memset(state, 0, sizeof *state + links);
    state->items = (struct item *)((char *)(state + 1) + links);
    if (n) memcpy(state->items, items, (size_t)n * sizeof *items);
    state->n_items = n;
    state->hash = hash;
    state->may_end = may_end;
    state->same_hash = a->buckets[hash % a->n_buckets];
    a->buckets[hash % a->n_buckets] = state;
    a->n_states++;
    a->bytes += state_bytes(a, n);
    return state;
}

static bool has_items(const struct state *state, const struct item *items, int n) {
    if (state->n_items != n) return false;
    for (int i = 0; i < n; i++) {
        if (item_order(&state->items[i], &items[i]) != 0) return false;
    }
    return true;
}

static struct state *find_or_add(struct automaton *a, const struct item *items, int n,
                                 bool may_end) {
    uint32_t hash = hash_items(items, n, may_end);
    assert(a->n_buckets > 0); /* the dead state is in one of them */
    for (struct state *s = a->buckets[hash % a->n_buckets]; s; s = s->same_hash) {
        if (s->hash == hash && s->may_end == may_end && s != a->dead && has_items(s, items, n))
            return s;
    }
    return state_new(a, items, n, hash, may_end);
}

/* Does an item that was added after item `at` make it superfluous? */
static bool is_replaced(const struct automaton *a, uint32_t at) {
    const struct making *making = &a->making;
    const struct item *item = &making->items[at];
    if (!a->network->nodes[item->node].counter) return false;
    for (uint32_t i = making->last[item->node]; i > at + 1; i = making->same_node[i - 1]) {
        if (replaces(a, &making->items[i - 1], item)) return true;
    }
    return false;
}

/* Closes the set of items, and finds or creates the state of those that are kept. */
static struct state *end_making(struct automaton *a) {
    struct making *making = &a->making;
    for (int i = 0; i < making->n && making->n <= MAX_ITEMS; i++) follow(a, making->items[i]);
    int kept = 0;
    for (int i = 0; i < making->n; i++) {
        struct item item = making->items[i];
        bool is_kept = a->network->nodes[item.node].is_kept && !is_replaced(a, (uint32_t)i);
        if (making->last[item.node] == (uint32_t)i + 1) making->last[item.node] = 0;
        if (is_kept) making->items[kept++] = item;
    }
    if (making->n > MAX_ITEMS || making->is_too_ambiguous) {
        a->is_exhausted = true;
        return a->dead;
    }
    if (kept == 0 && !making->may_end) return a->dead;
    sort_items(making->items, kept);
    return find_or_add(a, making->items, kept, making->may_end);
}

/* Follows the edge if it matches the byte. Narrows low..high to the bytes that the edge treats the
 * same. */
static void take_edge(struct automaton *a, struct state *state, const struct item *item,
                      const struct edge *edge, int byte, int *low, int *high) {
    if (byte < edge->low) {
        *high = min_int(*high, edge->low - 1);
    } else if (byte > edge->high) {
        *low = max_int(*low, edge->high + 1);
    } else {
        *low = max_int(*low, edge->low);
        *high = min_int(*high, edge->high);
        add_item(a, edge->to, item->count, frame_in_later(a, item->frame, state));
    }
}

/* The cost of one item, in trie nodes. */
enum { NODES_OF_AN_ITEM = 16 };

struct state *automaton_find(struct automaton *a, struct state *state, int class) {
    const struct network *network = a->network;
    int byte = network->first_of[class], low = 0, high = 255;
    begin_making(a);
    for (int i = 0; i < state->n_items; i++) {
        const struct item *item = &state->items[i];
        const struct node *node = &network->nodes[item->node];
        for (uint32_t e = node->edges; e < node->edges + node->n_edges; e++) {
            const struct edge *edge = &network->edges[e];
            if (edge->kind == EDGE_BYTES) take_edge(a, state, item, edge, byte, &low, &high);
        }
    }
    struct state *found = a->making.n ? end_making(a) : a->dead;
    a->work += (int64_t)NODES_OF_AN_ITEM * (1 + state->n_items + a->making.n);
    assert(network->class_of[low] <= class && class <= network->class_of[high]);
    for (int c = network->class_of[low]; c <= network->class_of[high]; c++) state->next[c] = found;
    return found;
}

/* ---- states far from bounds ----------------------------------------------------------------- */

uint32_t count_far(const struct network *network, uint32_t node, uint32_t count, uint32_t ahead) {
    uint32_t counter = network->nodes[node].counter;
    const struct network_rule *rule = &network->rules[counter ? counter - 1 : 0];
    if (!counter || count + ahead > rule->most) return count;
    if (count >= rule->least) return rule->least;
    return count + ahead < rule->least ? 0 : count;
}

struct state *state_far(struct automaton *a, struct state *state, uint32_t ahead) {
    bool differs = false;
    int n = 0;
    if (!a->network->counts || state->n_items > a->making.max) return state;
    struct item *items = a->making.items;
    for (int i = 0; i < state->n_items; i++) {
        struct item item = state->items[i];
        struct item far = {item.node, count_far(a->network, item.node, item.count, ahead),
                           frame_far(a, item.frame, ahead)};
        differs = differs || item_order(&item, &far) != 0;
        items[i] = far;
    }
    if (!differs) return state;
    sort_items(items, state->n_items);
    for (int i = 0; i < state->n_items; i++) {
        if (n == 0 || item_order(&items[n - 1], &items[i]) != 0) items[n++] = items[i];
    }
    return find_or_add(a, items, n, state->may_end);
}

/* ---- the automaton -------------------------------------------------------------------------- */

void automaton_init(struct automaton *a, const struct network *network, size_t max_bytes) {
    *a = (struct automaton){.network = network, .max_bytes = max_bytes};
    a->making.last = mem_calloc(network->n_nodes, sizeof *a->making.last);
    a->here = mem_calloc((size_t)network->n_rules + 1, sizeof *a->here);
    for (uint32_t rule = 0; rule <= (uint32_t)network->n_rules; rule++)
        a->here[rule] = (struct frame){.rule = rule, .serial = rule};
    a->frames.next_serial = (uint32_t)network->n_rules + 1;
    a->frames.is_open = mem_calloc((size_t)network->n_rules + 1, sizeof *a->frames.is_open);
    a->dead = state_new(a, NULL, 0, 0, false);
    for (int i = 0; i < network->n_classes; i++) a->dead->next[i] = a->dead;
    begin_making(a);
    add_item(a, network->rules[network->root].start, 0, &a->here[network->n_rules]);
    a->start = end_making(a);
    assert(a->start != a->dead || a->is_exhausted);
}

void state_free(struct automaton *a, struct state *state) {
    for (struct known_frame *known = state->frames, *next; known; known = next) {
        next = known->next;
        mem_free(known);
    }
    mask_release(a, state->mask);
    walk_free(state->walk);
    mem_free(state);
}

void automaton_free(struct automaton *a) {
    for (uint32_t i = 0; i < a->n_buckets; i++) {
        for (struct state *s = a->buckets[i], *next; s; s = next) {
            next = s->same_hash;
            state_free(a, s);
        }
    }
    assert(a->masks.n == 0);
    frames_free(a);
    mem_free(a->masks.buckets);
    mem_free(a->buckets);
    mem_free(a->here);
    mem_free(a->making.items);
    mem_free(a->making.same_node);
    mem_free(a->making.last);
}
