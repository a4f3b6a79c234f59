/* How to choose tokens and when to stop: the fields of a request that a table cannot describe. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "server/api_internal.h"

#define MAX_STOP_LENGTH 1024
#define MAX_STOP_IDS_GIVEN (MAX_STOP_IDS - 16) /* the rest is room for the model's own end ids */

static enum status bad(struct parse *parse, const char *name, const char *message) {
    return err_set(parse->err, STATUS_INVALID_REQUEST, name, "'%s' %s.", name, message);
}

/* ---- stops ---------------------------------------------------------------------------------- */

static enum status add_stop(struct parse *parse, const char *name, const cJSON *value) {
    struct api_request *request = parse->target;
    if (!cJSON_IsString(value)) return field_wrong_type(parse, name, "a string", value);
    size_t length = json_string_length(value);
    if (length == 0) return bad(parse, name, "must not be an empty string");
    if (length > MAX_STOP_LENGTH) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "'%s' may be at most %d bytes long, but it has %zu.", name, MAX_STOP_LENGTH,
                       length);
    }
    const char *copy = arena_strndup(parse->arena, value->valuestring, length);
    if (!copy) return err_set(parse->err, STATUS_UNAVAILABLE, name, "Not enough memory.");
    request->stops[request->n_stops].text = copy;
    request->stops[request->n_stops++].length = length;
    return STATUS_OK;
}

enum status check_stop(struct parse *parse, const char *name, const cJSON *value) {
    char path[32];
    int i = 0;
    if (cJSON_IsString(value)) return add_stop(parse, name, value);
    if (!cJSON_IsArray(value)) {
        return field_wrong_type(parse, name, "a string or an array of strings", value);
    }
    if (cJSON_GetArraySize(value) > API_MAX_STOPS) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "'%s' may hold at most %d strings, but it holds %d.", name, API_MAX_STOPS,
                       cJSON_GetArraySize(value));
    }
    for (const cJSON *stop = value->child; stop; stop = stop->next, i++) {
        snprintf(path, sizeof path, "%s[%d]", name, i);
        enum status status = add_stop(parse, path, stop);
        if (status != STATUS_OK) return status;
    }
    return STATUS_OK;
}

enum status check_stop_ids(struct parse *parse, const char *name, const cJSON *value) {
    struct api_request *request = parse->target;
    int32_t *ids;
    int n;
    enum status status = field_ids(parse, name, value, MAX_STOP_IDS_GIVEN, &ids, &n);
    if (status != STATUS_OK) return status;
    memcpy(request->stop_ids, ids, (size_t)n * sizeof *ids);
    request->n_stop_ids = n;
    return STATUS_OK;
}

/* ---- logit_bias ----------------------------------------------------------------------------- */

/* The id that a key spells in decimal, or -1. */
static int32_t bias_id(const char *key, int V) {
    int64_t id = 0;
    if (!*key) return -1;
    for (const char *p = key; *p; p++) {
        if (!isdigit((unsigned char)*p)) return -1;
        id = id * 10 + (*p - '0');
        if (id >= V) return -1;
    }
    return (int32_t)id;
}

static enum status bias_entry(struct parse *parse, const char *name, const cJSON *entry,
                              struct logit_bias *bias) {
    const int V = parse->limits->V;
    int shown = utf8_cut(entry->string, strlen(entry->string), 32);
    bias->id = bias_id(entry->string, V);
    if (bias->id < 0) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "'%s' must have token ids in 0..%d as its keys, but one is '%.*s'.", name,
                       V - 1, shown, entry->string);
    }
    bool right = cJSON_IsNumber(entry) && entry->valuedouble >= -100 && entry->valuedouble <= 100;
    if (!right) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "'%s' must give '%.*s' a number between -100 and 100.", name, shown,
                       entry->string);
    }
    bias->bias = (float)entry->valuedouble;
    return STATUS_OK;
}

/* Appends an entry, or replaces the one of the same id. */
static int put_bias(struct logit_bias *bias, int n, const struct logit_bias *entry) {
    int i = 0;
    while (i < n && bias[i].id != entry->id) i++;
    bias[i] = *entry;
    return i < n ? n : n + 1;
}

enum status check_logit_bias(struct parse *parse, const char *name, const cJSON *value) {
    struct api_request *request = parse->target;
    int count = cJSON_GetArraySize(value), n = 0;
    if (count > MAX_LOGIT_BIAS) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "'%s' may hold at most %d ids, but it holds %d.", name, MAX_LOGIT_BIAS,
                       count);
    }
    struct logit_bias *bias = arena_alloc(parse->arena, (size_t)count * sizeof *bias);
    if (!bias) return err_set(parse->err, STATUS_UNAVAILABLE, name, "Not enough memory.");
    for (const cJSON *entry = value->child; entry; entry = entry->next) {
        struct logit_bias one;
        enum status status = bias_entry(parse, name, entry, &one);
        if (status != STATUS_OK) return status;
        n = put_bias(bias, n, &one);
    }
    request->sampling.bias = bias;
    request->sampling.n_bias = n;
    return STATUS_OK;
}

/* ---- single values -------------------------------------------------------------------------- */

enum status check_seed(struct parse *parse, const char *name, const cJSON *value) {
    struct api_request *request = parse->target;
    int64_t seed;
    if (!cJSON_IsNumber(value)) return field_wrong_type(parse, name, "an integer", value);
    if (!json_integer(value, &seed)) return bad(parse, name, "must be an integer of 64 bits");
    request->has_seed = true;
    request->sampling.seed = (uint64_t)seed;
    return STATUS_OK;
}

enum status check_request_id(struct parse *parse, const char *name, const cJSON *value) {
    struct api_request *request = parse->target;
    size_t length = json_string_length(value);
    bool right = length >= 1 && length <= 48;
    for (size_t i = 0; right && i < length; i++) {
        unsigned char c = (unsigned char)value->valuestring[i];
        right = c < 0x80 && (isalnum(c) || (c && strchr("_.:-", c)));
    }
    if (!right) return bad(parse, name, "must be 1 to 48 characters of A-Z a-z 0-9 _ . : -");
    snprintf(request->id, sizeof request->id, "%s", value->valuestring);
    return STATUS_OK;
}

enum status check_cache_salt(struct parse *parse, const char *name, const cJSON *value) {
    struct api_request *request = parse->target;
    size_t length = json_string_length(value);
    if (length == 0) return bad(parse, name, "must not be an empty string");
    XXH128_hash_t hash = XXH3_128bits(value->valuestring, length);
    request->cache_salt[0] = hash.low64;
    request->cache_salt[1] = hash.high64;
    if (!hash.low64 && !hash.high64) request->cache_salt[0] = 1; /* zero is the common salt */
    return STATUS_OK;
}

/* ---- what hangs together -------------------------------------------------------------------- */

static enum status settle_logprobs(struct parse *parse, struct draft *draft) {
    struct sampling *sampling = &draft->request.sampling;
    if (draft->request.kind == API_COMPLETION) {
        sampling->n_logprobs = draft->logprobs;
        return STATUS_OK;
    }
    if (draft->top_logprobs >= 0 && !draft->chat_logprobs) {
        return bad(parse, "top_logprobs", "is only for requests with 'logprobs': true");
    }
    int top = draft->top_logprobs >= 0 ? draft->top_logprobs : 0;
    sampling->n_logprobs = draft->chat_logprobs ? top : -1;
    return STATUS_OK;
}

static enum status settle_lengths(struct parse *parse, struct draft *draft) {
    struct api_request *request = &draft->request;
    if (draft->max_completion_tokens >= 0) request->max_tokens = draft->max_completion_tokens;
    if (request->max_tokens == 0 && !request->echo) {
        return bad(parse, "max_tokens", "must be at least 1, or 0 together with 'echo': true");
    }
    if (request->max_tokens >= 0 && request->min_tokens > request->max_tokens) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, "min_tokens",
                       "'min_tokens' must be at most 'max_tokens', which is %d, but it is %d.",
                       request->max_tokens, request->min_tokens);
    }
    return STATUS_OK;
}

enum status settle_sampling(struct parse *parse, struct draft *draft) {
    struct sampling *sampling = &draft->request.sampling;
    if (sampling->temperature < 1e-5f) sampling->temperature = 0;
    if (sampling->top_k < 0) sampling->top_k = 0;
    if (sampling->top_k >= parse->limits->V) sampling->top_k = 0; /* all of them: off */
    if (!draft->request.has_seed) sampling->seed = parse->limits->default_seed;
    enum status status = settle_logprobs(parse, draft);
    return status == STATUS_OK ? settle_lengths(parse, draft) : status;
}
