/* DESIGN. Computes the tokens that are allowed in a state.
 *
 * The walk visits the shape trie: after a letter there is usually one state, whichever letter it
 * is, and a subtree whose first element is not allowed is skipped. If the characters of a set lead
 * to several states, the walk continues with the most common one and queues the bytes that lead
 * elsewhere. For these, the bits set so far are cleared, and their subtrees are walked from the
 * correct state: over shapes after a first byte, otherwise over the bytes of the plain trie. Below
 * a set the path does not determine the bytes, so the tokens are checked one by one; if these
 * become too many, the walk restarts over the whole plain trie.
 *
 * If all characters of a slice are allowed, its tokens are allowed without a walk.
 *
 * A walk can be interrupted after any node. Its state then keeps it, and the next request for the
 * mask continues it. A walk refers to states, so it is freed when states are freed.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/run/automaton.h"

/* A queued node of the plain trie and the state after its byte. */
struct again {
    uint32_t node;
    struct state *state;
};

/* The beginning of a walk over shapes. */
struct beginning {
    const struct shape_trie *trie;
    uint32_t n_bytes; /* bytes before it */
    uint32_t node;    /* in the plain trie; n_nodes: before the first byte */
    struct state *state;
};

/* A walk over the six tokens of automaton.h, in a state that allows letters and digits. It has
 * allowed {0, 2} and {1} and is at the digit after a lower-case letter:
 *
 *   levels[0]   digit  [lower]  beyond     state: before the token
 *   levels[1]   lower  [digit]             state: after any lower-case letter
 *
 * If 'b' leads to another state than most letters, node 3 ('b') of the plain trie is queued: the
 * bits of its subtree, {2, 3}, are then cleared, and it is walked from the state after 'b'. */
struct walk {
    struct automaton *a;
    const struct vocabulary *v;
    uint64_t v_id;    /* id of the vocabulary */
    struct state *of; /* the state whose mask it computes */
    uint32_t *mask;
    struct again *again; /* queue; entries before next_again are done */
    int next_again, n_again, max_again;
    bool first_again[256];  /* first bytes that were queued */
    uint32_t n_single;      /* number of tokens checked one by one */
    bool gave_up;           /* too many of them: restart over bytes */
    bool is_plain;          /* the walk was restarted over bytes only */
    int64_t until;          /* value of a->work at which it is interrupted */
    struct beginning begin; /* of the walk over shapes */
    struct shape_level *levels;
    int depth;                   /* of the last level; -1: finished */
    uint32_t single, single_end; /* the rest of begin.trie's ids to check one by one */
    uint32_t at, end;            /* of the walk over bytes: the next node and the end */
    struct state **path;         /* [depth] the state before the byte of that depth */
    size_t bytes;                /* of the walk, included in a->bytes */
};

static void count_bytes(struct walk *w, size_t bytes) {
    w->bytes += bytes;
    w->a->bytes += bytes;
}

/* Queues a node. A first byte is queued at most once; a node below one may be queued twice with the
 * same state. */
static void look_again(struct walk *w, uint32_t node, struct state *state) {
    const struct trie_node *at = &w->v->nodes[node];
    if (at->depth == 0 && w->first_again[at->byte]) return;
    if (at->depth == 0) w->first_again[at->byte] = true;
    if (w->n_again == w->max_again) {
        int added = w->max_again ? w->max_again : 64;
        w->max_again += added;
        w->again = mem_realloc(w->again, (size_t)w->max_again * sizeof *w->again);
        count_bytes(w, (size_t)added * sizeof *w->again);
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

static bool is_interrupted(struct walk *w) {
    return ++w->a->work > w->until;
}

/* Allows the tokens of a node whose byte leads to `state` and starts a walk over its subtree. */
static void begin_bytes(struct walk *w, uint32_t from, struct state *state) {
    const struct trie_node *node = &w->v->nodes[from];
    for (int32_t id = node->token; id >= 0; id = w->v->same_next[id]) set_bit(w->mask, id);
    w->path[node->depth + 1] = state;
    w->at = from + 1;
    w->end = node->skip;
}

static bool walk_bytes(struct walk *w) {
    struct automaton *a = w->a;
    const struct trie_node *nodes = w->v->nodes;
    const int32_t *same_next = w->v->same_next;
    while (w->at < w->end) {
        const struct trie_node *node = &nodes[w->at];
        if (is_interrupted(w)) return false;
        struct state *next = automaton_step(a, w->path[node->depth], node->byte);
        if (next == a->dead) {
            w->at = node->skip;
            continue;
        }
        w->path[node->depth + 1] = next;
        for (int32_t id = node->token; id >= 0; id = same_next[id]) set_bit(w->mask, id);
        w->at++;
    }
    return true;
}

/* Allows a token if its bytes after the first `skip` ones are allowed. */
static void walk_token(struct walk *w, int32_t id, uint32_t skip, struct state *state) {
    const struct vocabulary *v = w->v;
    for (uint32_t at = v->at[id] + skip; at < v->at[id + 1] && state != w->a->dead; at++)
        state = automaton_step(w->a, state, (uint8_t)v->bytes[at]);
    if (state != w->a->dead) set_bit(w->mask, id);
}

static void forbid_bytes(struct walk *w, uint32_t from) {
    const struct trie_node *nodes = w->v->nodes;
    w->a->work += nodes[from].skip - from;
    for (uint32_t i = from; i < nodes[from].skip; i++) {
        for (int32_t id = nodes[i].token; id >= 0; id = w->v->same_next[id]) clear_bit(w->mask, id);
    }
}

/* ---- shapes --------------------------------------------------------------------------------- */

/* Returns the child of a plain-trie node for a byte; it must exist. */
static uint32_t child_of(struct walk *w, uint32_t node, uint8_t byte) {
    const struct vocabulary *v = w->v;
    if (node == v->n_nodes) return v->first[byte];
    uint32_t child = node + 1;
    for (; v->nodes[child].byte != byte; child = v->nodes[child].skip) w->a->work++;
    assert(child < v->nodes[node].skip);
    return child;
}

/* Returns the plain-trie node of the path to levels[depth]. */
static uint32_t node_of_path(struct walk *w) {
    uint32_t node = w->begin.node;
    for (int i = 0; i < w->depth; i++) {
        node = child_of(w, node, w->begin.trie->nodes[w->levels[i].at - 1].byte);
        assert(node < w->v->n_nodes);
    }
    return node;
}

/* Starts checking the tokens of a subtree one by one, unless there are too many. */
static void begin_tokens(struct walk *w, const struct shape_node *node) {
    w->n_single += node->all_end - node->ids;
    w->gave_up = w->n_single > (uint32_t)w->v->V / 16;
    w->single = node->ids;
    w->single_end = node->all_end;
}

static bool walk_tokens(struct walk *w) {
    while (w->single < w->single_end) {
        int32_t id = w->begin.trie->ids[w->single];
        if (is_interrupted(w)) return false;
        walk_token(w, id, w->begin.n_bytes, w->begin.state);
        w->a->work += w->v->at[id + 1] - w->v->at[id];
        w->single++;
    }
    return true;
}

/* Queues the bytes of `differs` below a plain-trie node; n_nodes: the first bytes. */
static void look_again_behind(struct walk *w, uint32_t node, const bool differs[256],
                              struct state *state) {
    const struct vocabulary *v = w->v;
    bool is_root = node == v->n_nodes;
    uint32_t end = is_root ? v->n_nodes : v->nodes[node].skip;
    for (uint32_t i = is_root ? 0 : node + 1; i < end; i = v->nodes[i].skip) {
        uint8_t byte = v->nodes[i].byte;
        w->a->work++;
        if (differs[byte]) look_again(w, i, automaton_step(w->a, state, byte));
    }
}

/* The cost of visiting the characters of a set, in trie nodes. */
enum { NODES_OF_A_SET = 100 };

/* Handles a set whose characters lead to several states. Returns the state with which the walk
 * continues. */
static struct state *divide(struct walk *w, const struct shape_node *node) {
    const struct shape_level *level = &w->levels[w->depth];
    bool differs[256];
    if (!level->is_exact) {
        begin_tokens(w, node);
        return w->a->dead;
    }
    struct state *common =
        automaton_most_common(w->a, (enum character_set)node->set, level->state, differs);
    w->a->work += NODES_OF_A_SET;
    look_again_behind(w, node_of_path(w), differs, level->state);
    return common;
}

static void allow(struct walk *w, const struct shape_trie *trie, const struct shape_node *node) {
    for (uint32_t i = node->ids; i < node->own_end; i++) set_bit(w->mask, trie->ids[i]);
}

static void begin_shapes(struct walk *w, struct beginning begin, const struct shape_node *from) {
    w->begin = begin;
    w->depth = 0;
    w->levels[0] =
        (struct shape_level){from->children, from->children + from->n_children, begin.state, true};
}

/* Allows the tokens below the shape node at which the walk began. */
static bool walk_shapes(struct walk *w) {
    struct automaton *a = w->a;
    const struct shape_trie *trie = w->begin.trie;
    while (w->depth >= 0 && !w->gave_up) {
        if (!walk_tokens(w)) return false;
        struct shape_level *level = &w->levels[w->depth];
        if (level->at == level->end) {
            w->depth--;
            continue;
        }
        if (is_interrupted(w)) return false;
        const struct shape_node *node = &trie->nodes[level->at++];
        bool is_byte = node->set == N_SETS;
        struct state *next =
            is_byte ? automaton_step(a, level->state, node->byte)
                    : automaton_through(a, (enum character_set)node->set, level->state);
        if (!next) next = divide(w, node);
        if (next == a->dead) continue;
        allow(w, trie, node);
        if (!node->n_children) continue;
        w->levels[++w->depth] = (struct shape_level){
            node->children, node->children + node->n_children, next, level->is_exact && is_byte};
    }
    return true;
}

/* ---- the whole walk ------------------------------------------------------------------------- */

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
    w->a->work += shape->all_end - shape->ids;
    for (uint32_t i = shape->ids; i < shape->all_end; i++) clear_bit(w->mask, trie->ids[i]);
    if (again.state == w->a->dead) return;
    allow(w, trie, shape);
    begin_shapes(w, (struct beginning){trie, 1, again.node, again.state}, shape);
}

static void walk_again(struct walk *w, struct again again) {
    if (w->v->nodes[again.node].depth == 0 && !w->is_plain) {
        walk_first_again(w, again);
        return;
    }
    forbid_bytes(w, again.node);
    if (again.state != w->a->dead) begin_bytes(w, again.node, again.state);
}

/* Allows the tokens of a slice without a walk. The walk then visits only the other tokens. */
static void begin_with_slice(struct walk *w, struct beginning *begin, const struct slice *slice,
                             const struct slice_use *use) {
    const struct vocabulary *v = w->v;
    size_t words = ((size_t)v->V + 31) / 32;
    memcpy(w->mask, slice->at_most[use->characters], words * sizeof *w->mask);
    begin->trie = &slice->rest;
    look_again_behind(w, v->n_nodes, use->differs, begin->state);
}

/* Restarts over the plain trie, from each first byte. */
static void begin_all_bytes(struct walk *w) {
    const struct vocabulary *v = w->v;
    memset(w->mask, 0, ((size_t)v->V + 31) / 32 * sizeof *w->mask);
    w->is_plain = true;
    w->gave_up = false;
    w->depth = -1;
    w->next_again = w->n_again = 0;
    memset(w->first_again, 0, sizeof w->first_again);
    for (int byte = 0; byte < 256; byte++) {
        struct state *next = automaton_step(w->a, w->of, (uint8_t)byte);
        if (next != w->a->dead && v->first[byte] < v->n_nodes) look_again(w, v->first[byte], next);
    }
}

static struct walk *walk_new(struct automaton *a, const struct vocabulary *v, struct state *state) {
    struct walk *w = mem_alloc(sizeof *w);
    struct beginning begin = {&v->shapes, 0, v->n_nodes, state};
    struct slice_use use;
    int slice = 0;
    size_t deepest = (size_t)v->max_depth + 2, words = ((size_t)v->V + 31) / 32 + 1;
    *w = (struct walk){.a = a, .v = v, .v_id = v->id, .of = state};
    w->mask = mem_calloc(words, sizeof *w->mask);
    w->path = mem_alloc(deepest * sizeof *w->path);
    w->levels = mem_alloc(deepest * sizeof *w->levels);
    count_bytes(w, sizeof *w + words * sizeof *w->mask +
                       deepest * (sizeof *w->path + sizeof *w->levels));
    while (slice < N_SLICES && !slice_use(a, (enum character_set)slice, state, &use)) slice++;
    if (slice < N_SLICES) begin_with_slice(w, &begin, &v->slices[slice], &use);
    begin_shapes(w, begin, &begin.trie->nodes[0]);
    return w;
}

void walk_free(struct walk *w) {
    if (!w) return;
    mem_free(w->again);
    mem_free(w->path);
    mem_free(w->levels);
    mem_free(w->mask);
    mem_free(w);
}

/* Continues until the end or an interruption. */
static bool go_on(struct walk *w) {
    while (walk_shapes(w) && walk_bytes(w)) {
        if (w->gave_up) begin_all_bytes(w);
        if (w->next_again == w->n_again) return true;
        walk_again(w, w->again[w->next_again++]);
    }
    return false;
}

static void drop_walk(struct automaton *a, struct state *state) {
    assert(a->bytes >= state->walk->bytes);
    a->bytes -= state->walk->bytes;
    walk_free(state->walk);
    state->walk = NULL;
}

static bool find_by_walk(struct automaton *a, const struct vocabulary *v, struct state *state,
                         int64_t max_work) {
    if (state->walk && state->walk->v_id != v->id) drop_walk(a, state);
    a->work = 0;
    if (!state->walk) state->walk = walk_new(a, v, state);
    struct walk *w = state->walk;
    w->until = max_work;
    if (!go_on(w)) return false;
    mask_release(a, state->mask);
    state->mask = NULL;
    state->mask = mask_share(a, v->id, w->mask, ((size_t)v->V + 31) / 32);
    drop_walk(a, state);
    return true;
}

/* Gives a state the known mask of another one. */
static void take_mask(struct automaton *a, struct state *state, struct state *from) {
    mask_release(a, state->mask);
    state->mask = from->mask;
    state->mask->n_states++;
    if (from->n_wanted < UINT8_MAX) from->n_wanted++;
}

bool mask_find(struct automaton *a, const struct vocabulary *v, struct state *state,
               int64_t max_work) {
    struct state *far = state_far(a, state, (uint32_t)v->max_depth + 2);
    bool is_known = far->mask && far->mask->of == v->id;
    if (!is_known && !find_by_walk(a, v, far, max_work)) return false;
    if (far != state) take_mask(a, state, far);
    return true;
}

bool mask_has_any(struct automaton *a, const struct vocabulary *v, struct state *state) {
    struct state **path = mem_alloc(((size_t)v->max_depth + 2) * sizeof *path);
    bool found = false;
    path[0] = state;
    for (uint32_t i = 0; i < v->n_nodes && !found;) {
        const struct trie_node *node = &v->nodes[i];
        struct state *next = automaton_step(a, path[node->depth], node->byte);
        path[node->depth + 1] = next;
        found = next != a->dead && node->token >= 0;
        i = next == a->dead ? node->skip : i + 1;
    }
    mem_free(path);
    return found;
}
