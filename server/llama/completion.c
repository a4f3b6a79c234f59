/* llama-server's /completion: its bodies, answers and stream. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "server/llama/internal.h"

/* ---- requests ------------------------------------------------------------------------------- */

/* Fields with another name in /v1/completions. All others are those of /v1/completions. */
static const struct field rows[] = {
    {"n_predict", FIELD_INT, FIELD_NOT_STORED, 0, INT32_MIN, INT32_MAX}, /* negative: absent */
    {"n_probs", FIELD_ANY, FIELD_NOT_STORED, .copied_to = "logprobs"},
    {"return_tokens", FIELD_ANY, FIELD_NOT_STORED, .copied_to = "return_token_ids"},
};

static const struct field_table llama_fields = {FIELDS_OF(rows)};

/* Do these values mean that the field is absent? Zero of n_probs asks for no logprobs, and a
 * negative number of n_predict for as many tokens as fit. */
static bool is_absent(const struct json *member) {
    if (!json_is_integer(member)) return false;
    if (strcmp(member->name, "n_probs") == 0) return json_integer(member) == 0;
    return strcmp(member->name, "n_predict") == 0 && json_integer(member) < 0;
}

enum status llama_translate(struct json **out, const struct json *body,
                            const struct field_table *fields,
                            bool (*skips)(const struct json *member), struct err *err) {
    struct buf text = {0};
    const char *comma = "";
    buf_puts(&text, "{");
    json_each_member(member, body) {
        if (skips && skips(member)) continue;
        const struct field *field = fields_find(fields, member->name);
        const char *name = field && field->copied_to ? field->copied_to : member->name;
        buf_puts(&text, comma);
        json_write_string(&text, name, strlen(name));
        buf_puts(&text, ":");
        json_write_value(&text, member);
        comma = ",";
    }
    buf_puts(&text, "}");
    /* a body with both names of a field */
    enum status status = json_parse_strict(out, "The body", text.data, text.length, err);
    buf_free(&text);
    return status;
}

/* The member that sets the maximum of tokens, or NULL for as many as fit. */
static bool has_maximum(const struct json *body) {
    static const char *const names[] = {"n_predict", "max_tokens", "max_completion_tokens"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (json_is(json_member(body, names[i]), JSON_NUMBER)) return true;
    return false;
}

static enum status parse_as(struct api_request **out, struct json *body,
                            const struct api_limits *limits, const struct api *api,
                            struct err *err) {
    struct json *translated = NULL;
    enum status status = STATUS_OK;
    *out = NULL;
    if (!json_is(body, JSON_OBJECT)) { /* this parser's own message */
        return api_parse_text(out, body, limits, api, err);
    }
    status = llama_translate(&translated, body, &llama_fields, is_absent, err);
    json_free(body);
    if (status != STATUS_OK) return status;
    bool is_limited = has_maximum(translated);
    status = api_parse_text(out, translated, limits, api, err);
    if (status != STATUS_OK) return status;
    if (!is_limited) (*out)->max_tokens = -1;
    (*out)->continuous_usage_stats = true; /* each chunk has counts */
    return STATUS_OK;
}

static enum status parse_body(struct api_request **out, struct json *body,
                              const struct api_limits *limits, struct err *err) {
    return parse_as(out, body, limits, &api_llama_completion, err);
}

/* ---- /infill -------------------------------------------------------------------------------- */

static const struct field infill_rows[] = {
    {"input_prefix", FIELD_STRING, FIELD_NOT_STORED, .required = true},
    {"input_suffix", FIELD_STRING, FIELD_NOT_STORED, .required = true, .copied_to = "suffix"},
    {"prompt", FIELD_STRING, FIELD_NOT_STORED},
};

static const struct field_table infill_fields = {FIELDS_OF(infill_rows)};

/* Editors send these with every request. They limit the time, the indentation or the members of the
 * answer, or choose samplers: a client is served without them. */
static bool is_wish(const char *name) {
    static const char *const names[] = {"samplers", "t_max_predict_ms", "n_indent",
                                        "response_fields"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

/* Writes a body of /completion: its prompt is the text before the gap. */
static void write_completion(struct buf *out, const struct json *body) {
    const struct json *prefix = fields_member(&infill_fields, body, "input_prefix");
    const struct json *prompt = fields_member(&infill_fields, body, "prompt");
    struct buf text = {0};
    buf_add(&text, json_text(prefix), json_length(prefix));
    if (prompt) buf_add(&text, json_text(prompt), json_length(prompt));
    buf_puts(out, "{\"prompt\":");
    json_write_string(out, text.data ? text.data : "", text.length);
    json_each_member(member, body) {
        const struct field *field = fields_find(&infill_fields, member->name);
        if (is_wish(member->name) || (field && !field->copied_to)) continue;
        const char *name = field ? field->copied_to : member->name;
        buf_puts(out, ",");
        json_write_string(out, name, strlen(name));
        buf_puts(out, ":");
        json_write_value(out, member);
    }
    buf_puts(out, "}");
    buf_free(&text);
}

static enum status check_infill(const struct json *body, struct err *err) {
    if (!json_is(body, JSON_OBJECT))
        return err_set(err, STATUS_INVALID_REQUEST, NULL,
                       "The body must be a JSON object, but it is %s.", json_type_name(body));
    for (int i = 0; i < infill_fields.n_fields; i++) {
        const struct field *field = &infill_fields.fields[i];
        const struct json *value = fields_member(&infill_fields, body, field->name);
        if (!value && field->required)
            return err_set(err, STATUS_INVALID_REQUEST, field->name,
                           "'%s' is missing: give 'input_prefix' and 'input_suffix'; they may be "
                           "empty.",
                           field->name);
        if (value && !json_is(value, JSON_STRING))
            return err_set(err, STATUS_INVALID_REQUEST, field->name,
                           "'%s' must be a string, but it is %s.", field->name,
                           json_type_name(value));
    }
    return STATUS_OK;
}

static enum status parse_infill(struct api_request **out, struct json *body,
                                const struct api_limits *limits, struct err *err) {
    struct json *translated = NULL;
    struct buf text = {0};
    enum status status = check_infill(body, err);
    *out = NULL;
    if (status == STATUS_OK) {
        write_completion(&text, body);
        status = json_parse_strict(&translated, "The body", text.data, text.length, err);
    }
    buf_free(&text);
    json_free(body);
    return status ? status : parse_as(out, translated, limits, &api_llama_infill, err);
}

/* ---- parts of an answer --------------------------------------------------------------------- */

static void write_token(struct buf *out, const struct tokenizer *tokenizer, int32_t id,
                        float logprob) {
    size_t length;
    const char *bytes = tokenizer_token_bytes(tokenizer, id, &length);
    buf_printf(out, "{\"id\":%d,\"token\":", (int)id);
    json_write_string(out, bytes, length);
    buf_puts(out, ",\"logprob\":");
    buf_printf(out, "%.9g", logprob > -1e30f ? (double)logprob : -1e30);
    buf_puts(out, ",\"bytes\":[");
    for (size_t i = 0; i < length; i++) {
        buf_printf(out, i > 0 ? ",%d" : "%d", (int)(unsigned char)bytes[i]);
    }
    buf_puts(out, "]");
}

static void write_probabilities(struct buf *out, const struct api_answer *answer,
                                const struct api_choice *choice) {
    if (!choice->logprobs) return;
    buf_puts(out, ",\"completion_probabilities\":[");
    for (int i = 0; i < choice->n_logprobs; i++) {
        const struct sampled *sampled = &choice->logprobs[i].sampled;
        if (i > 0) buf_puts(out, ",");
        write_token(out, answer->tokenizer, sampled->id, sampled->logprob);
        buf_puts(out, ",\"top_logprobs\":[");
        for (int k = 0; k < sampled->n_top; k++) {
            if (k > 0) buf_puts(out, ",");
            write_token(out, answer->tokenizer, sampled->top[k].id, sampled->top[k].logprob);
            buf_puts(out, "}");
        }
        buf_puts(out, "]}");
    }
    buf_puts(out, "]");
}

/* Writes the beginning of an object with the text of a choice. */
static void write_content(struct buf *out, const struct api_answer *answer,
                          const struct api_choice *choice) {
    buf_printf(out, "{\"index\":%d,\"content\":", choice->index);
    json_write_string(out, choice->text, choice->length);
    buf_puts(out, ",\"tokens\":");
    json_write_ints(out, choice->ids, choice->ids ? choice->n_ids : 0);
    buf_puts(out, ",\"id_slot\":-1");
    write_probabilities(out, answer, choice);
}

/* How an answer ended: the end token, a stop string or the limit of tokens. */
static const char *stop_type(const struct api_choice *choice) {
    if (!choice->finish_reason || strcmp(choice->finish_reason, "stop") != 0) return "limit";
    return choice->stop_string ? "word" : "eos";
}

static void write_settings(struct buf *out, const struct api_request *request) {
    const struct sampling *sampling = &request->sampling;
    buf_printf(out, ",\"generation_settings\":{\"n_predict\":%d,\"seed\":%llu", request->max_tokens,
               (unsigned long long)sampling->seed);
    buf_printf(out, ",\"temperature\":%.6g,\"top_k\":%d,\"top_p\":%.6g,\"min_p\":%.6g",
               (double)sampling->temperature, sampling->top_k, (double)sampling->top_p,
               (double)sampling->min_p);
    buf_printf(out, ",\"repeat_penalty\":%.6g,\"stream\":%s}", (double)sampling->repetition_penalty,
               request->stream ? "true" : "false");
}

static void write_rate(struct buf *out, const char *name, int n, uint64_t ns) {
    double ms = (double)ns * 1e-6;
    buf_printf(out, "\"%s_n\":%d,\"%s_ms\":%.3f,\"%s_per_token_ms\":%.3f,\"%s_per_second\":%.3f",
               name, n, name, ms, name, n > 0 ? ms / n : 0, name, ms > 0 ? n * 1e3 / ms : 0);
}

static void write_timings(struct buf *out, const struct api_usage *usage) {
    buf_puts(out, ",\"timings\":{");
    write_rate(out, "prompt", usage->prompt_tokens - usage->cached_tokens, usage->prompt_ns);
    buf_puts(out, ",");
    write_rate(out, "predicted", usage->completion_tokens, usage->generation_ns);
    buf_puts(out, "}");
}

/* Writes the rest of the object that ends an answer. */
static void write_end(struct buf *out, const struct api_answer *answer, const char *type,
                      const char *word, const struct api_usage *usage) {
    buf_puts(out, ",\"stop\":true,\"model\":");
    json_write_string(out, answer->model, strlen(answer->model));
    buf_printf(out, ",\"tokens_predicted\":%d,\"tokens_evaluated\":%d,\"tokens_cached\":%d",
               usage->completion_tokens, usage->prompt_tokens, usage->cached_tokens);
    write_settings(out, answer->request);
    buf_printf(out, ",\"truncated\":false,\"stop_type\":\"%s\",\"stopping_word\":", type);
    json_write_string(out, word, strlen(word));
    write_timings(out, usage);
    buf_puts(out, "}");
}

/* ---- answers -------------------------------------------------------------------------------- */

static void write_response(struct buf *out, const struct api_answer *answer,
                           const struct api_choice *choices, int n, const struct api_usage *usage) {
    if (n != 1) buf_puts(out, "[");
    for (int i = 0; i < n; i++) {
        if (i > 0) buf_puts(out, ",");
        write_content(out, answer, &choices[i]);
        const char *word = choices[i].stop_string ? choices[i].stop_string : "";
        write_end(out, answer, stop_type(&choices[i]), word, usage);
    }
    if (n != 1) buf_puts(out, "]");
}

/* The last chunk of a choice ends it. */
static void write_chunk(struct buf *out, const struct api_answer *answer,
                        const struct api_choice *choice, const struct api_usage *usage) {
    if (!choice) return; /* the usage is in each choice's last chunk */
    buf_puts(out, "data: ");
    write_content(out, answer, choice);
    if (choice->finish_reason) {
        const char *word = choice->stop_string ? choice->stop_string : "";
        write_end(out, answer, stop_type(choice), word, usage);
    } else {
        buf_printf(out, ",\"stop\":false,\"tokens_predicted\":%d,\"tokens_evaluated\":%d}",
                   usage->completion_tokens, usage->prompt_tokens);
    }
    buf_puts(out, "\n\n");
}

/* A stream has no event after the last choice's. */
static void write_done(struct buf *out, const struct api_answer *answer,
                       const struct api_usage *usage) {
    (void)out;
    (void)answer;
    (void)usage;
}

static void write_error(struct buf *out, const struct err *err, const char *request_id) {
    (void)request_id;
    assert(err->status != STATUS_OK);
    api_write_error(out, err);
}

static void write_error_event(struct buf *out, const struct api_answer *answer,
                              const struct err *err) {
    (void)answer;
    buf_puts(out, "data: ");
    api_write_error(out, err);
    buf_puts(out, "\n\n");
}

#define LLAMA_FORM                                                                                 \
    .more_fields = &completion_fields, .error_members = "error", .id_prefix = "cmpl-",             \
    .stream_type = "text/event-stream", .keep_alive = ": keep-alive\n",                            \
    .write_response = write_response, .write_chunk = write_chunk, .write_done = write_done,        \
    .write_error_event = write_error_event, .write_error = write_error,                            \
    .no_memory_body = API_NO_MEMORY, .no_memory_event = "data: " API_NO_MEMORY "\n\n"

const struct api api_llama_completion = {
    .path = "/completion",
    .fields = &llama_fields,
    .example = "\"prompt\":\"Hello\",\"n_predict\":16",
    .parse = parse_body,
    LLAMA_FORM,
};

const struct api api_llama_infill = {
    .path = "/infill",
    .fields = &infill_fields,
    .example = "\"input_prefix\":\"a = \",\"input_suffix\":\"\",\"n_predict\":16",
    .infills = true,
    .parse = parse_infill,
    LLAMA_FORM,
};
