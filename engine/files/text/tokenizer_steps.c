/* Reads the steps of a tokenizer.json: normalizers, pre-tokenizers and decoders. A step is refused
 * by name if its type, or a setting that changes the result, is not supported. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/files/text/internal.h"

struct steps {
    struct reading *reading;
    struct tokenizer_step *step; /* [MAX_FILE_STEPS] */
    int n;
};

/* A type of step, and the function that reads it into a step in which only the kind is set. */
struct step_type {
    const char *name;
    enum step_kind kind;
    enum status (*read)(const struct steps *steps, const struct json *json,
                        struct tokenizer_step *step);
};

/* ---- fields --------------------------------------------------------------------------------- */

static struct span span_of(const struct json *string) {
    return (struct span){string->string, string->length};
}

/* Reads one of several words. */
static enum status read_word(const struct steps *steps, const struct json *json, const char *name,
                             const char *const *words, int otherwise, int *out) {
    const struct json *value;
    char expected[256] = "one of", found[96];
    enum status status = may_member(steps->reading, json, name, name, JSON_STRING, &value);
    *out = otherwise;
    if (status || (!value && otherwise >= 0)) return status;
    for (int i = 0; words[i]; i++) {
        size_t n = strlen(expected);
        snprintf(expected + n, sizeof expected - n, " %s", words[i]);
        *out = i;
        if (value && json_is_text(value, words[i])) return STATUS_OK;
    }
    return bad_key(steps->reading, name, expected, "%s", found_name(value, found));
}

/* {"String": text} or {"Regex": text} */
static enum status read_pattern(const struct steps *steps, const struct json *json,
                                struct tokenizer_step *step) {
    const struct json *pattern, *text;
    enum status status =
        need_member(steps->reading, json, "pattern", "pattern", JSON_OBJECT, &pattern);
    if (status) return status;
    step->is_regex = json_member(pattern, "Regex") != NULL;
    status = need_member(steps->reading, pattern, step->is_regex ? "Regex" : "String",
                         step->is_regex ? "pattern.Regex" : "pattern.String", JSON_STRING, &text);
    if (status) return status;
    step->pattern = span_of(text);
    return text->length > 0 ? STATUS_OK
                            : bad_key(steps->reading, "pattern", "a pattern", "an empty one");
}

/* Reads a text of exactly one character. */
static enum status read_character(const struct steps *steps, const struct json *json,
                                  const char *name, struct span *out) {
    const struct json *value;
    char found[96];
    enum status status = need_member(steps->reading, json, name, name, JSON_STRING, &value);
    if (status) return status;
    *out = span_of(value);
    if (value->length > 0 && utf8_character(value->string, value->length) == value->length)
        return STATUS_OK;
    return bad_key(steps->reading, name, "one character", "%s", found_name(value, found));
}

static enum status read_count(const struct steps *steps, const struct json *json, const char *name,
                              int *out) {
    const struct json *value;
    char found[96];
    enum status status = need_member(steps->reading, json, name, name, JSON_NUMBER, &value);
    if (status) return status;
    *out = value->is_integer ? (int)value->integer : -1;
    if (value->is_integer && value->integer >= 0 && value->integer <= 1000) return STATUS_OK;
    return bad_key(steps->reading, name, "a number from 0 to 1000", "%s", found_name(value, found));
}

/* ---- lists ---------------------------------------------------------------------------------- */

/* Reads one step, or the steps of a Sequence. */
static enum status read_step(struct steps *steps, const struct json *json, const char *key,
                             const char *member, const struct step_type *types) {
    const struct json *name, *list;
    char found[96];
    enum status status = need_member(steps->reading, json, "type", key, JSON_STRING, &name);
    if (status) return status;
    if (json_is_text(name, "Sequence")) {
        status = need_member(steps->reading, json, member, member, JSON_ARRAY, &list);
        if (status) return status;
        json_each(item, list) {
            status = read_step(steps, item, key, member, types);
            if (status) return status;
        }
        return STATUS_OK;
    }
    while (types->name && !json_is_text(name, types->name)) types++;
    if (!types->name) {
        return bad_key(steps->reading, key, "a type that is supported", "%s",
                       found_name(name, found));
    }
    if (steps->n == MAX_FILE_STEPS) return bad_key(steps->reading, key, "at most 64 steps", "more");
    struct tokenizer_step *step = &steps->step[steps->n++];
    *step = (struct tokenizer_step){.kind = types->kind};
    return types->read ? types->read(steps, json, step) : STATUS_OK;
}

/* Reads the list under `key`, which may be missing. */
static enum status read_list(struct reading *reading, const struct json *root, const char *key,
                             const char *member, const struct step_type *types,
                             const struct tokenizer_step **out, int *n) {
    const struct json *json;
    struct steps steps = {.reading = reading};
    enum status status = may_member(reading, root, key, key, JSON_OBJECT, &json);
    if (status || !json) return status;
    steps.step = mem_calloc(MAX_FILE_STEPS, sizeof *steps.step);
    *out = steps.step;
    status = read_step(&steps, json, key, member, types);
    *n = steps.n;
    return status;
}

/* ---- normalizers ---------------------------------------------------------------------------- */

static enum status read_strip(const struct steps *steps, const struct json *json,
                              struct tokenizer_step *step) {
    bool left, right;
    enum status status = read_flag(steps->reading, json, "strip_left", "strip_left", true, &left);
    if (!status)
        status = read_flag(steps->reading, json, "strip_right", "strip_right", true, &right);
    if (status) return status;
    step->left = left;
    step->right = right;
    return STATUS_OK;
}

static enum status read_replace(const struct steps *steps, const struct json *json,
                                struct tokenizer_step *step) {
    const struct json *content;
    enum status status = read_pattern(steps, json, step);
    if (!status)
        status = need_member(steps->reading, json, "content", "content", JSON_STRING, &content);
    if (!status) step->content = span_of(content);
    return status;
}

static enum status read_prepend(const struct steps *steps, const struct json *json,
                                struct tokenizer_step *step) {
    const struct json *text;
    enum status status =
        need_member(steps->reading, json, "prepend", "prepend", JSON_STRING, &text);
    if (!status) step->content = span_of(text);
    return status;
}

static int base64_digit(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool base64_decode(const char *text, size_t length, char *out, size_t *n) {
    uint32_t bits = 0;
    int n_bits = 0;
    *n = 0;
    while (length > 0 && text[length - 1] == '=') length--;
    for (size_t i = 0; i < length; i++) {
        int digit = base64_digit(text[i]);
        if (digit < 0) return false;
        bits = bits << 6 | (uint32_t)digit;
        n_bits += 6;
        if (n_bits < 8) continue;
        n_bits -= 8;
        out[(*n)++] = (char)(bits >> n_bits);
    }
    return n_bits < 6;
}

static enum status read_precompiled(const struct steps *steps, const struct json *json,
                                    struct tokenizer_step *step) {
    static const char key[] = "precompiled_charsmap";
    const struct json *text;
    enum status status = may_member(steps->reading, json, key, key, JSON_STRING, &text);
    if (status || !text) return status;
    char *bytes = holder_alloc(steps->reading->holder, text->length);
    size_t n;
    if (!base64_decode(text->string, text->length, bytes, &n))
        return bad_key(steps->reading, key, "base64", "other characters");
    step->content = (struct span){bytes, n};
    return STATUS_OK;
}

/* Accents are stripped if letters become small, unless the file says otherwise. */
static enum status read_bert(const struct steps *steps, const struct json *json,
                             struct tokenizer_step *step) {
    static const struct {
        const char *name;
        enum bert_rule rule;
    } flags[] = {{"clean_text", BERT_CLEANS},
                 {"handle_chinese_chars", BERT_SPACES_CHINESE},
                 {"lowercase", BERT_LOWERS},
                 {"strip_accents", BERT_STRIPS_ACCENTS}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        bool is_accents = flags[i].rule == BERT_STRIPS_ACCENTS;
        bool otherwise = is_accents ? (step->bert_rules & BERT_LOWERS) != 0 : true, is_set;
        enum status status =
            read_flag(steps->reading, json, flags[i].name, flags[i].name, otherwise, &is_set);
        if (status) return status;
        if (is_set) step->bert_rules |= (int)flags[i].rule;
    }
    return STATUS_OK;
}

enum status read_normalizers(struct reading *reading, const struct json *root) {
    static const struct step_type types[] = {
        {"NFC", STEP_NFC, NULL},
        {"NFD", STEP_NFD, NULL},
        {"NFKC", STEP_NFKC, NULL},
        {"NFKD", STEP_NFKD, NULL},
        {"Lowercase", STEP_LOWERCASE, NULL},
        {"Strip", STEP_STRIP, read_strip},
        {"Replace", STEP_REPLACE, read_replace},
        {"Prepend", STEP_PREPEND, read_prepend},
        {"Precompiled", STEP_PRECOMPILED, read_precompiled},
        {"BertNormalizer", STEP_BERT, read_bert},
        {NULL, 0, NULL},
    };
    return read_list(reading, root, "normalizer", "normalizers", types, &reading->spec->normalizers,
                     &reading->spec->n_normalizers);
}

/* ---- pre-tokenizers ------------------------------------------------------------------------- */

static enum status read_behavior(const struct steps *steps, const struct json *json, int otherwise,
                                 struct tokenizer_step *step) {
    static const char *const words[] = {
        [SPLIT_ISOLATED] = "Isolated",
        [SPLIT_REMOVED] = "Removed",
        [SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
        [SPLIT_MERGED_WITH_NEXT] = "MergedWithNext",
        [SPLIT_CONTIGUOUS] = "Contiguous",
        NULL,
    };
    int behavior;
    enum status status = read_word(steps, json, "behavior", words, otherwise, &behavior);
    if (!status) step->behavior = (enum split_behavior)behavior;
    return status;
}

static enum status read_split(const struct steps *steps, const struct json *json,
                              struct tokenizer_step *step) {
    enum status status = read_pattern(steps, json, step);
    if (!status) status = read_behavior(steps, json, -1, step);
    if (!status) status = read_flag(steps->reading, json, "invert", "invert", false, &step->invert);
    return status;
}

static enum status read_punctuation(const struct steps *steps, const struct json *json,
                                    struct tokenizer_step *step) {
    return read_behavior(steps, json, SPLIT_ISOLATED, step);
}

static enum status read_digits(const struct steps *steps, const struct json *json,
                               struct tokenizer_step *step) {
    bool one_by_one;
    enum status status = read_flag(steps->reading, json, "individual_digits", "individual_digits",
                                   false, &one_by_one);
    step->behavior = !status && one_by_one ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS;
    return status;
}

static enum status read_byte_level(const struct steps *steps, const struct json *json,
                                   struct tokenizer_step *step) {
    bool prefix;
    enum status status =
        read_flag(steps->reading, json, "add_prefix_space", "add_prefix_space", true, &prefix);
    if (!status)
        status = read_flag(steps->reading, json, "use_regex", "use_regex", true, &step->split);
    step->prepend = !status && prefix ? PREPEND_ALWAYS : PREPEND_NEVER;
    return status;
}

/* Files before 2024 have add_prefix_space instead of prepend_scheme. */
static enum status read_metaspace(const struct steps *steps, const struct json *json,
                                  struct tokenizer_step *step) {
    static const char *const words[] = {
        [PREPEND_NEVER] = "never", [PREPEND_FIRST] = "first", [PREPEND_ALWAYS] = "always", NULL};
    int scheme;
    bool prefix;
    enum status status = read_character(steps, json, "replacement", &step->content);
    if (!status)
        status =
            read_flag(steps->reading, json, "add_prefix_space", "add_prefix_space", true, &prefix);
    if (!status)
        status = read_word(steps, json, "prepend_scheme", words,
                           prefix ? PREPEND_ALWAYS : PREPEND_NEVER, &scheme);
    if (!status) status = read_flag(steps->reading, json, "split", "split", true, &step->split);
    if (status) return status;
    step->prepend = (enum prepend_scheme)scheme;
    if (prefix || scheme == PREPEND_NEVER) return STATUS_OK;
    return bad_key(steps->reading, "prepend_scheme", "\"never\", as add_prefix_space is false",
                   "\"%s\"", words[scheme]);
}

enum status read_pre_tokenizers(struct reading *reading, const struct json *root) {
    static const struct step_type types[] = {
        {"Split", STEP_SPLIT, read_split},
        {"BertPreTokenizer", STEP_BERT_SPLIT, NULL},
        {"ByteLevel", STEP_BYTE_LEVEL, read_byte_level},
        {"Digits", STEP_DIGITS, read_digits},
        {"Metaspace", STEP_METASPACE, read_metaspace},
        {"Punctuation", STEP_PUNCTUATION, read_punctuation},
        {"Whitespace", STEP_WHITESPACE, NULL},
        {"WhitespaceSplit", STEP_WHITESPACE_SPLIT, NULL},
        {NULL, 0, NULL},
    };
    return read_list(reading, root, "pre_tokenizer", "pretokenizers", types,
                     &reading->spec->pre_tokenizers, &reading->spec->n_pre_tokenizers);
}

/* ---- decoders ------------------------------------------------------------------------------- */

static enum status read_strip_character(const struct steps *steps, const struct json *json,
                                        struct tokenizer_step *step) {
    enum status status = read_character(steps, json, "content", &step->content);
    if (!status) status = read_count(steps, json, "start", &step->left);
    if (!status) status = read_count(steps, json, "stop", &step->right);
    return status;
}

static enum status read_decoder_replace(const struct steps *steps, const struct json *json,
                                        struct tokenizer_step *step) {
    enum status status = read_replace(steps, json, step);
    if (status || !step->is_regex) return status;
    return bad_key(steps->reading, "decoder.pattern", "a String", "a Regex");
}

static enum status read_wordpiece(const struct steps *steps, const struct json *json,
                                  struct tokenizer_step *step) {
    const struct json *prefix;
    enum status status = may_member(steps->reading, json, "prefix", "prefix", JSON_STRING, &prefix);
    if (!status) status = read_flag(steps->reading, json, "cleanup", "cleanup", true, &step->split);
    step->content = !status && prefix ? span_of(prefix) : (struct span){"##", 2};
    return status;
}

enum status read_decoders(struct reading *reading, const struct json *root) {
    static const struct step_type types[] = {
        {"ByteLevel", STEP_BYTE_LEVEL, NULL},
        {"Metaspace", STEP_METASPACE, read_metaspace},
        {"Replace", STEP_REPLACE, read_decoder_replace},
        {"ByteFallback", STEP_BYTE_FALLBACK, NULL},
        {"Fuse", STEP_FUSE, NULL},
        {"Strip", STEP_STRIP_CHARACTER, read_strip_character},
        {"WordPiece", STEP_WORDPIECE, read_wordpiece},
        {NULL, 0, NULL},
    };
    struct tokenizer_spec *spec = reading->spec;
    enum status status =
        read_list(reading, root, "decoder", "decoders", types, &spec->decoders, &spec->n_decoders);
    if (status || spec->decoders) return status;
    struct tokenizer_step *step = mem_calloc(1, sizeof *step);
    step->kind = STEP_JOIN_WITH_SPACES;
    spec->decoders = step;
    spec->n_decoders = 1;
    return STATUS_OK;
}
