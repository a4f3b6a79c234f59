/* Ollama's /api/embed, and /api/embeddings of older clients: translated to bodies of
 * /v1/embeddings. */
#include <string.h>

#include "server/ollama/internal.h"

static const struct field embed_rows[] = {
    {"model", FIELD_STRING, FIELD_NOT_STORED, .required = true},
    {"input", FIELD_ANY, FIELD_NOT_STORED, .copied_to = "input"},
    {"dimensions", FIELD_ANY, FIELD_NOT_STORED, .copied_to = "dimensions"},
    {"truncate", FIELD_BOOL, FIELD_NOT_STORED},
    {"options", FIELD_OBJECT, FIELD_NOT_STORED},
};

static const struct field embeddings_rows[] = {
    {"model", FIELD_STRING, FIELD_NOT_STORED, .required = true},
    {"prompt", FIELD_ANY, FIELD_NOT_STORED, .copied_to = "input"},
    {"options", FIELD_OBJECT, FIELD_NOT_STORED},
};

static const struct field_table embed_fields = {FIELDS_OF(embed_rows)};
static const struct field_table embeddings_fields = {FIELDS_OF(embeddings_rows)};

/* Writes the input that loads the model, beside a field that is checked all the same. */
static void write_load(struct buf *out, const struct field_table *fields, const struct json *body) {
    const bool may_cut = fields_find(fields, "dimensions") != NULL;
    const struct json *dimensions = may_cut ? fields_member(fields, body, "dimensions") : NULL;
    buf_puts(out, "\"input\":[0]");
    if (!dimensions) return;
    buf_puts(out, ",\"dimensions\":");
    json_write_value(out, dimensions);
}

/* Ollama cuts texts to the context unless it is told not to. Clients load a model by an empty
 * input: here it is one token, whose vector is not written. */
static enum status translate(struct buf *out, const struct field_table *fields,
                             const struct json *body, bool is_empty,
                             const struct api_limits *limits, struct err *err) {
    const struct json *model = fields_member(fields, body, "model");
    const struct json *truncate =
        fields_find(fields, "truncate") ? fields_member(fields, body, "truncate") : NULL;
    if (!json_is(body, JSON_OBJECT))
        return err_set(err, STATUS_INVALID_REQUEST, NULL,
                       "The body must be a JSON object, but it is %s.", json_type_name(body));
    if (!json_is(model, JSON_STRING))
        return err_set(err, STATUS_INVALID_REQUEST, "model", "'model' must be a string.");
    if (fields_check(fields, body, err)) return err->status;
    const char *name = json_text(model);
    struct buf copied = {0};
    buf_puts(out, "{\"model\":");
    json_write_string(out, name, ollama_name_length(limits, name, json_length(model)));
    if (!truncate || json_true(truncate)) buf_puts(out, ",\"truncate_prompt_tokens\":-1");
    if (is_empty)
        write_load(&copied, fields, body);
    else
        fields_copy(fields, body, &copied);
    if (copied.length > 0) buf_puts(out, ",");
    buf_add(out, copied.data, copied.length);
    buf_puts(out, "}");
    buf_free(&copied);
    return STATUS_OK;
}

/* `input` is the field with the texts. */
static enum status parse_as(struct api_request **out, struct json *body, const char *input,
                            const struct api_limits *limits, const struct api *api,
                            struct err *err) {
    struct buf text = {0};
    struct json *translated = NULL;
    bool is_empty = ollama_is_empty(json_member(body, input));
    *out = NULL;
    enum status status = translate(&text, api->fields, body, is_empty, limits, err);
    if (status == STATUS_OK)
        status = json_parse(&translated, "The body", text.data, text.length, err);
    buf_free(&text);
    json_free(body);
    if (status == STATUS_OK) status = api_parse_embeddings(out, translated, limits, api, err);
    if (status == STATUS_OK) (*out)->only_loads = is_empty;
    return status;
}

static enum status parse_embed(struct api_request **out, struct json *body,
                               const struct api_limits *limits, struct err *err) {
    return parse_as(out, body, "input", limits, &api_ollama_embed, err);
}

static enum status parse_embeddings(struct api_request **out, struct json *body,
                                    const struct api_limits *limits, struct err *err) {
    enum status status = parse_as(out, body, "prompt", limits, &api_ollama_embeddings, err);
    api_name_input(*out, "prompt", err);
    return status;
}

static void write_embed(struct buf *out, const struct api_answer *answer,
                        const struct api_choice *choices, int n, const struct api_usage *usage) {
    buf_puts(out, "{\"model\":");
    json_write_string(out, answer->model, strlen(answer->model));
    buf_puts(out, ",\"embeddings\":[");
    const bool only_loads = answer->request->only_loads;
    for (int i = 0; i < n && !only_loads; i++) {
        if (i > 0) buf_puts(out, ",");
        api_write_embedding(out, answer, &choices[i]);
    }
    buf_printf(out, "],\"total_duration\":%llu,\"load_duration\":0,\"prompt_eval_count\":%d}",
               (unsigned long long)(usage->prompt_ns + usage->generation_ns),
               only_loads ? 0 : usage->prompt_tokens);
}

static void write_embeddings(struct buf *out, const struct api_answer *answer,
                             const struct api_choice *choices, int n,
                             const struct api_usage *usage) {
    (void)n;
    (void)usage;
    buf_puts(out, "{\"embedding\":");
    if (answer->request->only_loads)
        buf_puts(out, "[]");
    else
        api_write_embedding(out, answer, choices);
    buf_puts(out, "}");
}

#define EMBED_FORM                                                                                 \
    .errors_below = "/api", .id_prefix = "embd-", .reads = "input", .error_members = "error",      \
    .write_error = ollama_write_error, .no_memory_body = OLLAMA_NO_MEMORY,                         \
    .no_memory_event = OLLAMA_NO_MEMORY "\n"

const struct api api_ollama_embed = {
    .path = "/api/embed",
    .fields = &embed_fields,
    .example = "\"input\":\"Hello\"",
    .answer_members = "model embeddings",
    .parse = parse_embed,
    .write_response = write_embed,
    EMBED_FORM,
};

const struct api api_ollama_embeddings = {
    .path = "/api/embeddings",
    .fields = &embeddings_fields,
    .example = "\"prompt\":\"Hello\"",
    .answer_members = "embedding",
    .has_one_prompt = true,
    .parse = parse_embeddings,
    .write_response = write_embeddings,
    EMBED_FORM,
};
