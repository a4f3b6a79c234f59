/* Converts a chat's messages to the form that chat templates expect. Rejects parts that a template
 * would ignore, so that a conversation does not lose them silently. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/openai/internal.h"

#define MAX_ARGUMENTS (1 << 20) /* bytes in all tool calls: each becomes a separate tree */

/* ---- contents ------------------------------------------------------------------------------- */

/* The member of a part with its text: "text", or "refusal" in an earlier answer. */
static const struct json *text_of(const struct json *part) {
    bool refused = json_is_text(json_member(part, "type"), "refusal");
    return json_member(part, refused ? "refusal" : "text");
}

static enum status check_part(struct parse *parse, const char *path, const struct json *part) {
    char name[80];
    if (!json_is(part, JSON_OBJECT)) return field_wrong_type(parse, path, "an object", part);
    const struct json *type = json_member(part, "type");
    bool refused = json_is_text(type, "refusal");
    snprintf(name, sizeof name, "%s.type", path);
    if (!json_is_text(type, "text") && !refused) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "'%s' must be \"text\": this model reads no other kind of content.", name);
    }
    snprintf(name, sizeof name, "%s.%s", path, refused ? "refusal" : "text");
    if (!json_is(text_of(part), JSON_STRING)) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, name, "'%s' must be a string.", name);
    }
    return STATUS_OK;
}

/* Joins an array of text parts to one string with line breaks, because some templates accept only
 * strings. Null, which clients send for missing content, becomes an empty string. */
static enum status join_parts(struct parse *parse, const char *path, struct json *content) {
    struct buf joined = {0};
    int i = 0;
    json_each(part, content) {
        char name[64];
        snprintf(name, sizeof name, "%s[%d]", path, i);
        enum status status = check_part(parse, name, part);
        if (status != STATUS_OK) {
            buf_free(&joined);
            return status;
        }
        if (i++ > 0) buf_add(&joined, "\n", 1);
        buf_puts(&joined, json_text(text_of(part)));
    }
    buf_add(&joined, "", 0); /* allocate memory even if the text is empty */
    json_set_string(content, joined.data, joined.length);
    return STATUS_OK;
}

/* Adds the refusal of an earlier answer to its content, where templates read it. */
static enum status take_refusal(struct parse *parse, const char *path, struct json *message) {
    char name[48];
    const struct json *refusal = json_member(message, "refusal");
    if (!refusal || json_is(refusal, JSON_NULL)) return STATUS_OK;
    snprintf(name, sizeof name, "%s.refusal", path);
    if (!json_is_text(json_member(message, "role"), "assistant"))
        return field_wrong(parse, name, "is only for messages of the role \"assistant\"");
    if (!json_is(refusal, JSON_STRING))
        return field_wrong_type(parse, name, "a string or null", refusal);
    struct json *content = json_member(message, "content");
    struct buf text = {0};
    if (!content) content = json_add_string(message, "content");
    buf_puts(&text, json_text(content));
    if (text.length > 0) buf_puts(&text, "\n");
    buf_puts(&text, json_text(refusal));
    buf_add(&text, "", 0); /* allocate memory even if the text is empty */
    json_set_string(content, text.data, text.length);
    json_free(json_detach(message, "refusal"));
    return STATUS_OK;
}

/* Only a message with tool calls may lack content; templates then see an empty string. */
static enum status check_content(struct parse *parse, const char *path, struct json *message) {
    char name[48];
    struct json *content = json_member(message, "content");
    snprintf(name, sizeof name, "%s.content", path);
    if (json_is(content, JSON_STRING)) return STATUS_OK;
    if (json_is(content, JSON_ARRAY) || json_is(content, JSON_NULL)) {
        return join_parts(parse, name, content);
    }
    if (content) {
        return field_wrong_type(parse, name, "a string, null, or an array of parts", content);
    }
    if (!json_member(message, "tool_calls")) { /* not empty: check_calls ran before */
        return err_set(parse->err, STATUS_INVALID_REQUEST, name, "'%s' is missing.", name);
    }
    json_add_string(message, "content");
    return STATUS_OK;
}

/* ---- tool calls of earlier answers ---------------------------------------------------------- */

/* Converts a call's arguments from a string with JSON, OpenAI's form, to an object, as templates
 * expect (and transformers provides). A string that holds no object stays a string: a model wrote
 * it, and its conversation must go on. */
static enum status read_arguments(struct parse *parse, const char *path, struct json *arguments) {
    struct json *object;
    struct err err = {0};
    if (json_is(arguments, JSON_OBJECT)) return STATUS_OK;
    if (!json_is(arguments, JSON_STRING)) {
        return field_wrong_type(parse, path, "a string that holds a JSON object", arguments);
    }
    bool none = json_length(arguments) == 0;
    if (json_parse(&object, "It", none ? "{}" : json_text(arguments),
                   none ? 2 : json_length(arguments), &err)) {
        return STATUS_OK;
    }
    if (!json_is(object, JSON_OBJECT)) {
        json_free(object);
        return STATUS_OK;
    }
    json_take(arguments, object);
    return STATUS_OK;
}

static enum status check_call(struct parse *parse, const char *path, const struct json *call) {
    char name[96];
    const struct json *function = json_member(call, "function");
    const struct json *type = json_member(call, "type");
    snprintf(name, sizeof name, "%s.type", path);
    if (type && !json_is_text(type, "function")) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, name, "'%s' must be \"function\".",
                       name);
    }
    const struct json *called = json_member(function, "name");
    snprintf(name, sizeof name, "%s.function.name", path);
    if (!json_is(called, JSON_STRING) || !json_text(called)[0]) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, name, "'%s' must be a string.", name);
    }
    struct json *arguments = json_member(function, "arguments");
    snprintf(name, sizeof name, "%s.function.arguments", path);
    if (arguments) return read_arguments(parse, name, arguments);
    return err_set(parse->err, STATUS_INVALID_REQUEST, name, "'%s' is missing.", name);
}

/* Removes empty lists and nulls, because templates test whether a message has calls. */
static enum status check_calls(struct parse *parse, const char *path, struct json *message) {
    char name[64];
    int i = 0;
    json_drop_empty(message, "tool_calls");
    const struct json *calls = json_member(message, "tool_calls");
    if (!calls) return STATUS_OK;
    snprintf(name, sizeof name, "%s.tool_calls", path);
    if (!json_is(calls, JSON_ARRAY)) {
        return field_wrong_type(parse, name, "an array of tool calls", calls);
    }
    if (!json_is_text(json_member(message, "role"), "assistant")) {
        return field_wrong(parse, name, "is only for messages of the role \"assistant\"");
    }
    json_each(call, calls) {
        snprintf(name, sizeof name, "%s.tool_calls[%d]", path, i++);
        enum status status = check_call(parse, name, call);
        if (status != STATUS_OK) return status;
    }
    return STATUS_OK;
}

/* ---- messages ------------------------------------------------------------------------------- */

/* Rejects members that templates do not read. In OpenAI's answers they are null. */
static enum status refuse_unread(struct parse *parse, const char *path,
                                 const struct json *message) {
    static const char *const names[] = {"function_call", "audio"};
    char name[64];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct json *member = json_member(message, names[i]);
        if (!member || json_is(member, JSON_NULL)) continue;
        snprintf(name, sizeof name, "%s.%s", path, names[i]);
        return not_served(parse, name, " or give null");
    }
    return STATUS_OK;
}

static enum status check_message(struct parse *parse, const char *path, struct json *message) {
    char name[48];
    if (!json_is(message, JSON_OBJECT)) return field_wrong_type(parse, path, "an object", message);
    const struct json *role = json_member(message, "role");
    snprintf(name, sizeof name, "%s.role", path);
    if (!json_is(role, JSON_STRING) || !json_text(role)[0]) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "'%s' must be a string such as \"user\".", name);
    }
    enum status status = refuse_unread(parse, path, message);
    if (status == STATUS_OK) status = check_calls(parse, path, message);
    bool is_refused = json_is(json_member(message, "refusal"), JSON_STRING);
    if (status == STATUS_OK && (!is_refused || json_member(message, "content")))
        status = check_content(parse, path, message);
    return status ? status : take_refusal(parse, path, message);
}

/* Templates see C strings, so the text after a NUL would be lost. */
bool api_holds_nul(const struct json *value) {
    if (json_is(value, JSON_STRING)) return strlen(json_text(value)) != json_length(value);
    json_each(child, value) {
        if (api_holds_nul(child)) return true;
    }
    return false;
}

enum status refuse_nul(struct parse *parse, const char *path, const struct json *value) {
    if (!api_holds_nul(value)) return STATUS_OK;
    return err_set(parse->err, STATUS_INVALID_REQUEST, path,
                   "'%s' must not hold the character \\u0000.", path);
}

static size_t arguments_length(const struct json *messages) {
    size_t length = 0;
    json_each(message, messages) {
        json_each(call, json_member(message, "tool_calls")) {
            const struct json *arguments = json_member(json_member(call, "function"), "arguments");
            if (json_is(arguments, JSON_STRING)) length += json_length(arguments);
        }
    }
    return length;
}

enum status check_messages(struct parse *parse, const char *name, const struct json *value) {
    char path[32];
    int i = 0;
    if (!json_is(value, JSON_ARRAY))
        return field_wrong_type(parse, name, "an array of messages", value);
    if (!json_first(value)) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "'%s' must hold at least one message.", name);
    }
    if (arguments_length(value) > MAX_ARGUMENTS) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "The arguments of the tool calls in '%s' may be at most %d bytes long.",
                       name, MAX_ARGUMENTS);
    }
    for (struct json *message = json_first(value); message; message = message->next) {
        snprintf(path, sizeof path, "%s[%d]", name, i++);
        enum status status = refuse_nul(parse, path, message);
        if (status == STATUS_OK) status = check_message(parse, path, message);
        if (status == STATUS_OK) status = refuse_nul(parse, path, message); /* in the arguments */
        if (status != STATUS_OK) return status;
    }
    return STATUS_OK;
}

enum status check_template_kwargs(struct parse *parse, const char *name, const struct json *value) {
    json_each(variable, value) {
        if (!chat_template_reserves(variable->name)) continue;
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "'%s' must not set '%s', which the server gives to the template: use the "
                       "request's field of this name if it exists.",
                       name, variable->name);
    }
    return refuse_nul(parse, name, value);
}
