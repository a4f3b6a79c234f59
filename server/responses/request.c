/* Translates bodies of /v1/responses to bodies of a chat. */
#include <stdio.h>
#include <string.h>

#include "server/responses/internal.h"

enum status responses_wrong(struct responses_translation *to, const char *where,
                            const char *message) {
    return err_set(to->err, STATUS_INVALID_REQUEST, where, "'%s' %s.", where, message);
}

const struct json *responses_member(const struct json *object, const char *name) {
    const struct json *value = json_member(object, name);
    return value && !json_is(value, JSON_NULL) ? value : NULL;
}

/* ---- fields --------------------------------------------------------------------------------- */

static const struct field rows[] = {
    {"model", FIELD_ANY, FIELD_NOT_STORED, .copied_to = "model", .required = true},
    {"max_output_tokens", FIELD_ANY, FIELD_NOT_STORED, .copied_to = "max_tokens"},
    {"temperature", FIELD_ANY, FIELD_NOT_STORED, .copied_to = "temperature"},
    {"top_p", FIELD_ANY, FIELD_NOT_STORED, .copied_to = "top_p"},
    {"stream", FIELD_ANY, FIELD_NOT_STORED, .copied_to = "stream"},
    {"user", FIELD_ANY, FIELD_NOT_STORED, .copied_to = "user"},
    {"seed", FIELD_ANY, FIELD_NOT_STORED, .copied_to = "seed"},
    {"receipt", FIELD_ANY, FIELD_NOT_STORED, .copied_to = "receipt"},
    {"input", FIELD_ANY, FIELD_NOT_STORED},
    {"instructions", FIELD_ANY, FIELD_NOT_STORED},
    {"tools", FIELD_ARRAY, FIELD_NOT_STORED},
    {"tool_choice", FIELD_ANY, FIELD_NOT_STORED},
    {"parallel_tool_calls", FIELD_BOOL, FIELD_NOT_STORED},
    {"reasoning", FIELD_OBJECT, FIELD_NOT_STORED},
    {"text", FIELD_OBJECT, FIELD_NOT_STORED},
    {"truncation", FIELD_STRING, FIELD_NOT_STORED},
    {"top_logprobs", FIELD_ANY, FIELD_NOT_STORED},
    {"background", FIELD_BOOL, FIELD_NOT_STORED},
    {"store", FIELD_BOOL, FIELD_NOT_STORED},
    {"previous_response_id", FIELD_ANY, FIELD_NOT_STORED},
    {"conversation", FIELD_ANY, FIELD_NOT_STORED},
    {"prompt", FIELD_ANY, FIELD_NOT_STORED},
};

const struct field_table responses_fields = {FIELDS_OF(rows)};

const struct json *responses_field(const struct responses_translation *to, const char *name) {
    return fields_member(&responses_fields, to->body, name);
}

/* The client's names of fields that a translation writes. */
static void name_fields(struct responses_translation *to) {
    static const struct {
        const char *field, *name;
    } written[] = {
        {"messages", "input"},
        {"response_format", "text.format"},
        {"response_format.json_schema", "text.format"},
        {"verbosity", "text.verbosity"},
        {"reasoning_effort", "reasoning.effort"},
        {"truncate_prompt_tokens", "truncation"},
        {"tool_choice.allowed_tools", "tool_choice"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].copied_to) api_name_add(&to->names, rows[i].copied_to, rows[i].name);
    for (size_t i = 0; i < sizeof written / sizeof *written; i++)
        api_name_add(&to->names, written[i].field, written[i].name);
}

/* Writes a member of an object under another name. */
static enum status write_member(struct responses_translation *to, const char *object,
                                const char *member, const char *field) {
    const struct json *value = responses_member(responses_field(to, object), member);
    char name[48];
    if (!value) return STATUS_OK;
    snprintf(name, sizeof name, "%s.%s", object, member);
    if (!json_is(value, JSON_STRING)) return responses_wrong(to, name, "must be a string");
    buf_printf(&to->out, ",\"%s\":", field);
    json_write_value(&to->out, value);
    return STATUS_OK;
}

static enum status write_wishes(struct responses_translation *to) {
    if (write_member(to, "reasoning", "effort", "reasoning_effort")) return to->err->status;
    return write_member(to, "text", "verbosity", "verbosity");
}

/* The members of a format are flat here and in "json_schema" there. */
static enum status write_format(struct responses_translation *to) {
    const struct json *format = responses_member(responses_field(to, "text"), "format");
    const struct json *type = json_member(format, "type"), *schema = json_member(format, "schema");
    const struct json *strict = responses_member(format, "strict");
    if (!format || json_is_text(type, "text")) return STATUS_OK;
    if (json_is_text(type, "json_object")) {
        buf_puts(&to->out, ",\"response_format\":{\"type\":\"json_object\"}");
        return STATUS_OK;
    }
    if (!json_is_text(type, "json_schema") || !schema) {
        return responses_wrong(to, "text.format",
                               "must have the type \"text\", \"json_object\", or \"json_schema\" "
                               "with a 'schema'");
    }
    buf_puts(&to->out, ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":"
                       "\"format\",\"schema\":");
    json_write_value(&to->out, schema);
    if (strict) {
        buf_puts(&to->out, ",\"strict\":");
        json_write_value(&to->out, strict);
    }
    buf_puts(&to->out, "}}");
    return STATUS_OK;
}

static enum status write_truncation(struct responses_translation *to) {
    const struct json *truncation = responses_field(to, "truncation");
    if (!truncation || json_is_text(truncation, "disabled")) return STATUS_OK;
    if (!json_is_text(truncation, "auto")) {
        return responses_wrong(to, "truncation", "must be \"auto\" or \"disabled\"");
    }
    buf_puts(&to->out, ",\"truncate_prompt_tokens\":-1");
    return STATUS_OK;
}

/* ---- refusals ------------------------------------------------------------------------------- */

/* Without --state-dir nothing is stored. */
static enum status check_stored(struct responses_translation *to) {
    const struct json *store = responses_field(to, "store");
    bool background = json_true(responses_field(to, "background"));
    bool previous = responses_field(to, "previous_response_id") != NULL;
    if (!to->limits->keeps && previous) {
        return responses_wrong(to, "previous_response_id",
                               "is not served: nothing is stored here, so send the whole "
                               "conversation in 'input', or start the server with --state-dir");
    }
    if (!to->limits->keeps && background) {
        return responses_wrong(to, "background",
                               "is not served: wait for the answer or stream it, or start the "
                               "server with --state-dir");
    }
    if (background && store && !json_true(store)) {
        return responses_wrong(to, "background", "needs 'store': true, or its absence");
    }
    return STATUS_OK;
}

/* Refuses fields that change the answer and need other services, or logprobs. */
static enum status refuse_unserved(struct responses_translation *to) {
    static const struct {
        const char *name, *fix;
    } unserved[] = {
        {"conversation", "is not served: there are no conversations here, so send the whole "
                         "conversation in 'input'"},
        {"prompt", "is not served: there are no prompts here, so send 'instructions' and 'input'"},
    };
    const struct json *top = responses_field(to, "top_logprobs");
    for (size_t i = 0; i < sizeof unserved / sizeof *unserved; i++)
        if (responses_field(to, unserved[i].name))
            return responses_wrong(to, unserved[i].name, unserved[i].fix);
    if (top && json_number(top) != 0) {
        return responses_wrong(to, "top_logprobs",
                               "is not served on this path: use /v1/chat/completions");
    }
    return STATUS_OK;
}

/* ---- the body ------------------------------------------------------------------------------- */

static enum status translate(struct responses_translation *to) {
    if (!json_is(to->body, JSON_OBJECT)) {
        return err_set(to->err, STATUS_INVALID_REQUEST, NULL,
                       "The body must be a JSON object, but it is %s.", json_type_name(to->body));
    }
    if (!json_is(responses_field(to, "model"), JSON_STRING)) {
        return responses_wrong(to, "model", "must be a string");
    }
    buf_puts(&to->out, "{");
    fields_copy(&responses_fields, to->body, &to->out);
    if (fields_check(&responses_fields, to->body, to->err) || check_stored(to) ||
        refuse_unserved(to) || responses_write_messages(to) || responses_write_tools(to) ||
        write_wishes(to) || write_format(to) || write_truncation(to)) {
        return to->err->status;
    }
    buf_puts(&to->out, "}");
    return STATUS_OK;
}

/* The members of a body that a chat does not have. */
struct stored_wishes {
    bool stores, background;
    char previous[64]; /* an id; "": none */
};

/* OpenAI's servers store a response unless the body says otherwise. */
static enum status read_wishes(struct stored_wishes *out, struct responses_translation *to) {
    const struct json *store = responses_field(to, "store");
    const struct json *previous = responses_field(to, "previous_response_id");
    *out = (struct stored_wishes){.stores = to->limits->keeps && (!store || json_true(store)),
                                  .background = json_true(responses_field(to, "background"))};
    if (!previous) return STATUS_OK;
    size_t length = json_length(previous);
    if (length == 0 || length >= sizeof out->previous || !is_printable(json_text(previous), length))
        return responses_wrong(to, "previous_response_id", "must be the id of a response");
    memcpy(out->previous, json_text(previous), length);
    return STATUS_OK;
}

static void store_wishes(struct api_request *request, const struct stored_wishes *wishes) {
    request->stores = wishes->stores;
    request->background = wishes->background;
    if (wishes->previous[0])
        request->previous =
            arena_strndup(request->arena, wishes->previous, strlen(wishes->previous));
}

enum status responses_parse(struct api_request **out, struct json *body,
                            const struct api_limits *limits, struct err *err) {
    struct responses_translation to = {.body = body, .limits = limits, .err = err};
    struct stored_wishes wishes;
    struct json *translated = NULL;
    *out = NULL;
    name_fields(&to);
    enum status status = translate(&to);
    if (status == STATUS_OK) status = read_wishes(&wishes, &to);
    if (status == STATUS_OK)
        status = json_parse(&translated, "The body", to.out.data, to.out.length, err);
    buf_free(&to.out);
    json_free(body);
    if (status == STATUS_OK) {
        status = api_parse_chat(out, translated, limits, &api_responses, err);
        if (status == STATUS_OK) {
            store_wishes(*out, &wishes);
            api_keep_names(*out, &to.names);
        } else
            api_rename(err, to.names.data, to.names.length);
    }
    buf_free(&to.names);
    return status;
}
