/* Answers as messages: the calls of each family are found, for any cuts of the text.
 * Similar text stays content. */
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

/* ---- reading -------------------------------------------------------------------------------- */

struct row {
    const char *format, *text, *message;
};

static void expect_row(const struct row *row, bool stream) {
    struct message_settings settings = {.known = known, .stream_calls = stream, .id_seed = 7};
    settings.tools = tool_format_find(row->format);
    ck_assert_msg(settings.tools, "%s", row->format);
    expect_message(&settings, row->text, row->message);
}

/* ---- calls ---------------------------------------------------------------------------------- */

#define MARK "]<]minimax[>["
#define DS(word) "<\xEF\xBD\x9Ctool\xE2\x96\x81" word "\xEF\xBD\x9C>"
#define CALLS(word) DS("calls\xE2\x96\x81" word)
#define CALL(word) DS("call\xE2\x96\x81" word)
#define SEP DS("sep")
#define V3 CALL("begin") "function" SEP

/* Calls of each family: one, several, after text, with the variations that models use, and complete
 * except for their end. */
static const struct row calls[] = {
    {"hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 1}}\n</tool_call>",
     "f({\"n\": 1})"},
    {"hermes",
     "I look.\n\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>\n"
     "{\"arguments\": {\"s\": \"</tool_call>{\\\"\"}, \"name\": \"get_time-2.x\"} </tool_call>\n",
     "C{I look.}f({})get_time-2.x({\"s\": \"</tool_call>{\\\"\"})"},
    {"hermes", "<tool_call>{\"name\":\"f\"}</tool_call>", "f({})"},
    {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":null,\"id\":[1,{\"a\":0}]}</tool_call>x",
     "C{x}f({})"},
    {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{\"l\":[true,false,null,-1.5e+3,0]}}",
     "f({\"l\":[true,false,null,-1.5e+3,0]})"},
    {"hermes", "a\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\nb", "C{a\nb}f({})"},
    {"hermes", "<tool_<tool_call>{\"name\":\"f\"}</tool_call>", "C{<tool_}f({})"},
    {"functionary_v32", "all\nSo >>> x.>>>f\n{\"n\": 1}", "C{So >>> x.}f({\"n\": 1})"},
    {"functionary_v32", "f\n{}>>>get_time-2.x\n{}", "f({})get_time-2.x({})"},
    {"functionary_v32", "all\nYes.", "C{Yes.}"},
    {"llama3_json", "{\"name\": \"f\", \"parameters\": {\"n\": 1}}", "f({\"n\": 1})"},
    {"llama3_json",
     " {\"name\":\"f\",\"parameters\":{}}; {\"name\":\"f\",\"parameters\":{\"n\":2}}",
     "f({})f({\"n\":2})"},
    {"llama4_json", "<|python_tag|>{\"type\":\"function\",\"name\":\"f\",\"parameters\":{}}",
     "f({})"},
    {"pythonic", "[f(s='it\\'s', n=-3), get_time-2.x()]",
     "f({\"s\": \"it's\", \"n\": -3})get_time-2.x({})"},
    {"pythonic", "[ f( b = True , l=[None, (1,), {'k': [False], \"j\": {}},], ) ]",
     "f({\"b\": true, \"l\": [null, [1], {\"k\": [false], \"j\": {}}]})"},
    {"pythonic", "[f(s=\"a\\n\\x41\\u00e9\\U0001F600\\q\\\\\\\"\t\", n=0.5e1, b=false)]",
     "f({\"s\": \"a\\nA\\u00e9\xF0\x9F\x98\x80\\\\q\\\\\\\"\\t\", \"n\": 0.5e1, \"b\": false})"},
    {"llama4_pythonic", "<|python_start|>[f(n=1)]<|python_end|>", "f({\"n\": 1})"},
    {"mistral",
     "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"n\": 1}}, {\"name\": \"f\", "
     "\"arguments\": {}}]",
     "f({\"n\": 1})f({})"},
    {"mistral", "Yes.[TOOL_CALLS][{\"name\":\"f\",\"arguments\":{},\"id\":\"abcdefghi\"}]",
     "C{Yes.}f({})"},
    {"mistral", "[TOOL_CALLS]f{\"n\": 1}[TOOL_CALLS]f[ARGS]{\"n\":2}", "f({\"n\": 1})f({\"n\":2})"},
    {"mistral_v11", "[TOOL_CALLS][TOOL_CALLS]f[ARGS] {}[TOOL_CALLS] [{\"name\":\"f\"}]",
     "C{[TOOL_CALLS]}f({})f({})"},
    {"mistral_v11", "[TOOL_CALLS]f[CALL_ID]AbC123xyz[ARGS]{\"n\": 1}[TOOL_CALLS]f[ARGS]{}",
     "f({\"n\": 1})f({})"},
    {"qwen3_coder",
     "Well,\n<tool_call>\n<function=f>\n<parameter=s>\na "
     "</par\n\"b\"\n</parameter>\n<parameter=n>\n"
     "3\n</parameter>\n</function>\n</tool_call>",
     "C{Well,}f({\"s\": \"a </par\\n\\\"b\\\"\", \"n\": 3})"},
    {"qwen3_coder",
     "<tool_call><function=f><parameter=l>[1,\n 2]</parameter><parameter=n>three</parameter>"
     "<parameter=m>null</parameter><parameter=x>5</parameter><parameter=s></parameter></function>"
     "</tool_call><tool_call>\n<function=get_time-2.x>\n</function>\n</tool_call>",
     "f({\"l\": [1,\n 2], \"n\": \"three\", \"m\": null, \"x\": \"5\", \"s\": \"\"})"
     "get_time-2.x({})"},
    {"qwen3_coder",
     "<function=f><parameter=n>\"5\"</parameter><parameter=b>1</parameter></function>",
     "f({\"n\": \"\\\"5\\\"\", \"b\": \"1\"})"},
    {"qwen3_xml",
     "<function=f>\n<parameter=e>\nx\n</parameter>\n<parameter=a>\n2.5\n</parameter>\n"
     "<parameter=o>\n{\"a\": {}}\n</parameter>\n<parameter=b>\ntrue\n</parameter>\n<parameter=u>\n"
     "7\n</parameter>\n</function>",
     "f({\"e\": \"x\", \"a\": 2.5, \"o\": {\"a\": {}}, \"b\": true, \"u\": 7})"},
    {"seed_oss",
     "So.<seed:tool_call>\n<function=f>\n<parameter=n>1</parameter>\n<parameter=s>a</parameter>\n"
     "</function>\n</seed:tool_call>",
     "C{So.}f({\"n\": 1, \"s\": \"a\"})"},
    {"seed_oss",
     "<seed:tool_call>\n<function=f>\n<parameter=l>[True, None, {'k': 'it\\'s </parameter>'}, "
     "(1,)]</parameter>\n<parameter=s>\n[True]\n</parameter>\n<parameter=b>False</parameter>\n"
     "<parameter=n>-3 </parameter>\n<parameter=m>None</parameter>\n</function>\n</seed:tool_call>",
     "f({\"l\": [true, null, {\"k\": \"it's </parameter>\"}, [1]], \"s\": \"\\n[True]\\n\", "
     "\"b\": false, \"n\": -3, \"m\": null})"},
    {"seed_oss",
     "<seed:tool_call><function=f><parameter=l>[true, \"</parameter>\"]</parameter><parameter=o>"
     "{'k': [}</parameter><parameter=n>1,</parameter><parameter=b>True "
     "x</parameter><parameter=u>1, k=2</parameter><parameter=e>3"
     "</parameter><parameter=a>4.5</parameter></function></seed:tool_call>",
     "f({\"l\": [true, \"</parameter>\"], \"o\": \"{'k': [}\", \"n\": \"1,\", \"b\": \"True x\", "
     "\"u\": \"1, k=2\", \"e\": 3, \"a\": 4.5})"},
    {"seed_oss",
     "<seed:tool_call><function=f><parameter=u>'90s music</parameter><parameter=m>\"open\nx"
     "</parameter><parameter=e>3</parameter></function></seed:tool_call>",
     "f({\"u\": \"'90s music\", \"m\": \"\\\"open\\nx\", \"e\": 3})"},
    {"firefunction_v2", "So. functools[{\"name\": \"f\", \"arguments\": {\"n\": 1}}]",
     "C{So.}f({\"n\": 1})"},
    {"deepseek_v3",
     CALLS("begin") V3 "f\n```json\n{\"n\": 1}\n```" CALL("end") "\n" V3 "f\n```json\n{}\n```" CALL(
         "end") CALLS("end"),
     "f({\"n\": 1})f({})"},
    {"deepseek_v31",
     "So.\n" CALLS("begin") CALL("begin") "f" SEP "{\"n\": 1}" CALL("end")
         CALL("begin") "f" SEP "{}" CALL("end") CALLS("end"),
     "C{So.}f({\"n\": 1})f({})"},
    {"granite", "<|tool_call|>[{\"name\":\"f\",\"arguments\":{\"n\":1}}, {\"name\":\"f\"}]",
     "f({\"n\":1})f({})"},
    {"granite-20b-fc",
     "<function_call> {\"name\":\"f\",\"arguments\":{}} <function_call> {\"name\":\"f\"}",
     "f({})f({})"},
    {"phi4_mini_json", "functools[{\"name\": \"f\", \"arguments\": {\"n\": 1}}]", "f({\"n\": 1})"},
    {"phi4_mini_json", "<|tool_call|>[{\"name\":\"f\",\"parameters\":{}}]<|/tool_call|>", "f({})"},
    {"glm45",
     "Yes.\n<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>\na</arg_\n</arg_value>\n<arg_key>n"
     "</arg_key><arg_value>3</arg_value><arg_key>l</arg_key> <arg_value>[\"</arg_value>\"]"
     "</arg_value></tool_call>\n<tool_call>get_time-2.x\n</tool_call>",
     "C{Yes.}f({\"s\": \"\\na</arg_\\n\", \"n\": 3, \"l\": [\"</arg_value>\"]})get_time-2.x({})"},
    {"olmo3", "<function_calls>\nf(n=1)\nf(s=\"</function_calls>\")\n</function_calls>",
     "f({\"n\": 1})f({\"s\": \"</function_calls>\"})"},
    {"kimi_k2",
     "So.<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
     "{\"n\": 1}<|tool_call_end|><|tool_call_begin|>functions.get_time-2.x:1"
     "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
     "C{So.}f({\"n\": 1})get_time-2.x({})"},
    {"kimi_k2",
     "<|tool_calls_section_begin|> <|tool_call_begin|>f:3 <|tool_call_argument_begin|> {} "
     "<|tool_call_end|>\n<|tool_calls_section_end|>",
     "f({})"},
    {"jamba", "<tool_calls>[\n{\"name\":\"f\",\"arguments\":{}},\n{\"name\":\"f\"}\n]</tool_calls>",
     "f({})f({})"},
    {"minimax",
     "So.\n<tool_calls>\n{\"name\":\"f\",\"arguments\":{\"n\": "
     "1}}\n{\"name\":\"f\"}\n</tool_calls>",
     "C{So.}f({\"n\": 1})f({})"},
    {"minimax_m3",
     "So." MARK "<tool_call>\n" MARK "<invoke name=\"f\">" MARK "<a>1" MARK "</a>" MARK
     "<b>x < y" MARK "</b>" MARK "<c>" MARK "<item>2.5" MARK "</item>" MARK "<item>" MARK
     "<d>]<]" MARK "</d>" MARK "</item>" MARK "</c>" MARK "<v>{\"k\": \"" MARK "\"}" MARK
     "</v>" MARK "<g>" MARK "</g>" MARK "</invoke>\n" MARK "<invoke name=\"f\">" MARK
     "</invoke>\n" MARK "</tool_call>",
     "C{So.}f({\"a\": 1, \"b\": \"x < y\", \"c\": [2.5, {\"d\": \"]<]\"}], \"v\": {\"k\": "
     "\"" MARK "\"}, \"g\": \"\"})f({})"},
    {"minimax_m3", /* white space between tags; an object with a member named item */
     MARK "<tool_call>\n" MARK "<invoke name=\"f\">\n" MARK "<a>\n" MARK "<n>true" MARK
          "</n>\n" MARK "<item>1" MARK "</item>\n" MARK "</a>\n" MARK "</invoke>\n" MARK
          "</tool_call>",
     "f({\"a\": {\"n\": true, \"item\": 1}})"},
    {"functionary_v31",
     "So.\n<function=f>{\"s\": \"</function>\"}</function><function=f>{}</function>",
     "C{So.}f({\"s\": \"</function>\"})f({})"},
};

START_TEST(calls_are_found_wherever_the_text_is_cut) {
    expect_row(&calls[_i], false);
}
END_TEST

/* The same, streamed before they are complete. */
START_TEST(calls_are_given_as_they_come) {
    expect_row(&calls[_i], true);
}
END_TEST

/* Text that resembles a call, or breaks off before it is complete: all of it is content. */
static const struct row texts[] = {
    {"hermes", "a <tool_call> is a tag", NULL},
    {"hermes", "<tool_call>{\"name\":\"g\",\"arguments\":{}}</tool_call>", NULL},
    {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{\"n\": }}</tool_call>", NULL},
    {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":[]}</tool_call>", NULL},
    {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{\"n\":1}", NULL},
    {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_ca!", NULL},
    {"hermes", "<tool_call>{\"name\":\"f\",\"name\":\"f\"}</tool_call>", NULL},
    {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{},\"parameters\":{}}</tool_call>", NULL},
    {"hermes", "<tool_call>{}</tool_call><tool_call>[]</tool_call> <tool_call", NULL},
    {"hermes", "<tool_call>{\"na\\u006de\":\"f\"}</tool_call>", NULL},
    {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{\"n\":01}}</tool_call>", NULL},
    {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{\"n\":\"\\x\"}}</tool_call>", NULL},
    {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{\"l\":[1}}}</tool_call>", NULL},
    {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{\"s\":\"\\u00e\"}}</tool_call>", NULL},
    {"hermes", "<tool_call>{\"a\\\\\":1,\"name\":\"f\"}</tool_call>", NULL},
    {"hermes", "<tool _call>{\"name\":\"f\"}</tool_call>", NULL},
    {"llama3_json", "The call {\"name\":\"f\",\"parameters\":{}}", NULL},
    {"llama3_json", "{\"city\": \"Paris\"}", NULL},
    {"pythonic", "[1] says f(n=1) [f(n=1)]", NULL},
    {"pythonic", "[f(1)]", NULL},
    {"pythonic", "[f(n=g(2))]", NULL},
    {"pythonic", "[f(n=1,,)]", NULL},
    {"pythonic", "[f(a b=1)]", NULL},
    {"pythonic", "[f(n={1: 2})]", NULL},
    {"pythonic", "[f(n=[1})]", NULL},
    {"pythonic", "[f(n={1})]", NULL},
    {"pythonic", "[f(s='\\7')]", NULL},
    {"pythonic", "[f(n=Trie)]", NULL},
    {"mistral", "[TOOL_CALLS] none", NULL},
    {"mistral", "[TOOL_CALLS]f[CALL_ID]ab[AR", NULL},
    {"mistral", "[TOOL_CALLS]f[CALL_ID]a-b[ARGS]{}", NULL},
    {"mistral", "[TOOL_CALLS]g{\"n\":1}", NULL},
    {"qwen3_coder", "<tool_call>\n<function=g>\n</function>\n</tool_call>", NULL},
    {"qwen3_coder", "<tool_call>\n<function=f>\n<parameter=s>\nx\n</parameter>\n", NULL},
    {"qwen3_coder", "<tool_call>\n<function=f>\n<param=s>\nx\n</parameter>\n</function>", NULL},
    {"glm45", "<tool_call>f\n<arg_key>s</arg_key>\n<arg_val>", NULL},
    {"glm45", "<tool_call>f\n<arg_kez>s</arg_key>\n<arg_value>a</arg_value>\n</tool_call>", NULL},
    {"glm45", "<tool_call>f\n<arg_key></arg_key>\n<arg_value>", NULL},
    {"deepseek_v3", CALLS("begin") V3 "f\n{\"n\": 1}\n```" CALL("end"), NULL},
    {"granite", "<|tool_call|>[]", NULL},
    {"phi4_mini_json", "functools[0]", NULL},
    {"olmo3", "<function_calls>\nf\n</function_calls>", NULL},
    {"kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.g:0<|tool_call_ar", NULL},
    {"kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>f<|tool_call_argument_begin|>{}",
     NULL},
};

/* Streams and whole answers have the same order, however the text is cut. */
START_TEST(the_order_of_texts_and_calls_is_kept) {
    static const char text[] = "<think>t</think>A\n<tool_call>{\"name\":\"f\",\"arguments\":{}}"
                               "</tool_call>\nB<tool_call>{\"name\":\"f\",\"arguments\":{}}"
                               "</tool_call><tool_call>{\"name\":\"f\",\"arguments\":{}}"
                               "</tool_call>";
    struct buf out = {0};
    for (int streams = 0; streams < 2; streams++) {
        struct message_settings settings = {.tools = tool_format_find("hermes"),
                                            .reasoning = reasoning_format_find("qwen3"),
                                            .known = known,
                                            .stream_calls = streams};
        for (size_t step = 1; step <= sizeof text; step++) {
            read_message_in_order(&settings, text, step, &out);
            ck_assert_str_eq(out.data, "R{t}C{A}f()C{\nB}f()f()");
        }
    }
    buf_free(&out);
}
END_TEST

START_TEST(what_only_looks_like_a_call_stays_content) {
    struct row row = texts[_i];
    struct buf message = {0};
    buf_printf(&message, "C{%s}", row.text);
    row.message = message.data;
    expect_row(&row, false);
    buf_free(&message);
}
END_TEST

/* A text that a limit cuts gives the calls that have a name. The beginning of a call without a name
 * is not content. A call without its end is not whole. */
START_TEST(a_cut_call_is_no_call) {
    static const struct {
        const char *text, *message;
        bool is_cut;
    } rows[] = {
        {"a", "C{a}", false},
        {"a <", "C{a <}", false},
        {"a <to", "C{a }", false},
        {"a <tool_call>\n{\"na", "C{a }", false},
        {"<tool_call>{\"name\":\"f\",\"arguments\":{\"n", "f({\"n)", true},
        {"<tool_call>{\"name\":\"f\",\"arguments\":{\"n\":1}", "f({\"n\":1})", true},
        {"<tool_call>{\"name\":\"f\",\"arguments\":{\"n\":1}}</to", "f({\"n\":1})", false},
        {"<tool_call>{\"name\":\"f\"}</tool_call><tool_c", "f({})", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct message_settings settings = {.known = known, .stream_calls = true, .id_seed = 7};
        settings.tools = tool_format_find("hermes");
        struct message_parser *parser = message_parser_new(&settings);
        struct message message = {0};
        struct buf got = {0};
        message_parser_add(parser, rows[i].text, strlen(rows[i].text), &message);
        message_parser_cut(parser, &message);
        write_message(&message, &got);
        ck_assert_str_eq(got.data, rows[i].message);
        ck_assert_msg(message_parser_has_cut_call(parser) == rows[i].is_cut, "%s", rows[i].text);
        message_free(&message);
        message_parser_free(parser);
        buf_free(&got);
    }
}
END_TEST

/* Calls before a broken one are complete; the rest is content. */
START_TEST(a_run_keeps_its_whole_calls) {
    static const struct row rows[] = {
        {"pythonic", "[f(n=1), see below]", "C{, see below]}f({\"n\": 1})"},
        {"mistral", "[TOOL_CALLS][{\"name\":\"f\"}, 7]", "C{, 7]}f({})"},
        {"hermes", "<tool_call>{\"name\":\"f\"}</tool_call><tool_call>{\"name\":\"g\"}",
         "C{<tool_call>{\"name\":\"g\"}}f({})"},
        {"llama3_json", "{\"name\":\"f\"} and more", "C{and more}f({})"},
        {"hermes", "<tool_call>{bad <tool_call>{\"name\":\"f\"}</tool_call>",
         "C{<tool_call>{bad}f({})"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) expect_row(&rows[i], false);
}
END_TEST

/* A streamed call is not withdrawn: its arguments end at the fault. */
START_TEST(a_given_call_stays) {
    static const struct row rows[] = {
        {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{\"n\": x}}</tool_call>",
         "C{x}}</tool_call>}f({\"n\": )"},
        {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{\"n\": 1", "f({\"n\": 1)"},
        {"mistral_v11", "[TOOL_CALLS]f[ARGS]{\"n\": x}", "C{x}}f({\"n\": )"},
        {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool!", "C{</tool!}f({})"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) expect_row(&rows[i], true);
}
END_TEST

/* The time for a text with many starts of calls is proportional to its length. */
START_TEST(beginnings_without_end_are_read_in_linear_time) {
    static const struct row rows[] = {
        {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{\"s\":\"<tool_call>{\\\"name\\\"",
         ""},
        {"mistral", "[TOOL_CALLS][{\"name\":\"f\",\"arguments\":{\"l\":[", ""},
        {"pythonic", "[f(l=[[[[", ""},
    };
    struct message_settings settings = {.known = known, .tools = tool_format_find(rows[_i].format)};
    struct message message = {0};
    struct message_parser *parser = message_parser_new(&settings);
    size_t length = 0, each = strlen(rows[_i].text);
    for (; length < (1 << 20); length += each)
        message_parser_add(parser, rows[_i].text, each, &message);
    message_parser_finish(parser, &message);
    ck_assert_int_eq(message.n_calls, 0);
    ck_assert_uint_eq(message.content.length, length);
    message_free(&message);
    message_parser_free(parser);
}
END_TEST

START_TEST(ids_are_the_familys_and_differ) {
    struct message_settings settings = {.tools = tool_format_find("hermes"), .id_seed = 1};
    struct message one = {0}, other = {0};
    const char *text = "<tool_call>{\"name\":\"any\"}</tool_call><tool_call>{\"name\":\"any\"}";
    struct message_parser *parser = message_parser_new(&settings);
    message_parser_add(parser, text, strlen(text), &one);
    message_parser_finish(parser, &one);
    message_parser_free(parser);
    ck_assert_int_eq(one.n_calls, 2);
    ck_assert_uint_eq(strlen(one.calls[0].id), 5 + 24);
    ck_assert(memcmp(one.calls[0].id, "call_", 5) == 0);
    ck_assert_str_ne(one.calls[0].id, one.calls[1].id);
    settings = (struct message_settings){.tools = tool_format_find("mistral"), .id_seed = 2};
    parser = message_parser_new(&settings);
    message_parser_add(parser, "[TOOL_CALLS]f{}", 15, &other);
    message_parser_free(parser);
    ck_assert_uint_eq(strlen(other.calls[0].id), 9);
    ck_assert_uint_eq(strspn(other.calls[0].id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuv"
                                                "wxyz0123456789"),
                      9);
    message_free(&one);
    message_free(&other);
}
END_TEST

/* Kimi's template writes the id of a call after its result, as the model wrote it. */
START_TEST(ids_of_kimi_are_the_models_own) {
    struct message_settings settings = {.tools = tool_format_find("kimi_k2"), .stream_calls = true};
    const char *text = "<|tool_calls_section_begin|><|tool_call_begin|>functions.f.g:17"
                       "<|tool_call_argument_begin|>{}<|tool_call_end|>";
    struct message message = {0};
    struct message_parser *parser = message_parser_new(&settings);
    for (const char *at = text; *at; at++) message_parser_add(parser, at, 1, &message);
    ck_assert_int_eq(message.n_calls, 1);
    ck_assert_str_eq(message.calls[0].name, "f.g");
    ck_assert_str_eq(message.calls[0].id, "functions.f.g:17");
    message_parser_free(parser);
    message_free(&message);
}
END_TEST

int main(void) {
    Suite *s = suite_create("server_message");
    TCase *t = tcase_create("message");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_loop_test(t, calls_are_found_wherever_the_text_is_cut, 0,
                        sizeof calls / sizeof *calls);
    tcase_add_loop_test(t, calls_are_given_as_they_come, 0, sizeof calls / sizeof *calls);
    tcase_add_test(t, the_order_of_texts_and_calls_is_kept);
    tcase_add_loop_test(t, what_only_looks_like_a_call_stays_content, 0,
                        sizeof texts / sizeof *texts);
    tcase_add_test(t, a_cut_call_is_no_call);
    tcase_add_test(t, a_run_keeps_its_whole_calls);
    tcase_add_test(t, a_given_call_stays);
    tcase_add_loop_test(t, beginnings_without_end_are_read_in_linear_time, 0, 3);
    tcase_add_test(t, ids_are_the_familys_and_differ);
    tcase_add_test(t, ids_of_kimi_are_the_models_own);
    suite_add_tcase(s, t);
    return suite_main(s);
}
