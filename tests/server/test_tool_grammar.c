/* The grammar of answers with tools, for all rows of families: the parser reads all texts that it
 * allows as calls that match the schemas, for any cuts of the text, and it allows the formats of
 * all families. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/read_message.h"
#include "support/suite_main.h"
#include "support/tool_rows.h"

/* ---- drawing texts -------------------------------------------------------------------------- */

/* Single bytes, and parts of forms, values and thoughts. */
static const char *const pieces[] = {"f",
                                     "get_time-2.x",
                                     "{\"n\": 1",
                                     "\", \"",
                                     "\"arguments\": {",
                                     "<think>",
                                     "</think>",
                                     "<tool_call>",
                                     "[TOOL_CALLS]",
                                     "true",
                                     "null",
                                     "True",
                                     "None",
                                     "<parameter=",
                                     "</parameter>",
                                     "\n<",
                                     "[ARGS]",
                                     "<|channel|>",
                                     "<|end|>",
                                     "<|start|>assistant",
                                     "analysis",
                                     "final",
                                     "<|message|>",
                                     "<function=",
                                     "}</",
                                     "[f(",
                                     "n=1",
                                     ", ",
                                     "{\"name\": \"f\"",
                                     "<function_calls>",
                                     "```",
                                     "\\u00e9",
                                     "\xC3\xA9",
                                     "functools[",
                                     "<|tool_call|>[",
                                     "<tool_calls>[",
                                     "<|tool_calls_section_begin|>",
                                     "<|tool_call_begin|>functions.",
                                     "<|channel|>commentary to=functions.f",
                                     "<|end|><|start|>assistant<|channel|>commentary to",
                                     "<|open|>",
                                     "<|close|>",
                                     "<|sep|>",
                                     "response",
                                     "<|open|>tools<|sep|><|open|>call tool=\"",
                                     "<|open|>argument key=\"",
                                     "\" type=\"",
                                     "<|close|>argument<|sep|>"};
#define MARK "]<]minimax[>["
#define N_PIECES ((int)(sizeof pieces / sizeof *pieces))
#define V (256 + N_PIECES)

static struct vocabulary *make_vocabulary(const char **bytes, int *lengths) {
    static char singles[256];
    for (int i = 0; i < V; i++) {
        if (i < 256) singles[i] = (char)i;
        bytes[i] = i < 256 ? &singles[i] : pieces[i - 256];
        lengths[i] = i < 256 ? 1 : (int)strlen(bytes[i]);
    }
    return vocabulary_new(bytes, lengths, V);
}

static uint32_t draw_state;
static uint32_t draw(uint32_t n) {
    draw_state = draw_state * 1664525u + 1013904223u;
    return (draw_state >> 8) % n;
}

/* Returns one of the allowed tokens: sometimes a closing one, and long ones before bytes; -1: none
 * is allowed. */
static int choose(const uint32_t *mask) {
    static const char closers[] = "\"}])";
    int allowed[V], n = 0, n_long = 0;
    int closer = closers[draw(4)];
    if (draw(2) && (mask[closer / 32] >> (closer % 32) & 1)) return closer;
    for (int id = V - 1; id >= 0; id--) {
        if (!(mask[id / 32] >> (id % 32) & 1)) continue;
        bool plain = id >= ' ' && id < 127;
        if (id < 256 && !plain && id != '\n' && n > 0 && draw(16) > 0) continue;
        allowed[n++] = id;
        n_long += id >= 256;
    }
    if (n == 0) return -1;
    return allowed[n_long > 0 && draw(2) ? draw((uint32_t)n_long) : draw((uint32_t)n)];
}

/* Draws a text under the grammar's masks. Returns false if it has not ended after many tokens. */
static bool draw_text(struct grammar *grammar, const struct vocabulary *vocabulary,
                      const char **bytes, const int *lengths, struct buf *out) {
    struct matcher *matcher = matcher_new(grammar, vocabulary);
    uint32_t mask[(V + 31) / 32];
    bool ended = false;
    buf_clear(out);
    buf_puts(out, "");
    for (int i = 0; i < 800 && !ended; i++) {
        bool may_end = matcher_may_end(matcher);
        ck_assert(matcher_mask(matcher, mask));
        mask[0] &= ~1u; /* texts of this suite end with a 0 */
        int id = choose(mask);
        ended = may_end && (id < 0 || draw(12) == 0);
        if (ended) break;
        ck_assert_int_ge(id, 0);
        ck_assert(matcher_accept(matcher, id));
        buf_add(out, bytes[id], (size_t)lengths[id]);
    }
    matcher_free(matcher);
    return ended;
}

/* ---- properties ----------------------------------------------------------------------------- */

static void check_calls(const struct tool_grammar *asked, const char *text,
                        const struct message *message, struct grammar *schemas[2]) {
    if (asked->must_call) {
        ck_assert_msg(message->n_calls > 0, "%s", text);
        ck_assert_msg(message->content.length == 0 || asked->tools->parts, "%s", text);
    }
    ck_assert_msg(asked->parallel || message->n_calls <= 1, "%s", text);
    for (int i = 0; i < message->n_calls; i++) {
        const struct message_call *call = &message->calls[i];
        bool is_f = strcmp(call->name, "f") == 0;
        ck_assert_msg(grammar_accepts(schemas[!is_f], call->arguments.data), "%s\n %s(%s)", text,
                      call->name, call->arguments.data);
    }
}

/* A drawn text is read as calls that match their schemas: in one piece, cut anywhere, in chunks,
 * and by a parser that waits until a call is complete. */
static void check_text(const struct tool_grammar *asked, const char *text,
                       struct grammar *schemas[2]) {
    struct message_settings settings = {.tools = asked->tools,
                                        .reasoning = asked->reasoning,
                                        .known = known,
                                        .stream_calls = true,
                                        .id_seed = 3};
    struct message message = {0};
    struct buf whole = {0}, parts = {0};
    size_t length = strlen(text);
    struct message_parser *parser = message_parser_new(&settings);
    message_parser_add(parser, text, length, &message);
    message_parser_finish(parser, &message);
    message_parser_free(parser);
    check_calls(asked, text, &message, schemas);
    message_free(&message);
    read_message_in_parts(&settings, text, length, length, &whole);
    for (size_t step = 1; step <= 17; step += 4) {
        read_message_in_parts(&settings, text, draw((uint32_t)length + 1), step, &parts);
        ck_assert_msg(strcmp(whole.data, parts.data) == 0, "every %zu of %s:\n%s\n%s", step, text,
                      whole.data, parts.data);
    }
    settings.stream_calls = false;
    read_message_in_parts(&settings, text, length, length, &parts);
    ck_assert_msg(strcmp(whole.data, parts.data) == 0, "waiting for whole calls: %s\n%s\n%s", text,
                  whole.data, parts.data);
    buf_free(&whole);
    buf_free(&parts);
}

#define N_TEXTS 60

static void check_row(struct tool_grammar asked) {
    const char *bytes[V];
    int lengths[V], n_ended = 0;
    struct vocabulary *vocabulary = make_vocabulary(bytes, lengths);
    struct grammar *grammar = grammar_of_tools(&asked);
    struct grammar *schemas[2] = {compile_text(GRAMMAR_JSON_SCHEMA, F_SCHEMA),
                                  compile_text(GRAMMAR_JSON_SCHEMA, NONE_SCHEMA)};
    struct buf text = {0};
    for (int i = 0; i < N_TEXTS; i++) {
        if (!draw_text(grammar, vocabulary, bytes, lengths, &text)) continue;
        check_text(&asked, text.data, schemas);
        n_ended++;
    }
    ck_assert_msg(n_ended > N_TEXTS / 6, "only %d texts have ended, as %.99s", n_ended, text.data);
    buf_free(&text);
    grammar_release(grammar);
    grammar_release(schemas[0]);
    grammar_release(schemas[1]);
    vocabulary_free(vocabulary);
}

START_TEST(what_passes_is_read_as_calls_that_keep_to_the_schemas) {
    char names[64][40];
    int n = tool_row_names(names);
    ck_assert_int_ge(n, 13);
    for (int i = 0; i < n; i++) {
        struct tool_grammar asked = tool_row(names[i]);
        draw_state = (uint32_t)(100 * _i + i + 1);
        asked.must_call = _i % 2;
        asked.parallel = _i < 2;
        if (_i == 4) asked.reasoning = NULL;
        if (_i == 5) asked.filter.only = "f";
        check_row(asked);
    }
}
END_TEST

/* ---- the formats of families ---------------------------------------------------------------- */

#define DS(word) "<\xEF\xBD\x9Ctool\xE2\x96\x81" word "\xEF\xBD\x9C>"
#define CALLS(word) DS("calls\xE2\x96\x81" word)
#define CALL(word) DS("call\xE2\x96\x81" word)
#define DSML                                                                                       \
    "\xEF\xBD\x9C"                                                                                 \
    "DSML\xEF\xBD\x9C"
#define ACTION(name, arguments)                                                                    \
    "    {\n        \"tool_name\": \"" name "\",\n        \"parameters\": " arguments "\n    }"
#define BOTH                                                                                       \
    "{\"name\": \"f\", \"arguments\": " ARGS "}, {\"name\": \"get_time-2.x\", \"arguments\": {}}"
#define KIMI(word) "<|tool_" word "|>"
#define ATEM(name, parameters)                                                                     \
    "<atem:function_calls>\n<atem:invoke name=\"" name "\">\n" parameters                          \
    "</atem:invoke>\n</atem:function_calls>"
#define STEP(word) "<\xEF\xBD\x9Ctool_" word "\xEF\xBD\x9C>"

/* Two calls as the family's template writes them. */
static const struct {
    const char *format, *text;
} written[] = {
    {"hermes", TOOL("{\"name\": \"f\", \"arguments\": " ARGS
                    "}") "\n" TOOL("{\"name\": \"get_time-2.x\", \"arguments\": {}}")},
    {"qwen3_coder",
     TOOL("<function=f>\n" XML "</function>") "\n" TOOL("<function=get_time-2.x>\n</function>")},
    {"seed_oss", "<seed:tool_call>\n<function=f>\n<parameter=n>1</parameter>\n"
                 "<parameter=p>ab</parameter>\n</function>\n</seed:tool_call>\n"
                 "<seed:tool_call>\n<function=get_time-2.x>\n</function>\n</seed:tool_call>"},
    {"glm45", "<tool_call>f\n<arg_key>n</arg_key>\n<arg_value>1</arg_value>\n<arg_key>p</arg_key>\n"
              "<arg_value>ab</arg_value>\n</tool_call>\n<tool_call>get_time-2.x\n</tool_call>"},
    {"llama3_json", "{\"name\": \"f\", \"parameters\": " ARGS "}; {\"name\": \"get_time-2.x\", "
                    "\"parameters\": {}}"},
    {"pythonic", "[f(n=1, p=\"ab\"), get_time-2.x()]"},
    {"mistral", "[TOOL_CALLS] [" BOTH "]"},
    {"mistral_v11", "[TOOL_CALLS]f[ARGS]" ARGS "[TOOL_CALLS]get_time-2.x[ARGS]{}"},
    {"deepseek_v3",
     CALLS("begin") CALL("begin") "function" DS("sep") "f\n```json\n" ARGS "\n```" CALL(
         "end") "\n" CALL("begin") "function" DS("sep") "get_time-2.x\n```json\n{}\n```" CALL("end")
         CALLS("end")},
    {"deepseek_v31", CALLS("begin") CALL("begin") "f" DS("sep") ARGS CALL("end") "\n" CALL(
                         "begin") "get_time-2.x" DS("sep") "{}" CALL("end") CALLS("end")},
    {"granite", "<|tool_call|>[" BOTH "]"},
    {"granite-20b-fc", "<function_call> {\"name\": \"f\", \"arguments\": " ARGS
                       "}<function_call> {\"name\": \"get_time-2.x\", \"arguments\": {}}"},
    {"phi4_mini_json", "functools[" BOTH "]"},
    {"firefunction_v2", "functools[" BOTH "]"},
    {"olmo3", "<function_calls>\nf(n=1, p=\"ab\")\nget_time-2.x()\n</function_calls>"},
    {"kimi_k2",
     KIMI("calls_section_begin") KIMI("call_begin") "functions.f:0" KIMI("call_argument_begin")
         ARGS KIMI("call_end") KIMI("call_begin") "functions.get_"
                                                  "time-2.x:"
                                                  "12" KIMI("call_argument_begin") "{}" KIMI(
                                                      "call_end") KIMI("calls_section_end")},
    {"jamba", "<tool_calls>[\n{\"name\": \"f\", \"arguments\": " ARGS
              "},\n{\"name\": \"get_time-2.x\", \"arguments\": {}}\n]</tool_calls>"},
    {"minimax", "<tool_calls>\n{\"name\": \"f\", \"arguments\": " ARGS
                "}\n{\"name\": \"get_time-2.x\", \"arguments\": {}}\n</tool_calls>"},
    {"functionary_v31", "<function=f>" ARGS "</function><function=get_time-2.x>{}</function>"},
    {"lfm2", "<|tool_call_start|>[f(n=1, p='ab'), get_time-2.x()]<|tool_call_end|>"},
    {"nemotron_json", "<TOOLCALL>[" BOTH "]</TOOLCALL>"},
    {"apertus", "<|tools_prefix|>[{\"f\": " ARGS "}, {\"get_time-2.x\": {}}]<|tools_suffix|>"},
    {"cohere2", "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", "
                "\"parameters\": " ARGS "},\n    {\"tool_call_id\": \"1\", \"tool_name\": "
                "\"get_time-2.x\", \"parameters\": {}}\n]<|END_ACTION|>"},
    {"gemma4", "<|tool_call>call:f{n:1,p:<|\"|>ab<|\"|>}<tool_call|>"
               "<|tool_call>call:get_time-2.x{}<tool_call|>"},
    {"minimax_m3", MARK "<tool_call>\n" MARK "<invoke name=\"f\">" MARK "<n>1" MARK "</n>" MARK
                        "<p>ab" MARK "</p>" MARK "</invoke>\n" MARK
                        "<invoke name=\"get_time-2.x\">" MARK "</invoke>\n" MARK "</tool_call>"},
    {"minimax_m2",
     "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"n\">1</parameter>\n"
     "<parameter name=\"p\">ab</parameter>\n</invoke>\n<invoke name=\"get_time-2.x\">\n"
     "</invoke>\n</minimax:tool_call>"},
    {"deepseek_v32",
     "<" DSML "function_calls>\n<" DSML "invoke name=\"f\">\n"
     "<" DSML "parameter name=\"n\" string=\"false\">1</" DSML "parameter>\n"
     "<" DSML "parameter name=\"p\" string=\"true\">ab</" DSML "parameter>\n</" DSML "invoke>\n"
     "<" DSML "invoke name=\"get_time-2.x\">\n</" DSML "invoke>\n</" DSML "function_calls>"},
    {"functionary_v32", "f\n" ARGS ">>>get_time-2.x\n{}"},
    {"deepseek_v4",
     "<" DSML "tool_calls>\n<" DSML "invoke name=\"f\">\n"
     "<" DSML "parameter name=\"n\" string=\"false\">1</" DSML "parameter>\n"
     "<" DSML "parameter name=\"p\" string=\"true\">ab</" DSML "parameter>\n</" DSML "invoke>\n"
     "<" DSML "invoke name=\"get_time-2.x\">\n\n</" DSML "invoke>\n</" DSML "tool_calls>"},
    {"command_r",
     "Action:\n```json\n[\n" ACTION("f", ARGS) ",\n" ACTION("get_time-2.x", "{}") "\n]```\n"},
    {"kimi_k3", XTML("response", "") K3_CALLS "<|close|>message<|sep|>"},
    {"longcat", "<longcat_tool_call>\n{\"name\": \"f\", \"arguments\": " ARGS
                "}\n</longcat_tool_call>\n<longcat_tool_call>\n{\"name\": \"get_time-2.x\", "
                "\"arguments\": {}}\n</longcat_tool_call>"},
    {"internlm", "<|action_start|><|plugin|>\n{\"name\": \"f\", \"parameters\": " ARGS
                 "}<|action_end|>\n<|action_start|><|plugin|>{\"name\": \"get_time-2.x\", "
                 "\"parameters\": {}}<|action_end|>"},
    {"gigachat3", "<|function_call|>{\"name\": \"f\", \"arguments\": " ARGS
                  "}<|function_call|>{\"name\": \"get_time-2.x\", \"arguments\": {}}"},
    {"minicpm5", "<function name=\"f\"><param name=\"n\">1</param><param name=\"p\">ab</param>"
                 "</function>\n<function name=\"get_time-2.x\"></function>"},
    {"hy_v3", "<tool_calls>\n<tool_call>f<tool_sep>\n<arg_key>n</arg_key>\n<arg_value>1"
              "</arg_value>\n<arg_key>p</arg_key>\n<arg_value>ab</arg_value>\n</tool_call>\n"
              "<tool_call>get_time-2.x<tool_sep>\n</tool_call>\n</tool_calls>"},
    {"functiongemma", "<start_function_call>call:f{n:1,p:<escape>ab<escape>}<end_function_call>"
                      "<start_function_call>call:get_time-2.x{}<end_function_call>"},
    {"step3",
     STEP("calls_begin") "\n" STEP("call_begin") "function" STEP(
         "sep") "<steptml:invoke name=\"f\">\n<steptml:parameter name=\"n\">1</steptml:parameter>\n"
                "<steptml:parameter name=\"p\">ab</steptml:parameter>\n</steptml:invoke>" STEP(
                    "cal"
                    "l_"
                    "en"
                    "d") "\n" STEP("call_begin") "function" STEP("sep") "<steptml:invoke "
                                                                        "name=\"get_time-2.x\">\n</"
                                                                        "steptml:invoke>" STEP(
                                                                            "cal"
                                                                            "l_"
                                                                            "en"
                                                                            "d") "\n" STEP("calls_"
                                                                                           "end")},
    {"solar_open2", "<|tool_call:start|>f\n<|tool_arg:start|>n<|tool_arg:value|>1<|tool_arg:end|>\n"
                    "<|tool_arg:start|>p<|tool_arg:value|>ab<|tool_arg:end|>\n<|tool_call:end|>\n"
                    "<|tool_call:start|>get_time-2.x\n<|tool_call:end|>"},
    {"dots", "<dots_function_call>\n<invoke name=\"f\">\n<parameter name=\"n\">1</parameter>\n"
             "<parameter name=\"p\">ab</parameter>\n</invoke>\n<invoke name=\"get_time-2.x\">\n"
             "</invoke>\n</dots_function_call>"},
    {"hy_v4", "<tool_calls:6124c78e>\n<tool_call:6124c78e>f\n<arg_key:6124c78e>n</"
              "arg_key:6124c78e>\n<arg_value:6124c78e>1"
              "</arg_value:6124c78e>\n<arg_key:6124c78e>p</"
              "arg_key:6124c78e>\n<arg_value:6124c78e>ab</arg_value:6124c78e>\n"
              "</tool_call:6124c78e>\n<tool_call:6124c78e>get_time-2.x\n</tool_call:6124c78e>\n</"
              "tool_calls:6124c78e>"},
    {"xlam", "[" BOTH "]"},
    {"inkling",
     "f<|content_invoke_tool_json|>{\"name\": \"f\", \"args\": " ARGS
     "}<|end_message|><|message_model|>get_time-2.x<|content_invoke_tool_json|>{\"name\": "
     "\"get_time-2.x\", \"args\": {}}<|end_message|>"},
    {"muse_glimmer",
     " to=f<|message|>" ATEM(
         "f",
         "<atem:parameter name=\"n\">1</atem:parameter>\n"
         "<atem:parameter name=\"p\">ab</atem:parameter>\n") "<|eom|><|start|>assistant "
                                                             "to=get_time-2.x<|message|>" ATEM("get"
                                                                                               "_ti"
                                                                                               "me-"
                                                                                               "2."
                                                                                               "x",
                                                                                               "")},
    {"cohere_command4", "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", "
                        "\"parameters\": " ARGS "},\n    {\"tool_call_id\": \"1\", \"tool_name\": "
                        "\"get_time-2.x\", \"parameters\": {}}\n]<|END_ACTION|>"},
    /* other ways of the same families */
    {"step3",
     STEP("calls_begin") STEP("call_begin") "function" STEP(
         "sep") "<steptml:invoke name=\"f\"><steptml:parameter name=\"n\">1"
                "</steptml:parameter><steptml:parameter name=\"p\">ab</steptml:parameter>"
                "</steptml:invoke>" STEP("call_end") STEP("call_begin") "function" STEP(
                    "sep") "<steptml:invoke name=\"get_time-2.x\"></steptml:invoke>" STEP("call_"
                                                                                          "end")
                    STEP("calls_end")},
    {"hy_v3", "<tool_calls:opensource>\n<tool_call:opensource>f<tool_sep:opensource>\n<arg_key:"
              "opensource>n</arg_key:opensource>\n<arg_value:opensource>1"
              "</arg_value:opensource>\n<arg_key:opensource>p</"
              "arg_key:opensource>\n<arg_value:opensource>ab</arg_value:opensource>\n"
              "</tool_call:opensource>\n<tool_call:opensource>get_time-2.x<tool_sep:opensource>\n</"
              "tool_call:opensource>\n</tool_calls:opensource>"},
    {"hy_v4", "<tool_calls>\n<tool_call>f\n<arg_key>n</arg_key>\n<arg_value>1"
              "</arg_value>\n<arg_key>p</arg_key>\n<arg_value>ab</arg_value>\n"
              "</tool_call>\n<tool_call>get_time-2.x\n</tool_call>\n</tool_calls>"},
    {"inkling", "<|content_invoke_tool_json|>{\"name\":\"f\",\"args\":" ARGS
                "}<|end_message|><|message_model|><|content_invoke_tool_json|>{\"name\":"
                "\"get_time-2.x\",\"args\":{}}<|end_message|>"},
    {"xlam", "```json\n[" BOTH "]\n```"},
    {"xlam", "[TOOL_CALLS][" BOTH "]"},
    {"xlam", "<tool_call>[" BOTH "]</tool_call>"},
    {"kimi_k3", K3_CALLS},
    {"kimi_k3", "<|close|>response<|sep|>" K3_CALLS "<|close|>message<|sep|>"},
    {"command_r",
     "Action: ```json\n[\n" ACTION("f", ARGS) ",\n" ACTION("get_time-2.x", "{}") "\n]\n```"},
    {"mistral", "[TOOL_CALLS][" BOTH "]"},
    {"mistral", "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": " ARGS
                ", \"id\": \"AbCd01234\"}, {\"name\": \"get_time-2.x\", \"arguments\": {}, "
                "\"id\": \"AbCd56789\"}]"},
    {"mistral_v11", "[TOOL_CALLS]f[CALL_ID]AbCd01234[ARGS]" ARGS
                    "[TOOL_CALLS]get_time-2.x[CALL_ID]AbCd56789[ARGS]{}"},
    {"deepseek_v31", CALLS("begin") CALL("begin") "f" DS("sep") ARGS CALL("end")
                         CALL("begin") "get_time-2.x" DS("sep") "{}" CALL("end") CALLS("end")},
    {"glm45", "<tool_call>f<arg_key>n</arg_key><arg_value>1</arg_value><arg_key>p</arg_key>"
              "<arg_value>ab</arg_value></tool_call><tool_call>get_time-2.x</tool_call>"},
    {"granite", "<|tool_call|> [" BOTH "]"},
    {"llama3_json", "{\"name\": \"f\", \"parameters\": " ARGS "}\n{\"name\": \"get_time-2.x\", "
                    "\"parameters\": {}}"},
    {"llama3_json", "{\"name\": \"f\", \"parameters\": " ARGS "};{\"name\": \"get_time-2.x\", "
                    "\"parameters\": {}}"},
    {"lfm2", "<|tool_call_start|> [f(n=1, p='ab'), get_time-2.x()]<|tool_call_end|>"},
    {"nemotron_json", "<TOOLCALL> [" BOTH "] </TOOLCALL>"},
    {"apertus", "<|tools_prefix|> [{\"f\": " ARGS "}, {\"get_time-2.x\": {}}] <|tools_suffix|>"},
    {"cohere2", "<|START_ACTION|>\n[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", "
                "\"parameters\": " ARGS "},\n    {\"tool_call_id\": \"1\", \"tool_name\": "
                "\"get_time-2.x\", \"parameters\": {}}\n]\n<|END_ACTION|>"},
    {"jamba", "<tool_calls>[" BOTH "]</tool_calls>"},
    {"jamba", "<tool_calls>\n[" BOTH "]</tool_calls>"},
    {"phi4_mini_json", "<|tool_call|> [" BOTH "]<|/tool_call|>"},
    {"deepseek_v32",
     "<" DSML "function_calls>\n<" DSML "invoke name=\"f\">\n"
     "<" DSML "parameter name=\"n\" string=\"false\">1</" DSML "parameter>\n"
     "<" DSML "parameter name=\"p\" string=\"true\">ab</" DSML "parameter>\n</" DSML "invoke>\n"
     "<" DSML "invoke name=\"get_time-2.x\">\n\n</" DSML "invoke>\n</" DSML "function_calls>"},
    {"olmo3", "<function_calls>\nf(n=1, p='ab')\nget_time-2.x()\n</function_calls>"},
};

#define INDENTED "{\n            \"n\": 1,\n            \"p\": \"ab\"\n        }"
#define HARMONY(head) head "<|message|>" ARGS

/* Single calls, and their arguments. */
static const struct {
    const char *format, *text, *arguments;
} single[] = {
    {"openai", HARMONY("<|channel|>commentary to=functions.f <|constrain|>json"), ARGS},
    {"openai", HARMONY("<|channel|>commentary to=functions.f<|constrain|>json"), ARGS},
    {"openai", HARMONY("<|channel|>commentary to=functions.f json"), ARGS},
    {"openai", HARMONY("<|channel|>commentary to=functions.f"), ARGS},
    {"openai", HARMONY("<|channel|>analysis to=functions.f <|constrain|>json"), ARGS},
    {"openai", HARMONY(" to=functions.f<|channel|>commentary json"), ARGS},
    {"openai", HARMONY(" to=functions.f<|channel|>commentary <|constrain|>json"), ARGS},
    {"openai", HARMONY(" to=functions.f<|channel|>analysis"), ARGS},
    {"gemma4",
     "<|tool_call>call:f{n:1,p:<|\"|>ab<|\"|>,e:<|\"|>x<|\"|>,m:<|\"|>a\"b<|\"|>,l:[true,false],"
     "o:{a:1.5},u:{k:<|\"|>v<|\"|>,l:[]}}<tool_call|>",
     "{\"n\": 1, \"p\": \"ab\", \"e\": \"x\", \"m\": \"a\\\"b\", \"l\": [true, false], \"o\": "
     "{\"a\": 1.5}, \"u\": {\"k\": \"v\", \"l\": []}}"},
    {"functiongemma",
     "<start_function_call>call:f{n:1,p:<escape>ab<escape>,e:<escape>x<escape>,m:<escape>a\"<b"
     "<escape>,l:[true,false],o:{a:1.5},u:{k:<escape>v<escape>,l:[]}}<end_function_call>",
     "{\"n\": 1, \"p\": \"ab\", \"e\": \"x\", \"m\": \"a\\\"<b\", \"l\": [true, false], \"o\": "
     "{\"a\": 1.5}, \"u\": {\"k\": \"v\", \"l\": []}}"},
    {"minimax_m3",
     MARK "<tool_call>\n" MARK "<invoke name=\"f\">" MARK "<n>1" MARK "</n>" MARK "<p>ab" MARK
          "</p>" MARK "<e>x" MARK "</e>" MARK "<m>\"a\"" MARK "</m>" MARK "<l>" MARK
          "<item>true" MARK "</item>" MARK "<item>false" MARK "</item>" MARK "</l>" MARK "<o>" MARK
          "<a>1.5" MARK "</a>" MARK "</o>" MARK "<u>{\"k\": \"]<]\"}" MARK "</u>" MARK
          "</invoke>\n" MARK "</tool_call>",
     "{\"n\": 1, \"p\": \"ab\", \"e\": \"x\", \"m\": \"a\", \"l\": [true, false], \"o\": "
     "{\"a\": 1.5}, \"u\": {\"k\": \"]<]\"}}"},
    {"command_r", "Action:\n```json\n[\n" ACTION("f", INDENTED) "\n]```\n", INDENTED},
    {"pythonic", "[f(n=1, p='ab', e='x', m='it', o={'a': 1})]",
     "{\"n\": 1, \"p\": \"ab\", \"e\": \"x\", \"m\": \"it\", \"o\": {\"a\": 1}}"},
};

START_TEST(other_spellings_of_a_call_pass_and_are_read) {
    struct tool_grammar asked = tool_row(single[_i].format);
    struct message_settings settings = {.tools = asked.tools, .known = known, .stream_calls = true};
    const char *text = single[_i].text;
    struct buf message = {0}, expected = {0};
    buf_printf(&expected, "f(%s)", single[_i].arguments);
    for (int k = 0; k < 2; k++) {
        asked.must_call = k;
        struct grammar *grammar = grammar_of_tools(&asked);
        ck_assert_msg(grammar_accepts(grammar, text), "%s", text);
        grammar_release(grammar);
    }
    for (size_t cut = 0; cut <= strlen(text); cut++) {
        read_message_in_parts(&settings, text, cut, strlen(text), &message);
        ck_assert_str_eq(message.data, expected.data);
    }
    buf_free(&expected);
    buf_free(&message);
}
END_TEST

START_TEST(what_families_write_passes_and_is_read) {
    struct tool_grammar asked = tool_row(written[_i].format);
    struct message_settings settings = {.tools = asked.tools, .known = known, .stream_calls = true};
    const char *text = written[_i].text;
    struct buf message = {0};
    for (int k = 0; k < 2; k++) {
        asked.must_call = k;
        struct grammar *grammar = grammar_of_tools(&asked);
        ck_assert_msg(grammar_accepts(grammar, text), "%s", text);
        grammar_release(grammar);
    }
    for (size_t cut = 0; cut <= strlen(text); cut++) {
        read_message_in_parts(&settings, text, cut, strlen(text), &message);
        ck_assert_str_eq(message.data, "f(" ARGS ")get_time-2.x({})");
    }
    buf_free(&message);
}
END_TEST

START_TEST(every_row_is_written) {
    char names[64][40];
    for (int i = tool_row_names(names) - 1; i >= 0; i--) {
        bool found = !tool_format_find(names[i])->forms[0].call;
        for (size_t k = 0; k < sizeof written / sizeof *written; k++)
            found |= tool_format_find(written[k].format) == tool_format_find(names[i]);
        ck_assert_msg(found, "%s", names[i]);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("server_tool_grammar");
    TCase *t = tcase_create("grammar");
    tcase_add_checked_fixture(t, tool_rows_open, tool_rows_close);
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, what_passes_is_read_as_calls_that_keep_to_the_schemas, 0, 6);
    tcase_add_loop_test(t, what_families_write_passes_and_is_read, 0, COUNT(written));
    tcase_add_test(t, every_row_is_written);
    tcase_add_loop_test(t, other_spellings_of_a_call_pass_and_are_read, 0, COUNT(single));
    suite_add_tcase(s, t);
    return suite_main(s);
}
