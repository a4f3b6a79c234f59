/* Messages and their content blocks, in the form of a chat. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "server/anthropic/internal.h"

/* Claude Code begins its system prompt with a block that is another one in each request. Without
 * it, requests share their prefix in the cache. */
#define BILLING "x-anthropic-billing-header:"

static bool is_type(const struct json *block, const char *type) {
    return json_is_text(json_member(block, "type"), type);
}

static enum status check_block(struct anthropic_translation *to, const struct json *block,
                               const char *where) {
    if (!json_is(block, JSON_OBJECT)) return messages_wrong(to, where, "must be an object");
    if (json_is(json_member(block, "type"), JSON_STRING)) return STATUS_OK;
    return messages_wrong(to, where, "must have the member 'type'");
}

/* Fails for a kind of block that no model here reads. */
static enum status refuse_block(struct anthropic_translation *to, const struct json *block,
                                const char *where) {
    return err_set(to->err, STATUS_INVALID_REQUEST, where,
                   "'%s' has the type \"%.40s\", which is not served here: send text.", where,
                   json_text(json_member(block, "type")));
}

/* Appends the text of a string or of text blocks to `out`, joined by line breaks. */
static enum status join_text(struct anthropic_translation *to, struct buf *out,
                             const struct json *content, const char *where) {
    const size_t start = out->length;
    int i = 0;
    if (json_is(content, JSON_STRING)) {
        buf_add(out, json_text(content), json_length(content));
        return STATUS_OK;
    }
    if (!json_is(content, JSON_ARRAY)) {
        return messages_wrong(to, where, "must be a string or an array of blocks");
    }
    json_each(block, content) {
        char name[96];
        snprintf(name, sizeof name, "%s[%d]", where, i++);
        if (check_block(to, block, name)) return to->err->status;
        if (is_type(block, "tool_reference")) continue; /* the tool itself is in 'tools' */
        if (!is_type(block, "text")) return refuse_block(to, block, name);
        const struct json *text = json_member(block, "text");
        if (!json_is(text, JSON_STRING)) return messages_wrong(to, name, "must have a 'text'");
        bool is_billing = i == 1 && strcmp(where, "system") == 0 &&
                          strncmp(json_text(text), BILLING, strlen(BILLING)) == 0;
        if (is_billing) continue;
        if (out->length > start) buf_puts(out, "\n");
        buf_add(out, json_text(text), json_length(text));
    }
    return STATUS_OK;
}

/* ---- writing a chat's messages -------------------------------------------------------------- */

/* Begins a message that a part of the body, `place`, has asked for. */
static void begin_message(struct anthropic_translation *to, const char *role, const char *place) {
    assert(to->n_messages >= 0 && *place);
    const char *comma = to->n_messages > 0 ? "," : "";
    api_name_message(&to->names, to->n_messages++, "", place);
    buf_printf(&to->out, "%s{\"role\":\"%s\",\"content\":", comma, role);
}

static void write_text(struct anthropic_translation *to, const struct buf *text) {
    json_write_string(&to->out, text->data, text->length);
}

static enum status write_system(struct anthropic_translation *to) {
    const struct json *system = messages_field(to, "system");
    struct buf text = {0};
    if (!system) return STATUS_OK;
    enum status status = join_text(to, &text, system, "system");
    if (status == STATUS_OK && text.length > 0) {
        begin_message(to, "system", "system");
        write_text(to, &text);
        buf_puts(&to->out, "}");
    }
    buf_free(&text);
    return status;
}

/* The result of a call is a message of its own. Templates know no failed calls, so the text says
 * it. */
static enum status write_result(struct anthropic_translation *to, const struct json *block,
                                const char *where) {
    const struct json *id = json_member(block, "tool_use_id");
    const struct json *content = messages_member(block, "content");
    struct buf text = {0};
    char name[80];
    snprintf(name, sizeof name, "%.60s.content", where);
    if (!json_is(id, JSON_STRING)) return messages_wrong(to, where, "must have a 'tool_use_id'");
    if (json_true(json_member(block, "is_error"))) buf_puts(&text, "Error: ");
    enum status status = content ? join_text(to, &text, content, name) : STATUS_OK;
    if (status == STATUS_OK) {
        api_name_message(&to->names, to->n_messages, ".role", where);
        begin_message(to, "tool", where);
        write_text(to, &text);
        buf_puts(&to->out, ",\"tool_call_id\":");
        json_write_value(&to->out, id);
        buf_puts(&to->out, "}");
    }
    buf_free(&text);
    return status;
}

/* Writes the user's text that precedes a result or ends the message. */
static void flush_user(struct anthropic_translation *to, struct buf *text, const char *where) {
    if (text->length == 0) return;
    begin_message(to, "user", where);
    write_text(to, text);
    buf_puts(&to->out, "}");
    buf_clear(text);
}

static enum status write_user(struct anthropic_translation *to, const struct json *content,
                              const char *where, struct buf *text) {
    int i = 0;
    json_each(block, content) {
        char name[64];
        snprintf(name, sizeof name, "%.48s[%d]", where, i++);
        if (check_block(to, block, name)) return to->err->status;
        if (is_type(block, "tool_result")) {
            flush_user(to, text, where);
            if (write_result(to, block, name)) return to->err->status;
            continue;
        }
        const struct json *part = json_member(block, "text");
        if (!is_type(block, "text")) return refuse_block(to, block, name);
        if (!json_is(part, JSON_STRING)) return messages_wrong(to, name, "must have a 'text'");
        if (text->length > 0) buf_puts(text, "\n");
        buf_add(text, json_text(part), json_length(part));
    }
    flush_user(to, text, where);
    return STATUS_OK;
}

/* The parts of an earlier answer. */
struct anthropic_turn {
    struct buf text, thoughts, calls;
    int n_calls;
};

/* Records the place of a call of the message that is written next. */
static void name_call(struct anthropic_translation *to, int index, const char *where) {
    char member[48];
    assert(index >= 0);
    if (index == 0) api_name_message(&to->names, to->n_messages, ".tool_calls", where);
    snprintf(member, sizeof member, ".tool_calls[%d]", index);
    api_name_message(&to->names, to->n_messages, member, where);
    snprintf(member, sizeof member, ".tool_calls[%d].function", index);
    api_name_message(&to->names, to->n_messages, member, where);
}

static enum status add_call(struct anthropic_translation *to, const struct json *block,
                            const char *where, struct anthropic_turn *turn) {
    struct buf *calls = &turn->calls;
    const struct json *id = json_member(block, "id"), *name = json_member(block, "name");
    const struct json *input = messages_member(block, "input");
    if (!json_is(id, JSON_STRING) || !json_is(name, JSON_STRING)) {
        return messages_wrong(to, where, "must have an 'id' and a 'name'");
    }
    if (input && !json_is(input, JSON_OBJECT)) {
        return messages_wrong(to, where, "must have an object as 'input'");
    }
    name_call(to, turn->n_calls++, where);
    buf_puts(calls, calls->length > 0 ? ",{\"id\":" : "{\"id\":");
    json_write_value(calls, id);
    buf_puts(calls, ",\"type\":\"function\",\"function\":{\"name\":");
    json_write_value(calls, name);
    buf_puts(calls, ",\"arguments\":");
    if (input)
        json_write_value(calls, input);
    else
        buf_puts(calls, "{}");
    buf_puts(calls, "}}");
    return STATUS_OK;
}

static enum status add_block(struct anthropic_translation *to, const struct json *block,
                             const char *where, struct anthropic_turn *turn) {
    if (check_block(to, block, where)) return to->err->status;
    if (is_type(block, "redacted_thinking")) return STATUS_OK; /* no one can read it */
    if (is_type(block, "tool_use")) return add_call(to, block, where, turn);
    bool is_thought = is_type(block, "thinking");
    if (!is_thought && !is_type(block, "text")) return refuse_block(to, block, where);
    const struct json *text = json_member(block, is_thought ? "thinking" : "text");
    if (!json_is(text, JSON_STRING)) return messages_wrong(to, where, "must have its text");
    buf_add(is_thought ? &turn->thoughts : &turn->text, json_text(text), json_length(text));
    return STATUS_OK;
}

static void write_turn(struct anthropic_translation *to, const struct anthropic_turn *turn,
                       const char *place) {
    assert((turn->n_calls > 0) == (turn->calls.length > 0));
    begin_message(to, "assistant", place);
    write_text(to, &turn->text);
    if (turn->thoughts.length > 0) {
        buf_puts(&to->out, ",\"reasoning_content\":");
        write_text(to, &turn->thoughts);
    }
    if (turn->calls.length > 0) {
        buf_puts(&to->out, ",\"tool_calls\":[");
        buf_add(&to->out, turn->calls.data, turn->calls.length);
        buf_puts(&to->out, "]");
    }
    buf_puts(&to->out, "}");
}

static enum status write_assistant(struct anthropic_translation *to, const struct json *content,
                                   const char *where, const char *place, bool is_last) {
    struct anthropic_turn turn = {0};
    int i = 0;
    enum status status = STATUS_OK;
    if (json_is(content, JSON_STRING))
        buf_add(&turn.text, json_text(content), json_length(content));
    json_each(block, json_is(content, JSON_ARRAY) ? content : NULL) {
        char name[64];
        snprintf(name, sizeof name, "%.48s[%d]", where, i++);
        status = add_block(to, block, name, &turn);
        if (status != STATUS_OK) break;
    }
    if (status == STATUS_OK) write_turn(to, &turn, place);
    to->is_continued = is_last && turn.calls.length == 0;
    buf_free(&turn.text);
    buf_free(&turn.thoughts);
    buf_free(&turn.calls);
    return status;
}

static enum status write_message(struct anthropic_translation *to, const struct json *message,
                                 const char *where) {
    const struct json *role = json_member(message, "role");
    const struct json *content = json_member(message, "content");
    struct buf text = {0};
    char name[48];
    enum status status;
    snprintf(name, sizeof name, "%.32s.content", where);
    if (!json_is(message, JSON_OBJECT)) return messages_wrong(to, where, "must be an object");
    if (api_holds_nul(message)) {
        return messages_wrong(to, where, "must not hold the character \\u0000");
    }
    if (!json_is(content, JSON_STRING) && !json_is(content, JSON_ARRAY)) {
        return messages_wrong(to, name, "must be a string or an array of blocks");
    }
    if (json_is_text(role, "assistant")) {
        return write_assistant(to, content, name, where, message->next == NULL);
    }
    bool is_user = json_is_text(role, "user");
    if (!is_user && !json_is_text(role, "system")) {
        snprintf(name, sizeof name, "%.32s.role", where);
        return messages_wrong(to, name, "must be \"user\", \"assistant\" or \"system\"");
    }
    if (is_user && json_is(content, JSON_ARRAY)) {
        status = write_user(to, content, name, &text);
    } else {
        status = join_text(to, &text, content, name);
        begin_message(to, is_user ? "user" : "system", where);
        write_text(to, &text);
        buf_puts(&to->out, "}");
    }
    buf_free(&text);
    return status;
}

enum status messages_write(struct anthropic_translation *to) {
    const struct json *messages = messages_field(to, "messages");
    int i = 0;
    if (json_count(messages) == 0 || !json_is(messages, JSON_ARRAY)) {
        return messages_wrong(to, "messages", "must be an array of at least one message");
    }
    buf_puts(&to->out, ",\"messages\":[");
    if (write_system(to)) return to->err->status;
    json_each(message, messages) {
        char where[32];
        snprintf(where, sizeof where, "messages[%d]", i++);
        if (write_message(to, message, where)) return to->err->status;
    }
    buf_puts(&to->out, "]");
    if (to->is_continued) {
        buf_puts(&to->out, ",\"add_generation_prompt\":false,\"continue_final_message\":true");
    }
    return STATUS_OK;
}
