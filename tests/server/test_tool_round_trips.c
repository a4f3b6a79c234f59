/* Round trips of calls, for all families: the calls in a model's text are parsed, a client sends
 * them back as a message, a template of the family's kind writes them, and the result parses to the
 * same calls. The grammar of a request with these tools accepts what the template writes, byte for
 * byte.
 *
 *     test_server_tool_round_trips FILE...    prints the results for templates of models
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "engine/grammar/grammar.h"
#include "engine/text/text.h"
#include "server/json/json.h"
#include "server/message/internal.h"
#include "support/suite_main.h"

/* ---- families ------------------------------------------------------------------------------- */

#define MARK "]<]minimax[>["
#define DS(word) "<\xEF\xBD\x9Ctool\xE2\x96\x81" word "\xEF\xBD\x9C>"
#define CALLS(word) DS("calls\xE2\x96\x81" word)
#define CALL(word) DS("call\xE2\x96\x81" word)
#define KIMI(word) "<|tool_" word "|>"
#define DSML                                                                                       \
    "\xEF\xBD\x9C"                                                                                 \
    "DSML\xEF\xBD\x9C"
#define STEP(word) "<\xEF\xBD\x9Ctool_" word "\xEF\xBD\x9C>"
#define FIRST "{\"n\": 1, \"p\": \"a\\nb\", \"l\": [true, null]}"

/* Parts of templates that write a call `c`. */
#define EACH(text) "{% for c in m.tool_calls %}{% set f = c.function %}" text "{% endfor %}"
#define NAME "{{ f.name }}"
#define ARGS "{{ f.arguments | tojson }}"
#define OBJECT(key) "{\"name\": \"" NAME "\", \"" key "\": " ARGS "}"
#define LF "{{ '\\n' }}"
#define BETWEEN(text) "{% if not loop.first %}" text "{% endif %}"
#define BETWEEN_NEXT(text) "{% if not loop.last %}" text "{% endif %}"
#define PYTHON                                                                                     \
    NAME "({% for k, v in f.arguments | items %}" BETWEEN(", ") "{{ k }}={% if v is iterable and " \
                                                                "v is not string %}[True, None]"   \
                                                                "{% else %}{{ v | tojson }}"       \
                                                                "{% endif %}{% endfor %})"
#define EACH_VALUE(text) "{% for k, v in f.arguments | items %}" text "{% endfor %}"
#define VALUE "{{ v if v is string else v | tojson }}"

/* Tencent's templates put a word into each marker. */
#define HUNYUAN(word, behind_name)                                                                 \
    "{% set t = '" word "' %}{{ '<tool_calls{}>'.format(t) }}" LF EACH(                            \
        "{{ '<tool_call{}>'.format(t) }}" NAME behind_name LF EACH_VALUE(                          \
            "{{ '<arg_key{}>'.format(t) + k + '</arg_key{}>'.format(t) }}" LF                      \
            "{{ '<arg_value{}>'.format(t) }}" VALUE                                                \
            "{{ '</arg_value{}>'.format(t) }}" LF) "{{ '</tool_call{}>'.format(t) "                \
                                                   "}}" LF) "{{ "                                  \
                                                            "'</"                                  \
                                                            "tool_calls{}>'.format(t) "            \
                                                            "}}"
#define COHERE                                                                                     \
    "<|START_ACTION|>[" LF EACH(                                                                   \
        BETWEEN("," LF) "    {\"tool_call_id\": \"{{ loop.index0 }}\", \"tool_name\": "            \
                        "\"" NAME "\", \"parameters\": " ARGS "}") LF "]<|END_ACTION|>"

/* How models of the family write calls in their templates, simplified. */
static const struct family {
    const char *name, *calls;
    bool is_single; /* a message has one call */
} families[] = {
    {"hermes", EACH(BETWEEN(LF) "<tool_call>" LF OBJECT("arguments") LF "</tool_call>")},
    {"qwen3_coder",
     EACH(BETWEEN(LF) "<tool_call>" LF "<function=" NAME ">" LF EACH_VALUE(
         "<parameter={{ k }}>" LF VALUE LF "</parameter>" LF) "</function>" LF "</tool_call>")},
    {"seed_oss", EACH(BETWEEN(LF) "<seed:tool_call>" LF "<function=" NAME ">" LF EACH_VALUE(
                     "<parameter={{ k }}>{{ v if v is string else v | string "
                     "}}</parameter>" LF) "</function>" LF "</seed:tool_call>")},
    {"glm45",
     EACH(BETWEEN(LF) "<tool_call>" NAME LF EACH_VALUE(
         "<arg_key>{{ k }}</arg_key>" LF "<arg_value>" VALUE "</arg_value>" LF) "</tool_call>")},
    {"llama3_json", "{# dictionary of argument name #}" EACH(OBJECT("parameters")), true},
    {"pythonic", "{# func_name1(params_name1= #}[" EACH(BETWEEN(", ") PYTHON) "]"},
    {"mistral", "[TOOL_CALLS] [" EACH(BETWEEN(", ") "{\"name\": \"" NAME "\", \"arguments\": " ARGS
                                                    ", \"id\": \"{{ c.id }}\"}") "]"},
    {"mistral_v11", EACH("[TOOL_CALLS]" NAME "[CALL_ID]{{ c.id }}[ARGS]" ARGS)},
    {"deepseek_v3", CALLS("begin") EACH(BETWEEN(LF) CALL("begin") "function" DS("sep") NAME LF
                                        "```json" LF ARGS LF "```" CALL("end")) CALLS("end")},
    {"deepseek_v31",
     CALLS("begin") EACH(CALL("begin") NAME DS("sep") ARGS CALL("end")) CALLS("end")},
    {"kimi_k2", KIMI("calls_section_begin") EACH(KIMI("call_begin") "{{ c.id }}" KIMI(
                    "call_argument_begin") ARGS KIMI("call_end")) KIMI("calls_section_end")},
    {"kimi_k3",
     "{% macro open(t) %}<|open|>{{ t }}<|sep|>{% endmacro %}{% macro close(t) %}<|close|>{{ t }}"
     "<|sep|>{% endmacro %}{% macro kind(v) %}{% if v is number %}number{% elif v is string "
     "%}string"
     "{% else %}array{% endif %}{% endmacro %}{{ open('response') + close('response') + "
     "open('tools') }}" EACH(
         "<|open|>call tool=\"" NAME "\" index=\"{{ loop.index }}\"<|sep|>" EACH_VALUE(
             "<|open|>argument key=\"{{ k }}\" type=\"{{ kind(v) }}\"<|sep|>" VALUE
             "{{ close('argument') }}") "{{ close('call') }}") "{{ close('tools') + "
                                                               "close('message') }}"},
    {"longcat",
     EACH(BETWEEN(LF) "<longcat_tool_call>" LF OBJECT("arguments") LF "</longcat_tool_call>")},
    {"internlm", EACH("<|action_start|><|plugin|>" LF OBJECT("parameters") "<|action_end|>")},
    {"gigachat3", EACH("<|function_call|>" OBJECT("arguments"))},
    {"minicpm5", EACH("<function name=\"" NAME
                      "\">" EACH_VALUE("<param name=\"{{ k }}\">" VALUE "</param>") "</function>")},
    {"hy_v3", "<tool_calls>" LF EACH("<tool_call>" NAME "<tool_sep>" LF EACH_VALUE(
                  "<arg_key>{{ k }}</arg_key>" LF "<arg_value>" VALUE
                  "</arg_value>" LF) "</tool_call>" LF) "</tool_calls>"},
    {"granite", "<|tool_call|>[" EACH(BETWEEN(", ") OBJECT("arguments")) "]"},
    {"lfm2", "<|tool_call_start|>[" EACH(BETWEEN(", ") PYTHON) "]<|tool_call_end|>"},
    {"nemotron_json", "<TOOLCALL>[" EACH(BETWEEN(", ") OBJECT("arguments")) "]</TOOLCALL>"},
    {"apertus",
     "<|tools_prefix|>[" EACH(BETWEEN(", ") "{\"" NAME "\": " ARGS "}") "]<|tools_suffix|>"},
    {"cohere2", COHERE},
    {"cohere_command3", COHERE},
    {"cohere_command4", "{# <|START_TEXT|> #}" COHERE},
    {"functiongemma",
     "{% macro w(v) %}{% if v is string %}<escape>{{ v }}<escape>{% elif v is iterable %}"
     "[true,null]{% else %}{{ v }}{% endif %}{% endmacro %}" EACH(
         "<start_function_call>call:" NAME
         "{{ '{' }}" EACH_VALUE(BETWEEN(",") "{{ k }}:{{ w(v) }}") "{{ '}' }}<end_function_call>")},
    {"step3",
     STEP("calls_begin") LF EACH(STEP("call_begin") "function" STEP(
         "sep") "<steptml:invoke name=\"" NAME
                "\">" LF EACH_VALUE("<steptml:parameter name=\"{{ k }}\">" VALUE
                                    "</steptml:parameter>" LF) "</steptml:invoke>" STEP("call_end")
                                     LF) STEP("calls_end")},
    {"solar_open2", EACH("<|tool_call:start|>" NAME LF EACH_VALUE(
                        "<|tool_arg:start|>{{ k }}<|tool_arg:value|>" VALUE
                        "<|tool_arg:end|>" LF) "<|tool_call:end|>" BETWEEN_NEXT(LF))},
    {"dots", "<dots_function_call>" LF EACH("<invoke name=\"" NAME "\">" LF EACH_VALUE(
                 "<parameter name=\"{{ k }}\">" VALUE
                 "</parameter>" LF) "</invoke>" LF) "</dots_function_call>"},
    {"hy_v3", HUNYUAN(":opensource", "{{ '<tool_sep{}>'.format(t) }}")},
    {"hy_v4", HUNYUAN(":6124c78e", "")},
    {"poolside_v1",
     EACH("<tool_call>" NAME EACH_VALUE("<arg_key>{{ k }}</arg_key><arg_value>" VALUE
                                        "</arg_value>") "</tool_call>" BETWEEN_NEXT(LF))},
    {"inkling", EACH(BETWEEN("<|message_model|>") NAME
                     "<|content_invoke_tool_json|>" OBJECT("args") "<|end_message|>")},
    {"muse_glimmer",
     EACH(BETWEEN(
         "<|eom|><|start|>assistant") " to=" NAME "<|message|><atem:function_calls>" LF
                                      "<atem:invoke name=\"" NAME "\">" LF EACH_VALUE(
                                          "<atem:parameter name=\"{{ k }}\">" VALUE
                                          "</atem:parameter>" LF) "</atem:invoke>" LF
                                                                  "</atem:function_calls>")},
    {"xlam",
     "{# make calls in a single JSON array #}[" EACH(BETWEEN(", ") OBJECT("arguments")) "]"},
    {"gemma4", "{% macro w(v) %}{% if v is string %}<|\"|>{{ v }}<|\"|>{% elif v is iterable %}"
               "[true,null]{% else %}{{ v }}{% endif %}{% endmacro %}" EACH(
                   "<|tool_call>call:" NAME "{{ '{' }}" EACH_VALUE(
                       BETWEEN(",") "{{ k }}:{{ w(v) }}") "{{ '}' }}<tool_call|>")},
    {"minimax_m3",
     "{% macro xml(v) %}{% if v is mapping %}{% for k, w in v.items() %}" MARK
     "<{{ k }}>{{ xml(w) }}" MARK
     "</{{ k }}>{% endfor %}{% elif v is iterable and v is not string %}{% for w in v %}" MARK
     "<item>{{ xml(w) }}" MARK "</item>{% endfor %}{% elif v is string %}{{ v }}{% else %}"
     "{{ v | tojson }}{% endif %}{% endmacro %}" MARK
     "<tool_call>" LF EACH(MARK "<invoke name=\"" NAME "\">{{ xml(f.arguments) }}" MARK
                                "</invoke>" LF) MARK "</tool_call>"},
    {"minimax_m2", "<minimax:tool_call>" LF EACH("<invoke name=\"" NAME "\">" LF EACH_VALUE(
                       "<parameter name=\"{{ k }}\">" VALUE
                       "</parameter>" LF) "</invoke>" LF) "</minimax:tool_call>"},
    {"deepseek_v32",
     "<" DSML "function_calls>" LF EACH("<" DSML "invoke name=\"" NAME "\">" LF EACH_VALUE(
         "<" DSML
         "parameter name=\"{{ k }}\" string=\"{{ 'true' if v is string else 'false' }}\">" VALUE
         "</" DSML "parameter>" LF) "</" DSML "invoke>" LF) "</" DSML "function_calls>"},
    {"deepseek_v4",
     "<" DSML "tool_calls>" LF EACH("<" DSML "invoke name=\"" NAME "\">" LF EACH_VALUE(
         "<" DSML
         "parameter name=\"{{ k }}\" string=\"{{ 'true' if v is string else 'false' }}\">" VALUE
         "</" DSML "parameter>" LF) "</" DSML "invoke>" LF) "</" DSML "tool_calls>"},
    {"functionary_v32", "{# >>>all #}" EACH(BETWEEN(">>>") NAME LF ARGS)},
    {"command_r",
     "{{ '\\nAction:\\n```json\\n[\\n' }}" EACH(
         "{{ '{\\n' | indent(4, first=true) }}{{ '\"tool_name\": \"' | indent(8, first=true) + "
         "f.name + '\",\\n' }}{{ '\"parameters\": ' | indent(8, first=true) }}{{ f.arguments | "
         "tojson(indent=4) | indent(8) }}{{ '\\n' }}{{ '}' | indent(4, first=true) }}" BETWEEN_NEXT(
             "{{ ',\\n' }}")) "{{ '\\n]```\\n' }}"},
    {"granite-20b-fc", EACH("<function_call> " OBJECT("arguments"))},
    {"firefunction_v2", "{# prefix function calls with functools marker #} functools[" EACH(
                            BETWEEN(", ") OBJECT("arguments")) "]"},
    {"phi4_mini_json",
     "{# <|tool|> #}<|tool_call|>[" EACH(BETWEEN(", ") OBJECT("arguments")) "]<|/tool_call|>"},
    {"olmo3", "<function_calls>" LF EACH(BETWEEN(LF) PYTHON) LF "</function_calls>"},
    {"jamba", "<tool_calls>[" LF EACH(BETWEEN("," LF) OBJECT("arguments")) LF "]</tool_calls>"},
    {"minimax", "{# <beginning_of_sentence> #}<tool_calls>" LF EACH(BETWEEN(LF) OBJECT("arguments"))
                    LF "</tool_calls>"},
    {"functionary_v31",
     "{# start_tag => `<function` #}" EACH("<function=" NAME ">" ARGS "</function>")},
    {"openai",
     EACH("<|channel|>commentary to=functions." NAME " <|constrain|>json<|message|>" ARGS
          "<|call|>"),
     true},
};

enum { N_FAMILIES = sizeof families / sizeof *families };

/* A template: the user's text on a line, then calls. */
static void write_template(const struct family *family, struct buf *out) {
    buf_printf(out,
               "{%% for m in messages %%}{%% if m.role == 'user' %%}{{ m.content + '\\n' }}"
               "{%% else %%}%s{%% endif %%}{%% endfor %%}",
               family->calls);
}

/* ---- messages ------------------------------------------------------------------------------- */

/* Writes the conversation of a question and, unless `message` is NULL, its calls, as clients send
 * it. */
static void write_messages(const struct message *message, struct buf *out) {
    buf_puts(out, "[{\"role\":\"user\",\"content\":\"Which?\"}");
    for (int i = 0; message && i < message->n_calls; i++) {
        const struct message_call *call = &message->calls[i];
        buf_puts(out, i ? "," : ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[");
        buf_printf(out,
                   "{\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":\"%s\","
                   "\"arguments\":%s}}",
                   call->id, call->name, call->arguments.data);
        if (i + 1 == message->n_calls) buf_puts(out, "]}");
    }
    buf_puts(out, "]");
}

/* Renders a conversation. Returns false if the template refuses it; `out` then holds the reason. */
static bool render(const struct chat_template *chat, const struct message *message,
                   struct buf *out) {
    struct buf text = {0};
    struct json *messages;
    struct err err = {0};
    write_messages(message, &text);
    if (json_parse(&messages, "It", text.data, text.length, &err)) abort();
    struct chat_input input = {.messages = messages,
                               .bos_token = "<s>",
                               .eos_token = "</s>",
                               .add_generation_prompt = !message};
    bool rendered = chat_template_render(chat, &input, 1 << 20, out, NULL, NULL, &err) == STATUS_OK;
    if (!rendered) buf_puts(out, err.message);
    json_free(messages);
    buf_free(&text);
    return rendered;
}

static void read_text(const struct tool_format *format, const struct tool_set *known,
                      const char *text, struct message *out) {
    struct message_settings settings = {.tools = format, .known = known, .stream_calls = true};
    struct message_parser *parser = message_parser_new(&settings);
    message_parser_add(parser, text, strlen(text), out);
    message_parser_finish(parser, out);
    message_parser_free(parser);
}

static void add_call(struct message *message, const char *id, const char *name,
                     const char *arguments) {
    struct message_call *call = message_call_at(message, message->n_calls);
    snprintf(call->id, sizeof call->id, "%s", id);
    snprintf(call->name, sizeof call->name, "%s", name);
    buf_puts(&call->arguments, arguments);
}

/* Makes n calls with ids that the family's templates accept. */
static void make_calls(const struct tool_format *format, int n, struct message *out) {
    bool is_kimi = format->ids == ID_KIMI;
    *out = (struct message){0};
    add_call(out, is_kimi ? "functions.f:0" : "AbCd01234", "f", FIRST);
    if (n > 1)
        add_call(out, is_kimi ? "functions.get_time-2.x:1" : "AbCd56789", "get_time-2.x", "{}");
}

/* Are the messages equal? Values are compared as JSON. */
static bool are_same(const struct message *x, const struct message *y, bool with_ids) {
    bool same = x->n_calls == y->n_calls;
    for (int i = 0; same && i < x->n_calls; i++) {
        const struct message_call *a = &x->calls[i], *b = &y->calls[i];
        struct json *values[2] = {NULL, NULL};
        struct buf texts[2] = {{0}, {0}};
        same = strcmp(a->name, b->name) == 0 && (!with_ids || strcmp(a->id, b->id) == 0);
        for (int k = 0; k < 2; k++) {
            const struct buf *text = k ? &b->arguments : &a->arguments;
            same =
                json_parse(&values[k], "It", text->data, text->length, NULL) == STATUS_OK && same;
            if (same) json_write_value(&texts[k], values[k]);
            json_free(values[k]);
        }
        same = same && strcmp(texts[0].data, texts[1].data) == 0;
        buf_free(&texts[0]);
        buf_free(&texts[1]);
    }
    return same;
}

/* ---- grammars ------------------------------------------------------------------------------- */

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"n\":{\"type\":\"integer\"},\"p\":{\"type\":\"string\"},\"l\":{\"type\":"
    "\"array\",\"items\":{\"type\":[\"boolean\",\"null\"]}}},\"required\":[\"n\",\"p\",\"l\"]}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"get_time-2.x\"}}]";

/* A grammar does not contain the token that ends an answer. */
static size_t length_without_end(const char *text) {
    static const char end[] = "<|call|>";
    size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0 ? n - n_end : n;
}

/* Calls that the template wrote must be allowed, if they may be written and if they must be. */
static void check_allowed(const struct tool_format *format, const char *tools, const char *text) {
    struct json *functions;
    ck_assert(json_parse(&functions, "It", tools, strlen(tools), NULL) == STATUS_OK);
    for (int must_call = 0; must_call < 2; must_call++) {
        const struct tool_grammar asked = {
            .functions = functions, .tools = format, .parallel = true, .must_call = must_call};
        struct buf source = {0};
        struct grammar *grammar;
        struct err err = {0};
        bool may_end;
        tool_grammar_write(&asked, &source);
        enum status status = grammar_compile(GRAMMAR_STRUCTURAL_TAG, source.data, source.length,
                                             NULL, &grammar, &err);
        ck_assert_msg(status == STATUS_OK, "%s: %s", format->names, err.message);
        size_t n = length_without_end(text);
        size_t taken = grammar_match(grammar, text, n, &may_end);
        ck_assert_msg(taken == n && may_end, "%s, must call %d: %s is allowed up to byte %zu",
                      format->names, must_call, text, taken);
        grammar_release(grammar);
        buf_free(&source);
    }
    json_free(functions);
}

/* ---- round trips ---------------------------------------------------------------------------- */

START_TEST(calls_come_back_from_the_familys_template) {
    const struct family *family = &families[_i];
    const struct tool_format *format = tool_format_find(family->name);
    struct buf source = {0}, texts[2] = {{0}, {0}};
    struct chat_template *chat;
    struct message given, read[2] = {{{0}}, {{0}}};
    struct err err = {0};
    write_template(family, &source);
    ck_assert_ptr_eq(tool_format_of_template(source.data, source.length), format);
    enum status status = chat_template_new(&chat, source.data, source.length, &err);
    ck_assert_msg(status == STATUS_OK, "%s: %s", family->name, err.message);
    make_calls(format, family->is_single ? 1 : 2, &given);
    for (int k = 0; k < 2; k++) { /* the calls that were read are written again */
        ck_assert_msg(render(chat, k ? &read[0] : &given, &texts[k]), "%s", texts[k].data);
        ck_assert_msg(strncmp(texts[k].data, "Which?\n", 7) == 0, "%s", texts[k].data);
        check_allowed(format, tools_text, texts[k].data + 7);
        read_text(format, NULL, texts[k].data + 7, &read[k]);
        ck_assert_msg(read[k].content.length == 0, "%s: %s", texts[k].data, read[k].content.data);
        ck_assert_msg(are_same(&given, &read[k], format->ids == ID_KIMI), "%s", texts[k].data);
    }
    for (int k = 0; k < 2; k++) {
        message_free(&read[k]);
        buf_free(&texts[k]);
    }
    message_free(&given);
    chat_template_free(chat);
    buf_free(&source);
}
END_TEST

#define WORDS                                                                                      \
    "{\"b\": true, \"c\": false, \"z\": null, \"n\": 1.5, \"l\": [true, null], \"s\": \"None\"}"
static const char words_tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"b\":{\"type\":\"boolean\"},\"c\":{\"type\":\"boolean\"},\"z\":{\"anyOf\":[{"
    "\"type\":\"integer\"},{\"type\":\"null\"}]},\"n\":{\"type\":\"number\"},\"l\":{\"type\":"
    "\"array\"},\"s\":{\"type\":\"string\"}}}}}]";
/* The macro of Qwen3-Coder's and Qwen3.5's templates. */
static const struct family of_qwen = {
    "qwen3_coder",
    EACH("<tool_call>" LF "<function=" NAME ">" LF EACH_VALUE(
        "<parameter={{ k }}>" LF "{% set v = v | tojson if v is mapping or (v is sequence and v is "
        "not string) else v | string %}{{ v }}" LF "</parameter>" LF) "</function>" LF
                                                                      "</tool_call>"),
    true};

START_TEST(qwens_templates_write_words_of_python) {
    const struct tool_format *format = tool_format_find(of_qwen.name);
    struct buf source = {0}, text = {0};
    struct message given = {0}, read = {0};
    struct chat_template *chat;
    struct json *functions;
    struct err err = {0};
    write_template(&of_qwen, &source);
    ck_assert(chat_template_new(&chat, source.data, source.length, &err) == STATUS_OK);
    ck_assert(json_parse(&functions, "It", words_tools, strlen(words_tools), NULL) == STATUS_OK);
    struct tool_set *known = tool_set_new(functions, NULL);
    add_call(&given, "AbCd01234", "f", WORDS);
    ck_assert_msg(render(chat, &given, &text), "%s", text.data);
    ck_assert_msg(strstr(text.data, "\nTrue\n") && strstr(text.data, "\nNone\n"), "%s", text.data);
    check_allowed(format, words_tools, text.data + 7);
    read_text(format, known, text.data + 7, &read);
    ck_assert_msg(are_same(&given, &read, false), "%s", read.calls[0].arguments.data);
    tool_set_free(known);
    json_free(functions);
    message_free(&given);
    message_free(&read);
    chat_template_free(chat);
    buf_free(&source);
    buf_free(&text);
}
END_TEST

/* Each row of the table has its family here. */
START_TEST(every_family_is_tried) {
    struct buf names = {0};
    tool_format_names(&names);
    for (char *name = strtok(names.data, ", "); name; name = strtok(NULL, ", ")) {
        bool found = false;
        for (int i = 0; i < N_FAMILIES; i++)
            found |= tool_format_find(families[i].name) == tool_format_find(name);
        ck_assert_msg(found, "%s", name);
    }
    buf_free(&names);
}
END_TEST

/* ---- templates of models -------------------------------------------------------------------- */

/* Prints whether calls survive a round trip through a template in this format. */
static void try_calls(const struct chat_template *chat, const struct tool_format *format, int n) {
    struct buf before = {0}, behind = {0};
    struct message given, read = {{0}};
    size_t at = 0;
    make_calls(format, n, &given);
    bool rendered = render(chat, NULL, &before) && render(chat, &given, &behind);
    while (rendered && at < before.length && before.data[at] == behind.data[at]) at++;
    while (at > 0 && !strchr(">\n", behind.data[at - 1])) at--; /* markers stay whole */
    if (rendered) read_text(format, NULL, behind.data + at, &read);
    printf("  %d: %s\n", n,
           !rendered                        ? "refused"
           : are_same(&given, &read, false) ? "the same"
                                            : "others");
    if (!rendered || !are_same(&given, &read, false))
        printf("    %s\n", rendered ? behind.data + at : behind.length ? behind.data : before.data);
    message_free(&given);
    message_free(&read);
    buf_free(&before);
    buf_free(&behind);
}

static void try_file(const char *path) {
    char *source = calloc(1, 1 << 20);
    FILE *file = fopen(path, "rb");
    size_t n = file ? fread(source, 1, (1 << 20) - 1, file) : 0;
    struct chat_template *chat;
    struct err err = {0};
    const struct tool_format *format = tool_format_of_template(source, n);
    printf("%s: %s\n", path, format ? format->names : "no calls");
    if (format && chat_template_new(&chat, source, n, &err) == STATUS_OK) {
        try_calls(chat, format, 1);
        try_calls(chat, format, 2);
        chat_template_free(chat);
    } else if (format) {
        printf("  %s\n", err.message);
    }
    if (file) fclose(file);
    free(source);
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) try_file(argv[i]);
    if (argc > 1) return 0;
    Suite *suite = suite_create("server_tool_round_trips");
    TCase *core = tcase_create("core");
    tcase_add_loop_test(core, calls_come_back_from_the_familys_template, 0, N_FAMILIES);
    tcase_add_test(core, qwens_templates_write_words_of_python);
    tcase_add_test(core, every_family_is_tried);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
