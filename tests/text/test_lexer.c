/* The lexer: the tokens of a template's text, white space control, numbers, strings, limits.
 * test_template.c compares the output of whole templates with jinja2. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/template/parser.h"
#include "support/suite_main.h"
#include "support/template_fixture.h"

static void show_token(struct buf *out, const struct token *token) {
    char number[64];
    switch (token->kind) {
    case TEMPLATE_DATA:
    case TEMPLATE_NAME:
    case TEMPLATE_STRING:
        buf_puts(out, token->kind == TEMPLATE_DATA   ? "data:"
                      : token->kind == TEMPLATE_NAME ? ""
                                                     : "'");
        buf_add(out, token->string->data, token->string->length);
        break;
    case TEMPLATE_INT:
        snprintf(number, sizeof number, "%lld", (long long)token->integer);
        buf_puts(out, number);
        break;
    case TEMPLATE_FLOAT:
        snprintf(number, sizeof number, "%gf", token->real);
        buf_puts(out, number);
        break;
    default:
        snprintf(number, sizeof number, token->kind < 256 && token->kind > 31 ? "%c" : "<%d>",
                 token->kind);
        buf_puts(out, number);
    }
}

/* Returns the tokens of a source, separated by '|', or the error's message. */
static char *lexed(const char *source) {
    struct render *r = fixture_render_new(1 << 24);
    struct buf out = {0};
    buf_puts(&out, "");
    if (setjmp(r->guard.escape) == 0) {
        for (struct token *t = template_lex(&r->guard, source, strlen(source));
             t->kind != TEMPLATE_END; t++) {
            if (out.length) buf_puts(&out, "|");
            show_token(&out, t);
        }
    } else {
        buf_clear(&out);
        buf_puts(&out, r->guard.err->message);
    }
    fixture_render_free(r);
    return out.data;
}

static void expect_tokens(const char *source, const char *wanted) {
    char *tokens = lexed(source);
    ck_assert_msg(strcmp(tokens, wanted) == 0, "%s: wanted %s, got %s", source, wanted, tokens);
    free(tokens);
}

static void expect_refused(const char *source, const char *cause) {
    char *tokens = lexed(source);
    ck_assert_msg(strstr(tokens, cause) != NULL, "%s: wanted %s, got %s", source, cause, tokens);
    free(tokens);
}

START_TEST(tags_and_data_alternate) {
    expect_tokens("", "");
    expect_tokens("a{{ b }}c", "data:a|<2>|b|<3>|data:c");
    expect_tokens("{% if x %}", "<4>|if|x|<5>");
    expect_tokens("a{# {{ b }} #}c", "data:a|data:c");
    expect_tokens("{ {", "data:{ {");
    expect_tokens("a\r\nb\rc\n", "data:a\nb\nc"); /* one newline at the end is dropped */
    expect_tokens("a\n\n", "data:a\n");
}
END_TEST

START_TEST(blocks_trim_the_white_space_around_them) {
    expect_tokens("a\n  {% x %}\nb", "data:a\n|<4>|x|<5>|data:b");
    expect_tokens("a  {% x %}\n\nb", "data:a  |<4>|x|<5>|data:\nb"); /* not alone on its line */
    expect_tokens("  {%+ x +%}\nb", "data:  |<4>|x|<5>|data:\nb");
    expect_tokens("a \n {%- x -%} \n b", "data:a|<4>|x|<5>|data:b");
    expect_tokens("  {{ x }}\nb", "data:  |<2>|x|<3>|data:\nb");
    expect_tokens("a {{- x -}} b", "data:a|<2>|x|<3>|data:b");
    expect_tokens("  {# c #}\nb", "data:b");
    expect_tokens("{# c -#} \n b", "data:b");
    expect_tokens("a\xC2\xA0{{- x }}", "data:a|<2>|x|<3>"); /* a space of two bytes */
}
END_TEST

START_TEST(raw_blocks_keep_their_content) {
    expect_tokens("{% raw %}{{ x }}{% endraw %}", "data:{{ x }}");
    expect_tokens("{%- raw -%}\n a{%- endraw -%} b", "data:a|data:b");
    expect_tokens("{% raw %}\na\n{% endraw %}\nb", "data:\na\n|data:b");
    expect_refused("\n{% raw %}\n{{ x }}", "line 2: a raw block is not closed");
}
END_TEST

START_TEST(numbers_are_those_of_python) {
    expect_tokens("{{ 0 12 1_000 0x1F 0o17 0b101 }}", "<2>|0|12|1000|31|15|5|<3>");
    expect_tokens("{{ 1.5 1e3 1.5e-3 1_0.2_5 }}", "<2>|1.5f|1000f|0.0015f|10.25f|<3>");
    expect_tokens("{{ 007 }}", "<2>|0|7|<3>");
    expect_tokens("{{ 1.x }}", "<2>|1|.|x|<3>");
    expect_tokens("{{ a.1.2 }}", "<2>|a|.|1|.|2|<3>"); /* indexes, not a float */
    expect_tokens("{{ 0x }}", "<2>|0|x|<3>");
    expect_tokens("{{ 9223372036854775807 }}", "<2>|9223372036854775807|<3>");
    expect_refused("{{ 9223372036854775808 }}", "too large");
    expect_refused("{{ 0xFFFFFFFFFFFFFFFF }}", "too large");
}
END_TEST

START_TEST(strings_decode_their_escapes) {
    expect_tokens("{{ 'a' \"b'\" }}", "<2>|'a|'b'|<3>");
    expect_tokens("{{ 'a\\nb\\\\\\'\\x41\\u00e9\\U0001F600' }}",
                  "<2>|'a\nb\\'A\xC3\xA9\xF0\x9F\x98\x80|<3>");
    expect_tokens("{{ '\\101\\7\\q' }}", "<2>|'A\a\\q|<3>");
    /* a newline after a backslash is dropped */
    expect_tokens("{{ 'a\\\nb' }}", "<2>|'ab|<3>");
    expect_tokens("{{ '}}' }}", "<2>|'}}|<3>");
    expect_refused("{{ '\\x4' }}", "too few hexadecimal digits");
    expect_refused("{{ '\\ud800' }}", "not a Unicode character");
    expect_refused("{{ '\\U00110000' }}", "not a Unicode character");
    expect_refused("{{ '\\N{DASH}' }}", "not supported");
    expect_refused("{{ 'a }}", "not closed");
    expect_refused("{{ 'a\\", "not closed");
}
END_TEST

START_TEST(operators_and_brackets_are_checked) {
    expect_tokens("{{ a ** b // c == d != e >= f <= g }}",
                  "<2>|a|<256>|b|<257>|c|<258>|d|<259>|e|<260>|f|<261>|g|<3>");
    expect_tokens("{{ {'a': [1, (2)]} }}", "<2>|{|'a|:|[|1|,|(|2|)|]|}|<3>");
    /* inside brackets "}}" is two brackets */
    expect_tokens("{{ {'a': {}}}}", "<2>|{|'a|:|{|}|}|<3>");
    expect_refused("{{ (a] }}", "unexpected ']'");
    expect_refused("{{ ) }}", "unexpected ')'");
    expect_refused("{{ a ? b }}", "unexpected character '?'");
    expect_refused("{{ a\n", "line 1: a tag is not closed with '}}'");
    expect_refused("{% a", "not closed with '%}'");
    expect_refused("{# a", "not closed with '#}'");
}
END_TEST

/* The deepest allowed brackets, and one more. */
START_TEST(brackets_nest_to_the_limit) {
    struct buf source = {0};
    buf_puts(&source, "{{ ");
    for (int i = 0; i < TEMPLATE_NESTING_MAX; i++) buf_puts(&source, "(");
    expect_refused(source.data, "not closed with '}}'");
    buf_puts(&source, "(");
    expect_refused(source.data, "nested too deeply");
    buf_free(&source);
}
END_TEST

START_TEST(tokens_know_their_line) {
    static const char source[] = "a\n{{ b }}\n\n{% c\n d %}";
    struct render *r = fixture_render_new(1 << 20);
    if (setjmp(r->guard.escape)) ck_abort_msg("%s", r->guard.err->message);
    const struct token *t = template_lex(&r->guard, source, strlen(source));
    static const int lines[] = {1, 2, 2, 2, 2, 4, 4, 5, 5, 5};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        ck_assert_msg(t[i].line == lines[i], "token %zu is on line %d", i, t[i].line);
    }
    ck_assert_int_eq(t[sizeof lines / sizeof *lines - 1].kind, TEMPLATE_END);
    fixture_render_free(r);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("text_lexer");
    TCase *core = tcase_create("core"), *limits = tcase_create("limits");
    tcase_add_test(core, tags_and_data_alternate);
    tcase_add_test(core, blocks_trim_the_white_space_around_them);
    tcase_add_test(core, raw_blocks_keep_their_content);
    tcase_add_test(core, numbers_are_those_of_python);
    tcase_add_test(core, strings_decode_their_escapes);
    tcase_add_test(core, operators_and_brackets_are_checked);
    tcase_add_test(core, tokens_know_their_line);
    tcase_add_test(limits, brackets_nest_to_the_limit);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, limits);
    return suite_main(suite);
}
