/* Bodies of the Responses API are translated to bodies of a chat. Streams are numbered events. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/responses/internal.h"
#include "support/read_message.h"
#include "support/request_reader.h"
#include "support/suite_main.h"

#define BODY(rest) "{\"model\":\"m\"," rest "}"
#define HI "\"input\":\"hi\""
#define HI_MESSAGE "{\"role\":\"user\",\"content\":\"hi\"}"

static const struct api_usage usage = {
    .prompt_tokens = 3, .cached_tokens = 1, .completion_tokens = 4, .reasoning_tokens = 2};
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
    asked = request_expect(&api_responses, body);
    json_write_value(&text, asked->prompts[0].messages);
    ck_assert_str_eq(text.data, messages);
    buf_free(&text);
}

START_TEST(fields_become_a_chats) {
    expect(BODY("\"max_output_tokens\":9,\"temperature\":0.5,\"stream\":true,\"store\":true,"
                "\"include\":[\"reasoning.encrypted_content\"],\"metadata\":{},\"truncation\":"
                "\"auto\",\"prompt_cache_key\":\"k\",\"service_tier\":\"auto\"," HI),
           "[" HI_MESSAGE "]");
    ck_assert_ptr_eq(asked->api, &api_responses);
    ck_assert_int_eq(asked->max_tokens, 9);
    ck_assert_int_eq(asked->truncate_prompt_tokens, -1);
    ck_assert(asked->stream);
    api_request_free(asked);
}
END_TEST

/* Many templates allow one system message, at the front. */
START_TEST(system_messages_at_the_front_are_joined) {
    expect(BODY("\"instructions\":\"a\",\"input\":[{\"role\":\"developer\",\"content\":[{\"type\":"
                "\"input_text\",\"text\":\"b\"}]},{\"role\":\"user\",\"content\":\"hi\"},"
                "{\"role\":\"system\",\"content\":\"c\"}]"),
           "[{\"role\":\"system\",\"content\":\"a\\n\\nb\"}," HI_MESSAGE
           ",{\"role\":\"system\",\"content\":\"c\"}]");
    api_request_free(asked);
}
END_TEST

START_TEST(items_of_an_answer_are_one_message) {
    expect(BODY("\"input\":[{\"role\":\"user\",\"content\":\"hi\"},{\"type\":\"reasoning\",\"id\":"
                "\"r\",\"summary\":[],\"content\":[{\"type\":\"reasoning_text\",\"text\":\"t\"}]},"
                "{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":"
                "\"output_text\",\"text\":\"a\"}]},{\"type\":\"function_call\",\"call_id\":\"i\","
                "\"name\":\"f\",\"arguments\":\"{\\\"x\\\":1}\"},{\"type\":\"custom_tool_call\","
                "\"call_id\":\"k\",\"name\":\"g\",\"input\":\"y\"},{\"type\":\"web_search_call\"},"
                "{\"type\":\"function_call_output\",\"call_id\":\"i\",\"output\":\"1\"},"
                "{\"type\":\"custom_tool_call_output\",\"call_id\":\"k\",\"output\":[{\"type\":"
                "\"input_text\",\"text\":\"2\"}]},{\"role\":\"assistant\",\"content\":\"b\"},"
                "{\"role\":\"assistant\",\"content\":\"c\"}]"),
           "[" HI_MESSAGE ",{\"role\":\"assistant\",\"content\":\"a\",\"reasoning_content\":\"t\","
           "\"tool_calls\":[{\"id\":\"i\",\"type\":\"function\",\"function\":{\"name\":\"f\","
           "\"arguments\":{\"x\":1}}},{\"id\":\"k\",\"type\":\"function\",\"function\":{\"name\":"
           "\"g\",\"arguments\":{\"input\":\"y\"}}}]},{\"role\":\"tool\",\"content\":\"1\","
           "\"tool_call_id\":\"i\"},{\"role\":\"tool\",\"content\":\"2\",\"tool_call_id\":\"k\"},"
           "{\"role\":\"assistant\",\"content\":\"b\"},{\"role\":\"assistant\",\"content\":"
           "\"c\"}]");
    api_request_free(asked);
}
END_TEST

/* Codex and the SDKs send items back that hold calls of their own tools. */
START_TEST(calls_of_shells_and_patches_are_calls) {
    expect(BODY("\"input\":[{\"type\":\"local_shell_call\",\"id\":\"i\",\"call_id\":null,"
                "\"action\":{\"type\":\"exec\",\"command\":[\"ls\"]}},{\"type\":"
                "\"local_shell_call_output\",\"id\":\"i\",\"output\":\"a\"},{\"type\":"
                "\"shell_call\",\"call_id\":\"k\",\"action\":{\"commands\":[\"ls\"]}},"
                "{\"type\":\"apply_patch_call\",\"call_id\":\"l\",\"operation\":{\"path\":"
                "\"p\"}},{\"type\":\"shell_call_output\",\"call_id\":\"k\",\"output\":"
                "[{\"stdout\":\"b\"}]},{\"type\":\"apply_patch_call_output\",\"call_id\":"
                "\"l\",\"status\":\"completed\"}]"),
           "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"i\",\"type\":"
           "\"function\",\"function\":{\"name\":\"local_shell\",\"arguments\":{\"type\":"
           "\"exec\",\"command\":[\"ls\"]}}}]},{\"role\":\"tool\",\"content\":\"a\","
           "\"tool_call_id\":\"i\"},{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":"
           "[{\"id\":\"k\",\"type\":\"function\",\"function\":{\"name\":\"shell\","
           "\"arguments\":{\"commands\":[\"ls\"]}}},{\"id\":\"l\",\"type\":\"function\","
           "\"function\":{\"name\":\"apply_patch\",\"arguments\":{\"path\":\"p\"}}}]},"
           "{\"role\":\"tool\",\"content\":\"[{\\\"stdout\\\":\\\"b\\\"}]\","
           "\"tool_call_id\":\"k\"},{\"role\":\"tool\",\"content\":\"completed\","
           "\"tool_call_id\":\"l\"}]");
    api_request_free(asked);
}
END_TEST

START_TEST(items_that_no_model_reads_are_left_out) {
    static const char *const types[] = {"compaction", "ghost_snapshot", "mcp_call",
                                        "web_search_call", "tool_search_output"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char body[200];
        snprintf(body, sizeof body,
                 BODY("\"input\":[{\"type\":\"%s\",\"id\":\"i\"}," HI_MESSAGE "]"), types[i]);
        expect(body, "[" HI_MESSAGE "]");
        api_request_free(asked);
    }
}
END_TEST

START_TEST(an_empty_input_is_an_empty_message) {
    expect(BODY("\"input\":[],\"max_output_tokens\":1"), "[{\"role\":\"user\",\"content\":\"\"}]");
    api_request_free(asked);
    expect("{\"model\":\"m\"}", "[{\"role\":\"user\",\"content\":\"\"}]");
    api_request_free(asked);
}
END_TEST

START_TEST(effort_and_verbosity_are_wishes) {
    struct buf list = {0};
    asked = request_expect(&api_responses,
                           BODY("\"reasoning\":{\"effort\":\"none\",\"summary\":\"auto\"},"
                                "\"text\":{\"verbosity\":\"low\"}," HI));
    ck_assert_str_eq(asked->prompts[0].reasoning_effort, "none");
    ck_assert_str_eq(asked->prompts[0].verbosity, "low");
    api_list_field(&list, asked, "reasoning_effort");
    api_list_field(&list, asked, "verbosity");
    api_list_field(&list, asked, "verbosity");
    ck_assert_str_eq(list.data, "reasoning.effort, text.verbosity");
    buf_free(&list);
    api_request_free(asked);
}
END_TEST

START_TEST(a_format_is_a_schema) {
    asked = request_expect(&api_responses,
                           BODY("\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"n\","
                                "\"strict\":true,\"schema\":{\"type\":\"integer\"}}}," HI));
    ck_assert_int_eq(asked->grammar.kind, GRAMMAR_JSON_SCHEMA_STRICT);
    api_request_free(asked);
    asked = request_expect(&api_responses, BODY("\"text\":{\"format\":{\"type\":\"text\"}}," HI));
    ck_assert_ptr_null(asked->grammar.field);
    api_request_free(asked);
}
END_TEST

static const char *const refused[][2] = {
    {"{\"model\":\"m\",\"input\":\"a\",\"temperature\":[]}", "temperature"},
    {"[]", ""},
    {"{" HI "}", "model"},
    {"{\"model\":\"other\"," HI "}", "model"},
    {BODY("\"max_output_tokens\":0," HI), "max_output_tokens"},
    {BODY("\"temperature\":9," HI), "temperature"},
    {BODY("\"input\":3"), "input"},
    {BODY("\"input\":[3]"), "input[0]"},
    {BODY("\"input\":[{\"role\":\"x\",\"content\":\"a\"}]"), "input[0].role"},
    {BODY("\"input\":[{\"role\":\"user\"}]"), "input[0].content"},
    {BODY("\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\"}]}]"),
     "input[0].content[0]"},
    {BODY("\"input\":[{\"type\":\"item_reference\",\"id\":\"i\"}]"), "input[0]"},
    {BODY("\"input\":[{\"type\":\"function_call\"}]"), "input[0]"},
    {BODY("\"input\":[{\"type\":\"function_call_output\"}]"), "input[0]"},
    {BODY("\"input\":[{\"type\":\"computer_call_output\",\"call_id\":\"c\"}]"), "input[0]"},
    {BODY("\"input\":[{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\"}]"),
     "input[0].arguments"},
    {BODY("\"input\":[{\"type\":\"local_shell_call\",\"call_id\":\"c\"}]"), "input[0].action"},
    {BODY("\"input\":[{\"type\":\"compaction\"},{\"role\":\"user\",\"content\":\"\\u0000\"}]"),
     "input[1]"},
    {BODY("\"instructions\":\"s\",\"input\":[{\"type\":\"compaction\"},{\"type\":\"reasoning\"},"
          "{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}\"},"
          "{\"type\":\"function_call\",\"call_id\":\"d\",\"name\":\"\",\"arguments\":\"{}\"}]"),
     "input[3].name"},
    {BODY("\"input\":[{\"type\":\"reasoning\"},{\"type\":\"function_call\",\"call_id\":\"c\","
          "\"name\":\"\",\"arguments\":\"{}\"}]"),
     "input[1].name"},
    {BODY("\"tools\":[{\"type\":\"web_search\"},{\"type\":\"function\",\"name\":\"f\","
          "\"parameters\":{\"type\":\"string\"}}]," HI),
     "tools[1].parameters"},
    {BODY("\"tools\":[{\"type\":\"custom\"},{\"type\":\"function\",\"name\":\"f g\"}]," HI),
     "tools[1].name"},
    {BODY("\"tools\":[{\"type\":\"custom\"},{\"type\":\"function\",\"name\":\"f\",\"description\":"
          "\"\\u0000\"}]," HI),
     "tools[1]"},
    {BODY("\"tools\":[{\"type\":\"function\",\"name\":3}]," HI), "tools[0]"},
    {BODY("\"text\":{\"format\":{\"type\":\"json_schema\",\"schema\":3}}," HI),
     "text.format.schema"},
    {BODY("\"instructions\":3," HI), "instructions"},
    {BODY("\"tools\":3," HI), "tools"},
    {BODY("\"tools\":[{\"type\":\"function\"}]," HI), "tools[0]"},
    {BODY("\"tools\":[{\"type\":\"function\",\"name\":\"f\"}],\"tool_choice\":3," HI),
     "tool_choice"},
    {BODY("\"text\":{\"format\":{\"type\":\"x\"}}," HI), "text.format"},
    {BODY("\"reasoning\":{\"effort\":3}," HI), "reasoning.effort"},
    {BODY("\"reasoning\":{\"effort\":\"x\"}," HI), "reasoning.effort"},
    {BODY("\"text\":{\"verbosity\":\"x\"}," HI), "text.verbosity"},
    {BODY("\"truncation\":\"x\"," HI), "truncation"},
    {BODY("\"previous_response_id\":\"r\"," HI), "previous_response_id"},
    {BODY("\"conversation\":\"c\"," HI), "conversation"},
    {BODY("\"prompt\":{\"id\":\"p\"}," HI), "prompt"},
    {BODY("\"background\":true," HI), "background"},
    {BODY("\"top_logprobs\":2," HI), "top_logprobs"},
};

/* No field of the translated body is named. */
static void expect_clients_names(const char *message) {
    static const char *const inner[] = {"messages[",
                                        "function.",
                                        "tool_calls",
                                        "response_format",
                                        "chat_template_kwargs",
                                        "truncate_prompt_tokens"};
    for (size_t i = 0; i < sizeof inner / sizeof *inner; i++)
        ck_assert_msg(!strstr(message, inner[i]), "%s", message);
}

START_TEST(bad_bodies_are_refused_by_name) {
    struct api_request *request;
    struct err err = {0};
    const char *body = refused[_i][0];
    request_read(&request, &api_responses, body, strlen(body), &request_limits, &err);
    ck_assert_ptr_null(request);
    ck_assert_str_eq(err.param, refused[_i][1]);
    ck_assert_msg(strlen(err.message) > 10, "%s", body);
    expect_clients_names(err.message);
}
END_TEST

START_TEST(a_background_response_is_stored) {
    static const struct {
        const char *body;
        bool is_accepted;
    } rows[] = {
        {BODY("\"background\":true," HI), true},
        {BODY("\"background\":true,\"store\":true," HI), true},
        {BODY("\"background\":true,\"store\":false," HI), false},
        {BODY("\"background\":false,\"store\":false," HI), true},
    };
    struct api_limits limits = request_limits;
    limits.keeps = true;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct api_request *read;
        struct err err = {0};
        request_read(&read, &api_responses, rows[i].body, strlen(rows[i].body), &limits, &err);
        ck_assert_msg((read != NULL) == rows[i].is_accepted, "%s: %s", rows[i].body, err.message);
        ck_assert_str_eq(err.param, rows[i].is_accepted ? "" : "background");
        api_request_free(read);
    }
}
END_TEST

#define TWO_TOOLS                                                                                  \
    "\"tools\":[{\"type\":\"function\",\"name\":\"f\"},{\"type\":\"web_search\"},{\"type\":"       \
    "\"function\",\"name\":\"g\"}]," HI ",\"tool_choice\":"
#define ALLOWED(mode, tools)                                                                       \
    "{\"type\":\"allowed_tools\",\"mode\":\"" mode "\",\"tools\":[" tools "]}"

/* Reads a body of a model that can call tools; NULL if it is refused. */
static struct api_request *read_calls(const char *body, struct err *err) {
    struct api_limits limits = request_limits;
    struct api_request *read;
    limits.tool_format = tool_format_find("hermes");
    request_read(&read, &api_responses, body, strlen(body), &limits, err);
    return read;
}

START_TEST(allowed_tools_restrict_the_tools) {
    static const struct {
        const char *body;
        enum tool_choice choice;
        bool f, g;
    } rows[] = {
        {BODY(TWO_TOOLS "\"required\""), TOOL_CHOICE_REQUIRED, true, true},
        {BODY(TWO_TOOLS ALLOWED("auto", "{\"type\":\"function\",\"name\":\"g\"}")),
         TOOL_CHOICE_AUTO, false, true},
        {BODY(TWO_TOOLS ALLOWED("required", "{\"type\":\"web_search\"},{\"type\":\"function\","
                                            "\"name\":\"f\"}")),
         TOOL_CHOICE_REQUIRED, true, false},
        {BODY(TWO_TOOLS ALLOWED("auto", "{\"type\":\"web_search\"}")), TOOL_CHOICE_NONE, true,
         true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err err = {0};
        struct json *f = NULL, *g = NULL;
        asked = read_calls(rows[i].body, &err);
        ck_assert_msg(asked, "%s", err.message);
        json_parse(&f, "It", "{\"name\":\"f\"}", 12, &err);
        json_parse(&g, "It", "{\"name\":\"g\"}", 12, &err);
        ck_assert_int_eq(asked->tool_choice, rows[i].choice);
        ck_assert_int_eq(tool_filter_passes(&asked->callable, f), rows[i].f);
        ck_assert_int_eq(tool_filter_passes(&asked->callable, g), rows[i].g);
        json_free(f);
        json_free(g);
        api_request_free(asked);
    }
}
END_TEST

START_TEST(a_choice_of_a_tool_that_is_left_out_is_refused) {
    static const char *const rows[][2] = {
        {BODY(TWO_TOOLS "{\"type\":\"web_search\"}"), "\"web_search\""},
        {BODY(TWO_TOOLS "{\"type\":\"custom\",\"name\":\"apply_patch\"}"), "\"apply_patch\""},
        {BODY(TWO_TOOLS "{\"type\":\"function\",\"name\":\"h\"}"), "not in 'tools'"},
        {BODY(TWO_TOOLS ALLOWED("auto", "{\"type\":\"function\",\"name\":\"h\"}")), "'tools'"},
        {BODY(TWO_TOOLS ALLOWED("required", "{\"type\":\"web_search\"}")), "'tool_choice.tools'"},
        {BODY(TWO_TOOLS ALLOWED("auto", "{\"type\":\"function\"}")), "'tool_choice.tools[0]'"},
        {BODY(TWO_TOOLS ALLOWED("auto", "")), "'tool_choice.tools'"},
        {BODY(TWO_TOOLS ALLOWED("x", "{}")), "'tool_choice.mode'"},
        {BODY("\"tools\":[{\"type\":\"web_search\"}]," HI ",\"tool_choice\":\"required\""),
         "no 'tools'"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err err = {0};
        ck_assert_msg(!read_calls(rows[i][0], &err), "%s", rows[i][0]);
        ck_assert_msg(strncmp(err.param, "tool_choice", 11) == 0, "%s", err.param);
        ck_assert_msg(strstr(err.message, rows[i][1]), "%s", err.message);
    }
}
END_TEST

/* Errors that are found after the body was read name the client's fields too. */
START_TEST(a_request_keeps_the_names) {
    struct err err;
    asked = request_expect(&api_responses,
                           BODY("\"input\":[{\"type\":\"compaction\"},{\"type\":"
                                "\"function_call_output\",\"call_id\":\"c\",\"output\":\"\"}]"));
    err_set(&err, STATUS_INVALID_REQUEST, "messages[0].role",
            "'messages[0].role' isn't in 'messages', 'other' or 'messages_too'.");
    api_rename(&err, asked->names, asked->names_length);
    ck_assert_str_eq(err.param, "input[1]");
    ck_assert_str_eq(err.message, "'input[1]' isn't in 'input', 'other' or 'messages_too'.");
    api_request_free(asked);
}
END_TEST

/* ---- answers -------------------------------------------------------------------------------- */

static struct api_request request = {.api = &api_responses,
                                     .id = "resp_1",
                                     .created = 17,
                                     .max_tokens = 9,
                                     .parallel_tool_calls = true,
                                     .tool_choice = TOOL_CHOICE_AUTO,
                                     .sampling = {.temperature = 1, .top_p = 1}};
static struct api_answer answer = {&request, "m", NULL, NULL};

#define RESPONSE(status, output, error, details, used)                                             \
    "{\"id\":\"resp_1\",\"object\":\"response\",\"created_at\":17,\"status\":\"" status            \
    "\",\"model\":\"m\",\"output\":[" output "],\"error\":" error                                  \
    ",\"incomplete_details\":" details ",\"max_output_tokens\":9,\"temperature\":1,\"top_p\":1,"   \
    "\"tool_choice\":\"auto\",\"parallel_tool_calls\":true,\"background\":false,\"store\":false,"  \
    "\"previous_response_id\":null,\"usage\":" used "}"
#define USAGE                                                                                      \
    "{\"input_tokens\":3,\"input_tokens_details\":{\"cached_tokens\":1},\"output_tokens\":4,"      \
    "\"output_tokens_details\":{\"reasoning_tokens\":2},\"total_tokens\":7}"
#define EVENT(type, n, rest)                                                                       \
    "event: " type "\ndata: {\"type\":\"" type "\",\"sequence_number\":" n rest "}\n\n"
#define PART(text)                                                                                 \
    "{\"type\":\"output_text\",\"text\":\"" text "\",\"annotations\":[],\"logprobs\":[]}"
#define MESSAGE(status, parts)                                                                     \
    "{\"id\":\"msg_1_0\",\"type\":\"message\",\"status\":\"" status                                \
    "\",\"role\":\"assistant\",\"content\":[" parts "]}"
#define CALL(status, arguments)                                                                    \
    "{\"id\":\"fc_1_1\",\"type\":\"function_call\",\"status\":\"" status                           \
    "\",\"call_id\":\"i\",\"name\":\"f\",\"arguments\":\"" arguments "\"}"
#define REASONING                                                                                  \
    "{\"id\":\"rs_1_0\",\"type\":\"reasoning\",\"status\":\"completed\",\"summary\":[],"           \
    "\"content\":[{\"type\":\"reasoning_text\",\"text\":\"t\"}]}"
#define AT_MESSAGE ",\"item_id\":\"msg_1_0\",\"output_index\":0,\"content_index\":0"
#define AT_CALL ",\"item_id\":\"fc_1_1\",\"output_index\":1"

static void begin(void) {
    answer.state = mem_calloc(1, api_responses.state_size);
}

static void end(void) {
    api_responses.free_state(answer.state);
    mem_free(answer.state);
    buf_free(&out);
}

START_TEST(a_stream_of_text_and_a_call) {
    struct message message = {0};
    struct api_choice choice = {.text = "a", .length = 1};
    begin();
    api_responses.write_start(&out, &answer, 0, &usage);
    check_out(EVENT("response.created", "0",
                    ",\"response\":" RESPONSE("in_progress", "", "null", "null", "null"))
                  EVENT("response.in_progress", "1",
                        ",\"response\":" RESPONSE("in_progress", "", "null", "null", "null")));
    api_responses.write_chunk(&out, &answer, &choice, NULL);
    check_out(EVENT("response.output_item.added", "2",
                    ",\"output_index\":0,\"item\":" MESSAGE("in_progress", ""))
                  EVENT("response.content_part.added", "3", AT_MESSAGE ",\"part\":" PART(""))
                      EVENT("response.output_text.delta", "4",
                            AT_MESSAGE ",\"delta\":\"a\",\"logprobs\":[]"));
    message_give_call(&message, 0, "i", "f", "{}");
    choice = (struct api_choice){.message = &message, .finish_reason = "stop"};
    api_responses.write_chunk(&out, &answer, &choice, NULL);
    message_free(&message);
    check_out(EVENT("response.output_text.done", "5", AT_MESSAGE ",\"text\":\"a\",\"logprobs\":[]")
                  EVENT("response.content_part.done", "6", AT_MESSAGE ",\"part\":" PART("a"))
                      EVENT("response.output_item.done", "7",
                            ",\"output_index\":0,\"item\":" MESSAGE("completed", PART("a")))
                          EVENT("response.output_item.added", "8",
                                ",\"output_index\":1,\"item\":" CALL("in_progress", ""))
                              EVENT("response.function_call_arguments.delta", "9",
                                    AT_CALL ",\"delta\":\"{}\""));
    api_responses.write_done(&out, &answer, &usage);
    check_out(
        EVENT("response.function_call_arguments.done", "10",
              AT_CALL ",\"name\":\"f\",\"arguments\":\"{}\"")
            EVENT("response.output_item.done", "11",
                  ",\"output_index\":1,\"item\":" CALL("completed", "{}"))
                EVENT("response.completed", "12",
                      ",\"response\":" RESPONSE(
                          "completed", MESSAGE("completed", PART("a")) "," CALL("completed", "{}"),
                          "null", "null", USAGE)));
    end();
}
END_TEST

/* A chunk may hold the rest of a call and the text after it. */
START_TEST(the_rest_of_a_call_precedes_text) {
    struct message message = {0};
    struct api_choice choice = {.message = &message};
    begin();
    api_responses.write_start(&out, &answer, 0, &usage);
    message_give_call(&message, 0, "i", "f", "{");
    api_responses.write_chunk(&out, &answer, &choice, NULL);
    buf_clear(&out);
    message_clear(&message);
    buf_puts(&message_call_at(&message, 0)->arguments, "}");
    message_add_text(&message, MESSAGE_CONTENT, "a", 1);
    api_responses.write_chunk(&out, &answer, &choice, NULL);
    const char *rest = strstr(out.data, "\"delta\":\"}\""),
               *text = strstr(out.data, "\"delta\":\"a\"");
    ck_assert(rest && text && rest < text);
    ck_assert_ptr_nonnull(strstr(out.data, "\"arguments\":\"{}\""));
    message_free(&message);
    end();
}
END_TEST

/* Text, a call and text again are three items, also if they arrive in one chunk. */
START_TEST(streamed_and_whole_answers_have_the_same_items) {
    static const char items[] = "\"output\":[" MESSAGE("completed", PART("a")) "," CALL(
        "completed", "{}") ",{\"id\":\"msg_1_2\",\"type\":\"message\",\"status\":\"completed\","
                           "\"role\":\"assistant\",\"content\":[" PART("bc") "]}]";
    struct message message = {0};
    struct api_choice choice = {.message = &message, .finish_reason = "stop"};
    message_add_text(&message, MESSAGE_CONTENT, "a", 1);
    message_give_call(&message, 0, "i", "f", "{}");
    message_add_text(&message, MESSAGE_CONTENT, "b", 1);
    message_add_text(&message, MESSAGE_REASONING, "t", 1);
    message_add_text(&message, MESSAGE_CONTENT, "c", 1);
    message_drop_reasoning(&message);
    api_responses.write_response(&out, &answer, &choice, 1, &usage);
    ck_assert_msg(strstr(out.data, items), "%s", out.data);
    buf_clear(&out);
    begin();
    api_responses.write_start(&out, &answer, 0, &usage);
    api_responses.write_chunk(&out, &answer, &choice, NULL);
    api_responses.write_done(&out, &answer, &usage);
    ck_assert_msg(strstr(strstr(out.data, "event: response.completed"), items), "%s", out.data);
    message_free(&message);
    end();
}
END_TEST

START_TEST(an_answer_at_its_limit_is_incomplete) {
    struct api_choice choice = {.text = "a", .length = 1, .finish_reason = "length"};
    api_responses.write_response(&out, &answer, &choice, 1, &usage);
    check_out(RESPONSE("incomplete", MESSAGE("completed", PART("a")), "null",
                       "{\"reason\":\"max_output_tokens\"}", USAGE));
    ck_assert_str_eq(responses_status("timeout"), "incomplete");
    ck_assert_str_eq(responses_status("stop"), "completed");
    ck_assert_str_eq(responses_status(NULL), "completed");
}
END_TEST

START_TEST(thoughts_are_an_item) {
    struct message message = {0};
    struct api_choice choice = {.message = &message, .finish_reason = "stop"};
    message_add_text(&message, MESSAGE_REASONING, "t", 1);
    api_responses.write_response(&out, &answer, &choice, 1, &usage);
    message_free(&message);
    check_out(RESPONSE("completed", REASONING, "null", "null", USAGE));
}
END_TEST

/* A failure before the first token has the first events too: clients need the response's id. */
START_TEST(a_failed_stream_ends_with_its_error) {
    struct err err;
    begin();
    err_set(&err, STATUS_SERVER_ERROR, NULL, "No.");
    api_responses.write_error_event(&out, &answer, &err);
    const char *last =
        EVENT("response.failed", "2",
              ",\"response\":" RESPONSE(
                  "failed", "", "{\"code\":\"server_error\",\"message\":\"No.\"}", "null", "null"));
    ck_assert_ptr_eq(strstr(out.data, "event: response.created\n"), out.data);
    ck_assert_str_eq(strstr(out.data, "event: response.failed"), last);
    end();
}
END_TEST

/* Codex reads the seconds from the message. */
START_TEST(an_overload_says_when_to_try_again) {
    struct err err;
    const char *in_words = "Full. Please try again in 1s.\"";
    begin();
    err_set(&err, STATUS_OVERLOADED, NULL, "Full.");
    api_responses.write_error(&out, &err, "id");
    check_out("{\"error\":{\"message\":\"Full. Please try again in 1s.\",\"type\":"
              "\"overloaded_error\",\"param\":null,\"code\":\"rate_limit_exceeded\"}}");
    api_responses.write_error_event(&out, &answer, &err);
    ck_assert_ptr_nonnull(strstr(out.data, in_words));
    ck_assert_ptr_nonnull(strstr(out.data, "\"code\":\"rate_limit_exceeded\""));
    end();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_responses");
    TCase *tests = tcase_create("core");
    suite_add_tcase(suite, tests);
    tcase_add_test(tests, fields_become_a_chats);
    tcase_add_test(tests, system_messages_at_the_front_are_joined);
    tcase_add_test(tests, items_of_an_answer_are_one_message);
    tcase_add_test(tests, calls_of_shells_and_patches_are_calls);
    tcase_add_test(tests, items_that_no_model_reads_are_left_out);
    tcase_add_test(tests, an_empty_input_is_an_empty_message);
    tcase_add_test(tests, effort_and_verbosity_are_wishes);
    tcase_add_test(tests, a_format_is_a_schema);
    tcase_add_loop_test(tests, bad_bodies_are_refused_by_name, 0, sizeof refused / sizeof *refused);
    tcase_add_test(tests, a_background_response_is_stored);
    tcase_add_test(tests, allowed_tools_restrict_the_tools);
    tcase_add_test(tests, a_choice_of_a_tool_that_is_left_out_is_refused);
    tcase_add_test(tests, a_request_keeps_the_names);
    tcase_add_test(tests, a_stream_of_text_and_a_call);
    tcase_add_test(tests, the_rest_of_a_call_precedes_text);
    tcase_add_test(tests, streamed_and_whole_answers_have_the_same_items);
    tcase_add_test(tests, an_answer_at_its_limit_is_incomplete);
    tcase_add_test(tests, thoughts_are_an_item);
    tcase_add_test(tests, a_failed_stream_ends_with_its_error);
    tcase_add_test(tests, an_overload_says_when_to_try_again);
    return suite_main(suite);
}
