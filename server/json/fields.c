/* Checks the fields of a body against a table: types, ranges and defaults. A field's `check`
 * handles all other conditions. */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/json/json.h"

enum status field_wrong_type(struct parse *parse, const char *name, const char *right,
                             const struct json *value) {
    return err_set(parse->err, STATUS_INVALID_REQUEST, name, "'%s' must be %s, but it is %s.", name,
                   right, json_type_name(value));
}

enum status field_wrong(struct parse *parse, const char *name, const char *message) {
    return err_set(parse->err, STATUS_INVALID_REQUEST, name, "'%s' %s.", name, message);
}

enum status field_code(struct parse *parse, const char *code) {
    if (parse->err) snprintf(parse->err->code, sizeof parse->err->code, "%s", code);
    return STATUS_INVALID_REQUEST;
}

/* ---- numbers -------------------------------------------------------------------------------- */

static enum status out_of_range(struct parse *parse, const struct field *field, const char *name,
                                double value) {
    char low[64] = "", high[64] = "";
    double open = field->type == FIELD_INT ? (double)INT32_MAX : (double)FLT_MAX;
    snprintf(low, sizeof low, field->above_min ? "greater than %.10g" : "at least %.10g",
             field->min);
    if (field->max < open || value > field->max) {
        snprintf(high, sizeof high, " and at most %.10g", field->max);
    }
    return err_set(parse->err, STATUS_INVALID_REQUEST, name, "'%s' must be %s%s, but it is %.10g.",
                   name, low, high, value);
}

static enum status check_range(struct parse *parse, const struct field *field, const char *name,
                               double value) {
    bool inside =
        value <= field->max && (field->above_min ? value > field->min : value >= field->min);
    return inside ? STATUS_OK : out_of_range(parse, field, name, value);
}

static enum status store_int(struct parse *parse, const struct field *field, const char *name,
                             const struct json *value, int *to) {
    if (!json_is(value, JSON_NUMBER)) return field_wrong_type(parse, name, "an integer", value);
    if (!json_is_integer(value)) {
        if (json_number(value) == floor(json_number(value))) {
            return out_of_range(parse, field, name, json_number(value));
        }
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "'%s' must be an integer, but it is %.10g.", name, json_number(value));
    }
    enum status status = check_range(parse, field, name, (double)json_integer(value));
    if (status == STATUS_OK && to) *to = (int)json_integer(value);
    return status;
}

static enum status store_real(struct parse *parse, const struct field *field, const char *name,
                              const struct json *value, float *to) {
    if (!json_is(value, JSON_NUMBER)) return field_wrong_type(parse, name, "a number", value);
    enum status status = check_range(parse, field, name, json_number(value));
    if (status != STATUS_OK || !to) return status;
    /* A positive number must not become a float of zero, or a denormal one: division by it
     * overflows. */
    const double smallest = 1e-6;
    *to = (float)(json_number(value) > 0 && json_number(value) < smallest ? smallest
                                                                          : json_number(value));
    return STATUS_OK;
}

/* ---- one field ------------------------------------------------------------------------------ */

static void *place(struct parse *parse, const struct field *field) {
    return field->offset == FIELD_NOT_STORED ? NULL : (char *)parse->target + field->offset;
}

static void store_default(struct parse *parse, const struct field *field) {
    void *to = place(parse, field);
    if (!to) return;
    if (field->type == FIELD_BOOL) *(bool *)to = field->fallback != 0;
    if (field->type == FIELD_INT) *(int *)to = (int)field->fallback;
    if (field->type == FIELD_REAL) *(float *)to = (float)field->fallback;
    if (field->type == FIELD_OBJECT) *(const struct json **)to = NULL;
}

enum status field_store(struct parse *parse, const struct field *field, const char *name,
                        const struct json *value) {
    void *to = place(parse, field);
    assert(!json_is(value, JSON_NULL)); /* null counts as absent */
    switch (field->type) {
    case FIELD_BOOL:
        if (!json_is(value, JSON_BOOL))
            return field_wrong_type(parse, name, "true or false", value);
        if (to) *(bool *)to = json_true(value);
        return STATUS_OK;
    case FIELD_INT:
        return store_int(parse, field, name, value, to);
    case FIELD_REAL:
        return store_real(parse, field, name, value, to);
    case FIELD_STRING:
        return json_is(value, JSON_STRING) ? STATUS_OK
                                           : field_wrong_type(parse, name, "a string", value);
    case FIELD_ARRAY:
        return json_is(value, JSON_ARRAY) ? STATUS_OK
                                          : field_wrong_type(parse, name, "an array", value);
    case FIELD_OBJECT:
        if (!json_is(value, JSON_OBJECT)) return field_wrong_type(parse, name, "an object", value);
        if (to) *(const struct json **)to = value;
        return STATUS_OK;
    case FIELD_ANY:
        break;
    }
    return STATUS_OK;
}

/* ---- all fields ----------------------------------------------------------------------------- */

static int find_field(const struct parse *parse, const char *name) {
    for (int i = 0; i < parse->n_fields; i++) {
        if (strcmp(parse->fields[i].name, name) == 0) return i;
    }
    return -1;
}

const struct json *field_given(const struct parse *parse, const char *name) {
    int i = find_field(parse, name);
    assert(i >= 0);
    return parse->value[i];
}

static bool is_absent(const struct field *field, const struct json *value) {
    bool is_false = json_is(value, JSON_BOOL) && !json_true(value);
    return json_is(value, JSON_NULL) || (field->takes_false && is_false);
}

enum status fields_parse(struct parse *parse, const struct json *object) {
    assert(parse->n_fields <= MAX_FIELDS);
    assert(parse->arena && parse->limits && json_is(object, JSON_OBJECT));
    parse->object = object;
    memset(parse->value, 0, sizeof parse->value);
    json_each(member, object) { /* one pass, for any number of members */
        int i = find_field(parse, member->name);
        if (i >= 0) parse->value[i] = is_absent(&parse->fields[i], member) ? NULL : member;
    }
    for (int i = 0; i < parse->n_fields; i++) {
        const struct field *field = &parse->fields[i];
        const char *other = field->same_as; /* its default counts for both names */
        if (!other) store_default(parse, field);
        if (other && field_given(parse, field->name) && field_given(parse, other))
            return err_set(parse->err, STATUS_INVALID_REQUEST, field->name,
                           "'%s' is another name of '%s': give only one.", field->name, other);
        if (!parse->value[i]) continue;
        enum status status = field_store(parse, field, field->name, parse->value[i]);
        if (status == STATUS_OK && field->check) {
            status = field->check(parse, field->name, parse->value[i]);
        }
        if (status != STATUS_OK) return status;
    }
    return STATUS_OK;
}

/* ---- translated bodies ---------------------------------------------------------------------- */

const struct field *fields_find(const struct field_table *table, const char *name) {
    for (int i = 0; i < table->n_fields; i++)
        if (strcmp(table->fields[i].name, name) == 0) return &table->fields[i];
    return NULL;
}

const struct json *fields_member(const struct field_table *table, const struct json *object,
                                 const char *name) {
    const struct json *value = json_member(object, name);
    assert(fields_find(table, name));
    return value && !json_is(value, JSON_NULL) ? value : NULL;
}

enum status fields_check(const struct field_table *table, const struct json *object,
                         struct err *err) {
    struct parse parse = {.fields = table->fields, .n_fields = table->n_fields, .err = err};
    for (int i = 0; i < table->n_fields; i++) {
        const struct field *field = &table->fields[i];
        const struct json *value = fields_member(table, object, field->name);
        assert(field->offset == FIELD_NOT_STORED);
        if (!value || field->copied_to) continue;
        enum status status = field_store(&parse, field, field->name, value);
        if (status != STATUS_OK) return status;
    }
    return STATUS_OK;
}

void fields_copy(const struct field_table *table, const struct json *object, struct buf *out) {
    const char *comma = "";
    for (int i = 0; i < table->n_fields; i++) {
        const struct field *field = &table->fields[i];
        const struct json *value = fields_member(table, object, field->name);
        if (!value || !field->copied_to) continue;
        buf_printf(out, "%s\"%s\":", comma, field->copied_to);
        json_write_value(out, value);
        comma = ",";
    }
}

/* ---- shared by several bodies --------------------------------------------------------------- */

#define BODY_ARENA_BYTES ((size_t)32 << 20)

enum status body_check(struct parse *parse, struct json *json) {
    if (!json_is(json, JSON_OBJECT)) {
        enum status status =
            err_set(parse->err, STATUS_INVALID_REQUEST, NULL,
                    "The body must be a JSON object, but it is %s.", json_type_name(json));
        json_free(json);
        return status;
    }
    parse->arena = arena_new(BODY_ARENA_BYTES);
    return STATUS_OK;
}

enum status body_parse(struct parse *parse, const char *body, size_t length, struct json **json) {
    enum status status = json_parse_strict(json, "The body", body, length, parse->err);
    return status == STATUS_OK ? body_check(parse, *json) : status;
}
