/* Adds a deterministic automaton to the graph of a grammar, without the states from which no
 * accepting state is reachable. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/build/network.h"

/* The predecessors of each state: those of state i are from[end[i - 1]]..from[end[i]]; those of
 * state 0 begin at from[0]. */
struct sources {
    uint32_t *end, *from;
};

/* Is the edge redundant: a self loop, or the same target as the previous class? */
static bool is_repeated(const uint32_t *next, uint32_t class, uint32_t state) {
    return next[class] == state || (class > 0 && next[class] == next[class - 1]);
}

static struct sources sources_find(const struct dfa *dfa) {
    const uint32_t n_classes = dfa->n_classes;
    struct sources sources = {.end = mem_calloc((size_t)dfa->n + 1, sizeof *sources.end)};
    uint32_t n = 0;
    for (uint32_t i = 0; i < dfa->n; i++) {
        const uint32_t *next = dfa->next + (size_t)i * n_classes;
        for (uint32_t c = 0; c < n_classes; c++)
            if (!is_repeated(next, c, i)) sources.end[next[c]]++;
    }
    for (uint32_t i = 0; i < dfa->n;
         i++) { /* turns counts into offsets, which the next loop advances */
        uint32_t count = sources.end[i];
        sources.end[i] = n;
        n += count;
    }
    sources.from = mem_alloc(((size_t)n + 1) * sizeof *sources.from);
    for (uint32_t i = 0; i < dfa->n; i++) {
        const uint32_t *next = dfa->next + (size_t)i * n_classes;
        for (uint32_t c = 0; c < n_classes; c++)
            if (!is_repeated(next, c, i)) sources.from[sources.end[next[c]]++] = i;
    }
    return sources;
}

bool *dfa_find_live(const struct dfa *dfa) {
    bool *live = mem_calloc(dfa->n + 1, sizeof *live);
    uint32_t *stack = mem_alloc((dfa->n + 1) * sizeof *stack), n = 0;
    struct sources sources = sources_find(dfa);
    for (uint32_t i = 0; i < dfa->n; i++) {
        live[i] = dfa->accepts[i];
        if (live[i]) stack[n++] = i;
    }
    while (n > 0) {
        uint32_t state = stack[--n];
        for (uint32_t k = state ? sources.end[state - 1] : 0; k < sources.end[state]; k++) {
            uint32_t from = sources.from[k];
            if (!live[from]) stack[n++] = from;
            live[from] = true;
        }
    }
    mem_free(stack);
    mem_free(sources.end);
    mem_free(sources.from);
    return live;
}

/* ends[byte] is the last byte of the run of equal classes that contains `byte`. */
static void draw_state(struct graph *graph, const struct dfa *dfa, const uint32_t *nodes,
                       const uint8_t ends[256], uint32_t state) {
    for (int low = 0, high; low < 256; low = high + 1) {
        uint32_t to = dfa_next(dfa, state, (uint8_t)low);
        high = ends[low];
        while (high < 255 && dfa_next(dfa, state, (uint8_t)(high + 1)) == to) high = ends[high + 1];
        if (nodes[to]) graph_bytes(graph, nodes[state], low, high, nodes[to]);
    }
}

void dfa_draw(struct graph *graph, const struct dfa *dfa, uint32_t from, uint32_t to) {
    /* 0: no accepting state is reachable */
    uint32_t *nodes = mem_calloc(dfa->n + 1, sizeof *nodes);
    bool *live = dfa_find_live(dfa);
    uint8_t ends[256] = {[255] = 255};
    for (int byte = 254; byte >= 0; byte--) {
        bool goes_on = dfa->class_of[byte] == dfa->class_of[byte + 1];
        ends[byte] = goes_on ? ends[byte + 1] : (uint8_t)byte;
    }
    for (uint32_t i = 0; i < dfa->n && graph->b->status == STATUS_OK; i++) {
        if (live[i]) nodes[i] = graph_node(graph);
    }
    for (uint32_t i = 0; i < dfa->n && graph->b->status == STATUS_OK; i++) {
        if (!nodes[i]) continue;
        draw_state(graph, dfa, nodes, ends, i);
        if (dfa->accepts[i]) graph_empty(graph, nodes[i], to);
    }
    if (nodes[dfa->start]) graph_empty(graph, from, nodes[dfa->start]);
    mem_free(live);
    mem_free(nodes);
}
