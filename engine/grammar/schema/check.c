/* The form of the keywords' values, and the target of $ref. Each schema is checked before it is
 * used, so the other files rely on correct forms. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/schema/internal.h"

/* ---- values of keywords --------------------------------------------------------------------- */

enum { N_TYPES = 7 };

static bool is_type(const struct json *value) {
    static const char *const names[N_TYPES] = {"null",   "boolean", "integer", "number",
                                               "string", "array",   "object"};
    for (size_t i = 0; i < N_TYPES; i++) {
        if (json_is_text(value, names[i])) return true;
    }
    return false;
}

static bool all_are(const struct json *array, bool (*is)(const struct json *value)) {
    json_each(item, array) {
        if (!is(item)) return false;
    }
    return json_is(array, JSON_ARRAY);
}

static bool is_string(const struct json *value) {
    return json_is(value, JSON_STRING);
}

static bool is_schema(const struct json *value) {
    return json_is(value, JSON_OBJECT) || json_is(value, JSON_BOOL);
}

static bool all_schemas(const struct json *object) {
    json_each(member, object) {
        if (!is_schema(member)) return false;
    }
    return json_is(object, JSON_OBJECT);
}

/* Are the members schemas or arrays of names? */
static bool all_dependents(const struct json *object) {
    json_each_member(member, object) {
        if (!is_schema(member) && !all_are(member, is_string)) return false;
    }
    return json_is(object, JSON_OBJECT);
}

/* Returns the problem of a keyword's value, or NULL. */
static const char *wrong_form(const struct json *value, enum form form) {
    bool is_count = json_is(value, JSON_NUMBER) && json_number(value) >= 0 &&
                    (json_is_integer(value) || json_number(value) >= MAX_EXACT);
    switch (form) {
    case FORM_SCHEMA:
        return is_schema(value) ? NULL : "must be a schema: an object, true or false";
    case FORM_ITEMS:
        if (is_schema(value) || all_are(value, is_schema)) return NULL;
        return "must be a schema: an object, true or false";
    case FORM_SCHEMAS:
        return all_are(value, is_schema) && json_first(value)
                   ? NULL
                   : "must be an array of at least one schema";
    case FORM_SCHEMA_MAP:
    case FORM_DEFS:
        return all_schemas(value) ? NULL : "must be an object of schemas";
    case FORM_COUNT:
        return is_count ? NULL : "must be a whole number of at least 0";
    case FORM_NUMBER:
        return json_is(value, JSON_NUMBER) ? NULL : "must be a number";
    case FORM_BOUND:
        return json_is(value, JSON_NUMBER) || json_is(value, JSON_BOOL)
                   ? NULL
                   : "must be a number, or true or false as in draft 4";
    case FORM_BOOL:
        return json_is(value, JSON_BOOL) ? NULL : "must be true or false";
    case FORM_STRING:
        return is_string(value) ? NULL : "must be a string";
    case FORM_STRINGS:
        return all_are(value, is_string) ? NULL : "must be an array of strings";
    case FORM_TYPE:
        return is_type(value) || (all_are(value, is_type) && json_first(value) &&
                                  json_count(value) <= N_TYPES)
                   ? NULL
                   : "must be one of null, boolean, integer, number, string, array, object, or an "
                     "array of different types";
    case FORM_VALUES:
        return json_is(value, JSON_ARRAY) && json_first(value) ? NULL
                                                               : "must be an array of values";
    case FORM_DEPENDENTS:
        return all_dependents(value) ? NULL : "must be an object of schemas or arrays of names";
    case FORM_DIALECT:
        return is_string(value) && strstr(json_text(value), "://json-schema.org/")
                   ? NULL
                   : "must be the name of a draft, as in "
                     "\"https://json-schema.org/draft/2020-12/schema\"";
    case FORM_UNENFORCED:
        return "is a keyword that is not enforced here; leave it out";
    case FORM_NOTE:
    case FORM_VALUE:
        return NULL;
    }
    return NULL;
}

/* An unknown keyword is an annotation, unless it is a known one misspelled. */
static void check_unknown(struct schema_reader *r, const struct json *value) {
    const char *meant = schema_keyword_meant(value->name);
    if (meant)
        schema_cannot(r, value,
                      "is not a keyword; if you mean \"%s\", write it so, else rename it.", meant);
}

/* Is the keyword ignored in hints? */
static bool is_optional(const struct schema_keyword *keyword) {
    static const char *const names[] = {"not",
                                        "if",
                                        "then",
                                        "else",
                                        "contains",
                                        "minContains",
                                        "maxContains",
                                        "uniqueItems",
                                        "dependentRequired",
                                        "dependencies",
                                        "dependentSchemas"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(keyword->name, names[i]) == 0) return true;
    }
    return false;
}

static void check_keyword(struct schema_reader *r, const struct json *value) {
    const struct schema_keyword *keyword = schema_keyword_find(value->name);
    if (!keyword) {
        check_unknown(r, value);
        return;
    }
    if (json_is(value, JSON_NULL) && keyword->form != FORM_VALUE) return;
    const char *wrong = wrong_form(value, keyword->form);
    bool is_multiple = strcmp(keyword->name, "multipleOf") == 0;
    if (!wrong && is_multiple && !(json_number(value) > 0)) wrong = "must be above 0";
    bool is_hint = is_optional(keyword) || keyword->form == FORM_UNENFORCED ||
                   keyword->form == FORM_DIALECT ||
                   (keyword->form == FORM_STRINGS && json_is(value, JSON_BOOL)); /* draft 3 */
    if (wrong && is_hint) {
        schema_cannot(r, value, "%s.", wrong);
    } else if (wrong) {
        schema_fail(r, value, "%s.", wrong);
    } else if (keyword->form == FORM_SCHEMA ||
               (keyword->form == FORM_ITEMS && !json_is(value, JSON_ARRAY))) {
        schema_check(r, value);
    } else if (keyword->form == FORM_SCHEMAS || keyword->form == FORM_SCHEMA_MAP ||
               keyword->form == FORM_DEFS || keyword->form == FORM_ITEMS ||
               keyword->form == FORM_DEPENDENTS) {
        json_each(part, value) if (is_schema(part)) schema_check(r, part);
    }
}

void schema_check(struct schema_reader *r, const struct json *schema) {
    if (!builder_works(r->b, 20) || json_is(schema, JSON_BOOL)) return;
    if (!json_is(schema, JSON_OBJECT)) {
        schema_fail(r, schema, "must be a schema: an object, true or false.");
        return;
    }
    void **is_checked = node_map_at(r->b, &r->checked, schema);
    if (!is_checked || *is_checked || !builder_down(r->b, "The schema")) return;
    *is_checked = r;
    json_each_member(value, schema) if (builder_works(r->b, 50)) check_keyword(r, value);
    builder_up(r->b);
}

/* ---- $ref ----------------------------------------------------------------------------------- */

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

/* Returns the byte of two hex digits, or -1. */
static int hex_byte(const char *text) {
    int high = hex_digit(text[0]), low = high < 0 ? -1 : hex_digit(text[1]);
    return low < 0 ? -1 : high * 16 + low;
}

/* Replaces ~0, ~1 and %XX in a step of a pointer, in place. */
static void unescape(char *step) {
    char *to = step;
    for (const char *from = step; *from; from++, to++) {
        int byte = *from == '%' ? hex_byte(from + 1) : 0;
        if (byte > 0) {
            *to = (char)byte;
            from += 2;
        } else {
            *to = *from;
        }
    }
    *to = 0;
    to = step;
    for (const char *from = step; *from; from++, to++) {
        bool is_escape = *from == '~' && (from[1] == '0' || from[1] == '1');
        *to = is_escape ? (from[1] == '0' ? '~' : '/') : *from;
        from += is_escape;
    }
    *to = 0;
}

/* Returns the index that a step names, without leading zeros (RFC 6901), or -1. */
static int index_named(const char *step) {
    size_t n = strspn(step, "0123456789");
    bool is_index = n > 0 && n < 10 && !step[n] && (step[0] != '0' || n == 1);
    return is_index ? atoi(step) : -1;
}

static const struct json *child_named(struct schema_reader *r, const struct json *parent,
                                      const char *name) {
    if (json_is(parent, JSON_OBJECT)) return schema_member(r, parent, name);
    return schema_element(r, parent, index_named(name));
}

const struct json *schema_target(struct schema_reader *r, const struct json *ref) {
    const struct json *at = r->root;
    const char *place = json_text(ref);
    if (place[0] != '#' || (place[1] && place[1] != '/')) {
        schema_cannot(r, ref,
                      "refers to \"%.100s\"; only places in this schema are served, as "
                      "\"#/$defs/name\".",
                      place);
        return NULL;
    }
    char *steps = mem_strdup(place + 1), *save = NULL;
    for (char *step = steps[0] ? strsep((save = steps + 1, &save), "/") : NULL; step && at;
         step = strsep(&save, "/")) {
        unescape(step);
        at = child_named(r, at, step);
    }
    mem_free(steps);
    if (at && is_schema(at)) {
        schema_check(r, at); /* the target may be outside all checked schemas */
        return at;
    }
    schema_cannot(r, ref, "refers to \"%.100s\", which is not a schema.", place);
    return NULL;
}
