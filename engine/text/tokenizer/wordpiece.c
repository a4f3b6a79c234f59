/* BERT's tokenizer: WordPiece, its normalizer and its decoder, as in the library `tokenizers`.
 *
 * All spellings are in one trie. A prefix tells the start of a word from its later parts ("##" for
 * parts in tokenizer.json, U+2581 for starts in GGUF), so a match begins at the node after the
 * prefix:
 *
 *     root - # - # - i - n - g        "playing" -> play ##ing
 *          \ p - l - a - y
 */
#include <assert.h>
#include <string.h>
#include <utf8proc.h>

#include "engine/text/tokenizer/internal.h"

/* ---- encoding ------------------------------------------------------------------------------- */

static int32_t node_after(const struct trie *trie, struct span prefix) {
    int32_t node = 0;
    for (size_t i = 0; i < prefix.length && node >= 0; i++)
        node = trie_step(trie, node, (uint8_t)prefix.data[i]);
    return node;
}

enum status wordpiece_init(struct tokenizer *tokenizer, const struct tokenizer_spec *spec,
                           struct err *err) {
    const struct token_vocabulary *vocabulary = &tokenizer->vocabulary;
    struct trie *trie = &tokenizer->wordpiece.trie;
    if (spec->unknown < 0)
        return err_set(err, STATUS_BAD_FILE, spec->keys->unknown,
                       "a WordPiece vocabulary needs an unknown token");
    assert(spec->max_word_characters >= 0 && spec->has_steps);
    trie_init(trie);
    for (int32_t i = 0; i < vocabulary->n; i++) {
        size_t length;
        const char *text = strings_get(vocabulary->by_text.strings, i, &length);
        if (length > 0 && string_table_find(&vocabulary->by_text, text, length) == i)
            trie_add(trie, text, length, i);
    }
    tokenizer->wordpiece.word = node_after(trie, spec->word_prefix);
    tokenizer->wordpiece.subword = node_after(trie, spec->subword_prefix);
    tokenizer->wordpiece.max_characters = spec->max_word_characters;
    return STATUS_OK;
}

/* Returns the bytes of the longest token that continues the word, or 0. */
static size_t longest_part(const struct tokenizer *tokenizer, const char *text, size_t length,
                           bool is_start, int32_t *id) {
    const struct trie *trie = &tokenizer->wordpiece.trie;
    int32_t node = is_start ? tokenizer->wordpiece.word : tokenizer->wordpiece.subword;
    size_t best = 0;
    for (size_t i = 0; i < length && node >= 0; i++) {
        node = trie_step(trie, node, (uint8_t)text[i]);
        if (node < 0 || trie->token[node] < 0) continue;
        *id = trie->token[node];
        best = i + 1;
    }
    return best;
}

static bool is_in_parts(const struct tokenizer *tokenizer, const char *text, size_t length) {
    int n_characters = 0;
    int32_t id;
    for (size_t i = 0; i < length; i++) {
        n_characters += ((uint8_t)text[i] & 0xC0) != 0x80;
        if (n_characters > tokenizer->wordpiece.max_characters) return false;
    }
    for (size_t at = 0, n; at < length; at += n) {
        n = longest_part(tokenizer, text + at, length - at, at == 0, &id);
        if (n == 0) return false;
    }
    return true;
}

bool wordpiece_encode_piece(void *context, const char *text, size_t length) {
    struct encoder *encoder = context;
    const struct tokenizer *tokenizer = encoder->tokenizer;
    if (!is_in_parts(tokenizer, text, length)) return encoder_push(encoder, tokenizer->unknown);
    for (size_t at = 0, n; at < length; at += n) {
        int32_t id = -1;
        n = longest_part(tokenizer, text + at, length - at, at == 0, &id);
        assert(n > 0 && at + n <= length);
        if (!encoder_push(encoder, id)) return false;
    }
    return true;
}

/* ---- the normalizer ------------------------------------------------------------------------- */

static bool is_control(uint32_t c) {
    switch (utf8proc_category((int32_t)c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO:
        return c != '\t' && c != '\n' && c != '\r';
    default:
        return c == 0xFFFD;
    }
}

/* Ideographs, by the library's ranges. */
static bool is_chinese(uint32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
           (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B81F) ||
           (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) ||
           (c >= 0x2F800 && c <= 0x2FA1F);
}

/* Bytes that are not UTF-8 are dropped like U+FFFD. */
static void add_clean(int rules, const char *text, size_t length, struct buf *out) {
    for (size_t at = 0, n; at < length; at += n) {
        n = utf8_character(text + at, length - at);
        uint32_t c = n ? utf8_code_point(text + at, n) : 0xFFFD;
        bool spaced = rules & BERT_SPACES_CHINESE && is_chinese(c);
        if (n == 0) n = 1;
        if (rules & BERT_CLEANS && is_control(c)) continue;
        if (rules & BERT_CLEANS && white_space_at(text + at, n) > 0) {
            buf_puts(out, " ");
            continue;
        }
        if (spaced) buf_puts(out, " ");
        buf_add(out, text + at, n);
        if (spaced) buf_puts(out, " ");
    }
}

/* Appends the decomposed text without its nonspacing marks. */
static void add_unaccented(const char *text, size_t length, struct buf *out) {
    struct buf parts = {0};
    normalize_form(STEP_NFD, text, length, &parts);
    for (size_t at = 0, n; at < parts.length; at += n) {
        n = utf8_character(parts.data + at, parts.length - at);
        uint32_t c = n ? utf8_code_point(parts.data + at, n) : 0xFFFD;
        if (n == 0) n = 1;
        if (utf8proc_category((int32_t)c) != UTF8PROC_CATEGORY_MN) buf_add(out, parts.data + at, n);
    }
    buf_free(&parts);
}

void bert_normalize(int rules, const char *text, size_t length, struct buf *out) {
    struct buf clean = {0}, plain = {0};
    if (rules & (BERT_CLEANS | BERT_SPACES_CHINESE)) {
        add_clean(rules, text, length, &clean);
        text = clean.data;
        length = clean.length;
    }
    if (rules & BERT_STRIPS_ACCENTS && length > 0) {
        add_unaccented(text, length, &plain);
        text = plain.data;
        length = plain.length;
    }
    if (rules & BERT_LOWERS) {
        normalize_lowercase(text, length, out);
    } else if (length > 0) {
        buf_add(out, text, length);
    }
    buf_free(&clean);
    buf_free(&plain);
}

/* ---- the decoder ---------------------------------------------------------------------------- */

/* Spaces that English text does not have, in the library's order. */
static const struct {
    const char *from, *to;
} clean_ups[] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                 {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                 {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};

static void clean_up(struct buf *text, struct buf *room) {
    for (size_t i = 0; i < sizeof clean_ups / sizeof *clean_ups; i++) {
        size_t n_from = strlen(clean_ups[i].from), at = 0;
        const char *found;
        buf_clear(room);
        buf_add(room, "", 0);
        while ((found = memmem(text->data + at, text->length - at, clean_ups[i].from, n_from))) {
            size_t n = (size_t)(found - text->data) - at;
            buf_add(room, text->data + at, n);
            buf_puts(room, clean_ups[i].to);
            at += n + n_from;
        }
        if (at == 0) continue;
        buf_add(room, text->data + at, text->length - at);
        buf_clear(text);
        buf_add(text, room->data, room->length);
    }
}

void wordpiece_decode(struct span prefix, bool cleans_up, bool is_first, const char *text,
                      size_t length, struct buf *out) {
    struct buf word = {0}, room = {0};
    bool is_part = length >= prefix.length && memcmp(text, prefix.data, prefix.length) == 0;
    size_t n_dropped = !is_first && is_part ? prefix.length : 0;
    if (!is_first && !is_part) buf_puts(&word, " ");
    buf_add(&word, text + n_dropped, length - n_dropped);
    if (cleans_up) clean_up(&word, &room);
    buf_add(out, word.data, word.length);
    buf_free(&word);
    buf_free(&room);
}
