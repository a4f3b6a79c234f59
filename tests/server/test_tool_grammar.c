/* The grammar of answers with tools, for all rows of families: the parser reads all texts that it
 * allows as calls that match the schemas, for any cuts of the text, and it allows the formats of
 * all families. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/grammar.h"
#include "server/message/internal.h"
#include "support/read_message.h"
#include "support/suite_main.h"

/* ---- tools ---------------------------------------------------------------------------------- */

#define F_SCHEMA                                                                                   \
    "{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\",\"minimum\":-9,\"maximum\":" \
    "99},\"s\":{\"type\":\"string\",\"maxLength\":6},\"p\":{\"type\":\"string\",\"pattern\":"      \
    "\"^[a-c]{1,4}$\"},\"e\":{\"enum\":[\"x\",\"y\"]},\"m\":{\"type\":[\"string\",\"null\"]},"     \
    "\"l\":{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"maxItems\":3},\"o\":{\"type\":"  \
    "\"object\",\"properties\":{\"a\":{\"type\":\"number\"}},\"additionalProperties\":false},"     \
    "\"u\":{}},\"required\":[\"n\",\"p\"],\"additionalProperties\":false}"
#define NONE_SCHEMA "{\"type\":\"object\",\"additionalProperties\":false}"

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":" F_SCHEMA "}},"
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

static struct grammar *compile(enum grammar_kind kind, const char *text) {
    struct grammar *grammar;
    struct err err = {0};
    enum status status = grammar_compile(kind, text, strlen(text), NULL, &grammar, &err);
    ck_assert_msg(status == STATUS_OK, "%s\n%s", err.message, text);
    return grammar;
}

static struct grammar *grammar_of(const struct tool_grammar *asked) {
    struct buf text = {0};
    tool_grammar_write(asked, &text);
    struct grammar *grammar = compile(GRAMMAR_STRUCTURAL_TAG, text.data);
    buf_free(&text);
    return grammar;
}

static bool accepts(struct grammar *grammar, const char *text) {
    bool may_end;
    size_t n = strlen(text);
    return grammar_match(grammar, text, n, &may_end) == n && may_end;
}

/* ---- all rows ------------------------------------------------------------------------------- */

/* Writes the first names of all rows; each ends with a 0. */
static int row_names(char names[64][40]) {
    struct buf all = {0};
    const struct tool_format *last = NULL;
    int n = 0;
    tool_format_names(&all);
    for (char *name = strtok(all.data, ", "); name; name = strtok(NULL, ", ")) {
        if (tool_format_find(name) == last) continue;
        last = tool_format_find(name);
        ck_assert_int_lt(n, 64);
        snprintf(names[n++], 40, "%s", name);
    }
    buf_free(&all);
    return n;
}

static struct tool_grammar asked_of(const char *name) {
    struct tool_grammar asked = {.functions = tools, .parallel = true};
    asked.tools = tool_format_find(name);
    ck_assert_msg(asked.tools, "%s", name);
    asked.reasoning = reasoning_format_find(asked.tools->is_harmony ? "openai_gptoss" : "qwen3");
    return asked;
}

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
                                     "<|end|><|start|>assistant<|channel|>commentary to"};
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
        ck_assert_msg(message->content.length == 0 || asked->tools->is_harmony, "%s", text);
    }
    ck_assert_msg(asked->parallel || message->n_calls <= 1, "%s", text);
    for (int i = 0; i < message->n_calls; i++) {
        const struct message_call *call = &message->calls[i];
        bool is_f = strcmp(call->name, "f") == 0;
        ck_assert_msg(accepts(schemas[!is_f], call->arguments.data), "%s\n %s(%s)", text,
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
    struct grammar *grammar = grammar_of(&asked);
    struct grammar *schemas[2] = {compile(GRAMMAR_JSON_SCHEMA, F_SCHEMA),
                                  compile(GRAMMAR_JSON_SCHEMA, NONE_SCHEMA)};
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
    int n = row_names(names);
    ck_assert_int_ge(n, 13);
    for (int i = 0; i < n; i++) {
        struct tool_grammar asked = asked_of(names[i]);
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
#define ARGS "{\"n\": 1, \"p\": \"ab\"}"
#define BOTH                                                                                       \
    "{\"name\": \"f\", \"arguments\": " ARGS "}, {\"name\": \"get_time-2.x\", \"arguments\": {}}"
#define XML "<parameter=n>\n1\n</parameter>\n<parameter=p>\nab\n</parameter>\n"
#define KIMI(word) "<|tool_" word "|>"
#define TOOL(text) "<tool_call>\n" text "\n</tool_call>"

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
    {"minimax_m2",
     "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"n\">1</parameter>\n"
     "<parameter name=\"p\">ab</parameter>\n</invoke>\n<invoke name=\"get_time-2.x\">\n"
     "</invoke>\n</minimax:tool_call>"},
    {"deepseek_v32",
     "<" DSML "function_calls>\n<" DSML "invoke name=\"f\">\n"
     "<" DSML "parameter name=\"n\" string=\"false\">1</" DSML "parameter>\n"
     "<" DSML "parameter name=\"p\" string=\"true\">ab</" DSML "parameter>\n</" DSML "invoke>\n"
     "<" DSML "invoke name=\"get_time-2.x\">\n</" DSML "invoke>\n</" DSML "function_calls>"},
    /* other ways of the same families */
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
    {"pythonic", "[f(n=1, p='ab', e='x', m='it', o={'a': 1})]",
     "{\"n\": 1, \"p\": \"ab\", \"e\": \"x\", \"m\": \"it\", \"o\": {\"a\": 1}}"},
};

START_TEST(other_spellings_of_a_call_pass_and_are_read) {
    struct tool_grammar asked = asked_of(single[_i].format);
    struct message_settings settings = {.tools = asked.tools, .known = known, .stream_calls = true};
    const char *text = single[_i].text;
    struct buf message = {0}, expected = {0};
    buf_printf(&expected, "f(%s)", single[_i].arguments);
    for (int k = 0; k < 2; k++) {
        asked.must_call = k;
        struct grammar *grammar = grammar_of(&asked);
        ck_assert_msg(accepts(grammar, text), "%s", text);
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
    struct tool_grammar asked = asked_of(written[_i].format);
    struct message_settings settings = {.tools = asked.tools, .known = known, .stream_calls = true};
    const char *text = written[_i].text;
    struct buf message = {0};
    for (int k = 0; k < 2; k++) {
        asked.must_call = k;
        struct grammar *grammar = grammar_of(&asked);
        ck_assert_msg(accepts(grammar, text), "%s", text);
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
    for (int i = row_names(names) - 1; i >= 0; i--) {
        bool found = tool_format_find(names[i])->is_harmony;
        for (size_t k = 0; k < sizeof written / sizeof *written; k++)
            found |= tool_format_find(written[k].format) == tool_format_find(names[i]);
        ck_assert_msg(found, "%s", names[i]);
    }
}
END_TEST

/* ---- allowed texts, by tool choice ---------------------------------------------------------- */

#define HERMES(name, arguments) TOOL("{\"name\": \"" name "\", \"arguments\": " arguments "}")
#define H_CALL "<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
#define H_THINK "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"

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
        struct tool_grammar asked = asked_of(answers[_i].format);
        asked.must_call = k > 0;
        asked.parallel = k < 2;
        asked.filter.only = k == 3 ? "f" : NULL;
        struct grammar *grammar = grammar_of(&asked);
        bool passes = accepts(grammar, answers[_i].text);
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
        struct tool_grammar asked = asked_of("hermes");
        asked.must_call = k;
        asked.filter.allowed = allowed;
        struct grammar *grammar = grammar_of(&asked);
        ck_assert(accepts(grammar, HERMES("get_time-2.x", "{}")));
        ck_assert(!accepts(grammar, HERMES("f", "{\"n\": 1, \"p\": \"ab\"}")));
        ck_assert_int_eq(accepts(grammar, "Yes."), !k);
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
        struct tool_grammar asked = asked_of("hermes");
        asked.functions = json;
        struct grammar *grammar = grammar_of(&asked);
        ck_assert(accepts(grammar, HERMES("f", "{\"n\": 1}")));
        ck_assert_int_eq(accepts(grammar, HERMES("f", "{\"n\": 1, \"z\": 1}")), i);
        grammar_release(grammar);
        json_free(json);
        buf_free(&text);
    }
}
END_TEST

/* A format for content replaces free text outside calls. */
START_TEST(content_may_have_a_format) {
    struct tool_grammar asked = asked_of("hermes");
    asked.content = "{\"type\":\"json_schema\",\"json_schema\":{\"type\":\"integer\"}}";
    struct grammar *grammar = grammar_of(&asked);
    ck_assert(accepts(grammar, "<think>a</think>\n12"));
    ck_assert(accepts(grammar, HERMES("f", ARGS)));
    ck_assert(!accepts(grammar, "Hi."));
    ck_assert(!accepts(grammar, "12" HERMES("f", ARGS)));
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
    thoughts_grammar_write(settings.reasoning,
                           "{\"type\":\"json_schema\",\"json_schema\":{\"type\":\"integer\"}}",
                           &tag);
    ck_assert(!grammar_compile(GRAMMAR_STRUCTURAL_TAG, tag.data, tag.length, NULL, &grammar, NULL));
    ck_assert_int_eq(accepts(grammar, text), thoughts[_i].passes);
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

/* ---- schemas that cannot be enforced -------------------------------------------------------- */

/* Compiles the grammar of a tool "g" with this schema. */
static enum status compile_tool(const char *format, const char *schema, bool is_strict,
                                struct grammar **grammar, struct err *err) {
    struct buf text = {0};
    struct json *json;
    buf_printf(&text,
               "[{\"type\":\"function\",\"function\":{\"name\":\"g\",\"strict\":%s,"
               "\"parameters\":%s}}]",
               is_strict ? "true" : "null", schema);
    ck_assert_int_eq(json_parse(&json, "It", text.data, text.length, err), STATUS_OK);
    struct tool_grammar asked = asked_of(format);
    asked.functions = json;
    buf_clear(&text);
    tool_grammar_write(&asked, &text);
    enum status status =
        grammar_compile(GRAMMAR_STRUCTURAL_TAG, text.data, text.length, NULL, grammar, err);
    json_free(json);
    buf_free(&text);
    return status;
}

START_TEST(a_refusal_of_a_strict_tool_names_the_tool_and_the_place) {
    static const struct {
        const char *format, *schema, *says;
    } rows[] = {
        {"hermes", "{\"type\":\"object\",\"properties\":{\"a\":{\"not\":{}}}}",
         "The tool \"g\": The schema at \"/properties/a/not\""},
        {"hermes",
         "{\"properties\":{\"b\":{},\"a\":{\"type\":\"string\",\"pattern\":\"^(a?){60000}$\"}}}",
         "The tool \"g\": The schema at \"/properties/a\": The grammar needs more than 50000"},
        {"qwen3_coder", "{\"properties\":{\"a\":{\"type\":\"string\",\"format\":\"x\"}}}",
         "The tool \"g\": The schema at \"/properties/a/format\""},
        {"qwen3_coder", "{\"$ref\":\"#/$defs/x\",\"$defs\":{\"x\":{}}}", "The schema at \"/$ref\""},
        {"qwen3_coder", "{\"properties\":{\"a b\":{}}}", "has a name"},
        {"pythonic", "{\"properties\":{\"a-b\":{}}}", "has a name"},
        {"pythonic", "{\"properties\":{},\"required\":[\"a\"]}", "\"/required/0\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err err = {0};
        struct grammar *grammar;
        ck_assert_int_eq(compile_tool(rows[i].format, rows[i].schema, true, &grammar, &err),
                         STATUS_INVALID_REQUEST);
        ck_assert_msg(strstr(err.message, rows[i].says), "%s", err.message);
    }
}
END_TEST

/* Constraints that a grammar cannot enforce, on the parameter `a` of a tool and on the whole. */
static const char *const hints[] = {
    "{\"properties\":{\"a\":{\"type\":\"array\",\"items\":{},\"uniqueItems\":true}}}",
    "{\"properties\":{\"a\":{\"not\":{\"required\":[\"b\"]}}}}",
    "{\"properties\":{\"a\":{\"oneOf\":[{\"type\":\"number\"},{\"type\":\"integer\"}]}}}",
    "{\"properties\":{\"a\":{\"$ref\":\"http://a/b\"}}}",
    "{\"properties\":{\"a\":{\"$ref\":\"#/$defs/none\"}}}",
    "{\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":\"(?<=a)b\"}}}",
    "{\"properties\":{\"a\":{\"type\":\"string\",\"format\":\"x\"}}}",
    "{\"properties\":{\"a\":{\"type\":\"number\",\"multipleOf\":0.12345}}}",
    "{\"properties\":{\"a\":{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"(?<=a)b\"}}}}",
    "{\"properties\":{\"a\":{\"type\":\"object\",\"patternProperties\":{\"(?<=a)b\":{}}}}}",
    "{\"properties\":{\"a\":{\"type\":\"object\",\"minProperties\":9}}}",
    "{\"properties\":{\"a\":{\"type\":\"string\",\"required\":true,\"maxlength\":3}}}",
    "{\"properties\":{\"a\":{\"if\":{},\"then\":{\"minLength\":1}}},\"$schema\":\"http://a/b\"}",
    "{\"properties\":{\"a\":{}},\"dependentSchemas\":{\"a\":{}},\"minProperties\":1}",
    "{\"properties\":{\"a\":{}},\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
    "{\"properties\":{\"a\":{\"type\":\"string\",\"maxLength\":524288},"
    "\"b\":{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"a\",\"maxLength\":"
    "65536},"
    "\"maxItems\":65536}}}",
    "{\"properties\":{\"a-b c\":{},\"a\":{}},\"required\":[\"z\"]}",
};

START_TEST(a_tool_without_strict_is_served_without_what_cannot_be_enforced) {
    char names[64][40];
    int n = row_names(names);
    for (int i = 0; i < n; i++) {
        struct err err = {0};
        struct grammar *grammar = NULL;
        enum status status = compile_tool(names[i], hints[_i], false, &grammar, &err);
        ck_assert_msg(status == STATUS_OK, "%s: %s: %s", names[i], hints[_i], err.message);
        grammar_release(grammar);
    }
}
END_TEST

START_TEST(a_schema_with_values_of_another_type_is_refused_in_every_row) {
    static const char *const schemas[] = {
        "{\"properties\":{\"a\":{}},\"required\":[4846791580151137091]}",
        "{\"properties\":{\"a\":5}}",
        "{\"properties\":{\"a\":{\"type\":5}}}",
        "{\"properties\":[\"a\"]}",
        "{\"properties\":[{\"type\":\"string\"}]}",
        "{\"properties\":{\"a\":{\"enum\":5}}}",
        "{\"properties\":{\"a\":{\"$ref\":7}}}",
    };
    char names[64][40];
    int n = row_names(names);
    for (int i = 0; i < n; i++) {
        for (size_t k = 0; k < sizeof schemas / sizeof *schemas; k++) {
            struct err err = {0};
            struct grammar *grammar;
            ck_assert_int_eq(compile_tool(names[i], schemas[k], k % 2, &grammar, &err),
                             STATUS_INVALID_REQUEST);
            ck_assert_msg(strstr(err.message, "The tool \"g\": The schema at \""), "%s",
                          err.message);
        }
    }
}
END_TEST

#define COUNT(rows) (sizeof rows / sizeof *rows)

/* Claude Code sends a maxLength of 524,288. */
START_TEST(a_large_length_is_enforced_and_a_large_number_of_properties_of_a_hint_is_left_out) {
    static const char form[] =
        "[{\"type\":\"function\",\"function\":{\"name\":\"f\",%s\"parameters\":{\"type\":"
        "\"object\","
        "\"properties\":{\"s\":{\"type\":\"string\",\"maxLength\":5000},"
        "\"t\":{\"type\":\"string\",\"maxLength\":524288},\"u\":{\"maxProperties\":524288}}}}}]";
    for (int strict = 0; strict < 2; strict++) {
        struct json *own;
        struct err err;
        struct buf text = {0}, asked_text = {0}, call = {0};
        buf_printf(&text, form, strict ? "\"strict\":true," : "");
        ck_assert_int_eq(json_parse(&own, "It", text.data, text.length, &err), STATUS_OK);
        struct tool_grammar asked = asked_of("hermes");
        asked.functions = own;
        tool_grammar_write(&asked, &asked_text);
        ck_assert((strstr(asked_text.data, "\"maxProperties\":524288") != NULL) == (strict == 1));
        for (int n = 5000; n <= 5001 && !strict; n++) {
            struct grammar *grammar = compile(GRAMMAR_STRUCTURAL_TAG, asked_text.data);
            buf_clear(&call);
            buf_puts(&call, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"");
            for (int i = 0; i < n; i++) buf_puts(&call, "a");
            buf_puts(&call, "\"}}\n</tool_call>");
            ck_assert(accepts(grammar, call.data) == (n == 5000));
            grammar_release(grammar);
        }
        buf_free(&text);
        buf_free(&asked_text);
        buf_free(&call);
        json_free(own);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("server_tool_grammar");
    TCase *t = tcase_create("grammar");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, what_passes_is_read_as_calls_that_keep_to_the_schemas, 0, 6);
    tcase_add_loop_test(t, what_families_write_passes_and_is_read, 0, COUNT(written));
    tcase_add_test(t, every_row_is_written);
    tcase_add_loop_test(t, other_spellings_of_a_call_pass_and_are_read, 0,
                        sizeof single / sizeof *single);
    tcase_add_loop_test(t, a_choice_lets_pass_what_it_says, 0, COUNT(answers));
    tcase_add_test(
        t, a_large_length_is_enforced_and_a_large_number_of_properties_of_a_hint_is_left_out);
    tcase_add_test(t, allowed_tools_are_the_only_ones);
    tcase_add_test(t, arguments_have_no_other_members);
    tcase_add_test(t, content_may_have_a_format);
    tcase_add_loop_test(t, thoughts_come_before_content, 0, COUNT(thoughts));
    tcase_add_test(t, a_refusal_of_a_strict_tool_names_the_tool_and_the_place);
    tcase_add_loop_test(t, a_tool_without_strict_is_served_without_what_cannot_be_enforced, 0,
                        COUNT(hints));
    tcase_add_test(t, a_schema_with_values_of_another_type_is_refused_in_every_row);
    suite_add_tcase(s, t);
    return suite_main(s);
}
