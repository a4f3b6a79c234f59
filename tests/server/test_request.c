/* What bodies are taken, with which defaults, and what is said about those that are not. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "server/openai/internal.h"
#include "support/suite_main.h"

static const struct api_limits limits = {.model = "m",
                                         .V = 1000,
                                         .max_model_len = 64,
                                         .max_choices = 16,
                                         .max_prompts = 8,
                                         .default_seed = 77,
                                         .has_chat_template = true};

/* Reads a body as a server does: first as JSON, then by its API. */
static enum status request_read(struct api_request **out, const struct api *api, const char *body,
                                size_t length, const struct api_limits *by, struct err *err) {
    struct json *json;
    *out = NULL;
    enum status status = json_parse(&json, "The body", body, length, err);
    return status ? status : api->parse(out, json, by, err);
}

static struct api_request *parsed(const struct api *api, const char *body) {
    struct api_request *request;
    struct err err = {0};
    enum status status = request_read(&request, api, body, strlen(body), &limits, &err);
    ck_assert_msg(status == STATUS_OK, "%s: %s", body, err.message);
    return request;
}

/* ---- bodies that are refused ---------------------------------------------------------------- */

struct refused {
    const struct api *api;
    const char *body, *param, *says;
};

#define C &api_completions, "{\"prompt\":\"x\","
#define H &api_chat, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
#define ASSISTANT &api_chat, "{\"messages\":[{\"role\":\"assistant\","
#define CALL ASSISTANT "\"tool_calls\":[{"
static const struct refused refused[] = {
    {&api_completions, "", "", "no value at line 1, column 1"},
    {&api_completions, "{\"prompt\":\"x\"} x", "", "text after the document at line 1, column 16"},
    {&api_completions, "{\"prompt\":\n\"x\",}", "", "no field name in quotes at line 2, column 5"},
    {&api_completions, "{\"prompt\":\"x\\q\"}", "", "an unknown escape"},
    {&api_completions, "{\"prompt\":\"x\\u12g4\"}", "", "an unknown escape"},
    {&api_completions, "{\"prompt\":\"x", "", "a string without an end"},
    {&api_completions, "{\"prompt\":\"x\\\"", "", "a string without an end"},
    {&api_completions, "{\"prompt\":\"\n\"}", "", "a control character"},
    {&api_completions, "{\"prompt\":\"\xC3(\"}", "",
     "a byte that is not UTF-8 at line 1, column 12"},
    {&api_completions, "{\"prompt\":\"\xED\xA0\x80\"}", "", "a byte that is not UTF-8"},
    {&api_completions, "{\"prompt\":\"\xC3\"}", "", "a byte that is not UTF-8"},
    {&api_completions, "{\"n\":01}", "", "a malformed number"},
    {&api_completions, "{\"n\":1.}", "", "a malformed number"},
    {&api_completions, "{\"n\":-}", "", "a malformed number"},
    {&api_completions, "{\"n\":1e}", "", "a malformed number"},
    {&api_completions, "{\"n\":1e999}", "", "a number that is too large"},
    {&api_completions, "{\"n\":NaN}", "", "no value"},
    {&api_completions, "{\"n\" 1}", "", "no ':'"},
    {&api_completions, "{\"n\":1 \"m\":2}", "", "no ',' or '}'"},
    {&api_completions, "{\"a\":[1 2]}", "", "no ',' or ']'"},
    {&api_completions, "{\"\\u0000\":1}", "", "a field name with \\u0000"},
    {&api_completions, "[]", "", "must be a JSON object, but it is an array"},
    {&api_completions, "\"x\"", "", "but it is a string"},
    {&api_completions, "{}", "prompt", "'prompt' is missing"},
    {&api_completions, "{\"prompt\":null}", "prompt", "'prompt' is missing"},
    {&api_completions, "{\"prompt\":\"\"}", "prompt", "must not be empty"},
    {&api_completions, "{\"prompt\":[]}", "prompt", "must not be empty"},
    {&api_completions, "{\"prompt\":[\"\"]}", "prompt[0]", "must not be empty"},
    {&api_completions, "{\"prompt\":[[1],[]]}", "prompt[1]", "must not be empty"},
    {&api_completions, "{\"prompt\":[\"a\",1]}", "prompt[1]", "a string as those before it"},
    {&api_completions, "{\"prompt\":[1,\"a\"]}", "prompt", "'prompt[1]' must be a token id"},
    {&api_completions, "{\"prompt\":[[1],2]}", "prompt[1]", "an array of token ids"},
    {&api_completions, "{\"prompt\":[null]}", "prompt", "whose first element is null"},
    {&api_completions, "{\"prompt\":[1000]}", "prompt", "in 0..999, but it is 1000"},
    {&api_completions, "{\"prompt\":[-1]}", "prompt", "in 0..999, but it is -1"},
    {&api_completions, "{\"prompt\":[1.5]}", "prompt", "in 0..999, but it is 1.5"},
    {&api_completions, "{\"prompt\":{}}", "prompt", "but it is an object"},
    {&api_completions, "{\"prompt\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\"]}",
     "prompt", "at most 8 prompts, but it holds 9"},
    {C "\"model\":1}", "model", "must be a string, but it is a number"},
    {C "\"n\":0}", "n", "between 1 and 16, but it is 0"},
    {C "\"n\":17}", "n", "between 1 and 16, but it is 17"},
    {C "\"n\":1.5}", "n", "must be an integer, but it is 1.5"},
    {C "\"n\":\"1\"}", "n", "must be an integer, but it is a string"},
    {C "\"n\":true}", "n", "must be an integer, but it is a boolean"},
    {C "\"n\":1e30}", "n", "at most 2147483647, but it is 1e+30"},
    {C "\"n\":100000000000000000000}", "n", "but it is 1e+20"},
    {C "\"n\":2,\"best_of\":1}", "best_of", "must be at least 'n', which is 2"},
    {C "\"echo\":1}", "echo", "must be true or false, but it is a number"},
    {C "\"max_tokens\":0}", "max_tokens", "at least 1, or 0 together with 'echo'"},
    {C "\"max_tokens\":-1}", "max_tokens", "at least 0, but it is -1"},
    {C "\"max_tokens\":3000000000}", "max_tokens", "at most 2147483647, but it is 3000000000"},
    {C "\"min_tokens\":17}", "min_tokens", "at most 'max_tokens', which is 16, but it is 17"},
    {C "\"temperature\":2.1}", "temperature", "at least 0 and at most 2, but it is 2.1"},
    {C "\"temperature\":-0.1}", "temperature", "but it is -0.1"},
    {C "\"temperature\":\"hot\"}", "temperature", "must be a number, but it is a string"},
    {C "\"top_p\":0}", "top_p", "greater than 0 and at most 1, but it is 0"},
    {C "\"top_p\":1.1}", "top_p", "but it is 1.1"},
    {C "\"top_k\":-2}", "top_k", "at least -1, but it is -2"},
    {C "\"min_p\":1.5}", "min_p", "at least 0 and at most 1"},
    {C "\"typical_p\":0}", "typical_p", "greater than 0 and at most 1, but it is 0"},
    {C "\"top_n_sigma\":-2}", "top_n_sigma", "at least -1"},
    {C "\"epsilon_cutoff\":1.1}", "epsilon_cutoff", "at most 1, but it is 1.1"},
    {C "\"eta_cutoff\":-1}", "eta_cutoff", "at least 0"},
    {C "\"xtc_probability\":2}", "xtc_probability", "at most 1"},
    {C "\"xtc_threshold\":\"x\"}", "xtc_threshold", "must be a number"},
    {C "\"presence_penalty\":3}", "presence_penalty", "at least -2 and at most 2"},
    {C "\"frequency_penalty\":-3}", "frequency_penalty", "at least -2 and at most 2"},
    {C "\"repetition_penalty\":0}", "repetition_penalty", "greater than 0"},
    {C "\"logit_bias\":[]}", "logit_bias", "must be an object, but it is an array"},
    {C "\"logit_bias\":{\"1000\":1}}", "logit_bias", "in 0..999 as its keys, but one is '1000'"},
    {C "\"logit_bias\":{\"a\":1}}", "logit_bias", "but one is 'a'"},
    {C "\"logit_bias\":{\"\":1}}", "logit_bias", "but one is ''"},
    {C "\"logit_bias\":{\"99999999999999999999\":1}}", "logit_bias", "keys"},
    {C "\"logit_bias\":{\"1\":101}}", "logit_bias", "'1' a number between -100 and 100"},
    {C "\"logit_bias\":{\"1\":null}}", "logit_bias", "'1' a number between -100 and 100"},
    {C "\"allowed_token_ids\":[]}", "allowed_token_ids", "must hold at least one token id"},
    {C "\"allowed_token_ids\":[3,1000]}", "allowed_token_ids", "'allowed_token_ids[1]' must be"},
    {C "\"bad_words\":[\"x\",3]}", "bad_words[1]", "must be a string, but it is a number"},
    {H "\"bad_words\":[\" \\t\"]}", "bad_words[0]", "a character besides spaces"},
    {C "\"truncate_prompt_tokens\":0}", "truncate_prompt_tokens", "between 1 and 64, the model's"},
    {H "\"truncate_prompt_tokens\":65}", "truncate_prompt_tokens", "or -1, but it is 65"},
    {C "\"truncate_prompt_tokens\":-2}", "truncate_prompt_tokens", "at least -1"},
    {C "\"prompt_logprobs\":21}", "prompt_logprobs", "at least 0 and at most 20"},
    {C "\"prompt_logprobs\":0,\"stream\":true}", "prompt_logprobs", "without 'stream': true"},
    {C "\"logprobs\":21}", "logprobs", "at least 0 and at most 20"},
    {C "\"logprobs\":true}", "logprobs", "must be an integer"},
    {C "\"seed\":9223372036854775808}", "seed", "must be an integer of 64 bits"},
    {C "\"seed\":1.5}", "seed", "must be an integer of 64 bits"},
    {C "\"seed\":1e17}", "seed", "must be an integer of 64 bits"},
    {C "\"seed\":\"1\"}", "seed", "must be an integer, but it is a string"},
    {C "\"stop\":\"\"}", "stop", "must not be an empty string"},
    {C "\"stop\":[\"a\",\"\"]}", "stop[1]", "must not be an empty string"},
    {C "\"stop\":[1]}", "stop[0]", "must be a string, but it is a number"},
    {C "\"stop\":{}}", "stop", "a string or an array of strings"},
    {C "\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"a\",\"b\",\"c\",\"d\","
       "\"e\",\"f\","
       "\"g\",\"h\"]}",
     "stop", "at most 16 strings, but it holds 17"},
    {C "\"stop_token_ids\":[1,1000]}", "stop_token_ids", "'stop_token_ids[1]' must be a token id"},
    {C "\"stop_token_ids\":1}", "stop_token_ids", "must be an array"},
    {C "\"stream\":\"yes\"}", "stream", "must be true or false"},
    {C "\"stream_options\":{}}", "stream_options", "only for requests with 'stream': true"},
    {C "\"stream\":true,\"stream_options\":[]}", "stream_options", "must be an object"},
    {C "\"stream\":true,\"stream_options\":{\"include_usage\":1}}", "stream_options.include_usage",
     "must be true or false"},
    {C "\"user\":1}", "user", "must be a string"},
    {C "\"priority\":\"low\"}", "priority", "must be an integer"},
    {C "\"request_id\":\"a b\"}", "request_id", "must be 1 to 48 characters"},
    {C "\"request_id\":\"\"}", "request_id", "must be 1 to 48 characters"},
    {C "\"request_id\":\"a\\u0000b\"}", "request_id", "must be 1 to 48 characters"},
    {C "\"request_id\":\"1234567890123456789012345678901234567890123456789\"}", "request_id",
     "must be 1 to 48 characters"},
    {C "\"cache_salt\":\"\"}", "cache_salt", "must not be an empty string"},
    {C "\"suffix\":\"x\"}", "suffix", "is not served by this version"},
    {C "\"response_format\":{}}", "response_format", "must have a string 'type'"},
    {C "\"response_format\":\"text\"}", "response_format", "must be an object"},
    {&api_chat, "{}", "messages", "'messages' is missing"},
    {&api_chat, "{\"messages\":[]}", "messages", "at least one message"},
    {&api_chat, "{\"messages\":\"x\"}", "messages", "must be an array"},
    {&api_chat, "{\"messages\":[1]}", "messages[0]", "must be an object"},
    {&api_chat, "{\"messages\":[{}]}", "messages[0].role", "must be a string"},
    {&api_chat, "{\"messages\":[{\"role\":1}]}", "messages[0].role", "must be a string"},
    {&api_chat, "{\"messages\":[{\"role\":\"user\",\"content\":1}]}", "messages[0].content",
     "a string, null, or an array of parts, but it is a number"},
    {&api_chat, "{\"messages\":[{\"role\":\"user\",\"content\":[1]}]}", "messages[0].content[0]",
     "must be an object"},
    {&api_chat,
     "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
     "{\"type\":\"image_url\"}]}]}",
     "messages[0].content[1].type", "must be \"text\""},
    {&api_chat, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]}",
     "messages[0].content[0].text", "must be a string"},
    {&api_chat, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\\u0000b\"}]}", "messages[0]",
     "must not hold the character \\u0000"},
    {H "\"max_tokens\":0}", "max_tokens", "at least 1, but it is 0"},
    {H "\"max_completion_tokens\":0}", "max_completion_tokens", "at least 1, but it is 0"},
    {H "\"min_tokens\":5,\"max_tokens\":4}", "min_tokens", "at most 'max_tokens', which is 4"},
    {H "\"logprobs\":2}", "logprobs", "must be true or false"},
    {H "\"top_logprobs\":2}", "top_logprobs", "only for requests with 'logprobs': true"},
    {H "\"logprobs\":false,\"top_logprobs\":2}", "top_logprobs", "only for requests"},
    {H "\"logprobs\":true,\"top_logprobs\":21}", "top_logprobs", "at most 20"},
    {H "\"tools\":[{\"type\":\"function\"}]}", "tools[0]", "a 'function' with a string 'name'"},
    {H "\"tools\":{}}", "tools", "must be an array"},
    {H "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}", "tools",
     "give 'tool_choice' \"none\", or start the server with --tool-call-parser and one of openai,"},
    {H "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],\"tool_choice\":null}",
     "tools", "shows no known form of calls"},
    {H "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f g\"}}]}",
     "tools[0].function.name", "must be 1 to 128 characters of A-Z a-z 0-9 _ . -"},
    {H "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}},1],\"tool_choice\":"
       "\"none\"}",
     "tools[1]", "must be an object with \"type\": \"function\""},
    {H "\"tools\":[{\"type\":\"custom\"}]}", "tools[0]", "an object with \"type\": \"function\""},
    {H "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"\"}}],\"tool_choice\":\"none\"}",
     "tools[0]", "a 'function' with a string 'name'"},
    {H "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\\u0000\"}}],\"tool_choice\":"
       "\"none\"}",
     "tools[0]", "must not hold the character \\u0000"},
    {ASSISTANT "\"content\":\"x\",\"tool_calls\":{}}]}", "messages[0].tool_calls",
     "must be an array of tool calls, but it is an object"},
    {ASSISTANT "\"tool_calls\":[]}]}", "messages[0].content", "is missing"},
    {ASSISTANT "\"tool_calls\":null}]}", "messages[0].content", "is missing"},
    {ASSISTANT "\"tool_calls\":[1]}]}", "messages[0].tool_calls[0].function.name",
     "must be a string"},
    {CALL "\"type\":\"custom\",\"function\":{\"name\":\"f\",\"arguments\":\"\"}}]}]}",
     "messages[0].tool_calls[0].type", "must be \"function\""},
    {CALL "\"function\":{\"name\":\"\",\"arguments\":\"\"}}]}]}",
     "messages[0].tool_calls[0].function.name", "must be a string"},
    {CALL "\"function\":{\"name\":\"f\"}}]}]}", "messages[0].tool_calls[0].function.arguments",
     "is missing"},
    {CALL "\"function\":{\"name\":\"f\",\"arguments\":1}}]}]}",
     "messages[0].tool_calls[0].function.arguments",
     "a string that holds a JSON object, but it is a"},
    {CALL "\"function\":{\"name\":\"f\",\"arguments\":\"{\"}}]}]}",
     "messages[0].tool_calls[0].function.arguments",
     "a string that holds a JSON object: It is not"},
    {CALL "\"function\":{\"name\":\"f\",\"arguments\":\"[1]\"}}]}]}",
     "messages[0].tool_calls[0].function.arguments", "but it holds an array"},
    {CALL "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":\\\"\\\\u0000\\\"}\"}}]}]}",
     "messages[0]", "must not hold the character \\u0000"},
    {&api_chat,
     "{\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"tool_calls\":[{\"function\":{\"name\":"
     "\"f\","
     "\"arguments\":\"{}\"}}]}]}",
     "messages[0].tool_calls", "is only for messages of the role \"assistant\""},
    {ASSISTANT "\"content\":\"x\",\"function_call\":{\"name\":\"f\"}}]}",
     "messages[0].function_call", "not served"},
    {ASSISTANT "\"content\":null,\"refusal\":\"No.\"}]}", "messages[0].refusal", "or give null"},
    {ASSISTANT "\"content\":\"x\",\"audio\":{\"id\":\"a\"}}]}", "messages[0].audio", "not served"},
    {H "\"reasoning_format\":\"deepseek-legacy\"}", "reasoning_format", "must be \"auto\""},
    {H "\"tool_choice\":\"required\"}", "tool_choice", "but there are no 'tools'"},
    {H "\"tool_choice\":{}}", "tool_choice", "must be \"none\", \"auto\", \"required\" or"},
    {H "\"functions\":[{}]}", "functions", "is not served by this version"},
    {H "\"parallel_tool_calls\":1}", "parallel_tool_calls", "must be true or false"},
    {H "\"chat_template_kwargs\":[]}", "chat_template_kwargs", "must be an object"},
    {H "\"chat_template_kwargs\":{\"a\":[\"b\\u0000\"]}}", "chat_template_kwargs",
     "must not hold the character \\u0000"},
    {H "\"add_generation_prompt\":true,\"continue_final_message\":true}", "continue_final_message",
     "must not both be true"},
};
#undef C
#undef H
#undef ASSISTANT
#undef CALL

START_TEST(each_refusal_names_the_field) {
    const struct refused *one = &refused[_i];
    struct api_request *request = (void *)1;
    struct err err = {0};
    enum status status =
        request_read(&request, one->api, one->body, strlen(one->body), &limits, &err);
    ck_assert_msg(status == STATUS_INVALID_REQUEST, "%s was taken", one->body);
    ck_assert_ptr_null(request);
    ck_assert_int_eq(err.status, status);
    ck_assert_msg(strcmp(err.param, one->param) == 0, "%s: param '%s'", one->body, err.param);
    ck_assert_msg(strstr(err.message, one->says), "%s: '%s'", one->body, err.message);
}
END_TEST

START_TEST(unknown_models_are_not_found) {
    const char *body = "{\"model\":\"other\",\"prompt\":\"x\"}";
    struct api_request *request;
    struct err err = {0};
    enum status status =
        request_read(&request, &api_completions, body, strlen(body), &limits, &err);
    ck_assert_int_eq(status, STATUS_NOT_FOUND);
    ck_assert_int_eq(err.status, STATUS_NOT_FOUND);
    ck_assert_str_eq(err.code, "model_not_found");
    ck_assert_str_eq(err.param, "model");
    ck_assert_str_eq(err.message, "The model 'other' does not exist: this server serves 'm'.");
    body = "{\"model\":\"m\\u0000\",\"prompt\":\"x\"}";
    status = request_read(&request, &api_completions, body, strlen(body), &limits, &err);
    ck_assert_int_eq(status, STATUS_NOT_FOUND);
}
END_TEST

START_TEST(long_prompts_of_ids_exceed_the_context) {
    struct buf body = {0};
    struct api_request *request;
    struct err err = {0};
    buf_puts(&body, "{\"prompt\":[1");
    for (int i = 1; i < 65; i++) buf_puts(&body, ",1");
    buf_puts(&body, "]}");
    enum status status =
        request_read(&request, &api_completions, body.data, body.length, &limits, &err);
    ck_assert_int_eq(status, STATUS_INVALID_REQUEST);
    ck_assert_str_eq(err.code, "context_length_exceeded");
    ck_assert_ptr_nonnull(strstr(err.message, "65"));
    ck_assert_ptr_nonnull(strstr(err.message, "64"));
    buf_free(&body);
}
END_TEST

START_TEST(chat_needs_a_template) {
    struct api_limits plain = limits;
    const char *body = "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}";
    struct api_request *request;
    struct err err = {0};
    plain.has_chat_template = false;
    enum status status = request_read(&request, &api_chat, body, strlen(body), &plain, &err);
    ck_assert_int_eq(status, STATUS_INVALID_REQUEST);
    ck_assert_ptr_nonnull(strstr(err.message, "/v1/completions"));
}
END_TEST

START_TEST(what_is_too_much_is_refused) {
    struct buf body = {0};
    struct api_request *request;
    struct err err = {0};
    for (int i = 0; i < 100000; i++) buf_puts(&body, "[");
    ck_assert_int_eq(request_read(&request, &api_chat, body.data, body.length, &limits, &err),
                     STATUS_INVALID_REQUEST);
    ck_assert_ptr_nonnull(strstr(err.message, "too deep"));
    buf_clear(&body);
    buf_puts(&body, "{\"x\":[0");
    for (int i = 0; i < JSON_MAX_VALUES; i++) buf_puts(&body, ",0");
    buf_puts(&body, "]}");
    ck_assert_int_eq(request_read(&request, &api_chat, body.data, body.length, &limits, &err),
                     STATUS_INVALID_REQUEST);
    ck_assert_ptr_nonnull(strstr(err.message, "too many values"));
    buf_free(&body);
}
END_TEST

/* ---- bodies that are taken ------------------------------------------------------------------ */

START_TEST(completion_defaults) {
    struct api_request *r = parsed(&api_completions, "{\"prompt\":\"x\",\"n\":null,\"stop\":null,"
                                                     "\"temperature\":null,\"anything\":[{}]}");
    ck_assert_int_eq(r->n_prompts, 1);
    ck_assert_str_eq(r->prompts[0].text, "x");
    ck_assert_ptr_null(r->prompts[0].ids);
    ck_assert_int_eq(r->n, 1);
    ck_assert_int_eq(r->max_tokens, 16);
    ck_assert_int_eq(r->min_tokens, 0);
    ck_assert(!r->echo && !r->stream && !r->include_usage && !r->return_token_ids);
    ck_assert(r->skip_special_tokens && !r->include_stop_str_in_output && !r->ignore_eos);
    ck_assert(!r->has_seed && r->sampling.seed == 77);
    ck_assert(r->sampling.temperature == 1 && r->sampling.top_p == 1 && r->sampling.top_k == 0);
    ck_assert(r->sampling.min_p == 0 && r->sampling.repetition_penalty == 1);
    ck_assert(r->sampling.presence_penalty == 0 && r->sampling.frequency_penalty == 0);
    ck_assert(!sampling_has_cuts(&r->sampling) && r->sampling.xtc_threshold == 0.1f);
    ck_assert_int_eq(r->sampling.n_logprobs, -1);
    ck_assert_int_eq(r->sampling.n_bias, 0);
    ck_assert(!r->sampling.allowed && r->sampling.n_bad_words == 0 && r->n_bad_words == 0);
    ck_assert(r->truncate_prompt_tokens == 0 && r->prompt_logprobs == -1);
    ck_assert(r->n_stops == 0 && r->n_stop_ids == 0 && r->priority == 0);
    ck_assert(r->cache_salt[0] == 0 && r->cache_salt[1] == 0);
    ck_assert(strncmp(r->id, "cmpl-", 5) == 0 && strlen(r->id) == 37);
    ck_assert_int_gt(r->created, 1700000000);
    api_request_free(r);
}
END_TEST

START_TEST(chat_defaults) {
    struct api_request *r = parsed(
        &api_chat, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
                   "\"tools\":[],\"tool_choice\":\"none\",\"response_format\":{\"type\":\"text\"},"
                   "\"unheard_of\":\"not a field of chats\"}");
    ck_assert_int_eq(r->max_tokens, -1);
    ck_assert(r->prompts[0].add_generation_prompt && !r->prompts[0].continue_final_message);
    ck_assert_int_eq(r->prompts[0].messages->n_children, 1);
    ck_assert_ptr_null(r->prompts[0].tools);
    ck_assert_ptr_null(r->prompts[0].template_kwargs);
    ck_assert_int_eq(r->sampling.n_logprobs, -1);
    ck_assert(strncmp(r->id, "chatcmpl-", 9) == 0);
    api_request_free(r);
}
END_TEST

/* What the model's files say counts for the fields that a body leaves out, and no other. */
START_TEST(defaults_of_the_model) {
    static const struct {
        const struct api *api;
        const char *body;
        float temperature, top_p, min_p, repetition_penalty;
        int top_k;
    } cases[] = {
        {&api_completions, "{\"prompt\":\"x\",\"n\":1}", 0.6f, 0.9f, 0.05f, 1.1f, 50},
        {&api_chat, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"n\":1}", 0.6f, 0.9f,
         0.05f, 1.1f, 50},
        {&api_completions, "{\"prompt\":\"x\",\"temperature\":null,\"top_p\":null}", 0.6f, 0.9f,
         0.05f, 1.1f, 50},
        {&api_completions,
         "{\"prompt\":\"x\",\"temperature\":1,\"top_p\":1,\"min_p\":0,\"repetition_penalty\":1,"
         "\"top_k\":0}",
         1, 1, 0, 1, 0},
        {&api_chat,
         "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"temperature\":0,\"top_k\":-1}", 0,
         0.9f, 0.05f, 1.1f, 0},
    };
    static const struct sampling_defaults model = {0.6, 0.9, 0.05, 1.1, 50};
    static const struct sampling_defaults none = NO_SAMPLING_DEFAULTS;
    struct api_limits with = limits;
    struct api_request *request;
    struct err err = {0};
    with.sampling = &model;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *body = cases[i].body;
        ck_assert_msg(!request_read(&request, cases[i].api, body, strlen(body), &with, &err), "%s",
                      err.message);
        const struct sampling *sampling = &request->sampling;
        ck_assert(sampling->temperature == cases[i].temperature);
        ck_assert(sampling->top_p == cases[i].top_p && sampling->min_p == cases[i].min_p);
        ck_assert(sampling->repetition_penalty == cases[i].repetition_penalty);
        ck_assert_int_eq(sampling->top_k, cases[i].top_k);
        api_request_free(request);
    }
    with.sampling = &none; /* a model that says nothing */
    ck_assert(!request_read(&request, &api_completions, "{\"prompt\":\"x\"}", 14, &with, &err));
    ck_assert(request->sampling.temperature == 1 && request->sampling.top_p == 1);
    ck_assert(request->sampling.repetition_penalty == 1 && request->sampling.top_k == 0);
    api_request_free(request);
}
END_TEST

START_TEST(all_completion_fields) {
    struct api_request *r = parsed(
        &api_completions,
        "{\"model\":\"m\",\"prompt\":[[1,2,999],[4]],\"n\":2,\"best_of\":2,\"max_tokens\":0,"
        "\"echo\":true,"
        "\"temperature\":0.5,\"top_p\":0.25,\"top_k\":-1,\"min_p\":0.125,\"presence_penalty\":-2,"
        "\"frequency_penalty\":2,\"repetition_penalty\":1.5,\"logit_bias\":{\"5\":-100,\"7\":1.5,"
        "\"5\":3},"
        "\"logprobs\":20,\"seed\":-9223372036854775808,\"stop\":[\"a\",\"b\\u0000c\"],"
        "\"stop_token_ids\":[3,4],\"ignore_eos\":true,\"include_stop_str_in_output\":true,"
        "\"skip_special_tokens\":false,\"stream\":true,"
        "\"stream_options\":{\"include_usage\":true,\"continuous_usage_stats\":true},"
        "\"return_token_ids\":true,\"user\":\"u\",\"priority\":-3,\"request_id\":\"A-z_0.:\","
        "\"cache_salt\":\"s\",\"suffix\":\"\"}");
    ck_assert_int_eq(r->n_prompts, 2);
    ck_assert_int_eq(r->prompts[0].n_ids, 3);
    ck_assert_int_eq(r->prompts[0].ids[2], 999);
    ck_assert_int_eq(r->prompts[1].ids[0], 4);
    ck_assert(r->n == 2 && r->max_tokens == 0 && r->echo);
    ck_assert(r->sampling.temperature == 0.5f && r->sampling.top_p == 0.25f);
    ck_assert(r->sampling.top_k == 0 && r->sampling.min_p == 0.125f);
    ck_assert(r->sampling.presence_penalty == -2 && r->sampling.frequency_penalty == 2);
    ck_assert(r->sampling.repetition_penalty == 1.5f && r->sampling.n_logprobs == 20);
    ck_assert_int_eq(r->sampling.n_bias, 2);
    ck_assert(r->sampling.bias[0].id == 5 && r->sampling.bias[0].bias == 3);
    ck_assert(r->sampling.bias[1].id == 7 && r->sampling.bias[1].bias == 1.5f);
    ck_assert(r->has_seed && (int64_t)r->sampling.seed == INT64_MIN);
    ck_assert(r->n_stops == 2 && r->stops[1].length == 3);
    ck_assert_mem_eq(r->stops[1].text, "b\0c", 3);
    ck_assert(r->n_stop_ids == 2 && r->stop_ids[1] == 4);
    ck_assert(r->ignore_eos && r->include_stop_str_in_output && !r->skip_special_tokens);
    ck_assert(r->stream && r->include_usage && r->continuous_usage_stats && r->return_token_ids);
    ck_assert_int_eq(r->priority, -3);
    ck_assert_str_eq(r->id, "cmpl-A-z_0.:");
    ck_assert(r->cache_salt[0] != 0 && r->cache_salt[1] != 0);
    api_request_free(r);
}
END_TEST

START_TEST(all_chat_fields) {
    struct api_request *r = parsed(
        &api_chat,
        "{\"messages\":[{\"role\":\"system\",\"content\":null},{\"role\":\"user\",\"content\":"
        "[{\"type\":\"text\",\"text\":\"one\"},{\"type\":\"text\",\"text\":\"tw\xC3\xB6\"}]},"
        "{\"role\":\"user\",\"content\":[]}],"
        "\"max_tokens\":3,\"max_completion_tokens\":9,\"min_tokens\":9,\"logprobs\":true,"
        "\"top_logprobs\":4,\"continue_final_message\":true,\"chat_template_kwargs\":{\"a\":1},"
        "\"parallel_tool_calls\":true,\"temperature\":0.000001,\"stop\":\"end\"}");
    const struct json *second = r->prompts[0].messages->child->next;
    ck_assert_str_eq(json_member(second, "content")->string, "one\ntw\xC3\xB6");
    ck_assert_str_eq(json_member(second->next, "content")->string, "");
    ck_assert_int_eq(r->max_tokens, 9);
    ck_assert_int_eq(r->sampling.n_logprobs, 4);
    ck_assert(r->prompts[0].continue_final_message && !r->prompts[0].add_generation_prompt);
    ck_assert_int_eq(json_member(r->prompts[0].template_kwargs, "a")->integer, 1);
    ck_assert(r->sampling.temperature == 0);
    ck_assert(r->n_stops == 1 && strcmp(r->stops[0].text, "end") == 0);
    api_request_free(r);
}
END_TEST

/* The arguments of all calls together, of which each becomes a tree. */
START_TEST(arguments_are_bounded) {
    for (int more = 0; more < 2; more++) {
        struct api_request *request;
        struct err err = {0};
        struct buf body = {0};
        buf_puts(&body, "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[");
        for (int i = 0; i < 2; i++) {
            buf_printf(&body, "%s{\"function\":{\"name\":\"f\",\"arguments\":\"{}", i ? "," : "");
            for (int j = 0; j < (1 << 19) - 2 + (i && more); j++) buf_puts(&body, " ");
            buf_puts(&body, "\"}}");
        }
        buf_puts(&body, "]}]}");
        enum status status =
            request_read(&request, &api_chat, body.data, body.length, &limits, &err);
        ck_assert_int_eq(status, more ? STATUS_INVALID_REQUEST : STATUS_OK);
        if (more) ck_assert_ptr_nonnull(strstr(err.message, "at most 1048576 bytes long"));
        if (request) api_request_free(request);
        buf_free(&body);
    }
}
END_TEST

/* `part` n times, separated by commas, between two texts; free with free. */
static char *body_of(const char *head, const char *part, int n, const char *tail) {
    struct buf body = {0};
    buf_puts(&body, head);
    for (int i = 0; i < n; i++) {
        if (i > 0) buf_puts(&body, ",");
        buf_puts(&body, part);
    }
    buf_puts(&body, tail);
    return body.data;
}

/* What each limit just allows; one more is refused above. */
START_TEST(limits_are_allowed) {
    char *body = body_of("{\"n\":16,\"prompt\":[", "[1]", 8, "]}");
    struct api_request *r = parsed(&api_completions, body);
    ck_assert(r->n == 16 && r->n_prompts == 8);
    api_request_free(r);
    free(body);
    body = body_of("{\"prompt\":[", "1", 64, "]}");
    r = parsed(&api_completions, body);
    ck_assert_int_eq(r->prompts[0].n_ids, 64);
    api_request_free(r);
    free(body);
    body = body_of("{\"prompt\":\"x\",\"top_k\":999,\"logit_bias\":{\"1\":100},\"stop\":[", "\"s\"",
                   16, "]}");
    r = parsed(&api_completions, body);
    ck_assert(r->n_stops == 16 && r->sampling.top_k == 999 && r->sampling.bias[0].bias == 100);
    api_request_free(r);
    free(body);
    r = parsed(&api_completions, "{\"prompt\":\"x\",\"top_k\":1000}"); /* all: off */
    ck_assert_int_eq(r->sampling.top_k, 0);
    api_request_free(r);
}
END_TEST

START_TEST(stops_have_a_longest_length) {
    for (int length = 1024; length <= 1025; length++) {
        struct api_request *request;
        struct err err = {0};
        struct buf body = {0};
        buf_puts(&body, "{\"prompt\":\"x\",\"stop\":\"");
        for (int i = 0; i < length; i++) buf_puts(&body, "s");
        buf_puts(&body, "\"}");
        enum status status =
            request_read(&request, &api_completions, body.data, body.length, &limits, &err);
        ck_assert_int_eq(status, length > 1024 ? STATUS_INVALID_REQUEST : STATUS_OK);
        if (request) api_request_free(request);
        buf_free(&body);
    }
}
END_TEST

/* n times the number of prompts, where both alone are within their limits. */
START_TEST(sequences_are_limited) {
    struct api_limits wide = limits;
    wide.max_choices = 128;
    wide.max_prompts = 9;
    for (int n = 8; n <= 9; n++) {
        struct api_request *request;
        struct err err = {0};
        char *body = body_of("{\"n\":128,\"prompt\":[", "\"x\"", n, "]}");
        enum status status =
            request_read(&request, &api_completions, body, strlen(body), &wide, &err);
        ck_assert_int_eq(status, n > 8 ? STATUS_INVALID_REQUEST : STATUS_OK);
        if (request) api_request_free(request);
        free(body);
    }
}
END_TEST

/* As many empty lists of calls as a body has room for take neither stack nor minutes. */
START_TEST(empty_calls_are_many) {
    char *body = body_of("{\"messages\":[{\"role\":\"user\",\"content\":\"x\",",
                         "\"a\":0,\"tool_calls\":[]", 500000, "}]}");
    struct api_request *r = parsed(&api_chat, body);
    ck_assert_ptr_null(json_member(json_first(r->prompts[0].messages), "tool_calls"));
    api_request_free(r);
    free(body);
}
END_TEST

/* A positive number must not become a float of zero, and usage in each chunk needs usage at all. */
START_TEST(fields_depend_on_others) {
    struct api_request *r =
        parsed(&api_completions, "{\"prompt\":\"x\",\"repetition_penalty\":1e-60,\"stream\":true,"
                                 "\"stream_options\":{\"continuous_usage_stats\":true}}");
    ck_assert(r->sampling.repetition_penalty == 1e-6f);
    ck_assert(!r->include_usage && !r->continuous_usage_stats);
    api_request_free(r);
}
END_TEST

START_TEST(seeds_are_exact) {
    static const struct {
        const char *text;
        int64_t seed;
    } seeds[] = {{"9007199254740993", 9007199254740993},
                 {"9223372036854775807", INT64_MAX},
                 {"-9007199254740993", -9007199254740993},
                 {"-1", -1},
                 {"0", 0},
                 {"1e3", 1000},
                 {"5.0", 5},
                 {"-0", 0}};
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
        char body[128];
        snprintf(body, sizeof body, "{\"prompt\":\"x\",\"seed\":%s}", seeds[i].text);
        struct api_request *r = parsed(&api_completions, body);
        ck_assert(r->has_seed && (int64_t)r->sampling.seed == seeds[i].seed);
        api_request_free(r);
    }
}
END_TEST

START_TEST(texts_keep_every_character) {
    struct api_request *r = parsed(
        &api_completions, "{\"prompt\":\"a\\u0000b\\u00e9\\ud83d\\ude00\\ud83dx\\ude00\\/\\n\"}");
    const char expected[] = "a\0b\xC3\xA9\xF0\x9F\x98\x80\xEF\xBF\xBDx\xEF\xBF\xBD/\n";
    ck_assert_uint_eq(r->prompts[0].length, sizeof expected - 1);
    ck_assert_mem_eq(r->prompts[0].text, expected, sizeof expected);
    api_request_free(r);
    r = parsed(&api_completions, " {\"prompt\" : [ \"a\" , \"b\" ] , \"prompt\":[7]} \r\n");
    ck_assert(r->n_prompts == 1 && r->prompts[0].ids[0] == 7); /* the last of two counts */
    api_request_free(r);
}
END_TEST

START_TEST(salts_differ) {
    struct api_request *a = parsed(&api_completions, "{\"prompt\":\"x\",\"cache_salt\":\"a\"}");
    struct api_request *b = parsed(&api_completions, "{\"prompt\":\"x\",\"cache_salt\":\"b\"}");
    struct api_request *c = parsed(&api_completions, "{\"prompt\":\"x\",\"cache_salt\":\"a\"}");
    ck_assert_mem_ne(a->cache_salt, b->cache_salt, sizeof a->cache_salt);
    ck_assert_mem_eq(a->cache_salt, c->cache_salt, sizeof a->cache_salt);
    ck_assert_str_ne(a->id, c->id);
    api_request_free(a);
    api_request_free(b);
    api_request_free(c);
}
END_TEST

/* ---- /tokenize and /detokenize -------------------------------------------------------------- */

static enum status tokenize_parse(struct api_tokenize **out, const char *body, struct err *err) {
    return api_tokenize_parse(out, body, strlen(body), &limits, err);
}

START_TEST(tokenize_bodies) {
    struct api_tokenize *t;
    struct err err = {0};
    ck_assert_int_eq(
        tokenize_parse(&t, "{\"prompt\":\"a\\u0000\",\"return_token_strs\":true}", &err), 0);
    ck_assert(t->prompt.length == 2 && t->add_special_tokens && t->return_token_strs &&
              !t->prompt.messages);
    api_tokenize_free(t);
    ck_assert_int_eq(
        tokenize_parse(&t, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", &err), 0);
    ck_assert(t->prompt.messages && !t->add_special_tokens && t->prompt.add_generation_prompt);
    api_tokenize_free(t);
    ck_assert_int_eq(tokenize_parse(&t, "{\"prompt\":\"\",\"add_special_tokens\":false}", &err), 0);
    ck_assert(t->prompt.length == 0 && !t->add_special_tokens);
    api_tokenize_free(t);
    ck_assert_int_eq(tokenize_parse(&t, "{}", &err), STATUS_INVALID_REQUEST);
    ck_assert_ptr_null(t);
    ck_assert_int_eq(tokenize_parse(&t, "{\"prompt\":1}", &err), STATUS_INVALID_REQUEST);
    ck_assert_str_eq(err.param, "prompt");
    ck_assert_int_eq(tokenize_parse(&t, "{\"prompt\":\"a\",\"model\":\"z\"}", &err),
                     STATUS_NOT_FOUND);
    const char *both = "{\"prompt\":\"a\",\"messages\":[{\"role\":\"u\"}]}";
    ck_assert_int_eq(tokenize_parse(&t, both, &err), STATUS_INVALID_REQUEST);
}
END_TEST

static enum status detokenize_parse(int32_t **ids, int *n, const char *body, struct err *err) {
    return api_detokenize_parse(ids, n, body, strlen(body), &limits, err);
}

START_TEST(detokenize_bodies) {
    struct err err = {0};
    int32_t *ids;
    int n;
    ck_assert_int_eq(detokenize_parse(&ids, &n, "{\"tokens\":[1,2,999]}", &err), STATUS_OK);
    ck_assert(n == 3 && ids[0] == 1 && ids[2] == 999);
    free(ids);
    ck_assert_int_eq(detokenize_parse(&ids, &n, "{\"tokens\":[]}", &err), STATUS_OK);
    ck_assert_int_eq(n, 0);
    free(ids);
    ck_assert_int_eq(detokenize_parse(&ids, &n, "{\"tokens\":[1000]}", &err),
                     STATUS_INVALID_REQUEST);
    ck_assert_str_eq(err.param, "tokens");
    ck_assert_ptr_null(ids);
    ck_assert_int_eq(detokenize_parse(&ids, &n, "{}", &err), STATUS_INVALID_REQUEST);
    ck_assert_int_eq(detokenize_parse(&ids, &n, "{\"tokens\":\"a\"}", &err),
                     STATUS_INVALID_REQUEST);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_api_request");
    TCase *bad = tcase_create("refused"), *good = tcase_create("taken");
    tcase_add_loop_test(bad, each_refusal_names_the_field, 0, sizeof refused / sizeof *refused);
    tcase_add_test(bad, unknown_models_are_not_found);
    tcase_add_test(bad, long_prompts_of_ids_exceed_the_context);
    tcase_add_test(bad, chat_needs_a_template);
    tcase_add_test(bad, what_is_too_much_is_refused);
    tcase_add_test(good, completion_defaults);
    tcase_add_test(good, chat_defaults);
    tcase_add_test(good, defaults_of_the_model);
    tcase_add_test(good, all_completion_fields);
    tcase_add_test(good, all_chat_fields);
    tcase_add_test(good, arguments_are_bounded);
    tcase_add_test(good, limits_are_allowed);
    tcase_add_test(good, stops_have_a_longest_length);
    tcase_add_test(good, sequences_are_limited);
    tcase_add_test(good, empty_calls_are_many);
    tcase_add_test(good, fields_depend_on_others);
    tcase_add_test(good, seeds_are_exact);
    tcase_add_test(good, texts_keep_every_character);
    tcase_add_test(good, salts_differ);
    tcase_add_test(good, tokenize_bodies);
    tcase_add_test(good, detokenize_bodies);
    suite_add_tcase(suite, bad);
    suite_add_tcase(suite, good);
    return suite_main(suite);
}
