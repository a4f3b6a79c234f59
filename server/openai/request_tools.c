/* Checks a chat's tools, the choice among them, and the format of reasoning. */
#include <stdio.h>
#include <string.h>

#include "server/openai/internal.h"

#define MAX_TOOLS 1024

static enum status check_name(struct parse *parse, const char *path, const struct json *name) {
    char param[80];
    if (!json_is(name, JSON_STRING) || !json_text(name)[0]) {
        return field_wrong(parse, path, "must have a 'function' with a string 'name'");
    }
    if (tool_name_is_right(json_text(name), json_length(name))) return STATUS_OK;
    snprintf(param, sizeof param, "%s.function.name", path);
    return err_set(parse->err, STATUS_INVALID_REQUEST, param,
                   "'%s' must be 1 to %d characters of A-Z a-z 0-9 _ . -.", param, MAX_TOOL_NAME);
}

/* Bounds the number of tools, because each is looked up by name among all of them. */
static enum status check_count(struct parse *parse, const char *name, const struct json *tools) {
    if (json_count(tools) <= MAX_TOOLS) return STATUS_OK;
    return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                   "'%s' may hold at most %d tools, but it holds %d.", name, MAX_TOOLS,
                   json_count(tools));
}

enum status check_tools(struct parse *parse, const char *name, const struct json *value) {
    char path[64];
    int i = 0;
    enum status status = check_count(parse, name, value);
    if (status != STATUS_OK) return status;
    json_each(tool, value) {
        snprintf(path, sizeof path, "%s[%d]", name, i++);
        if (!json_is_text(json_member(tool, "type"), "function")) {
            return field_wrong(parse, path, "must be an object with \"type\": \"function\"");
        }
        status = refuse_nul(parse, path, tool);
        if (status == STATUS_OK)
            status = check_name(parse, path, json_member(json_member(tool, "function"), "name"));
        if (status != STATUS_OK) return status;
    }
    return STATUS_OK;
}

/* Checks that the schema of a tool's arguments describes an object. */
static enum status check_parameters(struct parse *parse, int i, const struct json *function) {
    const struct json *parameters = json_member(function, "parameters");
    const struct json *type = json_member(parameters, "type");
    char param[80];
    bool is_object = !type || json_is_text(type, "object");
    json_each(name, type) is_object = is_object || json_is_text(name, "object");
    snprintf(param, sizeof param, "tools[%d].function.parameters", i);
    if (parameters && !json_is(parameters, JSON_NULL) && !json_is(parameters, JSON_OBJECT))
        return field_wrong_type(parse, param, "an object, the schema of the arguments", parameters);
    if (is_object) return STATUS_OK;
    return field_wrong(parse, param,
                       "must have the 'type' \"object\", because arguments are an object");
}

/* Checks {"type": "allowed_tools", "allowed_tools": {"mode": ..., "tools": [...]}}. */
static enum status check_allowed_tools(struct parse *parse, const char *name,
                                       const struct json *value) {
    const struct json *allowed = json_member(value, "allowed_tools");
    const struct json *mode = json_member(allowed, "mode"), *tools = json_member(allowed, "tools");
    char path[64];
    int i = 0;
    if (!json_is_text(mode, "auto") && !json_is_text(mode, "required"))
        return field_wrong(parse, name,
                           "must have 'allowed_tools' with a 'mode' of \"auto\" or \"required\"");
    if (!json_is(tools, JSON_ARRAY) || !json_first(tools))
        return field_wrong(parse, name, "must have 'allowed_tools' with 'tools', at least one");
    enum status status = check_count(parse, "tool_choice.allowed_tools.tools", tools);
    if (status != STATUS_OK) return status;
    json_each(tool, tools) {
        const struct json *own = json_member(json_member(tool, "function"), "name");
        snprintf(path, sizeof path, "%s.allowed_tools.tools[%d]", name, i++);
        if (!json_is_text(json_member(tool, "type"), "function") || !json_is(own, JSON_STRING))
            return field_wrong(parse, path,
                               "must be {\"type\": \"function\", \"function\": {\"name\": "
                               "\"...\"}}");
    }
    return STATUS_OK;
}

enum status check_tool_choice(struct parse *parse, const char *name, const struct json *value) {
    static const char *const words[] = {"none", "auto", "required"};
    const struct json *function = json_member(value, "function");
    if (!json_is(value, JSON_OBJECT) && !json_is(value, JSON_STRING)) {
        return field_wrong_type(parse, name, "a string or an object", value);
    }
    for (int i = 0; i < 3; i++)
        if (json_is_text(value, words[i])) return STATUS_OK;
    if (json_is_text(json_member(value, "type"), "allowed_tools"))
        return check_allowed_tools(parse, name, value);
    bool is_named = json_is_text(json_member(value, "type"), "function");
    if (is_named && json_is(json_member(function, "name"), JSON_STRING)) return STATUS_OK;
    return field_wrong(parse, name,
                       "must be \"none\", \"auto\", \"required\", {\"type\": \"function\", "
                       "\"function\": {\"name\": \"...\"}} or {\"type\": \"allowed_tools\", "
                       "\"allowed_tools\": {\"mode\": \"auto\", \"tools\": [...]}}");
}

/* Returns a tool's name, from the array of tools, or NULL if the array lacks the tool. */
static const char *find_tool(const struct json *tools, const struct json *function) {
    const struct json *name = json_member(function, "name");
    json_each(tool, tools) {
        const struct json *own = json_member(json_member(tool, "function"), "name");
        if (json_is_text(own, json_text(name))) return json_text(own);
    }
    return NULL;
}

/* Applies the tool_choice to the tools. */
static enum status choose_tools(struct parse *parse, const struct json *tools) {
    struct api_request *request = parse->target;
    const struct json *choice = field_given(parse, "tool_choice");
    const struct json *allowed = json_member(choice, "allowed_tools");
    const struct json *named = json_member(choice, "function");
    bool is_auto = !choice || json_is_text(choice, "auto") ||
                   json_is_text(json_member(allowed, "mode"), "auto");
    bool is_known = true;
    request->tool_choice = is_auto ? TOOL_CHOICE_AUTO : TOOL_CHOICE_REQUIRED;
    if (allowed) request->callable.allowed = json_member(allowed, "tools");
    json_each(one, request->callable.allowed) {
        if (!find_tool(tools, json_member(one, "function"))) is_known = false;
    }
    if (!allowed && named) request->callable.only = find_tool(tools, named);
    if (is_known && (allowed || !named || request->callable.only)) return STATUS_OK;
    return field_wrong(parse, "tool_choice", "names a function that is not in 'tools'");
}

/* Fails if a request without tools requires a call. */
static enum status check_no_tools(struct parse *parse) {
    const struct json *choice = field_given(parse, "tool_choice");
    if (!choice || json_is_text(choice, "none") || json_is_text(choice, "auto")) return STATUS_OK;
    return field_wrong(parse, "tool_choice", "asks for a call, but there are no 'tools'");
}

/* Fails if the model's format of calls is unknown, because calls could not be parsed. */
static enum status check_format(struct parse *parse) {
    const struct tool_format *other = parse->limits->other_tool_format;
    struct buf names = {0}, problem = {0};
    if (parse->limits->tool_format) return STATUS_OK;
    tool_format_names(&names);
    buf_puts(&problem, other ? "writes tool calls in another form than '"
                             : "does not show a known form of tool calls");
    if (other) tool_format_name(other, &problem);
    if (other) buf_puts(&problem, "', whose markers it has");
    err_set(parse->err, STATUS_INVALID_REQUEST, "tools",
            "'tools' are not served with this model, whose chat template %s: give 'tool_choice' "
            "\"none\", or start the server with --tool-call-parser and one of %s.",
            problem.data, names.data);
    buf_free(&problem);
    buf_free(&names);
    return STATUS_INVALID_REQUEST;
}

/* Checks and stores the tools. With tool_choice "none", the answer is text, and the template does
 * not get the tools. */
enum status finish_tools(struct parse *parse, struct api_prompt *prompt) {
    const struct api_request *request = parse->target;
    const struct json *tools = field_given(parse, "tools");
    if (!tools || !json_first(tools)) return check_no_tools(parse);
    enum status status = check_tools(parse, "tools", tools);
    bool none = json_is_text(field_given(parse, "tool_choice"), "none");
    if (status != STATUS_OK || none) return status;
    int i = 0;
    json_each(tool, tools) {
        status = check_parameters(parse, i++, json_member(tool, "function"));
        if (status != STATUS_OK) return status;
    }
    if (request->use_beam_search)
        return field_wrong(parse, "tools",
                           "are not served together with 'use_beam_search': use 'best_of' without "
                           "it, or 'tool_choice' \"none\"");
    status = choose_tools(parse, tools);
    prompt->tools = tools;
    return status == STATUS_OK ? check_format(parse) : status;
}

enum status check_reasoning_format(struct parse *parse, const char *name,
                                   const struct json *value) {
    struct api_request *request = parse->target;
    request->keeps_thoughts = json_is_text(value, "none");
    if (request->keeps_thoughts || json_is_text(value, "auto") || json_is_text(value, "deepseek"))
        return STATUS_OK;
    return field_wrong(parse, name, "must be \"auto\", \"deepseek\" or \"none\"");
}
