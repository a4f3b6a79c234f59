/* A vocabulary as a flat trie: tokens sorted by bytes, each prefix stored once. */
#include <assert.h>
#include <endian.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/run/automaton.h"

static int by_bytes(const void *a, const void *b) {
    const struct sorted_token *x = a, *y = b;
    if (x->prefix != y->prefix) return x->prefix < y->prefix ? -1 : 1;
    uint32_t n = x->length < y->length ? x->length : y->length;
    int order = memcmp(x->bytes, y->bytes, n);
    if (order) return order;
    if (x->length != y->length) return x->length < y->length ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* The key of the first sort. */
struct sort_key {
    uint64_t prefix;
    uint32_t id;
};

enum { DIGIT_BITS = 11, N_DIGITS = 1 << DIGIT_BITS, N_PASSES = (64 + DIGIT_BITS - 1) / DIGIT_BITS };

static uint32_t digit_of(struct sort_key key, int pass) {
    return (uint32_t)(key.prefix >> (pass * DIGIT_BITS)) & (N_DIGITS - 1);
}

/* Radix sort, least significant digit first; stable. Returns the array, one of the two, that holds
 * the result. */
static struct sort_key *sort_by_prefix(struct sort_key *from, struct sort_key *to, int n) {
    uint32_t(*places)[N_DIGITS] = mem_calloc(N_PASSES, sizeof *places);
    for (int i = 0; i < n; i++)
        for (int pass = 0; pass < N_PASSES; pass++) places[pass][digit_of(from[i], pass)]++;
    for (int pass = 0; pass < N_PASSES; pass++) {
        uint32_t before = 0;
        for (int digit = 0; digit < N_DIGITS; digit++) {
            uint32_t count = places[pass][digit];
            places[pass][digit] = before;
            before += count;
        }
        for (int i = 0; i < n; i++) to[places[pass][digit_of(from[i], pass)]++] = from[i];
        struct sort_key *sorted = to;
        to = from;
        from = sorted;
    }
    mem_free(places);
    return from;
}

/* Reads 8 bytes: bytes[length] is followed by padding. */
static uint64_t prefix_of(const char *bytes, uint32_t length) {
    uint64_t prefix;
    memcpy(&prefix, bytes, sizeof prefix);
    prefix = be64toh(prefix);
    return length < 8 ? prefix & ~(UINT64_MAX >> (8 * length)) : prefix;
}

/* Returns the tokens with text in the order of their keys. Copies their bytes to *ordered in the
 * same order. */
static struct sorted_token *take_in_order(const struct vocabulary *v, const struct sort_key *keys,
                                          int n, char **ordered) {
    struct sorted_token *sorted = mem_alloc(((size_t)n + 1) * sizeof *sorted);
    char *end = *ordered = mem_alloc(v->at[v->V] + 1);
    for (int i = 0; i < n; i++) {
        uint32_t id = keys[i].id, length = v->at[id + 1] - v->at[id];
        sorted[i] = (struct sorted_token){keys[i].prefix, end, (int32_t)id, length};
        memcpy(end, v->bytes + v->at[id], length);
        end += length;
    }
    return sorted;
}

static struct sorted_token *sort_tokens(const struct vocabulary *v, int *n, char **ordered) {
    struct sort_key *keys = mem_alloc(((size_t)v->V + 1) * sizeof *keys);
    struct sort_key *spare = mem_alloc(((size_t)v->V + 1) * sizeof *spare);
    *n = 0;
    for (int id = 0; id < v->V; id++) {
        uint32_t length = v->at[id + 1] - v->at[id];
        if (length > 0)
            keys[(*n)++] = (struct sort_key){prefix_of(v->bytes + v->at[id], length), (uint32_t)id};
    }
    struct sorted_token *sorted = take_in_order(v, sort_by_prefix(keys, spare, *n), *n, ordered);
    mem_free(keys);
    mem_free(spare);
    for (int i = 0, end; i < *n; i = end) {
        for (end = i + 1; end < *n && sorted[end].prefix == sorted[i].prefix;) end++;
        if (end > i + 1) qsort(sorted + i, (size_t)(end - i), sizeof *sorted, by_bytes);
    }
    return sorted;
}

static uint32_t common_prefix(const struct sorted_token *x, const struct sorted_token *y) {
    uint32_t n = x->length < y->length ? x->length : y->length, i = 8;
    uint64_t differs = x->prefix ^ y->prefix;
    if (differs) i = (uint32_t)__builtin_clzll(differs) / 8;
    while (!differs && i < n && x->bytes[i] == y->bytes[i]) i++;
    return i < n ? i : n;
}

/* A trie under construction. */
struct grammar_trie {
    struct trie_node *nodes;
    uint32_t n;
};

/* Adds the nodes of sorted tokens. Each token adds nodes from its first difference to the previous
 * one. open[d] is the node of depth d on the path of the last token. */
static void add_nodes(struct vocabulary *v, struct grammar_trie *trie,
                      const struct sorted_token *sorted, int n) {
    uint32_t *open = mem_calloc((size_t)v->max_depth + 1, sizeof *open);
    uint32_t depth = 0;
    for (int i = 0; i < n; i++) {
        uint32_t shared = i ? common_prefix(&sorted[i - 1], &sorted[i]) : 0;
        if (i && shared == sorted[i].length && depth == shared) { /* a duplicate */
            v->same_next[sorted[i - 1].id] = sorted[i].id;
            continue;
        }
        for (; depth > shared; depth--) trie->nodes[open[depth - 1]].skip = trie->n;
        for (; depth < sorted[i].length; depth++) {
            open[depth] = trie->n;
            trie->nodes[trie->n++] = (struct trie_node){
                .token = -1, .depth = (uint16_t)depth, .byte = (uint8_t)sorted[i].bytes[depth]};
        }
        trie->nodes[open[depth - 1]].token = sorted[i].id;
    }
    for (; depth > 0; depth--) trie->nodes[open[depth - 1]].skip = trie->n;
    mem_free(open);
}

static struct grammar_trie trie_new(struct vocabulary *v, const struct sorted_token *sorted,
                                    int n) {
    size_t nodes = 1;
    for (int i = 0; i < n; i++) {
        nodes += sorted[i].length - (i ? common_prefix(&sorted[i - 1], &sorted[i]) : 0);
    }
    struct grammar_trie trie = {.nodes = mem_alloc(nodes * sizeof *trie.nodes)};
    add_nodes(v, &trie, sorted, n);
    assert(trie.n + 1 == nodes);
    return trie;
}

/* ---- slices --------------------------------------------------------------------------------- */

/* Builds the masks of the slice's tokens, and the trie of all others. */
static void make_slice(struct vocabulary *v, enum character_set set) {
    struct slice *slice = &v->slices[set];
    size_t words = ((size_t)v->V + 31) / 32 + 1;
    uint8_t *characters = shape_trie_characters(&v->shapes, set);
    for (int i = 0; i <= MAX_CHARACTERS; i++) {
        slice->at_most[i] = mem_calloc(words, sizeof *slice->at_most[i]);
    }
    for (uint32_t i = 0; i < v->shapes.n_nodes; i++) {
        const struct shape_node *node = &v->shapes.nodes[i];
        if (characters[i] == OUTSIDE_SLICE) continue;
        for (uint32_t at = node->ids; at < node->own_end; at++) {
            int32_t id = v->shapes.ids[at];
            slice->at_most[characters[i]][id / 32] |= (uint32_t)1 << (id % 32);
        }
    }
    for (int at = 1; at <= MAX_CHARACTERS; at++)
        for (size_t i = 0; i < words; i++) slice->at_most[at][i] |= slice->at_most[at - 1][i];
    slice->rest = shape_trie_rest(&v->shapes, characters);
    mem_free(characters);
}

static void find_first(struct vocabulary *v) {
    for (int byte = 0; byte < 256; byte++) v->first[byte] = v->n_nodes;
    for (uint32_t i = 0; i < v->n_nodes; i = v->nodes[i].skip) v->first[v->nodes[i].byte] = i;
}

static void build_tries(struct vocabulary *v) {
    int n;
    char *ordered;
    struct sorted_token *sorted = sort_tokens(v, &n, &ordered);
    v->same_next = mem_alloc(((size_t)v->V + 1) * sizeof *v->same_next);
    for (int id = 0; id < v->V; id++) v->same_next[id] = -1;
    struct grammar_trie trie = trie_new(v, sorted, n);
    v->nodes = trie.nodes;
    v->n_nodes = trie.n;
    find_first(v);
    v->shapes = shape_trie_new(v, sorted, n, false);
    v->by_first = shape_trie_new(v, sorted, n, true);
    for (int set = 0; set < N_SLICES; set++) make_slice(v, (enum character_set)set);
    mem_free(ordered);
    mem_free(sorted);
}

struct vocabulary *vocabulary_new(const char *const *bytes, const int *lengths, int V) {
    static atomic_ullong last_id;
    struct vocabulary *v = mem_calloc(1, sizeof *v);
    v->id = atomic_fetch_add(&last_id, 1) + 1;
    v->V = V;
    v->at = mem_alloc(((size_t)V + 1) * sizeof *v->at);
    size_t total = 0;
    for (int id = 0; id < V; id++) {
        v->at[id] = (uint32_t)total;
        total += (size_t)lengths[id];
        v->max_depth = max_int(v->max_depth, lengths[id]);
        assert(lengths[id] >= 0 && lengths[id] <= UINT16_MAX && total <= UINT32_MAX);
    }
    v->at[V] = (uint32_t)total;
    v->bytes = mem_calloc(total + 8, 1); /* prefix_of reads 8 bytes */
    for (int id = 0; id < V; id++) {
        if (lengths[id]) memcpy(v->bytes + v->at[id], bytes[id], (size_t)lengths[id]);
    }
    build_tries(v);
    return v;
}

const char *vocabulary_text(const struct vocabulary *v, int32_t id, size_t *length) {
    assert(id >= 0 && id < v->V && v->at[id] <= v->at[id + 1]);
    *length = v->at[id + 1] - v->at[id];
    return v->bytes + v->at[id];
}

void vocabulary_free(struct vocabulary *v) {
    if (!v) return;
    mem_free(v->bytes);
    mem_free(v->at);
    mem_free(v->same_next);
    mem_free(v->nodes);
    shape_trie_free(&v->shapes);
    shape_trie_free(&v->by_first);
    for (int i = 0; i < N_SLICES; i++) {
        for (int n = 0; n <= MAX_CHARACTERS; n++) mem_free(v->slices[i].at_most[n]);
        shape_trie_free(&v->slices[i].rest);
    }
    mem_free(v);
}
