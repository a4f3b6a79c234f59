/* A vocabulary as a flat trie: its tokens sorted by their bytes, and each prefix once. */
#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/automaton.h"

/* A token as it is sorted: most are told apart by their first eight bytes. */
struct sorted_token {
    uint64_t prefix; /* big-endian */
    const char *bytes;
    int32_t id;
    uint32_t length;
};

static int by_bytes(const void *a, const void *b) {
    const struct sorted_token *x = a, *y = b;
    if (x->prefix != y->prefix) return x->prefix < y->prefix ? -1 : 1;
    uint32_t n = x->length < y->length ? x->length : y->length;
    int order = memcmp(x->bytes, y->bytes, n);
    if (order) return order;
    if (x->length != y->length) return x->length < y->length ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
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

/* Adds the nodes of sorted tokens: each begins where it differs from the one before. open[d] is the
 * node of depth d on the path to the last one. */
static void add_nodes(struct vocabulary *v, const struct sorted_token *sorted, int n) {
    uint32_t *open = mem_calloc((size_t)v->max_depth + 1, sizeof *open);
    uint32_t depth = 0;
    for (int i = 0; i < n; i++) {
        uint32_t shared = i ? common_prefix(&sorted[i - 1], &sorted[i]) : 0;
        if (i && shared == sorted[i].length && depth == shared) { /* the same bytes again */
            v->same_next[sorted[i].id] = v->same_next[sorted[i - 1].id];
            v->same_next[sorted[i - 1].id] = sorted[i].id;
            continue;
        }
        for (; depth > shared; depth--) v->nodes[open[depth - 1]].skip = v->n_nodes;
        for (; depth < sorted[i].length; depth++) {
            open[depth] = v->n_nodes;
            v->nodes[v->n_nodes++] = (struct trie_node){
                .token = -1, .depth = (uint16_t)depth, .byte = (uint8_t)sorted[i].bytes[depth]};
        }
        v->nodes[open[depth - 1]].token = sorted[i].id;
    }
    for (; depth > 0; depth--) v->nodes[open[depth - 1]].skip = v->n_nodes;
    free(open);
}

static uint32_t count_nodes(const struct sorted_token *sorted, int n) {
    uint32_t nodes = 0;
    for (int i = 0; i < n; i++) {
        nodes += sorted[i].length - (i ? common_prefix(&sorted[i - 1], &sorted[i]) : 0);
    }
    return nodes;
}

static void build_trie(struct vocabulary *v) {
    int n;
    struct sorted_token *sorted = sort_tokens(v, &n);
    v->same_next = mem_alloc(((size_t)v->V + 1) * sizeof *v->same_next);
    for (int id = 0; id < v->V; id++) v->same_next[id] = -1;
    uint32_t n_nodes = count_nodes(sorted, n);
    v->nodes = mem_alloc(((size_t)n_nodes + 1) * sizeof *v->nodes);
    add_nodes(v, sorted, n);
    assert(v->n_nodes == n_nodes);
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
    build_trie(v);
    return v;
}

void vocabulary_free(struct vocabulary *v) {
    if (!v) return;
    free(v->bytes);
    free(v->at);
    free(v->same_next);
    free(v->nodes);
    free(v);
}
