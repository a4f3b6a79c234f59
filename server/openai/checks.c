/* Checks that several bodies share: the model's name, lists of token ids, lengths. */
#include <stdio.h>
#include <string.h>

#include "server/openai/internal.h"

bool api_finds_adapter(const struct api_limits *limits, const char *name, size_t length,
                       struct api_adapter *out) {
    char text[sizeof((struct api_adapter *)0)->name];
    const struct api_adapters *all = limits->adapters;
    if (!all || length >= sizeof text || memchr(name, 0, length)) return false;
    memcpy(text, name, length);
    text[length] = 0;
    return all->find(all->arg, text, out);
}

bool api_serves(const struct api_limits *limits, const char *name, size_t length) {
    return limits->any_model || api_serves_base(limits, name, length) ||
           api_finds_adapter(limits, name, length, NULL);
}

void api_list_models(struct buf *out, const struct api_limits *limits) {
    struct api_adapter adapter;
    enum { MOST_LISTED = 5 };
    buf_printf(out, "'%.128s'", limits->model);
    for (int i = 0; limits->adapters && limits->adapters->at(limits->adapters->arg, i, &adapter);
         i++) {
        if (i < MOST_LISTED) buf_printf(out, ", '%s'", adapter.name);
        if (i == MOST_LISTED) buf_puts(out, ", ... (GET /v1/models lists all)");
    }
}

bool api_serves_base(const struct api_limits *limits, const char *name, size_t length) {
    const char *known = limits->model, *more = limits->more;
    while (known && *known) {
        if (strlen(known) == length && memcmp(known, name, length) == 0) return true;
        known = more;
        if (more) more += strlen(more) + 1;
    }
    return false;
}

enum status check_model(struct parse *parse, const char *name, const struct json *value) {
    if (api_serves(parse->limits, json_text(value), json_length(value))) return STATUS_OK;
    int shown = utf8_cut(json_text(value), strlen(json_text(value)), 128);
    struct buf names = {0};
    api_list_models(&names, parse->limits);
    err_set(parse->err, STATUS_NOT_FOUND, name,
            "The model '%.*s' does not exist: this server serves %s.", shown, json_text(value),
            names.data);
    buf_free(&names);
    field_code(parse, "model_not_found");
    return STATUS_NOT_FOUND;
}

enum status api_context_exceeded(struct err *err, const char *param, int max_model_len, bool more,
                                 int n_tokens) {
    err_set(err, STATUS_INVALID_REQUEST, param,
            "This model's maximum context length is %d tokens. However, your prompt has %s%d "
            "tokens. Shorten it, and leave room for the answer.",
            max_model_len, more ? "more than " : "", n_tokens);
    if (err) snprintf(err->code, sizeof err->code, "context_length_exceeded");
    return STATUS_INVALID_REQUEST;
}

static enum status wrong_id(struct parse *parse, const char *name, int i,
                            const struct json *value) {
    const int V = parse->limits->V;
    if (!json_is(value, JSON_NUMBER)) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "'%s[%d]' must be a token id, but it is %s.", name, i,
                       json_type_name(value));
    }
    return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                   "'%s[%d]' must be a token id in 0..%d, but it is %.17g.", name, i, V - 1,
                   json_number(value));
}

enum status field_ids(struct parse *parse, const char *name, const struct json *array, int max,
                      int32_t **ids, int *n) {
    int count = json_count(array), i = 0;
    if (count > max) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "'%s' may hold at most %d token ids, but it holds %d.", name, max, count);
    }
    *ids = arena_alloc(parse->arena, (size_t)count * sizeof **ids);
    *n = count;
    if (!*ids) {
        return err_set(parse->err, STATUS_UNAVAILABLE, name, "Not enough memory for '%s'.", name);
    }
    json_each(value, array) {
        bool right = json_is(value, JSON_NUMBER) && json_is_integer(value) &&
                     json_integer(value) >= 0 && json_integer(value) < parse->limits->V;
        if (!right) return wrong_id(parse, name, i, value);
        (*ids)[i++] = (int32_t)json_integer(value);
    }
    return STATUS_OK;
}

enum status check_receipt(struct parse *parse, const char *name, const struct json *value) {
    const struct api_request *request = parse->target;
    if (!json_true(value) || request->api->receipt_place != RECEIPT_NOWHERE) return STATUS_OK;
    return field_wrong(parse, name,
                       "is not served on this path: use /v1/chat/completions, /v1/completions, "
                       "/v1/responses or /v1/messages");
}
