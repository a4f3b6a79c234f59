/* SentencePiece's BPE begins with characters. Two neighbours merge if together they are a token,
 * the best score first. The text is not split into pieces: a token may contain several words. A
 * character that is not a token at the end is encoded byte by byte. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/tokenizer/internal.h"

enum status sentencepiece_init(struct tokenizer *tokenizer, const struct tokenizer_spec *spec,
                               struct err *err) {
    if (!spec->score) {
        return err_set(err, STATUS_BAD_FILE, spec->keys->scores,
                       "a SentencePiece vocabulary needs a score for each token");
    }
    size_t n = (size_t)spec->n_tokens;
    tokenizer->sentencepiece.rank = mem_alloc(n * sizeof *tokenizer->sentencepiece.rank);
    for (size_t i = 0; i < n; i++) {
        /* as unsigned numbers, negative floats are in reverse order, after the others */
        uint32_t bits;
        float score = (float)spec->score[i];
        memcpy(&bits, &score, sizeof bits);
        bool negative = bits & 0x80000000u;
        /* the best score gets the smallest rank */
        tokenizer->sentencepiece.rank[i] = negative ? bits : ~(bits | 0x80000000u);
    }
    return STATUS_OK;
}

/* Rewrites the text in the spelling of tokens: U+2581 becomes a space, and the first word may get a
 * space before it. After an added token, a space is not inserted, so decoding restores the text. */
static void rewrite(struct encoder *encoder, const char *text, size_t length) {
    struct buf *out = &encoder->text;
    buf_clear(out);
    if (encoder->tokenizer->add_space_prefix && encoder->at_start) buf_add(out, " ", 1);
    for (size_t at = 0; at < length;) {
        const char *mark = memmem(text + at, length - at, "\xE2\x96\x81", 3);
        size_t plain = mark ? (size_t)(mark - text) - at : length - at;
        buf_add(out, text + at, plain);
        if (mark) buf_add(out, " ", 1);
        at += plain + (mark ? 3 : 0);
    }
}

static size_t link_characters(const struct tokenizer *tokenizer, struct symbol *symbol,
                              const char *text, size_t length) {
    size_t n = 0;
    for (size_t at = 0, size; at < length; at += size) {
        size = utf8_character(text + at, length - at);
        if (size == 0) size = 1;
        symbol[n] = (struct symbol){
            .id = string_table_find(&tokenizer->vocabulary.by_text, text + at, size),
            .start = (uint32_t)at,
            .length = (uint32_t)size,
            .next = (int32_t)n + 1,
            .previous = (int32_t)n - 1};
        n++;
    }
    assert(n > 0 && n <= length);
    symbol[n - 1].next = -1;
    return n;
}

/* Encodes an unknown character: as its bytes or, if one of them is not a token, as one unknown
 * token for a run of such characters. */
static bool push_character(struct encoder *encoder, const char *text, size_t length,
                           bool *in_unknown) {
    const struct tokenizer *tokenizer = encoder->tokenizer;
    bool pushed;
    if (!encoder_push_bytes(encoder, text, length, &pushed)) return false;
    if (pushed) {
        *in_unknown = false;
        return true;
    }
    bool again = *in_unknown;
    *in_unknown = true;
    return again || tokenizer->unknown < 0 || encoder_push(encoder, tokenizer->unknown);
}

static bool push_symbols(struct encoder *encoder, const char *text) {
    bool in_unknown = false;
    const struct symbol *symbol = encoder->memory.symbol;
    for (int32_t at = 0; at >= 0; at = symbol[at].next) {
        if (symbol[at].id < 0) {
            if (!push_character(encoder, text + symbol[at].start, symbol[at].length, &in_unknown)) {
                return false;
            }
            continue;
        }
        in_unknown = false;
        if (!encoder_push(encoder, symbol[at].id)) return false;
    }
    return true;
}

bool sentencepiece_encode(struct encoder *encoder, const char *text, size_t length) {
    if (length == 0) return true;
    if (!encoder_may_fit(encoder, text, length)) return false;
    rewrite(encoder, text, length);
    text = encoder->text.data;
    length = encoder->text.length;
    if (encoder->tokenizer->kind == TOKENIZER_UNIGRAM)
        return unigram_encode_piece(encoder, text, length);
    size_t n =
        link_characters(encoder->tokenizer, merge_symbols(&encoder->memory, length), text, length);
    merge_run(encoder->tokenizer, &encoder->memory, text, n);
    return push_symbols(encoder, text);
}
