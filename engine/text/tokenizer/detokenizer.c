/* Converts token ids to text, one by one: always whole characters, at most 3 bytes held back. */
#include <assert.h>
#include <string.h>

#include "engine/text/tokenizer/internal.h"

#define REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD */

/* Appends whole characters, and U+FFFD for invalid bytes. Returns the number of bytes at the end
 * that may begin a character. */
static size_t add_whole(const char *bytes, size_t length, struct buf *out) {
    while (length > 0) {
        size_t valid = utf8_valid_prefix(bytes, length);
        buf_add(out, bytes, valid);
        bytes += valid;
        length -= valid;
        if (utf8_partial(bytes, length) > 0 || length == 0) break;
        size_t broken = utf8_maximal_subpart(bytes, length);
        buf_puts(out, REPLACEMENT);
        bytes += broken;
        length -= broken;
    }
    return length;
}

/* Completes the held character with new bytes, or replaces it by U+FFFD if they do not fit. Returns
 * the number of bytes that it used. */
static size_t finish_held(struct detokenizer *detokenizer, const char *bytes, size_t length,
                          struct buf *out) {
    char *held = detokenizer->held;
    size_t taken = 0;
    while (taken < length) {
        size_t n = detokenizer->n_held;
        assert(n < sizeof detokenizer->held);
        held[n] = bytes[taken];
        if (utf8_character(held, n + 1) > 0) {
            buf_add(out, held, n + 1);
            detokenizer->n_held = 0;
            return taken + 1;
        }
        if (utf8_partial(held, n + 1) == 0) {
            detokenizer_finish(detokenizer, out);
            return taken;
        }
        detokenizer->n_held++;
        taken++;
    }
    return taken;
}

static void add_bytes(struct detokenizer *detokenizer, const char *bytes, size_t length,
                      struct buf *out) {
    if (detokenizer->n_held > 0) {
        size_t taken = finish_held(detokenizer, bytes, length, out);
        bytes += taken;
        length -= taken;
    }
    if (detokenizer->n_held > 0 || length == 0) return;
    size_t rest = add_whole(bytes, length, out);
    assert(rest < sizeof detokenizer->held);
    memcpy(detokenizer->held, bytes + length - rest, rest);
    detokenizer->n_held = (uint8_t)rest;
}

/* Drops the start of a stream: SentencePiece's space, or the characters that a file's decoder
 * strips. */
static void drop_start(struct detokenizer *detokenizer, const char **bytes, size_t *length) {
    const struct tokenizer *tokenizer = detokenizer->tokenizer;
    const struct decoding *decoding = &tokenizer->decoding;
    size_t n = strlen(decoding->stripped);
    bool spaced = !decoding->is_set && tokenizer->add_space_prefix;
    if (spaced && !detokenizer->started && *length > 0 && **bytes == ' ') {
        ++*bytes;
        --*length;
    }
    while (!detokenizer->is_past_start && *length > 0) {
        bool strips = detokenizer->n_stripped < decoding->n_stripped && *length >= n &&
                      memcmp(*bytes, decoding->stripped, n) == 0;
        detokenizer->is_past_start = !strips;
        if (!strips) break;
        *bytes += n;
        *length -= n;
        detokenizer->n_stripped++;
    }
}

/* Returns a token's spelling, after the normalizer if its text is found in normalized text. */
static const char *shown_name(const struct tokenizer *tokenizer, int32_t id, struct buf room[2],
                              size_t *length) {
    const char *name = strings_get(&tokenizer->vocabulary.name, id, length);
    if (tokenizer->vocabulary.added[id] & ADDED_NORMALIZED)
        normalizer_apply(&tokenizer->normalizer, room, &name, length);
    return name;
}

/* Adds the first token's text under Metaspace: its spelling without the marks. */
static void add_unmarked(struct detokenizer *detokenizer, int32_t id, struct buf *out) {
    const struct tokenizer *tokenizer = detokenizer->tokenizer;
    const char *mark = tokenizer->decoding.mark;
    struct buf room[2] = {{0}};
    size_t length, n_mark = strlen(mark);
    const char *name = shown_name(tokenizer, id, room, &length);
    for (size_t at = 0, n; at < length; at += n) {
        const char *found = memmem(name + at, length - at, mark, n_mark);
        n = found ? (size_t)(found - name) - at : length - at;
        add_bytes(detokenizer, name + at, n, out);
        n += found ? n_mark : 0;
    }
    buf_free(&room[0]);
    buf_free(&room[1]);
}

/* Adds the first token's text under WordPiece: without a space before it. */
static void add_first_word(struct detokenizer *detokenizer, int32_t id, struct buf *out) {
    const struct tokenizer *tokenizer = detokenizer->tokenizer;
    struct buf room[2] = {{0}}, word = {0};
    size_t length;
    const char *name = shown_name(tokenizer, id, room, &length);
    wordpiece_decode((struct span){"", 0}, tokenizer->decoding.cleans_up, true, name, length,
                     &word);
    add_bytes(detokenizer, word.data, word.length, out);
    buf_free(&word);
    buf_free(&room[0]);
    buf_free(&room[1]);
}

void detokenizer_add(struct detokenizer *detokenizer, int32_t id, struct buf *out) {
    const struct tokenizer *tokenizer = detokenizer->tokenizer;
    const struct decoding *decoding = &tokenizer->decoding;
    size_t length;
    assert(tokenizer && detokenizer->n_held < sizeof detokenizer->held);
    const char *bytes = tokenizer_token_bytes(tokenizer, id, &length);
    bool is_known = id >= 0 && id < tokenizer->vocabulary.n;
    if (!is_known || (detokenizer->skip_special && tokenizer_is_special(tokenizer, id))) return;
    bool is_first = !detokenizer->started;
    if (decoding->byte_fallback && !tokenizer->vocabulary.is_byte[id])
        detokenizer_finish(detokenizer, out);
    if (decoding->joins_with_spaces && !is_first) add_bytes(detokenizer, " ", 1, out);
    if (is_first && decoding->mark[0]) {
        add_unmarked(detokenizer, id, out);
    } else if (is_first && decoding->joins_words) {
        add_first_word(detokenizer, id, out);
    } else {
        drop_start(detokenizer, &bytes, &length);
        add_bytes(detokenizer, bytes, length, out);
    }
    detokenizer->started = true;
}

void detokenizer_finish(struct detokenizer *detokenizer, struct buf *out) {
    int n = detokenizer->n_held > 0;
    if (detokenizer->tokenizer->decoding.byte_fallback) n = detokenizer->n_held;
    for (int i = 0; i < n; i++) buf_puts(out, REPLACEMENT);
    detokenizer->n_held = 0;
}

void detokenize(const struct tokenizer *tokenizer, const int32_t *ids, int n, bool skip_special,
                struct buf *out) {
    assert(n >= 0);
    struct detokenizer detokenizer = {.tokenizer = tokenizer, .skip_special = skip_special};
    for (int i = 0; i < n; i++) detokenizer_add(&detokenizer, ids[i], out);
    detokenizer_finish(&detokenizer, out);
}
