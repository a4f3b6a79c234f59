/* vLLM's /v1/classify, the probabilities of the labels of a head for sequence classification, and
 * /v1/pooling, these or embeddings in one form. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "server/openai/internal.h"

/* ---- /v1/classify --------------------------------------------------------------------------- */

static const struct field rows[] = {
    {"model", FIELD_STRING, FIELD_NOT_STORED, .check = check_model},
    TRUNCATION_FIELD,
    {"input", FIELD_ANY, FIELD_NOT_STORED, .required = true, .check = check_prompt},
    {"use_activation", FIELD_BOOL, IN(uses_activation), 1},
    {"add_special_tokens", FIELD_BOOL, IN(add_special_tokens), 1},
    {"user", FIELD_STRING, FIELD_NOT_STORED},
    {"priority", FIELD_INT, IN(priority), 0, INT32_MIN, INT32_MAX},
    {"deadline_ms", FIELD_INT, IN(deadline_ms), 0, 1, MAX_DEADLINE_MS},
    {"request_id", FIELD_STRING, FIELD_NOT_STORED, .check = check_request_id},
    {"cache_salt", FIELD_STRING, FIELD_NOT_STORED, .check = check_cache_salt},
};

static const struct field_table classify_fields = {FIELDS_OF(rows)};

static enum status finish(struct parse *parse) {
    struct api_request *request = parse->target;
    const struct classifier *classifier = parse->limits->classifier;
    if (api_refuse_unserved(parse->object, UNSERVED_IN_VECTORS, parse->err))
        return parse->err->status;
    if (!field_given(parse, "input")) return field_wrong(parse, "input", "is missing");
    if (!classifier)
        return err_set(parse->err, STATUS_INVALID_REQUEST, "model",
                       "This model has no labels: %s needs a model with a head for sequence "
                       "classification.",
                       request->api->path);
    if (classifier->of_tokens != request->of_tokens)
        return err_set(
            parse->err, STATUS_INVALID_REQUEST, "model", "This model has labels of %s: ask %s.",
            classifier->of_tokens ? "tokens" : "texts, not of their tokens",
            classifier->of_tokens ? "/v1/pooling, with the task \"token_classify\""
                                  : "/v1/classify, or /v1/pooling with the task \"classify\"");
    request->hidden = classifier->rows;
    request->classifies = true;
    api_read_only(request);
    return STATUS_OK;
}

static enum status parse_as(struct api_request **out, struct json *body,
                            const struct api_limits *limits, const struct api *api, bool of_tokens,
                            struct err *err) {
    struct api_request request = {.api = api, .of_tokens = of_tokens};
    struct parse parse = {FIELDS_OF(rows), .target = &request, .limits = limits, .err = err};
    return request_parse(out, &parse, body, finish);
}

static enum status parse_classify(struct api_request **out, struct json *body,
                                  const struct api_limits *limits, struct err *err) {
    return parse_as(out, body, limits, &api_classify, false, err);
}

void api_activate(enum label_activation activation, double *x, int n) {
    double most = x[0], sum = 0;
    assert(n > 0);
    for (int i = 0; i < n && activation == LABELS_SIGMOID; i++) x[i] = 1 / (1 + exp(-x[i]));
    if (activation != LABELS_SOFTMAX) return;
    for (int i = 1; i < n; i++) most = fmax(most, x[i]);
    for (int i = 0; i < n; i++) sum += x[i] = exp(x[i] - most);
    for (int i = 0; i < n; i++) x[i] /= sum;
}

/* Turns logits into probabilities, if the request wants them. */
static void use_activation(const struct api_answer *answer, double *values) {
    const struct classifier *classifier = answer->limits->classifier;
    if (answer->request->uses_activation)
        api_activate(classifier->activation, values, classifier->n_labels);
}

/* Returns the labels' values, which the caller frees, and the first of the largest. */
static double *label_values(const struct api_answer *answer, const struct api_choice *choice,
                            int *best) {
    const struct classifier *classifier = answer->limits->classifier;
    double *values = api_pooled(answer, choice, &classifier->head);
    *best = 0;
    for (int i = 1; i < classifier->n_labels; i++)
        if (values[i] > values[*best]) *best = i;
    use_activation(answer, values);
    return values;
}

static void write_numbers(struct buf *out, const double *values, int n) {
    buf_puts(out, "[");
    for (int i = 0; i < n; i++) {
        const double value = isfinite(values[i]) ? values[i] : 0;
        buf_printf(out, i > 0 ? ",%.9g" : "%.9g", value);
    }
    buf_puts(out, "]");
}

void api_write_list_head(struct buf *out, const struct api_answer *answer) {
    buf_printf(out, "{\"id\":\"%s\",\"object\":\"list\",\"created\":%lld,\"model\":",
               answer->request->id, (long long)answer->request->created);
    json_write_string(out, answer->model, strlen(answer->model));
    buf_puts(out, ",\"data\":[");
}

void api_write_list_end(struct buf *out, const struct api_usage *usage) {
    buf_printf(out,
               "],\"usage\":{\"prompt_tokens\":%d,\"total_tokens\":%d,\"completion_tokens\":0}}",
               usage->prompt_tokens, usage->prompt_tokens);
}

static void write_classify(struct buf *out, const struct api_answer *answer,
                           const struct api_choice *choices, int n, const struct api_usage *usage) {
    const struct classifier *classifier = answer->limits->classifier;
    api_write_list_head(out, answer);
    for (int i = 0; i < n; i++) {
        int best;
        double *values = label_values(answer, &choices[i], &best);
        buf_printf(out, "%s{\"index\":%d,\"label\":", i > 0 ? "," : "", i);
        json_write_string(out, classifier->label[best], strlen(classifier->label[best]));
        buf_puts(out, ",\"probs\":");
        write_numbers(out, values, classifier->n_labels);
        buf_printf(out, ",\"num_classes\":%d}", classifier->n_labels);
        mem_free(values);
    }
    api_write_list_end(out, usage);
}

const struct api api_classify = {
    .path = "/v1/classify",
    .fields = &classify_fields,
    .example = "\"input\":\"Hello\"",
    .answer_members = "id object created model data usage",
    .id_prefix = "classify-",
    .reads = "input",
    .parse = parse_classify,
    .write_response = write_classify,
    API_OPENAI_ERRORS,
};

/* ---- /v1/pooling ---------------------------------------------------------------------------- */

static const struct field pooling_rows[] = {
    {"task", FIELD_STRING, FIELD_NOT_STORED},
};

static const struct field_table pooling_fields = {FIELDS_OF(pooling_rows)};

struct pooling_task {
    bool classifies, of_tokens;
};

/* Reads the task: embed, unless the model has a head that classifies. */
static enum status read_task(const struct json *body, const struct api_limits *limits,
                             struct pooling_task *out, struct err *err) {
    static const struct {
        const char *name;
        struct pooling_task task;
    } tasks[] = {{"embed", {false, false}},
                 {"classify", {true, false}},
                 {"token_embed", {false, true}},
                 {"token_classify", {true, true}}};
    const struct json *task = fields_member(&pooling_fields, body, "task");
    const struct classifier *classifier = limits->classifier;
    bool is_known = !task || json_is(task, JSON_NULL);
    *out = (struct pooling_task){classifier, classifier && classifier->of_tokens};
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
        if (!json_is_text(task, tasks[i].name)) continue;
        *out = tasks[i].task;
        is_known = true;
    }
    if (is_known) return STATUS_OK;
    return err_set(err, STATUS_INVALID_REQUEST, "task",
                   "'task' must be \"embed\", \"classify\", \"token_embed\" or "
                   "\"token_classify\".");
}

static enum status parse_pooling(struct api_request **out, struct json *body,
                                 const struct api_limits *limits, struct err *err) {
    struct pooling_task task = {0};
    enum status status = STATUS_OK;
    *out = NULL;
    if (json_is(body, JSON_OBJECT)) status = fields_check(&pooling_fields, body, err);
    if (!status) status = read_task(body, limits, &task, err);
    if (status) {
        json_free(body);
        return status;
    }
    if (task.classifies) return parse_as(out, body, limits, &api_pooling, task.of_tokens, err);
    status = api_parse_embeddings(out, body, limits, &api_pooling, err);
    if (status || !task.of_tokens) return status;
    (*out)->of_tokens = true;
    (*out)->hidden = HIDDEN_ALL;
    return STATUS_OK;
}

/* Writes a list of labels' values for each token. */
static void write_token_labels(struct buf *out, const struct api_answer *answer,
                               const struct api_choice *choice) {
    const struct classifier *classifier = answer->limits->classifier;
    buf_puts(out, "[");
    for (int i = 0; i < choice->n_prompt_tokens; i++) {
        double *values = api_of_token(answer, choice, &classifier->head, i);
        use_activation(answer, values);
        if (i > 0) buf_puts(out, ",");
        write_numbers(out, values, classifier->n_labels);
        mem_free(values);
    }
    buf_puts(out, "]");
}

static void write_labels(struct buf *out, const struct api_answer *answer,
                         const struct api_choice *choice) {
    int best;
    double *values = label_values(answer, choice, &best);
    write_numbers(out, values, answer->limits->classifier->n_labels);
    mem_free(values);
}

static void write_pooling(struct buf *out, const struct api_answer *answer,
                          const struct api_choice *choices, int n, const struct api_usage *usage) {
    api_write_list_head(out, answer);
    for (int i = 0; i < n; i++) {
        buf_printf(out, "%s{\"index\":%d,\"object\":\"pooling\",\"data\":", i > 0 ? "," : "", i);
        const struct api_request *request = answer->request;
        void (*const write)(struct buf *, const struct api_answer *, const struct api_choice *) =
            request->classifies  ? request->of_tokens ? write_token_labels : write_labels
            : request->of_tokens ? api_write_token_embeddings
                                 : api_write_embedding;
        write(out, answer, &choices[i]);
        buf_puts(out, "}");
    }
    api_write_list_end(out, usage);
}

const struct api api_pooling = {
    .path = "/v1/pooling",
    .fields = &pooling_fields,
    .more_fields = &embedding_fields,
    .example = "\"input\":\"Hello\"",
    .answer_members = "id object created model data usage",
    .id_prefix = "pool-",
    .reads = "input",
    .parse = parse_pooling,
    .write_response = write_pooling,
    API_OPENAI_ERRORS,
};
