/* Finds special and added tokens with a trie. From a byte that may begin a token, the walk is at
 * most as deep as the longest special token, so the time is linear in the text. */
#include <assert.h>
#include <stdlib.h>
#include <utf8proc.h>

#include "engine/text/tokenizer/internal.h"

/* ---- the trie ------------------------------------------------------------------------------- */

void trie_init(struct trie *trie) {
    *trie = (struct trie){.n_nodes = 1, .capacity = 256};
    pair_table_init(&trie->edges, 256);
    trie->token = mem_alloc((size_t)trie->capacity * sizeof *trie->token);
    trie->token[0] = -1;
}

void trie_free(struct trie *trie) {
    mem_free(trie->edges.pair);
    mem_free(trie->token);
    *trie = (struct trie){0};
}

static int32_t new_node(struct trie *trie) {
    assert(trie->n_nodes < INT32_MAX / 2);
    if (trie->n_nodes == trie->capacity) {
        trie->capacity *= 2;
        trie->token = mem_realloc(trie->token, (size_t)trie->capacity * sizeof *trie->token);
    }
    trie->token[trie->n_nodes] = -1;
    return trie->n_nodes++;
}

void trie_add(struct trie *trie, const char *text, size_t length, int32_t token) {
    int32_t node = 0;
    assert(length > 0);
    for (size_t i = 0; i < length; i++) {
        int32_t next = trie_step(trie, node, (uint8_t)text[i]);
        if (next < 0) {
            next = new_node(trie);
            pair_table_put(&trie->edges, (uint32_t)node, (uint8_t)text[i], 0, next);
        }
        node = next;
    }
    trie->token[node] = token;
}

/* ---- token sets ----------------------------------------------------------------------------- */

static void add_token(struct special *special, const struct normalizer *normalizer, int32_t id,
                      struct buf room[2]) {
    const struct token_vocabulary *vocabulary = special->vocabulary;
    size_t length;
    const char *text =
        strings_get(vocabulary->finds_names ? &vocabulary->name : &vocabulary->raw, id, &length);
    if (normalizer) normalizer_apply(normalizer, room, &text, &length);
    if (length == 0) return;
    trie_add(&special->trie, text, length, id);
    special->first[(uint8_t)text[0]] = true;
}

void special_init(struct special *special, const struct token_vocabulary *vocabulary,
                  enum special_set set, const struct normalizer *normalizer) {
    struct buf room[2] = {{0}};
    special->vocabulary = vocabulary;
    trie_init(&special->trie);
    for (int32_t i = 0; i < vocabulary->n; i++) {
        bool is_normalized = vocabulary->added[i] & ADDED_NORMALIZED;
        bool is_in_set = set == SPECIAL_ALL || is_normalized == (set == SPECIAL_NORMALIZED);
        int type = vocabulary->type[i];
        bool is_split_out = type == TOKEN_USER_DEFINED || type_is_special(type);
        if (is_split_out && is_in_set) add_token(special, normalizer, i, room);
    }
    buf_free(&room[0]);
    buf_free(&room[1]);
}

void special_free(struct special *special) {
    trie_free(&special->trie);
}

/* ---- finding -------------------------------------------------------------------------------- */

/* Returns the bytes of the longest token at the start of `text`, or 0. */
static size_t longest_at(const struct special *special, const char *text, size_t length,
                         int32_t *id) {
    assert(length > 0);
    size_t best = 0;
    int32_t node = 0;
    for (size_t i = 0; i < length; i++) {
        node = trie_step(&special->trie, node, (uint8_t)text[i]);
        if (node < 0) break;
        if (special->trie.token[node] < 0) continue;
        *id = special->trie.token[node];
        best = i + 1;
    }
    return best;
}

/* Is it a word character: Alphabetic, M, Nd, Pc or Join_Control? */
static bool is_word_character(uint32_t c) {
    switch (utf8proc_category((int32_t)c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        break;
    }
    return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) ||
           (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
           (c >= 0x1F170 && c <= 0x1F189);
}

/* Is text[begin, end) without adjacent word characters on both sides? */
static bool stands_alone(const char *text, size_t length, size_t begin, size_t end) {
    assert(begin <= end && end <= length);
    size_t n = 1, after = utf8_character(text + end, length - end);
    if (after > 0 && is_word_character(utf8_code_point(text + end, after))) return false;
    while (n < 4 && n < begin && ((uint8_t)text[begin - n] & 0xC0) == 0x80) n++;
    if (begin == 0 || utf8_character(text + begin - n, n) != n) return true;
    return !is_word_character(utf8_code_point(text + begin - n, n));
}

/* Extends a match by the white space that the token's rules include. */
static void take_space(uint8_t rules, const char *text, size_t length, size_t done,
                       struct special_match *match) {
    if (rules & ADDED_LSTRIP && match->begin > done) {
        match->begin = done + white_space_before_end(text + done, match->begin - done);
    }
    for (size_t n; rules & ADDED_RSTRIP; match->end += n) {
        n = white_space_at(text + match->end, length - match->end);
        if (n == 0) break;
    }
}

bool special_next(const struct special *special, enum special_rule rule, const char *text,
                  size_t length, size_t from, size_t end, size_t done,
                  struct special_match *match) {
    assert(from <= end && end <= length);
    for (size_t at = from, n; at < end; at += n) {
        n = 0;
        if (special->first[(uint8_t)text[at]])
            n = longest_at(special, text + at, end - at, &match->id);
        if (n == 0) {
            n = 1;
            continue;
        }
        uint8_t rules = special->vocabulary->added[match->id];
        bool is_special = type_is_special(special->vocabulary->type[match->id]);
        if (is_special && rule == SPECIAL_AS_TEXT) continue;
        if (rules & ADDED_SINGLE_WORD && !stands_alone(text, length, at, at + n)) continue;
        match->begin = at;
        match->end = match->next = at + n;
        take_space(rules, text, length, done, match);
        return true;
    }
    return false;
}
