/* Translates bodies of /v1/messages to bodies of a chat. */
#include <stdio.h>
#include <string.h>

#include "server/anthropic/internal.h"

enum status messages_wrong(struct anthropic_translation *to, const char *where,
                           const char *message) {
    return err_set(to->err, STATUS_INVALID_REQUEST, where, "'%s' %s.", where, message);
}

const struct json *messages_member(const struct json *object, const char *name) {
    const struct json *value = json_member(object, name);
    return value && !json_is(value, JSON_NULL) ? value : NULL;
}

/* ---- fields --------------------------------------------------------------------------------- */

static const struct field rows[] = {
    {"model", FIELD_ANY, FIELD_NOT_STORED, .copied_to = "model", .required = true},
    {"max_tokens", FIELD_ANY, FIELD_NOT_STORED, .copied_to = "max_tokens"},
    {"temperature", FIELD_ANY, FIELD_NOT_STORED, .copied_to = "temperature"},
    {"top_p", FIELD_ANY, FIELD_NOT_STORED, .copied_to = "top_p"},
    {"top_k", FIELD_ANY, FIELD_NOT_STORED, .copied_to = "top_k"},
    {"stop_sequences", FIELD_ANY, FIELD_NOT_STORED, .copied_to = "stop"},
    {"stream", FIELD_ANY, FIELD_NOT_STORED, .copied_to = "stream"},
    {"seed", FIELD_ANY, FIELD_NOT_STORED, .copied_to = "seed"},
    {"receipt", FIELD_ANY, FIELD_NOT_STORED, .copied_to = "receipt"},
    {"messages", FIELD_ARRAY, FIELD_NOT_STORED, .required = true},
    {"system", FIELD_ANY, FIELD_NOT_STORED},
    {"tools", FIELD_ARRAY, FIELD_NOT_STORED},
    {"tool_choice", FIELD_OBJECT, FIELD_NOT_STORED},
    {"thinking", FIELD_OBJECT, FIELD_NOT_STORED},
    {"output_config", FIELD_OBJECT, FIELD_NOT_STORED},
    {"output_format", FIELD_OBJECT, FIELD_NOT_STORED},
    {"mcp_servers", FIELD_ARRAY, FIELD_NOT_STORED},
};

const struct field_table messages_fields = {FIELDS_OF(rows)};

const struct json *messages_field(const struct anthropic_translation *to, const char *name) {
    return fields_member(&messages_fields, to->body, name);
}

/* The client's names of fields that a translation writes. */
static void name_fields(struct anthropic_translation *to) {
    static const struct {
        const char *field, *name;
    } written[] = {
        {"response_format", "output_config.format"},
        {"response_format.json_schema", "output_config.format"},
        {"reasoning_effort", "output_config.effort"},
        {"thinking_token_budget", "thinking.budget_tokens"},
        {"parallel_tool_calls", "tool_choice.disable_parallel_tool_use"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].copied_to) api_name_add(&to->names, rows[i].copied_to, rows[i].name);
    for (size_t i = 0; i < sizeof written / sizeof *written; i++)
        api_name_add(&to->names, written[i].field, written[i].name);
}

static enum status write_thinking(struct anthropic_translation *to) {
    const struct json *thinking = messages_field(to, "thinking");
    const struct json *type = json_member(thinking, "type");
    const struct json *config = messages_field(to, "output_config");
    const struct json *effort = messages_member(config, "effort");
    bool is_known = json_is_text(type, "disabled") || json_is_text(type, "enabled") ||
                    json_is_text(type, "adaptive");
    if (thinking && !is_known) {
        return messages_wrong(to, "thinking",
                              "must have the type \"enabled\", \"disabled\" or \"adaptive\"");
    }
    if (effort && !json_is(effort, JSON_STRING)) {
        return messages_wrong(to, "output_config.effort", "must be a string");
    }
    if (thinking) buf_printf(&to->out, ",\"thinking\":{\"type\":\"%s\"}", json_text(type));
    const struct json *budget = messages_member(thinking, "budget_tokens");
    if (budget && json_is_text(type, "enabled") && to->limits->reasoning_format) {
        buf_puts(&to->out, ",\"thinking_token_budget\":");
        json_write_value(&to->out, budget);
    }
    if (effort) {
        buf_puts(&to->out, ",\"reasoning_effort\":");
        json_write_value(&to->out, effort);
    }
    return STATUS_OK;
}

static enum status write_format(struct anthropic_translation *to) {
    const struct json *config = messages_field(to, "output_config");
    const struct json *format = messages_member(config, "format");
    const struct json *schema = json_member(format, "schema");
    if (!format) format = messages_field(to, "output_format");
    if (!format) return STATUS_OK;
    if (!schema) schema = json_member(format, "schema");
    if (!json_is_text(json_member(format, "type"), "json_schema") || !schema) {
        return messages_wrong(to, "output_config.format",
                              "must have the type \"json_schema\" and a 'schema'");
    }
    buf_puts(&to->out, ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":"
                       "\"format\",\"schema\":");
    json_write_value(&to->out, schema);
    buf_puts(&to->out, "}}");
    return STATUS_OK;
}

/* Refuses a field that gives the answer tools that this server does not run. */
static enum status refuse_servers(struct anthropic_translation *to) {
    const struct json *servers = messages_field(to, "mcp_servers");
    if (json_count(servers) == 0) return STATUS_OK;
    return messages_wrong(to, "mcp_servers",
                          "is not served: connect the client to them, and send 'tools'");
}

/* ---- the body ------------------------------------------------------------------------------- */

static enum status translate(struct anthropic_translation *to) {
    if (!json_is(to->body, JSON_OBJECT)) {
        return err_set(to->err, STATUS_INVALID_REQUEST, NULL,
                       "The body must be a JSON object, but it is %s.", json_type_name(to->body));
    }
    if (!json_is(messages_field(to, "model"), JSON_STRING)) {
        return messages_wrong(to, "model", "must be a string");
    }
    buf_puts(&to->out, "{");
    fields_copy(&messages_fields, to->body, &to->out);
    if (fields_check(&messages_fields, to->body, to->err) || messages_write(to) ||
        messages_write_tools(to) || write_thinking(to) || write_format(to) || refuse_servers(to)) {
        return to->err->status;
    }
    buf_puts(&to->out, "}");
    return STATUS_OK;
}

enum status messages_parse(struct api_request **out, struct json *body,
                           const struct api_limits *limits, struct err *err) {
    struct anthropic_translation to = {.body = body, .limits = limits, .err = err};
    struct json *translated = NULL;
    *out = NULL;
    name_fields(&to);
    enum status status = translate(&to);
    if (status == STATUS_OK)
        status = json_parse(&translated, "The body", to.out.data, to.out.length, err);
    buf_free(&to.out);
    json_free(body);
    if (status == STATUS_OK) {
        status = api_parse_chat(out, translated, limits, &api_messages, err);
        if (status == STATUS_OK)
            api_keep_names(*out, &to.names);
        else
            api_rename(err, to.names.data, to.names.length);
    }
    buf_free(&to.names);
    return status;
}
