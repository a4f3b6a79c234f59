/* The probe of a template's form of calls: what the template writes must be what the parser of the
 * form reads.
 *
 *     test_server_tool_probe FILE...    prints the forms of templates
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/text.h"
#include "server/app/app.h"
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
    /* a longer marker: before another form, and before the same form */
    {TEMPLATE(MARK "<tool_call>\n" MARK "<invoke name=\"{{ f.name }}\">" MARK "</invoke>", ""),
     DISAGREES},
    {TEMPLATE(MARK HERMES, ""), DISAGREES},
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
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
