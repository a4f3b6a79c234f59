/* llama-server's /embedding: a body of /v1/embeddings whose input may be named `content`. */
#include "server/llama/internal.h"

static const struct field rows[] = {
    {"content", FIELD_ANY, FIELD_NOT_STORED, .copied_to = "input"},
};

static const struct field_table fields = {FIELDS_OF(rows)};

static enum status parse_body(struct api_request **out, struct json *body,
                              const struct api_limits *limits, struct err *err) {
    struct json *translated = NULL;
    *out = NULL;
    if (!json_is(body, JSON_OBJECT)) /* that parser's own message */
        return api_parse_embeddings(out, body, limits, &api_llama_embedding, err);
    bool has_content = json_member(body, "content") != NULL;
    enum status status = llama_translate(&translated, body, &fields, NULL, err);
    json_free(body);
    if (!status) status = api_parse_embeddings(out, translated, limits, &api_llama_embedding, err);
    if (has_content) api_name_input(*out, "content", err);
    return status;
}

/* A list of one vector for each text, because other poolings have one for each token. */
static void write_response(struct buf *out, const struct api_answer *answer,
                           const struct api_choice *choices, int n, const struct api_usage *usage) {
    (void)usage;
    buf_puts(out, "[");
    for (int i = 0; i < n; i++) {
        buf_printf(out, "%s{\"index\":%d,\"embedding\":[", i > 0 ? "," : "", i);
        api_write_embedding(out, answer, &choices[i]);
        buf_puts(out, "]}");
    }
    buf_puts(out, "]");
}

const struct api api_llama_embedding = {
    .path = "/embedding",
    .fields = &fields,
    .more_fields = &embedding_fields,
    .example = "\"content\":\"Hello\"",
    .id_prefix = "embd-",
    .reads = "input",
    .parse = parse_body,
    .write_response = write_response,
    API_OPENAI_ERRORS,
};
