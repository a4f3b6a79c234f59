/* Answers as messages: the thoughts of each family and harmony's channels are found, for any cuts
 * of the text, and the formats of a template are found. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/message/internal.h"
#include "support/read_message.h"
#include "support/suite_main.h"

/* ---- the tools that all answers may call ---------------------------------------------------- */

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"s\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"},\"l\":{\"type\":"
    "\"array\"},\"o\":{\"type\":\"object\"},\"b\":{\"type\":\"boolean\"},\"m\":{\"type\":"
    "[\"string\",\"null\"]},\"e\":{\"enum\":[\"x\",3]},\"a\":{\"anyOf\":[{\"type\":\"number\"},"
    "{\"const\":\"k\"}]},\"u\":{}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"get_time-2.x\"}}]";

static struct json *tools;
static struct tool_set *known;

static void set_up(void) {
    struct err err;
    ck_assert_int_eq(json_parse(&tools, "It", tools_text, strlen(tools_text), &err), STATUS_OK);
    known = tool_set_new(tools, NULL);
}

static void tear_down(void) {
    tool_set_free(known);
    json_free(tools);
}

/* ---- thoughts ------------------------------------------------------------------------------- */

struct row {
    const char *format, *text, *message;
};

struct thought {
    const char *format;
    const char *prompt, *last; /* the answer follows these */
    const char *text, *message;
};

static const struct thought thoughts[] = {
    {"qwen3", "x<|im_start|>assistant\n", NULL, "<think>\nHm.\n</think>\n\nYes.", "R{Hm.}C{Yes.}"},
    {"qwen3", "", NULL, "\n <think>Hm", "R{Hm}"},
    {"qwen3", "", NULL, "<think></think>Yes. ", "C{Yes. }"},
    {"qwen3", "", NULL, "Yes <think>no</think>", "C{Yes <think>no</think>}"},
    {"qwen3", "", NULL, " <thing>", "C{ <thing>}"},
    {"qwen3", "", NULL, " <thi", "C{ <thi}"},
    {"qwen3", "", NULL, "<think>a </thin </think>", "R{a </thin}"},
    {"qwen3", "", NULL, "<think>a <</think>b", "R{a <}C{b}"},
    {"qwen3", "", NULL, "<think>a </thi", "R{a </thi}"},
    {"deepseek_r1", "<Assistant><think>\n", NULL, "Hm.\n</think>\nYes.", "R{Hm.}C{Yes.}"},
    {"deepseek_r1", "<Assistant><think>", NULL, "</think>Yes.", "C{Yes.}"},
    {"qwen3", "<think>\n\n</think>\n\n", NULL, "<think>No", "C{<think>No}"},
    {"qwen3", "<think>Hm", "<think>Hm", " so</think> Yes", "R{ so}C{Yes}"},
    {"qwen3", "<think>a</think>B", "<think>a</think>B", " is <think>", "C{ is <think>}"},
    {"qwen3", "So", "So", " it is", "C{ it is}"},
    {"qwen3", "So", "So", "<think>x", "C{<think>x}"},
    {"mistral", "", NULL, "[THINK]Hm[/THINK]Yes", "R{Hm}C{Yes}"},
    {"granite", "", NULL, "Here is my thought process:\nHm.\nHere is my response:\nYes.",
     "R{Hm.}C{Yes.}"},
    {"granite", "", NULL, "Here is my dog.", "C{Here is my dog.}"},
    {"seed_oss", "", NULL, "<seed:think>Hm</seed:think>Yes", "R{Hm}C{Yes}"},
    /* marks around content */
    {"hunyuan_a13b", "", NULL, "<think>\nHm.\n</think>\n<answer>\nYes.\n\n</answer>",
     "R{Hm.}C{Yes.}"},
    {"hunyuan_a13b", "", NULL, "<think>\n\n</think>\n<answer>\nYes </answers>",
     "C{Yes </answers>}"},
    {"ernie45", "<think>\n", NULL, "Hm\n</think>\n\n<response>\nYes\n</response>\n", "R{Hm}C{Yes}"},
    {"kimi_k3", "<|open|>think<|sep|>", NULL,
     "Hm<|close|>think<|sep|><|open|>response<|sep|>Yes<|close|>response<|sep|>"
     "<|close|>message<|sep|>",
     "R{Hm}C{Yes}"},
    {"kimi_k3", "<|open|>response<|sep|>", NULL, "Yes<|close|>response<|sep|>", "C{Yes}"},
    {"kimi_k3", "", NULL, "<|open|>think<|sep|>Hm<|close|>think<|sep|><|open|>response<|sep|>Yes",
     "R{Hm}C{Yes}"},
    {"kimi_k3", "<|open|>think<|sep|>", NULL, "Hm <|close|>thi <|close|>think<|sep|>",
     "R{Hm <|close|>thi}"},
    {"kimi_k3", "", NULL, "A <|open|>respond <|close|>response<|sep|>", "C{A <|open|>respond }"},
};

START_TEST(thoughts_are_split_off) {
    const struct thought *row = &thoughts[_i];
    struct message_settings settings = {.reasoning = reasoning_format_find(row->format)};
    ck_assert_ptr_nonnull(settings.reasoning);
    message_settings_see_prompt(&settings, row->prompt, strlen(row->prompt), row->last);
    expect_message(&settings, row->text, row->message);
}
END_TEST

#define H_THINK "<|channel|>analysis<|message|>Hm. <b>\n<|end|>"
#define H_NEXT "<|start|>assistant"
#define H_FINAL "<|channel|>final<|message|>"
#define H_CALL "<|channel|>commentary to=functions.f <|constrain|>json<|message|>"

/* Harmony's answers. Each part has a channel. */
START_TEST(parts_go_to_their_places) {
    static const struct row rows[] = {
        {NULL, H_THINK H_NEXT H_FINAL "Yes. <|x", "R{Hm. <b>}C{Yes. <|x}"},
        {NULL, H_THINK H_NEXT H_CALL "{\"n\": 1}<|call|>", "R{Hm. <b>}f({\"n\": 1})"},
        {NULL, H_CALL "{}<|call|>" H_NEXT " to=functions.f<|channel|>commentary<|message|> {}",
         "f({})f({})"},
        {NULL, "<|channel|>commentary<|message|>I look.<|end|>" H_NEXT H_CALL "{}",
         "C{I look.}f({})"},
        {NULL, "<|channel|>commentary to=functions.g<|message|>{}<|call|>", "C{{}}"},
        {NULL, H_CALL "no<|call|>", "C{no}"},
        {NULL, "Yes.", "C{Yes.}"},
        {NULL, H_THINK "<|start|>assi", "R{Hm. <b>}"},
    };
    struct message_settings settings = {.tools = tool_format_find("openai"),
                                        .reasoning = reasoning_format_find("openai_gptoss"),
                                        .known = known};
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        settings.stream_calls = i % 2;
        expect_message(&settings, rows[i / 2].text, rows[i / 2].message);
    }
    settings.stream_calls = false;
    settings.reasoning = NULL;
    expect_message(&settings, H_THINK, "C{Hm. <b>\n}");
    settings.reasoning = reasoning_format_find("openai_gptoss");
    settings.tools = NULL;
    expect_message(&settings, H_CALL "{}<|call|>", "C{{}}");
    settings.tools = tool_format_find("openai");
    expect_message(&settings, H_CALL "{\"n\": <|call|>", "C{{\"n\": }");
}
END_TEST

START_TEST(calls_come_behind_thoughts) {
    struct message_settings settings = {.tools = tool_format_find("hermes"),
                                        .reasoning = reasoning_format_find("qwen3"),
                                        .known = known};
    expect_message(&settings,
                   "<think>\nA <tool_call>?\n</think>\n\n<tool_call>\n{\"name\":\"f\"}\n"
                   "</tool_call>",
                   "R{A <tool_call>?}f({})");
    settings.tools = tool_format_find("llama3_json");
    expect_message(&settings, "<think>a</think>\n{\"name\":\"f\"}", "R{a}f({})");
}
END_TEST

/* ---- selecting the format ------------------------------------------------------------------- */

START_TEST(formats_are_found_by_name) {
    static const char *const none[] = {"", "herm", "hermes ", "qwen3_coder qwen3_xml", "none"};
    struct buf names = {0};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        ck_assert_ptr_null(tool_format_find(none[i]));
        ck_assert_ptr_null(reasoning_format_find(none[i]));
    }
    ck_assert_ptr_eq(tool_format_find("qwen3_xml"), tool_format_find("qwen3_coder"));
    ck_assert_ptr_ne(tool_format_find("hermes"), tool_format_find("mistral"));
    tool_format_names(&names);
    for (char *name = strtok(names.data, ", "); name; name = strtok(NULL, ", "))
        ck_assert_ptr_nonnull(tool_format_find(name));
    buf_clear(&names);
    reasoning_format_names(&names);
    ck_assert_ptr_nonnull(strstr(names.data, "qwen3, deepseek_r1"));
    buf_free(&names);
}
END_TEST

#define DS(word) "<\xEF\xBD\x9Ctool\xE2\x96\x81" word "\xEF\xBD\x9C>"
#define CALLS(word) DS("calls\xE2\x96\x81" word)
#define CALL(word) DS("call\xE2\x96\x81" word)

START_TEST(formats_are_found_by_template) {
    static const struct row rows[] = {
        {"hermes", "return <tool_call>\\n", NULL},
        {"qwen3_coder", "<tool_call>\\n<function=example>", NULL},
        {"mistral", "{{ '[TOOL_CALLS] [' }}", NULL},
        {"mistral_v11", "{{ '[TOOL_CALLS]' + name + '[ARGS]' }}", NULL},
        {"deepseek_v3", CALLS("begin") CALL("begin") "'\\n' + '```json'", NULL},
        {"deepseek_v31", CALLS("begin") CALL("begin"), NULL},
        {"openai", "<|start|>assistant<|channel|>commentary to=x<|message|>y<|call|>", NULL},
        {"granite", "<|tool_call|>", NULL},
        {"olmo3", "<function_calls>", NULL},
        {"llama3_json", "{\"name\": function name, \"parameters\": dictionary of argument name",
         NULL},
        {"pythonic", "[func_name1(params_name1=params_value1", NULL},
        {"glm45", "<tool_call>{name}\\n<arg_key>", NULL},
        {"kimi_k3", "{{ '<|open|>' + tag + '<|sep|>' }}{{ '<|close|>' + tag }}", NULL},
        {"minimax_m3", "]<]minimax[>[<tool_call> <mm:think>", NULL},
        {"minimax", "<beginning_of_sentence>system tool_setting=tools <tool_calls>", NULL},
        {"functionary_v31", "start_tag => `<function`\\n <function=example_function_name>{", NULL},
        {NULL, "{{ message.content }} ```json", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct tool_format *format = rows[i].format ? tool_format_find(rows[i].format) : NULL;
        ck_assert_msg(tool_format_of_template(rows[i].text, strlen(rows[i].text)) == format, "%s",
                      rows[i].text);
    }
    ck_assert_ptr_eq(reasoning_format_of_template("a<think>b", 9), reasoning_format_find("qwen3"));
    ck_assert_ptr_eq(reasoning_format_of_template("a<mm:think>", 11),
                     reasoning_format_find("minimax_m3"));
    ck_assert_ptr_eq(reasoning_format_of_template("'<|open|>'", 10),
                     reasoning_format_find("kimi_k3"));
    ck_assert_ptr_null(reasoning_format_of_template("think", 5));
    const char *plain = "<think>", *worded = "set t = ':opensource'", *newer = "':6124c78e'";
    const struct reasoning_format *of_worded = reasoning_format_of_template(worded, strlen(worded));
    ck_assert_str_eq(reasoning_format_marks(of_worded, false).begin, "<think:opensource>");
    ck_assert_ptr_eq(reasoning_format_named("hy_v3", worded, strlen(worded)), of_worded);
    ck_assert_ptr_eq(reasoning_format_named("hy_v3", plain, strlen(plain)),
                     reasoning_format_find("qwen3"));
    ck_assert_str_eq(
        reasoning_format_marks(reasoning_format_named("hy_v4", newer, strlen(newer)), false).end,
        "</think:6124c78e>");
    ck_assert_ptr_null(reasoning_format_named("none", plain, strlen(plain)));
}
END_TEST

START_TEST(markers_are_known) {
    const struct tool_format *mistral = tool_format_find("mistral");
    const struct reasoning_format *think = reasoning_format_find("qwen3");
    ck_assert(message_has_marker(mistral, NULL, "[TOOL_CALLS]", 12));
    ck_assert(message_has_marker(mistral, NULL, "[ARGS]", 6));
    ck_assert(!message_has_marker(mistral, NULL, "<s>", 3));
    ck_assert(!message_has_marker(mistral, NULL, "", 0));
    ck_assert(message_has_marker(NULL, think, "</think>", 8));
    ck_assert(!message_has_marker(NULL, NULL, "</think>", 8));
    ck_assert(message_has_marker(tool_format_find("openai"), NULL, "<|channel|>", 11));
    ck_assert(message_has_marker(tool_format_find("kimi_k3"), NULL, "<|close|>", 9));
    ck_assert(message_has_marker(NULL, reasoning_format_find("kimi_k3"), "<|sep|>", 7));
    ck_assert(message_has_marker(tool_format_find("gemma4"), NULL, "<|\"|>", 5));
    ck_assert(!message_has_marker(tool_format_find("hermes"), NULL, "<|\"|>", 5));
}
END_TEST

int main(void) {
    Suite *s = suite_create("server_message_thoughts");
    TCase *t = tcase_create("thoughts");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_loop_test(t, thoughts_are_split_off, 0, sizeof thoughts / sizeof *thoughts);
    tcase_add_test(t, parts_go_to_their_places);
    tcase_add_test(t, calls_come_behind_thoughts);
    tcase_add_test(t, formats_are_found_by_name);
    tcase_add_test(t, formats_are_found_by_template);
    tcase_add_test(t, markers_are_known);
    suite_add_tcase(s, t);
    return suite_main(s);
}
