/* Any bytes as a body of each endpoint, and as a line of a batch: no crash, each refusal has a
 * message, and an accepted request is within its limits. The bytes are also written as a JSON
 * string, which must read back as the same text. */
#include <assert.h>
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "server/apis/apis.h"
#include "server/ollama/ollama.h"
#include "server/openai/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct pooling pooling = {.rows = HIDDEN_LAST, .normalises = true};
static const struct model_config config;

/* A vocabulary in which the labels of decisions are tokens. */
static const struct tokenizer *labels(void) {
    static const char *const token[] = {"yes", "no", "A", "B", "C", "AA", "0", "1", "2"};
    enum { N = sizeof token / sizeof *token };
    static struct tokenizer *made;
    uint32_t length[N];
    for (int i = 0; i < N; i++) length[i] = (uint32_t)strlen(token[i]);
    const struct tokenizer_spec spec = {.kind = TOKENIZER_BYTE_BPE,
                                        .n_tokens = N,
                                        .token = token,
                                        .token_length = length,
                                        .bos = -1,
                                        .eos = -1,
                                        .unknown = -1,
                                        .ignore_merges = true};
    if (!made) assert(tokenizer_new(&made, &spec, NULL) == STATUS_OK);
    return made;
}

static struct api_limits limits = {.model = "m",
                                   .V = 49152,
                                   .max_model_len = 2048,
                                   .max_choices = 16,
                                   .max_prompts = 8,
                                   .has_chat_template = true,
                                   .pooling = &pooling,
                                   .config = &config,
                                   .hidden_size = 64,
                                   .can_infill = true};

/* Reads a body like the server: first as JSON, then by its API. */
static enum status request_read(struct api_request **out, const struct api *api, const char *body,
                                size_t length, const struct api_limits *by, struct err *err) {
    struct json *json;
    *out = NULL;
    enum status status = json_parse_strict(&json, "The body", body, length, err);
    return status ? status : api->parse(out, json, by, err);
}

static void check_refusal(enum status status, const struct err *err) {
    assert(err->status == status && err->message[0]);
    assert(status == STATUS_INVALID_REQUEST || status == STATUS_NOT_FOUND);
    assert(utf8_valid_prefix(err->message, strlen(err->message)) == strlen(err->message));
}

static void check_parsed(const struct api_request *r) {
    const struct sampling *s = &r->sampling;
    assert(r->n >= 1 && r->n <= limits.max_choices && r->n_stops <= API_MAX_STOPS);
    assert(r->max_tokens >= -1 && r->min_tokens >= 0 && r->n_stop_ids <= MAX_STOP_IDS);
    assert(s->temperature >= 0 && s->temperature <= 2 && s->top_p >= 0 && s->top_p <= 1);
    assert(s->repetition_penalty > 0 && s->top_k >= 0 && s->n_logprobs >= -1);
    assert(r->n_prompts >= 1 &&
           r->n_prompts <= (r->api->reads ? API_MAX_INPUTS : limits.max_prompts));
    assert(!r->api->reads || (r->max_tokens == 0 && r->n_generated == 1 && !r->stream));
    for (int i = 0; i < r->n_prompts; i++) {
        const struct api_prompt *prompt = &r->prompts[i];
        assert(r->api != &api_chat || prompt->messages);
        assert(r->api != &api_completions || !prompt->messages);
        assert(prompt->n_read_ids >= 0 && prompt->n_read_ids <= MAX_READ_IDS);
        assert(!prompt->question || (prompt->question_length > 0 && prompt->n_read_ids > 0));
        assert(prompt->messages || prompt->infills ||
               (prompt->ids ? prompt->n_ids > 0 : prompt->length > 0));
        assert(!prompt->infills || (!prompt->ids && prompt->suffix && !r->echo));
        assert(utf8_valid_prefix(prompt->text, prompt->length) == prompt->length);
    }
    assert(r->n_bad_words >= 0 && r->n_bad_words <= API_MAX_BAD_WORDS);
    for (int i = 0; i < r->n_bad_words; i++) assert(r->bad_words[i].length > 0);
    assert(r->truncate_prompt_tokens >= -1 && r->truncate_prompt_tokens <= limits.max_model_len);
    assert(r->prompt_logprobs >= -1 && r->prompt_logprobs <= MAX_TOP_LOGPROBS);
    for (int i = 0; i < s->n_bias; i++) assert(s->bias[i].id >= 0 && s->bias[i].id < limits.V);
}

static void try_request(const struct api *api, const char *body, size_t size) {
    struct api_request *request;
    struct err err = {0};
    enum status status = request_read(&request, api, body, size, &limits, &err);
    if (status != STATUS_OK) {
        assert(!request);
        check_refusal(status, &err);
        return;
    }
    check_parsed(request);
    api_request_free(request);
}

static void try_tokens(const char *body, size_t size) {
    struct api_tokenize *tokenize;
    struct err err = {0};
    int32_t *ids;
    int n;
    enum status status = api_tokenize_parse(&tokenize, body, size, &limits, &err);
    if (status != STATUS_OK) check_refusal(status, &err);
    api_tokenize_free(tokenize);
    status = api_template_parse(&tokenize, body, size, &limits, &err);
    if (status != STATUS_OK) check_refusal(status, &err);
    assert((status == STATUS_OK) == (tokenize && tokenize->prompt.messages));
    api_tokenize_free(tokenize);
    status = ollama_parse_show(body, size, &limits, &err);
    if (status != STATUS_OK) check_refusal(status, &err);
    status = api_detokenize_parse(&ids, &n, body, size, &limits, &err);
    if (status != STATUS_OK) check_refusal(status, &err);
    free(ids);
}

static void try_batch_line(const char *text, size_t size) {
    struct api_batch_line line;
    struct err err = {0};
    struct buf key = {0};
    enum status status = api_batch_parse(&line, text, size, &err);
    assert((status == STATUS_OK) == (line.body != NULL));
    if (status == STATUS_OK) assert(line.custom_id.length > 2);
    if (status != STATUS_OK && status != STATUS_METHOD_NOT_ALLOWED) check_refusal(status, &err);
    api_batch_free(&line);
    api_batch_read_key(&key, text, size);
    buf_free(&key);
}

/* Compares two trees, as far as cJSON can represent them: it cuts strings at a NUL byte. */
static void compare_values(const struct json *ours, const cJSON *theirs) {
    assert(json_is(ours, JSON_STRING) == cJSON_IsString(theirs));
    assert(json_is(ours, JSON_NUMBER) == cJSON_IsNumber(theirs));
    assert(json_is(ours, JSON_ARRAY) == cJSON_IsArray(theirs));
    assert(json_is(ours, JSON_OBJECT) == cJSON_IsObject(theirs));
    assert((json_is(ours, JSON_BOOL) && ours->boolean) == cJSON_IsTrue(theirs));
    if (json_is(ours, JSON_STRING)) assert(strcmp(ours->string, theirs->valuestring) == 0);
    if (json_is(ours, JSON_NUMBER)) assert(ours->number == theirs->valuedouble);
    const cJSON *their = theirs->child;
    json_each(our, ours) {
        assert(their && (!our->name || strcmp(our->name, their->string) == 0));
        compare_values(our, their);
        their = their->next;
    }
    assert(!their);
}

/* JSON that this reader accepts must be JSON for cJSON, too. It may refuse only values that it
 * cannot represent. */
static void compare_readers(const char *text, size_t size) {
    struct json *ours;
    struct err err = {0};
    if (json_parse(&ours, "It", text, size, &err) != STATUS_OK) return;
    cJSON *theirs = cJSON_ParseWithLength(text, size);
    bool long_number = false;
    for (size_t i = 0, run = 0; i < size; i++) {
        run = strchr("0123456789+-.eE", text[i]) && text[i] ? run + 1 : 0;
        long_number |= run > 60;
    }
    bool surrogates = memmem(text, size, "\\uD", 3) || memmem(text, size, "\\ud", 3);
    assert(theirs || long_number || surrogates);
    if (theirs) compare_values(ours, theirs);
    json_free(ours);
    cJSON_Delete(theirs);
}

static void try_string(const char *text, size_t size) {
    struct buf out = {0};
    struct err err = {0};
    struct json *string;
    json_write_string(&out, text, size);
    assert(utf8_valid_prefix(out.data, out.length) == out.length);
    enum status status = json_parse(&string, "It", out.data, out.length, &err);
    assert(status == STATUS_OK);
    if (utf8_valid_prefix(text, size) == size) {
        assert(string->length == size);
        assert(memcmp(string->string, text, size) == 0);
    }
    json_free(string);
    buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *body = mem_alloc(size); /* of the exact length, so that a read past the end is found */
    if (size) memcpy(body, data, size);
    limits.tokenizer = labels();
    for (int i = 0; api_at(i); i++) try_request(api_at(i), body, size);
    try_tokens(body, size);
    try_batch_line(body, size);
    compare_readers(body, size);
    try_string(body, size);
    free(body);
    return 0;
}
