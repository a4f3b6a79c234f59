/* If a body contains a member twice, at any depth, all readers of bodies refuse it. Otherwise a
 * check might read the first one and its user the last. */
#include <check.h>
#include <string.h>

#include "server/apis/apis.h"
#include "support/request_reader.h"
#include "support/suite_main.h"

/* Writes a value as JSON, with member number `doubled` written twice. `n` counts members. */
static void write_doubled(struct buf *out, const struct json *value, int doubled, int *n) {
    const char *before = json_is(value, JSON_OBJECT) ? "{" : "[";
    if (!json_first(value)) {
        json_write_value(out, value);
        return;
    }
    json_each(child, value) {
        buf_puts(out, child == json_first(value) ? before : ",");
        for (bool again = child->name != NULL && (*n)++ == doubled;; again = false) {
            if (child->name) buf_printf(out, "\"%s\":", child->name);
            if (!again) break;
            buf_puts(out, "null,");
        }
        write_doubled(out, child, doubled, n);
    }
    buf_puts(out, json_is(value, JSON_OBJECT) ? "}" : "]");
}

enum reader { COMPLETIONS, CHAT, TOKENIZE, DETOKENIZE, LINE };

static enum status read_as(enum reader reader, const struct buf *body, struct err *err) {
    struct api_limits with_tools = request_limits, *limits = &with_tools;
    struct api_request *request = NULL;
    struct api_tokenize *tokenize = NULL;
    struct api_batch_line line;
    int32_t *ids = NULL;
    int n;
    enum status status;
    with_tools.tool_format = tool_format_find("hermes");
    if (reader == TOKENIZE) {
        status = api_tokenize_parse(&tokenize, body->data, body->length, limits, err);
    } else if (reader == DETOKENIZE) {
        status = api_detokenize_parse(&ids, &n, body->data, body->length, limits, err);
    } else if (reader == LINE) {
        status = api_batch_parse(&line, body->data, body->length, err);
        api_batch_free(&line);
    } else {
        const struct api *api = reader == CHAT ? &api_chat : &api_completions;
        status = request_read(&request, api, body->data, body->length, limits, err);
    }
    api_request_free(request);
    api_tokenize_free(tokenize);
    mem_free(ids);
    return status;
}

#define TOOLS                                                                                      \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\","        \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"}}}}}]"
#define MESSAGES                                                                                   \
    "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"x\"}]},"          \
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"1\",\"type\":"             \
    "\"function\",\"function\":{\"name\":\"f\",\"arguments\":{\"a\":{\"b\":1}}}}]},"               \
    "{\"role\":\"tool\",\"content\":\"y\",\"extra\":{\"e\":[{\"f\":1}]}}]"

static const struct {
    enum reader reader;
    const char *body;
} bodies[] = {
    {COMPLETIONS, "{\"prompt\":\"x\",\"logit_bias\":{\"1\":2},\"metadata\":{\"a\":{\"b\":1}},"
                  "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\","
                  "\"schema\":{\"type\":\"object\",\"properties\":{\"a\":{}}}}}}"},
    {COMPLETIONS, "{\"prompt\":\"x\",\"structural_tag\":{\"type\":\"structural_tag\",\"format\":"
                  "{\"type\":\"const_string\",\"value\":\"x\"}},\"unknown\":{\"a\":1}}"},
    {CHAT,
     "{" MESSAGES "," TOOLS ",\"tool_choice\":\"auto\",\"stream\":true,"
     "\"stream_options\":{\"include_usage\":true},\"chat_template_kwargs\":{\"a\":{\"b\":1}}}"},
    {TOKENIZE, "{" MESSAGES "," TOOLS ",\"chat_template_kwargs\":{\"a\":1}}"},
    {DETOKENIZE, "{\"tokens\":[1,2],\"other\":{\"a\":{\"b\":1}}}"},
    {LINE,
     "{\"custom_id\":\"1\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":{" MESSAGES
     "," TOOLS "}}"},
};

START_TEST(each_member_given_twice_is_refused) {
    const char *text = bodies[_i].body;
    struct buf body = {0};
    struct json *json;
    struct err err = {0};
    int n = 0;
    ck_assert_int_eq(json_parse(&json, "It", text, strlen(text), &err), STATUS_OK);
    write_doubled(&body, json, -1, &n);
    ck_assert_msg(read_as(bodies[_i].reader, &body, &err) == STATUS_OK, "%s", err.message);
    ck_assert_int_ge(n, 4);
    for (int doubled = 0; doubled < n; doubled++) {
        int count = 0;
        buf_clear(&body);
        write_doubled(&body, json, doubled, &count);
        ck_assert_msg(read_as(bodies[_i].reader, &body, &err) == STATUS_INVALID_REQUEST, "%s",
                      body.data);
        ck_assert_msg(strstr(err.message, "twice") && err.param[0] == '/', "%s", err.message);
    }
    buf_free(&body);
    json_free(json);
}
END_TEST

/* A model may write a name twice, and its client sends the call back. */
START_TEST(arguments_that_a_model_wrote_may_repeat_a_name) {
    struct api_request *request = request_expect(
        &api_chat, "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":"
                   "\"f\",\"arguments\":\"{\\\"a\\\":1,\\\"a\\\":2}\"}}]}]}");
    api_request_free(request);
}
END_TEST

START_TEST(names_that_the_server_sets_are_no_variables) {
    static const char *const names[] = {"messages",  "tools",       "add_generation_prompt",
                                        "bos_token", "eos_token",   "continue_final_message",
                                        "range",     "namespace",   "raise_exception",
                                        "dict",      "strftime_now"};
    struct buf body = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        for (enum reader reader = CHAT; reader <= TOKENIZE; reader++) {
            struct err err = {0};
            buf_clear(&body);
            buf_printf(&body, "{" MESSAGES ",\"chat_template_kwargs\":{\"a\":1,\"%s\":[]}}",
                       names[i]);
            ck_assert_int_eq(read_as(reader, &body, &err), STATUS_INVALID_REQUEST);
            ck_assert_str_eq(err.param, "chat_template_kwargs");
            ck_assert_msg(strstr(err.message, names[i]) != NULL, "%s", err.message);
        }
    }
    buf_clear(&body);
    buf_puts(&body, "{" MESSAGES ",\"chat_template_kwargs\":{\"documents\":[],\"reasoning_effort\":"
                    "\"low\",\"enable_thinking\":false,\"functions\":[]}}");
    ck_assert_int_eq(read_as(CHAT, &body, NULL), STATUS_OK);
    buf_free(&body);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_request_doubled");
    TCase *core = tcase_create("core");
    tcase_add_loop_test(core, each_member_given_twice_is_refused, 0,
                        sizeof bodies / sizeof *bodies);
    tcase_add_test(core, arguments_that_a_model_wrote_may_repeat_a_name);
    tcase_add_test(core, names_that_the_server_sets_are_no_variables);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
