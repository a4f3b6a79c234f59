/* Builds a network from the builder's rules. Finds the nullable rules and removes edges from which
 * no end is reachable, so every reachable state can reach an end. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/build/network.h"

/* Begins the message of a limit with the tool and the place of the rule's schema. */
static void name_place(struct builder *b, const struct rule *rule) {
    char problem[sizeof b->err->message];
    struct buf place = {0};
    if (!rule->at) return;
    snprintf(problem, sizeof problem, "%s", b->err->message);
    if (rule->owner) buf_printf(&place, "The tool \"%s\": ", rule->owner);
    buf_puts(&place, "The schema at \"");
    json_pointer(rule->at_root, rule->at, &place);
    err_set(b->err, STATUS_INVALID_REQUEST, NULL, "%.400s\": %s", place.data, problem);
    buf_free(&place);
}

/* ---- nodes and edges ------------------------------------------------------------------------ */

static void draw_rules(struct graph *graph, struct network *network) {
    struct builder *b = graph->b;
    for (int i = 0; i < b->n_rules && b->status == STATUS_OK; i++) {
        uint32_t start = graph_node(graph), end = graph_node(graph);
        network->rules[i].start = start;
        network->rules[i].end = end;
        if (b->status != STATUS_OK || !b->rules[i].body) continue;
        graph_expr(graph, b->rules[i].body, start, end);
        if (b->status == STATUS_INVALID_REQUEST) name_place(b, &b->rules[i]);
    }
}

/* If the node's only edge is an empty one, returns its target; otherwise the node. */
static uint32_t leads_to(const struct graph *graph, uint32_t node) {
    uint32_t first = graph->first[node];
    const struct graph_edge *edge = first ? &graph->edges[first - 1] : NULL;
    return edge && !edge->next && edge->edge.kind == EDGE_EMPTY ? edge->edge.to : node;
}

/* Follows chains of such nodes and returns the last node of each chain. Each chain is followed
 * once, since its nodes store its end. A cycle ends at any of its nodes. The caller frees the
 * result. */
static uint32_t *find_ends(const struct graph *graph) {
    enum { UNKNOWN = UINT32_MAX };
    uint32_t *end = mem_alloc((graph->n_nodes + 1) * sizeof *end);
    uint32_t *way = mem_alloc((graph->n_nodes + 1) * sizeof *way);
    for (uint32_t i = 0; i < graph->n_nodes; i++) end[i] = UNKNOWN;
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        uint32_t n = 0, node = i;
        while (end[node] == UNKNOWN) {
            end[node] = node; /* until the chain's end is known */
            way[n++] = node;
            node = leads_to(graph, node);
        }
        for (uint32_t k = 0; k < n; k++) end[way[k]] = end[node];
    }
    mem_free(way);
    return end;
}

/* Makes the edges of each node adjacent. */
static void lay_out(const struct graph *graph, struct network *network) {
    network->n_nodes = graph->n_nodes;
    network->nodes = mem_calloc(graph->n_nodes, sizeof *network->nodes);
    network->edges = mem_alloc((graph->n_edges + 1) * sizeof *network->edges);
    uint32_t *ends = find_ends(graph);
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        struct node *node = &network->nodes[i];
        node->edges = network->n_edges;
        node->counter = graph->counters[i];
        for (uint32_t e = graph->first[i]; e; e = graph->edges[e - 1].next) {
            struct edge *edge = &network->edges[network->n_edges++];
            *edge = graph->edges[e - 1].edge;
            edge->to = ends[edge->to];
        }
        node->n_edges = network->n_edges - node->edges;
    }
    mem_free(ends);
    for (int i = 0; i < network->n_rules; i++) network->nodes[network->rules[i].end].is_end = true;
}

/* ---- nullable and productive rules ---------------------------------------------------------- */

static bool edge_passes(const struct network *network, const struct edge *edge, bool empty) {
    const struct network_rule *rule = &network->rules[edge->kind == EDGE_CALL ? edge->rule : 0];
    if (edge->kind == EDGE_BYTES || edge->kind == EDGE_ENOUGH) return !empty;
    if (edge->kind == EDGE_EMPTY || edge->kind == EDGE_COUNT) return true;
    return empty ? rule->is_nullable : rule->is_productive;
}

/* Edges by the condition that they wait for. An edge lets its node reach an end as soon as its
 * target does and, for a call, its rule can end. */
struct waiting {
    uint32_t *from;                /* [edges] the source of each edge */
    uint32_t *next_into, *into;    /* [edges], [nodes] incoming edges of a node, index + 1 */
    uint32_t *next_call, *calls;   /* [edges], [rules] calls of a rule, index + 1 */
    uint32_t *next_start, *starts; /* [rules], [nodes] rules that start at a node, index + 1 */
    uint32_t *stack, n;            /* [nodes] found to reach an end, not yet propagated */
};

static void waiting_init(struct waiting *w, const struct network *network) {
    size_t n_edges = network->n_edges + 1, n_rules = (size_t)network->n_rules + 1;
    w->from = mem_alloc(n_edges * sizeof *w->from);
    w->next_into = mem_alloc(n_edges * sizeof *w->next_into);
    w->next_call = mem_alloc(n_edges * sizeof *w->next_call);
    w->into = mem_calloc(network->n_nodes, sizeof *w->into);
    w->starts = mem_calloc(network->n_nodes, sizeof *w->starts);
    w->calls = mem_calloc(n_rules, sizeof *w->calls);
    w->next_start = mem_alloc(n_rules * sizeof *w->next_start);
    w->stack = mem_alloc(network->n_nodes * sizeof *w->stack);
    w->n = 0;
    for (uint32_t i = 0; i < network->n_nodes; i++) {
        const struct node *node = &network->nodes[i];
        for (uint32_t e = node->edges; e < node->edges + node->n_edges; e++) {
            const struct edge *edge = &network->edges[e];
            w->from[e] = i;
            w->next_into[e] = w->into[edge->to];
            w->into[edge->to] = e + 1;
            if (edge->kind != EDGE_CALL) continue;
            w->next_call[e] = w->calls[edge->rule];
            w->calls[edge->rule] = e + 1;
        }
    }
    for (uint32_t i = 0; i < (uint32_t)network->n_rules; i++) {
        uint32_t *first = &w->starts[network->rules[i].start];
        w->next_start[i] = *first;
        *first = i + 1;
    }
}

static void waiting_free(struct waiting *w) {
    mem_free(w->from);
    mem_free(w->next_into);
    mem_free(w->next_call);
    mem_free(w->into);
    mem_free(w->starts);
    mem_free(w->calls);
    mem_free(w->next_start);
    mem_free(w->stack);
}

static void mark_reaching(struct waiting *w, bool *reaches, uint32_t node) {
    if (reaches[node]) return;
    reaches[node] = true;
    w->stack[w->n++] = node;
}

/* Propagates that a node reaches an end: to its predecessors, and to the callers of rules that
 * start at it. */
static void spread(struct waiting *w, struct network *network, bool *reaches, bool empty,
                   uint32_t node) {
    for (uint32_t e = w->into[node]; e; e = w->next_into[e - 1]) {
        if (edge_passes(network, &network->edges[e - 1], empty))
            mark_reaching(w, reaches, w->from[e - 1]);
    }
    for (uint32_t i = w->starts[node]; i; i = w->next_start[i - 1]) {
        struct network_rule *rule = &network->rules[i - 1];
        *(empty ? &rule->is_nullable : &rule->is_productive) = true;
        for (uint32_t e = w->calls[i - 1]; e; e = w->next_call[e - 1]) {
            if (reaches[network->edges[e - 1].to]) mark_reaching(w, reaches, w->from[e - 1]);
        }
    }
}

/* Returns for each node whether it reaches the end of its rule: without a byte if `empty`,
 * otherwise in any way. Visits each node and edge once. The caller frees the array. */
static bool *find_reaching(struct builder *b, struct network *network, bool empty) {
    bool *reaches = mem_calloc(network->n_nodes, sizeof *reaches);
    struct waiting waiting;
    waiting_init(&waiting, network);
    for (uint32_t i = 0; i < network->n_nodes; i++) {
        if (network->nodes[i].is_end) mark_reaching(&waiting, reaches, i);
    }
    while (waiting.n > 0 && builder_works(b, 5)) {
        spread(&waiting, network, reaches, empty, waiting.stack[--waiting.n]);
    }
    waiting_free(&waiting);
    return reaches;
}

/* Removes the edges from which no end is reachable and marks tail calls. */
static void prune(struct network *network, const bool *reaches) {
    for (uint32_t i = 0; i < network->n_nodes; i++) {
        struct node *node = &network->nodes[i];
        uint32_t kept = 0;
        for (uint32_t e = node->edges; e < node->edges + node->n_edges; e++) {
            struct edge edge = network->edges[e];
            if (reaches[edge.to] && edge_passes(network, &edge, false))
                network->edges[node->edges + kept++] = edge;
        }
        node->n_edges = kept;
    }
    for (uint32_t i = 0; i < network->n_nodes; i++) {
        struct node *node = &network->nodes[i];
        for (uint32_t e = node->edges; e < node->edges + node->n_edges; e++) {
            struct edge *edge = &network->edges[e];
            const struct node *to = &network->nodes[edge->to];
            edge->is_tail = edge->kind == EDGE_CALL && to->is_end && to->n_edges == 0;
            node->is_kept |=
                edge->kind == EDGE_BYTES || (edge->kind == EDGE_CALL && !edge->is_tail);
        }
    }
}

/* ---- classes of bytes ----------------------------------------------------------------------- */

static void find_classes(struct network *network) {
    bool begins[257] = {[0] = true};
    for (uint32_t i = 0; i < network->n_nodes; i++) {
        const struct node *node = &network->nodes[i];
        for (uint32_t e = node->edges; e < node->edges + node->n_edges; e++) {
            if (network->edges[e].kind != EDGE_BYTES) continue;
            begins[network->edges[e].low] = begins[network->edges[e].high + 1] = true;
        }
    }
    for (int byte = 0; byte < 256; byte++) {
        if (begins[byte]) network->first_of[network->n_classes++] = (uint8_t)byte;
        network->class_of[byte] = (uint8_t)(network->n_classes - 1);
        network->size_of[network->n_classes - 1]++;
    }
}

static void finish(struct builder *b, struct network *network) {
    mem_free(find_reaching(b, network, true));
    bool *reaches = find_reaching(b, network, false);
    if (b->status == STATUS_OK && !network->rules[network->root].is_productive) {
        builder_fail(b, "Nothing can match this grammar: no text matches all of it.");
    }
    prune(network, reaches);
    mem_free(reaches);
    find_classes(network);
    network->bytes = sizeof *network + network->n_nodes * sizeof *network->nodes +
                     network->n_edges * sizeof *network->edges +
                     (size_t)network->n_rules * sizeof *network->rules;
}

struct network *network_new(struct builder *b, int root) {
    if (b->status != STATUS_OK) return NULL;
    struct network *network = mem_calloc(1, sizeof *network);
    struct graph graph = {.b = b, .network = network};
    network->n_rules = network->max_rules = b->n_rules;
    network->root = root;
    network->rules = mem_calloc((size_t)b->n_rules, sizeof *network->rules);
    draw_rules(&graph, network);
    if (b->status == STATUS_OK) {
        lay_out(&graph, network);
        finish(b, network);
    }
    graph_free(&graph);
    if (b->status == STATUS_OK) return network;
    network_free(network);
    return NULL;
}

void network_free(struct network *network) {
    if (!network) return;
    mem_free(network->nodes);
    mem_free(network->edges);
    mem_free(network->rules);
    mem_free(network);
}
