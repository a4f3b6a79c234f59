/* Logprobs in OpenAI's two forms: a list of objects (chat), four parallel lists (completions). */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "server/api_internal.h"

/* JSON has no infinity. A logprob of -9999 says the same: this token cannot come. */
static void write_logprob(struct buf *out, float logprob) {
    char digits[32];
    if (!isfinite(logprob) || logprob < -9999) {
        buf_puts(out, "-9999.0");
        return;
    }
    int n =
        snprintf(digits, sizeof digits, "%.9g", (double)logprob); /* 9 digits keep a float's bits */
    buf_add(out, digits, (size_t)n);
}

/* ---- chat ----------------------------------------------------------------------------------- */

/* `"token":…,"logprob":…,"bytes":[…]` */
static void write_token_fields(struct buf *out, const struct tokenizer *tokenizer,
                               struct token_logprob token) {
    size_t length;
    const char *bytes = tokenizer_token_bytes(tokenizer, token.id, &length);
    buf_puts(out, "\"token\":");
    json_write_string(out, bytes, length);
    buf_puts(out, ",\"logprob\":");
    write_logprob(out, token.logprob);
    buf_puts(out, ",\"bytes\":[");
    for (size_t i = 0; i < length; i++) {
        if (i > 0) buf_add(out, ",", 1);
        json_write_int(out, (unsigned char)bytes[i]);
    }
    buf_add(out, "]", 1);
}

static void write_chat_token(struct buf *out, const struct tokenizer *tokenizer,
                             const struct sampled *sampled) {
    struct token_logprob chosen = {sampled->id, sampled->logprob};
    buf_add(out, "{", 1);
    write_token_fields(out, tokenizer, chosen);
    buf_puts(out, ",\"top_logprobs\":[");
    for (int i = 0; i < sampled->n_top; i++) {
        buf_puts(out, i > 0 ? ",{" : "{");
        write_token_fields(out, tokenizer, sampled->top[i]);
        buf_add(out, "}", 1);
    }
    buf_puts(out, "]}");
}

static void write_chat_logprobs(struct buf *out, const struct tokenizer *tokenizer,
                                const struct api_choice *choice) {
    buf_puts(out, "{\"content\":[");
    for (int i = 0; i < choice->n_logprobs; i++) {
        if (i > 0) buf_add(out, ",", 1);
        write_chat_token(out, tokenizer, &choice->logprobs[i].sampled);
    }
    buf_puts(out, "],\"refusal\":null}");
}

/* ---- completions ---------------------------------------------------------------------------- */

/* A token as a string: its text, or "bytes:\xe2\x80" where it is only a part of a character. */
static void write_token_text(struct buf *out, const struct tokenizer *tokenizer, int32_t id) {
    size_t length;
    const char *bytes = tokenizer_token_bytes(tokenizer, id, &length);
    if (utf8_valid_prefix(bytes, length) == length) {
        json_write_string(out, bytes, length);
        return;
    }
    buf_puts(out, "\"bytes:");
    for (size_t i = 0; i < length; i++) {
        char escape[8];
        int n = snprintf(escape, sizeof escape, "\\\\x%02x", (unsigned char)bytes[i]);
        buf_add(out, escape, (size_t)n);
    }
    buf_add(out, "\"", 1);
}

static bool same_text(const struct tokenizer *tokenizer, int32_t a, int32_t b) {
    size_t n, m;
    const char *x = tokenizer_token_bytes(tokenizer, a, &n);
    const char *y = tokenizer_token_bytes(tokenizer, b, &m);
    return n == m && memcmp(x, y, n) == 0;
}

/* {"text": logprob, ...}: the best ones and the chosen one. Of tokens with the same text the best
 * is kept, since an object has each key once. */
static void write_top(struct buf *out, const struct tokenizer *tokenizer,
                      const struct sampled *sampled) {
    struct token_logprob all[MAX_TOP_LOGPROBS + 1];
    int n = sampled->n_top;
    assert(n >= 0 && n <= MAX_TOP_LOGPROBS);
    memcpy(all, sampled->top, (size_t)n * sizeof *all);
    all[n++] = (struct token_logprob){sampled->id, sampled->logprob};
    buf_add(out, "{", 1);
    for (int i = 0, written = 0; i < n; i++) {
        int before = 0;
        while (before < i && !same_text(tokenizer, all[before].id, all[i].id)) before++;
        if (before < i) continue;
        if (written++ > 0) buf_add(out, ",", 1);
        write_token_text(out, tokenizer, all[i].id);
        buf_add(out, ":", 1);
        write_logprob(out, all[i].logprob);
    }
    buf_add(out, "}", 1);
}

enum column { OFFSETS, LOGPROBS, TOKENS, TOPS };

static void write_cell(struct buf *out, enum column column, const struct tokenizer *tokenizer,
                       const struct api_logprob *one) {
    if ((column == LOGPROBS || column == TOPS) && !one->has_logprob) {
        buf_puts(out, "null");
        return;
    }
    switch (column) {
    case OFFSETS:
        json_write_int(out, one->text_offset);
        return;
    case LOGPROBS:
        write_logprob(out, one->sampled.logprob);
        return;
    case TOKENS:
        write_token_text(out, tokenizer, one->sampled.id);
        return;
    case TOPS:
        write_top(out, tokenizer, &one->sampled);
        return;
    }
}

static void write_completion_logprobs(struct buf *out, const struct tokenizer *tokenizer,
                                      const struct api_choice *choice) {
    static const char *const names[] = {"{\"text_offset\":[", "],\"token_logprobs\":[",
                                        "],\"tokens\":[", "],\"top_logprobs\":["};
    for (int column = OFFSETS; column <= TOPS; column++) {
        buf_puts(out, names[column]);
        for (int i = 0; i < choice->n_logprobs; i++) {
            if (i > 0) buf_add(out, ",", 1);
            write_cell(out, (enum column)column, tokenizer, &choice->logprobs[i]);
        }
    }
    buf_puts(out, "]}");
}

void write_logprobs(struct buf *out, enum api_kind kind, const struct tokenizer *tokenizer,
                    const struct api_choice *choice) {
    if (!choice->logprobs)
        buf_puts(out, "null");
    else if (kind == API_CHAT)
        write_chat_logprobs(out, tokenizer, choice);
    else
        write_completion_logprobs(out, tokenizer, choice);
}
