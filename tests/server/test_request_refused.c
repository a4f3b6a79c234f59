/* The bodies that are refused. Each message names the field and the right values. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "support/request_reader.h"
#include "support/suite_main.h"

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
    {C "\"max_tokens\":-2}", "max_tokens", "at least -1, but it is -2"},
    {C "\"logprobs\":true}", "logprobs", "must be an integer"},
    {C "\"max_completion_tokens\":0}", "max_completion_tokens", "at least 1, or 0 together"},
    {C "\"max_tokens\":3000000000}", "max_tokens", "at most 2147483647, but it is 3000000000"},
    {C "\"min_tokens\":17}", "min_tokens", "at most 'max_tokens', which is 16, but it is 17"},
    {C "\"temperature\":2.1}", "temperature", "at least 0 and at most 2, but it is 2.1"},
    {C "\"temperature\":-0.1}", "temperature", "but it is -0.1"},
    {C "\"temperature\":\"hot\"}", "temperature", "must be a number, but it is a string"},
    {C "\"top_p\":-0.1}", "top_p", "at least 0 and at most 1, but it is -0.1"},
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
    {C "\"suffix\":\"x\"}", "suffix", "needs a model with tokens for filling in"},
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
    {H "\"max_tokens\":0}", "max_tokens", "at least 1, or -1 for no limit"},
    {H "\"max_completion_tokens\":0}", "max_completion_tokens", "at least 1, or -1 for"},
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
     "tools", "does not show a known form of tool calls"},
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
    {CALL "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":\\\"\\\\u0000\\\"}\"}}]}]}",
     "messages[0]", "must not hold the character \\u0000"},
    {&api_chat,
     "{\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"tool_calls\":[{\"function\":{\"name\":"
     "\"f\","
     "\"arguments\":\"{}\"}}]}]}",
     "messages[0].tool_calls", "is only for messages of the role \"assistant\""},
    {ASSISTANT "\"content\":\"x\",\"function_call\":{\"name\":\"f\"}}]}",
     "messages[0].function_call", "not served"},
    {ASSISTANT "\"content\":null,\"refusal\":1}]}", "messages[0].refusal", "a string or null"},
    {ASSISTANT "\"content\":\"x\",\"audio\":{\"id\":\"a\"}}]}", "messages[0].audio", "not served"},
    {H "\"reasoning_format\":\"deepseek-legacy\"}", "reasoning_format", "must be \"auto\""},
    {H "\"tool_choice\":\"required\"}", "tool_choice", "but there are no 'tools'"},
    {H "\"tool_choice\":{}}", "tool_choice", "must be \"none\", \"auto\", \"required\", {\"type\""},
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
        request_read(&request, one->api, one->body, strlen(one->body), &request_limits, &err);
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
        request_read(&request, &api_completions, body, strlen(body), &request_limits, &err);
    ck_assert_int_eq(status, STATUS_NOT_FOUND);
    ck_assert_int_eq(err.status, STATUS_NOT_FOUND);
    ck_assert_str_eq(err.code, "model_not_found");
    ck_assert_str_eq(err.param, "model");
    ck_assert_str_eq(err.message, "The model 'other' does not exist: this server serves 'm'.");
    body = "{\"model\":\"m\\u0000\",\"prompt\":\"x\"}";
    status = request_read(&request, &api_completions, body, strlen(body), &request_limits, &err);
    ck_assert_int_eq(status, STATUS_NOT_FOUND);
}
END_TEST

/* Adapters "a0", "a1" and so on, as many as `arg` points to. */
static bool adapter_at(void *arg, int i, struct api_adapter *out) {
    if (i >= *(const int *)arg) return false;
    *out = (struct api_adapter){0};
    snprintf(out->name, sizeof out->name, "a%d", i);
    return true;
}

static bool adapter_find(void *arg, const char *name, struct api_adapter *out) {
    struct api_adapter adapter;
    for (int i = 0; adapter_at(arg, i, &adapter); i++) {
        if (strcmp(adapter.name, name) != 0) continue;
        if (out) *out = adapter;
        return true;
    }
    return false;
}

/* At most five adapters are listed. The eighth exists. */
START_TEST(refusals_of_models_list_adapters) {
    static const char *const served[] = {"'m'.",
                                         "'m', 'a0'.",
                                         "'m', 'a0', 'a1'.",
                                         "'m', 'a0', 'a1', 'a2'.",
                                         "'m', 'a0', 'a1', 'a2', 'a3'.",
                                         "'m', 'a0', 'a1', 'a2', 'a3', 'a4'.",
                                         "'m', 'a0', 'a1', 'a2', 'a3', 'a4', ... (GET /v1/models "
                                         "lists all)."};
    const char *body = "{\"model\":\"a7\",\"prompt\":\"x\"}";
    int n = 0;
    const struct api_adapters adapters = {adapter_find, adapter_at, &n};
    struct api_limits limits = request_limits;
    struct api_request *request;
    struct err err;
    limits.adapters = &adapters;
    for (n = 0; n < 8; n++) {
        enum status status =
            request_read(&request, &api_completions, body, strlen(body), &limits, &err);
        ck_assert_int_eq(status, STATUS_NOT_FOUND);
        ck_assert_str_eq(strstr(err.message, "serves ") + 7, served[n < 6 ? n : 6]);
    }
    ck_assert(!request_read(&request, &api_completions, body, strlen(body), &limits, &err));
    api_request_free(request);
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
        request_read(&request, &api_completions, body.data, body.length, &request_limits, &err);
    ck_assert_int_eq(status, STATUS_INVALID_REQUEST);
    ck_assert_str_eq(err.code, "context_length_exceeded");
    ck_assert_ptr_nonnull(strstr(err.message, "65"));
    ck_assert_ptr_nonnull(strstr(err.message, "64"));
    buf_free(&body);
}
END_TEST

START_TEST(chat_needs_a_template) {
    struct api_limits plain = request_limits;
    const char *body = "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}";
    struct api_request *request;
    struct err err = {0};
    plain.has_chat_template = false;
    enum status status = request_read(&request, &api_chat, body, strlen(body), &plain, &err);
    ck_assert_int_eq(status, STATUS_INVALID_REQUEST);
    ck_assert_ptr_nonnull(strstr(err.message, "/v1/completions"));
}
END_TEST

START_TEST(values_above_the_limits_are_refused) {
    struct buf body = {0};
    struct api_request *request;
    struct err err = {0};
    for (int i = 0; i < 100000; i++) buf_puts(&body, "[");
    ck_assert_int_eq(
        request_read(&request, &api_chat, body.data, body.length, &request_limits, &err),
        STATUS_INVALID_REQUEST);
    ck_assert_ptr_nonnull(strstr(err.message, "too deep"));
    buf_clear(&body);
    buf_puts(&body, "{\"x\":[0");
    for (int i = 0; i < JSON_MAX_VALUES; i++) buf_puts(&body, ",0");
    buf_puts(&body, "]}");
    ck_assert_int_eq(
        request_read(&request, &api_chat, body.data, body.length, &request_limits, &err),
        STATUS_INVALID_REQUEST);
    ck_assert_ptr_nonnull(strstr(err.message, "too many values"));
    buf_free(&body);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_api_request_refused");
    TCase *bad = tcase_create("refused");
    tcase_add_loop_test(bad, each_refusal_names_the_field, 0, sizeof refused / sizeof *refused);
    tcase_add_test(bad, unknown_models_are_not_found);
    tcase_add_test(bad, refusals_of_models_list_adapters);
    tcase_add_test(bad, long_prompts_of_ids_exceed_the_context);
    tcase_add_test(bad, chat_needs_a_template);
    tcase_add_test(bad, values_above_the_limits_are_refused);
    suite_add_tcase(suite, bad);
    return suite_main(suite);
}
