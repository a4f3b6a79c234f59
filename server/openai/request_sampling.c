/* Checks the fields of sampling and stops that a table cannot describe. */
#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "server/openai/internal.h"

#define MAX_STOP_LENGTH 1024
#define MAX_STOP_IDS_GIVEN (MAX_STOP_IDS - 24) /* reserves space for the model's end ids */

/* ---- stops ---------------------------------------------------------------------------------- */

/* Copies one stop string. */
static enum status copy_stop(struct parse *parse, const char *name, const struct json *value,
                             struct api_text *out) {
    if (!json_is(value, JSON_STRING)) return field_wrong_type(parse, name, "a string", value);
    size_t length = json_length(value);
    if (length == 0) return field_wrong(parse, name, "must not be an empty string");
    if (length > MAX_STOP_LENGTH) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "'%s' may be at most %d bytes long, but it has %zu.", name, MAX_STOP_LENGTH,
                       length);
    }
    *out = (struct api_text){arena_strndup(parse->arena, json_text(value), length), length};
    if (out->text) return STATUS_OK;
    return err_set(parse->err, STATUS_UNAVAILABLE, name, "Not enough memory.");
}

/* Copies a string or an array of strings to texts[API_MAX_STOPS]. */
static enum status copy_stops(struct parse *parse, const char *name, const struct json *value,
                              struct api_text *texts, int *n) {
    char path[32];
    *n = 0;
    if (json_is(value, JSON_STRING)) return copy_stop(parse, name, value, &texts[(*n)++]);
    if (!json_is(value, JSON_ARRAY)) {
        return field_wrong_type(parse, name, "a string or an array of strings", value);
    }
    if (json_count(value) > API_MAX_STOPS) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "'%s' may hold at most %d strings, but it holds %d.", name, API_MAX_STOPS,
                       json_count(value));
    }
    json_each(stop, value) {
        snprintf(path, sizeof path, "%s[%d]", name, *n);
        enum status status = copy_stop(parse, path, stop, &texts[(*n)++]);
        if (status != STATUS_OK) return status;
    }
    return STATUS_OK;
}

enum status check_stop(struct parse *parse, const char *name, const struct json *value) {
    struct api_request *request = parse->target;
    return copy_stops(parse, name, value, request->stops, &request->n_stops);
}

enum status check_stop_regex(struct parse *parse, const char *name, const struct json *value) {
    struct api_request *request = parse->target;
    request->stop_regexes =
        arena_alloc(parse->arena, API_MAX_STOPS * sizeof *request->stop_regexes);
    if (!request->stop_regexes)
        return err_set(parse->err, STATUS_UNAVAILABLE, name, "Not enough memory.");
    return copy_stops(parse, name, value, request->stop_regexes, &request->n_stop_regexes);
}

enum status check_stop_ids(struct parse *parse, const char *name, const struct json *value) {
    struct api_request *request = parse->target;
    int32_t *ids;
    int n;
    enum status status = field_ids(parse, name, value, MAX_STOP_IDS_GIVEN, &ids, &n);
    if (status != STATUS_OK) return status;
    assert(n <= MAX_STOP_IDS);
    memcpy(request->stop_ids, ids, (size_t)n * sizeof *ids);
    request->n_stop_ids = n;
    return STATUS_OK;
}

/* ---- logit_bias ----------------------------------------------------------------------------- */

/* Returns the id that a key spells in decimal, or -1. */
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

static enum status bias_entry(struct parse *parse, const char *name, const struct json *entry,
                              struct logit_bias *bias) {
    const int V = parse->limits->V;
    int shown = utf8_cut(entry->name, strlen(entry->name), 32);
    bias->id = bias_id(entry->name, V);
    if (bias->id < 0) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "'%s' must have token ids in 0..%d as its keys, but one is '%.*s'.", name,
                       V - 1, shown, entry->name);
    }
    bool right =
        json_is(entry, JSON_NUMBER) && json_number(entry) >= -100 && json_number(entry) <= 100;
    if (!right) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "'%s' must give '%.*s' a number between -100 and 100.", name, shown,
                       entry->name);
    }
    bias->bias = (float)json_number(entry);
    return STATUS_OK;
}

enum status check_logit_bias(struct parse *parse, const char *name, const struct json *value) {
    struct api_request *request = parse->target;
    int count = json_count(value), n = 0;
    if (count > MAX_LOGIT_BIAS) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "'%s' may hold at most %d ids, but it holds %d.", name, MAX_LOGIT_BIAS,
                       count);
    }
    struct logit_bias *bias = arena_alloc(parse->arena, (size_t)count * sizeof *bias);
    if (!bias) return err_set(parse->err, STATUS_UNAVAILABLE, name, "Not enough memory.");
    json_each(entry, value) {
        struct logit_bias one;
        enum status status = bias_entry(parse, name, entry, &one);
        if (status != STATUS_OK) return status;
        int at = 0; /* if an id occurs twice, its last value is used */
        while (at < n && bias[at].id != one.id) at++;
        bias[at] = one;
        if (at == n) n++;
    }
    assert(n <= count);
    request->sampling.bias = bias;
    request->sampling.n_bias = n;
    return STATUS_OK;
}

/* ---- mirostat ------------------------------------------------------------------------------- */

enum status check_mirostat(struct parse *parse, const char *name, const struct json *value) {
    const struct api_request *request = parse->target;
    (void)value;
    if (request->mirostat != 1) return STATUS_OK;
    return not_served(parse, name, " or give 0, or 2, its second version");
}

/* As in llama-server, mirostat replaces the other rules that select candidates. */
void finish_mirostat(const struct parse *parse) {
    const struct api_request *request = parse->target;
    struct sampling *s = &((struct api_request *)parse->target)->sampling;
    if (request->mirostat == 0) s->mirostat_tau = 0;
    if (s->mirostat_tau <= 0) return;
    s->top_k = 0;
    s->top_p = s->typical_p = 1;
    s->min_p = s->top_n_sigma = s->epsilon_cutoff = s->eta_cutoff = s->xtc_probability = 0;
}

/* ---- penalties ------------------------------------------------------------------------------ */

enum status check_dry_breakers(struct parse *parse, const char *name, const struct json *value) {
    struct api_request *request = parse->target;
    char path[48];
    if (json_count(value) > API_MAX_DRY_BREAKERS)
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "'%s' may hold at most %d strings, but it holds %d.", name,
                       API_MAX_DRY_BREAKERS, json_count(value));
    request->dry_breakers =
        arena_alloc(parse->arena, (size_t)json_count(value) * sizeof *request->dry_breakers);
    if (!request->dry_breakers)
        return err_set(parse->err, STATUS_UNAVAILABLE, name, "Not enough memory.");
    json_each(one, value) {
        struct api_text *breaker = &request->dry_breakers[request->n_dry_breakers];
        snprintf(path, sizeof path, "%s[%d]", name, request->n_dry_breakers++);
        if (!json_is(one, JSON_STRING)) return field_wrong_type(parse, path, "a string", one);
        if (json_length(one) == 0) return field_wrong(parse, path, "must not be an empty string");
        *breaker = (struct api_text){arena_strndup(parse->arena, json_text(one), json_length(one)),
                                     json_length(one)};
        if (!breaker->text)
            return err_set(parse->err, STATUS_UNAVAILABLE, path, "Not enough memory.");
    }
    return STATUS_OK;
}

/* Applies llama-server's repeat_last_n: the number of last tokens, prompt included, that the
 * penalties consider; 0: no penalties. If a request has repeat_penalty, the default is
 * llama-server's, else all tokens. */
void finish_penalties(const struct parse *parse) {
    enum { DEFAULT_LAST_N = 64 };
    struct api_request *request = parse->target;
    struct sampling *s = &request->sampling;
    int last = request->repeat_last_n;
    if (last < -1 && field_given(parse, "repeat_penalty")) last = DEFAULT_LAST_N;
    if (last == 0) sampling_drop_penalties(s);
    s->penalty_last_n = last == -1 ? INT32_MAX : max_int(last, 0);
    if (s->dry_last_n == 0) s->dry_multiplier = 0;
    if (s->dry_last_n == -1) s->dry_last_n = INT32_MAX;
}

/* ---- forbidden tokens ----------------------------------------------------------------------- */

enum status check_allowed_ids(struct parse *parse, const char *name, const struct json *value) {
    struct api_request *request = parse->target;
    const int V = parse->limits->V;
    const size_t n_words = ((size_t)V + 31) / 32;
    int32_t *ids;
    int n;
    if (json_count(value) == 0) return field_wrong(parse, name, "must hold at least one token id");
    enum status status = field_ids(parse, name, value, V, &ids, &n);
    if (status != STATUS_OK) return status;
    uint32_t *allowed = arena_alloc(parse->arena, n_words * sizeof *allowed);
    if (!allowed) return err_set(parse->err, STATUS_UNAVAILABLE, name, "Not enough memory.");
    memset(allowed, 0, n_words * sizeof *allowed);
    for (int i = 0; i < n; i++) allowed[ids[i] / 32] |= (uint32_t)1 << ids[i] % 32;
    request->sampling.allowed = allowed;
    return STATUS_OK;
}

static enum status store_bad_word(struct parse *parse, const char *name, const struct json *value,
                                  struct api_text *word) {
    if (!json_is(value, JSON_STRING)) return field_wrong_type(parse, name, "a string", value);
    size_t before = 0, length = json_length(value);
    while (before < length && isspace((unsigned char)json_text(value)[before])) before++;
    if (before == length) return field_wrong(parse, name, "must have a character besides spaces");
    if (json_length(value) > MAX_STOP_LENGTH) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "'%s' may be at most %d bytes long, but it has %zu.", name, MAX_STOP_LENGTH,
                       length);
    }
    word->text = arena_strndup(parse->arena, json_text(value) + before, length - before);
    word->length = length - before;
    if (!word->text) return err_set(parse->err, STATUS_UNAVAILABLE, name, "Not enough memory.");
    return STATUS_OK;
}

enum status check_logprob_ids(struct parse *parse, const char *name, const struct json *value) {
    struct api_request *request = parse->target;
    int32_t *ids = NULL;
    if (json_count(value) == 0) return STATUS_OK;
    enum status status =
        field_ids(parse, name, value, MAX_TOP_LOGPROBS, &ids, &request->n_logprob_ids);
    request->logprob_ids = ids;
    return status;
}

enum status check_bad_words(struct parse *parse, const char *name, const struct json *value) {
    struct api_request *request = parse->target;
    char path[32];
    int n = json_count(value);
    if (n > API_MAX_BAD_WORDS) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "'%s' may hold at most %d words, but it holds %d.", name, API_MAX_BAD_WORDS,
                       n);
    }
    request->bad_words = arena_alloc(parse->arena, (size_t)n * sizeof *request->bad_words);
    if (!request->bad_words)
        return err_set(parse->err, STATUS_UNAVAILABLE, name, "Not enough memory.");
    json_each(word, value) {
        int i = request->n_bad_words++;
        snprintf(path, sizeof path, "%s[%d]", name, i);
        enum status status = store_bad_word(parse, path, word, &request->bad_words[i]);
        if (status != STATUS_OK) return status;
    }
    assert(request->n_bad_words == n);
    return STATUS_OK;
}

/* ---- single values -------------------------------------------------------------------------- */

enum status check_truncation(struct parse *parse, const char *name, const struct json *value) {
    const struct api_request *request = parse->target;
    int most = parse->limits->max_model_len, given = request->truncate_prompt_tokens;
    (void)value;
    if (given != 0 && given <= most) return STATUS_OK;
    return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                   "'%s' must be between 1 and %d, the model's context, or -1, but it is %d.", name,
                   most, given);
}

enum status check_truncation_side(struct parse *parse, const char *name, const struct json *value) {
    struct api_request *request = parse->target;
    request->kept_side = json_is_text(value, "right") ? KEEP_BEGINNING : KEEP_END;
    if (request->kept_side == KEEP_BEGINNING || json_is_text(value, "left")) return STATUS_OK;
    return field_wrong(parse, name, "must be \"left\" or \"right\", the side that is cut");
}

enum status check_seed(struct parse *parse, const char *name, const struct json *value) {
    struct api_request *request = parse->target;
    if (!json_is(value, JSON_NUMBER)) return field_wrong_type(parse, name, "an integer", value);
    if (!json_is_integer(value)) return field_wrong(parse, name, "must be an integer of 64 bits");
    request->has_seed = true;
    request->sampling.seed = (uint64_t)json_integer(value);
    return STATUS_OK;
}

enum status check_request_id(struct parse *parse, const char *name, const struct json *value) {
    struct api_request *request = parse->target;
    size_t length = json_length(value);
    bool right = length >= 1 && length <= 48;
    for (size_t i = 0; right && i < length; i++) {
        unsigned char c = (unsigned char)json_text(value)[i];
        right = c < 0x80 && (isalnum(c) || (c && strchr("_.:-", c)));
    }
    if (!right)
        return field_wrong(parse, name, "must be 1 to 48 characters of A-Z a-z 0-9 _ . : -");
    snprintf(request->id, sizeof request->id, "%s", json_text(value));
    return STATUS_OK;
}

enum status check_cache_salt(struct parse *parse, const char *name, const struct json *value) {
    struct api_request *request = parse->target;
    size_t length = json_length(value);
    if (length == 0) return field_wrong(parse, name, "must not be an empty string");
    XXH128_hash_t hash = XXH3_128bits(json_text(value), length);
    request->cache_salt[0] = hash.low64;
    request->cache_salt[1] = hash.high64;
    if (!hash.low64 && !hash.high64) request->cache_salt[0] = 1; /* zero is the default salt */
    return STATUS_OK;
}

/* ---- names ---------------------------------------------------------------------------------- */

bool api_is_sampling_field(const char *name) {
    static const struct field fields[] = {SAMPLING_FIELDS};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (strcmp(fields[i].name, name) == 0) return true;
    return false;
}
