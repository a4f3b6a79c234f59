/* Converts the bodies of all APIs to checked requests with defaults. Each API has a separate file
 * with the table of its fields. A field that is neither in it nor in unserved.c is ignored, as
 * OpenAI's clients expect. */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "server/openai/internal.h"

#define MAX_SEQUENCES 1024 /* maximum of n * prompts per request */

enum status not_served(struct parse *parse, const char *name, const char *but) {
    return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                   "'%s' is not served by this version: leave it out%s.", name, but);
}

enum status check_n(struct parse *parse, const char *name, const struct json *value) {
    const struct api_request *request = parse->target;
    (void)value;
    if (request->n >= 1 && request->n <= parse->limits->max_choices) return STATUS_OK;
    return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                   "'%s' must be between 1 and %d, but it is %d.", name, parse->limits->max_choices,
                   request->n);
}

enum status check_stream_options(struct parse *parse, const char *name, const struct json *value) {
    static const struct field fields[] = {
        {"include_usage", FIELD_BOOL, IN(include_usage)},
        {"continuous_usage_stats", FIELD_BOOL, IN(continuous_usage_stats)},
    };
    struct api_request *request = parse->target;
    if (!request->stream) {
        return field_wrong(parse, name, "is only for requests with 'stream': true");
    }
    for (int i = 0; i < 2; i++) {
        char path[64];
        const struct json *member = json_member(value, fields[i].name);
        if (!member || json_is(member, JSON_NULL)) continue;
        snprintf(path, sizeof path, "%s.%s", name, fields[i].name);
        enum status status = field_store(parse, &fields[i], path, member);
        if (status != STATUS_OK) return status;
    }
    request->continuous_usage_stats &= request->include_usage;
    return STATUS_OK;
}

/* Sets the request's id to the API's prefix, followed by the client's id or a random one. */
static enum status make_id(struct parse *parse, struct api_request *request) {
    char own[64];
    uint64_t random[2];
    snprintf(own, sizeof own, "%s", request->id);
    if (!own[0]) {
        if (getrandom(random, sizeof random, 0) != sizeof random) {
            return err_set(parse->err, STATUS_SYSTEM, NULL,
                           "The system did not provide random bytes.");
        }
        snprintf(own, sizeof own, "%016llx%016llx", (unsigned long long)random[0],
                 (unsigned long long)random[1]);
    }
    snprintf(request->id, sizeof request->id, "%s%.48s", request->api->id_prefix, own);
    return STATUS_OK;
}

/* Does the body have the field? */
static bool is_given(const struct parse *parse, const char *name) {
    for (int i = 0; i < parse->n_fields; i++)
        if (strcmp(parse->fields[i].name, name) == 0) return parse->value[i] != NULL;
    return false;
}

/* The name by which the body gives the maximum of tokens. */
static const char *name_of_maximum(const struct parse *parse) {
    static const char *const names[] = {"n_predict", "max_completion_tokens"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (is_given(parse, names[i])) return names[i];
    return "max_tokens";
}

static enum status check_lengths(struct parse *parse, const struct api_request *request) {
    if (request->max_tokens == 0 && !request->echo) {
        bool has_echo = parse->fields == completion_fields.fields;
        return field_wrong(parse, name_of_maximum(parse),
                           has_echo ? "must be at least 1, or 0 together with 'echo': true"
                                    : "must be at least 1, or -1 for no limit");
    }
    if (request->max_tokens >= 0 && request->min_tokens > request->max_tokens) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, "min_tokens",
                       "'min_tokens' must be at most 'max_tokens', which is %d, but it is %d.",
                       request->max_tokens, request->min_tokens);
    }
    return STATUS_OK;
}

/* Replaces the table's defaults by the model's sampling defaults. */
static void use_model_defaults(const struct parse *parse, struct sampling *sampling) {
    const struct sampling_defaults *model = parse->limits->sampling;
    if (!model) return;
    const struct {
        const char *name;
        double value;
        float *out;
    } fields[] = {
        {"temperature", model->temperature, &sampling->temperature},
        {"top_p", model->top_p, &sampling->top_p},
        {"min_p", model->min_p, &sampling->min_p},
        {is_given(parse, "repeat_penalty") ? "repeat_penalty" : "repetition_penalty",
         model->repetition_penalty, &sampling->repetition_penalty},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (fields[i].value >= 0 && !is_given(parse, fields[i].name))
            *fields[i].out = (float)fields[i].value;
    if (model->top_k >= 0 && !is_given(parse, "top_k")) sampling->top_k = model->top_k;
}

enum status check_request(struct parse *parse) {
    struct api_request *request = parse->target;
    struct sampling *sampling = &request->sampling;
    assert(request->n_prompts > 0 && request->prompts && request->n > 0);
    if (request->n_logprob_ids > 0 && request->use_beam_search)
        return field_wrong(parse, "logprob_token_ids",
                           "is not served with 'use_beam_search': leave one out");
    if (request->n_logprob_ids > 0 && sampling->n_logprobs < 0) sampling->n_logprobs = 0;
    enum status status = check_search(parse);
    if (status != STATUS_OK) return status;
    int64_t sequences = (int64_t)request->best_of * request->n_prompts;
    if (sequences > MAX_SEQUENCES) {
        const char *name = request->best_of > request->n ? "best_of" : "n";
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "'%s' times the number of prompts must be at most %d, but it is %lld.", name,
                       MAX_SEQUENCES, (long long)sequences);
    }
    if (request->prompt_logprobs >= 0 && request->stream) {
        return field_wrong(parse, "prompt_logprobs", "is only for requests without 'stream': true");
    }
    if (sampling->temperature < 1e-5f) sampling->temperature = 0;
    if (sampling->top_k < 0) sampling->top_k = 0;
    if (sampling->top_k >= parse->limits->V) sampling->top_k = 0; /* all ids are allowed: off */
    finish_penalties(parse);
    finish_mirostat(parse);
    if (!request->has_seed) sampling->seed = parse->limits->default_seed;
    return check_lengths(parse, request);
}

void api_read_only(struct api_request *request) {
    assert(request->api->reads && request->n_prompts > 0);
    request->n = request->best_of = request->n_generated = 1;
    request->max_tokens = 0;
    request->prompt_logprobs = -1;
    request->sampling = (struct sampling)SAMPLING_GREEDY;
    request->has_seed = true;
}

enum status request_parse(struct api_request **out, struct parse *parse, struct json *json,
                          enum status (*finish)(struct parse *parse)) {
    struct api_request *request = parse->target;
    assert(request->api && request->n_prompts == 0);
    *out = NULL;
    enum status status = body_check(parse, json);
    if (status != STATUS_OK) return status;
    request->created = time(NULL);
    request->arena = parse->arena;
    request->json = json;
    status = fields_parse(parse, json);
    if (status == STATUS_OK) use_model_defaults(parse, &request->sampling);
    if (status == STATUS_OK) status = finish(parse);
    if (status == STATUS_OK) status = make_id(parse, request);
    struct api_request *kept = NULL;
    if (status == STATUS_OK && !(kept = arena_alloc(parse->arena, sizeof *kept))) {
        status = err_set(parse->err, STATUS_UNAVAILABLE, NULL, "Not enough memory.");
    }
    if (status == STATUS_OK) {
        assert(request->id[0] && request->n_prompts > 0);
        *kept = *request;
        *out = kept;
        return STATUS_OK;
    }
    arena_free(parse->arena);
    json_free(json);
    return status;
}

/* ---- the end of a request's memory ----------------------------------------------------------- */

void api_request_drop_tree(struct api_request *request) {
    assert(request->json); /* it is freed only once */
    json_free(request->json);
    request->json = NULL;
    request->callable.allowed = NULL;
    for (int i = 0; i < request->n_prompts; i++) {
        struct api_prompt *prompt = &request->prompts[i];
        *prompt = (struct api_prompt){.text = "",
                                      .ids = prompt->ids,
                                      .n_ids = prompt->n_ids,
                                      .n_second = prompt->n_second,
                                      .read_ids = prompt->read_ids,
                                      .n_read_ids = prompt->n_read_ids};
    }
}

void api_request_free(struct api_request *request) {
    if (!request) return;
    struct json *json = request->json;
    arena_free(request->arena); /* the arena also holds the request */
    json_free(json);
}
