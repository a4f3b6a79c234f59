/* The fields of a chat's body about tools: which are visible, which may or must be called. */
#include <check.h>
#include <string.h>

#include "server/openai/internal.h"
#include "support/suite_main.h"

#define TOOL "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}"

#define ALLOWED(mode, tools)                                                                       \
    "{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"" mode "\",\"tools\":[" tools "]}}"

static struct api_limits limits = {.model = "m",
                                   .V = 1000,
                                   .max_model_len = 64,
                                   .max_choices = 16,
                                   .max_prompts = 8,
                                   .has_chat_template = true};

static enum status request_read(struct api_request **out, const char *body, struct err *err) {
    struct json *json;
    *out = NULL;
    limits.tool_format = tool_format_find("hermes");
    enum status status = json_parse(&json, "The body", body, strlen(body), err);
    return status ? status : api_chat.parse(out, json, &limits, err);
}

static struct api_request *parsed(const char *body) {
    struct api_request *request;
    struct err err = {0};
    ck_assert_msg(request_read(&request, body, &err) == STATUS_OK, "%s: %s", body, err.message);
    return request;
}

/* The template gets the tools unchanged, and the arguments of calls as objects. */
START_TEST(tools_are_for_the_template) {
    struct api_request *r =
        parsed("{\"messages\":[{\"role\":\"assistant\",\"refusal\":null,\"tool_calls\":[{\"id\":"
               "\"c\",\"type\":"
               "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":[1,2]}\"}},{"
               "\"function\":"
               "{\"arguments\":\"\",\"name\":\"g\"}},{\"function\":{\"name\":\"h\",\"arguments\":{"
               "\"b\":1}}}]},"
               "{\"role\":\"tool\",\"content\":\"4\",\"tool_call_id\":\"c\"},"
               "{\"role\":\"assistant\",\"content\":\"x\",\"tool_calls\":[],\"tool_calls\":null}],"
               "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],\"tool_choice\":"
               "\"none\"}");
    const struct json *first = r->prompts[0].messages->child, *last = first->next->next;
    ck_assert_str_eq(json_member(first, "content")->string, "");
    ck_assert_int_eq(first->n_children, 4);
    const struct json *call = json_member(first, "tool_calls")->child;
    const struct json *arguments = json_member(json_member(call, "function"), "arguments");
    ck_assert(json_is(arguments, JSON_OBJECT));
    ck_assert_str_eq(arguments->name, "arguments");
    ck_assert_int_eq(json_member(arguments, "a")->n_children, 2);
    const struct json *function = json_member(call->next, "function");
    ck_assert(json_is(json_member(function, "arguments"), JSON_OBJECT));
    /* the later members are still there */
    ck_assert_str_eq(json_member(function, "name")->string, "g");
    function = json_member(call->next->next, "function");
    ck_assert_int_eq(json_member(json_member(function, "arguments"), "b")->integer, 1);
    ck_assert_ptr_null(json_member(last, "tool_calls"));
    api_request_free(r);
}
END_TEST

/* Arguments that a limit cut, or that are no object, stay a text: a model wrote them. */
START_TEST(broken_arguments_stay_a_text) {
    static const char *const texts[] = {"{\\\"contents\\\": \\\"half a sen", "[1, 2]", "7", "no",
                                        "{"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct buf body = {0};
        buf_printf(&body,
                   "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c\",\"type\":"
                   "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"%s\"}}]},"
                   "{\"role\":\"tool\",\"content\":\"4\",\"tool_call_id\":\"c\"}]}",
                   texts[i]);
        struct api_request *r = parsed(body.data);
        const struct json *call = json_member(r->prompts[0].messages->child, "tool_calls")->child;
        const struct json *arguments = json_member(json_member(call, "function"), "arguments");
        ck_assert(json_is(arguments, JSON_STRING));
        ck_assert_int_eq(json_text(arguments)[0] == '\0', 0);
        api_request_free(r);
        buf_free(&body);
    }
}
END_TEST

/* Templates read the content only, so the refusal of an earlier answer becomes a part of it. */
START_TEST(refusals_become_content) {
    static const struct {
        const char *members, *content;
    } rows[] = {
        {"\"content\":null,\"refusal\":\"No.\"", "No."},
        {"\"refusal\":\"No.\"", "No."},
        {"\"refusal\":\"\"", ""},
        {"\"content\":\"Hm.\",\"refusal\":\"No.\"", "Hm.\nNo."},
        {"\"content\":[{\"type\":\"refusal\",\"refusal\":\"No.\"}]", "No."},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf body = {0};
        buf_printf(&body, "{\"messages\":[{\"role\":\"assistant\",%s}]}", rows[i].members);
        struct api_request *r = parsed(body.data);
        const struct json *message = r->prompts[0].messages->child;
        ck_assert_str_eq(json_text(json_member(message, "content")), rows[i].content);
        ck_assert_ptr_null(json_member(message, "refusal"));
        api_request_free(r);
        buf_free(&body);
    }
}
END_TEST

/* The template sees the tools that the answer may call. */
START_TEST(tools_are_seen_unless_the_choice_is_none) {
    static const struct {
        const char *fields;
        bool seen, parallel;
    } rows[] = {{"\"tools\":[" TOOL "]", true, true},
                {"\"tools\":[" TOOL "],\"tool_choice\":null", true, true},
                {"\"tools\":[" TOOL "],\"tool_choice\":\"auto\",\"parallel_tool_calls\":false",
                 true, false},
                {"\"tools\":[" TOOL "],\"tool_choice\":\"none\"", false, true},
                {"\"tool_choice\":\"auto\",\"tools\":[]", false, true},
                {"\"tool_choice\":\"none\"", false, true},
                {"\"tools\":[" TOOL "],\"tool_choice\":\"required\"", true, true},
                {"\"tools\":[" TOOL "],\"tool_choice\":{\"type\":\"function\",\"function\":{"
                 "\"name\":\"f\"}}",
                 true, true},
                {"\"tools\":[" TOOL "],\"tool_choice\":" ALLOWED("required", TOOL), true, true},
                {"\"tools\":[" TOOL ",{\"type\":\"function\",\"function\":{\"name\":\"g\"}}],"
                 "\"tool_choice\":" ALLOWED("auto", TOOL),
                 true, true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf body = {0};
        buf_printf(&body, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],%s}",
                   rows[i].fields);
        struct api_request *r = parsed(body.data);
        ck_assert_int_eq(r->prompts[0].tools != NULL, rows[i].seen);
        ck_assert_int_eq(r->tool_choice, !rows[i].seen     ? TOOL_CHOICE_NONE
                                         : i < 6 || i == 9 ? TOOL_CHOICE_AUTO
                                                           : TOOL_CHOICE_REQUIRED);
        ck_assert_int_eq(r->callable.only != NULL, i == 7);
        ck_assert_int_eq(r->callable.allowed != NULL, i > 7);
        ck_assert_int_eq(r->parallel_tool_calls, rows[i].parallel);
        api_request_free(r);
        buf_free(&body);
    }
}
END_TEST

/* ---- refusals -------------------------------------------------------------------------------- */

static const struct {
    const char *fields, *param, *says;
} refused[] = {
    {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":[]}}]}",
     "tools[0].function.parameters", "must be an object, the schema of the arguments"},
    {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":"
     "[\"array\",\"null\"]}}}]}",
     "tools[0].function.parameters", "must have the 'type' \"object\""},
    {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],\"tool_choice\":{"
     "\"type\":\"function\",\"function\":{\"name\":\"g\"}}}",
     "tool_choice", "names a function that is not in 'tools'"},
    {"\"tools\":[" TOOL "],\"tool_choice\":" ALLOWED("none", TOOL) "}", "tool_choice",
     "with a 'mode' of \"auto\" or \"required\""},
    {"\"tools\":[" TOOL "],\"tool_choice\":" ALLOWED("auto", "") "}", "tool_choice",
     "with 'tools', at least one"},
    {"\"tools\":[" TOOL "],\"tool_choice\":" ALLOWED("auto", TOOL ",{\"name\":\"f\"}") "}",
     "tool_choice.allowed_tools.tools[1]", "must be {\"type\": \"function\""},
    {"\"tools\":[" TOOL "],\"tool_choice\":" ALLOWED(
         "required", TOOL ",{\"type\":\"function\",\"function\":{\"name\":\"g\"}}") "}",
     "tool_choice", "names a function that is not in 'tools'"},
    {"\"tool_choice\":" ALLOWED("auto", TOOL) "}", "tool_choice", "there are no 'tools'"},
    {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],\"best_of\":2,"
     "\"use_beam_search\":true}",
     "tools", "are not served together with 'use_beam_search'"},
};

START_TEST(a_refusal_names_the_tool) {
    struct buf body = {0};
    struct api_request *request;
    struct err err = {0};
    buf_printf(&body, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],%s",
               refused[_i].fields);
    ck_assert_int_eq(request_read(&request, body.data, &err), STATUS_INVALID_REQUEST);
    ck_assert_str_eq(err.param, refused[_i].param);
    ck_assert_msg(strstr(err.message, refused[_i].says), "%s: '%s'", body.data, err.message);
    buf_free(&body);
}
END_TEST

/* Each name is looked up among all tools, so their number is bounded. */
START_TEST(there_may_be_1024_tools) {
    for (int n = 1024; n <= 1025; n++) {
        for (int is_allowed = 0; is_allowed < 2; is_allowed++) {
            struct buf body = {0};
            struct api_request *request;
            struct err err = {0};
            buf_puts(&body,
                     "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":[" TOOL);
            for (int i = 1; i < (is_allowed ? 1 : n); i++) buf_puts(&body, "," TOOL);
            buf_puts(&body, "],\"tool_choice\":");
            if (is_allowed)
                buf_puts(&body, "{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"auto\","
                                "\"tools\":[" TOOL);
            for (int i = 1; is_allowed && i < n; i++) buf_puts(&body, "," TOOL);
            buf_puts(&body, is_allowed ? "]}}}" : "\"auto\"}");
            enum status status = request_read(&request, body.data, &err);
            ck_assert_msg((status == STATUS_OK) == (n == 1024), "%s", err.message);
            ck_assert(n == 1024 || strstr(err.message, "at most 1024 tools"));
            api_request_free(request);
            buf_free(&body);
        }
    }
}
END_TEST

/* A template may have the markers of one form and write another. */
START_TEST(another_form_is_refused_but_not_without_tools) {
    struct json *json;
    struct api_request *r;
    struct err err = {0};
    const char *body =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[" TOOL "]}";
    limits.other_tool_format = tool_format_find("hermes");
    limits.tool_format = NULL;
    ck_assert_int_eq(json_parse(&json, "It", body, strlen(body), &err), STATUS_OK);
    ck_assert_int_eq(api_chat.parse(&r, json, &limits, &err), STATUS_INVALID_REQUEST);
    ck_assert_ptr_nonnull(strstr(err.message, "writes tool calls in another form than 'hermes'"));
    body = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}";
    ck_assert_int_eq(json_parse(&json, "It", body, strlen(body), &err), STATUS_OK);
    ck_assert_int_eq(api_chat.parse(&r, json, &limits, &err), STATUS_OK);
    api_request_free(r);
    limits.other_tool_format = NULL;
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_request_tools");
    TCase *core = tcase_create("core");
    tcase_add_test(core, tools_are_for_the_template);
    tcase_add_test(core, broken_arguments_stay_a_text);
    tcase_add_test(core, refusals_become_content);
    tcase_add_test(core, tools_are_seen_unless_the_choice_is_none);
    tcase_add_test(core, there_may_be_1024_tools);
    tcase_add_test(core, another_form_is_refused_but_not_without_tools);
    tcase_add_loop_test(core, a_refusal_names_the_tool, 0, sizeof refused / sizeof *refused);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
