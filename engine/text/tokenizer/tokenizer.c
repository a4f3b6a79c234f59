/* The public functions of tokenizers: building, encoding around special tokens, looking tokens up.
 *
 * DESIGN
 *   A call of tokenizer_encode has a `struct encoder` on its stack, which collects the ids and owns
 *   the memory that is reused from piece to piece. All threads share the tokenizer, and encoding
 *   does not write to it (bpe.c describes the one exception). */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/tokenizer/internal.h"

/* ---- building ------------------------------------------------------------------------------- */

const struct tokenizer_keys gguf_tokenizer_keys = {
    .file = "",
    .tokens = "tokenizer.ggml.tokens",
    .types = "tokenizer.ggml.token_type",
    .scores = "tokenizer.ggml.scores",
    .merges = "tokenizer.ggml.merges",
    .pre = "tokenizer.ggml.pre",
    .bos = "tokenizer.ggml.bos_token_id",
    .eos = "tokenizer.ggml.eos_token_id",
    .unknown = "tokenizer.ggml.unknown_token_id",
};

static enum status check_spec(const struct tokenizer_spec *spec, struct err *err) {
    const struct tokenizer_keys *keys = spec->keys;
    if (spec->n_tokens <= 0 || spec->n_merges < 0) {
        return err_set(err, STATUS_BAD_FILE, keys->tokens, "the vocabulary is empty");
    }
    assert(spec->n_before >= 0 && spec->n_before < MAX_AROUND);
    assert(spec->n_after >= 0 && spec->n_after < MAX_AROUND);
    const struct {
        const char *key;
        int32_t id;
    } named[] = {{keys->bos, spec->bos}, {keys->eos, spec->eos}, {keys->unknown, spec->unknown}};
    for (size_t i = 0; i < sizeof named / sizeof named[0]; i++) {
        if (named[i].id < -1 || named[i].id >= spec->n_tokens) {
            return err_set(err, STATUS_BAD_FILE, named[i].key,
                           "%s is %d, but the vocabulary has %d tokens", named[i].key,
                           (int)named[i].id, spec->n_tokens);
        }
    }
    return STATUS_OK;
}

static void copy_settings(struct tokenizer *tokenizer, const struct tokenizer_spec *spec) {
    tokenizer->kind = spec->kind;
    tokenizer->bos = spec->bos;
    tokenizer->eos = spec->eos;
    tokenizer->unknown = spec->unknown;
    tokenizer->add_space_prefix = spec->add_space_prefix;
    tokenizer->byte_fallback = spec->byte_fallback || !spec->has_steps;
    tokenizer->fuse_unknown = spec->fuse_unknown;
    tokenizer->ignore_merges = spec->ignore_merges;
    memcpy(tokenizer->before, spec->before, sizeof tokenizer->before);
    memcpy(tokenizer->after, spec->after, sizeof tokenizer->after);
    tokenizer->n_before = spec->n_before;
    tokenizer->n_after = spec->n_after;
    tokenizer->pair = spec->pair;
    if (spec->add_bos && spec->bos >= 0) tokenizer->before[tokenizer->n_before++] = spec->bos;
    if (spec->add_eos && spec->eos >= 0) tokenizer->after[tokenizer->n_after++] = spec->eos;
    assert(tokenizer->n_before <= MAX_AROUND && tokenizer->n_after <= MAX_AROUND);
}

/* Sets the steps that split and rewrite text: the file's, or the usual ones of the kind or of the
 * pattern's name. */
static enum status steps_init(struct tokenizer *tokenizer, const struct tokenizer_spec *spec,
                              struct err *err) {
    static const struct tokenizer_step normal_form_c = {.kind = STEP_NFC};
    bool nfc = false;
    enum status status = STATUS_OK;
    if (spec->has_steps) {
        status = pretokenizer_init(&tokenizer->pretokenizer, spec, spec->kind == TOKENIZER_BYTE_BPE,
                                   err);
    } else if (spec->kind == TOKENIZER_BYTE_BPE) {
        bool ignore_merges;
        status = pretokenizer_named(&tokenizer->pretokenizer, spec->pre, &ignore_merges, &nfc, err);
        if (!status) tokenizer->ignore_merges |= ignore_merges;
    }
    if (!status && nfc) return normalizer_init(&tokenizer->normalizer, &normal_form_c, 1, err);
    if (!status)
        status =
            normalizer_init(&tokenizer->normalizer, spec->normalizers, spec->n_normalizers, err);
    return status ? status : decoding_init(&tokenizer->decoding, spec, err);
}

static enum status kind_init(struct tokenizer *tokenizer, const struct tokenizer_spec *spec,
                             struct err *err) {
    switch (spec->kind) {
    case TOKENIZER_BYTE_BPE:
    case TOKENIZER_CHARACTER_BPE:
        return bpe_init(tokenizer, spec, err);
    case TOKENIZER_SENTENCEPIECE:
        return sentencepiece_init(tokenizer, spec, err);
    case TOKENIZER_UNIGRAM:
        return unigram_init(tokenizer, spec, err);
    case TOKENIZER_WORDPIECE:
        return wordpiece_init(tokenizer, spec, err);
    case TOKENIZER_RANK_BPE:
        break;
    }
    return STATUS_OK;
}

/* If added tokens are searched by their normalized text, builds two more tries. */
static void specials_init(struct tokenizer *tokenizer, const struct tokenizer_spec *spec) {
    const struct token_vocabulary *vocabulary = &tokenizer->vocabulary;
    special_init(&tokenizer->special, vocabulary, SPECIAL_EXACT, NULL);
    for (int i = 0; spec->added && i < spec->n_tokens; i++) {
        if (!(spec->added[i] & ADDED_NORMALIZED)) continue;
        special_init(&tokenizer->normalized, vocabulary, SPECIAL_NORMALIZED,
                     &tokenizer->normalizer);
        special_init(&tokenizer->of_template, vocabulary, SPECIAL_ALL, NULL);
        return;
    }
}

/* Is it byte-level BPE? It is if GPT-2's alphabet is the last step and the only decoder, and each
 * byte is a token. Then text is encoded without conversion to the alphabet, which is faster. */
static bool is_byte_level(const struct tokenizer_spec *spec) {
    int n = spec->n_pre_tokenizers;
    bool is_last = n > 0 && spec->pre_tokenizers[n - 1].kind == STEP_BYTE_LEVEL;
    for (int i = 0; i + 1 < n; i++) is_last &= spec->pre_tokenizers[i].kind != STEP_BYTE_LEVEL;
    if (!is_last || spec->n_decoders != 1 || spec->decoders[0].kind != STEP_BYTE_LEVEL)
        return false;
    int n_bytes = 0;
    for (int i = 0; i < spec->n_tokens; i++) {
        char byte[4];
        size_t length = spec->token_length[i];
        bool is_character = length > 0 && length <= 2 &&
                            utf8_character(spec->token[i], length) == length &&
                            (!spec->type || spec->type[i] == TOKEN_NORMAL);
        n_bytes += is_character && alphabet_bytes(spec->token[i], length, byte) == 1;
    }
    return n_bytes == 256;
}

enum status tokenizer_new(struct tokenizer **out, const struct tokenizer_spec *given,
                          struct err *err) {
    struct tokenizer_spec named = *given;
    const struct tokenizer_spec *spec = &named;
    *out = NULL;
    if (!named.keys) named.keys = &gguf_tokenizer_keys;
    if (spec->kind == TOKENIZER_CHARACTER_BPE && is_byte_level(spec))
        named.kind = TOKENIZER_BYTE_BPE;
    struct tokenizer *tokenizer = mem_calloc(1, sizeof *tokenizer);
    enum status status = check_spec(spec, err);
    if (!status) {
        copy_settings(tokenizer, spec);
        status = steps_init(tokenizer, spec, err);
    }
    if (!status)
        status = vocabulary_init(&tokenizer->vocabulary, spec, &tokenizer->normalizer, err);
    if (!status) specials_init(tokenizer, spec);
    if (!status) fim_init(tokenizer, spec);
    if (!status) status = kind_init(tokenizer, spec, err);
    if (status == STATUS_OK) {
        *out = tokenizer;
    } else {
        tokenizer_free(tokenizer);
        if (err && spec->keys->file[0]) { /* the file's path comes before the message */
            struct err cause = *err;
            err_set(err, cause.status, cause.param, "%s%s", spec->keys->file, cause.message);
        }
    }
    return status;
}

void tokenizer_free(struct tokenizer *tokenizer) {
    if (!tokenizer) return;
    vocabulary_clear(&tokenizer->vocabulary);
    normalizer_free(&tokenizer->normalizer);
    pretokenizer_free(&tokenizer->pretokenizer);
    special_free(&tokenizer->special);
    special_free(&tokenizer->normalized);
    special_free(&tokenizer->of_template);
    mem_free(tokenizer->bpe.merges.pair);
    mem_free((void *)tokenizer->bpe.whole);
    mem_free(tokenizer->sentencepiece.rank);
    trie_free(&tokenizer->unigram.trie);
    trie_free(&tokenizer->wordpiece.trie);
    mem_free(tokenizer->unigram.score);
    mem_free(tokenizer);
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
    const struct token_vocabulary *vocabulary = &encoder->tokenizer->vocabulary;
    size_t left = (size_t)(encoder->limit - encoder->n);
    if (length <= left) return true;
    size_t n = 0;
    for (size_t i = 0; i < length; i++) n += vocabulary->byte_id[(uint8_t)text[i]] >= 0;
    return n / (vocabulary->longest ? vocabulary->longest : 1) <= left;
}

bool encoder_push_bytes(struct encoder *encoder, const char *text, size_t length, bool *pushed) {
    const int32_t *byte_id = encoder->tokenizer->vocabulary.byte_id;
    *pushed = encoder->tokenizer->byte_fallback;
    for (size_t i = 0; i < length; i++) *pushed &= byte_id[(uint8_t)text[i]] >= 0;
    for (size_t i = 0; *pushed && i < length; i++) {
        if (!encoder_push(encoder, byte_id[(uint8_t)text[i]])) return false;
    }
    return true;
}

/* Encodes normalized text without special tokens. */
static bool encode_text(struct encoder *encoder, const char *text, size_t length, bool is_first) {
    static bool (*const encode_piece[])(void *, const char *, size_t) = {
        [TOKENIZER_BYTE_BPE] = bpe_encode_piece,
        [TOKENIZER_CHARACTER_BPE] = character_encode_piece,
        [TOKENIZER_RANK_BPE] = rank_encode_piece,
        [TOKENIZER_UNIGRAM] = unigram_encode_piece,
        [TOKENIZER_WORDPIECE] = wordpiece_encode_piece,
    };
    const struct tokenizer *tokenizer = encoder->tokenizer;
    if (tokenizer->kind == TOKENIZER_SENTENCEPIECE ||
        (tokenizer->kind == TOKENIZER_UNIGRAM && !tokenizer->decoding.is_set))
        return sentencepiece_encode(encoder, text, length);
    return pretokenizer_split(&tokenizer->pretokenizer, text, length, is_first,
                              (struct piece_sink){encode_piece[tokenizer->kind], encoder});
}

/* Normalizes and encodes a segment, and finds tokens in the normalized text. */
static bool encode_segment(struct encoder *encoder, const char *text, size_t length,
                           enum special_rule rule, bool is_first) {
    const struct tokenizer *tokenizer = encoder->tokenizer;
    struct special_match match;
    size_t done = 0;
    if (length == 0) return true;
    normalizer_apply(&tokenizer->normalizer, encoder->normal, &text, &length);
    if (length >= INT32_MAX) return false; /* like encoder_begin */
    if (!tokenizer->normalized.vocabulary) return encode_text(encoder, text, length, is_first);
    for (size_t at = 0;
         special_next(&tokenizer->normalized, rule, text, length, at, length, done, &match);
         at = match.next) {
        if (match.begin > done &&
            !encode_text(encoder, text + done, match.begin - done, is_first && done == 0))
            return false;
        if (!encoder_push(encoder, match.id)) return false;
        done = match.end;
    }
    return encode_text(encoder, text + done, length - done, is_first && done == 0);
}

/* Returns false if the text is so long that its symbols exceed 32-bit indices; no model could read
 * it. */
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
    buf_free(&encoder->normal[0]);
    buf_free(&encoder->normal[1]);
    mem_free(encoder->path);
    if (!fits) {
        mem_free(encoder->id);
        return -1;
    }
    assert(encoder->n <= encoder->limit);
    *ids = encoder->id;
    return encoder->n;
}

/* Finds the special tokens of text[at, end), and encodes the text between them from *done on. */
static bool encode_run(struct encoder *encoder, const struct special *special,
                       enum special_rule rule, enum special_rule rule_normalized, const char *text,
                       size_t length, size_t at, size_t end, size_t *done) {
    struct special_match match;
    while (special_next(special, rule, text, length, at, end, *done, &match)) {
        if (match.begin > *done && !encode_segment(encoder, text + *done, match.begin - *done,
                                                   rule_normalized, *done == 0))
            return false;
        if (!encoder_push(encoder, match.id)) return false;
        encoder->at_start = tokenizer_is_special(encoder->tokenizer, match.id);
        *done = match.end;
        at = match.next;
    }
    return true;
}

static bool push_all(struct encoder *encoder, const int32_t *ids, int n) {
    assert(n >= 0);
    for (int i = 0; i < n; i++) {
        if (!encoder_push(encoder, ids[i])) return false;
    }
    return true;
}

int tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t length,
                     enum special_rule rule, bool add_special, int limit, int32_t **ids) {
    struct encoder encoder;
    size_t done = 0;
    *ids = NULL;
    if (!encoder_begin(&encoder, tokenizer, length, limit)) return -1;
    bool fits = !add_special || push_all(&encoder, tokenizer->before, tokenizer->n_before);
    fits = fits &&
           encode_run(&encoder, &tokenizer->special, rule, rule, text, length, 0, length, &done);
    fits = fits && encode_segment(&encoder, text + done, length - done, rule, done == 0);
    if (fits && add_special) fits = push_all(&encoder, tokenizer->after, tokenizer->n_after);
    return encoder_end(&encoder, fits, ids);
}

/* Finds the special tokens of each run of pieces by the run's rule. The text between two special
 * tokens may span runs. Tokens that are otherwise found in normalized text are found in the
 * template's original text, because the origin of normalized text is unknown. */
static bool encode_runs(struct encoder *encoder, const char *text, size_t length,
                        const struct chat_piece *pieces, int n_pieces) {
    const struct tokenizer *tokenizer = encoder->tokenizer;
    const struct special *of_template =
        tokenizer->of_template.vocabulary ? &tokenizer->of_template : &tokenizer->special;
    size_t done = 0, at = 0;
    for (int piece = 0; piece < n_pieces;) {
        bool from_user = pieces[piece].from_user;
        enum special_rule rule = from_user ? SPECIAL_AS_TEXT : SPECIAL_PARSED;
        while (piece < n_pieces && pieces[piece].from_user == from_user) piece++;
        size_t end = pieces[piece - 1].start + pieces[piece - 1].length;
        assert(end >= at && end <= length);
        if (!encode_run(encoder, from_user ? &tokenizer->special : of_template, rule,
                        SPECIAL_AS_TEXT, text, length, at, end, &done))
            return false;
        at = end;
    }
    return encode_segment(encoder, text + done, length - done, SPECIAL_AS_TEXT, done == 0);
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
    return tokenizer->n_before > 0;
}

void tokenizer_around(const struct tokenizer *tokenizer, const int32_t **before, int *n_before,
                      const int32_t **after, int *n_after) {
    *before = tokenizer->before;
    *n_before = tokenizer->n_before;
    *after = tokenizer->after;
    *n_after = tokenizer->n_after;
}
