/* Checks the fields of a body against a table: type, range, default. What a table cannot say is a
 * field's `check`. */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/api_internal.h"

enum status field_wrong_type(struct parse *parse, const char *name, const char *right,
                             const cJSON *value) {
    return err_set(parse->err, STATUS_INVALID_REQUEST, name, "'%s' must be %s, but it is %s.", name,
                   right, json_type_name(value));
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
                             const cJSON *value, int *to) {
    int64_t integer;
    if (!cJSON_IsNumber(value)) return field_wrong_type(parse, name, "an integer", value);
    if (!json_integer(value, &integer)) {
        if (value->valuedouble == floor(value->valuedouble)) {
            return out_of_range(parse, field, name, value->valuedouble);
        }
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "'%s' must be an integer, but it is %.10g.", name, value->valuedouble);
    }
    enum status status = check_range(parse, field, name, (double)integer);
    if (status == STATUS_OK && to) *to = (int)integer;
    return status;
}

/* Keeps a real number as a float. A double above zero must not become a float of zero, nor a
 * denormal one that overflows when something is divided by it. */
static float to_float(double value) {
    const double least = 1e-6;
    return value > 0 && value < least ? (float)least : (float)value;
}

static enum status store_real(struct parse *parse, const struct field *field, const char *name,
                              const cJSON *value, float *to) {
    if (!cJSON_IsNumber(value)) return field_wrong_type(parse, name, "a number", value);
    enum status status = check_range(parse, field, name, value->valuedouble);
    if (status == STATUS_OK && to) *to = to_float(value->valuedouble);
    return status;
}

/* ---- one field ------------------------------------------------------------------------------ */

static void *place(struct parse *parse, const struct field *field) {
    return field->offset == FIELD_NOT_KEPT ? NULL : (char *)parse->target + field->offset;
}

static void store_default(struct parse *parse, const struct field *field) {
    void *to = place(parse, field);
    if (!to) return;
    if (field->type == FIELD_BOOL) *(bool *)to = field->otherwise != 0;
    if (field->type == FIELD_INT) *(int *)to = (int)field->otherwise;
    if (field->type == FIELD_REAL) *(float *)to = (float)field->otherwise;
    if (field->type == FIELD_OBJECT) *(const cJSON **)to = NULL;
}

enum status field_store(struct parse *parse, const struct field *field, const char *name,
                        const cJSON *value) {
    void *to = place(parse, field);
    switch (field->type) {
    case FIELD_BOOL:
        if (!cJSON_IsBool(value)) return field_wrong_type(parse, name, "true or false", value);
        if (to) *(bool *)to = cJSON_IsTrue(value);
        return STATUS_OK;
    case FIELD_INT:
        return store_int(parse, field, name, value, to);
    case FIELD_REAL:
        return store_real(parse, field, name, value, to);
    case FIELD_STRING:
        return cJSON_IsString(value) ? STATUS_OK : field_wrong_type(parse, name, "a string", value);
    case FIELD_ARRAY:
        return cJSON_IsArray(value) ? STATUS_OK : field_wrong_type(parse, name, "an array", value);
    case FIELD_OBJECT:
        if (!cJSON_IsObject(value)) return field_wrong_type(parse, name, "an object", value);
        if (to) *(const cJSON **)to = value;
        return STATUS_OK;
    case FIELD_ANY:
        break;
    }
    return STATUS_OK;
}

/* ---- all fields ----------------------------------------------------------------------------- */

static int find_field(const struct parse *parse, const char *name) {
    for (int i = 0; i < parse->n_fields; i++) {
        const struct field *field = &parse->fields[i];
        if ((field->kinds & parse->kind) && strcmp(field->name, name) == 0) return i;
    }
    return -1;
}

const cJSON *field_given(const struct parse *parse, const char *name) {
    int i = find_field(parse, name);
    assert(i >= 0);
    return parse->value[i];
}

/* One pass over the members, however many there are. */
static void sort_members(struct parse *parse, const cJSON *object) {
    memset(parse->value, 0, sizeof parse->value);
    for (const cJSON *member = object->child; member; member = member->next) {
        int i = find_field(parse, member->string);
        if (i >= 0) parse->value[i] = cJSON_IsNull(member) ? NULL : member;
    }
}

enum status fields_parse(struct parse *parse, const cJSON *object) {
    assert(parse->n_fields <= MAX_FIELDS);
    sort_members(parse, object);
    for (int i = 0; i < parse->n_fields; i++) {
        const struct field *field = &parse->fields[i];
        if (!(field->kinds & parse->kind)) continue;
        store_default(parse, field);
        if (!parse->value[i]) continue;
        enum status status = field_store(parse, field, field->name, parse->value[i]);
        if (status == STATUS_OK && field->check) {
            status = field->check(parse, field->name, parse->value[i]);
        }
        if (status != STATUS_OK) return status;
    }
    return STATUS_OK;
}

/* ---- what several bodies have --------------------------------------------------------------- */

#define BODY_ARENA_BYTES ((size_t)32 << 20)

enum status body_take(struct parse *parse, cJSON *json) {
    if (!cJSON_IsObject(json)) {
        enum status status =
            err_set(parse->err, STATUS_INVALID_REQUEST, NULL,
                    "The body must be a JSON object, but it is %s.", json_type_name(json));
        cJSON_Delete(json);
        return status;
    }
    parse->arena = arena_new(BODY_ARENA_BYTES);
    return STATUS_OK;
}

enum status body_parse(struct parse *parse, const char *body, size_t length, cJSON **json) {
    enum status status = json_parse(json, body, length, parse->err);
    return status == STATUS_OK ? body_take(parse, *json) : status;
}

enum status check_model(struct parse *parse, const char *name, const cJSON *value) {
    size_t length = strlen(parse->limits->model);
    bool same = json_string_length(value) == length &&
                memcmp(value->valuestring, parse->limits->model, length) == 0;
    if (same) return STATUS_OK;
    int shown = utf8_cut(value->valuestring, strlen(value->valuestring), 128);
    err_set(parse->err, STATUS_NOT_FOUND, name,
            "The model '%.*s' does not exist: this server serves '%.128s'.", shown,
            value->valuestring, parse->limits->model);
    field_code(parse, "model_not_found");
    return STATUS_NOT_FOUND;
}

static enum status wrong_id(struct parse *parse, const char *name, int i, const cJSON *value) {
    const int V = parse->limits->V;
    if (!cJSON_IsNumber(value)) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "'%s[%d]' must be a token id, but it is %s.", name, i,
                       json_type_name(value));
    }
    return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                   "'%s[%d]' must be a token id in 0..%d, but it is %.17g.", name, i, V - 1,
                   value->valuedouble);
}

enum status field_ids(struct parse *parse, const char *name, const cJSON *array, int most,
                      int32_t **ids, int *n) {
    int count = cJSON_GetArraySize(array), i = 0;
    if (count > most) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "'%s' may hold at most %d token ids, but it holds %d.", name, most, count);
    }
    *ids = arena_alloc(parse->arena, (size_t)count * sizeof **ids);
    *n = count;
    if (!*ids) {
        return err_set(parse->err, STATUS_UNAVAILABLE, name, "Not enough memory for '%s'.", name);
    }
    for (const cJSON *value = array->child; value; value = value->next, i++) {
        int64_t id;
        bool right = json_integer(value, &id) && id >= 0 && id < parse->limits->V;
        if (!right) return wrong_id(parse, name, i, value);
        (*ids)[i] = (int32_t)id;
    }
    return STATUS_OK;
}
