/* Reads the bodies of /tokenize and /detokenize. */
#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "server/openai/internal.h"

#define IN_TOKENIZE(member) offsetof(struct api_tokenize, member)

static enum status store_text(struct parse *parse, const char *name, const struct json *value) {
    struct api_tokenize *request = parse->target;
    (void)name;
    request->prompt.text = json_text(value);
    request->prompt.length = json_length(value);
    return STATUS_OK;
}

static enum status store_messages(struct parse *parse, const char *name, const struct json *value) {
    struct api_tokenize *request = parse->target;
    if (!parse->limits->has_chat_template) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                       "The model has no chat template: give a 'prompt' instead.");
    }
    request->prompt.messages = value;
    return check_messages(parse, name, value);
}

static enum status store_tools(struct parse *parse, const char *name, const struct json *value) {
    struct api_tokenize *request = parse->target;
    if (json_first(value)) request->prompt.tools = value;
    return check_tools(parse, name, value);
}

/* The fields of messages and of their rendering. */
#define TEMPLATE_FIELDS                                                                            \
    {"messages", FIELD_ARRAY, FIELD_NOT_STORED, .check = store_messages},                          \
        {"tools", FIELD_ARRAY, FIELD_NOT_STORED, .check = store_tools},                            \
        {"chat_template_kwargs", FIELD_OBJECT, IN_TOKENIZE(prompt.template_kwargs),                \
         .check = check_template_kwargs},                                                          \
        {"add_generation_prompt", FIELD_BOOL, IN_TOKENIZE(prompt.add_generation_prompt), 1}, {     \
        "continue_final_message", FIELD_BOOL, IN_TOKENIZE(prompt.continue_final_message)           \
    }

static const struct field tokenize_rows[] = {
    {"model", FIELD_STRING, FIELD_NOT_STORED, .check = check_model},
    {"prompt", FIELD_STRING, FIELD_NOT_STORED, .check = store_text},
    {"content", FIELD_STRING, FIELD_NOT_STORED, .check = store_text, .same_as = "prompt"},
    TEMPLATE_FIELDS,
    {"add_special_tokens", FIELD_BOOL, IN_TOKENIZE(add_special_tokens)},
    {"add_special", FIELD_BOOL, IN_TOKENIZE(add_special_tokens), .same_as = "add_special_tokens"},
    {"return_token_strs", FIELD_BOOL, IN_TOKENIZE(return_token_strs)},
    {"with_pieces", FIELD_BOOL, IN_TOKENIZE(with_pieces)},
};

static const struct field template_rows[] = {
    {"model", FIELD_STRING, FIELD_NOT_STORED, .check = check_model},
    TEMPLATE_FIELDS,
};

static const struct field detokenize_rows[] = {
    {"model", FIELD_STRING, FIELD_NOT_STORED, .check = check_model},
    {"tokens", FIELD_ARRAY, FIELD_NOT_STORED, .required = true},
};

const struct field_table tokenize_fields = {FIELDS_OF(tokenize_rows)};
const struct field_table template_fields = {FIELDS_OF(template_rows)};
const struct field_table detokenize_fields = {FIELDS_OF(detokenize_rows)};

static enum status finish_tokenize(struct parse *parse, struct api_tokenize *request) {
    bool is_prompt = field_given(parse, "prompt") != NULL;
    bool is_text = is_prompt || field_given(parse, "content");
    if (api_refuse_unserved(parse->object, UNSERVED_IN_TOKENIZE, parse->err))
        return parse->err->status;
    if (is_text == (request->prompt.messages != NULL)) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, "prompt",
                       "Exactly one of 'prompt', 'content' and 'messages' must be given.");
    }
    if (request->with_pieces && request->return_token_strs) {
        return err_set(parse->err, STATUS_INVALID_REQUEST, "with_pieces",
                       "'with_pieces' and 'return_token_strs' must not both be true.");
    }
    if (!field_given(parse, "add_special_tokens") && !field_given(parse, "add_special"))
        request->add_special_tokens = is_prompt;
    return check_generation_prompt(parse, &request->prompt);
}

static enum status finish_template(struct parse *parse, struct api_tokenize *request) {
    if (api_refuse_unserved(parse->object, UNSERVED_IN_TOKENIZE, parse->err))
        return parse->err->status;
    if (!request->prompt.messages) return field_wrong(parse, "messages", "is missing");
    return check_generation_prompt(parse, &request->prompt);
}

/* Parses a body by the table of `parse`. */
static enum status
parse_body(struct api_tokenize **out, struct parse *parse, const char *body, size_t length,
           enum status (*finish)(struct parse *parse, struct api_tokenize *request)) {
    struct json *json;
    *out = NULL;
    enum status status = body_parse(parse, body, length, &json);
    if (status != STATUS_OK) return status;
    struct api_tokenize *request = parse->target = arena_alloc(parse->arena, sizeof *request);
    assert(request); /* first allocation in its arena */
    *request = (struct api_tokenize){.prompt = {.text = ""}, .arena = parse->arena, .json = json};
    status = fields_parse(parse, json);
    if (status == STATUS_OK) status = finish(parse, request);
    if (status == STATUS_OK)
        *out = request;
    else
        api_tokenize_free(request);
    return status;
}

enum status api_tokenize_parse(struct api_tokenize **out, const char *body, size_t length,
                               const struct api_limits *limits, struct err *err) {
    struct parse parse = {FIELDS_OF(tokenize_rows), .limits = limits, .err = err};
    return parse_body(out, &parse, body, length, finish_tokenize);
}

enum status api_template_parse(struct api_tokenize **out, const char *body, size_t length,
                               const struct api_limits *limits, struct err *err) {
    struct parse parse = {FIELDS_OF(template_rows), .limits = limits, .err = err};
    return parse_body(out, &parse, body, length, finish_template);
}

void api_tokenize_free(struct api_tokenize *request) {
    if (!request) return;
    struct json *json = request->json;
    arena_free(request->arena);
    json_free(json);
}

static enum status copy_tokens(struct parse *parse, int32_t **ids, int *n) {
    const struct json *tokens = field_given(parse, "tokens");
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
    struct parse parse = {FIELDS_OF(detokenize_rows), .limits = limits, .err = err};
    struct json *json;
    *ids = NULL;
    *n = 0;
    enum status status = body_parse(&parse, body, length, &json);
    if (status != STATUS_OK) return status;
    status = fields_parse(&parse, json);
    if (status == STATUS_OK) status = copy_tokens(&parse, ids, n);
    arena_free(parse.arena);
    json_free(json);
    return status;
}
