/* The API /v1/embeddings: its fields, and answers with one vector for each input.
 *
 * Specification: https://platform.openai.com/docs/api-reference/embeddings. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "server/openai/internal.h"

/* ---- requests ------------------------------------------------------------------------------- */

static enum status check_encoding(struct parse *parse, const char *name, const struct json *value) {
    struct api_request *request = parse->target;
    request->as_base64 = json_is_text(value, "base64");
    if (request->as_base64 || json_is_text(value, "float")) return STATUS_OK;
    return field_wrong(parse, name, "must be \"float\" or \"base64\"");
}

static enum status check_dimensions(struct parse *parse, const char *name,
                                    const struct json *value) {
    const struct api_request *request = parse->target;
    (void)value;
    if (request->dimensions <= parse->limits->embedding_size) return STATUS_OK;
    return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                   "'%s' must be at most %d, the numbers of this model's embeddings, but it is %d.",
                   name, parse->limits->embedding_size, request->dimensions);
}

static enum status check_prompt_name(struct parse *parse, const char *name,
                                     const struct json *value) {
    const struct pooling *pooling = parse->limits->pooling;
    struct api_request *request = parse->target;
    struct buf known = {0};
    for (int i = 0; i < pooling->n_prompts; i++) {
        if (json_is_text(value, pooling->prompt[i].name)) request->input_prompt = i + 1;
        if (json_is_text(value, pooling->prompt[i].name)) return STATUS_OK;
    }
    for (int i = 0; i < pooling->n_prompts; i++)
        buf_printf(&known, "%s\"%s\"", i ? ", " : "", pooling->prompt[i].name);
    enum status status = err_set(
        parse->err, STATUS_INVALID_REQUEST, name, "'%s' must be a prompt of this model: %s.", name,
        known.length > 0 ? known.data : "its files have none, so leave it out");
    buf_free(&known);
    return status;
}

static const struct field fields[] = {
    {"model", FIELD_STRING, FIELD_NOT_STORED, .check = check_model},
    TRUNCATION_FIELD,
    {"input", FIELD_ANY, FIELD_NOT_STORED, .required = true, .check = check_prompt},
    {"encoding_format", FIELD_ANY, FIELD_NOT_STORED, .check = check_encoding},
    {"prompt_name", FIELD_STRING, FIELD_NOT_STORED, .check = check_prompt_name},
    {"dimensions", FIELD_INT, IN(dimensions), 0, 1, INT32_MAX, .check = check_dimensions},
    {"use_activation", FIELD_BOOL, IN(uses_activation), 1},
    {"add_special_tokens", FIELD_BOOL, IN(add_special_tokens), 1},
    {"user", FIELD_STRING, FIELD_NOT_STORED},
    {"priority", FIELD_INT, IN(priority), 0, INT32_MIN, INT32_MAX},
    {"deadline_ms", FIELD_INT, IN(deadline_ms), 0, 1, MAX_DEADLINE_MS},
    {"request_id", FIELD_STRING, FIELD_NOT_STORED, .check = check_request_id},
    {"cache_salt", FIELD_STRING, FIELD_NOT_STORED, .check = check_cache_salt},
};

const struct field_table embedding_fields = {FIELDS_OF(fields)};

/* Makes a text the prompt, with another text before it. Returns false if memory is short. */
static bool set_text(struct api_request *request, struct api_prompt *prompt, const char *before,
                     struct span text) {
    const size_t n = strlen(before);
    char *kept = arena_alloc(request->arena, n + text.length + 1);
    if (!kept) return false;
    memcpy(kept, before, n);
    memcpy(kept + n, text.data, text.length);
    kept[n + text.length] = 0;
    prompt->text = kept;
    prompt->length = n + text.length;
    return true;
}

static enum status refuse_memory(struct err *err) {
    return err_set(err, STATUS_UNAVAILABLE, NULL, "Not enough memory for the texts.");
}

/* Puts the text of a prompt of the model's files before each input. Ids stay as they are. */
static enum status add_prompt(struct parse *parse) {
    struct api_request *request = parse->target;
    if (request->input_prompt == 0) return STATUS_OK;
    const char *before = parse->limits->pooling->prompt[request->input_prompt - 1].text;
    for (int i = 0; i < request->n_prompts; i++) {
        struct api_prompt *prompt = &request->prompts[i];
        if (prompt->ids && field_given(parse, "prompt_name"))
            return field_wrong(parse, "prompt_name", "is for texts, and 'input' has ids");
        if (prompt->ids) continue;
        if (!set_text(request, prompt, before, (struct span){prompt->text, prompt->length}))
            return refuse_memory(parse->err);
    }
    return STATUS_OK;
}

enum status api_embed_texts(struct api_request *request, const struct api_limits *limits,
                            const struct span *texts, int n, struct err *err) {
    const int named = request->input_prompt;
    const char *before = named > 0 ? limits->pooling->prompt[named - 1].text : "";
    assert(n > 0 && request->hidden != HIDDEN_NONE);
    struct api_prompt *prompts = arena_alloc(request->arena, (size_t)n * sizeof *prompts);
    if (!prompts) return refuse_memory(err);
    for (int i = 0; i < n; i++) {
        prompts[i] = (struct api_prompt){0};
        if (!set_text(request, &prompts[i], before, texts[i])) return refuse_memory(err);
    }
    request->prompts = prompts;
    request->n_prompts = n;
    return STATUS_OK;
}

static enum status finish_embeddings(struct parse *parse) {
    struct api_request *request = parse->target;
    const struct pooling *pooling = parse->limits->pooling;
    if (api_refuse_unserved(parse->object, UNSERVED_IN_VECTORS, parse->err))
        return parse->err->status;
    if (!field_given(parse, "input")) return field_wrong(parse, "input", "is missing");
    if (pooling->unserved[0])
        return err_set(parse->err, STATUS_INVALID_REQUEST, "model",
                       "This version gives no embeddings of this model: its step '%s' is not "
                       "served.",
                       pooling->unserved);
    if (request->api->has_one_prompt && request->n_prompts > 1)
        return field_wrong(parse, "input", "must be one text");
    request->hidden = pooling->rows;
    api_read_only(request);
    return add_prompt(parse);
}

enum status api_parse_embeddings(struct api_request **out, struct json *body,
                                 const struct api_limits *limits, const struct api *api,
                                 struct err *err) {
    struct api_request request = {.api = api, .input_prompt = limits->pooling->usual_prompt};
    struct parse parse = {FIELDS_OF(fields), .target = &request, .limits = limits, .err = err};
    return request_parse(out, &parse, body, finish_embeddings);
}

void api_name_input(struct api_request *request, const char *clients, struct err *err) {
    struct buf names = {0};
    api_name_add(&names, "input", clients);
    if (request)
        api_keep_names(request, &names);
    else
        api_rename(err, names.data, names.length);
    buf_free(&names);
}

static enum status parse_body(struct api_request **out, struct json *body,
                              const struct api_limits *limits, struct err *err) {
    return api_parse_embeddings(out, body, limits, &api_embeddings, err);
}

/* ---- one embedding -------------------------------------------------------------------------- */

double *api_pooled(const struct api_answer *answer, const struct api_choice *choice,
                   const struct head *head) {
    const int n = answer->limits->hidden_size;
    assert(choice->hidden_sum && choice->n_prompt_tokens > 0 && !answer->request->of_tokens);
    double *pooled = mem_alloc((size_t)n * sizeof *pooled);
    const bool is_mean = answer->request->hidden == HIDDEN_ALL;
    const double factor = is_mean ? 1.0 / choice->n_prompt_tokens : 1;
    for (int i = 0; i < n; i++) pooled[i] = choice->hidden_sum[i] * factor;
    double *out = head_run(head, pooled, n);
    mem_free(pooled);
    return out;
}

double *api_of_token(const struct api_answer *answer, const struct api_choice *choice,
                     const struct head *head, int token) {
    const int n = answer->limits->hidden_size;
    assert(answer->request->of_tokens && token >= 0 && token < choice->n_prompt_tokens);
    return head_run(head, choice->hidden_sum + (size_t)token * (size_t)n, n);
}

double *api_embedding(const struct api_answer *answer, const struct api_choice *choice) {
    return api_pooled(answer, choice, &answer->limits->pooling->head);
}

/* The factor of the vector that makes the embedding. Only the numbers that are kept count. */
static double factor_of(const struct api_answer *answer, const double *pooled, int n) {
    double squares = 0;
    if (!answer->limits->pooling->normalises || !answer->request->uses_activation) return 1;
    for (int i = 0; i < n; i++) squares += pooled[i] * pooled[i];
    return squares > 0 ? 1 / sqrt(squares) : 0;
}

/* Collects bytes and writes each three as four characters (RFC 4648). */
struct base64 {
    struct buf *out;
    uint32_t bits;
    int n; /* bytes in `bits` */
};

static void base64_flush(struct base64 *to) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char text[4] = {'=', '=', '=', '='};
    uint32_t bits = to->bits << 8 * (3 - to->n);
    for (int i = 0; i <= to->n && to->n > 0; i++) text[i] = digits[bits >> (18 - 6 * i) & 63];
    if (to->n > 0) buf_add(to->out, text, sizeof text);
    to->bits = 0;
    to->n = 0;
}

static void base64_add(struct base64 *to, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    for (int i = 0; i < 4; i++) {
        to->bits = to->bits << 8 | (bits >> 8 * i & 255);
        if (++to->n == 3) base64_flush(to);
    }
}

static float as_float(double value) {
    return isfinite(value) ? (float)value : 0;
}

/* Writes the numbers of one vector, and frees it. */
static void write_vector(struct base64 *to, const struct api_answer *answer, double *pooled) {
    const struct api_request *request = answer->request;
    const int n = request->dimensions > 0 ? request->dimensions : answer->limits->embedding_size;
    const double factor = factor_of(answer, pooled, n);
    if (!request->as_base64) buf_puts(to->out, "[");
    for (int i = 0; i < n; i++) {
        float value = as_float(pooled[i] * factor);
        if (request->as_base64)
            base64_add(to, value);
        else
            buf_printf(to->out, i > 0 ? ",%.9g" : "%.9g", (double)value);
    }
    if (!request->as_base64) buf_puts(to->out, "]");
    mem_free(pooled);
}

void api_write_embedding(struct buf *out, const struct api_answer *answer,
                         const struct api_choice *choice) {
    const char *quote = answer->request->as_base64 ? "\"" : "";
    struct base64 base64 = {.out = out};
    buf_puts(out, quote);
    write_vector(&base64, answer, api_embedding(answer, choice));
    base64_flush(&base64);
    buf_puts(out, quote);
}

void api_write_token_embeddings(struct buf *out, const struct api_answer *answer,
                                const struct api_choice *choice) {
    const bool as_base64 = answer->request->as_base64;
    const struct head *head = &answer->limits->pooling->head;
    struct base64 base64 = {.out = out};
    buf_puts(out, as_base64 ? "\"" : "[");
    for (int i = 0; i < choice->n_prompt_tokens; i++) {
        if (i > 0 && !as_base64) buf_puts(out, ",");
        write_vector(&base64, answer, api_of_token(answer, choice, head, i));
    }
    base64_flush(&base64);
    buf_puts(out, as_base64 ? "\"" : "]");
}

/* ---- answers -------------------------------------------------------------------------------- */

static void write_response(struct buf *out, const struct api_answer *answer,
                           const struct api_choice *choices, int n, const struct api_usage *usage) {
    buf_puts(out, "{\"object\":\"list\",\"data\":[");
    for (int i = 0; i < n; i++) {
        if (i > 0) buf_puts(out, ",");
        buf_printf(out, "{\"object\":\"embedding\",\"index\":%d,\"embedding\":", i);
        api_write_embedding(out, answer, &choices[i]);
        buf_puts(out, "}");
    }
    buf_puts(out, "],\"model\":");
    json_write_string(out, answer->model, strlen(answer->model));
    buf_printf(out, ",\"usage\":{\"prompt_tokens\":%d,\"total_tokens\":%d}}", usage->prompt_tokens,
               usage->prompt_tokens);
}

const struct api api_embeddings = {
    .path = "/v1/embeddings",
    .fields = &embedding_fields,
    .example = "\"input\":\"Hello\"",
    .answer_members = "object data model usage",
    .id_prefix = "embd-",
    .reads = "input",
    .parse = parse_body,
    .write_response = write_response,
    API_OPENAI_ERRORS,
};
