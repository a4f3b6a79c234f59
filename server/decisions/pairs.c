/* Prompts of pairs, a query and a document, and the score that is read from each.
 *
 * A model whose head classifies gives the score of its label. Its prompt is the form of pairs in
 * the model's files: a text with {query} and {document}, or without a chat template the two texts
 * with the tokenizer's tokens between. Otherwise the prompt has the words with which Qwen3-Reranker
 * was trained. A model whose purpose is embeddings gives the cosine of the two texts' embeddings;
 * its prompts are the queries, then the documents. Any other model gives the share of "yes" among
 * "yes" and "no". */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "server/decisions/internal.h"

#define TASK                                                                                       \
    "Judge whether the Document meets the requirements based on the Query and the Instruct "       \
    "provided. Note that the answer can only be \\\"yes\\\" or \\\"no\\\"."
#define USUAL_INSTRUCTION                                                                          \
    "Given a web search query, retrieve relevant passages that answer the query"

/* The bytes of queries in the prompts of one request. */
enum { MAX_COPIED_BYTES = 8 << 20 };

/* Are prompts ids, rather than messages for the chat template? */
static bool by_ids(const struct api_limits *limits) {
    const struct classifier *classifier = limits->classifier;
    return classifier && (classifier->pair_text || !limits->has_chat_template);
}

/* Are embeddings compared? An encoder can do nothing else. */
static bool compares(const struct api_limits *limits) {
    const struct pooling *pooling = limits->pooling;
    if (limits->classifier || !pooling) return false;
    return limits->config->is_encoder || (pooling->is_stated && !pooling->unserved[0]);
}

/* ---- the request ---------------------------------------------------------------------------- */

static enum status check_model_scores(const struct api_limits *limits, struct err *err) {
    const struct classifier *classifier = limits->classifier;
    struct label labels[2];
    bool says_yes =
        classifier && classifier->n_labels == 2 && strcmp(classifier->label[0], "yes") == 0;
    if (classifier && classifier->of_tokens)
        return err_set(err, STATUS_INVALID_REQUEST, "model",
                       "This model labels tokens and does not score pairs: ask /v1/pooling for "
                       "its labels of tokens, with the task \"token_classify\".");
    if (classifier && (classifier->n_labels == 1 || says_yes)) return STATUS_OK;
    if (classifier)
        return err_set(err, STATUS_INVALID_REQUEST, "model",
                       "The head of this model has %d labels, so a pair has no score: "
                       "/v1/classify gives the labels' probabilities.",
                       classifier->n_labels);
    if (labels_find(limits, LABELS_YES_NO, 2, labels) == 2) return STATUS_OK;
    return err_set(err, STATUS_INVALID_REQUEST, "model",
                   "This model cannot rank: \"yes\" and \"no\" are not single tokens of it.");
}

enum status pairs_parse(struct api_request **out, const struct field_table *fields,
                        const struct json *body, const struct api_limits *limits,
                        const struct api *api, struct err *err) {
    struct buf text = {0}, copied = {0};
    struct json *tree = NULL;
    buf_puts(&text, compares(limits) ? "{\"dimensions\":null" : "{\"max_tokens\":1");
    fields_copy(fields, body, &copied);
    if (copied.length > 0) buf_puts(&text, ",");
    buf_add(&text, copied.data, copied.length);
    buf_free(&copied);
    /* the question joins a user's message */
    const char *role = limits->takes_system ? "system" : "user";
    if (compares(limits))
        buf_printf(&text, ",\"input\":\"-\"}");
    else if (by_ids(limits))
        buf_puts(&text, ",\"prompt\":\"-\"}");
    else
        buf_printf(&text, ",\"messages\":[{\"role\":\"%s\",\"content\":\"%s\"}]}", role, TASK);
    enum status status = json_parse_strict(&tree, "The body", text.data, text.length, err);
    buf_free(&text);
    if (status) return status;
    status = compares(limits) ? api_parse_embeddings(out, tree, limits, api, err)
             : by_ids(limits) ? api_parse_text(out, tree, limits, api, err)
                              : api_parse_chat(out, tree, limits, api, err);
    const struct json *activation = fields_member(fields, body, "use_activation");
    if (!status) (*out)->uses_activation = !activation || json_true(activation);
    return status;
}

/* ---- prompts -------------------------------------------------------------------------------- */

static bool keep_text(struct api_request *request, const struct buf *text,
                      struct api_prompt *prompt) {
    char *kept = arena_alloc(request->arena, text->length + 1);
    if (!kept) return false;
    memcpy(kept, text->data, text->length);
    kept[text->length] = 0;
    prompt->question = kept;
    prompt->question_length = text->length;
    return true;
}

/* Adds the words of Qwen3-Reranker after the task. */
static bool ask(struct api_request *request, const struct text_pair *pair, const char *wish,
                struct api_prompt *prompt) {
    struct buf text = {0};
    buf_printf(&text, "<Instruct>: %s\n<Query>: ", wish ? wish : USUAL_INSTRUCTION);
    buf_add(&text, pair->query.data, pair->query.length);
    buf_puts(&text, "\n<Document>: ");
    buf_add(&text, pair->document.data, pair->document.length);
    bool kept = keep_text(request, &text, prompt);
    buf_free(&text);
    prompt->thinking = THINKING_OFF;
    prompt->add_generation_prompt = true;
    return kept;
}

enum { MAX_PIECES = 32 };

/* Fills in a text with {query} and {document}. Control tokens of the two texts are text. */
static int encode_filled(const struct api_limits *limits, const struct text_pair *pair, int limit,
                         int32_t **ids) {
    static const char *const names[] = {"{query}", "{document}"};
    struct chat_piece pieces[MAX_PIECES];
    struct buf text = {0};
    const char *at = limits->classifier->pair_text;
    int n_pieces = 0;
    buf_add(&text, "", 0);
    while (*at && n_pieces + 2 < MAX_PIECES) {
        const char *query = strstr(at, names[0]), *document = strstr(at, names[1]);
        bool is_query = query && (!document || query < document);
        const char *next = is_query ? query : document;
        size_t n = next ? (size_t)(next - at) : strlen(at);
        pieces[n_pieces++] = (struct chat_piece){text.length, n, false};
        buf_add(&text, at, n);
        at += n;
        if (!next) continue;
        const struct span *value = is_query ? &pair->query : &pair->document;
        pieces[n_pieces++] = (struct chat_piece){text.length, value->length, true};
        buf_add(&text, value->data, value->length);
        at += strlen(names[!is_query]);
    }
    int n = tokenizer_encode_pieces(limits->tokenizer, text.data, text.length, pieces, n_pieces,
                                    limit, ids);
    buf_free(&text);
    return n;
}

static enum status refuse_length(const struct api_request *request, int i, int context, int n,
                                 struct err *err) {
    char name[64];
    snprintf(name, sizeof name, "%s[%d]", request->api->reads, i);
    return api_context_exceeded(err, name, context, false, n);
}

/* Encodes pair i as the ids of its prompt. */
static enum status encode(struct api_request *request, const struct api_limits *limits,
                          const struct text_pair *pair, int i, struct err *err) {
    const int context = limits->max_model_len;
    int32_t *ids = NULL;
    int n_first = INT32_MAX;
    int n = limits->classifier->pair_text
                ? encode_filled(limits, pair, INT32_MAX, &ids)
                : tokenizer_encode_pair(limits->tokenizer, pair->query, pair->document, INT32_MAX,
                                        &ids, &n_first);
    if (n_first < n && limits->config->n_types == 1) {
        mem_free(ids);
        return err_set(err, STATUS_INVALID_REQUEST, "model",
                       "The tokenizer of this model gives the second text of a pair token type 1, "
                       "but the model has only type 0, so it gives no scores.");
    }
    if (n < 0 || n > context) mem_free(ids);
    if (n < 0 || n > context) return refuse_length(request, i, context, n < 0 ? INT32_MAX : n, err);
    int32_t *kept = arena_alloc(request->arena, ((size_t)n + 1) * sizeof *kept);
    if (kept && n > 0) memcpy(kept, ids, (size_t)n * sizeof *kept);
    mem_free(ids);
    if (!kept) return err_set(err, STATUS_UNAVAILABLE, NULL, "Not enough memory for the texts.");
    request->prompts[i] = (struct api_prompt){.ids = kept, .n_ids = n};
    if (limits->config->n_types > 1) request->prompts[i].n_second = max_int(n - n_first, 0);
    return STATUS_OK;
}

/* Makes the prompts of embeddings that are compared: the queries, or the one of all pairs, and the
 * documents. */
static enum status fill_compared(struct api_request *request, const struct api_limits *limits,
                                 const struct text_pair *pairs, int n, const char *wish,
                                 struct err *err) {
    bool has_one = true;
    if (wish)
        return err_set(err, STATUS_INVALID_REQUEST, "instruction",
                       "'instruction' is for models that read a task, and this one compares "
                       "embeddings: leave it out.");
    for (int i = 1; i < n; i++) has_one = has_one && pairs[i].query.data == pairs[0].query.data;
    const int n_queries = has_one ? 1 : n;
    struct span *texts = mem_calloc((size_t)n_queries + (size_t)n, sizeof *texts);
    for (int i = 0; i < n_queries; i++) texts[i] = pairs[i].query;
    for (int i = 0; i < n; i++) texts[n_queries + i] = pairs[i].document;
    enum status status = api_embed_texts(request, limits, texts, n_queries + n, err);
    mem_free(texts);
    request->n_queries = n_queries;
    return status;
}

enum status pairs_fill(struct api_request *request, const struct api_limits *limits,
                       const struct text_pair *pairs, int n, const char *wish, struct err *err) {
    const struct api_prompt task = request->prompts[0];
    const bool has_head = limits->classifier != NULL;
    struct label labels[2];
    assert(n > 0 && n <= API_MAX_INPUTS);
    if (compares(limits)) return fill_compared(request, limits, pairs, n, wish, err);
    if (check_model_scores(limits, err)) return err->status;
    if (!has_head) labels_find(limits, LABELS_YES_NO, 2, labels);
    request->prompts = arena_alloc(request->arena, (size_t)n * sizeof *request->prompts);
    request->n_prompts = request->prompts ? n : 0;
    request->hidden = has_head ? limits->classifier->rows : HIDDEN_NONE;
    bool has_memory = request->prompts != NULL;
    for (int i = 0; i < n && has_memory; i++) {
        struct api_prompt *prompt = &request->prompts[i];
        *prompt = task;
        if (by_ids(limits)) {
            if (encode(request, limits, &pairs[i], i, err)) return err->status;
            continue;
        }
        has_memory = ask(request, &pairs[i], wish, prompt);
        if (has_memory && !has_head && labels_set(labels, 2, request->arena, prompt, err))
            return err->status;
    }
    if (has_memory) return STATUS_OK;
    return err_set(err, STATUS_UNAVAILABLE, NULL, "Not enough memory for the documents.");
}

enum status pairs_check_size(const struct text_pair *pairs, int n, const struct json *wish,
                             const char *name, struct err *err) {
    size_t bytes = (size_t)n * json_length(wish);
    for (int i = 0; i < n; i++) bytes += pairs[i].query.length;
    if (bytes <= MAX_COPIED_BYTES) return STATUS_OK;
    return err_set(err, STATUS_INVALID_REQUEST, name,
                   "'%s' and 'instruction' times the number of documents may have at most "
                   "%d bytes: send fewer documents.",
                   name, MAX_COPIED_BYTES);
}

static double read_score(const struct api_answer *answer, const struct api_choice *choice) {
    const struct classifier *classifier = answer->limits->classifier;
    const bool is_logit = !answer->request->uses_activation;
    double probability[2];
    if (!classifier) {
        assert(choice->read);
        if (is_logit) return labels_log_ratio(choice->read);
        labels_probabilities(choice->read, 2, probability);
        return probability[0];
    }
    double *values = api_pooled(answer, choice, &classifier->head);
    if (!is_logit) api_activate(classifier->of_scores, values, classifier->n_labels);
    double score = values[0];
    mem_free(values);
    return score;
}

static double cosine(const double *a, const double *b, int n) {
    double product = 0, of_a = 0, of_b = 0;
    for (int i = 0; i < n; i++) {
        product += a[i] * b[i];
        of_a += a[i] * a[i];
        of_b += b[i] * b[i];
    }
    const double lengths = sqrt(of_a) * sqrt(of_b);
    return lengths > 0 && isfinite(product) ? product / lengths : 0;
}

static void compare_all(const struct api_answer *answer, const struct api_choice *choices, int n,
                        double *scores) {
    const int n_queries = answer->request->n_queries, size = answer->limits->embedding_size;
    double *query = NULL;
    for (int i = 0; i < n; i++) {
        if (i < n_queries) {
            mem_free(query);
            query = api_embedding(answer, &choices[i]);
        }
        double *document = api_embedding(answer, &choices[n_queries + i]);
        scores[i] = cosine(query, document, size);
        mem_free(document);
    }
    mem_free(query);
}

double *pairs_scores(const struct api_answer *answer, const struct api_choice *choices,
                     int n_choices, int *n) {
    const int n_queries = answer->request->n_queries;
    *n = n_choices - n_queries;
    assert(*n > 0 && (n_queries <= 1 || n_queries == *n));
    double *scores = mem_calloc((size_t)*n, sizeof *scores);
    if (n_queries > 0) compare_all(answer, choices, *n, scores);
    for (int i = 0; i < *n && n_queries == 0; i++) scores[i] = read_score(answer, &choices[i]);
    return scores;
}

const struct json *pairs_value(const struct json *value) {
    if (json_is(value, JSON_OBJECT) && !json_member(value, "text")) {
        const struct json *parts = json_member(value, "content");
        value = json_is(parts, JSON_ARRAY) && json_count(parts) == 1 ? json_first(parts) : NULL;
        if (!json_is(value, JSON_OBJECT)) return NULL;
    }
    if (json_is(value, JSON_OBJECT)) value = json_member(value, "text");
    return json_is(value, JSON_STRING) ? value : NULL;
}

enum status pairs_refuse(const struct json *value, const char *name, const char *forms,
                         struct err *err) {
    const struct json *text = pairs_value(value);
    assert(!text || json_length(text) == 0);
    if (text) return err_set(err, STATUS_INVALID_REQUEST, name, "'%s' must not be empty.", name);
    return err_set(err, STATUS_INVALID_REQUEST, name, "'%s' must be %s.", name, forms);
}

struct span pairs_text(const struct json *value) {
    const struct json *text = pairs_value(value);
    bool is_text = text && json_length(text) > 0;
    return is_text ? (struct span){json_text(text), json_length(text)} : (struct span){NULL, 0};
}
