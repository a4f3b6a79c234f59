/* Reads constraints on an answer's text from the fields of OpenAI, vLLM and llama-server. A request
 * may have one of them. This code stores the kind and the text; a worker compiles them later
 * (server/generation/constrain.c). */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "server/openai/internal.h"

/* Maps a field or a member to its kind of grammar. */
static const struct grammar_source {
    const char *name;
    enum grammar_kind kind;
} fields[] = {{"guided_json", GRAMMAR_JSON_SCHEMA},       {"guided_regex", GRAMMAR_REGEX},
              {"guided_choice", GRAMMAR_CHOICE},          {"guided_grammar", GRAMMAR_GBNF},
              {"structural_tag", GRAMMAR_STRUCTURAL_TAG}, {"grammar", GRAMMAR_GBNF},
              {"json_schema", GRAMMAR_JSON_SCHEMA}},
  members[] = {{"json", GRAMMAR_JSON_SCHEMA}, {"json_object", GRAMMAR_JSON_OBJECT},
               {"regex", GRAMMAR_REGEX},      {"choice", GRAMMAR_CHOICE},
               {"grammar", GRAMMAR_GBNF},     {"structural_tag", GRAMMAR_STRUCTURAL_TAG}};

enum { N_SOURCES = sizeof fields / sizeof *fields, N_MEMBERS = sizeof members / sizeof *members };

static const struct grammar_source *find(const struct grammar_source *sources, int n,
                                         const char *name) {
    for (int i = 0; i < n; i++)
        if (strcmp(sources[i].name, name) == 0) return &sources[i];
    return NULL;
}

/* ---- one grammar ---------------------------------------------------------------------------- */

static enum status keep(struct parse *parse, const char *name, enum grammar_kind kind,
                        const char *text, size_t length) {
    struct api_grammar *grammar = &((struct api_request *)parse->target)->grammar;
    if (grammar->field)
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "'%s' and '%s' both constrain the answer: give only one.", name,
                       grammar->field);
    grammar->kind = kind;
    grammar->length = length;
    grammar->text = arena_strndup(parse->arena, text, length);
    grammar->field = arena_strndup(parse->arena, name, strlen(name));
    if (grammar->text && grammar->field) return STATUS_OK;
    return err_set(parse->err, STATUS_UNAVAILABLE, name, "Not enough memory.");
}

/* Stores a value as JSON text. */
static enum status keep_json(struct parse *parse, const char *name, enum grammar_kind kind,
                             const struct json *value) {
    struct buf text = {0};
    json_write_value(&text, value);
    enum status status = keep(parse, name, kind, text.data, text.length);
    buf_free(&text);
    return status;
}

/* Stores a constraint. An empty string, an empty list or `false` adds none. */
static enum status keep_value(struct parse *parse, const char *name, enum grammar_kind kind,
                              const struct json *value) {
    bool is_text = json_is(value, JSON_STRING);
    switch (kind) {
    case GRAMMAR_JSON_OBJECT:
        if (!json_is(value, JSON_BOOL)) return field_wrong_type(parse, name, "true", value);
        return json_true(value) ? keep(parse, name, kind, "", 0) : STATUS_OK;
    case GRAMMAR_CHOICE:
        if (!json_is(value, JSON_ARRAY))
            return field_wrong_type(parse, name, "an array of strings", value);
        json_each(text, value) {
            if (!json_is(text, JSON_STRING))
                return field_wrong_type(parse, name, "an array of strings", text);
        }
        return json_first(value) ? keep_json(parse, name, kind, value) : STATUS_OK;
    case GRAMMAR_JSON_SCHEMA:
    case GRAMMAR_JSON_SCHEMA_STRICT:
    case GRAMMAR_STRUCTURAL_TAG:
        if (json_is(value, JSON_OBJECT)) return keep_json(parse, name, kind, value);
        if (!is_text) return field_wrong_type(parse, name, "an object, or its JSON text", value);
        break;
    case GRAMMAR_REGEX:
    case GRAMMAR_GBNF:
        if (!is_text) return field_wrong_type(parse, name, "a string", value);
    }
    return json_length(value) > 0 ? keep(parse, name, kind, json_text(value), json_length(value))
                                  : STATUS_OK;
}

enum status check_constraint(struct parse *parse, const char *name, const struct json *value) {
    const struct grammar_source *source = find(fields, N_SOURCES, name);
    assert(source);
    return keep_value(parse, name, source->kind, value);
}

/* ---- structured_outputs --------------------------------------------------------------------- */

/* Checks the settings of a constraint, vLLM's and a schema's "strict". White space and additional
 * properties cannot be configured, so these settings must be off. */
static enum status check_setting(struct parse *parse, const char *path, const struct json *member) {
    static const char *const known[] = {"disable_any_whitespace", "disable_additional_properties",
                                        "whitespace_pattern", "disable_fallback"};
    bool is_known = false, off = json_is(member, JSON_BOOL) && !json_true(member);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        is_known |= strcmp(member->name, known[i]) == 0;
    if (strcmp(member->name, "strict") == 0) {
        if (json_is(member, JSON_BOOL)) return STATUS_OK;
        return field_wrong_type(parse, path, "a boolean", member);
    }
    if (is_known && (off || strcmp(member->name, "disable_fallback") == 0)) return STATUS_OK;
    if (is_known) return not_served(parse, path, "");
    return err_set(parse->err, STATUS_INVALID_REQUEST, path,
                   "'%s' is not known: 'structured_outputs' has one of 'json', 'json_object', "
                   "'regex', 'choice', 'grammar' and 'structural_tag'.",
                   path);
}

enum status check_structured_outputs(struct parse *parse, const char *name,
                                     const struct json *value) {
    static const char one_of[] = "must have exactly one of 'json', 'json_object', 'regex', "
                                 "'choice', 'grammar' and 'structural_tag'";
    bool is_strict = json_true(json_member(value, "strict"));
    int n = 0;
    json_each_member(member, value) {
        char path[160];
        int shown = utf8_cut(member->name, strlen(member->name), 64);
        if (json_is(member, JSON_NULL)) continue;
        snprintf(path, sizeof path, "%s.%.*s", name, shown, member->name);
        const struct grammar_source *source = find(members, N_MEMBERS, member->name);
        if (source && n++ > 0) return field_wrong(parse, name, one_of);
        bool is_schema = source && source->kind == GRAMMAR_JSON_SCHEMA;
        enum grammar_kind kind = is_schema && is_strict ? GRAMMAR_JSON_SCHEMA_STRICT
                                 : source               ? source->kind
                                                        : GRAMMAR_JSON_OBJECT;
        enum status status =
            source ? keep_value(parse, path, kind, member) : check_setting(parse, path, member);
        if (status != STATUS_OK) return status;
    }
    return n == 1 ? STATUS_OK : field_wrong(parse, name, one_of);
}

/* ---- response_format ------------------------------------------------------------------------ */

static enum status keep_schema(struct parse *parse, const char *path, const struct json *schema,
                               bool is_strict) {
    if (!schema) return field_wrong(parse, path, "is missing");
    if (!json_is(schema, JSON_OBJECT)) return field_wrong_type(parse, path, "an object", schema);
    return keep_json(parse, path, is_strict ? GRAMMAR_JSON_SCHEMA_STRICT : GRAMMAR_JSON_SCHEMA,
                     schema);
}

enum status check_response_format(struct parse *parse, const char *name, const struct json *value) {
    const struct json *type = json_member(value, "type");
    const struct json *own = json_member(value, "schema"); /* llama-server's field */
    if (!json_is(type, JSON_STRING)) return field_wrong(parse, name, "must have a string 'type'");
    if (json_is_text(type, "text")) return STATUS_OK;
    if (json_is_text(type, "structural_tag"))
        return keep_json(parse, name, GRAMMAR_STRUCTURAL_TAG, value);
    if (json_is_text(type, "json_object")) {
        if (own) return keep_schema(parse, "response_format.schema", own, false);
        return keep(parse, name, GRAMMAR_JSON_OBJECT, "", 0);
    }
    if (!json_is_text(type, "json_schema"))
        return field_wrong(parse, name,
                           "must have the 'type' \"text\", \"json_object\", \"json_schema\" or "
                           "\"structural_tag\"");
    const struct json *format = json_member(value, "json_schema");
    if (format && !json_is(format, JSON_OBJECT))
        return field_wrong_type(parse, "response_format.json_schema", "an object", format);
    return keep_schema(parse, "response_format.json_schema.schema", json_member(format, "schema"),
                       json_true(json_member(format, "strict")));
}
