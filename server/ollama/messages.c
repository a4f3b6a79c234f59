/* Messages of /api/chat, in OpenAI's form. Ollama's calls have no ids: a result of role "tool"
 * belongs to the next call, in order, of the last message with calls. */
#include <stdio.h>
#include <string.h>

#include "server/ollama/internal.h"

/* The ids of calls: "call_" and the number of the call in the conversation. */
struct calls {
    int n_made, n_answered;
};

static enum status wrong(struct err *err, const char *where, const char *message) {
    return err_set(err, STATUS_INVALID_REQUEST, where, "'%s' %s.", where, message);
}

enum status ollama_refuse_images(const struct json *object, const char *where, struct err *err) {
    char name[96];
    if (json_count(json_member(object, "images")) == 0) return STATUS_OK;
    snprintf(name, sizeof name, "%s%simages", where, *where ? "." : "");
    return wrong(err, name, "must be empty: this model reads only text");
}

static void write_member(struct ollama_translation *to, const struct json *object, const char *name,
                         const char *field) {
    const struct json *value = json_member(object, name);
    if (!value || json_is(value, JSON_NULL)) return;
    buf_printf(&to->out, ",\"%s\":", field);
    json_write_value(&to->out, value);
}

/* Appends a call. Its arguments are an object, or a string with one. */
static enum status write_call(struct ollama_translation *to, const struct json *call,
                              const char *where, struct calls *calls) {
    const struct json *function = json_member(call, "function");
    if (!json_is(function, JSON_OBJECT)) {
        return wrong(to->err, where, "must be an object with the member 'function'");
    }
    buf_printf(&to->out, "{\"id\":\"call_%d\",\"type\":\"function\",\"function\":{\"name\":",
               calls->n_made++);
    const struct json *name = json_member(function, "name");
    json_write_string(&to->out, json_text(name), json_length(name));
    const struct json *arguments = json_member(function, "arguments");
    if (!arguments || json_is(arguments, JSON_NULL))
        buf_puts(&to->out, ",\"arguments\":{}");
    else
        write_member(to, function, "arguments", "arguments");
    buf_puts(&to->out, "}}");
    return STATUS_OK;
}

static enum status write_calls(struct ollama_translation *to, const struct json *list,
                               const char *where, struct calls *calls) {
    int i = 0;
    calls->n_answered = calls->n_made;
    buf_puts(&to->out, ",\"tool_calls\":[");
    json_each(call, list) {
        char name[96];
        snprintf(name, sizeof name, "%s.tool_calls[%d]", where, i);
        if (i++ > 0) buf_puts(&to->out, ",");
        enum status status = write_call(to, call, name, calls);
        if (status != STATUS_OK) return status;
    }
    buf_puts(&to->out, "]");
    return STATUS_OK;
}

static enum status write_message(struct ollama_translation *to, const struct json *message,
                                 const char *where, struct calls *calls) {
    const struct json *role = json_member(message, "role");
    const struct json *list = json_member(message, "tool_calls");
    if (!json_is(message, JSON_OBJECT)) return wrong(to->err, where, "must be an object");
    enum status status = ollama_refuse_images(message, where, to->err);
    if (status != STATUS_OK) return status;
    buf_puts(&to->out, "{\"role\":");
    json_write_string(&to->out, json_text(role), json_length(role));
    const struct json *content = json_member(message, "content");
    if (content && !json_is(content, JSON_NULL))
        write_member(to, message, "content", "content");
    else
        buf_puts(&to->out, ",\"content\":\"\"");
    write_member(to, message, "thinking", "reasoning_content");
    if (json_is_text(role, "tool")) {
        bool has_call = calls->n_answered < calls->n_made;
        buf_printf(&to->out, ",\"tool_call_id\":\"call_%d\"", calls->n_answered);
        calls->n_answered += has_call;
        write_member(to, message, "tool_name", "name");
    }
    if (json_count(list) > 0) status = write_calls(to, list, where, calls);
    buf_puts(&to->out, "}");
    return status;
}

enum status ollama_messages(struct ollama_translation *to) {
    const struct json *messages = ollama_field(to, "messages");
    struct calls calls = {0};
    int i = 0;
    if (!json_is(messages, JSON_ARRAY)) {
        return wrong(to->err, "messages", "must be an array of messages");
    }
    buf_puts(&to->out, ",\"messages\":[");
    json_each(message, messages) {
        char where[48];
        snprintf(where, sizeof where, "messages[%d]", i);
        if (i++ > 0) buf_puts(&to->out, ",");
        enum status status = write_message(to, message, where, &calls);
        if (status != STATUS_OK) return status;
    }
    buf_puts(&to->out, "]");
    return STATUS_OK;
}
