/* Input items of /v1/responses, in the form of a chat's messages. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "server/responses/internal.h"

/* The messages while they are written. A chat has one message for several items of an answer: its
 * reasoning, text and calls are collected until an item of another kind follows. */
struct item_reader {
    struct responses_translation *to;
    struct buf system;                /* the system messages at the front */
    struct buf thoughts, text, calls; /* of the open turn of the assistant */
    bool has_turn;
    int n_messages;
    int n_calls;                           /* of the open turn */
    char system_place[32], turn_place[32]; /* the item that began each, in the client's names */
};

static bool is_type(const struct json *item, const char *type) {
    return json_is_text(json_member(item, "type"), type);
}

/* ---- text ----------------------------------------------------------------------------------- */

static enum status add_part(struct item_reader *chat, struct buf *out, const struct json *part,
                            const char *where) {
    bool is_refusal = is_type(part, "refusal");
    const struct json *text = json_member(part, is_refusal ? "refusal" : "text");
    bool is_text = is_refusal || is_type(part, "input_text") || is_type(part, "output_text") ||
                   is_type(part, "text") || is_type(part, "reasoning_text") ||
                   is_type(part, "summary_text");
    if (!json_is(part, JSON_OBJECT)) return responses_wrong(chat->to, where, "must be an object");
    if (!is_text) {
        return err_set(chat->to->err, STATUS_INVALID_REQUEST, where,
                       "'%s' has the type \"%.40s\", which is not served here: send text.", where,
                       json_text(json_member(part, "type")));
    }
    if (!json_is(text, JSON_STRING)) return responses_wrong(chat->to, where, "must have its text");
    if (out->length > 0) buf_puts(out, "\n");
    buf_add(out, json_text(text), json_length(text));
    return STATUS_OK;
}

/* Appends a string, or the texts of parts, joined by line breaks. */
static enum status join(struct item_reader *chat, struct buf *out, const struct json *content,
                        const char *where) {
    int i = 0;
    if (json_is(content, JSON_STRING)) {
        buf_add(out, json_text(content), json_length(content));
        return STATUS_OK;
    }
    if (!json_is(content, JSON_ARRAY)) {
        return responses_wrong(chat->to, where, "must be a string or an array of parts");
    }
    json_each(part, content) {
        char name[64];
        snprintf(name, sizeof name, "%.48s[%d]", where, i++);
        if (add_part(chat, out, part, name)) return chat->to->err->status;
    }
    return STATUS_OK;
}

/* ---- messages ------------------------------------------------------------------------------- */

/* Begins a message that an item, `place`, has asked for. */
static void begin_message(struct item_reader *chat, const char *role, const struct buf *text,
                          const char *place) {
    struct buf *out = &chat->to->out;
    assert(chat->n_messages >= 0 && *place);
    api_name_message(&chat->to->names, chat->n_messages, "", place);
    buf_printf(out, "%s{\"role\":\"%s\",\"content\":", chat->n_messages++ > 0 ? "," : "", role);
    json_write_string(out, text->data, text->length);
}

static void end_message(struct item_reader *chat) {
    buf_puts(&chat->to->out, "}");
}

static void flush_system(struct item_reader *chat) {
    if (chat->system.length == 0) return;
    begin_message(chat, "system", &chat->system, chat->system_place);
    end_message(chat);
    buf_clear(&chat->system);
}

static void flush_turn(struct item_reader *chat) {
    struct buf *out = &chat->to->out;
    if (!chat->has_turn) return;
    assert((chat->n_calls > 0) == (chat->calls.length > 0));
    begin_message(chat, "assistant", &chat->text, chat->turn_place);
    if (chat->thoughts.length > 0) {
        buf_puts(out, ",\"reasoning_content\":");
        json_write_string(out, chat->thoughts.data, chat->thoughts.length);
    }
    if (chat->calls.length > 0) {
        buf_puts(out, ",\"tool_calls\":[");
        buf_add(out, chat->calls.data, chat->calls.length);
        buf_puts(out, "]");
    }
    end_message(chat);
    buf_clear(&chat->thoughts);
    buf_clear(&chat->text);
    buf_clear(&chat->calls);
    chat->has_turn = false;
    chat->n_calls = 0;
}

/* `place` is the item, `where` its content. */
static enum status add_system(struct item_reader *chat, const struct json *content,
                              const char *where, const char *place) {
    struct buf text = {0};
    enum status status = join(chat, &text, content, where);
    if (status == STATUS_OK && chat->n_messages == 0) {
        if (chat->system.length == 0)
            snprintf(chat->system_place, sizeof chat->system_place, "%s", place);
        if (chat->system.length > 0) buf_puts(&chat->system, "\n\n");
        buf_add(&chat->system, text.data ? text.data : "", text.length);
    } else if (status == STATUS_OK) {
        begin_message(chat, "system", &text, place);
        end_message(chat);
    }
    buf_free(&text);
    return status;
}

static enum status add_user(struct item_reader *chat, const struct json *content, const char *where,
                            const char *place) {
    struct buf text = {0};
    enum status status = join(chat, &text, content, where);
    if (status == STATUS_OK) {
        flush_system(chat);
        begin_message(chat, "user", &text, place);
        end_message(chat);
    }
    buf_free(&text);
    return status;
}

/* Makes the assistant's turn the open one. */
static void open_turn(struct item_reader *chat, const char *where) {
    flush_system(chat);
    if (!chat->has_turn) snprintf(chat->turn_place, sizeof chat->turn_place, "%s", where);
    assert(chat->system.length == 0);
    chat->has_turn = true;
}

/* ---- items ---------------------------------------------------------------------------------- */

static enum status add_message(struct item_reader *chat, const struct json *item,
                               const char *where) {
    const struct json *role = json_member(item, "role"), *content = json_member(item, "content");
    char name[48];
    snprintf(name, sizeof name, "%.32s.content", where);
    if (json_is_text(role, "assistant")) {
        if (chat->text.length > 0 || chat->calls.length > 0) flush_turn(chat);
        open_turn(chat, where);
        return join(chat, &chat->text, content, name);
    }
    flush_turn(chat);
    if (json_is_text(role, "user")) return add_user(chat, content, name, where);
    if (json_is_text(role, "system") || json_is_text(role, "developer"))
        return add_system(chat, content, name, where);
    snprintf(name, sizeof name, "%.32s.role", where);
    return responses_wrong(chat->to, name,
                           "must be \"user\", \"assistant\", \"system\" or \"developer\"");
}

static enum status add_reasoning(struct item_reader *chat, const struct json *item,
                                 const char *where) {
    const struct json *content = responses_member(item, "content");
    char name[48];
    snprintf(name, sizeof name, "%.32s.content", where);
    flush_turn(chat);
    open_turn(chat, where);
    return content ? join(chat, &chat->thoughts, content, name) : STATUS_OK;
}

/* Types of calls: the name of the function, NULL if the item has one, and the member with its
 * arguments. */
static const struct call_type {
    const char *type, *name, *arguments;
} call_types[] = {
    {"function_call", NULL, "arguments"},
    {"custom_tool_call", NULL, "input"},
    {"local_shell_call", "local_shell", "action"},
    {"shell_call", "shell", "action"},
    {"apply_patch_call", "apply_patch", "operation"},
};

static const struct call_type *call_type_of(const struct json *item) {
    for (size_t i = 0; i < sizeof call_types / sizeof *call_types; i++)
        if (is_type(item, call_types[i].type)) return &call_types[i];
    return NULL;
}

/* Calls and outputs are paired by 'call_id'; those of a local shell may have only an 'id'. */
static const struct json *call_id_of(const struct json *item) {
    const struct json *id = responses_member(item, "call_id");
    return id ? id : json_member(item, "id");
}

/* Writes the arguments of a call. The input of a custom tool is a text. */
static void write_arguments(struct buf *out, const struct json *item, const struct json *value) {
    bool is_custom = is_type(item, "custom_tool_call");
    buf_puts(out, is_custom ? ",\"arguments\":{\"input\":" : ",\"arguments\":");
    json_write_value(out, value);
    buf_puts(out, is_custom ? "}}}" : "}}");
}

/* Records the place of the call that is added to the open turn. */
static void name_call(struct item_reader *chat, const char *where) {
    assert(chat->has_turn);
    char member[48];
    if (chat->n_calls == 0)
        api_name_message(&chat->to->names, chat->n_messages, ".tool_calls", where);
    snprintf(member, sizeof member, ".tool_calls[%d]", chat->n_calls);
    api_name_message(&chat->to->names, chat->n_messages, member, where);
    snprintf(member, sizeof member, ".tool_calls[%d].function", chat->n_calls++);
    api_name_message(&chat->to->names, chat->n_messages, member, where);
}

static enum status add_call(struct item_reader *chat, const struct json *item, const char *where,
                            const struct call_type *type) {
    const struct json *id = call_id_of(item), *name = json_member(item, "name");
    const struct json *arguments = json_member(item, type->arguments);
    char path[48];
    if (!json_is(id, JSON_STRING)) return responses_wrong(chat->to, where, "must have a 'call_id'");
    if (!type->name && !json_is(name, JSON_STRING)) {
        return responses_wrong(chat->to, where, "must have a 'name'");
    }
    snprintf(path, sizeof path, "%.30s.%s", where, type->arguments);
    if (!json_is(arguments, type->name ? JSON_OBJECT : JSON_STRING)) {
        return responses_wrong(chat->to, path,
                               type->name ? "must be an object" : "must be a string");
    }
    open_turn(chat, where);
    name_call(chat, where);
    struct buf *out = &chat->calls;
    buf_puts(out, out->length > 0 ? ",{\"id\":" : "{\"id\":");
    json_write_value(out, id);
    buf_puts(out, ",\"type\":\"function\",\"function\":{\"name\":");
    if (type->name)
        json_write_string(out, type->name, strlen(type->name));
    else
        json_write_value(out, name);
    write_arguments(out, item, arguments);
    return STATUS_OK;
}

static bool is_output(const struct json *item) {
    static const char *const types[] = {"function_call_output", "custom_tool_call_output",
                                        "local_shell_call_output", "shell_call_output",
                                        "apply_patch_call_output"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (is_type(item, types[i])) return true;
    return false;
}

/* Appends the text of an output. A shell's is a list of objects, shown as JSON; a patch may have
 * only a status. */
static enum status join_output(struct item_reader *chat, struct buf *text, const struct json *item,
                               const char *where) {
    const struct json *output = responses_member(item, "output");
    if (is_type(item, "shell_call_output") && json_is(output, JSON_ARRAY)) {
        json_write_value(text, output);
        return STATUS_OK;
    }
    if (is_type(item, "apply_patch_call_output") && !output) output = json_member(item, "status");
    return join(chat, text, output, where);
}

static enum status add_output(struct item_reader *chat, const struct json *item,
                              const char *where) {
    const struct json *id = call_id_of(item);
    struct buf text = {0};
    char name[48];
    snprintf(name, sizeof name, "%.32s.output", where);
    if (!json_is(id, JSON_STRING)) {
        return responses_wrong(chat->to, where, "must have a 'call_id'");
    }
    flush_turn(chat);
    enum status status = join_output(chat, &text, item, name);
    if (status == STATUS_OK) {
        flush_system(chat);
        api_name_message(&chat->to->names, chat->n_messages, ".role", where);
        begin_message(chat, "tool", &text, where);
        buf_puts(&chat->to->out, ",\"tool_call_id\":");
        json_write_value(&chat->to->out, id);
        end_message(chat);
    }
    buf_free(&text);
    return status;
}

/* Items that a model does not read: tools that OpenAI's servers have run, whose results are in the
 * answer's text; contents that only OpenAI can decrypt; and notes of Codex to itself. */
static bool is_left_out(const struct json *item) {
    static const char *const types[] = {"web_search_call",
                                        "file_search_call",
                                        "code_interpreter_call",
                                        "image_generation_call",
                                        "tool_search_call",
                                        "tool_search_output",
                                        "mcp_call",
                                        "mcp_list_tools",
                                        "mcp_approval_request",
                                        "mcp_approval_response",
                                        "compaction",
                                        "compaction_summary",
                                        "compaction_trigger",
                                        "context_compaction",
                                        "ghost_snapshot"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (is_type(item, types[i])) return true;
    return false;
}

static enum status add_item(struct item_reader *chat, const struct json *item, const char *where) {
    const struct json *type = responses_member(item, "type");
    const struct call_type *call = call_type_of(item);
    if (!json_is(item, JSON_OBJECT)) return responses_wrong(chat->to, where, "must be an object");
    if (api_holds_nul(item)) {
        return responses_wrong(chat->to, where, "must not hold the character \\u0000");
    }
    if (!type || is_type(item, "message")) return add_message(chat, item, where);
    if (is_type(item, "reasoning")) return add_reasoning(chat, item, where);
    if (call) return add_call(chat, item, where, call);
    if (is_output(item)) return add_output(chat, item, where);
    if (is_left_out(item)) return STATUS_OK;
    return err_set(chat->to->err, STATUS_INVALID_REQUEST, where,
                   "'%s' has the type \"%.40s\", which is not served: nothing is stored here, so "
                   "send messages, calls and their outputs.",
                   where, json_text(type));
}

static enum status add_items(struct item_reader *chat) {
    const struct json *instructions = responses_field(chat->to, "instructions");
    const struct json *input = responses_field(chat->to, "input");
    int i = 0;
    if (instructions && add_system(chat, instructions, "instructions", "instructions"))
        return chat->to->err->status;
    if (json_is(input, JSON_STRING)) return add_user(chat, input, "input", "input");
    if (input && !json_is(input, JSON_ARRAY)) {
        return responses_wrong(chat->to, "input", "must be a string or an array of items");
    }
    json_each(item, input) {
        char where[32];
        snprintf(where, sizeof where, "input[%d]", i++);
        if (add_item(chat, item, where)) return chat->to->err->status;
    }
    return STATUS_OK;
}

enum status responses_write_messages(struct responses_translation *to) {
    struct item_reader chat = {.to = to};
    buf_puts(&to->out, ",\"messages\":[");
    enum status status = add_items(&chat);
    if (status == STATUS_OK) {
        flush_turn(&chat);
        flush_system(&chat);
        if (chat.n_messages == 0) { /* Codex probes a server with an empty input */
            begin_message(&chat, "user", &chat.text, "input");
            end_message(&chat);
        }
        assert(!chat.has_turn && chat.n_messages > 0);
        buf_puts(&to->out, "]");
    }
    buf_free(&chat.system);
    buf_free(&chat.thoughts);
    buf_free(&chat.text);
    buf_free(&chat.calls);
    return status;
}

enum status responses_write_input(struct buf *out, struct buf *names, const struct json *body,
                                  struct err *err) {
    struct responses_translation to = {.body = body, .out = *out, .names = *names, .err = err};
    enum status status = responses_write_messages(&to);
    *out = to.out;
    *names = to.names;
    return status;
}
