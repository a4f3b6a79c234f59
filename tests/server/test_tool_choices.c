/* The grammar of answers with tools by the request's choice: which calls it allows, and which
 * content and thoughts beside them. */
#include <check.h>
#include <string.h>

#include "support/suite_main.h"
#include "support/tool_rows.h"

/* ---- allowed texts, by tool choice ---------------------------------------------------------- */

/* Answers that may call, that must call, that must call once, and that must call f: '+' is allowed,
 * '-' is not. */
static const struct {
    const char *format, *passes, *text;
} answers[] = {
    {"hermes", "+---", "Hi."},
    {"hermes", "+---", "a <tool_ b </tool_call>"},
    {"hermes", "+---", "So.\n" HERMES("f", ARGS) " and more"},
    {"hermes", "++++", HERMES("f", ARGS)},
    {"hermes", "+++-", HERMES("get_time-2.x", "{}")},
    {"hermes", "++--", HERMES("f", ARGS) "\n" HERMES("f", ARGS)},
    {"hermes", "++++", "<think>\nA <tool_call>?\n</think>\n\n" HERMES("f", ARGS)},
    {"hermes", "----", "<tool_call>x</tool_call>"},
    {"functionary_v32", "+---", "all\nIn Python, >>> f(1) is a line."},
    {"functionary_v32", "++++", "f\n" ARGS},
    {"functionary_v32", "+---", "all\nSo.>>>f\n" ARGS},
    {"functionary_v32", "++--", "f\n" ARGS ">>>f\n" ARGS},
    {"functionary_v32", "----", "So."},
    {"command_r", "+---", "A call to Action: sign up."},
    {"command_r", "+---", "Action:\nwait"},
    {"hermes", "----", HERMES("g", "{}")},
    {"hermes", "----", HERMES("f", "{}")},
    {"hermes", "----", HERMES("f", "{\"n\": 1, \"p\": \"ab\", \"z\": 1}")},
    {"hermes", "----", HERMES("get_time-2.x", "{\"n\": 1}")},
    {"hermes", "----", "<tool_call>\n{\"name\": \"f\", \"arguments\": " ARGS},
    {"qwen3_coder", "----",
     TOOL("<function=f>\n" XML "<parameter=z>\n1\n</parameter>\n</function>")},
    {"qwen3_coder", "----", TOOL("<function=f>\n<parameter=n>\n1\n</parameter>\n</function>")},
    {"qwen3_coder", "----",
     TOOL("<function=f>\n" XML "<parameter=m>\nb\n</parameter>\n</function>")},
    {"qwen3_coder", "++++",
     TOOL("<function=f>\n" XML "<parameter=m>\n\"b\"\n</parameter>\n</function>")},
    {"qwen3_coder", "+---", "<function=f>\n" XML "</function>"},
    {"qwen3_coder", "----", "<function=f>\n</function>"},
    {"pythonic", "+---", "[1] is f(n=1)."},
    {"pythonic", "----", " [ f (n=1, p=2)]"},
    {"pythonic", "+---", "So [f(n=1)]"},
    {"pythonic", "+++-", "[get_time-2.x()]"},
    {"pythonic", "----", "[get_time-2.x(), 1]"},
    {"llama3_json", "+---", "{\"city\": \"Paris\"}"},
    /* no call begins so: these are texts */
    {"llama3_json", "+---", "{\"parameters\": {}, \"name\": \"f\"}"},
    {"llama3_json", "+---", "{\"name\":\"f\"}"},
    {"llama3_json", "+---", "{\"name\": \"f\", \"city\": \"Paris\"}"},
    {"llama3_json", "+---", "{\"city\": \"Paris\", \"name\": \"f\", \"parameters\": {}}"},
    {"llama3_json", "+---", "{\"name\": \"f\", \"parameters\": 3}"},
    /* other spellings of a call's beginning */
    {"llama3_json", "----", "{\"name\":\"f\",\"parameters\":{}}"},
    {"llama3_json", "++++", "{\"name\":\"f\",\"parameters\":" ARGS "}"},
    {"llama3_json", "++++", "{\n  \"name\": \"f\",\n  \"arguments\": " ARGS "\n}"},
    {"llama3_json", "++++", "{\"type\": \"function\", \"name\": \"f\", \"parameters\": " ARGS "}"},
    {"hermes", "++++", TOOL("{\"name\":\"f\",\"arguments\":" ARGS "}")},
    {"llama3_json", "++++", "{\"name\": \"f\", \"parameters\": " ARGS "}"},
    {"openai", "++++", H_THINK H_CALL ARGS},
    {"openai", "----", H_CALL "{}"},
    {"openai", "----", H_CALL ARGS "<|start|>assistant"},
    {"openai", "+---", H_THINK "<|channel|>final<|message|>Yes."},
    {"openai", "----", "<|channel|>final<|message|>Yes.<|end|><|start|>assistant" H_CALL "{}"},
    {"openai", "----", "Yes."},
};

START_TEST(a_choice_lets_pass_what_it_says) {
    for (int k = 0; k < 4; k++) {
        struct tool_grammar asked = tool_row(answers[_i].format);
        asked.must_call = k > 0;
        asked.parallel = k < 2;
        asked.filter.only = k == 3 ? "f" : NULL;
        struct grammar *grammar = grammar_of_tools(&asked);
        bool passes = grammar_accepts(grammar, answers[_i].text);
        ck_assert_msg(passes == (answers[_i].passes[k] == '+'), "choice %d: %s", k,
                      answers[_i].text);
        grammar_release(grammar);
    }
}
END_TEST

/* Only tools that the choice allows may be called. */
START_TEST(allowed_tools_are_the_only_ones) {
    const char *text = "[{\"type\":\"function\",\"function\":{\"name\":\"get_time-2.x\"}}]";
    struct json *allowed;
    struct err err;
    ck_assert_int_eq(json_parse(&allowed, "It", text, strlen(text), &err), STATUS_OK);
    for (int k = 0; k < 2; k++) {
        struct tool_grammar asked = tool_row("hermes");
        asked.must_call = k;
        asked.filter.allowed = allowed;
        struct grammar *grammar = grammar_of_tools(&asked);
        ck_assert(grammar_accepts(grammar, HERMES("get_time-2.x", "{}")));
        ck_assert(!grammar_accepts(grammar, HERMES("f", "{\"n\": 1, \"p\": \"ab\"}")));
        ck_assert_int_eq(grammar_accepts(grammar, "Yes."), !k);
        grammar_release(grammar);
        struct tool_set *set = tool_set_new(tools, &asked.filter);
        ck_assert(tool_set_has(set, "get_time-2.x") && !tool_set_has(set, "f"));
        tool_set_free(set);
    }
    json_free(allowed);
}
END_TEST

/* A schema that lists its properties allows no others, unless it says so. */
START_TEST(arguments_have_no_other_members) {
    static const char *const more[] = {"", ",\"additionalProperties\":true"};
    for (int i = 0; i < 2; i++) {
        struct buf text = {0};
        struct json *json;
        struct err err;
        buf_printf(&text,
                   "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{"
                   "\"properties\":{\"n\":{\"type\":\"integer\"}}%s}}}]",
                   more[i]);
        ck_assert_int_eq(json_parse(&json, "It", text.data, text.length, &err), STATUS_OK);
        struct tool_grammar asked = tool_row("hermes");
        asked.functions = json;
        struct grammar *grammar = grammar_of_tools(&asked);
        ck_assert(grammar_accepts(grammar, HERMES("f", "{\"n\": 1}")));
        ck_assert_int_eq(grammar_accepts(grammar, HERMES("f", "{\"n\": 1, \"z\": 1}")), i);
        grammar_release(grammar);
        json_free(json);
        buf_free(&text);
    }
}
END_TEST

/* A format for content replaces free text outside calls. */
START_TEST(content_may_have_a_format) {
    struct tool_grammar asked = tool_row("hermes");
    asked.content = "{\"type\":\"json_schema\",\"json_schema\":{\"type\":\"integer\"}}";
    struct grammar *grammar = grammar_of_tools(&asked);
    ck_assert(grammar_accepts(grammar, "<think>a</think>\n12"));
    ck_assert(grammar_accepts(grammar, HERMES("f", ARGS)));
    ck_assert(!grammar_accepts(grammar, "Hi."));
    ck_assert(!grammar_accepts(grammar, "12" HERMES("f", ARGS)));
    grammar_release(grammar);
}
END_TEST

static const struct {
    const char *reasoning, *text;
    bool passes;
} thoughts[] = {
    {"qwen3", "12", true},
    {"qwen3", "<think>\nIt is 13.\n</think>\n\n12", true},
    {"qwen3", "\n12", false}, /* blanks follow thoughts, and the parser drops them */
    {"qwen3", "<think>a</think><think>", false},
    {"qwen3", "<think>a</think>a", false},
    {"qwen3", "12<think>", false},
    {"mistral", "[THINK]a[/THINK]12", true},
    {"openai_gptoss", H_THINK "<|channel|>final<|message|>12", true},
    {"openai_gptoss", "<|channel|>final<|message|>12", true},
    {"kimi_k3", K3_THOUGHT XTML("response", "12") "<|close|>message<|sep|>", true},
    {"kimi_k3", "12<|close|>response<|sep|>", true},
    {"kimi_k3", "12", true},
    {"kimi_k3", XTML("response", "a"), false},
    {"openai_gptoss", "12", false},
    {"openai_gptoss", "<|channel|>commentary<|message|>", false}, /* it is content */
};

/* Also without tools. An allowed text is read as thoughts, and content that matches the format. */
START_TEST(thoughts_come_before_content) {
    struct message_settings settings = {.reasoning = reasoning_format_find(thoughts[_i].reasoning)};
    const char *text = thoughts[_i].text;
    struct buf tag = {0};
    struct grammar *grammar;
    struct message message = {0};
    thoughts_grammar_write(settings.reasoning, true,
                           "{\"type\":\"json_schema\",\"json_schema\":{\"type\":\"integer\"}}",
                           &tag);
    ck_assert(!grammar_compile(GRAMMAR_STRUCTURAL_TAG, tag.data, tag.length, NULL, &grammar, NULL));
    ck_assert_int_eq(grammar_accepts(grammar, text), thoughts[_i].passes);
    struct message_parser *parser = message_parser_new(&settings);
    message_parser_add(parser, text, strlen(text), &message);
    message_parser_finish(parser, &message);
    if (thoughts[_i].passes) ck_assert_str_eq(message.content.data, "12");
    message_parser_free(parser);
    message_free(&message);
    grammar_release(grammar);
    buf_free(&tag);
}
END_TEST

/* If reasoning is open, only marks are added. */
START_TEST(marks_surround_content_after_reasoning) {
    static const char content[] = "{\"type\":\"const_string\",\"value\":\"12\"}";
    struct buf tag = {0};
    thoughts_grammar_write(reasoning_format_find("kimi_k3"), false, content, &tag);
    struct grammar *grammar = compile_text(GRAMMAR_STRUCTURAL_TAG, tag.data);
    ck_assert(grammar_accepts(grammar, XTML("response", "12") "<|close|>message<|sep|>"));
    ck_assert(grammar_accepts(grammar, "12"));
    ck_assert(!grammar_accepts(grammar, K3_THOUGHT "12"));
    ck_assert(!grammar_accepts(grammar, XTML("response", "12") "12"));
    grammar_release(grammar);
    buf_free(&tag);
}
END_TEST

/* With a format for content, an answer is calls or content in its marks. */
START_TEST(marks_surround_content_beside_calls) {
    struct tool_grammar asked = tool_row("kimi_k3");
    asked.content = "{\"type\":\"const_string\",\"value\":\"12\"}";
    for (int must_call = 0; must_call < 2; must_call++) {
        asked.must_call = must_call;
        struct grammar *grammar = grammar_of_tools(&asked);
        ck_assert_int_eq(grammar_accepts(grammar, XTML("response", "12")), !must_call);
        ck_assert(grammar_accepts(grammar, XTML("response", "") K3_NONE));
        ck_assert(grammar_accepts(grammar, K3_NONE "<|close|>message<|sep|>"));
        ck_assert(!grammar_accepts(grammar, XTML("response", "12") K3_NONE));
        grammar_release(grammar);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("server_tool_choices");
    TCase *t = tcase_create("grammar");
    tcase_add_checked_fixture(t, tool_rows_open, tool_rows_close);
    tcase_add_loop_test(t, a_choice_lets_pass_what_it_says, 0, COUNT(answers));
    tcase_add_test(t, allowed_tools_are_the_only_ones);
    tcase_add_test(t, arguments_have_no_other_members);
    tcase_add_test(t, content_may_have_a_format);
    tcase_add_test(t, marks_surround_content_after_reasoning);
    tcase_add_test(t, marks_surround_content_beside_calls);
    tcase_add_loop_test(t, thoughts_come_before_content, 0, COUNT(thoughts));
    suite_add_tcase(s, t);
    return suite_main(s);
}
