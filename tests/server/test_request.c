/* The bodies that are accepted, and their defaults. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "support/request_reader.h"
#include "support/suite_main.h"

START_TEST(completion_defaults) {
    struct api_request *r =
        request_expect(&api_completions, "{\"prompt\":\"x\",\"n\":null,\"stop\":null,"
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
    struct api_request *r = request_expect(
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

/* The defaults of the model's files apply only to fields that a body leaves out. */
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
    struct api_limits with = request_limits;
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
    with.sampling = &none; /* a model without defaults */
    ck_assert(!request_read(&request, &api_completions, "{\"prompt\":\"x\"}", 14, &with, &err));
    ck_assert(request->sampling.temperature == 1 && request->sampling.top_p == 1);
    ck_assert(request->sampling.repetition_penalty == 1 && request->sampling.top_k == 0);
    api_request_free(request);
}
END_TEST

START_TEST(all_completion_fields) {
    struct api_request *r = request_expect(
        &api_completions,
        "{\"model\":\"m\",\"prompt\":[[1,2,999],[4]],\"n\":2,\"best_of\":2,\"max_tokens\":0,"
        "\"echo\":true,"
        "\"temperature\":0.5,\"top_p\":0.25,\"top_k\":-1,\"min_p\":0.125,\"presence_penalty\":-2,"
        "\"frequency_penalty\":2,\"repetition_penalty\":1.5,\"logit_bias\":{\"5\":-100,\"7\":1.5,"
        "\"05\":3},"
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

/* Values that clients send for "as usual". */
START_TEST(neutral_values_are_taken) {
    struct api_request *r = request_expect(
        &api_completions, "{\"prompt\":\"x\",\"top_p\":0,\"max_tokens\":-1,\"logprobs\":false}");
    ck_assert(r->sampling.top_p == 0);
    ck_assert_int_eq(r->sampling.n_logprobs, -1);
    ck_assert_int_eq(r->max_tokens, -1);
    api_request_free(r);
    r = request_expect(&api_chat, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
                                  "\"logprobs\":false,\"top_logprobs\":0,\"max_tokens\":-1}");
    ck_assert_int_eq(r->sampling.n_logprobs, -1);
    ck_assert_int_eq(r->max_tokens, -1);
    api_request_free(r);
}
END_TEST

START_TEST(all_chat_fields) {
    struct api_request *r = request_expect(
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

/* The arguments of all calls together are bounded, because each becomes a tree. */
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
            request_read(&request, &api_chat, body.data, body.length, &request_limits, &err);
        ck_assert_int_eq(status, more ? STATUS_INVALID_REQUEST : STATUS_OK);
        if (more) ck_assert_ptr_nonnull(strstr(err.message, "at most 1048576 bytes long"));
        if (request) api_request_free(request);
        buf_free(&body);
    }
}
END_TEST

/* Returns `part` n times, separated by commas, between two texts. Free it with free. */
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

/* Values at each limit; test_request_refused.c tests one more. */
START_TEST(limits_are_allowed) {
    char *body = body_of("{\"n\":16,\"prompt\":[", "[1]", 8, "]}");
    struct api_request *r = request_expect(&api_completions, body);
    ck_assert(r->n == 16 && r->n_prompts == 8);
    api_request_free(r);
    free(body);
    body = body_of("{\"prompt\":[", "1", 64, "]}");
    r = request_expect(&api_completions, body);
    ck_assert_int_eq(r->prompts[0].n_ids, 64);
    api_request_free(r);
    free(body);
    body = body_of("{\"prompt\":\"x\",\"top_k\":999,\"logit_bias\":{\"1\":100},\"stop\":[", "\"s\"",
                   16, "]}");
    r = request_expect(&api_completions, body);
    ck_assert(r->n_stops == 16 && r->sampling.top_k == 999 && r->sampling.bias[0].bias == 100);
    api_request_free(r);
    free(body);
    r = request_expect(&api_completions, "{\"prompt\":\"x\",\"top_k\":1000}"); /* all: off */
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
            request_read(&request, &api_completions, body.data, body.length, &request_limits, &err);
        ck_assert_int_eq(status, length > 1024 ? STATUS_INVALID_REQUEST : STATUS_OK);
        if (request) api_request_free(request);
        buf_free(&body);
    }
}
END_TEST

/* n times the number of prompts. Each is within its own limit. */
START_TEST(sequences_are_limited) {
    struct api_limits wide = request_limits;
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

/* Templates ask whether a message has calls. */
START_TEST(an_empty_list_of_calls_is_none) {
    struct api_request *r = request_expect(
        &api_chat, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"tool_calls\":[]}]}");
    ck_assert_ptr_null(json_member(json_first(r->prompts[0].messages), "tool_calls"));
    api_request_free(r);
}
END_TEST

/* A positive number must not become a float of zero, and usage in each chunk needs usage. */
START_TEST(fields_depend_on_others) {
    struct api_request *r = request_expect(
        &api_completions, "{\"prompt\":\"x\",\"repetition_penalty\":1e-60,\"stream\":true,"
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
        struct api_request *r = request_expect(&api_completions, body);
        ck_assert(r->has_seed && (int64_t)r->sampling.seed == seeds[i].seed);
        api_request_free(r);
    }
}
END_TEST

START_TEST(texts_keep_every_character) {
    struct api_request *r = request_expect(
        &api_completions, "{\"prompt\":\"a\\u0000b\\u00e9\\ud83d\\ude00\\ud83dx\\ude00\\/\\n\"}");
    const char expected[] = "a\0b\xC3\xA9\xF0\x9F\x98\x80\xEF\xBF\xBDx\xEF\xBF\xBD/\n";
    ck_assert_uint_eq(r->prompts[0].length, sizeof expected - 1);
    ck_assert_mem_eq(r->prompts[0].text, expected, sizeof expected);
    api_request_free(r);
    r = request_expect(&api_completions, " {\"prompt\" : [ \"a\" , \"b\" ] , \"n\":1} \r\n");
    ck_assert_int_eq(r->n_prompts, 2);
    api_request_free(r);
}
END_TEST

START_TEST(salts_differ) {
    struct api_request *a =
        request_expect(&api_completions, "{\"prompt\":\"x\",\"cache_salt\":\"a\"}");
    struct api_request *b =
        request_expect(&api_completions, "{\"prompt\":\"x\",\"cache_salt\":\"b\"}");
    struct api_request *c =
        request_expect(&api_completions, "{\"prompt\":\"x\",\"cache_salt\":\"a\"}");
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
    return api_tokenize_parse(out, body, strlen(body), &request_limits, err);
}

START_TEST(ids_of_logprobs_are_kept) {
    struct api_request *request =
        request_expect(&api_completions, "{\"prompt\":\"x\",\"logprob_token_ids\":[3,7]}");
    ck_assert_int_eq(request->n_logprob_ids, 2);
    ck_assert(request->logprob_ids[0] == 3 && request->logprob_ids[1] == 7);
    api_request_free(request);
}
END_TEST

/* A model without a reasoning format has no markers that the text could hold. */
START_TEST(a_last_thought_is_kept_without_a_format) {
    struct api_request *request =
        request_expect(&api_chat, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
                                  "\"reasoning_budget_message\":\"Enough.\"}");
    ck_assert_uint_eq(request->last_thought.length, 7);
    ck_assert_str_eq(request->last_thought.text, "Enough.");
    api_request_free(request);
}
END_TEST

START_TEST(a_template_s_body_has_messages) {
    static const char *const refused[][2] = {
        {"{}", "messages"},
        {"{\"messages\":3}", "messages"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"chat_template\":\"y\"}",
         "chat_template"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"model\":\"other\"}", "model"}};
    const char *body = "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
                       "\"add_generation_prompt\":false}";
    struct api_tokenize *asked;
    struct err err = {0};
    ck_assert_int_eq(api_template_parse(&asked, body, strlen(body), &request_limits, &err), 0);
    ck_assert(asked->prompt.messages && !asked->prompt.add_generation_prompt);
    api_tokenize_free(asked);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        body = refused[i][0];
        ck_assert(api_template_parse(&asked, body, strlen(body), &request_limits, &err));
        ck_assert_str_eq(err.param, refused[i][1]);
    }
}
END_TEST

START_TEST(tokenize_bodies) {
    struct api_tokenize *t;
    struct err err = {0};
    ck_assert_int_eq(
        tokenize_parse(&t, "{\"prompt\":\"a\\u0000\",\"return_token_strs\":true}", &err), 0);
    ck_assert_mem_eq(t->prompt.text, "a", 2);
    ck_assert(t->prompt.length == 2 && t->add_special_tokens && t->return_token_strs &&
              !t->prompt.messages);
    api_tokenize_free(t);
    ck_assert_int_eq(
        tokenize_parse(&t, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", &err), 0);
    ck_assert(t->prompt.messages && !t->add_special_tokens && t->prompt.add_generation_prompt);
    ck_assert_ptr_null(t->prompt.tools);
    api_tokenize_free(t);
    ck_assert_int_eq(tokenize_parse(&t, "{\"prompt\":\"\",\"add_special_tokens\":false}", &err), 0);
    ck_assert(t->prompt.length == 0 && !t->add_special_tokens);
    api_tokenize_free(t);
    ck_assert_int_eq(tokenize_parse(&t, "{\"content\":\"ab\",\"with_pieces\":true}", &err), 0);
    ck_assert(t->prompt.length == 2 && !t->add_special_tokens && t->with_pieces);
    ck_assert_str_eq(t->prompt.text, "ab");
    api_tokenize_free(t);
    ck_assert_int_eq(tokenize_parse(&t, "{\"content\":\"ab\",\"add_special\":true}", &err), 0);
    ck_assert(t->add_special_tokens && !t->with_pieces);
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

/* A template is shown the tools of a body, but no empty list of them. */
START_TEST(tokenize_bodies_with_tools) {
#define WITH_TOOLS(tools)                                                                          \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":" tools "}"
    struct api_tokenize *t;
    struct err err = {0};
    const char *body = WITH_TOOLS("[{\"type\":\"function\",\"function\":{\"name\":\"ask\"}}]");
    ck_assert_int_eq(tokenize_parse(&t, body, &err), STATUS_OK);
    ck_assert(t->prompt.tools && t->prompt.tools->n_children == 1);
    api_tokenize_free(t);
    ck_assert_int_eq(tokenize_parse(&t, WITH_TOOLS("[]"), &err), STATUS_OK);
    ck_assert_ptr_null(t->prompt.tools);
    api_tokenize_free(t);
    ck_assert_int_eq(tokenize_parse(&t, WITH_TOOLS("[3]"), &err), STATUS_INVALID_REQUEST);
    ck_assert_str_eq(err.param, "tools[0]");
}
END_TEST

static enum status detokenize_parse(int32_t **ids, int *n, const char *body, struct err *err) {
    return api_detokenize_parse(ids, n, body, strlen(body), &request_limits, err);
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
    TCase *good = tcase_create("taken");
    tcase_add_test(good, completion_defaults);
    tcase_add_test(good, chat_defaults);
    tcase_add_test(good, defaults_of_the_model);
    tcase_add_test(good, all_completion_fields);
    tcase_add_test(good, all_chat_fields);
    tcase_add_test(good, neutral_values_are_taken);
    tcase_add_test(good, arguments_are_bounded);
    tcase_add_test(good, limits_are_allowed);
    tcase_add_test(good, stops_have_a_longest_length);
    tcase_add_test(good, sequences_are_limited);
    tcase_add_test(good, an_empty_list_of_calls_is_none);
    tcase_add_test(good, fields_depend_on_others);
    tcase_add_test(good, seeds_are_exact);
    tcase_add_test(good, texts_keep_every_character);
    tcase_add_test(good, salts_differ);
    tcase_add_test(good, a_last_thought_is_kept_without_a_format);
    tcase_add_test(good, ids_of_logprobs_are_kept);
    tcase_add_test(good, a_template_s_body_has_messages);
    tcase_add_test(good, tokenize_bodies);
    tcase_add_test(good, tokenize_bodies_with_tools);
    tcase_add_test(good, detokenize_bodies);
    suite_add_tcase(suite, good);
    return suite_main(suite);
}
