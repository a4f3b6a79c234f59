/* DESIGN. Which tokens may come in a state.
 *
 * A walk over the shapes of tokens: behind a letter there is mostly one state, whichever letter it
 * is, and a subtree whose first element leads nowhere is skipped. Where it is not one state, the
 * walk goes on with the most common one, and the bytes that lead elsewhere are looked at again:
 * what was allowed behind them is taken back, and they are walked from the right state, over shapes
 * behind the first byte, over the bytes of the plain trie elsewhere. Behind a path that is a shape
 * itself nobody knows which bytes these are: there the tokens are taken one by one, or all of the
 * plain trie is walked.
 *
 * Where all characters of a slice may come, its tokens are allowed without a walk.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/automaton.h"

/* Nodes of the plain trie to look at again, each with the state behind its byte. */
struct again {
    uint32_t node;
    struct state *state;
};

struct walk {
    struct automaton *a;
    const struct vocabulary *v;
    uint32_t *mask;
    struct again *again;
    int n_again, max_again;
    uint32_t n_single; /* tokens that were taken one by one */
    bool gave_up;      /* these became too many: bytes are the faster way */
};

static void look_again(struct walk *w, uint32_t node, struct state *state) {
    for (int i = 0; i < w->n_again; i++) {
        if (w->again[i].node == node) return;
    }
    if (w->n_again == w->max_again) {
        w->max_again = w->max_again ? 2 * w->max_again : 64;
        w->again = mem_realloc(w->again, (size_t)w->max_again * sizeof *w->again);
    }
    w->again[w->n_again++] = (struct again){node, state};
}

static void set_bit(uint32_t *mask, int32_t id) {
    mask[id / 32] |= (uint32_t)1 << (id % 32);
}

static void clear_bit(uint32_t *mask, int32_t id) {
    mask[id / 32] &= ~((uint32_t)1 << (id % 32));
}

/* ---- bytes ---------------------------------------------------------------------------------- */

/* Allows the tokens of a node whose byte leads to `state`, and those behind it. */
static void walk_bytes(struct walk *w, uint32_t from, struct state *state) {
    struct automaton *a = w->a;
    struct state **path = a->path; /* [depth]: the state before the byte of that depth */
    const struct trie_node *nodes = w->v->nodes;
    const int32_t *same_next = w->v->same_next;
    for (int32_t id = nodes[from].token; id >= 0; id = same_next[id]) set_bit(w->mask, id);
    path[nodes[from].depth + 1] = state;
    for (uint32_t i = from + 1; i < nodes[from].skip;) {
        const struct trie_node *node = &nodes[i];
        struct state *next = automaton_step(a, path[node->depth], node->byte);
        if (next == a->dead) {
            i = node->skip;
            continue;
        }
        path[node->depth + 1] = next;
        for (int32_t id = node->token; id >= 0; id = same_next[id]) set_bit(w->mask, id);
        i++;
    }
}

/* Allows a token if its bytes from `skip` on may come. */
static void walk_token(struct walk *w, int32_t id, uint32_t skip, struct state *state) {
    const struct vocabulary *v = w->v;
    for (uint32_t at = v->at[id] + skip; at < v->at[id + 1] && state != w->a->dead; at++)
        state = automaton_step(w->a, state, (uint8_t)v->bytes[at]);
    if (state != w->a->dead) set_bit(w->mask, id);
}

static void forbid_bytes(struct walk *w, uint32_t from) {
    const struct trie_node *nodes = w->v->nodes;
    for (uint32_t i = from; i < nodes[from].skip; i++) {
        for (int32_t id = nodes[i].token; id >= 0; id = w->v->same_next[id]) clear_bit(w->mask, id);
    }
}

/* ---- shapes --------------------------------------------------------------------------------- */

/* Where a walk over shapes began. */
struct beginning {
    const struct shape_trie *trie;
    uint32_t n_bytes; /* before it */
    uint32_t node;    /* of the plain trie, n_nodes: before the first byte */
    struct state *state;
};

/* The plain trie's node of a byte behind a node, n_nodes: there is none. */
static uint32_t child_of(const struct vocabulary *v, uint32_t node, uint8_t byte) {
    if (node == v->n_nodes) return v->first[byte];
    for (uint32_t i = node + 1; i < v->nodes[node].skip; i = v->nodes[i].skip) {
        if (v->nodes[i].byte == byte) return i;
    }
    return v->n_nodes;
}

/* The plain trie's node of the path to levels[depth]. */
static uint32_t node_of_path(const struct walk *w, const struct beginning *begin, int depth) {
    const struct shape_level *levels = w->a->levels;
    uint32_t node = begin->node;
    for (int i = 0; i < depth; i++) {
        node = child_of(w->v, node, begin->trie->nodes[levels[i].at - 1].byte);
        assert(node < w->v->n_nodes);
    }
    return node;
}

/* Takes the tokens of a node one by one, unless these are too many. */
static void walk_tokens(struct walk *w, const struct beginning *begin,
                        const struct shape_node *node) {
    w->n_single += node->all_end - node->ids;
    w->gave_up = w->n_single > (uint32_t)w->v->V / 16;
    for (uint32_t i = node->ids; i < node->all_end && !w->gave_up; i++)
        walk_token(w, begin->trie->ids[i], begin->n_bytes, begin->state);
}

/* Goes on where the characters of a node's set lead to several states; returns with which. */
static struct state *divide(struct walk *w, const struct beginning *begin,
                            const struct shape_node *node, int depth) {
    const struct shape_level *level = &w->a->levels[depth];
    bool differs[256];
    if (!level->is_exact) {
        walk_tokens(w, begin, node);
        return w->a->dead;
    }
    uint32_t parent = node_of_path(w, begin, depth);
    struct state *common =
        automaton_most_common(w->a, (enum character_set)node->set, level->state, differs);
    for (int byte = 0; byte < 256; byte++) {
        uint32_t child = differs[byte] ? child_of(w->v, parent, (uint8_t)byte) : w->v->n_nodes;
        if (child < w->v->n_nodes)
            look_again(w, child, automaton_step(w->a, level->state, (uint8_t)byte));
    }
    return common;
}

static void allow(struct walk *w, const struct shape_trie *trie, const struct shape_node *node) {
    for (uint32_t i = node->ids; i < node->own_end; i++) set_bit(w->mask, trie->ids[i]);
}

/* Allows the tokens behind a node of shapes, which the walk has reached. */
static void walk_shapes(struct walk *w, const struct beginning *begin,
                        const struct shape_node *from) {
    struct automaton *a = w->a;
    const struct shape_node *nodes = begin->trie->nodes;
    int depth = 0;
    a->levels[0] =
        (struct shape_level){from->children, from->children + from->n_children, begin->state, true};
    while (depth >= 0 && !w->gave_up) {
        struct shape_level *level = &a->levels[depth];
        if (level->at == level->end) {
            depth--;
            continue;
        }
        const struct shape_node *node = &nodes[level->at++];
        bool is_byte = node->set == N_SETS;
        struct state *next =
            is_byte ? automaton_step(a, level->state, node->byte)
                    : automaton_through(a, (enum character_set)node->set, level->state);
        if (!next) next = divide(w, begin, node, depth);
        if (next == a->dead) continue;
        allow(w, begin->trie, node);
        if (!node->n_children) continue;
        a->levels[++depth] = (struct shape_level){node->children, node->children + node->n_children,
                                                  next, level->is_exact && is_byte};
    }
}

/* ---- all of it ------------------------------------------------------------------------------ */

static const struct shape_node *first_shape(const struct vocabulary *v, uint8_t byte) {
    const struct shape_node *root = &v->by_first.nodes[0], *node = root;
    for (uint32_t i = 0; i < root->n_children; i++) {
        node = &v->by_first.nodes[root->children + i];
        if (node->byte == byte) break;
    }
    assert(node->byte == byte);
    return node;
}

static void walk_first_again(struct walk *w, struct again again) {
    const struct shape_trie *trie = &w->v->by_first;
    const struct shape_node *shape = first_shape(w->v, w->v->nodes[again.node].byte);
    struct beginning begin = {trie, 1, again.node, again.state};
    for (uint32_t i = shape->ids; i < shape->all_end; i++) clear_bit(w->mask, trie->ids[i]);
    if (again.state == w->a->dead) return;
    allow(w, trie, shape);
    walk_shapes(w, &begin, shape);
}

static void walk_again(struct walk *w, struct again again) {
    if (w->v->nodes[again.node].depth == 0) {
        walk_first_again(w, again);
        return;
    }
    forbid_bytes(w, again.node);
    if (again.state != w->a->dead) walk_bytes(w, again.node, again.state);
}

static void make_room(struct automaton *a, int max_depth) {
    if (max_depth + 1 < a->max_path) return;
    a->max_path = max_depth + 2;
    a->path = mem_realloc(a->path, (size_t)a->max_path * sizeof *a->path);
    a->levels = mem_realloc(a->levels, (size_t)a->max_path * sizeof *a->levels);
}

/* Allows what a slice has, and goes on with the rest. */
static void begin_with_slice(struct walk *w, struct beginning *begin, const struct slice *slice,
                             const struct slice_use *use) {
    const struct vocabulary *v = w->v;
    size_t words = ((size_t)v->V + 31) / 32;
    memcpy(w->mask, slice->at_most[use->characters], words * sizeof *w->mask);
    begin->trie = &slice->rest;
    for (int byte = 0; byte < 256; byte++) {
        if (use->differs[byte] && v->first[byte] < v->n_nodes)
            look_again(w, v->first[byte], automaton_step(w->a, begin->state, (uint8_t)byte));
    }
}

static void walk_all_bytes(struct walk *w, struct state *state) {
    const struct vocabulary *v = w->v;
    memset(w->mask, 0, ((size_t)v->V + 31) / 32 * sizeof *w->mask);
    for (int byte = 0; byte < 256; byte++) {
        struct state *next = automaton_step(w->a, state, (uint8_t)byte);
        if (next != w->a->dead && v->first[byte] < v->n_nodes) walk_bytes(w, v->first[byte], next);
    }
}

void mask_find(struct automaton *a, const struct vocabulary *v, struct state *state,
               uint32_t *mask) {
    struct walk w = {.a = a, .v = v, .mask = mask};
    struct beginning begin = {&v->shapes, 0, v->n_nodes, state};
    struct slice_use use;
    int slice = 0;
    make_room(a, v->max_depth);
    while (slice < N_SLICES && !slice_use(a, (enum character_set)slice, state, &use)) slice++;
    if (slice < N_SLICES) begin_with_slice(&w, &begin, &v->slices[slice], &use);
    walk_shapes(&w, &begin, &begin.trie->nodes[0]);
    for (int i = 0; i < w.n_again && !w.gave_up; i++) walk_again(&w, w.again[i]);
    if (w.gave_up) walk_all_bytes(&w, state);
    free(w.again);
}
