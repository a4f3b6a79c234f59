/* tekken.json: Mistral's file for a vocabulary in tiktoken's form. The special tokens have the
 * first ids; the others follow by rank, each with its bytes in base64. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/files/text/internal.h"

static const struct tokenizer_keys keys = {
    .tokens = "vocab",
    .types = "special_tokens",
    .scores = "vocab.rank",
    .merges = "vocab",
    .pre = "config.pattern",
    .bos = "special_tokens",
    .eos = "special_tokens",
    .unknown = "special_tokens",
};

struct tekken {
    struct reading reading;
    int n_special, n_tokens;
    const struct json *pattern;
};

static enum status read_number(const struct reading *reading, const struct json *object,
                               const char *name, const char *key, int max, int *out) {
    const struct json *value;
    char found[96], expected[48];
    enum status status = need_member(reading, object, name, key, JSON_NUMBER, &value);
    if (status) return status;
    *out = value->is_integer ? (int)value->integer : 0;
    if (value->is_integer && value->integer >= 0 && value->integer <= max) return STATUS_OK;
    snprintf(expected, sizeof expected, "a whole number from 0 to %d", max);
    return bad_key(reading, key, expected, "%s", found_name(value, found));
}

static enum status read_settings(struct tekken *tekken, const struct json *root) {
    const struct reading *reading = &tekken->reading;
    const struct json *config;
    enum status status = need_member(reading, root, "config", "config", JSON_OBJECT, &config);
    if (!status)
        status = need_member(reading, config, "pattern", keys.pre, JSON_STRING, &tekken->pattern);
    if (!status)
        status = read_number(reading, config, "default_vocab_size", "config.default_vocab_size",
                             MAX_VOCABULARY_IDS, &tekken->n_tokens);
    if (!status)
        status =
            read_number(reading, config, "default_num_special_tokens",
                        "config.default_num_special_tokens", tekken->n_tokens, &tekken->n_special);
    return status;
}

/* Adds the special tokens of files before version 8, which do not list them. */
static enum status add_unlisted(struct tekken *tekken) {
    static const char *const names[] = {"<unk>",
                                        "<s>",
                                        "</s>",
                                        "[INST]",
                                        "[/INST]",
                                        "[AVAILABLE_TOOLS]",
                                        "[/AVAILABLE_TOOLS]",
                                        "[TOOL_RESULTS]",
                                        "[/TOOL_RESULTS]",
                                        "[TOOL_CALLS]",
                                        "[IMG]",
                                        "<pad>",
                                        "[IMG_BREAK]",
                                        "[IMG_END]",
                                        "[PREFIX]",
                                        "[MIDDLE]",
                                        "[SUFFIX]",
                                        "[SYSTEM_PROMPT]",
                                        "[/SYSTEM_PROMPT]",
                                        "[TOOL_CONTENT]"};
    enum status status = STATUS_OK;
    for (int i = 0; i < (int)(sizeof names / sizeof *names) && i < tekken->n_special && !status;
         i++)
        status = add_token(&tekken->reading, "special_tokens", i,
                           (struct span){names[i], strlen(names[i])}, TOKEN_CONTROL, ADDED_ONLY);
    return status;
}

/* Is the file of a version that may omit the special tokens? */
static bool may_omit_specials(const struct json *root) {
    const struct json *version = json_member(json_member(root, "config"), "version");
    const char *text = json_is(version, JSON_STRING) ? version->string : "";
    return text[0] == 'v' && text[1] >= '1' && text[1] <= '7' && !text[2];
}

/* {"rank": 1, "token_str": "<s>", "is_control": true} */
static enum status read_specials(struct tekken *tekken, const struct json *root) {
    struct reading *reading = &tekken->reading;
    const struct json *list = json_member(root, "special_tokens"), *text;
    bool is_omitted = !list || json_is(list, JSON_NULL);
    if (is_omitted && may_omit_specials(root)) return add_unlisted(tekken);
    enum status status =
        need_member(reading, root, "special_tokens", "special_tokens", JSON_ARRAY, &list);
    if (status) return status;
    json_each(token, list) {
        int rank;
        status = read_number(reading, token, "rank", "special_tokens.rank", tekken->n_special - 1,
                             &rank);
        if (!status)
            status = need_member(reading, token, "token_str", "special_tokens.token_str",
                                 JSON_STRING, &text);
        if (!status)
            status =
                add_token(reading, "special_tokens", rank,
                          (struct span){text->string, text->length}, TOKEN_CONTROL, ADDED_ONLY);
        if (status) return status;
    }
    return STATUS_OK;
}

/* Spells bytes in GPT-2's alphabet, which engine/text expects. */
static struct span spell(struct reading *reading, const char *bytes, size_t n) {
    char *text = holder_alloc(reading->holder, 2 * n + 1);
    size_t length = 0;
    for (size_t i = 0; i < n; i++)
        length += utf8_write(byte_level_character((uint8_t)bytes[i]), text + length);
    assert(length <= 2 * n);
    return (struct span){text, length};
}

/* {"rank": 0, "token_bytes": "AA=="}; ranks beyond the vocabulary's size are skipped. */
static enum status read_token(struct tekken *tekken, const struct json *token) {
    struct reading *reading = &tekken->reading;
    const struct json *text;
    char bytes[1024], found[96];
    size_t n;
    int rank;
    enum status status =
        read_number(reading, token, "rank", "vocab.rank", MAX_VOCABULARY_IDS, &rank);
    if (!status)
        status =
            need_member(reading, token, "token_bytes", "vocab.token_bytes", JSON_STRING, &text);
    if (status || rank >= tekken->n_tokens - tekken->n_special) return status;
    if (text->length > sizeof bytes || !base64_decode(text->string, text->length, bytes, &n) ||
        n == 0)
        return bad_key(reading, "vocab.token_bytes", "1 to 768 bytes in base64", "%s for rank %d",
                       found_name(text, found), rank);
    return add_token(reading, keys.tokens, tekken->n_special + rank, spell(reading, bytes, n),
                     TOKEN_NORMAL, 0);
}

static enum status read_tokens(struct tekken *tekken, const struct json *root) {
    const struct json *list;
    enum status status = need_member(&tekken->reading, root, "vocab", "vocab", JSON_ARRAY, &list);
    if (status) return status;
    json_each(token, list) {
        status = read_token(tekken, token);
        if (status) return status;
    }
    return STATUS_OK;
}

/* The steps split by the pattern; the decoder turns GPT-2's alphabet into bytes. */
static void fill_steps(struct tekken *tekken) {
    struct tokenizer_spec *spec = tekken->reading.spec;
    struct tokenizer_step *split = mem_calloc(1, sizeof *split);
    struct tokenizer_step *decoder = mem_calloc(1, sizeof *decoder);
    *split = (struct tokenizer_step){
        .kind = STEP_SPLIT,
        .pattern = {tekken->pattern->string, tekken->pattern->length},
        .is_regex = true,
    };
    decoder->kind = STEP_BYTE_LEVEL;
    spec->kind = TOKENIZER_RANK_BPE;
    spec->has_steps = true;
    spec->ignore_merges = true;
    spec->pre_tokenizers = split;
    spec->decoders = decoder;
    spec->n_pre_tokenizers = spec->n_decoders = 1;
}

static enum status fill(struct tekken *tekken, const struct json *root) {
    struct reading *reading = &tekken->reading;
    struct tokenizer_spec *spec = reading->spec;
    enum status status = read_settings(tekken, root);
    if (!status) status = read_specials(tekken, root);
    if (!status) status = read_tokens(tekken, root);
    if (status) return status;
    fill_steps(tekken);
    spec->bos = find_token(reading, "<s>", 3);
    spec->eos = find_token(reading, "</s>", 4);
    spec->unknown = find_token(reading, "<unk>", 5);
    spec->add_bos = true;
    return finish_tokens(reading);
}

enum status tekken_json_read(struct tokenizer_spec *spec, const char *path, const char *text,
                             size_t length, int V, struct err *err) {
    struct tekken tekken = {0};
    struct json *root;
    *spec = (struct tokenizer_spec){0};
    enum status status = parse_object(path, text, length, &root, err);
    if (status) return status;
    reading_begin(&tekken.reading, spec, path, V, &keys, err);
    holder_keep_tree(tekken.reading.holder, root);
    return reading_end(&tekken.reading, fill(&tekken, root));
}
