/* llama-server's /embedding: a body of /v1/embeddings whose input may be named `content`. */
#include <string.h>

#include "server/json/json.h"
#include "server/llama/llama.h"

static const struct field rows[] = {
    {"content", FIELD_ANY, FIELD_NOT_STORED, .copied_to = "input"},
};

static const struct field_table fields = {FIELDS_OF(rows)};

static enum status translate(struct json **out, const struct json *body, struct err *err) {
    struct buf text = {0};
    const char *comma = "";
    buf_puts(&text, "{");
    json_each_member(member, body) {
        const struct field *field = fields_find(&fields, member->name);
        const char *name = field ? field->copied_to : member->name;
        buf_puts(&text, comma);
        json_write_string(&text, name, strlen(name));
        buf_puts(&text, ":");
        json_write_value(&text, member);
        comma = ",";
    }
    buf_puts(&text, "}");
    /* a body with both names */
    enum status status = json_parse_strict(out, "The body", text.data, text.length, err);
    buf_free(&text);
    return status;
}

static enum status parse_body(struct api_request **out, struct json *body,
                              const struct api_limits *limits, struct err *err) {
    struct json *translated = NULL;
    *out = NULL;
    if (!json_is(body, JSON_OBJECT)) /* that parser's own message */
        return api_parse_embeddings(out, body, limits, &api_llama_embedding, err);
    struct buf names = {0};
    bool has_content = json_member(body, "content") != NULL;
    enum status status = translate(&translated, body, err);
    json_free(body);
    if (!status) status = api_parse_embeddings(out, translated, limits, &api_llama_embedding, err);
    if (has_content) {
        api_name_add(&names, "input", "content");
        if (status == STATUS_OK)
            api_keep_names(*out, &names);
        else
            api_rename(err, names.data, names.length);
    }
    buf_free(&names);
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
