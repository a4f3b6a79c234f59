/* Reads tokenizer_config.json and related files: the special tokens and, without a tokenizer.json,
 * the added tokens and the tokens around a text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/files/text/internal.h"

/* ---- special tokens ------------------------------------------------------------------------- */

/* Reads the text of a special token: "<s>", or {"content": "<s>"}; NULL if it is missing. */
static enum status read_special(const struct reading *reading, const struct json *root,
                                const char *key, const struct json **text) {
    const struct json *value = json_member(root, key);
    char found[96];
    if (json_is(value, JSON_OBJECT)) value = json_member(value, "content");
    *text = NULL;
    if (!value || value->type == JSON_NULL) return STATUS_OK;
    if (value->type != JSON_STRING)
        return bad_key(reading, key, "a token's text", "%s", found_name(value, found));
    *text = value;
    return STATUS_OK;
}

/* Reads a special token's id. A token outside the vocabulary is ignored. */
static enum status read_id(const struct reading *reading, const struct json *root, const char *key,
                           int32_t *id) {
    const struct json *text;
    enum status status = read_special(reading, root, key, &text);
    if (status || !text) return status;
    int32_t found = find_token(reading, text->string, text->length);
    if (found >= 0) *id = found;
    return STATUS_OK;
}

/* ---- added tokens --------------------------------------------------------------------------- */

/* Adds a token whose spelling is in a JSON tree that lives as long as the spec. */
static enum status add(struct reading *reading, const char *key, int64_t id,
                       const struct json *content, int type, uint8_t rules) {
    const struct tokenizer_spec *spec = reading->spec;
    if (reading->V > 0 && id >= reading->V) return STATUS_OK;
    bool in_model = id >= 0 && id < spec->n_tokens && spec->token_length[id] == content->length &&
                    memcmp(spec->token[id], content->string, content->length) == 0;
    if (!in_model) rules |= ADDED_ONLY;
    /* SentencePiece's types unknown and byte stay. */
    if (in_model && (spec->type[id] == TOKEN_UNKNOWN || spec->type[id] == TOKEN_BYTE))
        type = spec->type[id];
    return add_token(reading, key, id, (struct span){content->string, content->length}, type,
                     rules);
}

/* Reads {"32000": {"content": "<pad>", "special": true, ...}, ...} */
static enum status read_decoder(struct reading *reading, const struct json *root) {
    static const char key[] = "added_tokens_decoder";
    const struct json *table, *content;
    enum status status = may_member(reading, root, key, key, JSON_OBJECT, &table);
    if (status || !table) return status;
    json_each(token, table) {
        uint8_t rules;
        int type;
        char *end;
        long long id = strtoll(token->name, &end, 10);
        if (end == token->name || *end)
            return bad_key(reading, key, "ids as names", "\"%.32s\"", token->name);
        status = need_member(reading, token, "content", "added_tokens_decoder.content", JSON_STRING,
                             &content);
        if (!status) status = read_added_rules(reading, token, key, &rules, &type);
        if (status) return status;
        /* without a tokenizer.json, transformers finds them in the text before normalization */
        rules &= (uint8_t)~ADDED_NORMALIZED;
        status = add(reading, key, id, content, type, rules);
        if (status) return status;
    }
    return STATUS_OK;
}

/* Reads {"<pad>": 32000, ...}, the form of older folders. */
static enum status read_added(struct reading *reading, const char *folder) {
    static const char key[] = "added_tokens.json";
    struct json *root;
    char found[96];
    enum status status = read_object(folder, key, &root, reading->err);
    if (status || !root) return status;
    holder_keep_tree(reading->holder, root);
    json_each(token, root) {
        if (!json_is(token, JSON_NUMBER) || !token->is_integer)
            return bad_key(reading, key, "an id for each token", "%s for \"%.64s\"",
                           found_name(token, found), token->name);
        int64_t id = token->integer;
        const struct tokenizer_spec *spec = reading->spec;
        bool is_known = id >= 0 && id < spec->n_tokens && spec->token_length[id] > 0;
        if (is_known && strlen(token->name) == spec->token_length[id]) continue;
        struct json name = {
            .type = JSON_STRING, .string = token->name, .length = strlen(token->name)};
        status = add(reading, key, id, &name, TOKEN_CONTROL, 0);
        if (status) return status;
    }
    return STATUS_OK;
}

/* ---- tokens around a text ------------------------------------------------------------------- */

/* The defaults of transformers' classes. */
static const struct {
    const char *name;
    bool bos, eos;
} classes[] = {
    {"LlamaTokenizer", true, false},       {"CodeLlamaTokenizer", true, false},
    {"GemmaTokenizer", true, false},       {"T5Tokenizer", false, true},
    {"GPT2Tokenizer", false, false},       {"Qwen2Tokenizer", false, false},
    {"XGLMTokenizer", false, false},       {"InternLM2Tokenizer", true, false},
    {"PreTrainedTokenizer", false, false},
};

static enum status read_around(const struct reading *reading, const struct json *root) {
    struct tokenizer_spec *spec = reading->spec;
    const struct json *class;
    char found[96];
    size_t n = sizeof classes / sizeof *classes, i = 0;
    enum status status =
        may_member(reading, root, "tokenizer_class", "tokenizer_class", JSON_STRING, &class);
    if (status) return status;
    size_t length = class ? class->length : 0;
    if (length > 4 && strcmp(class->string + length - 4, "Fast") == 0) length -= 4;
    while (i < n && !(class && strlen(classes[i].name) == length &&
                      memcmp(classes[i].name, class->string, length) == 0))
        i++;
    bool says_both = json_is(json_member(root, "add_bos_token"), JSON_BOOL) &&
                     json_is(json_member(root, "add_eos_token"), JSON_BOOL);
    if (i == n && class && !says_both)
        return bad_key(reading, "tokenizer_class",
                       "add_bos_token and add_eos_token, or a class that implies them", "%s",
                       found_name(class, found));
    bool sentencepiece = spec->kind != TOKENIZER_CHARACTER_BPE;
    status = read_flag(reading, root, "add_bos_token", "add_bos_token",
                       i < n ? classes[i].bos : sentencepiece, &spec->add_bos);
    if (!status)
        status = read_flag(reading, root, "add_eos_token", "add_eos_token", i < n && classes[i].eos,
                           &spec->add_eos);
    return status;
}

/* ---- entry point ---------------------------------------------------------------------------- */

enum status read_config(struct reading *reading, const char *folder, bool has_json) {
    static const char *const names[] = {"tokenizer_config.json", "special_tokens_map.json"};
    struct tokenizer_spec *spec = reading->spec;
    const char *path = reading->path;
    enum status status = STATUS_OK;
    for (int i = 0; i < 2 && !status; i++) {
        struct json *root;
        status = read_object(folder, names[i], &root, reading->err);
        if (status || !root) continue;
        holder_keep_tree(reading->holder, root);
        char *here = path_in(folder, names[i]);
        reading->path = here;
        if (!has_json && i == 0) status = read_decoder(reading, root);
        if (!has_json && i == 0 && !status) status = read_around(reading, root);
        if (!status) status = read_id(reading, root, "bos_token", &spec->bos);
        if (!status) status = read_id(reading, root, "eos_token", &spec->eos);
        if (!status && spec->unknown < 0)
            status = read_id(reading, root, "unk_token", &spec->unknown);
        reading->path = path;
        mem_free(here);
    }
    if (!status && !has_json) status = read_added(reading, folder);
    return status;
}
