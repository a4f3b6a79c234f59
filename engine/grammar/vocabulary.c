/* A vocabulary as a flat trie: its tokens sorted by their bytes, and each prefix once. */
#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/automaton.h"

static int by_bytes(const void *a, const void *b) {
    const struct sorted_token *x = a, *y = b;
    if (x->prefix != y->prefix) return x->prefix < y->prefix ? -1 : 1;
    uint32_t n = x->length < y->length ? x->length : y->length;
    int order = memcmp(x->bytes, y->bytes, n);
    if (order) return order;
    if (x->length != y->length) return x->length < y->length ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Copies the tokens' bytes into the order of a walk, whose memory it returns. */
static char *copy_in_order(const struct vocabulary *v, struct sorted_token *sorted, int n) {
    char *ordered = mem_alloc(v->at[v->V] + 1), *end = ordered;
    for (int i = 0; i < n; i++) {
        memcpy(end, sorted[i].bytes, sorted[i].length);
        sorted[i].bytes = end;
        end += sorted[i].length;
    }
    return ordered;
}

static struct sorted_token *sort_tokens(const struct vocabulary *v, int *n) {
    struct sorted_token *sorted = mem_alloc(((size_t)v->V + 1) * sizeof *sorted);
    *n = 0;
    for (int id = 0; id < v->V; id++) {
        struct sorted_token token = {0, v->bytes + v->at[id], id, v->at[id + 1] - v->at[id]};
        if (token.length == 0) continue;
        for (uint32_t i = 0; i < 8; i++) {
            token.prefix = token.prefix << 8 | (i < token.length ? (uint8_t)token.bytes[i] : 0);
        }
        sorted[(*n)++] = token;
    }
    qsort(sorted, (size_t)*n, sizeof *sorted, by_bytes);
    return sorted;
}

static uint32_t common_prefix(const struct sorted_token *x, const struct sorted_token *y) {
    uint32_t n = x->length < y->length ? x->length : y->length, i = 0;
    while (i < n && x->bytes[i] == y->bytes[i]) i++;
    return i;
}

/* A trie that is being made. */
struct trie {
    struct trie_node *nodes;
    uint32_t n;
};

/* Adds the nodes of sorted tokens: each begins where it differs from the one before. open[d] is the
 * node of depth d on the path to the last one. */
static void add_nodes(struct vocabulary *v, struct trie *trie, const struct sorted_token *sorted,
                      int n) {
    uint32_t *open = mem_calloc((size_t)v->max_depth + 1, sizeof *open);
    uint32_t depth = 0;
    for (int i = 0; i < n; i++) {
        uint32_t shared = i ? common_prefix(&sorted[i - 1], &sorted[i]) : 0;
        if (i && shared == sorted[i].length && depth == shared) { /* the same bytes again */
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
    free(open);
}

static struct trie trie_new(struct vocabulary *v, const struct sorted_token *sorted, int n) {
    size_t nodes = 1;
    for (int i = 0; i < n; i++) {
        nodes += sorted[i].length - (i ? common_prefix(&sorted[i - 1], &sorted[i]) : 0);
    }
    struct trie trie = {.nodes = mem_alloc(nodes * sizeof *trie.nodes)};
    add_nodes(v, &trie, sorted, n);
    assert(trie.n + 1 == nodes);
    return trie;
}

/* ---- slices --------------------------------------------------------------------------------- */

/* How many characters a token of the slice has; 0: it is not in it. */
static int characters_in(enum character_set slice, const struct sorted_token *token) {
    int n = 0;
    for (size_t at = 0; at < token->length; n++) {
        size_t size = utf8_character(token->bytes + at, token->length - at);
        if (size == 0 || (size == 1 && !set_has(slice, token->bytes[at]))) return 0;
        if (n == MAX_CHARACTERS) return 0;
        at += size;
    }
    return n;
}

/* Divides the tokens: those of the slice into its masks, the others into a trie. */
static void make_slice(struct vocabulary *v, enum character_set set,
                       const struct sorted_token *sorted, int n) {
    struct slice *slice = &v->slices[set];
    struct sorted_token *rest = mem_alloc(((size_t)n + 1) * sizeof *rest);
    int n_rest = 0;
    size_t words = ((size_t)v->V + 31) / 32 + 1;
    for (int i = 0; i <= MAX_CHARACTERS; i++) {
        slice->at_most[i] = mem_calloc(words, sizeof *slice->at_most[i]);
    }
    for (int i = 0; i < n; i++) {
        int characters = characters_in(set, &sorted[i]), id = sorted[i].id;
        if (characters)
            slice->at_most[characters][id / 32] |= (uint32_t)1 << (id % 32);
        else
            rest[n_rest++] = sorted[i];
    }
    for (size_t i = words; i < words * (MAX_CHARACTERS + 1); i++) {
        size_t characters = i / words, word = i % words;
        slice->at_most[characters][word] |= slice->at_most[characters - 1][word];
    }
    slice->rest = shape_trie_new(v, rest, n_rest, false);
    free(rest);
}

static void find_first(struct vocabulary *v) {
    for (int byte = 0; byte < 256; byte++) v->first[byte] = v->n_nodes;
    for (uint32_t i = 0; i < v->n_nodes; i = v->nodes[i].skip) v->first[v->nodes[i].byte] = i;
}

static void build_tries(struct vocabulary *v) {
    int n;
    struct sorted_token *sorted = sort_tokens(v, &n);
    char *ordered = copy_in_order(v, sorted, n);
    v->same_next = mem_alloc(((size_t)v->V + 1) * sizeof *v->same_next);
    for (int id = 0; id < v->V; id++) v->same_next[id] = -1;
    struct trie trie = trie_new(v, sorted, n);
    v->nodes = trie.nodes;
    v->n_nodes = trie.n;
    find_first(v);
    v->shapes = shape_trie_new(v, sorted, n, false);
    v->by_first = shape_trie_new(v, sorted, n, true);
    for (int i = 0; i < N_SLICES; i++) make_slice(v, (enum character_set)i, sorted, n);
    free(ordered);
    free(sorted);
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
    v->bytes = mem_alloc(total + 1);
    for (int id = 0; id < V; id++) {
        if (lengths[id]) memcpy(v->bytes + v->at[id], bytes[id], (size_t)lengths[id]);
    }
    build_tries(v);
    return v;
}

void vocabulary_free(struct vocabulary *v) {
    if (!v) return;
    free(v->bytes);
    free(v->at);
    free(v->same_next);
    free(v->nodes);
    shape_trie_free(&v->shapes);
    shape_trie_free(&v->by_first);
    for (int i = 0; i < N_SLICES; i++) {
        for (int n = 0; n <= MAX_CHARACTERS; n++) free(v->slices[i].at_most[n]);
        shape_trie_free(&v->slices[i].rest);
    }
    free(v);
}
