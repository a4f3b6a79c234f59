/* The public face of the tokenizers: building one, encoding around special tokens, looking tokens
 * up.
 *
 * DESIGN
 *   A call of tokenizer_encode has a `struct encoder` on its stack, which collects the ids and
 *   owns the memory that the two kinds of tokenizer reuse from piece to piece. The tokenizer
 *   itself is shared by all threads and not written to (bpe.c names the one exception). */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/tokenizer/internal.h"

/* ---- building ------------------------------------------------------------------------------- */

static enum status check_spec(const struct tokenizer_spec *spec, struct err *err) {
    if (spec->n_tokens <= 0 || spec->n_merges < 0) {
        return err_set(err, STATUS_BAD_FILE, "tokenizer.ggml.tokens", "the vocabulary is empty");
    }
    const struct {
        const char *key;
        int32_t id;
    } named[] = {{"tokenizer.ggml.bos_token_id", spec->bos},
                 {"tokenizer.ggml.eos_token_id", spec->eos},
                 {"tokenizer.ggml.unknown_token_id", spec->unknown}};
    for (size_t i = 0; i < sizeof named / sizeof named[0]; i++) {
        if (named[i].id < -1 || named[i].id >= spec->n_tokens) {
            return err_set(err, STATUS_BAD_FILE, named[i].key,
                           "%s is %d, but the vocabulary has %d tokens", named[i].key,
                           (int)named[i].id, spec->n_tokens);
        }
    }
    return STATUS_OK;
}

enum status tokenizer_new(struct tokenizer **out, const struct tokenizer_spec *spec,
                          struct err *err) {
    *out = NULL;
    enum status status = check_spec(spec, err);
    if (status != STATUS_OK) return status;
    struct tokenizer *tokenizer = mem_calloc(1, sizeof *tokenizer);
    tokenizer->kind = spec->kind;
    tokenizer->bos = spec->bos;
    tokenizer->eos = spec->eos;
    tokenizer->unknown = spec->unknown;
    tokenizer->add_bos = spec->add_bos;
    tokenizer->add_eos = spec->add_eos;
    tokenizer->add_space_prefix = spec->add_space_prefix;
    status = vocabulary_init(&tokenizer->vocabulary, spec, err);
    if (status == STATUS_OK) {
        special_init(&tokenizer->special, &tokenizer->vocabulary);
        status = spec->kind == TOKENIZER_BYTE_BPE ? bpe_init(tokenizer, spec, err)
                                                  : sentencepiece_init(tokenizer, spec, err);
    }
    if (status == STATUS_OK) {
        *out = tokenizer;
    } else {
        tokenizer_free(tokenizer);
    }
    return status;
}

void tokenizer_free(struct tokenizer *tokenizer) {
    if (!tokenizer) return;
    vocabulary_free(&tokenizer->vocabulary);
    special_free(&tokenizer->special);
    if (tokenizer->kind == TOKENIZER_BYTE_BPE) {
        bpe_free(tokenizer);
    } else {
        sentencepiece_free(tokenizer);
    }
    free(tokenizer);
}

/* ---- encoding ------------------------------------------------------------------------------- */

bool encoder_push(struct encoder *encoder, int32_t id) {
    if (encoder->n >= encoder->limit) return false;
    if (encoder->n == encoder->capacity) {
        encoder->capacity =
            encoder->capacity < encoder->limit / 2 ? 2 * encoder->capacity : encoder->limit;
        encoder->id = mem_realloc(encoder->id, (size_t)encoder->capacity * sizeof *encoder->id);
    }
    assert(id >= 0 && id < encoder->tokenizer->vocabulary.n && encoder->n < encoder->capacity);
    encoder->id[encoder->n++] = id;
    return true;
}

bool encoder_may_fit(const struct encoder *encoder, const char *text, size_t length) {
    const struct vocabulary *vocabulary = &encoder->tokenizer->vocabulary;
    size_t left = (size_t)(encoder->limit - encoder->n);
    if (length <= left) return true;
    size_t n = 0;
    for (size_t i = 0; i < length; i++) n += vocabulary->byte_id[(uint8_t)text[i]] >= 0;
    return n / (vocabulary->longest ? vocabulary->longest : 1) <= left;
}

static bool encode_text(struct encoder *encoder, const char *text, size_t length) {
    return encoder->tokenizer->kind == TOKENIZER_BYTE_BPE
               ? bpe_encode(encoder, text, length)
               : sentencepiece_encode(encoder, text, length);
}

static bool encode_all(struct encoder *encoder, const char *text, size_t length,
                       enum special_rule rule) {
    while (length > 0) {
        int32_t id = -1;
        size_t token_length = 0;
        size_t before =
            special_next(&encoder->tokenizer->special, rule, text, length, &id, &token_length);
        if (!encode_text(encoder, text, before)) return false;
        if (before < length && !encoder_push(encoder, id)) return false;
        encoder->at_start = before < length && tokenizer_is_special(encoder->tokenizer, id);
        text += before + token_length;
        length -= before + token_length;
    }
    return true;
}

static bool encode_around(struct encoder *encoder, const char *text, size_t length,
                          enum special_rule rule, bool add_special) {
    const struct tokenizer *tokenizer = encoder->tokenizer;
    if (add_special && tokenizer->add_bos && tokenizer->bos >= 0) {
        if (!encoder_push(encoder, tokenizer->bos)) return false;
    }
    if (!encode_all(encoder, text, length, rule)) return false;
    if (!add_special || !tokenizer->add_eos || tokenizer->eos < 0) return true;
    return encoder_push(encoder, tokenizer->eos);
}

/* False for a text so long that 32 bits could not number its symbols; no model could read it. */
static bool encoder_begin(struct encoder *encoder, const struct tokenizer *tokenizer, size_t length,
                          int limit) {
    if (length >= INT32_MAX || limit < 0) return false;
    *encoder = (struct encoder){.tokenizer = tokenizer, .limit = limit, .at_start = true};
    encoder->capacity = length / 4 < (size_t)limit ? 1 + (int)(length / 4) : limit;
    encoder->id = mem_alloc(((size_t)encoder->capacity + 1) * sizeof *encoder->id);
    return true;
}

static int encoder_end(struct encoder *encoder, bool fits, int32_t **ids) {
    merge_memory_free(&encoder->memory);
    buf_free(&encoder->text);
    if (!fits) {
        free(encoder->id);
        return -1;
    }
    assert(encoder->n <= encoder->limit);
    *ids = encoder->id;
    return encoder->n;
}

int tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t length,
                     enum special_rule rule, bool add_special, int limit, int32_t **ids) {
    struct encoder encoder;
    *ids = NULL;
    if (!encoder_begin(&encoder, tokenizer, length, limit)) return -1;
    bool fits = encode_around(&encoder, text, length, rule, add_special);
    return encoder_end(&encoder, fits, ids);
}

/* Finds the special tokens of each run of pieces by the run's rule; the text between two special
 * tokens may span runs. */
static bool encode_runs(struct encoder *encoder, const char *text, size_t length,
                        const struct chat_piece *pieces, int n_pieces) {
    const struct special *special = &encoder->tokenizer->special;
    size_t done = 0, at = 0;
    for (int piece = 0; piece < n_pieces;) {
        enum special_rule rule = pieces[piece].from_user ? SPECIAL_AS_TEXT : SPECIAL_PARSED;
        bool from_user = pieces[piece].from_user;
        while (piece < n_pieces && pieces[piece].from_user == from_user) piece++;
        size_t end = pieces[piece - 1].start + pieces[piece - 1].length;
        assert(end >= at && end <= length);
        while (at < end) {
            int32_t id = -1;
            size_t token_length = 0;
            at += special_next(special, rule, text + at, end - at, &id, &token_length);
            if (at >= end) break;
            if (!encode_text(encoder, text + done, at - done)) return false;
            if (!encoder_push(encoder, id)) return false;
            encoder->at_start = tokenizer_is_special(encoder->tokenizer, id);
            done = at += token_length;
        }
    }
    return encode_text(encoder, text + done, length - done);
}

int tokenizer_encode_pieces(const struct tokenizer *tokenizer, const char *text, size_t length,
                            const struct chat_piece *pieces, int n_pieces, int limit,
                            int32_t **ids) {
    struct encoder encoder;
    *ids = NULL;
    if (!encoder_begin(&encoder, tokenizer, length, limit)) return -1;
    bool fits = encode_runs(&encoder, text, length, pieces, n_pieces);
    return encoder_end(&encoder, fits, ids);
}

/* ---- tokens --------------------------------------------------------------------------------- */

static bool in_range(const struct tokenizer *tokenizer, int32_t id) {
    return id >= 0 && id < tokenizer->vocabulary.n;
}

const char *tokenizer_token_bytes(const struct tokenizer *tokenizer, int32_t id, size_t *length) {
    *length = 0;
    return in_range(tokenizer, id) ? strings_get(&tokenizer->vocabulary.raw, id, length) : "";
}

const char *tokenizer_token_name(const struct tokenizer *tokenizer, int32_t id) {
    size_t length;
    return in_range(tokenizer, id) ? strings_get(&tokenizer->vocabulary.name, id, &length) : "";
}

int32_t tokenizer_find(const struct tokenizer *tokenizer, const char *name, size_t length) {
    return string_table_find(&tokenizer->vocabulary.by_name, name, length);
}

int tokenizer_size(const struct tokenizer *tokenizer) {
    return tokenizer->vocabulary.n;
}

bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t id) {
    return in_range(tokenizer, id) && type_is_special(tokenizer->vocabulary.type[id]);
}

int32_t tokenizer_bos(const struct tokenizer *tokenizer) {
    return tokenizer->bos;
}

int32_t tokenizer_eos(const struct tokenizer *tokenizer) {
    return tokenizer->eos;
}

bool tokenizer_adds_bos(const struct tokenizer *tokenizer) {
    return tokenizer->add_bos;
}
