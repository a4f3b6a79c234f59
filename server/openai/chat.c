/* The API /v1/chat/completions: its fields, answers, chunks and logprobs (a list of objects). */
#include <string.h>

#include "server/openai/internal.h"

#define CHUNK "chat.completion.chunk"

/* ---- requests ------------------------------------------------------------------------------- */

struct chat_body {
    struct api_request request; /* must be first: field offsets are relative to it */
    struct api_prompt prompt;
    int max_completion_tokens; /* -1: absent */
    bool logprobs;
    int top_logprobs; /* -1: absent */
};

static enum status check_template(struct parse *parse, const char *name, const struct json *value) {
    if (parse->limits->has_chat_template) return check_messages(parse, name, value);
    return err_set(parse->err, STATUS_INVALID_REQUEST, name,
                   "The model has no chat template: use /v1/completions instead.");
}

static enum status check_functions(struct parse *parse, const char *name,
                                   const struct json *value) {
    return json_first(value) ? not_served(parse, name, " or give an empty array") : STATUS_OK;
}

static enum status check_function_call(struct parse *parse, const char *name,
                                       const struct json *value) {
    if (!json_is(value, JSON_OBJECT) && !json_is(value, JSON_STRING)) {
        return field_wrong_type(parse, name, "a string or an object", value);
    }
    if (json_is_text(value, "none")) return STATUS_OK;
    return not_served(parse, name, " or give \"none\"; use 'tools' and 'tool_choice'");
}

/* Accepts the values of OpenAI's models and of vLLM. A template that does not know them ignores
 * them (generation/prompt.c). */
static enum status check_reasoning_effort(struct parse *parse, const char *name,
                                          const struct json *value) {
    static const char *const efforts[] = {"none", "minimal", "low", "medium",
                                          "high", "xhigh",   "max"};
    struct chat_body *given = parse->target;
    for (size_t i = 0; i < sizeof efforts / sizeof *efforts; i++)
        if (json_is_text(value, efforts[i])) given->prompt.reasoning_effort = efforts[i];
    if (given->prompt.reasoning_effort) return STATUS_OK;
    return field_wrong(parse, name,
                       "must be \"none\", \"minimal\", \"low\", \"medium\", \"high\", "
                       "\"xhigh\" or \"max\"");
}

/* Checks a wish for or against reasoning: a boolean or {"type": ...}. */
static enum status check_thinking(struct parse *parse, const char *name, const struct json *value) {
    struct chat_body *given = parse->target;
    const struct json *type = json_member(value, "type");
    bool is_on = json_is_text(type, "enabled") || json_is_text(type, "adaptive");
    if (is_on || json_true(value))
        given->prompt.thinking = THINKING_ON;
    else if (json_is_text(type, "disabled") || json_is(value, JSON_BOOL))
        given->prompt.thinking = THINKING_OFF;
    else if (!json_is_text(type, "auto"))
        return field_wrong(parse, name,
                           "must be an object with the 'type' \"enabled\", \"disabled\", "
                           "\"adaptive\" or \"auto\"");
    return STATUS_OK;
}

/* Stores the text that ends reasoning at its limit. It must not end or begin a block by itself. */
static enum status check_last_thought(struct parse *parse, const char *name,
                                      const struct json *value) {
    struct chat_body *given = parse->target;
    const struct reasoning_format *format = parse->limits->reasoning_format;
    struct api_text text = {json_text(value), json_length(value)};
    given->request.last_thought = text;
    if (!format) return STATUS_OK;
    struct reasoning_marks marks = reasoning_format_marks(format, false);
    const char *const refused[] = {marks.begin, marks.end, marks.may_return ? "<|" : NULL};
    for (int i = 0; i < 3; i++)
        if (refused[i] && memmem(text.text, text.length, refused[i], strlen(refused[i])))
            return field_wrong(parse, name, "must not hold a marker of reasoning");
    return STATUS_OK;
}

static enum status check_verbosity(struct parse *parse, const char *name,
                                   const struct json *value) {
    static const char *const words[] = {"low", "medium", "high"};
    struct chat_body *given = parse->target;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (json_is_text(value, words[i])) given->prompt.verbosity = words[i];
    if (given->prompt.verbosity) return STATUS_OK;
    return field_wrong(parse, name, "must be \"low\", \"medium\" or \"high\"");
}

#define IN_FIELDS(member) offsetof(struct chat_body, member)

/* llama-server's names for thinking_token_budget. */
#define BUDGET_NAMED(name)                                                                         \
    { name, FIELD_INT, IN(max_reasoning), 0, -1, INT32_MAX, .same_as = "thinking_token_budget" }

static const struct field fields[] = {
    {"model", FIELD_STRING, FIELD_NOT_STORED, .check = check_model},
    TRUNCATION_FIELD,
    {"messages", FIELD_ARRAY, FIELD_NOT_STORED, .required = true, .check = check_template},
    {"chat_template_kwargs", FIELD_OBJECT, IN_FIELDS(prompt.template_kwargs),
     .check = check_template_kwargs},
    {"add_special_tokens", FIELD_BOOL, IN(add_special_tokens)},
    {"add_generation_prompt", FIELD_BOOL, IN_FIELDS(prompt.add_generation_prompt), 1},
    {"continue_final_message", FIELD_BOOL, IN_FIELDS(prompt.continue_final_message)},
    {"n", FIELD_INT, IN(n), 1, INT32_MIN, INT32_MAX, .check = check_n},
    {"max_tokens", FIELD_INT, IN(max_tokens), -1, -1, INT32_MAX},
    {"max_completion_tokens", FIELD_INT, IN_FIELDS(max_completion_tokens), -1, -1, INT32_MAX},
    OTHER_NAMES,
    SAMPLING_FIELDS,
    SEARCH_FIELDS,
    {"logprobs", FIELD_BOOL, IN_FIELDS(logprobs)},
    {"top_logprobs", FIELD_INT, IN_FIELDS(top_logprobs), -1, 0, MAX_TOP_LOGPROBS},
    DELIVERY_FIELDS,
    {"prediction", FIELD_OBJECT, FIELD_NOT_STORED, .check = check_prediction},
    STRUCTURED_FIELDS,
    {"tools", FIELD_ARRAY, FIELD_NOT_STORED},
    {"tool_choice", FIELD_ANY, FIELD_NOT_STORED, .check = check_tool_choice},
    {"parallel_tool_calls", FIELD_BOOL, IN(parallel_tool_calls), 1},
    {"reasoning_format", FIELD_STRING, FIELD_NOT_STORED, .check = check_reasoning_format},
    {"include_reasoning", FIELD_BOOL, IN(include_reasoning), 1},
    {"stop_in_reasoning", FIELD_BOOL, IN(stop_in_reasoning)},
    {"thinking_token_budget", FIELD_INT, IN(max_reasoning), -2, -1, INT32_MAX},
    BUDGET_NAMED("thinking_budget_tokens"),
    BUDGET_NAMED("reasoning_budget_tokens"),
    BUDGET_NAMED("reasoning_budget"),
    {"reasoning_budget_message", FIELD_STRING, FIELD_NOT_STORED, .check = check_last_thought},
    {"reasoning_effort", FIELD_STRING, FIELD_NOT_STORED, .check = check_reasoning_effort},
    {"thinking", FIELD_ANY, FIELD_NOT_STORED, .check = check_thinking},
    {"verbosity", FIELD_STRING, FIELD_NOT_STORED, .check = check_verbosity},
    {"functions", FIELD_ARRAY, FIELD_NOT_STORED, .check = check_functions},
    {"function_call", FIELD_ANY, FIELD_NOT_STORED, .check = check_function_call},
};

const struct field_table chat_fields = {FIELDS_OF(fields)};

/* Refuses a limit on reasoning that the server could not recognise. */
static enum status check_budget(struct parse *parse) {
    static const char *const names[] = {"thinking_token_budget", "thinking_budget_tokens",
                                        "reasoning_budget_tokens", "reasoning_budget"};
    const struct chat_body *given = parse->target;
    if (given->request.max_reasoning < 0 || parse->limits->reasoning_format) return STATUS_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (field_given(parse, names[i]))
            return field_wrong(parse, names[i],
                               "is not served with this model, whose chat template does not mark "
                               "reasoning: give -1, or start the server with --reasoning-parser");
    return STATUS_OK;
}

static enum status finish_request(struct parse *parse) {
    struct chat_body *given = parse->target;
    struct api_request *request = &given->request;
    enum status status = api_refuse_unserved(parse->object, UNSERVED_IN_CHAT, parse->err);
    if (status != STATUS_OK) return status;
    given->prompt.text = "";
    given->prompt.messages = field_given(parse, "messages");
    if (!given->prompt.messages) return field_wrong(parse, "messages", "is missing");
    if (given->top_logprobs > 0 && !given->logprobs) {
        return field_wrong(parse, "top_logprobs", "is only for requests with 'logprobs': true");
    }
    int top = given->top_logprobs >= 0 ? given->top_logprobs : 0;
    request->sampling.n_logprobs = given->logprobs ? top : -1;
    if (given->max_completion_tokens >= 0) request->max_tokens = given->max_completion_tokens;
    request->prompts = arena_alloc(parse->arena, sizeof *request->prompts);
    if (!request->prompts) {
        return err_set(parse->err, STATUS_UNAVAILABLE, NULL, "Not enough memory.");
    }
    request->n_prompts = 1;
    status = check_request(parse);
    if (status == STATUS_OK) status = check_budget(parse);
    if (status == STATUS_OK) status = check_generation_prompt(parse, &given->prompt);
    if (status == STATUS_OK) status = finish_tools(parse, &given->prompt);
    if (status == STATUS_OK && request->keeps_thoughts && !request->include_reasoning)
        status = field_wrong(parse, "include_reasoning",
                             "must not be false with 'reasoning_format' \"none\", which leaves "
                             "thoughts in the content");
    *request->prompts = given->prompt;
    return status;
}

enum status api_parse_chat(struct api_request **out, struct json *body,
                           const struct api_limits *limits, const struct api *api,
                           struct err *err) {
    struct chat_body given = {.request = {.api = api}};
    struct parse parse = {FIELDS_OF(fields), .target = &given, .limits = limits, .err = err};
    return request_parse(out, &parse, body, finish_request);
}

static enum status parse_body(struct api_request **out, struct json *body,
                              const struct api_limits *limits, struct err *err) {
    return api_parse_chat(out, body, limits, &api_chat, err);
}

/* ---- logprobs ------------------------------------------------------------------------------- */

/* Writes `"token":…,"logprob":…,"bytes":[…]`. */
static void write_token_fields(struct buf *out, const struct tokenizer *tokenizer, int32_t id,
                               float logprob) {
    size_t length;
    const char *bytes = tokenizer_token_bytes(tokenizer, id, &length);
    buf_puts(out, "\"token\":");
    json_write_string(out, bytes, length);
    buf_puts(out, ",\"logprob\":");
    write_logprob(out, logprob);
    buf_puts(out, ",\"bytes\":[");
    for (size_t i = 0; i < length; i++) {
        if (i > 0) buf_add(out, ",", 1);
        json_write_int(out, (unsigned char)bytes[i]);
    }
    buf_add(out, "]", 1);
}

static void write_token(struct buf *out, const struct tokenizer *tokenizer,
                        const struct sampled *sampled) {
    buf_add(out, "{", 1);
    write_token_fields(out, tokenizer, sampled->id, sampled->logprob);
    buf_puts(out, ",\"top_logprobs\":[");
    for (int i = 0; i < sampled->n_top; i++) {
        buf_puts(out, i > 0 ? ",{" : "{");
        write_token_fields(out, tokenizer, sampled->top[i].id, sampled->top[i].logprob);
        buf_add(out, "}", 1);
    }
    buf_puts(out, "]}");
}

/* Writes the fields after a choice's text. */
static void write_choice_tail(struct buf *out, const struct api_answer *answer,
                              const struct api_choice *choice) {
    buf_puts(out, choice->logprobs ? ",\"logprobs\":{\"content\":[" : ",\"logprobs\":null");
    for (int i = 0; choice->logprobs && i < choice->n_logprobs; i++) {
        if (i > 0) buf_add(out, ",", 1);
        write_token(out, answer->tokenizer, &choice->logprobs[i].sampled);
    }
    if (choice->logprobs) buf_puts(out, "],\"refusal\":null}");
    write_choice_end(out, choice);
    buf_add(out, "}", 1);
}

/* ---- answers -------------------------------------------------------------------------------- */

/* Writes a tool call, or an addition to one in a stream. */
static void write_call(struct buf *out, const struct message_call *call, bool is_delta) {
    buf_puts(out, "{");
    if (is_delta) buf_printf(out, "\"index\":%d,", call->index);
    if (call->begins) {
        buf_puts(out, "\"id\":");
        json_write_string(out, call->id, strlen(call->id));
        buf_puts(out, ",\"type\":\"function\",\"function\":{\"name\":");
        json_write_string(out, call->name, strlen(call->name));
        buf_puts(out, ",");
    } else {
        buf_puts(out, "\"function\":{");
    }
    buf_puts(out, "\"arguments\":");
    json_write_string(out, call->arguments.data, call->arguments.length);
    buf_puts(out, "}}");
}

static void write_calls(struct buf *out, const struct message *message, bool is_delta) {
    buf_puts(out, "\"tool_calls\":[");
    for (int i = 0; i < message->n_calls; i++) {
        if (i > 0) buf_puts(out, ",");
        write_call(out, &message->calls[i], is_delta);
    }
    buf_puts(out, "]");
}

/* Writes the reasoning under both names that clients use. OpenAI's API does not define a field for
 * it. */
static void write_reasoning(struct buf *out, const struct buf *reasoning) {
    buf_puts(out, "\"reasoning\":");
    json_write_string(out, reasoning->data, reasoning->length);
    buf_puts(out, ",\"reasoning_content\":");
    json_write_string(out, reasoning->data, reasoning->length);
}

/* Writes a message. The content is null only if the message has calls or reasoning instead. */
static void write_message(struct buf *out, const struct api_choice *choice) {
    const struct message *message = choice->message;
    buf_puts(out, "{\"role\":\"assistant\",\"content\":");
    if (!message)
        json_write_string(out, choice->text, choice->length);
    else if (message->content.length == 0 && !message_is_empty(message))
        buf_puts(out, "null");
    else
        json_write_string(out, message->content.data, message->content.length);
    buf_puts(out, ",\"refusal\":null");
    if (message && message->reasoning.length > 0) {
        buf_puts(out, ",");
        write_reasoning(out, &message->reasoning);
    }
    if (message && message->n_calls > 0) {
        buf_puts(out, ",");
        write_calls(out, message, false);
    }
    buf_puts(out, "}");
}

/* Writes a chunk's addition to the message, without braces. */
static void write_delta(struct buf *out, const struct message *message) {
    const char *comma = "";
    if (message->reasoning.length > 0) {
        write_reasoning(out, &message->reasoning);
        comma = ",";
    }
    if (message->content.length > 0) {
        buf_printf(out, "%s\"content\":", comma);
        json_write_string(out, message->content.data, message->content.length);
        comma = ",";
    }
    if (message->n_calls == 0) return;
    buf_puts(out, comma);
    write_calls(out, message, true);
}

static void write_response(struct buf *out, const struct api_answer *answer,
                           const struct api_choice *choices, int n, const struct api_usage *usage) {
    write_envelope(out, answer, "chat.completion");
    buf_puts(out, ",\"choices\":[");
    for (int i = 0; i < n; i++) {
        buf_puts(out, i > 0 ? ",{\"index\":" : "{\"index\":");
        json_write_int(out, choices[i].index);
        buf_puts(out, ",\"message\":");
        write_message(out, &choices[i]);
        write_choice_tail(out, answer, &choices[i]);
    }
    buf_puts(out, "],\"usage\":");
    write_usage(out, usage);
    if (n > 0) { /* all choices share one prompt */
        write_prompt_ids(out, &choices[0]);
        write_prompt_logprobs(out, answer, &choices[0]);
    }
    buf_add(out, "}", 1);
}

static void write_role_chunk(struct buf *out, const struct api_answer *answer, int index,
                             const struct api_usage *usage) {
    (void)usage;
    write_chunk_start(out, answer, CHUNK);
    buf_puts(out, "{\"index\":");
    json_write_int(out, index);
    buf_puts(out, ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
                  "\"finish_reason\":null,\"stop_reason\":null}");
    write_chunk_end(out, answer, NULL);
    buf_puts(out, "}\n\n");
}

static void write_chunk(struct buf *out, const struct api_answer *answer,
                        const struct api_choice *choice, const struct api_usage *usage) {
    write_chunk_start(out, answer, CHUNK);
    if (choice) {
        buf_puts(out, "{\"index\":");
        json_write_int(out, choice->index);
        buf_puts(out, ",\"delta\":{");
        if (choice->message) {
            write_delta(out, choice->message);
        } else if (choice->length > 0) {
            buf_puts(out, "\"content\":");
            json_write_string(out, choice->text, choice->length);
        }
        buf_add(out, "}", 1);
        write_choice_tail(out, answer, choice);
    }
    write_chunk_end(out, answer, usage);
    if (choice) write_prompt_ids(out, choice);
    buf_puts(out, "}\n\n");
}

const struct api api_chat = {
    .path = "/v1/chat/completions",
    .fields = &chat_fields,
    .example = "\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}],\"max_tokens\":16",
    .id_prefix = "chatcmpl-",
    .has_one_prompt = true,
    .parse = parse_body,
    .write_response = write_response,
    .write_start = write_role_chunk,
    .write_chunk = write_chunk,
    .receipt_place = RECEIPT_CHUNK,
    OPENAI_FORM,
};
