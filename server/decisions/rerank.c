/* The API /v1/rerank: documents in the order in which they fit a query. Each is one prompt, in the
 * words with which Qwen3-Reranker was trained, and its score is the share of "yes" among "yes" and
 * "no". */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/decisions/internal.h"

#define TASK                                                                                       \
    "Judge whether the Document meets the requirements based on the Query and the Instruct "       \
    "provided. Note that the answer can only be \\\"yes\\\" or \\\"no\\\"."
#define USUAL_INSTRUCTION                                                                          \
    "Given a web search query, retrieve relevant passages that answer the query"

/* The bytes of queries in the prompts of one request. */
enum { MAX_COPIED_BYTES = 8 << 20 };

/* What an answer repeats. */
struct ranking {
    int top_n;
    bool with_documents;
    const char **document; /* [n_prompts] as JSON, in the arena */
};

/* ---- requests ------------------------------------------------------------------------------- */

static const struct field rows[] = {
    {"model", FIELD_STRING, FIELD_NOT_STORED, .copied_to = "model"},
    {"query", FIELD_ANY, FIELD_NOT_STORED, .required = true},
    {"documents", FIELD_ARRAY, FIELD_NOT_STORED, .required = true},
    {"top_n", FIELD_INT, FIELD_NOT_STORED, 0, 1, INT32_MAX},
    {"return_documents", FIELD_BOOL, FIELD_NOT_STORED},
    {"instruction", FIELD_STRING, FIELD_NOT_STORED},
    {"cache_salt", FIELD_STRING, FIELD_NOT_STORED, .copied_to = "cache_salt"},
    {"priority", FIELD_INT, FIELD_NOT_STORED, 0, INT32_MIN, INT32_MAX, .copied_to = "priority"},
    {"request_id", FIELD_STRING, FIELD_NOT_STORED, .copied_to = "request_id"},
};

static const struct field_table rerank_fields = {FIELDS_OF(rows)};

/* Returns the text of a query or document: a string, or an object with `text`; NULL: neither. */
static const struct json *text_of(const struct json *value) {
    const struct json *text = json_is(value, JSON_OBJECT) ? json_member(value, "text") : value;
    return json_length(text) > 0 ? text : NULL;
}

/* Fields of Cohere's and Jina's that cut documents: their texts would differ. */
static enum status refuse_unserved(const struct json *body, struct err *err) {
    static const char *const names[] = {"max_tokens_per_doc", "max_chunks_per_doc", "rank_fields",
                                        "truncate_prompt_tokens"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct json *value = json_member(body, names[i]);
        if (!value || json_is(value, JSON_NULL)) continue;
        return err_set(err, STATUS_INVALID_REQUEST, names[i],
                       "'%s' is not served by this version: leave it out, and send texts that fit "
                       "into the context.",
                       names[i]);
    }
    return STATUS_OK;
}

static enum status translate(struct buf *out, const struct json *body,
                             const struct api_limits *limits, struct err *err) {
    if (!json_is(body, JSON_OBJECT))
        return err_set(err, STATUS_INVALID_REQUEST, NULL,
                       "The body must be a JSON object, but it is %s.", json_type_name(body));
    if (fields_check(&rerank_fields, body, err) || refuse_unserved(body, err)) return err->status;
    if (!text_of(fields_member(&rerank_fields, body, "query")))
        return err_set(err, STATUS_INVALID_REQUEST, "query",
                       "'query' must be a text, beside a list of 'documents'.");
    for (int i = 0; i < rerank_fields.n_fields; i++) {
        const char *name = rerank_fields.fields[i].name;
        if (api_holds_nul(fields_member(&rerank_fields, body, name)))
            return err_set(err, STATUS_INVALID_REQUEST, name,
                           "'%s' must not hold the character \\u0000.", name);
    }
    struct buf copied = {0};
    buf_puts(out, "{\"max_tokens\":1");
    fields_copy(&rerank_fields, body, &copied);
    if (copied.length > 0) buf_puts(out, ",");
    buf_add(out, copied.data, copied.length);
    buf_free(&copied);
    /* the question joins a user's message */
    const char *role = limits->takes_system ? "system" : "user";
    buf_printf(out, ",\"messages\":[{\"role\":\"%s\",\"content\":\"%s\"}]}", role, TASK);
    return STATUS_OK;
}

static char *keep(struct api_request *request, const struct buf *text) {
    char *kept = arena_alloc(request->arena, text->length + 1);
    if (kept) memcpy(kept, text->data, text->length);
    if (kept) kept[text->length] = 0;
    return kept;
}

/* Makes the prompt of one document. Returns false if memory is short. */
static bool ask(struct api_request *request, const struct json *body, const struct json *document,
                struct api_prompt *prompt, const char **kept) {
    const struct json *query = text_of(fields_member(&rerank_fields, body, "query"));
    const struct json *wish = fields_member(&rerank_fields, body, "instruction");
    struct buf text = {0}, shown = {0};
    buf_printf(&text, "<Instruct>: %s\n<Query>: ", wish ? json_text(wish) : USUAL_INSTRUCTION);
    buf_add(&text, json_text(query), json_length(query));
    buf_puts(&text, "\n<Document>: ");
    buf_add(&text, json_text(document), json_length(document));
    json_write_value(&shown, document);
    prompt->question = keep(request, &text);
    prompt->question_length = text.length;
    *kept = keep(request, &shown);
    buf_free(&text);
    buf_free(&shown);
    return prompt->question && *kept;
}

static enum status refuse_document(int i, struct err *err) {
    char name[32];
    snprintf(name, sizeof name, "documents[%d]", i);
    return err_set(err, STATUS_INVALID_REQUEST, name,
                   "'%s' must be a text, or an object with 'text'.", name);
}

static enum status read_documents(struct api_request *request, const struct json *body,
                                  const struct label labels[2], struct ranking *ranking,
                                  struct err *err) {
    const struct json *documents = fields_member(&rerank_fields, body, "documents");
    const struct api_prompt task = request->prompts[0];
    int n = json_count(documents), i = 0;
    assert(n > 0 && n <= API_MAX_INPUTS);
    request->prompts = arena_alloc(request->arena, (size_t)n * sizeof *request->prompts);
    ranking->document = arena_alloc(request->arena, (size_t)n * sizeof *ranking->document);
    bool has_memory = request->prompts && ranking->document;
    request->n_prompts = has_memory ? n : 0;
    json_each(document, documents) {
        if (!has_memory) break;
        struct api_prompt *prompt = &request->prompts[i];
        *prompt = task;
        if (!text_of(document)) return refuse_document(i, err);
        has_memory = ask(request, body, text_of(document), prompt, &ranking->document[i++]) &&
                     !labels_set(labels, 2, request->arena, prompt, err);
    }
    if (has_memory) return STATUS_OK;
    return err_set(err, STATUS_UNAVAILABLE, NULL, "Not enough memory for the documents.");
}

static enum status finish(struct api_request *request, const struct json *body,
                          const struct api_limits *limits, struct err *err) {
    const struct json *top = fields_member(&rerank_fields, body, "top_n");
    const struct json *with = fields_member(&rerank_fields, body, "return_documents");
    struct ranking *ranking = arena_alloc(request->arena, sizeof *ranking);
    struct label labels[2];
    if (!ranking) return err_set(err, STATUS_UNAVAILABLE, NULL, "Not enough memory.");
    *ranking = (struct ranking){.top_n = top ? (int)json_integer(top) : INT32_MAX,
                                .with_documents = !with || json_true(with)};
    request->reading = ranking;
    request->prompts[0].thinking = THINKING_OFF;
    request->prompts[0].add_generation_prompt = true;
    int n = json_count(fields_member(&rerank_fields, body, "documents"));
    if (n < 1 || n > API_MAX_INPUTS)
        return err_set(err, STATUS_INVALID_REQUEST, "documents",
                       "'documents' must be a list of 1 to %d texts.", API_MAX_INPUTS);
    const size_t shared = json_length(text_of(fields_member(&rerank_fields, body, "query"))) +
                          json_length(fields_member(&rerank_fields, body, "instruction"));
    if (shared > MAX_COPIED_BYTES / (size_t)n)
        return err_set(err, STATUS_INVALID_REQUEST, "query",
                       "'query' and 'instruction' times the number of documents may have at most "
                       "%d bytes: send fewer documents.",
                       MAX_COPIED_BYTES);
    if (labels_find(limits, LABELS_YES_NO, 2, labels) < 2)
        return err_set(err, STATUS_INVALID_REQUEST, "model",
                       "This model cannot rank: \"yes\" and \"no\" are not single tokens of it.");
    return read_documents(request, body, labels, ranking, err);
}

static enum status parse_as(struct api_request **out, struct json *body,
                            const struct api_limits *limits, const struct api *api,
                            struct err *err) {
    struct buf text = {0};
    struct json *chat = NULL;
    *out = NULL;
    enum status status = translate(&text, body, limits, err);
    if (status == STATUS_OK)
        status = json_parse_strict(&chat, "The body", text.data, text.length, err);
    if (status == STATUS_OK) status = api_parse_chat(out, chat, limits, api, err);
    if (status == STATUS_OK && !(status = finish(*out, body, limits, err))) api_read_only(*out);
    if (status != STATUS_OK && *out) {
        api_request_free(*out);
        *out = NULL;
    }
    buf_free(&text);
    json_free(body);
    return status;
}

static enum status parse_body(struct api_request **out, struct json *body,
                              const struct api_limits *limits, struct err *err) {
    return parse_as(out, body, limits, &api_rerank, err);
}

static enum status parse_short(struct api_request **out, struct json *body,
                               const struct api_limits *limits, struct err *err) {
    return parse_as(out, body, limits, &api_rerank_short, err);
}

static enum status parse_cohere(struct api_request **out, struct json *body,
                                const struct api_limits *limits, struct err *err) {
    return parse_as(out, body, limits, &api_rerank_cohere, err);
}

/* ---- answers -------------------------------------------------------------------------------- */

struct ranked {
    int index;
    double score;
};

/* The best first; equal ones in the client's order. */
static int compare(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return (x->index > y->index) - (x->index < y->index);
}

static void write_results(struct buf *out, const struct ranking *ranking,
                          const struct ranked *ranked, int n) {
    for (int i = 0; i < n; i++) {
        buf_printf(out, "%s{\"index\":%d", i > 0 ? "," : "", ranked[i].index);
        if (ranking->with_documents)
            buf_printf(out, ",\"document\":{\"text\":%s}", ranking->document[ranked[i].index]);
        buf_printf(out, ",\"relevance_score\":%.9g}", ranked[i].score);
    }
}

static void write_response(struct buf *out, const struct api_answer *answer,
                           const struct api_choice *choices, int n, const struct api_usage *usage) {
    const struct ranking *ranking = answer->request->reading;
    struct ranked *ranked = mem_calloc((size_t)n, sizeof *ranked);
    for (int i = 0; i < n; i++) {
        double probability[2];
        assert(choices[i].read);
        labels_probabilities(choices[i].read, 2, probability);
        ranked[i] = (struct ranked){i, probability[0]};
    }
    qsort(ranked, (size_t)n, sizeof *ranked, compare);
    buf_printf(out, "{\"id\":\"%s\",\"model\":", answer->request->id);
    json_write_string(out, answer->model, strlen(answer->model));
    buf_puts(out, ",\"results\":[");
    write_results(out, ranking, ranked, min_int(n, ranking->top_n));
    buf_printf(out, "],\"usage\":{\"prompt_tokens\":%d,\"total_tokens\":%d}}", usage->prompt_tokens,
               usage->prompt_tokens);
    mem_free(ranked);
}

#define RERANK_FORM                                                                                \
    .fields = &rerank_fields, .answer_members = "id model results usage",                          \
    .example = "\"query\":\"rain\",\"documents\":[\"It rains.\",\"A cat.\"]",                      \
    .id_prefix = "rerank-", .reads = "documents", .write_response = write_response,                \
    API_OPENAI_ERRORS

const struct api api_rerank = {.path = "/v1/rerank", .parse = parse_body, RERANK_FORM};
const struct api api_rerank_short = {.path = "/rerank", .parse = parse_short, RERANK_FORM};
const struct api api_rerank_cohere = {.path = "/v2/rerank", .parse = parse_cohere, RERANK_FORM};
