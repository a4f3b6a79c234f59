/* The steps that rewrite a text before it is split: a tokenizer.json's normalizers, and those that
 * SentencePiece's files imply. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "engine/text/tokenizer/internal.h"

/* ---- building ------------------------------------------------------------------------------- */

enum status normalizer_init(struct normalizer *normalizer, const struct tokenizer_step *steps,
                            int n, struct err *err) {
    assert(n >= 0);
    *normalizer = (struct normalizer){0};
    if (n > MAX_STEPS)
        return err_set(err, STATUS_BAD_FILE, "normalizer",
                       "key normalizer: expected at most %d steps, found %d", MAX_STEPS, n);
    for (int i = 0; i < n; i++) {
        const struct tokenizer_step *from = &steps[i];
        normalizer->step[i].kind = from->kind;
        normalizer->step[i].left = from->left != 0;
        normalizer->step[i].right = from->right != 0;
        normalizer->step[i].bert_rules = from->bert_rules;
        normalizer->n = i + 1;
        enum status status = STATUS_OK;
        if (from->kind == STEP_REPLACE)
            status = regex_of_file(&normalizer->step[i].regex, from->pattern, from->is_regex,
                                   "normalizer.pattern", err);
        bool has_map = from->kind == STEP_PRECOMPILED || from->kind == STEP_CHARACTER_MAP;
        if (has_map)
            status = character_map_init(&normalizer->step[i].map, from->content,
                                        "precompiled_charsmap", err);
        if (status) return status;
        if (has_map || from->content.length == 0) continue;
        normalizer->step[i].content = mem_alloc(from->content.length);
        memcpy(normalizer->step[i].content, from->content.data, from->content.length);
        normalizer->step[i].content_length = from->content.length;
    }
    return STATUS_OK;
}

void normalizer_free(struct normalizer *normalizer) {
    for (int i = 0; i < normalizer->n; i++) {
        regex_free(&normalizer->step[i].regex);
        character_map_free(&normalizer->step[i].map);
        mem_free(normalizer->step[i].content);
    }
    normalizer->n = 0;
}

/* ---- steps ---------------------------------------------------------------------------------- */

size_t white_space_at(const char *text, size_t length) {
    size_t n = utf8_character(text, length);
    uint32_t c = n ? utf8_code_point(text, n) : 0;
    bool is_space = (c >= 0x9 && c <= 0xD) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
                    (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
                    c == 0x205F || c == 0x3000;
    return is_space ? n : 0;
}

size_t white_space_before_end(const char *text, size_t length) {
    while (length > 0) {
        size_t n = 1;
        while (n < 3 && n < length && ((uint8_t)text[length - n] & 0xC0) == 0x80) n++;
        if (white_space_at(text + length - n, n) != n) break;
        length -= n;
    }
    return length;
}

void normalize_lowercase(const char *text, size_t length, struct buf *out) {
    for (size_t at = 0, size; at < length; at += size) {
        char bytes[4];
        size = utf8_character(text + at, length - at);
        if (size == 0) {
            buf_add(out, text + at, size = 1);
            continue;
        }
        uint32_t c = utf8_code_point(text + at, size);
        if (c == 0x130) { /* the only capital whose small letter is two characters */
            buf_puts(out, "i\xCC\x87");
        } else {
            buf_add(out, bytes, utf8_write((uint32_t)utf8proc_tolower((int32_t)c), bytes));
        }
    }
}

/* Replaces the matches in a run of valid text. */
static void add_replaced_run(const struct token_regex *regex, struct regex_run *run,
                             const char *content, size_t content_length, const char *text,
                             size_t length, struct buf *out) {
    struct regex_cursor cursor = {0};
    size_t done = 0, begin, end;
    while (regex_next(regex, run, text, length, &cursor, &begin, &end)) {
        buf_add(out, text + done, begin - done);
        if (content_length > 0) buf_add(out, content, content_length);
        done = end;
    }
    buf_add(out, text + done, length - done);
}

static void add_replaced(const struct token_regex *regex, const char *content,
                         size_t content_length, const char *text, size_t length, struct buf *out) {
    struct regex_run run;
    regex_begin(&run, length);
    for (size_t at = 0, n; at < length; at += n) {
        n = utf8_valid_prefix(text + at, length - at);
        if (n > 0) {
            add_replaced_run(regex, &run, content, content_length, text + at, n, out);
        } else {
            buf_add(out, text + at, n = 1);
        }
    }
    regex_end(&run);
}

/* Drops spaces at both ends, and U+2581 at the right end. Of each run of spaces it keeps one. */
static void add_squeezed(const char *text, size_t length, struct buf *out) {
    for (size_t n = 1; n > 0; length -= n) {
        bool has_mark = length >= 3 && memcmp(text + length - 3, "\xE2\x96\x81", 3) == 0;
        n = has_mark ? 3 : length > 0 && text[length - 1] == ' ';
    }
    bool after_space = true;
    for (size_t i = 0; i < length; i++) {
        bool is_space = text[i] == ' ';
        if (!is_space || !after_space) buf_add(out, text + i, 1);
        after_space = is_space;
    }
}

static void apply_step(const struct normalizer *normalizer, int i, const char *text, size_t length,
                       struct buf *out) {
    const char *content = normalizer->step[i].content;
    size_t n = normalizer->step[i].content_length;
    switch (normalizer->step[i].kind) {
    case STEP_NFC:
    case STEP_NFD:
    case STEP_NFKC:
    case STEP_NFKD:
        normalize_form(normalizer->step[i].kind, text, length, out);
        break;
    case STEP_LOWERCASE:
        normalize_lowercase(text, length, out);
        break;
    case STEP_REPLACE:
        add_replaced(&normalizer->step[i].regex, content, n, text, length, out);
        break;
    case STEP_PREPEND:
        if (length > 0) buf_add(out, content, n);
        buf_add(out, text, length);
        break;
    case STEP_PRECOMPILED:
        character_map_by_graphemes(&normalizer->step[i].map, text, length, out);
        break;
    case STEP_CHARACTER_MAP:
        character_map_by_prefix(&normalizer->step[i].map, text, length, out);
        break;
    case STEP_SQUEEZE_SPACES:
        add_squeezed(text, length, out);
        break;
    case STEP_BERT:
        bert_normalize(normalizer->step[i].bert_rules, text, length, out);
        break;
    default:
        assert(!"a step that is not a normalizer");
    }
}

void normalizer_apply(const struct normalizer *normalizer, struct buf room[2], const char **text,
                      size_t *length) {
    int to = 0;
    for (int i = 0; i < normalizer->n; i++) {
        enum step_kind kind = normalizer->step[i].kind;
        if (kind == STEP_STRIP) {
            bool left = normalizer->step[i].left, right = normalizer->step[i].right;
            for (size_t n; left && (n = white_space_at(*text, *length)) > 0;)
                *text += n, *length -= n;
            if (right) *length = white_space_before_end(*text, *length);
            continue;
        }
        if (kind == STEP_NFC && !normalize_needed(*text, *length)) continue;
        buf_clear(&room[to]);
        buf_add(&room[to], "", 0);
        apply_step(normalizer, i, *text, *length, &room[to]);
        *text = room[to].data;
        *length = room[to].length;
        to = 1 - to;
    }
}
