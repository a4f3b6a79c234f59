/* Tools of /v1/messages, in the form of a chat. */
#include <stdio.h>
#include <string.h>

#include "server/anthropic/internal.h"

/* Returns the definition of a tool that Anthropic has defined and the client runs, or NULL. */
static const struct client_tool *defined(const struct json *tool) {
    return messages_client_tool(json_text(messages_member(tool, "type")));
}

/* Does the client run the tool? Other types with a date, such as "web_search_20250305", name tools
 * that Anthropic's servers run. */
static bool is_clients(const struct json *tool) {
    const struct json *type = messages_member(tool, "type");
    return !type || json_is_text(type, "custom") || defined(tool);
}

/* Records the places of the tool at an index of the translated list. */
static void name_tool(struct anthropic_translation *to, int index, const char *where) {
    static const char *const members[][2] = {
        {"", ""}, {".function", ""}, {".function.parameters", ".input_schema"}};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        char field[64], name[64];
        snprintf(field, sizeof field, "tools[%d]%s", index, members[i][0]);
        snprintf(name, sizeof name, "%.32s%s", where, members[i][1]);
        api_name_add(&to->names, field, name);
    }
}

static enum status refuse_tool(struct anthropic_translation *to, const struct json *tool,
                               const char *where) {
    return err_set(to->err, STATUS_INVALID_REQUEST, where,
                   "'%s' has the type \"%.40s\", which is not served here, because its results are "
                   "images: leave it out.",
                   where, json_text(json_member(tool, "type")));
}

static enum status write_tool(struct anthropic_translation *to, const struct json *tool, int index,
                              const char *where) {
    const struct json *name = json_member(tool, "name");
    const struct json *description = messages_member(tool, "description");
    const struct json *schema = messages_member(tool, "input_schema");
    const struct client_tool *known = defined(tool);
    if (json_length(name) == 0) return messages_wrong(to, where, "must have a 'name'");
    if (known && !known->schema) return refuse_tool(to, tool, where);
    name_tool(to, index, where);
    buf_puts(&to->out, index == 0 ? "" : ",");
    buf_puts(&to->out, "{\"type\":\"function\",\"function\":{\"name\":");
    json_write_value(&to->out, name);
    if (known) {
        buf_printf(&to->out, ",\"description\":\"%s\",\"parameters\":%s", known->description,
                   known->schema);
        description = schema = NULL;
    }
    if (description) {
        buf_puts(&to->out, ",\"description\":");
        json_write_value(&to->out, description);
    }
    if (schema) {
        buf_puts(&to->out, ",\"parameters\":");
        json_write_value(&to->out, schema);
    }
    buf_puts(&to->out, "}}");
    return STATUS_OK;
}

/* Fails if the choice names a tool that is left out. */
static enum status check_served(struct anthropic_translation *to, const struct json *name) {
    json_each(tool, messages_field(to, "tools")) {
        if (is_clients(tool) || !json_is_text(json_member(tool, "name"), json_text(name))) continue;
        return err_set(
            to->err, STATUS_INVALID_REQUEST, "tool_choice",
            "'tool_choice' names the tool \"%.64s\", which only Anthropic's servers run: "
            "name another, or leave 'tool_choice' out.",
            json_text(name));
    }
    return STATUS_OK;
}

static enum status write_choice(struct anthropic_translation *to) {
    const struct json *choice = messages_field(to, "tool_choice");
    const struct json *type = json_member(choice, "type"), *name = json_member(choice, "name");
    if (!choice) return STATUS_OK;
    if (json_is_text(type, "tool") && json_is(name, JSON_STRING)) {
        if (check_served(to, name)) return to->err->status;
        buf_puts(&to->out, ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":");
        json_write_value(&to->out, name);
        buf_puts(&to->out, "}}");
    } else if (json_is_text(type, "any")) {
        buf_puts(&to->out, ",\"tool_choice\":\"required\"");
    } else if (json_is_text(type, "none")) {
        buf_puts(&to->out, ",\"tool_choice\":\"none\"");
    } else if (!json_is_text(type, "auto")) {
        return messages_wrong(to, "tool_choice",
                              "must have the type \"auto\", \"any\", \"none\", or \"tool\" with a "
                              "'name'");
    }
    if (json_true(json_member(choice, "disable_parallel_tool_use"))) {
        buf_puts(&to->out, ",\"parallel_tool_calls\":false");
    }
    return STATUS_OK;
}

enum status messages_write_tools(struct anthropic_translation *to) {
    const struct json *tools = messages_field(to, "tools");
    int i = 0, n = 0;
    if (tools && !json_is(tools, JSON_ARRAY))
        return messages_wrong(to, "tools", "must be an array");
    json_each(tool, tools) n += is_clients(tool);
    if (n == 0) return write_choice(to);
    n = 0;
    buf_puts(&to->out, ",\"tools\":[");
    json_each(tool, tools) {
        char where[32];
        snprintf(where, sizeof where, "tools[%d]", i++);
        if (!json_is(tool, JSON_OBJECT)) return messages_wrong(to, where, "must be an object");
        if (is_clients(tool) && write_tool(to, tool, n++, where)) return to->err->status;
    }
    buf_puts(&to->out, "]");
    return write_choice(to);
}
