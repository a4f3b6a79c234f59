/* The probe of a template's form of calls: what the template writes must be what the parser of the
 * form reads.
 *
 *     test_server_tool_probe FILE...    prints the forms of templates
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/grammar.h"
#include "engine/text/text.h"
#include "server/app/app.h"
#include "server/message/internal.h"
#include "support/suite_main.h"

#define TEMPLATE(calls, prompt)                                                                    \
    "{% for m in messages %}<|{{ m.role }}|>{{ '\\n' }}{% if m.tool_calls %}"                      \
    "{% for c in m.tool_calls %}{% set f = c.function %}" calls                                    \
    "{% endfor %}{% else %}{{ m.content }}{% endif %}<|end|>{{ '\\n' }}{% endfor %}"               \
    "{% if add_generation_prompt %}<|assistant|>{{ '\\n' }}" prompt "{% endif %}"
#define OBJECT "{\"name\": \"{{ f.name }}\", \"arguments\": {{ f.arguments | tojson }}}"
#define HERMES "<tool_call>\n" OBJECT "\n</tool_call>"
#define MARK "]<]minimax[>["

enum probed { NO_FORM, AGREES, DISAGREES };

static const struct {
    const char *source;
    enum probed probed;
} rows[] = {
    {TEMPLATE("", ""), NO_FORM},
    {TEMPLATE(HERMES, ""), AGREES},
    {TEMPLATE("<think>\n\n</think>\n\n" HERMES, ""), AGREES},
    {TEMPLATE("<think>\n\n</think>\n\n" HERMES, "<think>\n"), AGREES},
    {TEMPLATE("</think>" HERMES, "<think>"), AGREES},
    /* a longer marker */
    {TEMPLATE(MARK HERMES, ""), DISAGREES},
    {TEMPLATE("]]" HERMES, ""), DISAGREES},
    /* arguments are joined as a text */
    {"{# >>>all #}" TEMPLATE("{{ '>>>' + f.name + '\\n' + f.arguments }}", ">>>"), AGREES},
    {"{# >>>all #}" TEMPLATE("{{ '>>>' + f.name + ': ' + f.arguments }}", ">>>"), DISAGREES},
    {TEMPLATE("<tool_call>{{ f.name }}: {{ f.arguments | tojson }}</tool_call>", ""), DISAGREES},
    {"{# <tool_call> #}" TEMPLATE("CALL " OBJECT, ""), DISAGREES},
    /* at the start of an answer only */
    {"{# <|python_tag|> #}" TEMPLATE(OBJECT, ""), AGREES},
    {"{# <|python_tag|> #}" TEMPLATE("<call>" OBJECT, ""), DISAGREES},
    /* one way to write the history fails */
    {"{% if messages[-1].role == 'assistant' %}{{ raise_exception('x') }}{% endif %}" TEMPLATE(
         HERMES, ""),
     AGREES},
    {TEMPLATE("{% if m.content is string %}{{ raise_exception('x') }}{% endif %}" HERMES, ""),
     AGREES},
    {TEMPLATE("{% if c.id | length != 9 %}{{ raise_exception('x') }}{% endif %}[TOOL_CALLS] "
              "[" OBJECT "]",
              ""),
     AGREES},
    /* the last message is written differently */
    {"{% if messages[-1].role == 'user' %}[TOOLS]{% endif %}" TEMPLATE("[TOOL_CALLS] [" OBJECT "]",
                                                                       ""),
     AGREES},
    /* nothing is known: the markers decide */
    {"{# <tool_call> #}" TEMPLATE("{{ raise_exception('x') }}", ""), AGREES},
    {"{# <tool_call> #}" TEMPLATE("a call", ""), AGREES},
    {"{# <tool_call> #}{{ raise_exception('x') }}", AGREES},
};

enum { N_ROWS = sizeof rows / sizeof *rows };

static enum probed probe_source(const char *source, size_t length, const char **error) {
    static struct err err;
    struct chat_template *chat;
    struct tool_probe probe = {.tools = tool_format_of_template(source, length),
                               .reasoning = reasoning_format_of_template(source, length),
                               .bos_token = "<s>",
                               .eos_token = "</s>"};
    *error = NULL;
    if (!probe.tools) return NO_FORM;
    if (chat_template_new(&chat, source, length, &err)) {
        *error = err.message;
        return NO_FORM;
    }
    probe.chat = chat;
    enum probed probed = tool_probe_disagrees(&probe) ? DISAGREES : AGREES;
    chat_template_free(chat);
    return probed;
}

START_TEST(a_form_is_what_the_template_writes) {
    const char *source = rows[_i].source, *error;
    ck_assert_msg(probe_source(source, strlen(source), &error) == rows[_i].probed, "%s", source);
    ck_assert_ptr_null(error);
}
END_TEST

/* The white space between reasoning and content. */
static const struct {
    const char *source, *space;
} thoughts[] = {
    {"{% for m in messages %}{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n"
     "</think>\n\n{% endif %}{{ m.content }}{% endfor %}",
     "\n\n"},
    {"{% for m in messages %}{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>"
     "{% endif %}{{ m.content }}{% endfor %}",
     ""},
    {"{% for m in messages %}{{ m.content }}{% endfor %}"
     "{% if enable_thinking == false %}<think>\n\n</think>\n{% endif %}",
     "\n"},
    {"{% for m in messages %}{{ m.content }}{% endfor %}<think>", ""},
    {"{{ raise_exception('no') }}</think>\n\n", ""},
};

START_TEST(the_space_after_reasoning_is_the_templates) {
    struct err err;
    struct chat_template *chat;
    char space[REASONING_SPACE];
    const char *source = thoughts[_i].source;
    ck_assert_int_eq(chat_template_new(&chat, source, strlen(source), &err), STATUS_OK);
    const struct tool_probe probe = {.chat = chat, .reasoning = reasoning_format_find("qwen3")};
    reasoning_probe_space(&probe, space);
    ck_assert_str_eq(space, thoughts[_i].space);
    chat_template_free(chat);
}
END_TEST

/* ---- derived forms -------------------------------------------------------------------------- */

#define SHOWN(calls)                                                                               \
    "{{ tools | tojson }}{% for m in messages %}<|{{ m.role }}|>{% if m.tool_calls %}" calls       \
    "{% else %}{{ m.content }}{% endif %}<|end|>{{ '\\n' }}{% endfor %}"                           \
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
#define EACH(text) "{% for c in m.tool_calls %}{% set f = c.function %}" text "{% endfor %}"
#define NEXT(text) "{% if not loop.first %}" text "{% endif %}"

/* Templates without a known form; `open` is NULL if none can be derived. */
static const struct {
    const char *source, *open, *call, *between, *close;
} derived[] = {
    {SHOWN("<calls>" EACH(NEXT(";") "{{ f.name }}|{{ f.arguments | tojson }}") "</calls>"),
     "<calls>", "%n|%a", ";", "</calls>"},
    {SHOWN(EACH(
         "\n```tool\n{\"tool\": \"{{ f.name }}\", \"input\": {{ f.arguments | tojson }}}\n```")),
     "```tool\n{\"tool\": \"", "%n\", \"input\": %a", "}\n``````tool\n{\"tool\": \"", "}\n```"},
    {SHOWN("<think>\n\n</think>\n\n" EACH("<call>{{ f.name }} {{ f.arguments | tojson }}")),
     "<call>", "%n %a", "<call>", NULL},
    {SHOWN(EACH("<call>{{ f.name }}:{{ f.arguments | tojson(separators=(',', ':')) }}</call>")),
     "<call>", "%n:%a", "</call><call>", "</call>"},
    /* an ordinary word, an id, arguments apart, a list of names, no tools, no calls */
    {SHOWN(EACH("Call {{ f.name }}: {{ f.arguments | tojson }}")), NULL},
    {SHOWN(EACH("<call {{ c.id }}>{{ f.name }}: {{ f.arguments | tojson }}")), NULL},
    {SHOWN(EACH("<call>{{ f.name }}({{ f.arguments.n }})")), NULL},
    {SHOWN("<calls>" EACH("{{ f.name }},") EACH("{{ f.arguments | tojson }}")), NULL},
    {TEMPLATE("<call>{{ f.name }}: {{ f.arguments | tojson }}", ""), NULL},
    {SHOWN(""), NULL},
};

static bool is_text(const char *text, const char *expected) {
    return text && expected ? strcmp(text, expected) == 0 : text == expected;
}

START_TEST(a_form_is_derived_from_the_template) {
    struct err err;
    struct chat_template *chat;
    const char *source = derived[_i].source;
    ck_assert_int_eq(chat_template_new(&chat, source, strlen(source), &err), STATUS_OK);
    const struct tool_probe probe = {.chat = chat, .reasoning = reasoning_format_find("qwen3")};
    struct tool_format *format = tool_probe_derive(&probe);
    ck_assert_msg((format != NULL) == (derived[_i].open != NULL), "%s", source);
    if (format) {
        const struct tool_form *form = &format->forms[0];
        ck_assert_str_eq(form->open, derived[_i].open);
        ck_assert_str_eq(form->call, derived[_i].call);
        ck_assert_str_eq(form->between, derived[_i].between);
        ck_assert(is_text(form->close, derived[_i].close));
    }
    tool_format_free(format);
    chat_template_free(chat);
}
END_TEST

/* The grammar allows the calls as the template writes them. */
START_TEST(the_grammar_of_a_derived_form_takes_its_calls) {
    static const char text[] = "<calls>f|{\"n\": 7};f|{\"n\": 8}</calls>";
    const struct tool_samples samples = {
        .one = "<calls>f|{\"n\": 7}</calls>.",
        .two = "<calls>f|{\"n\": 7};f|{\"n\": 8}</calls>.",
        .tail = ".",
        .name = "f",
        .arguments = {{"{\"n\": 7}", "{\"n\":7}"}, {"{\"n\": 8}", "{\"n\":8}"}},
        .id = "AbCd"};
    struct tool_format *format = tool_format_derive(&samples);
    struct json *tools;
    struct grammar *grammar;
    struct buf tag = {0};
    struct err err;
    bool may_end;
    const char *functions = "[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"n\":{"
                            "\"type\":\"integer\"}}}}}]";
    ck_assert_ptr_nonnull(format);
    ck_assert_int_eq(json_parse(&tools, "It", functions, strlen(functions), &err), STATUS_OK);
    for (int must_call = 0; must_call < 2; must_call++) {
        const struct tool_grammar asked = {
            .tools = format, .functions = tools, .parallel = true, .must_call = must_call};
        buf_clear(&tag);
        tool_grammar_write(&asked, &tag);
        ck_assert_int_eq(
            grammar_compile(GRAMMAR_STRUCTURAL_TAG, tag.data, tag.length, NULL, &grammar, &err),
            STATUS_OK);
        ck_assert_uint_eq(grammar_match(grammar, text, strlen(text), &may_end), strlen(text));
        ck_assert(may_end);
        grammar_release(grammar);
    }
    buf_free(&tag);
    json_free(tools);
    tool_format_free(format);
}
END_TEST

static void try_file(const char *path) {
    static const char *const words[] = {"no form", "agrees", "disagrees"};
    char *source = calloc(1, 1 << 20);
    FILE *file = fopen(path, "rb");
    size_t n = file ? fread(source, 1, (1 << 20) - 1, file) : 0;
    const struct tool_format *format = tool_format_of_template(source, n);
    struct buf name = {0};
    const char *error;
    enum probed probed = probe_source(source, n, &error);
    if (format) tool_format_name(format, &name);
    printf("%s: %s %s %s\n", path, name.data ? name.data : "", words[probed], error ? error : "");
    buf_free(&name);
    if (file) fclose(file);
    free(source);
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) try_file(argv[i]);
    if (argc > 1) return 0;
    Suite *suite = suite_create("server_tool_probe");
    TCase *core = tcase_create("core");
    tcase_add_loop_test(core, a_form_is_what_the_template_writes, 0, N_ROWS);
    tcase_add_loop_test(core, the_space_after_reasoning_is_the_templates, 0,
                        sizeof thoughts / sizeof *thoughts);
    tcase_add_loop_test(core, a_form_is_derived_from_the_template, 0,
                        sizeof derived / sizeof *derived);
    tcase_add_test(core, the_grammar_of_a_derived_form_takes_its_calls);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
