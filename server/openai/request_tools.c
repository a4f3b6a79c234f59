/* The tools of a chat, which of them an answer may call, and where its thoughts go. */
#include <stdio.h>
#include <string.h>

#include "server/openai/internal.h"

static enum status check_name(struct parse *parse, const char *path, const struct json *name) {
    char param[80];
    if (!json_is(name, JSON_STRING) || !name->string[0]) {
        return field_wrong(parse, path, "must have a 'function' with a string 'name'");
    }
    if (tool_name_is_right(name->string, name->length)) return STATUS_OK;
    snprintf(param, sizeof param, "%s.function.name", path);
    return err_set(parse->err, STATUS_INVALID_REQUEST, param,
                   "'%s' must be 1 to %d characters of A-Z a-z 0-9 _ . -.", param, MAX_TOOL_NAME);
}

enum status check_tools(struct parse *parse, const char *name, const struct json *value) {
    char path[64];
    int i = 0;
    json_each(tool, value) {
        snprintf(path, sizeof path, "%s[%d]", name, i++);
        if (!json_is_text(json_member(tool, "type"), "function")) {
            return field_wrong(parse, path, "must be an object with \"type\": \"function\"");
        }
        enum status status = refuse_nul(parse, path, tool);
        if (status == STATUS_OK)
            status = check_name(parse, path, json_member(json_member(tool, "function"), "name"));
        if (status != STATUS_OK) return status;
    }
    return STATUS_OK;
}

/* Until answers can be held to a grammar, no call can be promised. */
enum status check_tool_choice(struct parse *parse, const char *name, const struct json *value) {
    if (!json_is(value, JSON_OBJECT) && !json_is(value, JSON_STRING)) {
        return field_wrong_type(parse, name, "a string or an object", value);
    }
    if (json_is_text(value, "none") || json_is_text(value, "auto")) return STATUS_OK;
    return not_served(parse, name, ", or give \"auto\" or \"none\"");
}

/* Calls are looked for in the form in which the model writes them. */
static enum status check_format(struct parse *parse) {
    struct buf names = {0};
    if (parse->limits->tool_format) return STATUS_OK;
    tool_format_names(&names);
    err_set(parse->err, STATUS_INVALID_REQUEST, "tools",
            "'tools' are not served with this model, whose chat template shows no known form of "
            "calls: give 'tool_choice' \"none\", or start the server with --tool-call-parser and "
            "one of %s.",
            names.data);
    buf_free(&names);
    return STATUS_INVALID_REQUEST;
}

/* With "none" the answer is text, and the model does not see the tools. */
enum status finish_tools(struct parse *parse, struct api_prompt *prompt) {
    struct api_request *request = parse->target;
    const struct json *tools = field_given(parse, "tools");
    if (!tools || !tools->child) return STATUS_OK;
    enum status status = check_tools(parse, "tools", tools);
    bool none = json_is_text(field_given(parse, "tool_choice"), "none");
    if (status != STATUS_OK || none) return status;
    request->tool_choice = TOOL_CHOICE_AUTO;
    prompt->tools = tools;
    return check_format(parse);
}

enum status check_reasoning_format(struct parse *parse, const char *name,
                                   const struct json *value) {
    struct api_request *request = parse->target;
    request->keeps_thoughts = json_is_text(value, "none");
    if (request->keeps_thoughts || json_is_text(value, "auto") || json_is_text(value, "deepseek"))
        return STATUS_OK;
    return field_wrong(parse, name, "must be \"auto\", \"deepseek\" or \"none\"");
}
