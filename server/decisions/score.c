/* vLLM's /v1/score: the scores of pairs of texts: one text with each of a list, or the pairs of two
 * lists. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "server/decisions/internal.h"

static const struct field rows[] = {
    {"model", FIELD_STRING, FIELD_NOT_STORED, .copied_to = "model"},
    {"text_1", FIELD_ANY, FIELD_NOT_STORED},
    {"text_2", FIELD_ANY, FIELD_NOT_STORED},
    {"queries", FIELD_ANY, FIELD_NOT_STORED},
    {"documents", FIELD_ANY, FIELD_NOT_STORED},
    {"items", FIELD_ANY, FIELD_NOT_STORED},
    {"data_1", FIELD_ANY, FIELD_NOT_STORED},
    {"data_2", FIELD_ANY, FIELD_NOT_STORED},
    {"use_activation", FIELD_BOOL, FIELD_NOT_STORED, 1},
    {"instruction", FIELD_STRING, FIELD_NOT_STORED},
    {"cache_salt", FIELD_STRING, FIELD_NOT_STORED, .copied_to = "cache_salt"},
    {"priority", FIELD_INT, FIELD_NOT_STORED, 0, INT32_MIN, INT32_MAX, .copied_to = "priority"},
    {"deadline_ms", FIELD_INT, FIELD_NOT_STORED, 0, 1, MAX_DEADLINE_MS, .copied_to = "deadline_ms"},
    {"request_id", FIELD_STRING, FIELD_NOT_STORED, .copied_to = "request_id"},
};

static const struct field_table score_fields = {FIELDS_OF(rows)};

/* A side of the pairs: a text, or a list of texts. */
struct texts {
    const char *name;
    const struct json *value;
    int n;
};

/* Reads the side that has one of vLLM's names for it; `names` ends with NULL. */
static enum status read_side(struct texts *out, const struct json *body, const char *const *names,
                             struct err *err) {
    const char *const *name = names;
    while (*name && !fields_member(&score_fields, body, *name)) name++;
    if (!*name)
        return err_set(err, STATUS_INVALID_REQUEST, names[0],
                       "'%s' is missing: it must be a text or a list of texts.", names[0]);
    *out = (struct texts){*name, fields_member(&score_fields, body, *name), 1};
    if (json_is(out->value, JSON_ARRAY)) out->n = json_count(out->value);
    if (out->n >= 1 && out->n <= API_MAX_INPUTS) return STATUS_OK;
    return err_set(err, STATUS_INVALID_REQUEST, out->name,
                   "'%s' must have 1 to %d texts, but it has %d.", out->name, API_MAX_INPUTS,
                   out->n);
}

/* Stores the texts of a side; each of them, or the only one for all pairs. */
static enum status store_side(const struct texts *side, struct text_pair *pairs, int n,
                              bool is_query, struct err *err) {
    const struct json *value =
        json_is(side->value, JSON_ARRAY) ? json_first(side->value) : side->value;
    for (int i = 0; i < n; i++) {
        const struct span text = pairs_text(value);
        if (!text.data) return pairs_refuse(value, side->name, "a text or a list of texts", err);
        if (api_holds_nul(value))
            return err_set(err, STATUS_INVALID_REQUEST, side->name,
                           "'%s' must not hold the character \\u0000.", side->name);
        if (is_query)
            pairs[i].query = text;
        else
            pairs[i].document = text;
        if (side->n > 1) value = value->next;
    }
    return STATUS_OK;
}

static enum status read_pairs(struct api_request *request, const struct json *body,
                              const struct api_limits *limits, struct err *err) {
    static const char *const firsts[] = {"text_1", "queries", "data_1", NULL}, *const seconds[] = {
                                                                                   "text_2",
                                                                                   "documents",
                                                                                   "items",
                                                                                   "data_2", NULL};
    struct texts first, second;
    if (read_side(&first, body, firsts, err)) return err->status;
    if (read_side(&second, body, seconds, err)) return err->status;
    const int n = max_int(first.n, second.n);
    if (first.n != n && first.n != 1)
        return err_set(err, STATUS_INVALID_REQUEST, first.name,
                       "'%s' must be one text, or have as many texts as '%s'.", first.name,
                       second.name);
    if (second.n != n)
        return err_set(err, STATUS_INVALID_REQUEST, second.name,
                       "'%s' must have as many texts as '%s'.", second.name, first.name);
    struct text_pair *pairs = mem_calloc((size_t)n, sizeof *pairs);
    enum status status = store_side(&first, pairs, n, true, err);
    if (!status) status = store_side(&second, pairs, n, false, err);
    const struct json *wish = fields_member(&score_fields, body, "instruction");
    if (!status) status = pairs_check_size(pairs, n, wish, first.name, err);
    if (!status) status = pairs_fill(request, limits, pairs, n, wish ? json_text(wish) : NULL, err);
    mem_free(pairs);
    return status;
}

static enum status parse_body(struct api_request **out, struct json *body,
                              const struct api_limits *limits, struct err *err) {
    enum status status = STATUS_OK;
    *out = NULL;
    if (!json_is(body, JSON_OBJECT))
        status = err_set(err, STATUS_INVALID_REQUEST, NULL,
                         "The body must be a JSON object, but it is %s.", json_type_name(body));
    if (!status) status = fields_check(&score_fields, body, err);
    if (!status) status = api_refuse_unserved(body, UNSERVED_IN_SCORES, err);
    if (!status) status = pairs_parse(out, &score_fields, body, limits, &api_score, err);
    if (!status) status = read_pairs(*out, body, limits, err);
    if (!status) api_read_only(*out);
    if (status && *out) {
        api_request_free(*out);
        *out = NULL;
    }
    json_free(body);
    return status;
}

static void write_response(struct buf *out, const struct api_answer *answer,
                           const struct api_choice *choices, int n, const struct api_usage *usage) {
    int n_pairs;
    double *scores = pairs_scores(answer, choices, n, &n_pairs);
    api_write_list_head(out, answer);
    for (int i = 0; i < n_pairs; i++)
        buf_printf(out, "%s{\"index\":%d,\"object\":\"score\",\"score\":%.9g}", i > 0 ? "," : "", i,
                   scores[i]);
    mem_free(scores);
    api_write_list_end(out, usage);
}

const struct api api_score = {
    .path = "/v1/score",
    .fields = &score_fields,
    .example = "\"text_1\":\"rain\",\"text_2\":[\"It rains.\",\"A cat.\"]",
    .answer_members = "id object created model data usage",
    .id_prefix = "score-",
    .reads = "text_2",
    .reads_queries = "text_1",
    .parse = parse_body,
    .write_response = write_response,
    API_OPENAI_ERRORS,
};
