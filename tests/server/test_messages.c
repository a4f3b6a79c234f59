/* Anthropic's bodies are translated to bodies of a chat, and its answers are events with names. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/anthropic/internal.h"
#include "support/read_message.h"
#include "support/request_reader.h"
#include "support/suite_main.h"

#define BODY(rest) "{\"model\":\"m\",\"max_tokens\":9," rest "}"
#define HI "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define USAGE                                                                                      \
    "\"usage\":{\"input_tokens\":2,\"cache_creation_input_tokens\":0,"                             \
    "\"cache_read_input_tokens\":1,\"output_tokens\":4}"
#define HEAD                                                                                       \
    "{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m\",\"content\":["
#define EVENT(type, rest) "event: " type "\ndata: {\"type\":\"" type "\"" rest "}\n\n"
#define START(index, block)                                                                        \
    EVENT("content_block_start", ",\"index\":" index ",\"content_block\":" block)
#define DELTA(index, delta) EVENT("content_block_delta", ",\"index\":" index ",\"delta\":" delta)
#define STOP(index) EVENT("content_block_stop", ",\"index\":" index)
#define END(reason)                                                                                \
    EVENT("message_delta",                                                                         \
          ",\"delta\":{\"stop_reason\":\"" reason "\",\"stop_sequence\":null}," USAGE)             \
    EVENT("message_stop", "")

static const struct api_usage usage = {
    .prompt_tokens = 3, .cached_tokens = 1, .completion_tokens = 4};
static struct buf out;

static void check_out(const char *expected) {
    ck_assert_str_eq(out.length > 0 ? out.data : "", expected);
    buf_clear(&out);
}

/* ---- requests ------------------------------------------------------------------------------- */

static struct api_request *asked;

/* Checks the translated messages, as JSON. */
static void expect(const char *body, const char *messages) {
    struct buf text = {0};
    asked = request_expect(&api_messages, body);
    json_write_value(&text, asked->prompts[0].messages);
    ck_assert_str_eq(text.data, messages);
    buf_free(&text);
}

START_TEST(fields_become_a_chats) {
    expect(BODY("\"stop_sequences\":[\"x\"],\"temperature\":0.5,\"top_k\":3,\"stream\":true,"
                "\"metadata\":{\"user_id\":\"u\"},\"service_tier\":\"auto\",\"container\":null,"
                "\"context_management\":{}," HI),
           "[{\"role\":\"user\",\"content\":\"hi\"}]");
    ck_assert_ptr_eq(asked->api, &api_messages);
    ck_assert_int_eq(asked->max_tokens, 9);
    ck_assert_int_eq(asked->n_stops, 1);
    ck_assert_int_eq(asked->sampling.top_k, 3);
    ck_assert(asked->stream && asked->prompts[0].add_generation_prompt);
    api_request_free(asked);
}
END_TEST

START_TEST(an_empty_system_prompt_is_no_message) {
    static const char *const bodies[] = {
        BODY("\"system\":\"\"," HI), BODY("\"system\":[]," HI),
        BODY("\"system\":[{\"type\":\"text\",\"text\":\"\"}]," HI)};
    expect(bodies[_i], "[{\"role\":\"user\",\"content\":\"hi\"}]");
    api_request_free(asked);
}
END_TEST

/* The first block of Claude Code changes with each request. */
START_TEST(a_billing_block_is_left_out) {
    expect(BODY("\"system\":[{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: a\"},"
                "{\"type\":\"text\",\"text\":\"b\",\"cache_control\":{\"type\":\"ephemeral\"}},"
                "{\"type\":\"text\",\"text\":\"c\"}]," HI),
           "[{\"role\":\"system\",\"content\":\"b\\nc\"},{\"role\":\"user\",\"content\":\"hi\"}]");
    api_request_free(asked);
    expect(BODY("\"system\":\"s\"," HI),
           "[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"hi\"}]");
    api_request_free(asked);
}
END_TEST

START_TEST(blocks_become_messages) {
    expect(BODY("\"messages\":[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\","
                "\"content\":[{\"type\":\"thinking\",\"thinking\":\"t\",\"signature\":\"s\"},"
                "{\"type\":\"redacted_thinking\",\"data\":\"d\"},{\"type\":\"text\",\"text\":"
                "\"a\"},{\"type\":\"tool_use\",\"id\":\"i\",\"name\":\"f\",\"input\":{\"x\":1}}]},"
                "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"i\","
                "\"is_error\":true,\"content\":[{\"type\":\"text\",\"text\":\"r\"}]},{\"type\":"
                "\"text\",\"text\":\"go on\"}]},{\"role\":\"system\",\"content\":\"m\"}]"),
           "[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":\"a\","
           "\"reasoning_content\":\"t\",\"tool_calls\":[{\"id\":\"i\",\"type\":\"function\","
           "\"function\":{\"name\":\"f\",\"arguments\":{\"x\":1}}}]},{\"role\":\"tool\","
           "\"content\":\"Error: r\",\"tool_call_id\":\"i\"},{\"role\":\"user\",\"content\":\"go "
           "on\"},"
           "{\"role\":\"system\",\"content\":\"m\"}]");
    api_request_free(asked);
}
END_TEST

START_TEST(a_last_answer_is_continued) {
    expect(BODY("\"messages\":[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\","
                "\"content\":\"The\"}]"),
           "[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":\"The\"}]");
    ck_assert(asked->prompts[0].continue_final_message && !asked->prompts[0].add_generation_prompt);
    api_request_free(asked);
}
END_TEST

START_TEST(thinking_and_effort_are_wishes) {
    asked = request_expect(&api_messages, BODY("\"thinking\":{\"type\":\"disabled\"},"
                                               "\"output_config\":{\"effort\":\"low\"}," HI));
    ck_assert_int_eq(asked->prompts[0].thinking, THINKING_OFF);
    ck_assert_str_eq(asked->prompts[0].reasoning_effort, "low");
    api_request_free(asked);
}
END_TEST

/* The budget of thinking is a limit if the model marks its reasoning. */
START_TEST(a_budget_of_thinking_limits_reasoning) {
    static const char body[] = BODY("\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":9}," HI);
    struct api_limits limits = request_limits;
    struct err err;
    asked = request_expect(&api_messages, body);
    ck_assert_int_lt(asked->max_reasoning, -1);
    api_request_free(asked);
    limits.reasoning_format = reasoning_format_find("qwen3");
    ck_assert_int_eq(request_read(&asked, &api_messages, body, strlen(body), &limits, &err),
                     STATUS_OK);
    ck_assert_int_eq(asked->max_reasoning, 9);
    api_request_free(asked);
}
END_TEST

START_TEST(a_format_is_a_schema) {
    asked = request_expect(&api_messages,
                           BODY("\"output_config\":{\"format\":{\"type\":\"json_schema\","
                                "\"schema\":{\"type\":\"integer\"}}}," HI));
    ck_assert_int_eq(asked->grammar.kind, GRAMMAR_JSON_SCHEMA);
    api_request_free(asked);
}
END_TEST

/* Types that the client runs have schemas that models other than Claude need. */
START_TEST(tools_that_anthropic_defines_have_schemas) {
    static const char *const types[] = {"bash_20250124", "text_editor_20250124",
                                        "text_editor_20250728", "memory_20250818"};
    struct api_limits limits = request_limits;
    limits.tool_format = tool_format_find("hermes");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char body[300];
        struct err err = {0};
        snprintf(
            body, sizeof body,
            BODY("\"tools\":[{\"type\":\"web_search_20250305\",\"name\":\"w\"},{\"type\":\"%s\","
                 "\"name\":\"x\"}]," HI),
            types[i]);
        request_read(&asked, &api_messages, body, strlen(body), &limits, &err);
        ck_assert_msg(asked, "%s", err.message);
        const struct json *tools = asked->prompts[0].tools;
        const struct json *function = json_member(json_first(tools), "function");
        const struct json *parameters = json_member(function, "parameters");
        ck_assert_int_eq(json_count(tools), 1);
        ck_assert(json_is_text(json_member(function, "name"), "x"));
        ck_assert_uint_gt(json_length(json_member(function, "description")), 10);
        ck_assert_ptr_nonnull(json_member(json_member(parameters, "properties"), "command"));
        api_request_free(asked);
    }
}
END_TEST

static const char *const refused[][2] = {
    {"[]", ""},
    {BODY("\"messages\":[]"), "messages"},
    {"{" HI "}", "model"},
    {"{\"model\":\"other\"," HI "}", "model"},
    {"{\"model\":\"m\",\"max_tokens\":0," HI "}", "max_tokens"},
    {BODY("\"temperature\":9," HI), "temperature"},
    {BODY("\"stop_sequences\":3," HI), "stop_sequences"},
    {BODY("\"system\":3," HI), "system"},
    {BODY("\"system\":[{\"type\":\"image\"}]," HI), "system[0]"},
    {BODY("\"thinking\":{\"type\":\"x\"}," HI), "thinking"},
    {BODY("\"output_config\":{\"effort\":3}," HI), "output_config.effort"},
    {BODY("\"output_config\":{\"effort\":\"x\"}," HI), "output_config.effort"},
    {BODY("\"output_config\":{\"format\":{}}," HI), "output_config.format"},
    {BODY("\"mcp_servers\":[{}]," HI), "mcp_servers"},
    {BODY("\"tools\":3," HI), "tools"},
    {BODY("\"tools\":[3]," HI), "tools[0]"},
    {BODY("\"tools\":[{}]," HI), "tools[0]"},
    {BODY("\"tools\":[{\"name\":\"f\"}],\"tool_choice\":{\"type\":\"x\"}," HI), "tool_choice"},
    {BODY("\"tools\":[{\"name\":\"w\",\"type\":\"web_search_20250305\"},{\"name\":\"f\","
          "\"input_schema\":{\"type\":\"string\"}}]," HI),
     "tools[1].input_schema"},
    {BODY("\"tools\":[{\"name\":\"w\",\"type\":\"web_search_20250305\"},{\"name\":\"f g\"}]," HI),
     "tools[1].name"},
    {BODY("\"output_config\":{\"format\":{\"type\":\"json_schema\",\"schema\":3}}," HI),
     "output_config.format.schema"},
    {BODY("\"system\":\"s\",\"messages\":[{\"role\":\"user\",\"content\":\"\\u0000\"}]"),
     "messages[0]"},
    {BODY("\"system\":\"s\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\","
          "\"text\":\"a\"},{\"type\":\"tool_result\",\"tool_use_id\":\"i\"}]},{\"role\":"
          "\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":"
          "\"tool_use\",\"id\":\"i\",\"name\":\"\"}]}]"),
     "messages[1].content[1].name"},
    {BODY("\"tools\":[{\"name\":\"w\",\"type\":\"web_search_20250305\"}],\"tool_choice\":{\"type\":"
          "\"tool\",\"name\":\"w\"}," HI),
     "tool_choice"},
    {BODY("\"tools\":[{\"name\":\"w\",\"type\":\"web_search_20250305\"}],\"tool_choice\":{\"type\":"
          "\"any\"}," HI),
     "tool_choice"},
    {BODY("\"tools\":[{\"name\":\"c\",\"type\":\"computer_20250124\"}]," HI), "tools[0]"},
    {BODY("\"messages\":[3]"), "messages[0]"},
    {BODY("\"messages\":[{\"role\":\"x\",\"content\":\"a\"}]"), "messages[0].role"},
    {BODY("\"messages\":[{\"role\":\"user\"}]"), "messages[0].content"},
    {BODY("\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\"}]}]"),
     "messages[0].content[0]"},
    {BODY("\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\"}]}]"),
     "messages[0].content[0]"},
    {BODY("\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\"}]}]"),
     "messages[0].content[0]"},
};

START_TEST(bad_bodies_are_refused_by_name) {
    struct api_request *request;
    struct err err = {0};
    const char *body = refused[_i][0];
    request_read(&request, &api_messages, body, strlen(body), &request_limits, &err);
    ck_assert_ptr_null(request);
    ck_assert_str_eq(err.param, refused[_i][1]);
    ck_assert_msg(!strstr(err.message, "function.") && !strstr(err.message, "response_format"),
                  "%s", err.message);
    ck_assert_msg(strlen(err.message) > 10, "%s", body);
}
END_TEST

/* ---- answers -------------------------------------------------------------------------------- */

static struct api_request request = {.api = &api_messages, .id = "msg_1"};
static struct api_answer answer = {&request, "m", NULL, NULL};

static void begin(void) {
    answer.state = mem_calloc(1, api_messages.state_size);
    api_messages.write_start(&out, &answer, 0, &usage);
    check_out(EVENT("message_start", ",\"message\":" HEAD
                                     "],\"stop_reason\":null,\"stop_sequence\":null," USAGE "}"));
}

static void end(const char *expected) {
    api_messages.write_done(&out, &answer, &usage);
    check_out(expected);
    mem_free(answer.state);
    buf_free(&out);
}

/* A chunk with parts of a message; NULL: no such part. */
static void add(const char *thoughts, const char *text, const char *name, const char *arguments,
                const char *finish_reason) {
    struct message message = {0};
    struct api_choice choice = {.message = &message, .finish_reason = finish_reason};
    if (arguments && !name) buf_puts(&message_call_at(&message, 0)->arguments, arguments);
    if (thoughts) message_add_text(&message, MESSAGE_REASONING, thoughts, strlen(thoughts));
    if (text) message_add_text(&message, MESSAGE_CONTENT, text, strlen(text));
    if (name) message_give_call(&message, 0, "i", name, arguments);
    api_messages.write_chunk(&out, &answer, &choice, NULL);
    message_free(&message);
}

START_TEST(a_stream_of_text) {
    struct api_choice choice = {.text = "a\"", .length = 2};
    begin();
    api_messages.write_chunk(&out, &answer, &choice, NULL);
    check_out(START("0", "{\"type\":\"text\",\"text\":\"\"}")
                  DELTA("0", "{\"type\":\"text_delta\",\"text\":\"a\\\"\"}"));
    choice = (struct api_choice){.text = "", .finish_reason = "length"};
    api_messages.write_chunk(&out, &answer, &choice, NULL);
    check_out("");
    end(STOP("0") END("max_tokens"));
    begin();
    choice = (struct api_choice){.text = "a", .length = 1, .finish_reason = "timeout"};
    api_messages.write_chunk(&out, &answer, &choice, NULL);
    buf_clear(&out);
    end(STOP("0") END("max_tokens")); /* this API cannot say that a deadline has passed */
}
END_TEST

START_TEST(a_stream_of_thoughts_text_and_calls) {
    begin();
    add("t", NULL, NULL, NULL, NULL);
    check_out(START("0", "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}")
                  DELTA("0", "{\"type\":\"thinking_delta\",\"thinking\":\"t\"}"));
    add(NULL, "a", NULL, NULL, NULL);
    check_out(DELTA("0", "{\"type\":\"signature_delta\",\"signature\":\"msg_1\"}") STOP("0")
                  START("1", "{\"type\":\"text\",\"text\":\"\"}")
                      DELTA("1", "{\"type\":\"text_delta\",\"text\":\"a\"}"));
    add(NULL, NULL, "f", "{\"x\"", NULL);
    check_out(
        STOP("1") START("2", "{\"type\":\"tool_use\",\"id\":\"i\",\"name\":\"f\",\"input\":{}}")
            DELTA("2", "{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"x\\\"\"}"));
    add(NULL, NULL, NULL, ":1}", NULL);
    check_out(DELTA("2", "{\"type\":\"input_json_delta\",\"partial_json\":\":1}\"}"));
    add(NULL, NULL, "g", "{}", "stop");
    check_out(STOP("2")
                  START("3", "{\"type\":\"tool_use\",\"id\":\"i\",\"name\":\"g\",\"input\":{}}")
                      DELTA("3", "{\"type\":\"input_json_delta\",\"partial_json\":\"{}\"}"));
    end(STOP("3") END("tool_use"));
}
END_TEST

/* A chunk may hold the rest of a call and the text after it. */
START_TEST(the_rest_of_a_call_precedes_text) {
    begin();
    add(NULL, NULL, "f", "{\"x\"", NULL);
    buf_clear(&out);
    add(NULL, "a", NULL, ":1}", "stop");
    check_out(DELTA("0", "{\"type\":\"input_json_delta\",\"partial_json\":\":1}\"}") STOP("0")
                  START("1", "{\"type\":\"text\",\"text\":\"\"}")
                      DELTA("1", "{\"type\":\"text_delta\",\"text\":\"a\"}"));
    end(STOP("1") END("tool_use"));
}
END_TEST

START_TEST(an_empty_stream_has_no_blocks) {
    begin();
    add(NULL, NULL, NULL, NULL, "stop");
    check_out("");
    end(END("end_turn"));
}
END_TEST

START_TEST(a_whole_message) {
    struct message message = {0};
    struct api_choice choice = {.message = &message, .finish_reason = "stop"};
    message_add_text(&message, MESSAGE_REASONING, "t", 1);
    message_add_text(&message, MESSAGE_CONTENT, "a", 1);
    message_give_call(&message, 0, "i", "f", "{\"x\":1}");
    message_add_text(&message, MESSAGE_CONTENT, "b", 1);
    message_give_call(&message, 1, "k", "g", "{\"x");
    api_messages.write_response(&out, &answer, &choice, 1, &usage);
    check_out(HEAD "{\"type\":\"thinking\",\"thinking\":\"t\",\"signature\":\"msg_1\"},{\"type\":"
                   "\"text\",\"text\":\"a\"},{\"type\":\"tool_use\",\"id\":\"i\",\"name\":\"f\","
                   "\"input\":{\"x\":1}},{\"type\":\"text\",\"text\":\"b\"},{\"type\":"
                   "\"tool_use\",\"id\":\"k\",\"name\":\"g\",\"input\":{}}],\"stop_reason\":"
                   "\"tool_use\",\"stop_sequence\":null," USAGE "}");
    message_free(&message);
}
END_TEST

START_TEST(a_stop_string_is_named) {
    struct api_choice choice = {
        .text = "a", .length = 1, .finish_reason = "stop", .stop_string = "q"};
    api_messages.write_response(&out, &answer, &choice, 1, &usage);
    check_out(HEAD "{\"type\":\"text\",\"text\":\"a\"}],\"stop_reason\":\"stop_sequence\","
                   "\"stop_sequence\":\"q\"," USAGE "}");
}
END_TEST

START_TEST(errors_have_types_by_status) {
    static const struct {
        enum status status;
        const char *type;
    } rows[] = {{STATUS_INVALID_REQUEST, "invalid_request_error"},
                {STATUS_AUTHENTICATION, "authentication_error"},
                {STATUS_NOT_FOUND, "not_found_error"},
                {STATUS_TOO_LARGE, "request_too_large"},
                {STATUS_HTTP_VERSION, "invalid_request_error"},
                {STATUS_OVERLOADED, "rate_limit_error"},
                {STATUS_UNAVAILABLE, "overloaded_error"},
                {STATUS_SERVER_ERROR, "api_error"}};
    struct err err;
    char expected[200];
    err_set(&err, rows[_i].status, "a", "No \"a\".");
    snprintf(expected, sizeof expected,
             "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":\"No \\\"a\\\".\"},"
             "\"request_id\":\"id\"}",
             rows[_i].type);
    api_messages.write_error(&out, &err, "id");
    check_out(expected);
    api_messages.write_error_event(&out, &answer, &err);
    ck_assert_ptr_eq(strstr(out.data, "event: error\ndata: {"), out.data);
    buf_free(&out);
}
END_TEST

/* Clients drop a stream that is silent for long. */
START_TEST(a_silent_stream_gets_pings) {
    ck_assert_str_eq(api_messages.keep_alive, EVENT("ping", ""));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_messages");
    TCase *tests = tcase_create("core");
    suite_add_tcase(suite, tests);
    tcase_add_test(tests, fields_become_a_chats);
    tcase_add_loop_test(tests, an_empty_system_prompt_is_no_message, 0, 3);
    tcase_add_test(tests, a_billing_block_is_left_out);
    tcase_add_test(tests, blocks_become_messages);
    tcase_add_test(tests, a_last_answer_is_continued);
    tcase_add_test(tests, thinking_and_effort_are_wishes);
    tcase_add_test(tests, a_budget_of_thinking_limits_reasoning);
    tcase_add_test(tests, a_format_is_a_schema);
    tcase_add_test(tests, tools_that_anthropic_defines_have_schemas);
    tcase_add_loop_test(tests, bad_bodies_are_refused_by_name, 0, sizeof refused / sizeof *refused);
    tcase_add_test(tests, a_stream_of_text);
    tcase_add_test(tests, a_stream_of_thoughts_text_and_calls);
    tcase_add_test(tests, the_rest_of_a_call_precedes_text);
    tcase_add_test(tests, an_empty_stream_has_no_blocks);
    tcase_add_test(tests, a_whole_message);
    tcase_add_test(tests, a_stop_string_is_named);
    tcase_add_test(tests, a_silent_stream_gets_pings);
    tcase_add_loop_test(tests, errors_have_types_by_status, 0, 8);
    return suite_main(suite);
}
