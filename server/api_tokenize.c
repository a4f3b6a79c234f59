/* The bodies of /tokenize and /detokenize. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "server/api_internal.h"

#define TOKENIZE 1u
#define DETOKENIZE 2u
#define IN(member) offsetof(struct api_tokenize, member)

static enum status take_text(struct parse *parse, const char *name, const cJSON *value) {
    struct api_tokenize *request = parse->target;
    (void)name;
    request->prompt.text = value->valuestring;
    request->prompt.length = json_string_length(value);
    return STATUS_OK;
}

static enum status take_messages(struct parse *parse, const char *name, const cJSON *value) {
    struct api_tokenize *request = parse->target;
    if (!parse->limits->has_chat_template) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "The model has no chat template: give a 'prompt' instead.");
    }
    request->messages = value;
    return check_messages(parse, name, value);
}

static const struct field tokenize_fields[] = {
    {"model", TOKENIZE | DETOKENIZE, FIELD_STRING, FIELD_NOT_KEPT, .check = check_model},
    {"prompt", TOKENIZE, FIELD_STRING, FIELD_NOT_KEPT, .check = take_text},
    {"messages", TOKENIZE, FIELD_ARRAY, FIELD_NOT_KEPT, .check = take_messages},
    {"chat_template_kwargs", TOKENIZE, FIELD_OBJECT, IN(template_kwargs)},
    {"add_special_tokens", TOKENIZE, FIELD_BOOL, IN(add_special_tokens)},
    {"add_generation_prompt", TOKENIZE, FIELD_BOOL, IN(add_generation_prompt), 1},
    {"continue_final_message", TOKENIZE, FIELD_BOOL, IN(continue_final_message)},
    {"return_token_strs", TOKENIZE, FIELD_BOOL, IN(return_token_strs)},
    {"tokens", DETOKENIZE, FIELD_ARRAY, FIELD_NOT_KEPT},
};

static struct parse parse_of(unsigned kind, void *target, const struct api_limits *limits,
                             struct err *err) {
    return (struct parse){.fields = tokenize_fields,
                          .n_fields = sizeof tokenize_fields / sizeof *tokenize_fields,
                          .kind = kind,
                          .target = target,
                          .limits = limits,
                          .err = err};
}

static enum status settle(struct parse *parse, struct api_tokenize *request) {
    bool text = field_given(parse, "prompt") != NULL;
    if (text == (request->messages != NULL)) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, "prompt",
                       "Exactly one of 'prompt' and 'messages' must be given.");
    }
    if (!field_given(parse, "add_special_tokens")) request->add_special_tokens = text;
    return settle_generation_prompt(parse, &request->add_generation_prompt,
                                    request->continue_final_message);
}

static enum status keep(struct api_tokenize **out, struct parse *parse,
                        const struct api_tokenize *request, cJSON *json) {
    *out = arena_alloc(parse->arena, sizeof **out);
    if (!*out) return err_set(parse->err, STATUS_UNAVAILABLE, NULL, "Not enough memory.");
    **out = *request;
    (*out)->arena = parse->arena;
    (*out)->json = json;
    return STATUS_OK;
}

enum status api_tokenize_parse(struct api_tokenize **out, const char *body, size_t length,
                               const struct api_limits *limits, struct err *err) {
    struct api_tokenize request = {.prompt = {.text = ""}};
    struct parse parse = parse_of(TOKENIZE, &request, limits, err);
    cJSON *json;
    *out = NULL;
    enum status status = body_parse(&parse, body, length, &json);
    if (status != STATUS_OK) return status;
    status = fields_parse(&parse, json);
    if (status == STATUS_OK) status = settle(&parse, &request);
    if (status == STATUS_OK) status = keep(out, &parse, &request, json);
    if (status == STATUS_OK) return status;
    arena_free(parse.arena);
    cJSON_Delete(json);
    return status;
}

void api_tokenize_free(struct api_tokenize *request) {
    if (!request) return;
    cJSON *json = request->json;
    arena_free(request->arena);
    cJSON_Delete(json);
}

static enum status copy_tokens(struct parse *parse, int32_t **ids, int *n) {
    const cJSON *tokens = field_given(parse, "tokens");
    int32_t *found;
    if (!tokens) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, "tokens", "'tokens' is missing.");
    }
    enum status status = field_ids(parse, "tokens", tokens, JSON_MAX_VALUES, &found, n);
    if (status != STATUS_OK) return status;
    *ids = mem_alloc((size_t)*n * sizeof **ids);
    memcpy(*ids, found, (size_t)*n * sizeof **ids);
    return STATUS_OK;
}

enum status api_detokenize_parse(int32_t **ids, int *n, const char *body, size_t length,
                                 const struct api_limits *limits, struct err *err) {
    struct parse parse = parse_of(DETOKENIZE, NULL, limits, err);
    cJSON *json;
    *ids = NULL;
    *n = 0;
    enum status status = body_parse(&parse, body, length, &json);
    if (status != STATUS_OK) return status;
    status = fields_parse(&parse, json);
    if (status == STATUS_OK) status = copy_tokens(&parse, ids, n);
    arena_free(parse.arena);
    cJSON_Delete(json);
    return status;
}
