/* Translates Ollama's bodies to OpenAI's. */
#include <assert.h>
#include <string.h>

#include "server/ollama/internal.h"

/* ---- fields --------------------------------------------------------------------------------- */

/* The fields of both bodies. */
#define SHARED_FIELDS                                                                              \
    {"stream", FIELD_BOOL, FIELD_NOT_STORED}, {"think", FIELD_ANY, FIELD_NOT_STORED},              \
        {"format", FIELD_ANY, FIELD_NOT_STORED}, {"options", FIELD_OBJECT, FIELD_NOT_STORED}, {    \
        "logprobs", FIELD_ANY, FIELD_NOT_STORED                                                    \
    }

static const struct field chat_rows[] = {
    {"model", FIELD_STRING, FIELD_NOT_STORED, .required = true},
    {"messages", FIELD_ARRAY, FIELD_NOT_STORED},
    {"tools", FIELD_ARRAY, FIELD_NOT_STORED},
    SHARED_FIELDS,
};

static const struct field generate_rows[] = {
    {"model", FIELD_STRING, FIELD_NOT_STORED, .required = true},
    {"prompt", FIELD_STRING, FIELD_NOT_STORED},
    {"suffix", FIELD_STRING, FIELD_NOT_STORED},
    {"system", FIELD_STRING, FIELD_NOT_STORED},
    {"raw", FIELD_BOOL, FIELD_NOT_STORED},
    {"template", FIELD_ANY, FIELD_NOT_STORED},
    {"context", FIELD_ANY, FIELD_NOT_STORED},
    {"images", FIELD_ANY, FIELD_NOT_STORED},
    SHARED_FIELDS,
};

const struct field_table ollama_chat_fields = {FIELDS_OF(chat_rows)};
const struct field_table ollama_generate_fields = {FIELDS_OF(generate_rows)};

const struct json *ollama_field(const struct ollama_translation *to, const char *name) {
    return fields_member(to->fields, to->body, name);
}

/* Begins the body with the model's name. */
static enum status begin(struct ollama_translation *to, const struct api_limits *limits) {
    const struct json *model = ollama_field(to, "model");
    if (!json_is(to->body, JSON_OBJECT)) {
        return err_set(to->err, STATUS_INVALID_REQUEST, NULL,
                       "The body must be a JSON object, but it is %s.", json_type_name(to->body));
    }
    if (!json_is(model, JSON_STRING)) {
        return err_set(to->err, STATUS_INVALID_REQUEST, "model", "'model' must be a string.");
    }
    if (fields_check(to->fields, to->body, to->err)) return to->err->status;
    const char *name = json_text(model);
    buf_puts(&to->out, "{\"model\":");
    json_write_string(&to->out, name, ollama_name_length(limits, name, json_length(model)));
    return STATUS_OK;
}

/* Both wishes are "think" here. */
static void name_wishes(struct api_request *request) {
    struct buf names = {0};
    api_name_add(&names, "thinking", "think");
    api_name_add(&names, "reasoning_effort", "think");
    api_keep_names(request, &names);
    buf_free(&names);
}

/* Parses the translated body, or fails with the error of the translation. Frees both bodies. */
static enum status finish(struct ollama_translation *to, struct api_request **out,
                          struct json *body, const struct api_limits *limits,
                          const struct api *api) {
    struct json *translated = NULL;
    enum status status = to->err->status;
    assert(status || to->out.length > 0);
    *out = NULL;
    if (status == STATUS_OK) {
        buf_puts(&to->out, "}");
        status = json_parse(&translated, "The body", to->out.data, to->out.length, to->err);
    }
    buf_free(&to->out);
    json_free(body);
    if (status != STATUS_OK) return status;
    status = (to->is_text ? api_parse_text : api_parse_chat)(out, translated, limits, api, to->err);
    if (status != STATUS_OK) {
        ollama_rename(to->err);
        return status;
    }
    if (!to->has_maximum) (*out)->max_tokens = -1;
    if (to->only_loads) (*out)->only_loads = true, (*out)->echo = false;
    name_wishes(*out);
    return STATUS_OK;
}

static void write_tools(struct ollama_translation *to) {
    const struct json *tools = ollama_field(to, "tools");
    if (!tools || json_is(tools, JSON_NULL)) return;
    buf_puts(&to->out, ",\"tools\":");
    json_write_value(&to->out, tools);
}

/* Clients load a model by a body without a prompt, and wait for the answer. Here it is a completion
 * of one token's prompt without new tokens, which only `echo` may ask for. */
static void write_load(struct ollama_translation *to) {
    to->is_text = to->only_loads = to->has_maximum = true;
    buf_puts(&to->out, ",\"prompt\":[0],\"max_tokens\":0,\"echo\":true");
}

bool ollama_is_empty(const struct json *value) {
    bool is_list = json_is(value, JSON_ARRAY);
    return !value || json_is(value, JSON_NULL) || json_is_text(value, "") ||
           (is_list && json_count(value) == 0);
}

enum status ollama_parse_chat(struct api_request **out, struct json *body,
                              const struct api_limits *limits, struct err *err) {
    struct ollama_translation to = {.body = body, .fields = &ollama_chat_fields, .err = err};
    *err = (struct err){0};
    if (begin(&to, limits)) return finish(&to, out, body, limits, &api_ollama_chat);
    if (ollama_is_empty(ollama_field(&to, "messages")))
        write_load(&to);
    else if (!ollama_messages(&to) && !ollama_options(&to))
        write_tools(&to);
    return finish(&to, out, body, limits, &api_ollama_chat);
}

/* ---- /api/generate -------------------------------------------------------------------------- */

static const struct json *text_member(struct ollama_translation *to, const char *name) {
    const struct json *value = ollama_field(to, name);
    if (!value || json_is(value, JSON_NULL) || json_is_text(value, "")) return NULL;
    if (!json_is(value, JSON_STRING)) {
        err_set(to->err, STATUS_INVALID_REQUEST, name, "'%s' must be a string, but it is %s.", name,
                json_type_name(value));
        return NULL;
    }
    return value;
}

static void write_message(struct ollama_translation *to, const char *role,
                          const struct json *text) {
    buf_printf(&to->out, "{\"role\":\"%s\",\"content\":", role);
    json_write_string(&to->out, json_text(text), json_length(text));
    buf_puts(&to->out, "}");
}

/* Refuses fields that change the answer and are not served. */
static enum status refuse_unserved(struct ollama_translation *to) {
    static const char *const names[] = {"template", "context"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct json *value = ollama_field(to, names[i]);
        if (ollama_is_empty(value)) continue;
        return err_set(to->err, STATUS_INVALID_REQUEST, names[i],
                       "'%s' is not served: send the conversation to /api/chat.", names[i]);
    }
    return ollama_refuse_images(to->body, "", to->err);
}

/* Without "raw", the prompt is a user's message in the model's chat template. */
static enum status write_prompt(struct ollama_translation *to) {
    const struct json *prompt = text_member(to, "prompt"), *system = text_member(to, "system");
    const struct json *suffix = text_member(to, "suffix");
    if (to->err->status) return to->err->status;
    if (!to->is_text) {
        buf_puts(&to->out, ",\"messages\":[");
        if (system) write_message(to, "system", system);
        if (system) buf_puts(&to->out, ",");
        write_message(to, "user", prompt);
        buf_puts(&to->out, "]");
        return STATUS_OK;
    }
    buf_puts(&to->out, ",\"prompt\":");
    json_write_string(&to->out, json_text(prompt), json_length(prompt));
    if (suffix) {
        buf_puts(&to->out, ",\"suffix\":");
        json_write_value(&to->out, suffix);
    }
    return STATUS_OK;
}

enum status ollama_parse_generate(struct api_request **out, struct json *body,
                                  const struct api_limits *limits, struct err *err) {
    struct ollama_translation to = {.body = body, .fields = &ollama_generate_fields, .err = err};
    *err = (struct err){0};
    const struct json *suffix = ollama_field(&to, "suffix");
    to.is_text = json_true(ollama_field(&to, "raw")) || !limits->has_chat_template ||
                 json_length(suffix) > 0;
    if (begin(&to, limits) || refuse_unserved(&to))
        return finish(&to, out, body, limits, &api_ollama_generate);
    bool has_prompt = text_member(&to, "prompt") || text_member(&to, "suffix");
    if (!has_prompt && !err->status)
        write_load(&to);
    else if (!err->status && !write_prompt(&to))
        ollama_options(&to);
    return finish(&to, out, body, limits, &api_ollama_generate);
}
