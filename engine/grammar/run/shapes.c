/* Builds shape tries. A character outside ASCII is one element, whatever its length. Bytes that do
 * not form a character are elements as they are. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/run/automaton.h"

/* A node of a shape trie under construction, found by its parent and element. */
struct growing_node {
    uint32_t parent, sibling, child; /* indices; 0: none */
    uint32_t same_hash;              /* next node of the bucket; 0: last */
    uint32_t own, all;               /* number of tokens that end here; in the subtree */
    uint32_t at;                     /* index in the finished trie */
    uint16_t n_children;
    uint8_t byte, set;
};

struct growing_trie {
    struct growing_node *nodes;
    uint32_t n, max;
    uint32_t *table; /* [1 << table_bits] newest node of each hash; 0: none */
    int table_bits;
};

static uint32_t child_of(struct growing_trie *growing, uint32_t parent, uint8_t byte, uint8_t set) {
    uint64_t key = (uint64_t)parent << 12 | (uint64_t)set << 8 | byte;
    uint32_t *place = &growing->table[key * 0x9E3779B97F4A7C15u >> (64 - growing->table_bits)];
    for (uint32_t i = *place; i; i = growing->nodes[i].same_hash) {
        const struct growing_node *node = &growing->nodes[i];
        if (node->parent == parent && node->byte == byte && node->set == set) return i;
    }
    if (growing->n == growing->max) {
        growing->max *= 2;
        growing->nodes = mem_realloc(growing->nodes, growing->max * sizeof *growing->nodes);
    }
    struct growing_node *up = &growing->nodes[parent];
    growing->nodes[growing->n] = (struct growing_node){
        .parent = parent, .sibling = up->child, .same_hash = *place, .byte = byte, .set = set};
    up->n_children++;
    up->child = growing->n;
    return *place = growing->n++;
}

/* ---- the shape of a token ------------------------------------------------------------------- */

struct element {
    uint8_t byte, set;
};

static enum character_set set_of(uint8_t byte) {
    if (byte >= 'a' && byte <= 'z') return SET_LOWER;
    if (byte >= 'A' && byte <= 'Z') return SET_UPPER;
    return byte >= '0' && byte <= '9' ? SET_DIGIT : N_SETS;
}

/* Returns the first element of `bytes` and its size in bytes. */
static struct element element_at(const char *bytes, size_t n, size_t *size) {
    uint8_t byte = (uint8_t)*bytes;
    enum character_set set = set_of(byte);
    *size = byte < 0x80 ? 1 : utf8_character(bytes, n);
    if (*size > 1) return (struct element){0, SET_BEYOND};
    *size = 1;
    return (struct element){set == N_SETS ? byte : 0, (uint8_t)set};
}

/* The path of a token through the trie. The next token reuses their common beginning. */
struct shape_path {
    struct element *elements; /* [n] */
    uint32_t *nodes;          /* [n] the node after each element */
    uint32_t n;
};

static uint32_t find_shape(struct growing_trie *growing, struct shape_path *path, const char *bytes,
                           size_t n, bool first_is_exact) {
    uint32_t node = 0, depth = 0;
    bool is_shared = true;
    for (size_t at = 0, size; at < n; at += size, depth++) {
        struct element element = {(uint8_t)bytes[at], N_SETS}, *known = &path->elements[depth];
        size = 1;
        if (at > 0 || !first_is_exact) element = element_at(bytes + at, n - at, &size);
        is_shared = is_shared && depth < path->n && known->byte == element.byte &&
                    known->set == element.set;
        node = is_shared ? path->nodes[depth] : child_of(growing, node, element.byte, element.set);
        *known = element;
        path->nodes[depth] = node;
    }
    path->n = depth;
    return node;
}

/* Finds the node at which each token ends: shape_of[n]. */
static void find_shapes(struct growing_trie *growing, int max_depth,
                        const struct sorted_token *tokens, int n, bool first_is_exact,
                        uint32_t *shape_of) {
    size_t max = (size_t)max_depth + 1;
    struct shape_path path = {.elements = mem_alloc(max * sizeof *path.elements),
                              .nodes = mem_alloc(max * sizeof *path.nodes)};
    for (int i = 0; i < n; i++) {
        shape_of[i] = find_shape(growing, &path, tokens[i].bytes, tokens[i].length, first_is_exact);
        growing->nodes[shape_of[i]].own++;
    }
    mem_free(path.elements);
    mem_free(path.nodes);
}

/* ---- laying out ----------------------------------------------------------------------------- */

/* Assigns indices to a node's tokens and children. Children are adjacent, in order of creation, and
 * all indices follow the order in which place_all and walks visit the nodes. */
static void place(struct growing_trie *growing, struct shape_trie *trie, uint32_t from,
                  uint32_t *n_placed) {
    const struct growing_node *node = &growing->nodes[from];
    struct shape_node *placed = &trie->nodes[node->at];
    placed->own_end = placed->ids + node->own;
    placed->all_end = placed->ids + node->all;
    placed->children = *n_placed;
    placed->n_children = node->n_children;
    *n_placed += node->n_children;
    uint32_t at = *n_placed, ids = placed->all_end;
    for (uint32_t i = node->child; i; i = growing->nodes[i].sibling) {
        struct growing_node *child = &growing->nodes[i];
        child->at = --at;
        ids -= child->all;
        trie->nodes[at] = (struct shape_node){.ids = ids, .byte = child->byte, .set = child->set};
    }
    assert(at == placed->children && ids == placed->own_end);
}

static void place_all(struct growing_trie *growing, struct shape_trie *trie) {
    uint32_t *stack = mem_alloc(growing->n * sizeof *stack), n = 0, n_placed = 1;
    for (uint32_t i = growing->n; i-- > 0;) {
        growing->nodes[i].all += growing->nodes[i].own;
        if (i > 0) growing->nodes[growing->nodes[i].parent].all += growing->nodes[i].all;
    }
    trie->nodes[0] = (struct shape_node){.set = N_SETS};
    for (stack[n++] = 0; n > 0;) {
        uint32_t from = stack[--n];
        place(growing, trie, from, &n_placed);
        for (uint32_t i = growing->nodes[from].child; i; i = growing->nodes[i].sibling)
            stack[n++] = i;
    }
    assert(n_placed == growing->n);
    mem_free(stack);
}

struct shape_trie shape_trie_new(const struct vocabulary *v, const struct sorted_token *tokens,
                                 int n, bool first_is_exact) {
    struct growing_trie growing = {.n = 1, .max = 1024, .table_bits = 10};
    while (1 << growing.table_bits < n) growing.table_bits++;
    growing.nodes = mem_alloc(growing.max * sizeof *growing.nodes);
    growing.nodes[0] = (struct growing_node){0};
    growing.table = mem_calloc((size_t)1 << growing.table_bits, sizeof *growing.table);
    uint32_t *shape_of = mem_alloc(((size_t)n + 1) * sizeof *shape_of);
    find_shapes(&growing, v->max_depth, tokens, n, first_is_exact, shape_of);
    struct shape_trie trie = {.nodes = mem_alloc(growing.n * sizeof *trie.nodes),
                              .n_nodes = growing.n,
                              .ids = mem_alloc(((size_t)n + 1) * sizeof *trie.ids)};
    place_all(&growing, &trie);
    for (int i = 0; i < n; i++) {
        struct shape_node *node = &trie.nodes[growing.nodes[shape_of[i]].at];
        trie.ids[node->own_end - growing.nodes[shape_of[i]].own--] = tokens[i].id;
    }
    mem_free(shape_of);
    mem_free(growing.nodes);
    mem_free(growing.table);
    return trie;
}

/* ---- parts of a trie ------------------------------------------------------------------------ */

static bool is_in_slice(enum character_set slice, const struct shape_node *node) {
    return node->set != N_SETS || set_has(slice, node->byte);
}

uint8_t *shape_trie_characters(const struct shape_trie *trie, enum character_set slice) {
    uint8_t *characters = mem_calloc(trie->n_nodes, 1);
    for (uint32_t i = 0; i < trie->n_nodes; i++) {
        const struct shape_node *node = &trie->nodes[i];
        for (uint32_t child = node->children; child < node->children + node->n_children; child++) {
            bool is_in = characters[i] < MAX_CHARACTERS && is_in_slice(slice, &trie->nodes[child]);
            characters[child] = is_in ? characters[i] + 1 : OUTSIDE_SLICE;
        }
    }
    return characters;
}

/* Copies the ids of tokens outside the slice. before[i] is the number of copied ids before the
 * i-th. */
static void copy_ids(const struct shape_trie *trie, const uint8_t *characters, uint32_t *before,
                     int32_t *ids) {
    uint32_t n_ids = trie->nodes[0].all_end, n = 0;
    for (uint32_t i = 0; i < trie->n_nodes; i++) {
        const struct shape_node *node = &trie->nodes[i];
        for (uint32_t at = node->ids; at < node->own_end; at++)
            before[at] = characters[i] == OUTSIDE_SLICE;
    }
    for (uint32_t at = 0; at < n_ids; at++) {
        bool stays = before[at];
        before[at] = n;
        if (stays) ids[n++] = trie->ids[at];
    }
    before[n_ids] = n;
}

/* Copies the nodes whose subtree has such a token. nodes_before counts nodes as `before` counts
 * tokens. */
static void copy_nodes(const struct shape_trie *trie, const uint32_t *before,
                       uint32_t *nodes_before, struct shape_trie *rest) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < trie->n_nodes; i++) {
        const struct shape_node *node = &trie->nodes[i];
        nodes_before[i] = n;
        n += i == 0 || before[node->ids] < before[node->all_end];
    }
    nodes_before[trie->n_nodes] = rest->n_nodes = n;
    rest->nodes = mem_alloc(n * sizeof *rest->nodes);
    for (uint32_t i = 0; i < trie->n_nodes; i++) {
        const struct shape_node *node = &trie->nodes[i];
        if (nodes_before[i] == nodes_before[i + 1]) continue;
        struct shape_node *copy = &rest->nodes[nodes_before[i]];
        *copy = *node;
        copy->ids = before[node->ids];
        copy->own_end = before[node->own_end];
        copy->all_end = before[node->all_end];
        copy->children = nodes_before[node->children];
        copy->n_children =
            (uint16_t)(nodes_before[node->children + node->n_children] - copy->children);
    }
}

struct shape_trie shape_trie_rest(const struct shape_trie *trie, const uint8_t *characters) {
    uint32_t n_ids = trie->nodes[0].all_end;
    uint32_t *before = mem_alloc(((size_t)n_ids + 1) * sizeof *before);
    uint32_t *nodes_before = mem_alloc(((size_t)trie->n_nodes + 1) * sizeof *nodes_before);
    struct shape_trie rest = {.ids = mem_alloc(((size_t)n_ids + 1) * sizeof *rest.ids)};
    copy_ids(trie, characters, before, rest.ids);
    copy_nodes(trie, before, nodes_before, &rest);
    mem_free(before);
    mem_free(nodes_before);
    return rest;
}

void shape_trie_free(struct shape_trie *trie) {
    mem_free(trie->nodes);
    mem_free(trie->ids);
}
