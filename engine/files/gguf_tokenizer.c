#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/files/model_file.h"

#define MAX_TOKEN_BYTES UINT16_MAX

/* Splits an array of strings into pointers and lengths. The caller frees both arrays. */
static enum status split_strings(const struct gguf_value *value, const char *key,
                                 const char ***strings, uint32_t **lengths, struct err *err) {
    const uint8_t *at = value->data;
    *strings = mem_alloc(value->count * sizeof **strings);
    *lengths = mem_alloc(value->count * sizeof **lengths);
    for (uint64_t i = 0; i < value->count; i++) {
        size_t length;
        (*strings)[i] = gguf_next_string(&at, &length);
        if (length > MAX_TOKEN_BYTES) {
            return err_set(err, STATUS_BAD_FILE, key,
                           "key %s: entry %d has %zu bytes; the limit is %d", key, (int)i, length,
                           MAX_TOKEN_BYTES);
        }
        (*lengths)[i] = (uint32_t)length;
    }
    return STATUS_OK;
}

/* Finds an array of `element` and checks that it has from 1 to `max` entries. */
static enum status find_array(const struct gguf *gguf, const char *key, enum gguf_type element,
                              int max, const struct gguf_value **value, struct err *err) {
    enum status status = gguf_array(gguf, key, element, value, err);
    if (status != STATUS_OK) return status;
    if ((*value)->count >= 1 && (*value)->count <= (uint64_t)max) return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, key, "key %s: expected 1 to %d entries, found %zu", key,
                   max, (size_t)(*value)->count);
}

static enum status read_tokens(struct tokenizer_spec *spec, const struct gguf *gguf,
                               struct err *err) {
    static const char key[] = "tokenizer.ggml.tokens";
    const struct gguf_value *value = NULL;
    const char **strings;
    uint32_t *lengths;
    enum status status = find_array(gguf, key, GGUF_STRING, MAX_TOKENS, &value, err);
    if (status != STATUS_OK) return status;
    status = split_strings(value, key, &strings, &lengths, err);
    spec->n_tokens = (int)value->count;
    spec->token = strings;
    spec->token_length = lengths;
    return status;
}

static bool is_bpe(const struct tokenizer_spec *spec) {
    return spec->kind == TOKENIZER_BYTE_BPE || spec->kind == TOKENIZER_CHARACTER_BPE;
}

static enum status read_merges(struct tokenizer_spec *spec, const struct gguf *gguf,
                               struct err *err) {
    static const char key[] = "tokenizer.ggml.merges";
    const struct gguf_value *value = NULL;
    const char **strings;
    uint32_t *lengths;
    if (!is_bpe(spec)) return STATUS_OK;
    enum status status = find_array(gguf, key, GGUF_STRING, MAX_TOKENS, &value, err);
    if (status != STATUS_OK) return status;
    status = split_strings(value, key, &strings, &lengths, err);
    spec->n_merges = (int)value->count;
    spec->merge = strings;
    spec->merge_length = lengths;
    return status;
}

/* Copies an array with one 4-byte entry per token: it may be unaligned in the file. */
static enum status copy_per_token(const struct tokenizer_spec *spec, const struct gguf *gguf,
                                  const char *key, enum gguf_type element, const void **out,
                                  struct err *err) {
    const struct gguf_value *value = NULL;
    enum status status = gguf_array(gguf, key, element, &value, err);
    if (status != STATUS_OK) return status;
    if (value->count != (uint64_t)spec->n_tokens) {
        return err_set(err, STATUS_BAD_FILE, key,
                       "key %s: expected %d entries, one a token, found %zu", key, spec->n_tokens,
                       (size_t)value->count);
    }
    assert(value->bytes == (size_t)spec->n_tokens * 4);
    *out = memcpy(mem_alloc(value->bytes), value->data, value->bytes);
    return STATUS_OK;
}

static enum status read_types(struct tokenizer_spec *spec, const struct gguf *gguf,
                              struct err *err) {
    static const char key[] = "tokenizer.ggml.token_type";
    const struct gguf_value *value = gguf_find(gguf, key);
    const void *types = NULL;
    if (!value) return STATUS_OK;
    enum gguf_type element = value->element == GGUF_UINT32 ? GGUF_UINT32 : GGUF_INT32;
    enum status status = copy_per_token(spec, gguf, key, element, &types, err);
    spec->type = types;
    return status;
}

static enum status read_scores(struct tokenizer_spec *spec, const struct gguf *gguf,
                               struct err *err) {
    const void *scores = NULL;
    if (is_bpe(spec) || spec->kind == TOKENIZER_WORDPIECE) return STATUS_OK;
    enum status status =
        copy_per_token(spec, gguf, "tokenizer.ggml.scores", GGUF_FLOAT32, &scores, err);
    if (status != STATUS_OK) return status;
    const float *narrow = scores;
    double *wide = mem_alloc((size_t)spec->n_tokens * sizeof *wide);
    for (int i = 0; i < spec->n_tokens; i++) wide[i] = (double)narrow[i];
    spec->score = wide;
    mem_free((void *)scores);
    return STATUS_OK;
}

static bool is_text(const char *text, size_t length, const char *wanted) {
    return length == strlen(wanted) && memcmp(text, wanted, length) == 0;
}

/* Gemma 4's texts are merged from characters, with U+2581 for a space, and never split. Its folders
 * list these steps; a GGUF file has only a name. */
static void gemma4_steps(struct tokenizer_spec *spec) {
    enum { N_DECODERS = 3 };
    const struct span space = {" ", 1}, mark = {"\xe2\x96\x81", 3};
    struct tokenizer_step *normalizer = mem_calloc(1, sizeof *normalizer);
    struct tokenizer_step *decoder = mem_calloc(N_DECODERS, sizeof *decoder);
    normalizer[0] =
        (struct tokenizer_step){.kind = STEP_REPLACE, .pattern = space, .content = mark};
    decoder[0] = (struct tokenizer_step){.kind = STEP_REPLACE, .pattern = mark, .content = space};
    decoder[1] = (struct tokenizer_step){.kind = STEP_BYTE_FALLBACK};
    decoder[2] = (struct tokenizer_step){.kind = STEP_FUSE};
    spec->kind = TOKENIZER_CHARACTER_BPE;
    spec->byte_fallback = spec->fuse_unknown = true;
    spec->has_steps = true;
    spec->normalizers = normalizer, spec->n_normalizers = 1;
    spec->decoders = decoder, spec->n_decoders = N_DECODERS;
}

/* The words between white space are merged from characters; a key makes letters small first. White
 * space is dropped. */
static enum status whitespace_steps(struct tokenizer_spec *spec, const struct gguf *gguf,
                                    struct err *err) {
    bool lowers;
    enum status status =
        gguf_bool_or(gguf, "tokenizer.ggml.normalizer.lowercase", false, &lowers, err);
    if (status) return status;
    struct tokenizer_step *normalizer = mem_calloc(1, sizeof *normalizer);
    struct tokenizer_step *pre = mem_calloc(1, sizeof *pre);
    struct tokenizer_step *decoder = mem_calloc(1, sizeof *decoder);
    normalizer[0].kind = STEP_LOWERCASE;
    pre[0].kind = STEP_WHITESPACE_SPLIT;
    decoder[0].kind = STEP_FUSE;
    spec->kind = TOKENIZER_CHARACTER_BPE;
    spec->has_steps = true;
    spec->normalizers = normalizer, spec->n_normalizers = lowers;
    spec->pre_tokenizers = pre, spec->n_pre_tokenizers = 1;
    spec->decoders = decoder, spec->n_decoders = 1;
    return STATUS_OK;
}

/* Some names of pre-tokenizers mean merges of characters instead of bytes. */
static enum status read_characters(struct tokenizer_spec *spec, const struct gguf *gguf,
                                   struct err *err) {
    static const char *const like_gemma4[] = {"gemma4", "granite-embed-multi-311m", "sarvam-moe"};
    if (spec->kind != TOKENIZER_BYTE_BPE || !spec->pre) return STATUS_OK;
    for (size_t i = 0; i < sizeof like_gemma4 / sizeof *like_gemma4; i++)
        if (strcmp(spec->pre, like_gemma4[i]) == 0) gemma4_steps(spec);
    return strcmp(spec->pre, "whitespace") == 0 ? whitespace_steps(spec, gguf, err) : STATUS_OK;
}

static enum status read_kind(struct tokenizer_spec *spec, const struct gguf *gguf,
                             struct err *err) {
    static const char key[] = "tokenizer.ggml.model";
    const char *text = NULL;
    size_t length = 0;
    enum status status = gguf_string(gguf, key, &text, &length, err);
    if (status != STATUS_OK) return status;
    if (is_text(text, length, "gpt2")) {
        spec->kind = TOKENIZER_BYTE_BPE;
    } else if (is_text(text, length, "llama")) {
        spec->kind = TOKENIZER_SENTENCEPIECE;
    } else if (is_text(text, length, "t5")) {
        spec->kind = TOKENIZER_UNIGRAM;
        spec->in_floats = true; /* SentencePiece adds scores as floats */
    } else if (is_text(text, length, "bert")) {
        spec->kind = TOKENIZER_WORDPIECE;
    } else if (is_text(text, length, "gemma4")) {
        gemma4_steps(spec);
        spec->add_bos = true; /* unless a key says otherwise */
    } else {
        return err_set(err, STATUS_BAD_FILE, key,
                       "key %s: \"%.*s\" is not supported; \"gpt2\", \"llama\", \"t5\", "
                       "\"bert\" and \"gemma4\" are",
                       key, length < 64 ? (int)length : 64, text);
    }
    return STATUS_OK;
}

/* The pattern's name is compared as a C string, so it is copied with a NUL. */
static enum status read_pre(struct tokenizer_spec *spec, const struct gguf *gguf, struct err *err) {
    const char *text = NULL;
    size_t length = 0;
    enum status status = gguf_string_or(gguf, "tokenizer.ggml.pre", &text, &length, err);
    if (status != STATUS_OK || !text) return status;
    char *copy = mem_alloc(length + 1);
    memcpy(copy, text, length);
    copy[length] = 0;
    spec->pre = copy;
    return STATUS_OK;
}

static enum status read_id(const struct tokenizer_spec *spec, const struct gguf *gguf,
                           const char *key, int32_t *out, struct err *err) {
    int64_t id = -1;
    enum status status = gguf_int_or(gguf, key, 0, spec->n_tokens - 1, -1, &id, err);
    *out = (int32_t)id;
    return status;
}

/* Reads the tokens for filling in, under the present key or an older one. */
static enum status read_fim(struct tokenizer_spec *spec, const struct gguf *gguf, struct err *err) {
    static const char *const keys[N_FIM][2] = {
        [FIM_PREFIX] = {"tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id"},
        [FIM_SUFFIX] = {"tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id"},
        [FIM_MIDDLE] = {"tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id"},
        [FIM_REPOSITORY] = {"tokenizer.ggml.fim_rep_token_id"},
        [FIM_FILE] = {"tokenizer.ggml.fim_sep_token_id"},
        [FIM_PAD] = {"tokenizer.ggml.fim_pad_token_id"},
    };
    for (int i = 0; i < N_FIM; i++) {
        for (int k = 0; k < 2 && keys[i][k] && spec->fim[i] == 0; k++) {
            int32_t id;
            if (read_id(spec, gguf, keys[i][k], &id, err)) return err->status;
            spec->fim[i] = id + 1;
        }
    }
    return STATUS_OK;
}

/* A Unigram text is normalised as in SentencePiece: by a map of characters, and runs of spaces
 * become one. */
static enum status read_normalizers(struct tokenizer_spec *spec, const struct gguf *gguf,
                                    struct err *err) {
    static const char key[] = "tokenizer.ggml.precompiled_charsmap";
    const struct gguf_value *value = gguf_find(gguf, key);
    struct span map = {NULL, 0};
    bool squeeze;
    enum status status = STATUS_OK;
    if (spec->kind != TOKENIZER_UNIGRAM) return status;
    if (value) {
        enum gguf_type element = value->element == GGUF_INT8 ? GGUF_INT8 : GGUF_UINT8;
        status = gguf_array(gguf, key, element, &value, err);
        if (!status) map = (struct span){(const char *)value->data, (size_t)value->count};
    }
    if (!status)
        status =
            gguf_bool_or(gguf, "tokenizer.ggml.remove_extra_whitespaces", false, &squeeze, err);
    if (!status) sentencepiece_normalizers(spec, map, squeeze);
    return status;
}

/* Defaults for missing keys: a SentencePiece text begins with bos and a space; a byte-level BPE
 * text with neither, except for Llama 3: its files that are older than the key rely on the
 * pattern's name for bos. */
static enum status read_rules(struct tokenizer_spec *spec, const struct gguf *gguf,
                              struct err *err) {
    bool sentencepiece = spec->kind == TOKENIZER_SENTENCEPIECE;
    bool unigram = spec->kind == TOKENIZER_UNIGRAM; /* T5's texts end with eos */
    bool llama3 =
        spec->pre && (strcmp(spec->pre, "llama-bpe") == 0 || strcmp(spec->pre, "llama3") == 0);
    enum status status = read_id(spec, gguf, "tokenizer.ggml.bos_token_id", &spec->bos, err);
    if (status == STATUS_OK)
        status = read_id(spec, gguf, "tokenizer.ggml.eos_token_id", &spec->eos, err);
    if (status == STATUS_OK)
        status = read_id(spec, gguf, "tokenizer.ggml.unknown_token_id", &spec->unknown, err);
    if (status == STATUS_OK)
        status = gguf_bool_or(gguf, "tokenizer.ggml.add_bos_token",
                              sentencepiece || llama3 || spec->add_bos, &spec->add_bos, err);
    if (status == STATUS_OK)
        status = gguf_bool_or(gguf, "tokenizer.ggml.add_eos_token", unigram, &spec->add_eos, err);
    if (status == STATUS_OK)
        status = gguf_bool_or(gguf, "tokenizer.ggml.add_space_prefix", sentencepiece || unigram,
                              &spec->add_space_prefix, err);
    return status;
}

enum status gguf_tokenizer_read(struct tokenizer_spec *spec, const struct gguf *gguf,
                                struct err *err) {
    *spec = (struct tokenizer_spec){0};
    enum status status = read_kind(spec, gguf, err);
    if (status == STATUS_OK) status = read_pre(spec, gguf, err);
    if (status == STATUS_OK) status = read_characters(spec, gguf, err);
    if (status == STATUS_OK) status = read_tokens(spec, gguf, err);
    if (status == STATUS_OK) status = read_types(spec, gguf, err);
    if (status == STATUS_OK) status = read_scores(spec, gguf, err);
    if (status == STATUS_OK) status = read_merges(spec, gguf, err);
    if (status == STATUS_OK) status = read_rules(spec, gguf, err);
    if (status == STATUS_OK) status = read_fim(spec, gguf, err);
    if (status == STATUS_OK) status = read_normalizers(spec, gguf, err);
    if (status == STATUS_OK) status = gguf_bert_read(spec, gguf, err);
    if (status != STATUS_OK) tokenizer_spec_free(spec);
    return status;
}
