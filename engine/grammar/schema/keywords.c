/* The names of JSON Schema's keywords, and how each is read. An unknown name is an
 * annotation (2020-12 core, 6.5), except a misspelled one: a client would believe it enforced. */
#include <assert.h>
#include <ctype.h>
#include <string.h>

#include "engine/grammar/schema/internal.h"

static const struct schema_keyword keywords[] = {
    {"type", FORM_TYPE},
    {"enum", FORM_VALUES},
    {"const", FORM_VALUE},
    {"nullable", FORM_BOOL},
    {"properties", FORM_SCHEMA_MAP},
    {"required", FORM_STRINGS},
    {"additionalProperties", FORM_SCHEMA},
    {"propertyNames", FORM_SCHEMA},
    {"patternProperties", FORM_SCHEMA_MAP},
    {"minProperties", FORM_COUNT},
    {"maxProperties", FORM_COUNT},
    {"items", FORM_ITEMS},
    {"prefixItems", FORM_SCHEMAS},
    {"additionalItems", FORM_SCHEMA},
    {"minItems", FORM_COUNT},
    {"maxItems", FORM_COUNT},
    {"uniqueItems", FORM_BOOL},
    {"minLength", FORM_COUNT},
    {"maxLength", FORM_COUNT},
    {"pattern", FORM_STRING},
    {"format", FORM_STRING},
    {"minimum", FORM_NUMBER},
    {"maximum", FORM_NUMBER},
    {"exclusiveMinimum", FORM_BOUND},
    {"exclusiveMaximum", FORM_BOUND},
    {"multipleOf", FORM_NUMBER},
    {"anyOf", FORM_SCHEMAS},
    {"oneOf", FORM_SCHEMAS},
    {"allOf", FORM_SCHEMAS},
    {"$ref", FORM_STRING},
    {"$defs", FORM_DEFS},
    {"definitions", FORM_DEFS},
    {"$schema", FORM_DIALECT},
    {"not", FORM_SCHEMA},
    {"if", FORM_SCHEMA},
    {"then", FORM_SCHEMA},
    {"else", FORM_SCHEMA},
    {"contains", FORM_SCHEMA},
    {"minContains", FORM_COUNT},
    {"maxContains", FORM_COUNT},
    {"dependentRequired", FORM_DEPENDENTS},
    {"dependentSchemas", FORM_DEPENDENTS},
    {"dependencies", FORM_DEPENDENTS},
    {"unevaluatedProperties", FORM_SCHEMA},
    {"unevaluatedItems", FORM_SCHEMA},
    {"$dynamicRef", FORM_UNENFORCED},
    {"$recursiveRef", FORM_UNENFORCED},
    {"title", FORM_NOTE},
    {"description", FORM_NOTE},
    {"default", FORM_NOTE},
    {"example", FORM_NOTE},
    {"examples", FORM_NOTE},
    {"deprecated", FORM_NOTE},
    {"readOnly", FORM_NOTE},
    {"writeOnly", FORM_NOTE},
    {"discriminator", FORM_NOTE},
    {"$id", FORM_NOTE},
    {"id", FORM_NOTE},
    {"$comment", FORM_NOTE},
    {"contentEncoding", FORM_NOTE},
    {"contentMediaType", FORM_NOTE},
};

enum { N_KEYWORDS = sizeof keywords / sizeof *keywords };

const struct schema_keyword *schema_keyword(size_t i) {
    return i < N_KEYWORDS ? &keywords[i] : NULL;
}

const struct schema_keyword *schema_keyword_find(const char *name) {
    for (size_t i = 0; i < N_KEYWORDS; i++) {
        if (strcmp(keywords[i].name, name) == 0) return &keywords[i];
    }
    return NULL;
}

const struct json *schema_value(const struct json *schema, const char *keyword) {
    const struct json *value = json_member(schema, keyword);
    bool may_be_null = strcmp(keyword, "const") == 0 || strcmp(keyword, NOT_CONST) == 0;
    return json_is(value, JSON_NULL) && !may_be_null ? NULL : value;
}

/* ---- unevaluated members -------------------------------------------------------------------- */

bool schema_is_decided(const struct json *schema, const struct json *unevaluated) {
    static const char *const applied[] = {"$ref",         "allOf",       "anyOf",
                                          "oneOf",        "if",          "dependentSchemas",
                                          "dependencies", "$dynamicRef", "$recursiveRef"};
    bool is_items = strcmp(unevaluated->name, "unevaluatedItems") == 0;
    const struct json *items = schema_value(schema, "items");
    bool lists_all =
        is_items ? items && (!json_is(items, JSON_ARRAY) || schema_value(schema, "additionalItems"))
                 : schema_value(schema, "additionalProperties") != NULL;
    if (lists_all || json_true(unevaluated)) return true;
    for (size_t i = 0; i < sizeof applied / sizeof *applied; i++) {
        if (schema_value(schema, applied[i])) return false;
    }
    return !is_items || !schema_value(schema, "contains");
}

/* Returns the value of the first keyword, or of `unevaluated` if the schema decides it. */
static const struct json *rest_by(const struct json *schema, const char *keyword,
                                  const char *unevaluated) {
    const struct json *rest = schema_value(schema, keyword);
    if (rest) return rest;
    rest = schema_value(schema, unevaluated);
    return rest && schema_is_decided(schema, rest) ? rest : NULL;
}

const struct json *schema_others(const struct json *schema) {
    return rest_by(schema, "additionalProperties", "unevaluatedProperties");
}

const struct json *schema_unlisted_items(const struct json *schema) {
    bool is_prefix = json_is(schema_value(schema, "items"), JSON_ARRAY);
    return rest_by(schema, is_prefix ? "additionalItems" : "items", "unevaluatedItems");
}

bool schema_says(const struct json *schema) {
    json_each_member(member, schema) {
        if (member->name[0] == MADE) return true;
        const struct schema_keyword *keyword = schema_keyword_find(member->name);
        bool refers = strcmp(member->name, "$ref") == 0 || strcmp(member->name, "allOf") == 0;
        if (keyword && !refers && keyword->form != FORM_NOTE && keyword->form != FORM_DEFS &&
            keyword->form != FORM_DIALECT && keyword->form != FORM_UNENFORCED &&
            strcmp(keyword->name, "nullable") != 0)
            return true;
    }
    return false;
}

/* ---- misspelled names ----------------------------------------------------------------------- */

enum { MAX_NAME = 24, SHORT_NAME = 6, LONG_NAME = 12 };

/* Writes the name in lower case without - and _, and returns its length; 0: it is too long. */
static int fold(const char *name, char out[MAX_NAME]) {
    int n = 0;
    for (; *name; name++) {
        if (*name == '-' || *name == '_') continue;
        if (n == MAX_NAME) return 0;
        out[n++] = (char)tolower((uint8_t)*name);
    }
    return n;
}

static int least(int a, int b, int c) {
    return min_int(a, min_int(b, c));
}

/* Returns the number of letters to insert, delete, replace or exchange with the next one that turn
 * one name into the other (the optimal string alignment distance). */
static int distance(const char *x, int n_x, const char *y, int n_y) {
    assert(n_x <= MAX_NAME && n_y <= MAX_NAME);
    int rows[MAX_NAME + 1][MAX_NAME + 1];
    for (int i = 0; i <= n_x; i++) {
        for (int k = 0; k <= n_y; k++) {
            if (i == 0 || k == 0) {
                rows[i][k] = i + k;
                continue;
            }
            bool differ = x[i - 1] != y[k - 1];
            rows[i][k] = least(rows[i - 1][k] + 1, rows[i][k - 1] + 1, rows[i - 1][k - 1] + differ);
            bool exchanged = i > 1 && k > 1 && x[i - 1] == y[k - 2] && x[i - 2] == y[k - 1];
            if (exchanged) rows[i][k] = min_int(rows[i][k], rows[i - 2][k - 2] + 1);
        }
    }
    return rows[n_x][n_y];
}

const char *schema_keyword_meant(const char *name) {
    char given[MAX_NAME], known[MAX_NAME];
    /* a leading _ is a common way to switch a keyword off */
    int n_given = name[0] == '_' ? 0 : fold(name, given);
    for (size_t i = 0; i < N_KEYWORDS && n_given > 0; i++) {
        if (keywords[i].form == FORM_NOTE || keywords[i].form == FORM_DIALECT) continue;
        int n = fold(keywords[i].name, known);
        int most = n < SHORT_NAME ? 0 : n < LONG_NAME ? 1 : 2;
        if (n - n_given > most || n_given - n > most) continue;
        if (distance(given, n_given, known, n) <= most) return keywords[i].name;
    }
    return NULL;
}
