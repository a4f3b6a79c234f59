/* Tools of /v1/responses, in the form of a chat. */
#include <stdio.h>
#include <string.h>

#include "server/responses/internal.h"

static bool is_function(const struct json *tool) {
    return json_is_text(json_member(tool, "type"), "function");
}

/* Writes a tool, whose members are flat here and in "function" there. */
static enum status write_tool(struct responses_translation *to, const struct json *tool, int index,
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

static void write_function(struct buf *out, const struct json *name) {
    buf_puts(out, "{\"type\":\"function\",\"function\":{\"name\":");
    json_write_value(out, name);
    buf_puts(out, "}}");
}

/* Writes the functions of a list of allowed tools. Sets *n to their number. */
static enum status write_list(struct responses_translation *to, const struct json *tools, int *n) {
    int i = 0;
    *n = 0;
    json_each(tool, tools) {
        const struct json *name = json_member(tool, "name");
        char where[48];
        snprintf(where, sizeof where, "tool_choice.tools[%d]", i++);
        if (!json_is(json_member(tool, "type"), JSON_STRING)) {
            return responses_wrong(to, where, "must be an object with a 'type'");
        }
        if (!is_function(tool)) continue; /* left out of 'tools' too */
        if (json_length(name) == 0) return responses_wrong(to, where, "must have a 'name'");
        if ((*n)++ > 0) buf_puts(&to->out, ",");
        write_function(&to->out, name);
    }
    return STATUS_OK;
}

/* Writes {"type": "allowed_tools", "mode": ..., "tools": [...]}, whose mode and tools are one level
 * deeper in a chat. */
static enum status write_allowed(struct responses_translation *to, const struct json *choice) {
    const struct json *mode = json_member(choice, "mode"), *tools = json_member(choice, "tools");
    bool is_auto = json_is_text(mode, "auto");
    int n;
    if (!is_auto && !json_is_text(mode, "required")) {
        return responses_wrong(to, "tool_choice.mode", "must be \"auto\" or \"required\"");
    }
    if (!json_is(tools, JSON_ARRAY) || json_count(tools) == 0) {
        return responses_wrong(to, "tool_choice.tools", "must be an array of at least one tool");
    }
    size_t start = to->out.length;
    buf_printf(&to->out,
               "{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"%s\","
               "\"tools\":[",
               is_auto ? "auto" : "required");
    if (write_list(to, tools, &n)) return to->err->status;
    buf_puts(&to->out, "]}}");
    if (n > 0) return STATUS_OK;
    if (!is_auto) return responses_wrong(to, "tool_choice.tools", "must name a function");
    to->out.length = start;
    buf_puts(&to->out, "\"none\"");
    return STATUS_OK;
}

/* Fails for a choice of a tool that is left out. */
static enum status refuse_choice(struct responses_translation *to, const struct json *choice) {
    const struct json *type = json_member(choice, "type"), *name = json_member(choice, "name");
    if (!json_is(type, JSON_STRING) || is_function(choice)) {
        return responses_wrong(to, "tool_choice",
                               "must be \"auto\", \"none\", \"required\", a function by name, or "
                               "\"allowed_tools\" with a 'mode' and 'tools'");
    }
    bool has_name = json_length(name) > 0;
    return err_set(
        to->err, STATUS_INVALID_REQUEST, "tool_choice",
        "'tool_choice' asks for the tool \"%.64s\"%s, which is not served here: choose a "
        "tool of the type \"function\", or \"auto\".",
        json_text(has_name ? name : type), has_name ? " of another type" : "");
}

/* Writes a choice: a word, a function by name, or a list of allowed tools. */
static enum status write_choice(struct responses_translation *to) {
    const struct json *choice = responses_field(to, "tool_choice");
    const struct json *name = json_member(choice, "name");
    if (!choice) return STATUS_OK;
    buf_puts(&to->out, ",\"tool_choice\":");
    if (json_is(choice, JSON_STRING))
        json_write_value(&to->out, choice);
    else if (is_function(choice) && json_length(name) > 0)
        write_function(&to->out, name);
    else if (json_is_text(json_member(choice, "type"), "allowed_tools"))
        return write_allowed(to, choice);
    else
        return refuse_choice(to, choice);
    return STATUS_OK;
}

enum status responses_write_tools(struct responses_translation *to) {
    const struct json *tools = responses_field(to, "tools");
    const struct json *parallel = responses_field(to, "parallel_tool_calls");
    int i = 0, n = 0;
    if (tools && !json_is(tools, JSON_ARRAY)) {
        return responses_wrong(to, "tools", "must be an array");
    }
    json_each(tool, tools) n += is_function(tool);
    if (n == 0) return write_choice(to);
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
