/* Tools of /v1/responses, in the form of a chat. */
#include <stdio.h>
#include <string.h>

#include "server/responses/internal.h"

static bool is_function(const struct json *tool) {
    return json_is_text(json_member(tool, "type"), "function");
}

/* Writes a tool, whose members are flat here and in "function" there. */
static enum status write_tool(struct translation *to, const struct json *tool, int index,
                              const char *where) {
    char field[48];
    static const char *const names[] = {"description", "parameters", "strict"};
    const struct json *name = json_member(tool, "name");
    if (json_length(name) == 0) return responses_wrong(to, where, "must have a 'name'");
    snprintf(field, sizeof field, "tools[%d]", index);
    api_name_add(&to->names, field, where);
    snprintf(field, sizeof field, "tools[%d].function", index);
    api_name_add(&to->names, field, where);
    buf_puts(&to->out, index == 0 ? "" : ",");
    buf_puts(&to->out, "{\"type\":\"function\",\"function\":{\"name\":");
    json_write_value(&to->out, name);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct json *value = responses_member(tool, names[i]);
        if (!value) continue;
        buf_printf(&to->out, ",\"%s\":", names[i]);
        json_write_value(&to->out, value);
    }
    buf_puts(&to->out, "}}");
    return STATUS_OK;
}

/* Writes a choice: a word, a function by name, or the list of allowed tools. */
static enum status write_choice(struct translation *to) {
    const struct json *choice = responses_member(to->body, "tool_choice");
    const struct json *name = json_member(choice, "name");
    if (!choice) return STATUS_OK;
    buf_puts(&to->out, ",\"tool_choice\":");
    if (is_function(choice) && json_is(name, JSON_STRING)) {
        buf_puts(&to->out, "{\"type\":\"function\",\"function\":{\"name\":");
        json_write_value(&to->out, name);
        buf_puts(&to->out, "}}");
    } else if (json_is(choice, JSON_STRING)) {
        json_write_value(&to->out, choice);
    } else {
        return responses_wrong(to, "tool_choice",
                               "must be \"auto\", \"none\", \"required\" or a function by name");
    }
    return STATUS_OK;
}

enum status responses_write_tools(struct translation *to) {
    const struct json *tools = responses_member(to->body, "tools");
    const struct json *parallel = responses_member(to->body, "parallel_tool_calls");
    int i = 0, n = 0;
    if (tools && !json_is(tools, JSON_ARRAY)) {
        return responses_wrong(to, "tools", "must be an array");
    }
    json_each(tool, tools) n += is_function(tool);
    if (n == 0) return STATUS_OK;
    n = 0;
    buf_puts(&to->out, ",\"tools\":[");
    json_each(tool, tools) {
        char where[32];
        snprintf(where, sizeof where, "tools[%d]", i++);
        if (is_function(tool) && write_tool(to, tool, n++, where)) return to->err->status;
    }
    buf_puts(&to->out, "]");
    if (parallel) {
        buf_puts(&to->out, ",\"parallel_tool_calls\":");
        json_write_value(&to->out, parallel);
    }
    return write_choice(to);
}
