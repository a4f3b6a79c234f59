/* A tokenizer.json's decoders: the bytes of each token, and the additional state of a stream.
 *
 * Most decoders treat each token separately, so they are applied once, to the whole vocabulary. Two
 * depend on the stream, and the detokenizer applies them: a Strip at the start of the text, and
 * Metaspace, which drops its marks in the first token. */
#include <assert.h>
#include <limits.h>
#include <string.h>

#include "engine/text/tokenizer/internal.h"

/* ---- checking ------------------------------------------------------------------------------- */

static enum status refuse(const char *what, struct err *err) {
    return err_set(err, STATUS_BAD_FILE, "decoder",
                   "key decoder: expected decoders of single tokens, then Fuse, then at most a "
                   "Strip at the start, found %s",
                   what);
}

/* Records a step's effects beyond single tokens. */
static enum status note_step(struct decoding *decoding, const struct tokenizer_spec *spec,
                             const struct tokenizer_step *step, struct err *err) {
    bool at_start = step->kind == STEP_STRIP_CHARACTER && decoding->fused;
    if (decoding->fused && step->kind != STEP_STRIP_CHARACTER && step->kind != STEP_FUSE)
        return refuse("another decoder after Fuse", err);
    if (step->kind == STEP_STRIP_CHARACTER && step->right > 0)
        return refuse("a Strip at the end", err);
    if (at_start && decoding->n_stripped > 0) return refuse("two Strips", err);
    if (spec->n_decoders > 1 && step->kind == STEP_METASPACE)
        return refuse("Metaspace beside others", err);
    if (spec->n_decoders > 1 && step->kind == STEP_WORDPIECE)
        return refuse("WordPiece beside others", err);
    switch (step->kind) {
    case STEP_FUSE:
        decoding->fused = true;
        break;
    case STEP_BYTE_LEVEL:
        decoding->fused = true;
        break;
    case STEP_BYTE_FALLBACK:
        decoding->byte_fallback = true;
        break;
    case STEP_JOIN_WITH_SPACES:
        decoding->joins_with_spaces = true;
        break;
    case STEP_WORDPIECE:
        decoding->joins_words = true;
        decoding->cleans_up = step->split;
        break;
    case STEP_METASPACE:
        if (step->prepend != PREPEND_NEVER)
            memcpy(decoding->mark, step->content.data, step->content.length);
        break;
    case STEP_STRIP_CHARACTER:
        if (!at_start) break;
        decoding->n_stripped = step->left;
        memcpy(decoding->stripped, step->content.data, step->content.length);
        break;
    default:
        break;
    }
    return STATUS_OK;
}

enum status decoding_init(struct decoding *decoding, const struct tokenizer_spec *spec,
                          struct err *err) {
    *decoding = (struct decoding){.is_set = spec->has_steps};
    enum status status = STATUS_OK;
    for (int i = 0; !spec->has_steps && i < spec->n_normalizers; i++) {
        /* SentencePiece drops the same spaces at the start of its output as in its input */
        if (spec->normalizers[i].kind != STEP_SQUEEZE_SPACES) continue;
        decoding->n_stripped = INT_MAX;
        decoding->stripped[0] = ' ';
    }
    for (int i = 0; i < spec->n_decoders && !status; i++)
        status = note_step(decoding, spec, &spec->decoders[i], err);
    decoding->fused = false; /* used only above */
    return status;
}

/* ---- applying ------------------------------------------------------------------------------- */

static void add_replaced(struct span pattern, struct span content, const char *text, size_t length,
                         struct buf *out) {
    for (size_t at = 0; at < length;) {
        const char *found = memmem(text + at, length - at, pattern.data, pattern.length);
        size_t n = found ? (size_t)(found - text) - at : length - at;
        buf_add(out, text + at, n);
        if (found && content.length > 0) buf_add(out, content.data, content.length);
        at += n + (found ? pattern.length : 0);
    }
}

static void add_stripped(const struct tokenizer_step *step, const char *text, size_t length,
                         struct buf *out) {
    size_t n = step->content.length;
    for (int i = 0; i < step->left && length >= n && memcmp(text, step->content.data, n) == 0;
         i++) {
        text += n;
        length -= n;
    }
    buf_add(out, text, length);
}

/* Applies one step to a token's text. */
static void apply(const struct tokenizer_step *step, const char *text, size_t length,
                  struct buf *out) {
    static const struct span space = {" ", 1};
    int byte = step->kind == STEP_BYTE_FALLBACK ? alphabet_byte_token(text, length) : -1;
    switch (step->kind) {
    case STEP_REPLACE:
        add_replaced(step->pattern, step->content, text, length, out);
        break;
    case STEP_METASPACE:
        add_replaced(step->content, space, text, length, out);
        break;
    case STEP_STRIP_CHARACTER:
        add_stripped(step, text, length, out);
        break;
    case STEP_WORDPIECE:
        wordpiece_decode(step->content, step->split, false, text, length, out);
        break;
    case STEP_BYTE_LEVEL: {
        size_t start = out->length;
        buf_add(out, text, length);
        out->length = start + alphabet_bytes(text, length, out->data + start);
        break;
    }
    default:
        if (byte >= 0) {
            buf_add(out, &(char){(char)byte}, 1);
        } else {
            buf_add(out, text, length);
        }
    }
}

bool decoding_apply(const struct tokenizer_spec *spec, const char *name, size_t length,
                    struct buf room[2], const char **bytes, size_t *n_bytes) {
    bool is_byte = false;
    *bytes = name;
    *n_bytes = length;
    for (int i = 0; i < spec->n_decoders; i++) {
        const struct tokenizer_step *step = &spec->decoders[i];
        struct buf *out = &room[i % 2];
        if (step->kind == STEP_FUSE) break;
        is_byte |= step->kind == STEP_BYTE_FALLBACK && alphabet_byte_token(*bytes, *n_bytes) >= 0;
        buf_clear(out);
        buf_add(out, "", 0);
        apply(step, *bytes, *n_bytes, out);
        *bytes = out->data;
        *n_bytes = out->length;
    }
    return is_byte;
}
