/* Reads and writes OpenAI's batch files: input files with one request per line, output files with
 * one response per line. */
#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "server/apis/apis.h"
#include "server/json/json.h"

static enum status wrong(struct err *err, enum status status, const char *name,
                         const char *message) {
    return err_set(err, status, name, "'%s' %s.", name, message);
}

static const struct json *member(const struct json *line, const char *name) {
    const struct json *value = json_member(line, name);
    return value && !json_is(value, JSON_NULL) ? value : NULL;
}

static enum status unknown_url(struct err *err) {
    struct buf paths = {0};
    for (int i = 0; api_at(i); i++) {
        if (i > 0) buf_puts(&paths, api_at(i + 1) ? ", " : " or ");
        buf_puts(&paths, api_at(i)->path);
    }
    err_set(err, STATUS_NOT_FOUND, "url", "'url' must be %s.", paths.data);
    buf_free(&paths);
    return STATUS_NOT_FOUND;
}

static enum status parse_line(struct api_batch_line *line, struct json *json, struct err *err) {
    const struct json *id = member(json, "custom_id"), *url = member(json, "url");
    const struct json *method = member(json, "method");
    if (!json_is(json, JSON_OBJECT)) {
        return err_set(err, STATUS_INVALID_REQUEST, NULL,
                       "The line must be a JSON object, but it is %s.", json_type_name(json));
    }
    if (!id) return wrong(err, STATUS_INVALID_REQUEST, "custom_id", "is missing");
    if (!json_is(id, JSON_STRING) || json_length(id) == 0) {
        return wrong(err, STATUS_INVALID_REQUEST, "custom_id", "must be a string, and not empty");
    }
    json_write_string(&line->custom_id, json_text(id), json_length(id));
    if (!url) return wrong(err, STATUS_INVALID_REQUEST, "url", "is missing");
    line->api = json_is(url, JSON_STRING) ? api_find(json_text(url)) : NULL;
    if (!line->api) return unknown_url(err);
    if (method && !json_is_text(method, "POST")) {
        return wrong(err, STATUS_METHOD_NOT_ALLOWED, "method", "must be POST");
    }
    if (!member(json, "body")) return wrong(err, STATUS_INVALID_REQUEST, "body", "is missing");
    line->body = json_detach(json, "body");
    return STATUS_OK;
}

enum status api_batch_parse(struct api_batch_line *line, const char *text, size_t length,
                            struct err *err) {
    struct json *json;
    *line = (struct api_batch_line){0};
    enum status status = json_parse_strict(&json, "The body", text, length, err);
    if (status != STATUS_OK) return status;
    status = parse_line(line, json, err);
    assert((status == STATUS_OK) == (line->body != NULL));
    json_free(json);
    return status;
}

void api_batch_free(struct api_batch_line *line) {
    buf_free(&line->custom_id);
    json_free(line->body);
    line->body = NULL;
}

/* ---- output --------------------------------------------------------------------------------- */

static void write_start(struct buf *out, int64_t number, const char *custom_id) {
    buf_puts(out, API_BATCH_START);
    json_write_int(out, number);
    buf_puts(out, "\",\"custom_id\":");
    buf_puts(out, custom_id);
    buf_puts(out, ",\"response\":");
}

void api_batch_write_response(struct buf *out, int64_t number, const struct buf *custom_id,
                              int http_status, const char *request_id, const struct buf *ignored,
                              const struct buf *body) {
    assert(custom_id->length > 0 && body->length > 0);
    write_start(out, number, custom_id->data);
    buf_puts(out, "{\"status_code\":");
    json_write_int(out, http_status);
    buf_puts(out, ",\"request_id\":");
    json_write_string(out, request_id, strlen(request_id));
    if (ignored->length > 0) {
        buf_puts(out, ",\"headers\":{\"x-penstock-ignored\":");
        json_write_string(out, ignored->data, ignored->length);
        buf_puts(out, "}");
    }
    buf_puts(out, ",\"body\":");
    buf_add(out, body->data, body->length);
    buf_puts(out, "},\"error\":null}\n");
}

void api_batch_write_error(struct buf *out, int64_t number, const struct err *err) {
    const char *code = err->code[0] ? err->code : "invalid_line";
    write_start(out, number, "null");
    buf_puts(out, "null,\"error\":{\"code\":");
    json_write_string(out, code, strlen(code));
    buf_puts(out, ",\"message\":");
    json_write_string(out, err->message, strlen(err->message));
    buf_puts(out, "}}\n");
}

/* ---- keys of lines -------------------------------------------------------------------------- */

void api_batch_key(struct buf *out, int64_t number, const struct buf *custom_id) {
    if (custom_id->length > 0)
        buf_add(out, custom_id->data, custom_id->length);
    else
        json_write_int(out, number);
}

/* Returns the end of the JSON string at `p`, or NULL. */
static const char *string_end(const char *p, const char *end) {
    if (p == end || *p++ != '"') return NULL;
    while (p < end && *p != '"') p += *p == '\\' && end - p > 1 ? 2 : 1;
    return p < end ? p + 1 : NULL;
}

bool api_batch_read_key(struct buf *out, const char *text, size_t length) {
    static const char name[] = "\",\"custom_id\":";
    const size_t n_start = sizeof API_BATCH_START - 1, n_name = sizeof name - 1;
    const char *end = text + length;
    if (length < n_start || memcmp(text, API_BATCH_START, n_start) != 0) return false;
    const char *number = text + n_start, *p = number;
    while (p < end && isdigit((unsigned char)*p)) p++;
    size_t n_number = (size_t)(p - number);
    if (n_number == 0 || (size_t)(end - p) < n_name || memcmp(p, name, n_name) != 0) return false;
    p += n_name;
    const char *close = string_end(p, end);
    if (close) {
        buf_add(out, p, (size_t)(close - p));
        return true;
    }
    if (end - p < 4 || memcmp(p, "null", 4) != 0) return false;
    buf_add(out, number, n_number);
    return true;
}
