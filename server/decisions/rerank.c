/* The API /v1/rerank: documents in the order in which they fit a query. pairs.c makes a prompt of
 * each and reads its score. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/decisions/internal.h"

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
    {"documents", FIELD_ANY, FIELD_NOT_STORED, .required = true},
    {"top_n", FIELD_INT, FIELD_NOT_STORED, 0, 0, INT32_MAX},
    {"return_documents", FIELD_BOOL, FIELD_NOT_STORED},
    {"use_activation", FIELD_BOOL, FIELD_NOT_STORED, 1},
    {"instruction", FIELD_STRING, FIELD_NOT_STORED},
    {"cache_salt", FIELD_STRING, FIELD_NOT_STORED, .copied_to = "cache_salt"},
    {"priority", FIELD_INT, FIELD_NOT_STORED, 0, INT32_MIN, INT32_MAX, .copied_to = "priority"},
    {"deadline_ms", FIELD_INT, FIELD_NOT_STORED, 0, 1, MAX_DEADLINE_MS, .copied_to = "deadline_ms"},
    {"request_id", FIELD_STRING, FIELD_NOT_STORED, .copied_to = "request_id"},
};

static const struct field_table rerank_fields = {FIELDS_OF(rows)};

static enum status check_body(const struct json *body, struct err *err) {
    if (!json_is(body, JSON_OBJECT))
        return err_set(err, STATUS_INVALID_REQUEST, NULL,
                       "The body must be a JSON object, but it is %s.", json_type_name(body));
    if (fields_check(&rerank_fields, body, err) ||
        api_refuse_unserved(body, UNSERVED_IN_SCORES, err))
        return err->status;
    const struct json *query = fields_member(&rerank_fields, body, "query");
    if (!pairs_text(query).data)
        return pairs_refuse(query, "query", "a text, beside a list of 'documents'", err);
    for (int i = 0; i < rerank_fields.n_fields; i++) {
        const char *name = rerank_fields.fields[i].name;
        if (api_holds_nul(fields_member(&rerank_fields, body, name)))
            return err_set(err, STATUS_INVALID_REQUEST, name,
                           "'%s' must not hold the character \\u0000.", name);
    }
    return STATUS_OK;
}

static enum status refuse_document(const struct json *document, int i, struct err *err) {
    char name[32];
    snprintf(name, sizeof name, "documents[%d]", i);
    return pairs_refuse(document, name, "a text, or an object with 'text'", err);
}

/* Keeps the JSON of a document's text for the answer. Returns NULL if memory is short. */
static const char *keep_document(struct api_request *request, const struct json *document) {
    struct buf shown = {0};
    json_write_value(&shown, pairs_value(document));
    char *kept = arena_alloc(request->arena, shown.length + 1);
    if (kept) memcpy(kept, shown.data, shown.length);
    if (kept) kept[shown.length] = 0;
    buf_free(&shown);
    return kept;
}

/* Makes a pair of each of n documents, a list or a single one. */
static enum status read_documents(struct api_request *request, const struct json *body,
                                  struct ranking *ranking, struct text_pair *pairs, int n,
                                  struct err *err) {
    const struct json *documents = fields_member(&rerank_fields, body, "documents");
    const struct span query = pairs_text(fields_member(&rerank_fields, body, "query"));
    const bool is_list = json_is(documents, JSON_ARRAY);
    const struct json *document = is_list ? json_first(documents) : documents;
    for (int i = 0; i < n; i++, document = document->next) {
        assert(document);
        pairs[i] = (struct text_pair){query, pairs_text(document)};
        if (!pairs[i].document.data) return refuse_document(document, i, err);
        ranking->document[i] = keep_document(request, document);
        if (!ranking->document[i])
            return err_set(err, STATUS_UNAVAILABLE, NULL, "Not enough memory for the documents.");
    }
    return STATUS_OK;
}

static enum status finish(struct api_request *request, const struct json *body,
                          const struct api_limits *limits, struct err *err) {
    const struct json *top = fields_member(&rerank_fields, body, "top_n");
    const struct json *with = fields_member(&rerank_fields, body, "return_documents");
    const struct json *wish = fields_member(&rerank_fields, body, "instruction");
    const struct json *documents = fields_member(&rerank_fields, body, "documents");
    const bool is_list = json_is(documents, JSON_ARRAY);
    const int n = is_list ? json_count(documents) : pairs_value(documents) ? 1 : 0;
    const int top_n = top ? (int)json_integer(top) : 0;
    struct ranking *ranking = arena_alloc(request->arena, sizeof *ranking);
    if (n < 1 || n > API_MAX_INPUTS)
        return err_set(err, STATUS_INVALID_REQUEST, "documents",
                       "'documents' must be a list of 1 to %d texts.", API_MAX_INPUTS);
    const char **kept = arena_alloc(request->arena, (size_t)n * sizeof *kept);
    if (!ranking || !kept) return err_set(err, STATUS_UNAVAILABLE, NULL, "Not enough memory.");
    *ranking = (struct ranking){.top_n = top_n > 0 ? top_n : INT32_MAX,
                                .with_documents = !with || json_true(with),
                                .document = kept};
    request->reading = ranking;
    struct text_pair *pairs = mem_calloc((size_t)n, sizeof *pairs);
    enum status status = read_documents(request, body, ranking, pairs, n, err);
    if (!status) status = pairs_check_size(pairs, n, wish, "query", err);
    if (!status) status = pairs_fill(request, limits, pairs, n, wish ? json_text(wish) : NULL, err);
    mem_free(pairs);
    return status;
}

static enum status parse_as(struct api_request **out, struct json *body,
                            const struct api_limits *limits, const struct api *api,
                            struct err *err) {
    *out = NULL;
    enum status status = check_body(body, err);
    if (status == STATUS_OK) status = pairs_parse(out, &rerank_fields, body, limits, api, err);
    if (status == STATUS_OK && !(status = finish(*out, body, limits, err))) api_read_only(*out);
    if (status != STATUS_OK && *out) {
        api_request_free(*out);
        *out = NULL;
    }
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

static enum status parse_reranking(struct api_request **out, struct json *body,
                                   const struct api_limits *limits, struct err *err) {
    return parse_as(out, body, limits, &api_reranking, err);
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
    int n_pairs;
    double *scores = pairs_scores(answer, choices, n, &n_pairs);
    struct ranked *ranked = mem_calloc((size_t)n_pairs, sizeof *ranked);
    for (int i = 0; i < n_pairs; i++) ranked[i] = (struct ranked){i, scores[i]};
    mem_free(scores);
    qsort(ranked, (size_t)n_pairs, sizeof *ranked, compare);
    buf_printf(out, "{\"id\":\"%s\",\"model\":", answer->request->id);
    json_write_string(out, answer->model, strlen(answer->model));
    buf_puts(out, ",\"results\":[");
    write_results(out, ranking, ranked, min_int(n_pairs, ranking->top_n));
    buf_printf(out, "],\"usage\":{\"prompt_tokens\":%d,\"total_tokens\":%d}}", usage->prompt_tokens,
               usage->prompt_tokens);
    mem_free(ranked);
}

#define RERANK_FORM                                                                                \
    .fields = &rerank_fields, .answer_members = "id model results usage",                          \
    .example = "\"query\":\"rain\",\"documents\":[\"It rains.\",\"A cat.\"]",                      \
    .id_prefix = "rerank-", .reads = "documents", .reads_queries = "query",                        \
    .write_response = write_response, API_OPENAI_ERRORS

const struct api api_rerank = {.path = "/v1/rerank", .parse = parse_body, RERANK_FORM};
const struct api api_rerank_short = {.path = "/rerank", .parse = parse_short, RERANK_FORM};
const struct api api_rerank_cohere = {.path = "/v2/rerank", .parse = parse_cohere, RERANK_FORM};
const struct api api_reranking = {.path = "/v1/reranking", .parse = parse_reranking, RERANK_FORM};
