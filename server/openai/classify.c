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
    if (!field_given(parse, "input")) return field_wrong(parse, "input", "is missing");
    if (!classifier)
        return err_set(parse->err, STATUS_INVALID_REQUEST, "model",
                       "This model has no labels: %s needs a model with a head for sequence "
                       "classification.",
                       request->api->path);
    request->hidden = classifier->rows;
    request->classifies = true;
    api_read_only(request);
    return STATUS_OK;
}

static enum status parse_as(struct api_request **out, struct json *body,
                            const struct api_limits *limits, const struct api *api,
                            struct err *err) {
    struct api_request request = {.api = api};
    struct parse parse = {FIELDS_OF(rows), .target = &request, .limits = limits, .err = err};
    return request_parse(out, &parse, body, finish);
}

static enum status parse_classify(struct api_request **out, struct json *body,
                                  const struct api_limits *limits, struct err *err) {
    return parse_as(out, body, limits, &api_classify, err);
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

/* Returns the labels' values, which the caller frees, and the first of the largest. */
static double *label_values(const struct api_answer *answer, const struct api_choice *choice,
                            int *best) {
    const struct classifier *classifier = answer->limits->classifier;
    double *values = api_pooled(answer, choice, &classifier->head);
    *best = 0;
    for (int i = 1; i < classifier->n_labels; i++)
        if (values[i] > values[*best]) *best = i;
    if (answer->request->uses_activation)
        api_activate(classifier->activation, values, classifier->n_labels);
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
    {"use_activation", FIELD_BOOL, FIELD_NOT_STORED, 1},
};

static const struct field_table pooling_fields = {FIELDS_OF(pooling_rows)};

/* Reads the task: embed, unless the model's only head classifies. */
static enum status read_task(const struct json *body, const struct api_limits *limits,
                             bool *classifies, struct err *err) {
    const struct json *task = fields_member(&pooling_fields, body, "task");
    const struct json *activation = fields_member(&pooling_fields, body, "use_activation");
    bool embeds = json_is_text(task, "embed");
    *classifies = json_is_text(task, "classify") ||
                  ((!task || json_is(task, JSON_NULL)) && limits->classifier);
    if (task && !json_is(task, JSON_NULL) && !*classifies && !embeds)
        return err_set(err, STATUS_INVALID_REQUEST, "task",
                       "'task' must be \"embed\" or \"classify\"; vectors of each token are not "
                       "served.");
    if (!*classifies && activation && !json_true(activation) && !json_is(activation, JSON_NULL))
        return err_set(err, STATUS_INVALID_REQUEST, "use_activation",
                       "'use_activation' may only be false for the task \"classify\".");
    return STATUS_OK;
}

static enum status parse_pooling(struct api_request **out, struct json *body,
                                 const struct api_limits *limits, struct err *err) {
    bool classifies = false;
    enum status status = STATUS_OK;
    *out = NULL;
    if (json_is(body, JSON_OBJECT)) status = fields_check(&pooling_fields, body, err);
    if (!status) status = read_task(body, limits, &classifies, err);
    if (status) {
        json_free(body);
        return status;
    }
    return classifies ? parse_as(out, body, limits, &api_pooling, err)
                      : api_parse_embeddings(out, body, limits, &api_pooling, err);
}

static void write_pooling(struct buf *out, const struct api_answer *answer,
                          const struct api_choice *choices, int n, const struct api_usage *usage) {
    api_write_list_head(out, answer);
    for (int i = 0; i < n; i++) {
        buf_printf(out, "%s{\"index\":%d,\"object\":\"pooling\",\"data\":", i > 0 ? "," : "", i);
        if (answer->request->classifies) {
            int best;
            double *values = label_values(answer, &choices[i], &best);
            write_numbers(out, values, answer->limits->classifier->n_labels);
            mem_free(values);
        } else {
            api_write_embedding(out, answer, &choices[i]);
        }
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
