/* Special and added tokens, found with a trie. From a byte that may begin one, the walk goes at
 * most as deep as the longest special token is long, so the time is linear in the text. */
#include <assert.h>
#include <stdlib.h>

#include "engine/text/tokenizer/internal.h"

static bool is_split_out(int type) {
    return type == TOKEN_USER_DEFINED || type_is_special(type);
}

static size_t total_bytes(const struct vocabulary *vocabulary) {
    size_t total = 0;
    for (int32_t i = 0; i < vocabulary->n; i++) {
        size_t length;
        strings_get(&vocabulary->raw, i, &length);
        if (is_split_out(vocabulary->type[i])) total += length;
    }
    return total;
}

static void add_token(struct special *special, const struct vocabulary *vocabulary, int32_t id) {
    size_t length;
    const char *raw = strings_get(&vocabulary->raw, id, &length);
    if (length == 0) return;
    int32_t node = 0;
    for (size_t i = 0; i < length; i++) {
        uint8_t byte = (uint8_t)raw[i];
        const struct pair_entry *edge = pair_table_find(&special->edges, (uint32_t)node, byte);
        int32_t next = edge ? edge->value : special->n_nodes++;
        if (!edge) {
            special->token[next] = -1;
            pair_table_put(&special->edges, (uint32_t)node, byte, 0, next);
        }
        node = next;
    }
    special->token[node] = id;
    special->control[node] = type_is_special(vocabulary->type[id]);
    special->first[(uint8_t)raw[0]] = true;
}

void special_init(struct special *special, const struct vocabulary *vocabulary) {
    size_t n =
        total_bytes(vocabulary) + 1; /* every byte may need a node of its own, and the root */
    pair_table_init(&special->edges, n);
    special->token = mem_alloc(n * sizeof *special->token);
    special->control = mem_calloc(n, sizeof *special->control);
    special->token[0] = -1;
    special->n_nodes = 1;
    for (int32_t i = 0; i < vocabulary->n; i++) {
        if (is_split_out(vocabulary->type[i])) add_token(special, vocabulary, i);
    }
    assert((size_t)special->n_nodes <= n);
}

void special_free(struct special *special) {
    free(special->edges.pair);
    free(special->token);
    free(special->control);
}

/* Bytes of the longest token that begins at `text`, or 0. */
static size_t longest_at(const struct special *special, enum special_rule rule, const char *text,
                         size_t length, int32_t *id) {
    size_t best = 0;
    int32_t node = 0;
    for (size_t i = 0; i < length; i++) {
        const struct pair_entry *edge =
            pair_table_find(&special->edges, (uint32_t)node, (uint8_t)text[i]);
        if (!edge) break;
        node = edge->value;
        if (special->token[node] < 0) continue;
        if (special->control[node] && rule == SPECIAL_AS_TEXT) continue;
        *id = special->token[node];
        best = i + 1;
    }
    return best;
}

size_t special_next(const struct special *special, enum special_rule rule, const char *text,
                    size_t length, int32_t *id, size_t *token_length) {
    for (size_t at = 0; at < length; at++) {
        if (!special->first[(uint8_t)text[at]]) continue;
        *token_length = longest_at(special, rule, text + at, length - at, id);
        assert(*token_length <= length - at);
        if (*token_length > 0) return at;
    }
    return length;
}
