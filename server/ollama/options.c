/* Options of Ollama's bodies, as fields of OpenAI's. */
#include <stdio.h>
#include <string.h>

#include "server/ollama/internal.h"

/* Returns the field with the meaning of an option, or NULL if the option is to be ignored. Sampling
 * fields have the same names. */
static const char *field_of(const char *option) {
    if (strcmp(option, "num_predict") == 0) return "max_tokens";
    return strcmp(option, "seed") == 0 || api_is_sampling_field(option) ? option : NULL;
}

/* Does the value mean that the option is absent? Clients send -1 or -2 for "as many tokens as fit"
 * and a negative seed for "any". */
static bool is_absent(const struct json *option) {
    bool has_negative =
        strcmp(option->name, "num_predict") == 0 || strcmp(option->name, "seed") == 0;
    bool is_negative = json_is_integer(option) && json_integer(option) < 0;
    return json_is(option, JSON_NULL) || (has_negative && is_negative);
}

static void write_options(struct ollama_translation *to, const struct json *options) {
    json_each_member(option, options) {
        const char *field = field_of(option->name);
        if (!field || is_absent(option)) continue;
        to->has_maximum |= strcmp(field, "max_tokens") == 0;
        buf_printf(&to->out, ",\"%s\":", field);
        json_write_value(&to->out, option);
    }
}

/* "format" is "json" or a schema. */
static enum status write_format(struct ollama_translation *to) {
    const struct json *format = ollama_field(to, "format");
    if (!format || json_is(format, JSON_NULL) || json_is_text(format, "")) return STATUS_OK;
    if (json_is_text(format, "json")) {
        buf_puts(&to->out, ",\"response_format\":{\"type\":\"json_object\"}");
        return STATUS_OK;
    }
    if (!json_is(format, JSON_OBJECT)) {
        return err_set(to->err, STATUS_INVALID_REQUEST, "format",
                       "'format' must be \"json\" or a JSON schema, but it is %s.",
                       json_type_name(format));
    }
    buf_puts(&to->out, ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":"
                       "\"format\",\"schema\":");
    json_write_value(&to->out, format);
    buf_puts(&to->out, "}}");
    return STATUS_OK;
}

/* "think" is a bool or a level. A completion has no template and ignores it. */
static enum status write_think(struct ollama_translation *to) {
    const struct json *think = ollama_field(to, "think");
    if (!think || json_is(think, JSON_NULL)) return STATUS_OK;
    bool is_level = json_is_text(think, "low") || json_is_text(think, "medium") ||
                    json_is_text(think, "high") || json_is_text(think, "max");
    if (!json_is(think, JSON_BOOL) && !is_level) {
        return err_set(to->err, STATUS_INVALID_REQUEST, "think",
                       "'think' must be a boolean, \"low\", \"medium\", \"high\" or \"max\".");
    }
    if (to->is_text) return STATUS_OK;
    buf_printf(&to->out, ",\"thinking\":%s", is_level || json_true(think) ? "true" : "false");
    if (is_level) {
        buf_puts(&to->out, ",\"reasoning_effort\":");
        json_write_value(&to->out, think);
    }
    return STATUS_OK;
}

/* A stream is the default. */
static enum status write_stream(struct ollama_translation *to) {
    const struct json *stream = ollama_field(to, "stream");
    if (stream && !json_is(stream, JSON_NULL) && !json_is(stream, JSON_BOOL)) {
        return err_set(to->err, STATUS_INVALID_REQUEST, "stream",
                       "'stream' must be a boolean, but it is %s.", json_type_name(stream));
    }
    bool is_whole = json_is(stream, JSON_BOOL) && !json_true(stream);
    buf_printf(&to->out, ",\"stream\":%s", is_whole ? "false" : "true");
    return STATUS_OK;
}

enum status ollama_options(struct ollama_translation *to) {
    const struct json *options = ollama_field(to, "options");
    if (options && !json_is(options, JSON_NULL) && !json_is(options, JSON_OBJECT)) {
        return err_set(to->err, STATUS_INVALID_REQUEST, "options",
                       "'options' must be an object, but it is %s.", json_type_name(options));
    }
    if (json_true(ollama_field(to, "logprobs"))) {
        return err_set(to->err, STATUS_INVALID_REQUEST, "logprobs",
                       "'logprobs' is not served on this path: use /v1/chat/completions.");
    }
    write_options(to, options);
    if (write_format(to) || write_think(to) || write_stream(to)) return to->err->status;
    return STATUS_OK;
}

void ollama_rename(struct err *err) {
    char message[sizeof err->message], quoted[sizeof err->param + 2], field[sizeof err->param];
    bool is_maximum = strcmp(err->param, "max_tokens") == 0;
    int n = snprintf(quoted, sizeof quoted, "'%s'", err->param);
    if (!is_maximum && !field_of(err->param)) return;
    snprintf(field, sizeof field, "options.%.48s", is_maximum ? "num_predict" : err->param);
    bool begins = strncmp(err->message, quoted, (size_t)n) == 0;
    snprintf(err->param, sizeof err->param, "%s", field);
    if (!begins) return;
    snprintf(message, sizeof message, "'%s'%.900s", field, err->message + n);
    snprintf(err->message, sizeof err->message, "%s", message);
}
