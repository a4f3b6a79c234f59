/* tokenizer.json, the file of the library `tokenizers`: the model (BPE or Unigram) and the added
 * tokens. tokenizer_steps.c reads the steps around the model. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/files/text/internal.h"

/* The limit of WordPiece's words in files that do not state it. */
enum { MAX_WORD_CHARACTERS = 100 };

static const struct tokenizer_keys keys = {
    .tokens = "model.vocab",
    .types = "added_tokens",
    .scores = "model.vocab",
    .merges = "model.merges",
    .pre = "pre_tokenizer",
    .bos = "bos_token",
    .eos = "eos_token",
    .unknown = "model.unk_token",
};

/* ---- the vocabulary ------------------------------------------------------------------------- */

/* Reads Unigram's vocabulary: [["token", score], ...] in the order of the ids. */
static enum status read_pieces(struct reading *reading, const struct json *vocabulary) {
    struct tokenizer_spec *spec = reading->spec;
    double *scores = mem_calloc((size_t)vocabulary->n_children + 1, sizeof *scores);
    char found[96];
    int id = 0;
    spec->score = scores;
    json_each(piece, vocabulary) {
        const struct json *text = json_first(piece), *score = text ? text->next : NULL;
        if (!json_is(piece, JSON_ARRAY) || piece->n_children != 2 || !json_is(text, JSON_STRING) ||
            !json_is(score, JSON_NUMBER))
            return bad_key(reading, keys.tokens, "pairs of a token and its score", "%s as entry %d",
                           found_name(piece, found), id);
        enum status status = add_token(reading, keys.tokens, id,
                                       (struct span){text->string, text->length}, TOKEN_NORMAL, 0);
        if (status) return status;
        scores[id++] = score->number;
    }
    reading->n_scores = id;
    return STATUS_OK;
}

/* ---- merges --------------------------------------------------------------------------------- */

/* Reads "left right", or ["left", "right"], which it converts into the first form. *right becomes
 * the offset of the right token. */
static enum status read_merge(struct reading *reading, const struct json *merge, int i,
                              struct span *text, uint32_t *right) {
    const struct json *first = json_first(merge), *second = first ? first->next : NULL;
    char found[96];
    if (json_is(merge, JSON_STRING)) {
        const char *space =
            merge->length > 1 ? memchr(merge->string + 1, ' ', merge->length - 1) : NULL;
        *text = (struct span){merge->string, merge->length};
        if (space && merge->length <= MAX_TOKEN_BYTES) {
            *right = (uint32_t)(space + 1 - merge->string);
            return STATUS_OK;
        }
    } else if (json_is(merge, JSON_ARRAY) && merge->n_children == 2 &&
               json_is(first, JSON_STRING) && json_is(second, JSON_STRING) &&
               first->length + second->length < MAX_TOKEN_BYTES) {
        char *joined = (char *)text->data;
        memcpy(joined, first->string, first->length);
        joined[first->length] = ' ';
        memcpy(joined + first->length + 1, second->string, second->length);
        text->length = first->length + 1 + second->length;
        *right = (uint32_t)first->length + 1;
        return STATUS_OK;
    }
    return bad_key(reading, keys.merges, "two tokens for each merge", "%s as merge %d",
                   found_name(merge, found), i);
}

/* Returns the bytes of the pairs in the form "left right". */
static size_t bytes_of_pairs(const struct json *merges) {
    size_t bytes = 1;
    json_each(merge, merges) {
        const struct json *first = json_is(merge, JSON_ARRAY) ? json_first(merge) : NULL;
        const struct json *second = first ? first->next : NULL;
        if (json_is(first, JSON_STRING)) bytes += first->length + 1;
        if (json_is(second, JSON_STRING)) bytes += second->length;
    }
    return bytes;
}

static enum status read_merges(struct reading *reading, const struct json *model) {
    struct tokenizer_spec *spec = reading->spec;
    const struct json *merges;
    enum status status = need_member(reading, model, "merges", keys.merges, JSON_ARRAY, &merges);
    if (status) return status;
    size_t n = (size_t)merges->n_children;
    const char **text = mem_alloc((n + 1) * sizeof *text);
    uint32_t *length = mem_alloc((n + 1) * sizeof *length);
    uint32_t *right = mem_alloc((n + 1) * sizeof *right);
    spec->merge = text;
    spec->merge_length = length;
    spec->merge_right = right;
    char *room = holder_alloc(reading->holder, bytes_of_pairs(merges));
    int i = 0;
    json_each(merge, merges) {
        struct span span = {room, 0};
        status = read_merge(reading, merge, i, &span, &right[i]);
        if (status) return status;
        if (span.data == room) room += span.length;
        text[i] = span.data;
        length[i++] = (uint32_t)span.length;
    }
    spec->n_merges = i;
    return STATUS_OK;
}

/* ---- the model ------------------------------------------------------------------------------ */

/* Checks that unsupported settings have the value that does not change the result. */
static enum status check_neutral(const struct reading *reading, const struct json *model) {
    static const char *const texts[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const struct json *value;
    char found[96];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        enum status status = may_member(reading, model, texts[i], texts[i], JSON_STRING, &value);
        if (status) return status;
        if (value && value->length > 0)
            return bad_key(reading, texts[i], "null", "%s", found_name(value, found));
    }
    enum status status = may_member(reading, model, "dropout", "dropout", JSON_NUMBER, &value);
    if (status || !value || value->number == 0) return status;
    return bad_key(reading, "model.dropout", "null", "%s", found_name(value, found));
}

/* Reads the unknown token: `otherwise` if the file does not name one; NULL: none. */
static enum status read_unknown(struct reading *reading, const struct json *model,
                                const char *otherwise) {
    const struct json *unknown;
    char found[96];
    enum status status =
        may_member(reading, model, "unk_token", keys.unknown, JSON_STRING, &unknown);
    if (status || (!unknown && !otherwise)) return status;
    reading->spec->unknown = unknown ? find_token(reading, unknown->string, unknown->length)
                                     : find_token(reading, otherwise, strlen(otherwise));
    if (reading->spec->unknown >= 0) return STATUS_OK;
    return bad_key(reading, keys.unknown, "a token of model.vocab", "%s",
                   found_name(unknown, found));
}

static enum status read_bpe(struct reading *reading, const struct json *model) {
    struct tokenizer_spec *spec = reading->spec;
    const struct json *vocabulary;
    spec->kind = TOKENIZER_CHARACTER_BPE;
    enum status status = check_neutral(reading, model);
    if (!status)
        status = need_member(reading, model, "vocab", keys.tokens, JSON_OBJECT, &vocabulary);
    if (!status) status = add_tokens(reading, vocabulary);
    if (!status) status = read_merges(reading, model);
    if (!status)
        status = read_flag(reading, model, "byte_fallback", "model.byte_fallback", false,
                           &spec->byte_fallback);
    if (!status)
        status =
            read_flag(reading, model, "fuse_unk", "model.fuse_unk", false, &spec->fuse_unknown);
    if (!status)
        status = read_flag(reading, model, "ignore_merges", "model.ignore_merges", false,
                           &spec->ignore_merges);
    return status ? status : read_unknown(reading, model, NULL);
}

static enum status read_unigram(struct reading *reading, const struct json *model) {
    struct tokenizer_spec *spec = reading->spec;
    const struct json *vocabulary, *unknown;
    char found[96];
    spec->kind = TOKENIZER_UNIGRAM;
    enum status status = need_member(reading, model, "vocab", keys.tokens, JSON_ARRAY, &vocabulary);
    if (!status) status = read_pieces(reading, vocabulary);
    if (!status)
        status = need_member(reading, model, "unk_id", "model.unk_id", JSON_NUMBER, &unknown);
    if (!status)
        status = read_flag(reading, model, "byte_fallback", "model.byte_fallback", false,
                           &spec->byte_fallback);
    if (status) return status;
    bool is_id = unknown->is_integer && unknown->integer >= 0 && unknown->integer < spec->n_tokens;
    if (!is_id)
        return bad_key(reading, "model.unk_id", "the id of a token", "%s",
                       found_name(unknown, found));
    spec->unknown = (int32_t)unknown->integer;
    return STATUS_OK;
}

static enum status read_wordpiece(struct reading *reading, const struct json *model) {
    struct tokenizer_spec *spec = reading->spec;
    const struct json *vocabulary, *prefix, *most;
    char found[96];
    spec->kind = TOKENIZER_WORDPIECE;
    enum status status =
        need_member(reading, model, "vocab", keys.tokens, JSON_OBJECT, &vocabulary);
    if (!status) status = add_tokens(reading, vocabulary);
    if (!status) status = read_unknown(reading, model, "[UNK]");
    if (!status)
        status = may_member(reading, model, "continuing_subword_prefix",
                            "model.continuing_subword_prefix", JSON_STRING, &prefix);
    if (!status)
        status = may_member(reading, model, "max_input_chars_per_word",
                            "model.max_input_chars_per_word", JSON_NUMBER, &most);
    if (status) return status;
    spec->subword_prefix =
        prefix ? (struct span){prefix->string, prefix->length} : (struct span){"##", 2};
    spec->max_word_characters = MAX_WORD_CHARACTERS;
    if (!most) return STATUS_OK;
    if (!most->is_integer || most->integer < 0 || most->integer > INT32_MAX)
        return bad_key(reading, "model.max_input_chars_per_word", "a whole number", "%s",
                       found_name(most, found));
    spec->max_word_characters = (int)most->integer;
    return STATUS_OK;
}

/* Older files omit the type; the form of the vocabulary then implies it. */
static enum status read_model(struct reading *reading, const struct json *root) {
    const struct json *model, *type;
    char found[96];
    enum status status = need_member(reading, root, "model", "model", JSON_OBJECT, &model);
    if (!status) status = may_member(reading, model, "type", "model.type", JSON_STRING, &type);
    if (status) return status;
    bool has_merges = json_is(json_member(model, "merges"), JSON_ARRAY);
    bool has_pieces = json_is(json_member(model, "vocab"), JSON_ARRAY);
    bool has_words = json_is(json_member(model, "max_input_chars_per_word"), JSON_NUMBER);
    if (type ? json_is_text(type, "BPE") : has_merges) return read_bpe(reading, model);
    if (type ? json_is_text(type, "Unigram") : has_pieces) return read_unigram(reading, model);
    if (type ? json_is_text(type, "WordPiece") : has_words) return read_wordpiece(reading, model);
    return bad_key(reading, "model.type", "\"BPE\", \"Unigram\" or \"WordPiece\"", "%s",
                   found_name(type, found));
}

/* ---- added tokens --------------------------------------------------------------------------- */

enum status read_added_rules(struct reading *reading, const struct json *token, const char *key,
                             uint8_t *rules, int *type) {
    static const struct {
        const char *name;
        uint8_t rule;
    } flags[] = {{"lstrip", ADDED_LSTRIP},
                 {"rstrip", ADDED_RSTRIP},
                 {"single_word", ADDED_SINGLE_WORD},
                 {"normalized", ADDED_NORMALIZED}};
    bool is_set;
    enum status status = read_flag(reading, token, "special", key, false, &is_set);
    *type = !status && is_set ? TOKEN_CONTROL : TOKEN_USER_DEFINED;
    *rules = 0;
    for (size_t i = 0; i < sizeof flags / sizeof *flags && !status; i++) {
        status = read_flag(reading, token, flags[i].name, key, false, &is_set);
        if (!status && is_set) *rules |= flags[i].rule;
    }
    return status;
}

/* Adds a token. The model cannot compute a token beyond its vocabulary, so text with its spelling
 * stays text. */
static enum status read_added_token(struct reading *reading, const struct json *token,
                                    int n_of_model) {
    static const char key[] = "added_tokens";
    const struct json *id, *content;
    char found[96];
    uint8_t rules;
    int type;
    enum status status = need_member(reading, token, "id", "added_tokens.id", JSON_NUMBER, &id);
    if (!status)
        status =
            need_member(reading, token, "content", "added_tokens.content", JSON_STRING, &content);
    if (!status) status = read_added_rules(reading, token, key, &rules, &type);
    if (status) return status;
    if (!id->is_integer)
        return bad_key(reading, "added_tokens.id", "a whole number", "%s", found_name(id, found));
    if (content->length == 0 || (reading->V > 0 && id->integer >= reading->V)) return STATUS_OK;
    const struct tokenizer_spec *spec = reading->spec;
    bool in_model = id->integer >= 0 && id->integer < n_of_model &&
                    spec->token_length[id->integer] == content->length &&
                    memcmp(spec->token[id->integer], content->string, content->length) == 0;
    if (!in_model) rules |= ADDED_ONLY;
    return add_token(reading, key, id->integer, (struct span){content->string, content->length},
                     type, rules);
}

static enum status read_added_tokens(struct reading *reading, const struct json *root) {
    const struct json *list;
    int n_of_model = reading->spec->n_tokens;
    enum status status =
        may_member(reading, root, "added_tokens", "added_tokens", JSON_ARRAY, &list);
    if (status || !list) return status;
    json_each(token, list) {
        status = read_added_token(reading, token, n_of_model);
        if (status) return status;
    }
    return STATUS_OK;
}

/* ---- entry point ----------------------------------------------------------------------------- */

enum status tokenizer_json_read(struct tokenizer_spec *spec, const char *path, const char *text,
                                size_t length, int V, struct err *err) {
    struct reading reading;
    struct json *root;
    *spec = (struct tokenizer_spec){0};
    enum status status = parse_object(path, text, length, &root, err);
    if (status) return status;
    reading_begin(&reading, spec, path, V, &keys, err);
    holder_keep_tree(reading.holder, root);
    spec->has_steps = true;
    status = read_model(&reading, root);
    if (!status) status = read_added_tokens(&reading, root);
    if (!status) status = read_normalizers(&reading, root);
    if (!status) status = read_pre_tokenizers(&reading, root);
    if (!status) status = read_decoders(&reading, root);
    if (!status) status = read_post_processor(&reading, root);
    if (!status) status = finish_tokens(&reading);
    return reading_end(&reading, status);
}
