/* Ollama's bodies are translated to OpenAI's, and its answers are lines of JSON. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "server/ollama/internal.h"
#include "support/request_reader.h"
#include "support/suite_main.h"

#define HI "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define HEAD "{\"model\":\"m\",\"created_at\":\"1970-01-01T00:00:17Z\","
#define TAIL(reason)                                                                               \
    ",\"done\":true,\"done_reason\":\"" reason "\",\"total_duration\":12,\"load_duration\":0,"     \
    "\"prompt_eval_count\":3,\"prompt_eval_duration\":5,\"eval_count\":4,\"eval_duration\":7}"

static const struct api_usage usage = {
    .prompt_tokens = 3, .completion_tokens = 4, .prompt_ns = 5, .generation_ns = 7};
static struct buf out;

static void check_out(const char *expected) {
    ck_assert_str_eq(out.length > 0 ? out.data : "", expected);
    buf_clear(&out);
}

/* ---- requests ------------------------------------------------------------------------------- */

static void refuse(const struct api *api, const char *body, const char *param) {
    struct api_request *request;
    struct err err = {0};
    request_read(&request, api, body, strlen(body), &request_limits, &err);
    ck_assert_ptr_null(request);
    ck_assert_str_eq(err.param, param);
    ck_assert_msg(strlen(err.message) > 10, "%s", body);
}

START_TEST(options_become_fields) {
    struct api_request *request = request_expect(
        &api_ollama_chat,
        "{\"model\":\"m:latest\"," HI ",\"keep_alive\":-1,\"options\":{\"num_predict\":7,"
        "\"temperature\":0.5,\"top_k\":3,\"seed\":9,\"num_ctx\":999999,\"stop\":[\"x\"]}}");
    ck_assert_ptr_eq(request->api, &api_ollama_chat);
    ck_assert_int_eq(request->max_tokens, 7);
    ck_assert_float_eq(request->sampling.temperature, 0.5f);
    ck_assert_int_eq(request->sampling.top_k, 3);
    ck_assert_uint_eq(request->sampling.seed, 9);
    ck_assert_int_eq(request->n_stops, 1);
    ck_assert(request->stream);
    api_request_free(request);
}
END_TEST

START_TEST(negative_numbers_are_absent) {
    struct api_request *request = request_expect(
        &api_ollama_generate, "{\"model\":\"m\",\"prompt\":\"a\",\"stream\":false,\"options\":{"
                              "\"num_predict\":-2,\"seed\":-1}}");
    ck_assert_int_eq(request->max_tokens, -1);
    ck_assert(!request->has_seed && !request->stream);
    api_request_free(request);
}
END_TEST

START_TEST(a_prompt_is_a_message_unless_it_is_raw) {
    struct api_request *request =
        request_expect(&api_ollama_generate, "{\"model\":\"m\",\"prompt\":\"a\",\"system\":\"b\"}");
    ck_assert_int_eq(json_count(request->prompts[0].messages), 2);
    api_request_free(request);
    request = request_expect(&api_ollama_generate,
                             "{\"model\":\"m\",\"prompt\":\"a\",\"system\":\"b\",\"raw\":true}");
    ck_assert_ptr_null(request->prompts[0].messages);
    ck_assert_str_eq(request->prompts[0].text, "a");
    ck_assert_int_eq(request->max_tokens, -1);
    api_request_free(request);
}
END_TEST

/* A result without an id belongs to the next call in order. */
START_TEST(results_belong_to_calls_in_order) {
    struct api_request *request = request_expect(
        &api_ollama_chat,
        "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"u\"},{\"role\":"
        "\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"a\":1}}},"
        "{\"function\":{\"name\":\"g\"}}]},{\"role\":\"tool\",\"tool_name\":\"f\",\"content\":"
        "\"1\"},{\"role\":\"tool\",\"content\":\"2\"}]}");
    const struct json *first = json_first(request->prompts[0].messages)->next->next;
    ck_assert_str_eq(json_text(json_member(first, "tool_call_id")), "call_0");
    ck_assert_str_eq(json_text(json_member(first, "name")), "f");
    ck_assert_str_eq(json_text(json_member(first->next, "tool_call_id")), "call_1");
    api_request_free(request);
}
END_TEST

START_TEST(a_format_is_a_grammar) {
    struct api_request *request =
        request_expect(&api_ollama_chat, "{\"model\":\"m\"," HI ",\"format\":\"json\"}");
    ck_assert_ptr_nonnull(request->grammar.field);
    api_request_free(request);
    request = request_expect(&api_ollama_chat,
                             "{\"model\":\"m\"," HI ",\"format\":{\"type\":\"integer\"}}");
    ck_assert_int_eq(request->grammar.kind, GRAMMAR_JSON_SCHEMA);
    api_request_free(request);
}
END_TEST

static const struct {
    const struct api *api;
    const char *body;
} loads[] = {
    {&api_ollama_chat, "{\"model\":\"m:latest\"}"},
    {&api_ollama_chat, "{\"model\":\"m\",\"messages\":[],\"keep_alive\":0}"},
    {&api_ollama_generate, "{\"model\":\"m\"}"},
    {&api_ollama_generate, "{\"model\":\"m\",\"prompt\":\"\",\"stream\":true,\"raw\":true}"},
};

START_TEST(a_body_without_a_prompt_loads_the_model) {
    struct api_request *request = request_expect(loads[_i].api, loads[_i].body);
    ck_assert(request->only_loads && !request->stream && request->api == loads[_i].api);
    ck_assert_int_eq(request->max_tokens, 0);
    ck_assert_int_eq(request->prompts[0].n_ids, 1);
    api_request_free(request);
}
END_TEST

static const struct {
    const char *body, *param;
} refused[] = {
    {"[]", ""},
    {"{" HI "}", "model"},
    {"{\"model\":\"other\"," HI "}", "model"},
    {"{\"model\":\"m\",\"messages\":3}", "messages"},
    {"{\"model\":\"m\",\"messages\":[3]}", "messages[0]"},
    {"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"images\":[\"\"]}]}",
     "messages[0].images"},
    {"{\"model\":\"m\",\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[3]}]}",
     "messages[0].tool_calls[0]"},
    {"{\"model\":\"m\"," HI ",\"options\":3}", "options"},
    {"{\"model\":\"m\"," HI ",\"options\":{\"temperature\":9}}", "options.temperature"},
    {"{\"model\":\"m\"," HI ",\"options\":{\"num_predict\":\"a\"}}", "options.num_predict"},
    {"{\"model\":\"m\"," HI ",\"stream\":1}", "stream"},
    {"{\"model\":\"m\"," HI ",\"think\":3}", "think"},
    {"{\"model\":\"m\"," HI ",\"format\":3}", "format"},
    {"{\"model\":\"m\"," HI ",\"logprobs\":true}", "logprobs"},
};

START_TEST(bad_bodies_are_refused_by_name) {
    refuse(&api_ollama_chat, refused[_i].body, refused[_i].param);
}
END_TEST

START_TEST(generate_refuses_by_name) {
    refuse(&api_ollama_generate, "{\"model\":\"m\",\"prompt\":[]}", "prompt");
    refuse(&api_ollama_generate, "{\"model\":\"m\",\"suffix\":{}}", "suffix");
    refuse(&api_ollama_generate, "{\"model\":\"m\",\"prompt\":3}", "prompt");
    refuse(&api_ollama_generate, "{\"model\":\"m\",\"prompt\":\"a\",\"context\":[1]}", "context");
    refuse(&api_ollama_generate, "{\"model\":\"m\",\"prompt\":\"a\",\"template\":\"b\"}",
           "template");
    refuse(&api_ollama_generate, "{\"model\":\"m\",\"prompt\":\"a\",\"images\":[\"\"]}", "images");
}
END_TEST

/* ---- descriptions of the model -------------------------------------------------------------- */

static struct model_config config = {.architecture = "llama",
                                     .name = "Tiny",
                                     .quantisation = "q4_1",
                                     .n_parameters = 134515008,
                                     .file_bytes = 5,
                                     .stamp = 0xAB,
                                     .V = 7,
                                     .K = 6,
                                     .L = 4,
                                     .H = 3,
                                     .G = 1};

static struct ollama_card card_of(struct api_limits *limits) {
    *limits = (struct api_limits){.model = "m", .max_model_len = 64, .config = &config};
    return (struct ollama_card){.limits = limits, .started_s = 9};
}

#define DETAILS                                                                                    \
    "\"details\":{\"parent_model\":\"\",\"format\":\"gguf\",\"family\":\"llama\",\"families\":["   \
    "\"llama\"],\"parameter_size\":\"134.52M\",\"quantization_level\":\"Q4_1\"}"

START_TEST(models_are_listed_under_all_names_but_run_under_one) {
    struct api_limits limits;
    struct ollama_card card = card_of(&limits);
    limits.more = "o\0";
    ollama_write_models(&out, &card, false);
    ck_assert_ptr_nonnull(
        strstr(out.data, "{\"models\":[{\"name\":\"m\",\"model\":\"m\",\"size\":5"));
    ck_assert_ptr_nonnull(
        strstr(out.data, "00ab\"," DETAILS ",\"modified_at\":\"1970-01-01T00:00:09Z\"},{"));
    ck_assert_ptr_nonnull(strstr(out.data, "\"name\":\"o\""));
    buf_clear(&out);
    ollama_write_models(&out, &card, true);
    ck_assert_ptr_nonnull(strstr(out.data,
                                 ",\"expires_at\":\"9999-12-31T23:59:59Z\",\"size_vram\":5,"
                                 "\"context_length\":64}]}"));
    ck_assert_ptr_null(strstr(out.data, "\"name\":\"o\""));
    buf_clear(&out);
}
END_TEST

START_TEST(show_has_the_context_and_the_capabilities) {
    static const struct sampling_defaults own = {0.5, 0.25, -1, -1, 3};
    struct api_limits limits;
    struct ollama_card card = card_of(&limits);
    limits.sampling = &own;
    limits.tool_format = tool_format_find("hermes");
    ollama_write_show(&out, &card);
    check_out(
        "{\"license\":\"\",\"modelfile\":\"\",\"parameters\":\"num_ctx 64\\ntemperature "
        "0.5\\ntop_k 3\\ntop_p "
        "0.25\",\"template\":\"\"," DETAILS
        ",\"model_info\":{\"general.architecture\":\"llama\",\"general.basename\":"
        "\"Tiny\",\"general.parameter_count\":134515008,\"llama.context_length\":64,"
        "\"llama.embedding_length\":6,\"llama.block_count\":4,\"llama.attention.head_count\":3,"
        "\"llama.attention.head_count_kv\":1,\"llama.vocab_size\":7},\"capabilities\":["
        "\"completion\",\"tools\"],\"modified_at\":\"1970-01-01T00:00:09Z\"}");
}
END_TEST

static const struct {
    const char *body, *param;
    enum status status;
} shown[] = {
    {"{\"model\":\"m\"}", "", STATUS_OK},
    {"{\"name\":\"m:latest\",\"verbose\":true}", "", STATUS_OK},
    {"{\"model\":null,\"name\":\"m\"}", "", STATUS_OK},
    {"{\"model\":\"other\"}", "model", STATUS_NOT_FOUND},
    {"{\"model\":\"\"}", "model", STATUS_NOT_FOUND},
    {"{\"model\":3}", "model", STATUS_INVALID_REQUEST},
    {"{}", "model", STATUS_INVALID_REQUEST},
    {"[]", "", STATUS_INVALID_REQUEST},
    {"", "", STATUS_INVALID_REQUEST},
};

START_TEST(show_takes_a_served_name) {
    struct api_limits limits;
    struct err err = {0};
    (void)card_of(&limits);
    enum status status = ollama_parse_show(shown[_i].body, strlen(shown[_i].body), &limits, &err);
    ck_assert_msg(status == shown[_i].status, "%s", shown[_i].body);
    ck_assert_str_eq(err.param, shown[_i].param);
}
END_TEST

START_TEST(paths_of_ollama_that_are_not_served_say_why) {
    static const char *const unserved[] = {"/api/pull", "/api/delete", "/api/blobs/sha256:0"};
    for (size_t i = 0; i < sizeof unserved / sizeof *unserved; i++)
        ck_assert_ptr_nonnull(ollama_unserved(unserved[i]));
    ck_assert_ptr_null(ollama_unserved("/api/chat"));
    ck_assert_ptr_null(ollama_unserved("/api/pulls"));
}
END_TEST

/* ---- answers -------------------------------------------------------------------------------- */

/* Writes an answer of one of the APIs, with a state as a job makes it. */
static struct api_request request = {.created = 17};
static struct api_answer answer = {&request, "m", NULL, NULL};

static void begin(const struct api *api) {
    request.api = api;
    answer.state = mem_calloc(1, api->state_size);
}

static void end(void) {
    request.api->free_state(answer.state);
    mem_free(answer.state);
    buf_free(&out);
}

START_TEST(whole_answers) {
    struct api_choice choice = {.text = "a\"", .length = 2, .finish_reason = "length"};
    begin(&api_ollama_chat);
    api_ollama_chat.write_response(&out, &answer, &choice, 1, &usage);
    check_out(HEAD "\"message\":{\"role\":\"assistant\",\"content\":\"a\\\"\"}" TAIL("length"));
    api_ollama_generate.write_response(&out, &answer, &choice, 1, &usage);
    check_out(HEAD "\"response\":\"a\\\"\"" TAIL("length"));
    choice.finish_reason = "timeout";
    api_ollama_generate.write_response(&out, &answer, &choice, 1, &usage);
    check_out(HEAD "\"response\":\"a\\\"\"" TAIL("timeout"));
    request.only_loads = true;
    choice.length = 0;
    api_ollama_chat.write_response(&out, &answer, &choice, 1, &usage);
    check_out(HEAD "\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":true,"
                   "\"done_reason\":\"load\"}");
    request.only_loads = false;
    end();
}
END_TEST

START_TEST(a_stream_of_text) {
    struct api_choice choice = {.text = "a", .length = 1};
    begin(&api_ollama_generate);
    api_ollama_generate.write_chunk(&out, &answer, &choice, NULL);
    check_out(HEAD "\"response\":\"a\",\"done\":false}\n");
    choice.length = 0, choice.finish_reason = "stop";
    api_ollama_generate.write_chunk(&out, &answer, &choice, NULL);
    check_out("");
    api_ollama_generate.write_done(&out, &answer, &usage);
    check_out(HEAD "\"response\":\"\"" TAIL("stop") "\n");
    end();
}
END_TEST

/* A chunk with an addition to a call. */
static void add(const char *name, const char *arguments, const char *finish_reason) {
    struct message_call call = {.begins = name != NULL};
    struct message message = {.calls = &call, .n_calls = 1};
    struct api_choice choice = {.message = &message, .finish_reason = finish_reason};
    if (name) strcpy(call.name, name);
    buf_puts(&call.arguments, arguments);
    api_ollama_chat.write_chunk(&out, &answer, &choice, NULL);
    buf_free(&call.arguments);
}

#define CALL(name, arguments)                                                                      \
    HEAD "\"message\":{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{"    \
         "\"name\":\"" name "\",\"arguments\":" arguments "}}]},\"done\":false}\n"

START_TEST(a_stream_has_whole_calls) {
    begin(&api_ollama_chat);
    add("f", "{\"a\"", NULL);
    add(NULL, ":1}", NULL);
    check_out("");
    add("g", "{\"b", NULL);
    check_out(CALL("f", "{\"a\":1}"));
    add(NULL, "", "length");
    api_ollama_chat.write_done(&out, &answer, &usage);
    check_out(CALL("g", "{}") HEAD
              "\"message\":{\"role\":\"assistant\",\"content\":\"\"}" TAIL("length") "\n");
    end();
}
END_TEST

/* Clients read line by line, but a model may write arguments over several lines. */
START_TEST(arguments_stay_on_one_line) {
    begin(&api_ollama_chat);
    add("f", "{\n  \"a\": \"\\n\"\r\n}", NULL);
    add(NULL, "", "tool_calls");
    api_ollama_chat.write_done(&out, &answer, &usage);
    check_out(CALL("f", "{   \"a\": \"\\n\"  }") HEAD
              "\"message\":{\"role\":\"assistant\",\"content\":\"\"}" TAIL("stop") "\n");
    end();
}
END_TEST

START_TEST(errors_are_one_member) {
    struct err err;
    err_set(&err, STATUS_INVALID_REQUEST, "a", "Say \"a\".");
    api_ollama_chat.write_error(&out, &err, "id");
    check_out("{\"error\":\"Say \\\"a\\\".\"}");
    api_ollama_chat.write_error_event(&out, &answer, &err);
    check_out("{\"error\":\"Say \\\"a\\\".\"}\n");
    buf_free(&out);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_ollama");
    TCase *tests = tcase_create("core");
    tcase_add_test(tests, options_become_fields);
    tcase_add_test(tests, negative_numbers_are_absent);
    tcase_add_test(tests, a_prompt_is_a_message_unless_it_is_raw);
    tcase_add_test(tests, results_belong_to_calls_in_order);
    tcase_add_test(tests, a_format_is_a_grammar);
    tcase_add_loop_test(tests, bad_bodies_are_refused_by_name, 0, sizeof refused / sizeof *refused);
    tcase_add_test(tests, generate_refuses_by_name);
    tcase_add_loop_test(tests, a_body_without_a_prompt_loads_the_model, 0,
                        sizeof loads / sizeof *loads);
    tcase_add_test(tests, models_are_listed_under_all_names_but_run_under_one);
    tcase_add_test(tests, show_has_the_context_and_the_capabilities);
    tcase_add_loop_test(tests, show_takes_a_served_name, 0, sizeof shown / sizeof *shown);
    tcase_add_test(tests, paths_of_ollama_that_are_not_served_say_why);
    tcase_add_test(tests, whole_answers);
    tcase_add_test(tests, a_stream_of_text);
    tcase_add_test(tests, a_stream_has_whole_calls);
    tcase_add_test(tests, arguments_stay_on_one_line);
    tcase_add_test(tests, errors_are_one_member);
    suite_add_tcase(suite, tests);
    return suite_main(suite);
}
