/* /v1/load_lora_adapter and /v1/unload_lora_adapter, with vLLM's bodies, for admin keys. Reading an
 * adapter takes a while, so both run on a worker.
 *
 * Clients load only from the folder --lora-dir. A path may not leave it by "..", nor by a link: the
 * real paths of the adapter and of its files are compared with the folder's. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "server/app/adapters.h"
#include "server/endpoints/endpoints.h"
#include "server/json/json.h"

static const struct field load_rows[] = {
    {"lora_name", FIELD_STRING, FIELD_NOT_STORED, .required = true},
    {"lora_path", FIELD_STRING, FIELD_NOT_STORED, .required = true},
    {"load_inplace", FIELD_BOOL, FIELD_NOT_STORED},
};
const struct field_table lora_load_fields = {FIELDS_OF(load_rows)};

static const struct field unload_rows[] = {
    {"lora_name", FIELD_STRING, FIELD_NOT_STORED, .required = true},
};
const struct field_table lora_unload_fields = {FIELDS_OF(unload_rows)};

/* ---- paths ---------------------------------------------------------------------------------- */

static bool has_dots(const char *path) {
    for (const char *at = path; *at;) {
        size_t n = strcspn(at, "/");
        if (n == 2 && memcmp(at, "..", 2) == 0) return true;
        at += n + (at[n] == '/');
    }
    return false;
}

/* Is the real path of `path` below the real path `folder`? Writes it to `real`. */
static bool is_below(const char *folder, const char *path, char real[PATH_MAX]) {
    size_t n = strlen(folder);
    if (!realpath(path, real)) return false;
    return strncmp(real, folder, n) == 0 && real[n] == '/';
}

/* Writes the real path of an adapter. A file of a PEFT folder may be missing: the reader says
 * so. */
static enum status find_path(const struct app *app, const char *given, char out[PATH_MAX],
                             struct err *err) {
    static const char *const files[] = {"adapter_config.json", "adapter_model.safetensors"};
    char folder[PATH_MAX], joined[2 * PATH_MAX], real[PATH_MAX];
    bool is_inside =
        realpath(app->options->lora.folder, folder) && !has_dots(given) && strlen(given) < PATH_MAX;
    if (is_inside) {
        snprintf(joined, sizeof joined, "%s%s%s", given[0] == '/' ? "" : folder,
                 given[0] == '/' ? "" : "/", given);
        is_inside = is_below(folder, joined, out);
    }
    for (int i = 0; is_inside && i < 2; i++) {
        snprintf(joined, sizeof joined, "%s/%s", out, files[i]);
        is_inside = is_below(folder, joined, real) || errno == ENOENT || errno == ENOTDIR;
    }
    if (is_inside) return STATUS_OK;
    return err_set(err, STATUS_INVALID_REQUEST, "lora_path",
                   "'lora_path' must name an adapter below the folder of --lora-dir, without '..' "
                   "and without a link that leaves it.");
}

/* ---- requests ------------------------------------------------------------------------------- */

static enum status check_enabled(const struct app *app, struct err *err) {
    if (app->options->lora.may_load) return STATUS_OK;
    return err_set(err, STATUS_NOT_FOUND, NULL,
                   "This server loads adapters only at its start: start it with "
                   "--enable-runtime-lora and --lora-dir.");
}

static const char *required_text(const struct json *body, const char *name, struct err *err) {
    const struct json *value = json_member(body, name);
    if (json_length(value) > 0 && strlen(json_text(value)) == json_length(value))
        return json_text(value);
    err_set(err, STATUS_INVALID_REQUEST, name, "'%s' is missing.", name);
    return NULL;
}

static enum status load_of(struct app *app, const struct json *body, struct buf *out,
                           struct err *err) {
    char path[PATH_MAX];
    const char *name = required_text(body, "lora_name", err);
    const char *given = name ? required_text(body, "lora_path", err) : NULL;
    if (!given || find_path(app, given, path, err)) return err->status;
    bool in_place = json_true(json_member(body, "load_inplace"));
    enum status status = adapters_load(app->adapters, name, path, in_place, err);
    if (!status) buf_printf(out, "Success: LoRA adapter '%s' added successfully.", name);
    return status;
}

static enum status unload_of(struct app *app, const struct json *body, struct buf *out,
                             struct err *err) {
    const char *name = required_text(body, "lora_name", err);
    if (!name || adapters_unload(app->adapters, name, err)) return err->status;
    buf_printf(out, "Success: LoRA adapter '%s' removed successfully.", name);
    return STATUS_OK;
}

static enum async_next change(struct async_request *async, const struct field_table *fields,
                              enum status (*act)(struct app *app, const struct json *body,
                                                 struct buf *out, struct err *err)) {
    struct text_request *request = (struct text_request *)async;
    struct app *app = async->app;
    struct err *err = &request->err;
    struct json *body;
    struct buf message = {0};
    if (check_enabled(app, err) ||
        json_parse_strict(&body, "The body", async->http->body, async->http->body_length, err))
        return ASYNC_ANSWER;
    if (!json_is(body, JSON_OBJECT))
        err_set(err, STATUS_INVALID_REQUEST, NULL, "The body must be a JSON object, but it is %s.",
                json_type_name(body));
    else if (!fields_check(fields, body, err) && !act(app, body, &message, err))
        json_write_string(&request->answer.body, message.data, message.length);
    buf_free(&message);
    json_free(body);
    return ASYNC_ANSWER;
}

static enum async_next load(struct async_request *async) {
    return change(async, &lora_load_fields, load_of);
}

static enum async_next unload(struct async_request *async) {
    return change(async, &lora_unload_fields, unload_of);
}

void lora_load_start(struct app *app, struct http_request *http) {
    static const struct async_kind kind = TEXT_KIND(LANE_ADAPTER, load);
    text_request_start(app, http, &kind);
}

void lora_unload_start(struct app *app, struct http_request *http) {
    static const struct async_kind kind = TEXT_KIND(LANE_ADAPTER, unload);
    text_request_start(app, http, &kind);
}
