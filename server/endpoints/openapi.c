/* Writes /openapi.json from the table of routes and the tables of fields that check the bodies, so
 * that it names them all. The document is written once, when the routes are known. */
#include <assert.h>
#include <ctype.h>
#include <stdint.h>
#include <string.h>

#include "server/endpoints/endpoints.h"
#include "server/json/json.h"

/* ---- fields --------------------------------------------------------------------------------- */

/* A null field counts as absent. */
static const char *const types[] = {
    [FIELD_BOOL] = "boolean",  [FIELD_INT] = "integer", [FIELD_REAL] = "number",
    [FIELD_STRING] = "string", [FIELD_ARRAY] = "array", [FIELD_OBJECT] = "object",
};

static void write_range(struct buf *out, const struct field *field) {
    bool is_int = field->type == FIELD_INT;
    bool has_min = !is_int || field->min > INT32_MIN;
    bool has_max = !is_int || field->max < INT32_MAX;
    const char *name = field->above_min ? "exclusiveMinimum" : "minimum";
    if (has_min) buf_printf(out, ",\"%s\":%.10g", name, field->min);
    if (has_max) buf_printf(out, ",\"maximum\":%.10g", field->max);
}

/* Numbers out of the range mark absence. */
static void write_default(struct buf *out, const struct field *field) {
    double value = field->fallback;
    bool is_number = field->type == FIELD_INT || field->type == FIELD_REAL;
    bool is_inside = value >= field->min && value <= field->max;
    if (field->offset == FIELD_NOT_STORED || field->same_as) return;
    if (field->type == FIELD_BOOL) {
        buf_printf(out, ",\"default\":%s", value != 0 ? "true" : "false");
    } else if (is_number && is_inside) {
        buf_printf(out, ",\"default\":%.10g", value);
    }
}

/* `base`: the table of the fields to which a translation copies; the others are those of
 * embeddings. */
static void write_field(struct buf *out, const struct field *field,
                        const struct field_table *base) {
    buf_printf(out, "\"%s\":{", field->name);
    const struct field *row = field->copied_to ? fields_find(base, field->copied_to) : NULL;
    if (field->copied_to && !row) row = fields_find(&embedding_fields, field->copied_to);
    assert(row || !field->copied_to);
    if (!row) row = field;
    if (row->type != FIELD_ANY) {
        const char *or_null = field->required ? "" : ",\"null\"";
        const char *or_false = row->takes_false ? ",\"boolean\"" : "";
        buf_printf(out, "\"type\":[\"%s\"%s%s]", types[row->type], or_false, or_null);
        if (row->type == FIELD_INT || row->type == FIELD_REAL) write_range(out, row);
        if (row->takes_false) buf_puts(out, ",\"not\":{\"const\":true}");
        write_default(out, row);
    }
    if (field->same_as) {
        buf_printf(out, "%s\"description\":\"Another name of '%s'.\"",
                   row->type == FIELD_ANY ? "" : ",", field->same_as);
    }
    buf_puts(out, "}");
}

/* Writes the fields of a table that are not in `other`, and returns the separator of the next. */
static const char *write_fields(struct buf *out, const char *comma, const struct field_table *table,
                                const struct field_table *other, const struct field_table *base) {
    for (int i = 0; table && i < table->n_fields; i++) {
        if (other && fields_find(other, table->fields[i].name)) continue;
        buf_puts(out, comma);
        write_field(out, &table->fields[i], base);
        comma = ",";
    }
    return comma;
}

static void write_required(struct buf *out, const struct field_table *const tables[2]) {
    const char *before = ",\"required\":[";
    bool is_open = false;
    for (int t = 0; t < 2; t++) {
        for (int i = 0; tables[t] && i < tables[t]->n_fields; i++) {
            const char *name = tables[t]->fields[i].name;
            bool has_own_row = t == 1 && fields_find(tables[0], name);
            if (!tables[t]->fields[i].required || has_own_row) continue;
            buf_printf(out, "%s\"%s\"", before, name);
            before = ",";
            is_open = true;
        }
    }
    if (is_open) buf_puts(out, "]");
}

/* Writes the schema of a body. Unknown fields are ignored, so they are allowed. */
static void write_body(struct buf *out, const struct field_table *fields,
                       const struct field_table *more) {
    const struct field_table *const tables[] = {fields, more};
    const struct field_table *base = more ? more : &chat_fields;
    assert(fields && fields->n_fields > 0);
    buf_puts(out, "{\"type\":\"object\"");
    write_required(out, tables);
    buf_puts(out, ",\"properties\":{");
    write_fields(out, write_fields(out, "", fields, NULL, base), more, fields, base);
    buf_puts(out, "}}");
}

/* ---- answers -------------------------------------------------------------------------------- */

/* Writes the schema of an object with these members, which are separated by spaces. */
static void write_members(struct buf *out, const char *names) {
    const char *comma = "";
    if (!names) {
        buf_puts(out, "{}");
        return;
    }
    buf_puts(out, "{\"type\":\"object\",\"required\":[");
    while (*names) {
        int n = (int)strcspn(names, " ");
        buf_printf(out, "%s\"%.*s\"", comma, n, names);
        names += n + (int)strspn(names + n, " ");
        comma = ",";
    }
    buf_puts(out, "]}");
}

static void write_answer(struct buf *out, const struct route *route) {
    const struct api *api = route->api;
    buf_printf(out, "\"200\":{\"description\":\"The answer\",\"content\":{\"%s\":{\"schema\":",
               route->type ? route->type : "application/json");
    write_members(out, route->answer_members);
    buf_puts(out, "}");
    if (route->generates && api->stream_type) buf_printf(out, ",\"%s\":{}", api->stream_type);
    buf_puts(out, "}}");
}

/* Every route may fail so: "4XX" is the client's fault, and 503 a lack of memory or of a place. */
static void write_errors(struct buf *out, const struct route *route) {
    static const char *const codes[] = {"4XX", "503"};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        buf_printf(out,
                   ",\"%s\":{\"description\":\"%s\",\"content\":{\"application/json\":", codes[i],
                   i == 0 ? "The request is refused" : "Try again later");
        buf_puts(out, "{\"schema\":");
        write_members(out, route->api ? route->api->error_members : "error");
        buf_puts(out, "}}}");
    }
}

/* ---- routes --------------------------------------------------------------------------------- */

static bool is_prefix(const struct route *route) {
    return route->path[strlen(route->path) - 1] == '/' && route->path[1] != 0;
}

/* Writes a path as part of a name: "v1_chat_completions". */
static void write_name(struct buf *out, const char *path) {
    for (path++; *path; path++) {
        buf_add(out, (char[]){isalnum((unsigned char)*path) ? *path : '_'}, 1);
    }
}

static const struct field_table *fields_of(const struct route *route) {
    return route->api ? route->api->fields : route->fields;
}

static const char *body_path(const struct route *route) {
    return route->api ? route->api->path : route->path;
}

/* Writes a body that the server answers with 200. */
static void write_example(struct buf *out, const struct app *app, const struct route *route) {
    const char *example = route->api ? route->api->example : route->example;
    if (!example) return;
    buf_puts(out, ",\"example\":{\"model\":");
    json_write_string(out, app->model_name, strlen(app->model_name));
    buf_printf(out, "%s%s}", *example ? "," : "", example);
}

static void write_security(struct buf *out, const struct app *app, const struct route *route) {
    const struct keys *keys = route->monitored ? &app->metrics_keys : &app->keys;
    bool is_open = route->public || (keys->n == 0 && !route->admin);
    buf_puts(out, is_open ? ",\"security\":[]" : ",\"security\":[{\"key\":[]}]");
}

static void write_operation(struct buf *out, const struct app *app, const struct route *route) {
    const char *method = strcmp(route->method, "GET") == 0      ? "get"
                         : strcmp(route->method, "DELETE") == 0 ? "delete"
                                                                : "post";
    buf_printf(out, "\"%s\":{\"operationId\":\"%s_", method, method);
    write_name(out, route->path);
    buf_puts(out, "\"");
    if (route->summary) buf_printf(out, ",\"summary\":\"%s\"", route->summary);
    write_security(out, app, route);
    if (is_prefix(route)) {
        buf_puts(out, ",\"parameters\":[{\"name\":\"name\",\"in\":\"path\",\"required\":true,"
                      "\"schema\":{\"type\":\"string\",\"minLength\":1}}]");
    }
    if (fields_of(route)) {
        buf_puts(out, ",\"requestBody\":{\"required\":true,\"content\":{\"application/json\":"
                      "{\"schema\":{\"$ref\":\"#/components/schemas/");
        write_name(out, body_path(route));
        buf_puts(out, "\"}");
        write_example(out, app, route);
        buf_puts(out, "}}}");
    }
    buf_puts(out, ",\"responses\":{");
    write_answer(out, route);
    write_errors(out, route);
    buf_puts(out, "}}");
}

/* Is an earlier route's path, or the body of its path, the same? */
static bool is_repeated(const struct app *app, int i, const char *(*of)(const struct route *)) {
    for (int k = 0; k < i; k++) {
        bool has_body = of != body_path || fields_of(&app->routes[k]);
        if (has_body && strcmp(of(&app->routes[k]), of(&app->routes[i])) == 0) return true;
    }
    return false;
}

static const char *path_of(const struct route *route) {
    return route->path;
}

static void write_paths(struct buf *out, const struct app *app) {
    for (int i = 0; i < app->n_routes; i++) {
        const struct route *first = &app->routes[i];
        const char *comma = "";
        if (is_repeated(app, i, path_of)) continue;
        buf_printf(out, "%s\"%s%s\":{", i > 0 ? "," : "", first->path,
                   is_prefix(first) ? "{name}" : "");
        for (int k = i; k < app->n_routes; k++) {
            if (strcmp(app->routes[k].path, first->path) != 0) continue;
            buf_puts(out, comma);
            write_operation(out, app, &app->routes[k]);
            comma = ",";
        }
        buf_puts(out, "}");
    }
}

static void write_bodies(struct buf *out, const struct app *app) {
    const char *comma = "";
    for (int i = 0; i < app->n_routes; i++) {
        const struct route *route = &app->routes[i];
        if (!fields_of(route) || is_repeated(app, i, body_path)) continue;
        buf_printf(out, "%s\"", comma);
        write_name(out, body_path(route));
        buf_puts(out, "\":");
        write_body(out, fields_of(route), route->api ? route->api->more_fields : NULL);
        comma = ",";
    }
}

/* ---- the document --------------------------------------------------------------------------- */

/* The version is that of the document: the program's is in /version, which needs a key. */
void openapi_write(struct buf *out, const struct app *app) {
    assert(app->n_routes > 0 && out->length == 0);
    buf_puts(out, "{\"openapi\":\"3.1.0\",\"info\":{\"title\":\"Penstock\",\"version\":\"1\","
                  "\"description\":\"An inference server for language models. GET includes HEAD. "
                  "Unknown fields are ignored, and a null field counts as absent.\"},\"paths\":{");
    write_paths(out, app);
    buf_puts(out, "},\"components\":{\"securitySchemes\":{\"key\":{\"type\":\"http\","
                  "\"scheme\":\"bearer\"}},\"schemas\":{");
    write_bodies(out, app);
    buf_puts(out, "}}}");
}

void openapi_answer(struct app *app, struct http_request *http) {
    assert(app->openapi.length > 0);
    http_respond(http, 200, "application/json", app->openapi.data, app->openapi.length, NULL, 0);
    http_release(http);
}
