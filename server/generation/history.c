/* Adapts a conversation to a chat template that knows fewer forms than the API. Runs on worker
 * threads, one for each request. */
#include <assert.h>
#include <string.h>

#include "config/json.h"
#include "server/generation/prompt.h"
#include "server/json/json.h"

static void set_text(struct json *value, const char *text) {
    struct buf copy = {0};
    buf_puts(&copy, text);
    json_set_string(value, copy.data, copy.length);
}

void history_rename_developers(const struct chat_template *chat, const struct json *messages) {
    if (chat_template_names(chat, "developer")) return;
    json_each(message, messages) {
        struct json *role = json_member(message, "role");
        if (json_is_text(role, "developer")) set_text(role, "system");
    }
}

static bool is_system(const struct json *message) {
    return json_is_text(json_member(message, "role"), "system") &&
           json_is(json_member(message, "content"), JSON_STRING);
}

/* Joins the system messages at the front, with an empty line between them. */
static bool join_system_messages(struct json *messages) {
    bool joined = false;
    for (struct json *first = json_first(messages); is_system(first) && is_system(first->next);
         first = json_first(messages)) {
        struct json *content = json_member(first->next, "content");
        struct buf both = {0};
        buf_printf(&both, "%s\n\n%s", json_text(json_member(first, "content")), json_text(content));
        json_set_string(content, both.data, both.length);
        json_drop_first(messages);
        joined = true;
    }
    return joined;
}

/* Changes "text" to {"arguments": "text"}. */
static bool wrap_arguments(struct json *arguments) {
    struct buf object = {0};
    struct json *wrapped;
    struct err err = {0};
    if (!json_is(arguments, JSON_STRING)) return false;
    buf_puts(&object, "{\"arguments\":");
    json_write_string(&object, json_text(arguments), json_length(arguments));
    buf_puts(&object, "}");
    enum status status = json_parse(&wrapped, "It", object.data, object.length, &err);
    assert(status == STATUS_OK);
    buf_free(&object);
    if (status == STATUS_OK) json_take(arguments, wrapped);
    return status == STATUS_OK;
}

static bool wrap_texts(const struct json *messages) {
    bool wrapped = false;
    json_each(message, messages) {
        json_each(call, json_member(message, "tool_calls")) {
            const struct json *function = json_member(call, "function");
            wrapped = wrap_arguments(json_member(function, "arguments")) || wrapped;
        }
    }
    return wrapped;
}

/* Changes arguments that are an object to its text, with a blank after each comma and colon, as
 * models write it. */
static bool write_arguments(struct json *arguments) {
    struct buf dense = {0}, text = {0};
    bool in_string = false;
    if (!json_is(arguments, JSON_OBJECT)) return false;
    json_write_value(&dense, arguments);
    for (size_t i = 0; i < dense.length; i++) {
        char c = dense.data[i];
        buf_add(&text, &c, 1);
        if (in_string && c == '\\')
            buf_add(&text, &dense.data[++i], 1);
        else if (c == '"')
            in_string = !in_string;
        else if (!in_string && (c == ',' || c == ':'))
            buf_puts(&text, " ");
    }
    json_set_string(arguments, text.data, text.length);
    buf_free(&dense);
    return true;
}

static struct json *copy_of(const struct json *messages) {
    struct buf text = {0};
    struct json *copy;
    struct err err = {0};
    json_write_value(&text, messages);
    enum status status = json_parse(&copy, "It", text.data, text.length, &err);
    buf_free(&text);
    return status == STATUS_OK ? copy : NULL; /* it may be nested one level too deep */
}

struct json *history_with_texts(const struct json *messages) {
    struct json *copy = copy_of(messages);
    bool written = false;
    json_each(message, copy) {
        json_each(call, json_member(message, "tool_calls")) {
            const struct json *function = json_member(call, "function");
            written = write_arguments(json_member(function, "arguments")) || written;
        }
    }
    if (written) return copy;
    json_free(copy);
    return NULL;
}

struct json *history_simplified(const struct json *messages) {
    struct json *copy = copy_of(messages);
    if (!copy) return NULL;
    bool joined = join_system_messages(copy), wrapped = wrap_texts(copy);
    if (joined || wrapped) return copy;
    json_free(copy);
    return NULL;
}
