/* BPE that begins with characters (tokenizer.json's "BPE" without a byte level); and tiktoken's,
 * which begins with bytes and does not have a list of merges: two neighbours merge if together they
 * are a token, the smallest id first. */
#include <assert.h>
#include <string.h>

#include "engine/text/tokenizer/internal.h"

/* ---- characters ----------------------------------------------------------------------------- */

/* The symbols of a piece while they are made. An unknown token is held back, because a run of
 * unknown characters may become one token. */
struct linking {
    const struct tokenizer *tokenizer;
    struct symbol *symbol;
    size_t n;
    uint32_t unknown_start, unknown_length; /* length 0: not holding one back */
};

static void add_symbol(struct linking *linking, int32_t id, size_t start, size_t length) {
    linking->symbol[linking->n] = (struct symbol){.id = id,
                                                  .start = (uint32_t)start,
                                                  .length = (uint32_t)length,
                                                  .next = (int32_t)linking->n + 1,
                                                  .previous = (int32_t)linking->n - 1};
    linking->n++;
}

static void add_unknown(struct linking *linking) {
    if (linking->unknown_length == 0) return;
    add_symbol(linking, linking->tokenizer->unknown, linking->unknown_start,
               linking->unknown_length);
    linking->unknown_length = 0;
}

static void note_unknown(struct linking *linking, size_t start, size_t length) {
    /* without an unknown token the character is dropped */
    if (linking->tokenizer->unknown < 0) return;
    if (linking->unknown_length > 0 && linking->tokenizer->fuse_unknown) {
        linking->unknown_length += (uint32_t)length;
        return;
    }
    add_unknown(linking);
    linking->unknown_start = (uint32_t)start;
    linking->unknown_length = (uint32_t)length;
}

/* Adds the tokens of a character's bytes, if all of them exist. */
static bool add_byte_tokens(struct linking *linking, const char *text, size_t start,
                            size_t length) {
    const int32_t *byte_id = linking->tokenizer->vocabulary.byte_id;
    if (!linking->tokenizer->byte_fallback) return false;
    for (size_t i = 0; i < length; i++) {
        if (byte_id[(uint8_t)text[start + i]] < 0) return false;
    }
    for (size_t i = 0; i < length; i++)
        add_symbol(linking, byte_id[(uint8_t)text[start + i]], start + i, 1);
    return true;
}

static size_t link_characters(const struct tokenizer *tokenizer, struct symbol *symbol,
                              const char *text, size_t length) {
    struct linking linking = {.tokenizer = tokenizer, .symbol = symbol};
    for (size_t at = 0, size; at < length; at += size) {
        size = utf8_character(text + at, length - at);
        if (size == 0) size = 1;
        int32_t id = string_table_find(&tokenizer->vocabulary.by_text, text + at, size);
        if (id >= 0) {
            add_unknown(&linking);
            add_symbol(&linking, id, at, size);
        } else if (!add_byte_tokens(&linking, text, at, size)) {
            note_unknown(&linking, at, size);
        }
    }
    add_unknown(&linking);
    assert(linking.n <= length);
    if (linking.n > 0) symbol[linking.n - 1].next = -1;
    return linking.n;
}

/* ---- pieces --------------------------------------------------------------------------------- */

static bool merge_and_push(struct encoder *encoder, const char *text, size_t n) {
    const struct symbol *symbol = encoder->memory.symbol;
    merge_run(encoder->tokenizer, &encoder->memory, text, n);
    for (int32_t at = n > 0 ? 0 : -1; at >= 0; at = symbol[at].next) {
        if (!encoder_push(encoder, symbol[at].id)) return false;
    }
    return true;
}

/* Returns the token that equals the whole piece, or -1. */
static int32_t whole_piece(const struct tokenizer *tokenizer, const char *text, size_t length) {
    bool may_be = tokenizer->ignore_merges && length <= tokenizer->vocabulary.longest;
    return may_be ? string_table_find(&tokenizer->vocabulary.by_text, text, length) : -1;
}

bool character_encode_piece(void *context, const char *text, size_t length) {
    struct encoder *encoder = context;
    int32_t id = whole_piece(encoder->tokenizer, text, length);
    if (id >= 0) return encoder_push(encoder, id);
    struct symbol *symbol = merge_symbols(&encoder->memory, length);
    return merge_and_push(encoder, text, link_characters(encoder->tokenizer, symbol, text, length));
}

bool rank_encode_piece(void *context, const char *text, size_t length) {
    struct encoder *encoder = context;
    int32_t id = whole_piece(encoder->tokenizer, text, length);
    if (id >= 0) return encoder_push(encoder, id);
    if (!encoder_may_fit(encoder, text, length)) return false;
    struct symbol *symbol = merge_symbols(&encoder->memory, length);
    return merge_and_push(encoder, text, link_bytes(encoder->tokenizer, symbol, text, length));
}
