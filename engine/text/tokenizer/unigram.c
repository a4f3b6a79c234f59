/* Unigram (Kudo 2018): among all ways to write a text as tokens, the one with the largest sum of
 * scores, found by Viterbi's algorithm over the text's characters. */
#include <assert.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/tokenizer/internal.h"

/* An unknown character scores this much less than the worst token. */
#define UNKNOWN_PENALTY 10.0

/* The best path to a byte: its last token and the start of that token. */
struct best_path {
    double score;
    int32_t start; /* -1: no token ends here */
    int32_t id;
    int32_t next; /* end of the best path's token that starts here */
};

enum status unigram_init(struct tokenizer *tokenizer, const struct tokenizer_spec *spec,
                         struct err *err) {
    const struct token_vocabulary *vocabulary = &tokenizer->vocabulary;
    if (!spec->score)
        return err_set(err, STATUS_BAD_FILE, spec->keys->scores,
                       "a Unigram vocabulary needs a score for each token");
    if (spec->unknown < 0)
        return err_set(err, STATUS_BAD_FILE, spec->keys->unknown,
                       "a Unigram vocabulary needs an unknown token");
    size_t n = (size_t)spec->n_tokens;
    double least = DBL_MAX;
    tokenizer->unigram.score = mem_alloc(n * sizeof *tokenizer->unigram.score);
    memcpy(tokenizer->unigram.score, spec->score, n * sizeof *spec->score);
    trie_init(&tokenizer->unigram.trie);
    for (int32_t i = 0; i < vocabulary->n; i++) {
        size_t length;
        const char *text = strings_get(vocabulary->by_text.strings, i, &length);
        bool counts = spec->has_steps ? !(vocabulary->added[i] & ADDED_ONLY) && length > 0
                                      : vocabulary->type[i] == TOKEN_NORMAL;
        if (counts && spec->score[i] < least) least = spec->score[i];
        if (length > 0 && string_table_find(&vocabulary->by_text, text, length) == i)
            trie_add(&tokenizer->unigram.trie, text, length, i);
    }
    tokenizer->unigram.unknown_score = least - UNKNOWN_PENALTY;
    tokenizer->unigram.in_floats = spec->in_floats;
    return STATUS_OK;
}

static struct best_path *paths_of(struct encoder *encoder, size_t n) {
    assert(n > 0);
    if (n > encoder->path_capacity) {
        encoder->path_capacity = n < 4096 ? 4096 : n;
        encoder->path = mem_realloc(encoder->path, encoder->path_capacity * sizeof *encoder->path);
    }
    for (size_t i = 0; i < n; i++) encoder->path[i].start = -1;
    encoder->path[0].score = 0;
    return encoder->path;
}

/* Keeps a token that ends at `path` unless an equal or better path ends there. */
static void consider(struct best_path *path, double score, size_t start, int32_t id) {
    if (path->start >= 0 && score <= path->score) return;
    *path = (struct best_path){.score = score, .start = (int32_t)start, .id = id, .next = -1};
}

/* Finds the best paths to all ends of tokens. */
static void find_paths(const struct tokenizer *tokenizer, const char *text, size_t length,
                       struct best_path *path) {
    const struct trie *trie = &tokenizer->unigram.trie;
    bool in_floats = tokenizer->unigram.in_floats;
    for (size_t at = 0, size; at < length; at += size) {
        bool has_single = false;
        double sum, till_here = path[at].score;
        size = utf8_character(text + at, length - at);
        if (size == 0) size = 1;
        int32_t node = 0;
        for (size_t end = at; end < length;) {
            node = trie_step(trie, node, (uint8_t)text[end++]);
            if (node < 0) break;
            int32_t id = trie->token[node];
            if (id < 0) continue;
            sum = till_here + tokenizer->unigram.score[id];
            consider(&path[end], in_floats ? (float)sum : sum, at, id);
            has_single |= end - at == size;
        }
        if (has_single) continue;
        sum = till_here + tokenizer->unigram.unknown_score;
        consider(&path[at + size], in_floats ? (float)sum : sum, at, tokenizer->unknown);
    }
}

/* Pushes the tokens of the best path. A run of unknown characters becomes one token. */
static bool push_path(struct encoder *encoder, const char *text, size_t length,
                      struct best_path *path) {
    int32_t unknown = encoder->tokenizer->unknown;
    /* Reverses the best path: `next` at each token's start becomes its end. */
    for (size_t end = length, start; end > 0; end = start) {
        assert(path[end].start >= 0 && (size_t)path[end].start < end);
        start = (size_t)path[end].start;
        path[start].next = (int32_t)end;
    }
    for (size_t at = 0, end; at < length; at = end) {
        end = (size_t)path[at].next;
        int32_t id = path[end].id;
        if (id != unknown) {
            if (!encoder_push(encoder, id)) return false;
            continue;
        }
        while (end < length && path[path[end].next].id == unknown) end = (size_t)path[end].next;
        bool pushed; /* as bytes, if all of them are tokens */
        if (!encoder_push_bytes(encoder, text + at, end - at, &pushed)) return false;
        if (!pushed && !encoder_push(encoder, unknown)) return false;
    }
    return true;
}

bool unigram_encode_piece(void *context, const char *text, size_t length) {
    struct encoder *encoder = context;
    if (length == 0) return true;
    struct best_path *path = paths_of(encoder, length + 1);
    find_paths(encoder->tokenizer, text, length, path);
    return push_path(encoder, text, length, path);
}
