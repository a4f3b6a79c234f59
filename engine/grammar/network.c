/* From the builder's rules to a network: draws them, finds out which rules may be empty, and takes
 * away what can never end, so that every state that is reached has an end. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/automaton.h"

/* ---- drawing -------------------------------------------------------------------------------- */

static void draw_rules(struct draft *draft, struct network *network) {
    struct builder *b = draft->b;
    for (int i = 0; i < b->n_rules && b->status == STATUS_OK; i++) {
        struct network_rule *rule = &network->rules[i];
        rule->start = draft_node(draft);
        rule->end = draft_node(draft);
        if (b->status == STATUS_OK && b->rules[i].body)
            draft_expr(draft, b->rules[i].body, rule->start, rule->end);
    }
}

/* Where a node only leads on, without a byte and to one place. */
static uint32_t skip_empty(const struct draft *draft, uint32_t node) {
    for (uint32_t hops = 0; hops < draft->n_nodes; hops++) {
        uint32_t first = draft->first[node];
        if (!first) break;
        const struct draft_edge *edge = &draft->edges[first - 1];
        if (edge->next || edge->edge.kind != EDGE_EMPTY) break;
        node = edge->edge.to;
    }
    return node;
}

/* Lays each node's edges side by side. */
static void lay_out(const struct draft *draft, struct network *network) {
    network->n_nodes = draft->n_nodes;
    network->nodes = mem_calloc(draft->n_nodes, sizeof *network->nodes);
    network->edges = mem_alloc((draft->n_edges + 1) * sizeof *network->edges);
    for (uint32_t i = 0; i < draft->n_nodes; i++) {
        struct node *node = &network->nodes[i];
        node->edges = network->n_edges;
        for (uint32_t e = draft->first[i]; e; e = draft->edges[e - 1].next) {
            struct edge *edge = &network->edges[network->n_edges++];
            *edge = draft->edges[e - 1].edge;
            edge->to = skip_empty(draft, edge->to);
        }
        node->n_edges = network->n_edges - node->edges;
    }
    for (int i = 0; i < network->n_rules; i++) network->nodes[network->rules[i].end].is_end = true;
}

/* ---- what can be empty, and what can end ---------------------------------------------------- */

static bool edge_passes(const struct network *network, const struct edge *edge, bool empty) {
    const struct network_rule *rule = &network->rules[edge->kind == EDGE_CALL ? edge->rule : 0];
    if (edge->kind == EDGE_BYTES) return !empty;
    if (edge->kind == EDGE_EMPTY) return true;
    return empty ? rule->is_nullable : rule->is_productive;
}

/* Does the node reach an end, given which nodes do? */
static bool node_passes(const struct network *network, uint32_t i, const bool *reaches,
                        bool empty) {
    const struct node *node = &network->nodes[i];
    for (uint32_t e = node->edges; e < node->edges + node->n_edges; e++) {
        const struct edge *edge = &network->edges[e];
        if (reaches[edge->to] && edge_passes(network, edge, empty)) return true;
    }
    return false;
}

/* One pass over all nodes, backwards since most edges lead forwards; has anything changed? */
static bool pass(struct network *network, bool *reaches, bool empty) {
    bool changed = false;
    for (uint32_t i = network->n_nodes; i-- > 0;) {
        if (reaches[i] || !node_passes(network, i, reaches, empty)) continue;
        reaches[i] = changed = true;
    }
    for (int i = 0; i < network->n_rules; i++) {
        struct network_rule *rule = &network->rules[i];
        bool *known = empty ? &rule->is_nullable : &rule->is_productive;
        if (*known || !reaches[rule->start]) continue;
        *known = changed = true;
    }
    return changed;
}

/* Which nodes reach their rule's end: without a byte (`empty`), or at all. The caller frees it. */
static bool *find_reaching(struct builder *b, struct network *network, bool empty) {
    bool *reaches = mem_calloc(network->n_nodes, sizeof *reaches);
    for (uint32_t i = 0; i < network->n_nodes; i++) reaches[i] = network->nodes[i].is_end;
    while (pass(network, reaches, empty) && builder_in_time(b)) continue;
    return reaches;
}

/* Takes away the edges that lead to no end, and marks tail calls. */
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
        builder_fail(b, "Nothing can match this grammar: no text keeps to all of it.");
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
    struct draft draft = {.b = b};
    struct network *network = mem_calloc(1, sizeof *network);
    network->n_rules = b->n_rules;
    network->root = root;
    network->rules = mem_calloc((size_t)b->n_rules, sizeof *network->rules);
    draw_rules(&draft, network);
    if (b->status == STATUS_OK) {
        lay_out(&draft, network);
        finish(b, network);
    }
    draft_free(&draft);
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
