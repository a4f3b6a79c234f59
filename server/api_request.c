/* The bodies of /v1/completions and /v1/chat/completions. The table below is the list of fields
 * that are known, with their types, ranges and defaults; a field that is not in it is ignored, as
 * OpenAI's clients expect. */
#include <float.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "server/api_internal.h"

#define COMPLETION (1u << API_COMPLETION)
#define CHAT (1u << API_CHAT)
#define BOTH (COMPLETION | CHAT)

#define MAX_SEQUENCES 1024 /* n * prompts of one request */

static enum status bad(struct parse *parse, const char *name, const char *message) {
    return err_set(parse->err, STATUS_INVALID_REQUEST, name, "'%s' %s.", name, message);
}

/* ---- fields that this version does not serve ------------------------------------------------ */

static enum status not_served(struct parse *parse, const char *name, const char *but) {
    return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                   "'%s' is not served by this version: leave it out%s.", name, but);
}

static enum status check_response_format(struct parse *parse, const char *name,
                                         const cJSON *value) {
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(value, "type");
    if (!cJSON_IsString(type)) return bad(parse, name, "must have a string 'type'");
    if (strcmp(type->valuestring, "text") == 0) return STATUS_OK;
    return not_served(parse, name, " or give {\"type\": \"text\"}");
}

static enum status check_tools(struct parse *parse, const char *name, const cJSON *value) {
    return value->child ? not_served(parse, name, " or give an empty array") : STATUS_OK;
}

static enum status check_tool_choice(struct parse *parse, const char *name, const cJSON *value) {
    if (cJSON_IsObject(value)) return not_served(parse, name, " or give \"none\"");
    if (!cJSON_IsString(value))
        return field_wrong_type(parse, name, "a string or an object", value);
    if (strcmp(value->valuestring, "none") == 0) return STATUS_OK;
    return not_served(parse, name, " or give \"none\"");
}

static enum status check_suffix(struct parse *parse, const char *name, const cJSON *value) {
    return json_string_length(value) > 0 ? not_served(parse, name, "") : STATUS_OK;
}

/* ---- fields with a rule of their own -------------------------------------------------------- */

static enum status check_n(struct parse *parse, const char *name, const cJSON *value) {
    const struct api_request *request = parse->target;
    if (request->n >= 1 && request->n <= parse->limits->max_choices) return STATUS_OK;
    return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                   "'%s' must be between 1 and %d, but it is %d.", name, parse->limits->max_choices,
                   value->valueint);
}

static enum status check_stream_options(struct parse *parse, const char *name, const cJSON *value) {
    static const struct field fields[] = {
        {"include_usage", BOTH, FIELD_BOOL, offsetof(struct api_request, include_usage)},
        {"continuous_usage_stats", BOTH, FIELD_BOOL,
         offsetof(struct api_request, continuous_usage_stats)},
    };
    struct api_request *request = parse->target;
    if (!request->stream) return bad(parse, name, "is only for requests with 'stream': true");
    for (int i = 0; i < 2; i++) {
        char path[64];
        const cJSON *member = cJSON_GetObjectItemCaseSensitive(value, fields[i].name);
        if (!member || cJSON_IsNull(member)) continue;
        snprintf(path, sizeof path, "%s.%s", name, fields[i].name);
        enum status status = field_store(parse, &fields[i], path, member);
        if (status != STATUS_OK) return status;
    }
    request->continuous_usage_stats &= request->include_usage;
    return STATUS_OK;
}

static enum status check_template(struct parse *parse, const char *name, const cJSON *value) {
    (void)value;
    if (parse->limits->has_chat_template) return check_messages(parse, name, value);
    return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                   "The model has no chat template: use /v1/completions instead.");
}

/* ---- the table ------------------------------------------------------------------------------ */

#define IN(member) offsetof(struct api_request, member)
#define IN_SAMPLING(member) offsetof(struct api_request, sampling.member)
#define IN_DRAFT(member) offsetof(struct draft, member)
#define NOT_KEPT FIELD_NOT_KEPT
#define ANY_INT -2147483648.0, 2147483647.0

/* name, kinds, type, where it goes, default, least, most, is the least outside, its own check */
static const struct field fields[] = {
    {"model", BOTH, FIELD_STRING, NOT_KEPT, .check = check_model},
    {"prompt", COMPLETION, FIELD_ANY, NOT_KEPT, .check = check_prompt},
    {"messages", CHAT, FIELD_ARRAY, NOT_KEPT, .check = check_template},
    {"chat_template_kwargs", CHAT, FIELD_OBJECT, IN(template_kwargs)},
    {"add_generation_prompt", CHAT, FIELD_BOOL, IN(add_generation_prompt), 1},
    {"continue_final_message", CHAT, FIELD_BOOL, IN(continue_final_message)},
    {"n", BOTH, FIELD_INT, IN(n), 1, INT32_MIN, INT32_MAX, .check = check_n},
    {"best_of", COMPLETION, FIELD_INT, IN_DRAFT(best_of), 0, 1, INT32_MAX},
    {"echo", COMPLETION, FIELD_BOOL, IN(echo)},
    {"max_tokens", COMPLETION, FIELD_INT, IN(max_tokens), 16, 0, INT32_MAX},
    {"max_tokens", CHAT, FIELD_INT, IN(max_tokens), -1, 1, INT32_MAX},
    {"max_completion_tokens", CHAT, FIELD_INT, IN_DRAFT(max_completion_tokens), -1, 1, INT32_MAX},
    {"min_tokens", BOTH, FIELD_INT, IN(min_tokens), 0, 0, INT32_MAX},
    {"ignore_eos", BOTH, FIELD_BOOL, IN(ignore_eos)},
    {"stop", BOTH, FIELD_ANY, NOT_KEPT, .check = check_stop},
    {"stop_token_ids", BOTH, FIELD_ARRAY, NOT_KEPT, .check = check_stop_ids},
    {"include_stop_str_in_output", BOTH, FIELD_BOOL, IN(include_stop_str_in_output)},
    {"skip_special_tokens", BOTH, FIELD_BOOL, IN(skip_special_tokens), 1},
    {"temperature", BOTH, FIELD_REAL, IN_SAMPLING(temperature), 1, 0, 2},
    {"top_p", BOTH, FIELD_REAL, IN_SAMPLING(top_p), 1, 0, 1, true},
    {"top_k", BOTH, FIELD_INT, IN_SAMPLING(top_k), 0, -1, INT32_MAX},
    {"min_p", BOTH, FIELD_REAL, IN_SAMPLING(min_p), 0, 0, 1},
    {"presence_penalty", BOTH, FIELD_REAL, IN_SAMPLING(presence_penalty), 0, -2, 2},
    {"frequency_penalty", BOTH, FIELD_REAL, IN_SAMPLING(frequency_penalty), 0, -2, 2},
    {"repetition_penalty", BOTH, FIELD_REAL, IN_SAMPLING(repetition_penalty), 1, 0, 1e6, true},
    {"logit_bias", BOTH, FIELD_OBJECT, NOT_KEPT, .check = check_logit_bias},
    {"logprobs", COMPLETION, FIELD_INT, IN_DRAFT(logprobs), -1, 0, MAX_TOP_LOGPROBS},
    {"logprobs", CHAT, FIELD_BOOL, IN_DRAFT(chat_logprobs)},
    {"top_logprobs", CHAT, FIELD_INT, IN_DRAFT(top_logprobs), -1, 0, MAX_TOP_LOGPROBS},
    {"seed", BOTH, FIELD_ANY, NOT_KEPT, .check = check_seed},
    {"stream", BOTH, FIELD_BOOL, IN(stream)},
    {"stream_options", BOTH, FIELD_OBJECT, NOT_KEPT, .check = check_stream_options},
    {"return_token_ids", BOTH, FIELD_BOOL, IN(return_token_ids)},
    {"user", BOTH, FIELD_STRING, NOT_KEPT},
    {"priority", BOTH, FIELD_INT, IN(priority), 0, ANY_INT},
    {"request_id", BOTH, FIELD_STRING, NOT_KEPT, .check = check_request_id},
    {"cache_salt", BOTH, FIELD_STRING, NOT_KEPT, .check = check_cache_salt},
    {"suffix", COMPLETION, FIELD_STRING, NOT_KEPT, .check = check_suffix},
    {"response_format", BOTH, FIELD_OBJECT, NOT_KEPT, .check = check_response_format},
    {"tools", CHAT, FIELD_ARRAY, NOT_KEPT, .check = check_tools},
    {"tool_choice", CHAT, FIELD_ANY, NOT_KEPT, .check = check_tool_choice},
    {"functions", CHAT, FIELD_ARRAY, NOT_KEPT, .check = check_tools},
    {"function_call", CHAT, FIELD_ANY, NOT_KEPT, .check = check_tool_choice},
    {"parallel_tool_calls", CHAT, FIELD_BOOL, NOT_KEPT},
};

/* ---- the request ---------------------------------------------------------------------------- */

/* A random id, unless the client gave its own; both behind the kind's prefix. */
static enum status settle_id(struct parse *parse, struct api_request *request) {
    char own[64];
    uint64_t random[2];
    const char *prefix = request->kind == API_CHAT ? "chatcmpl-" : "cmpl-";
    snprintf(own, sizeof own, "%s", request->id);
    if (!own[0]) {
        if (getrandom(random, sizeof random, 0) != sizeof random) {
            return err_set(parse->err, STATUS_SYSTEM, NULL, "The system gave no random bytes.");
        }
        snprintf(own, sizeof own, "%016llx%016llx", (unsigned long long)random[0],
                 (unsigned long long)random[1]);
    }
    snprintf(request->id, sizeof request->id, "%s%.48s", prefix, own);
    return STATUS_OK;
}

static enum status settle_choices(struct parse *parse, struct draft *draft) {
    const struct api_request *request = &draft->request;
    int prompts = request->kind == API_CHAT ? 1 : request->n_prompts;
    if (draft->best_of > 0 && draft->best_of != request->n) {
        return not_served(parse, "best_of", " or make it equal to 'n'");
    }
    if ((int64_t)request->n * prompts <= MAX_SEQUENCES) return STATUS_OK;
    return err_set(parse->err, STATUS_INVALID_REQUEST, "n",
                   "'n' times the number of prompts must be at most %d, but it is %lld.",
                   MAX_SEQUENCES, (long long)request->n * prompts);
}

static enum status settle(struct parse *parse, struct draft *draft) {
    struct api_request *request = &draft->request;
    const char *needed = request->kind == API_CHAT ? "messages" : "prompt";
    if (!field_given(parse, needed)) return bad(parse, needed, "is missing");
    enum status status = settle_choices(parse, draft);
    if (status == STATUS_OK) status = settle_sampling(parse, draft);
    if (status == STATUS_OK && request->kind == API_CHAT) {
        status = settle_generation_prompt(parse, &request->add_generation_prompt,
                                          request->continue_final_message);
        request->messages = field_given(parse, "messages");
    }
    return status == STATUS_OK ? settle_id(parse, request) : status;
}

/* Gives the request that was drafted its place in the arena that it owns. */
static enum status keep(struct api_request **out, struct parse *parse, const struct draft *draft,
                        cJSON *json) {
    *out = arena_alloc(parse->arena, sizeof **out);
    if (!*out) return err_set(parse->err, STATUS_UNAVAILABLE, NULL, "Not enough memory.");
    **out = draft->request;
    (*out)->arena = parse->arena;
    (*out)->json = json;
    return STATUS_OK;
}

enum status api_request_take(struct api_request **out, enum api_kind kind, cJSON *json,
                             const struct api_limits *limits, struct err *err) {
    struct draft draft = {.request = {.kind = kind, .created = time(NULL)}};
    struct parse parse = {.fields = fields,
                          .n_fields = sizeof fields / sizeof *fields,
                          .kind = 1u << kind,
                          .target = &draft,
                          .limits = limits,
                          .err = err};
    *out = NULL;
    draft.max_completion_tokens = draft.logprobs = draft.top_logprobs = -1;
    enum status status = body_take(&parse, json);
    if (status != STATUS_OK) return status;
    status = fields_parse(&parse, json);
    if (status == STATUS_OK) status = settle(&parse, &draft);
    if (status == STATUS_OK) status = keep(out, &parse, &draft, json);
    if (status == STATUS_OK) return status;
    arena_free(parse.arena);
    cJSON_Delete(json);
    return status;
}

enum status api_request_parse(struct api_request **out, enum api_kind kind, const char *body,
                              size_t length, const struct api_limits *limits, struct err *err) {
    cJSON *json;
    *out = NULL;
    enum status status = json_parse(&json, body, length, err);
    return status == STATUS_OK ? api_request_take(out, kind, json, limits, err) : status;
}

void api_request_free(struct api_request *request) {
    if (!request) return;
    cJSON *json = request->json;
    arena_free(request->arena);
    cJSON_Delete(json);
}
