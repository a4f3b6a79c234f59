/* Chat templates compared with Python's jinja2 in the setup of transformers
 * (tests/vectors/make_template.py), and features that jinja2 lacks: the owner of each byte, limits,
 * errors with their line. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "engine/text/text.h"
#include "support/suite_main.h"

#define MAX_BYTES ((size_t)1 << 20)

static char *read_file(const char *path) {
    FILE *file = fopen(path, "rb");
    struct buf buf = {0};
    char part[65536];
    ck_assert_msg(file != NULL, "%s cannot be read", path);
    for (size_t n; (n = fread(part, 1, sizeof part, file)) > 0;) buf_add(&buf, part, n);
    fclose(file);
    return buf.data;
}

static struct json *document_of(const char *text) {
    struct json *json;
    struct err err;
    ck_assert_msg(!json_parse(&json, "The test", text, strlen(text), &err), "%s", err.message);
    return json;
}

static const char *text_of(const struct json *json) {
    return json_is(json, JSON_STRING) ? json->string : NULL;
}

static const char *string_of(const struct json *object, const char *name) {
    return text_of(json_member(object, name));
}

static bool flag_of(const struct json *object, const char *name) {
    const struct json *flag = json_member(object, name);
    return json_is(flag, JSON_BOOL) && flag->boolean;
}

static struct chat_input input_of(const struct json *json) {
    return (struct chat_input){
        .messages = json_member(json, "messages"),
        .tools = json_member(json, "tools"),
        .documents = json_member(json, "documents"),
        .extra = json_member(json, "extra"),
        .bos_token = string_of(json, "bos_token"),
        .eos_token = string_of(json, "eos_token"),
        .add_generation_prompt = flag_of(json, "add_generation_prompt"),
        .continue_final_message = flag_of(json, "continue_final_message"),
        .time_s = 1700000000,
    };
}

/* The pieces must cover the output in order, and adjacent pieces must have different owners. */
static void check_pieces(const struct buf *out, const struct chat_piece *pieces, int n) {
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        ck_assert_uint_eq(pieces[i].start, at);
        ck_assert_uint_gt(pieces[i].length, 0);
        if (i) ck_assert(pieces[i].from_user != pieces[i - 1].from_user);
        at += pieces[i].length;
    }
    ck_assert_uint_eq(at, out->length);
}

/* Renders a template. If that or compiling fails, the result is "" and *failed is set. */
static struct buf render(const char *source, const struct chat_input *input, struct err *err,
                         bool *failed) {
    struct chat_template *chat_template;
    struct buf out = {0};
    *failed = chat_template_new(&chat_template, source, strlen(source), err) != STATUS_OK;
    if (!*failed) {
        struct chat_piece *pieces = NULL;
        int n_pieces = 0;
        *failed = chat_template_render(chat_template, input, MAX_BYTES, &out, &pieces, &n_pieces,
                                       err) != STATUS_OK;
        if (!*failed) check_pieces(&out, pieces, n_pieces);
        free(pieces);
        chat_template_free(chat_template);
    }
    buf_puts(&out, "");
    return out;
}

/* Does one template with one input have the result of jinja2? */
static bool agrees(const char *source, const struct json *json, const char *input_name,
                   const struct json *expected) {
    const char *wanted = text_of(expected);
    struct chat_input input = input_of(json);
    struct err err = {0};
    bool failed;
    struct buf out = render(source, &input, &err, &failed);
    bool same = wanted ? !failed && strcmp(wanted, out.data) == 0 : failed;
    if (!same) {
        fprintf(stderr, "---- template: %s\n---- input %s\n---- wanted: %s\n---- got: %s\n", source,
                input_name, wanted ? wanted : "(error)", failed ? err.message : out.data);
    }
    if (failed) ck_assert_msg(strstr(err.message, "line ") != NULL, "%s", err.message);
    buf_free(&out);
    return same;
}

START_TEST(agrees_with_jinja2) {
    char *text = read_file("tests/vectors/template.json");
    struct json *json = document_of(text);
    const struct json *inputs = json_member(json, "inputs");
    int n = 0, n_wrong = 0;
    json_each(one, json_member(json, "cases")) {
        json_each(expected, json_member(one, "expected")) {
            const struct json *input = json_member(inputs, expected->name);
            ck_assert(input != NULL);
            n_wrong += !agrees(string_of(one, "template"), input, expected->name, expected);
            n++;
        }
    }
    fprintf(stderr, "%d renders compared with jinja2, %d differ\n", n, n_wrong);
    ck_assert_int_gt(n, 100);
    ck_assert_int_eq(n_wrong, 0);
    json_free(json);
    free(text);
}
END_TEST

/* ---- the owner of each byte ----------------------------------------------------------------- */

static const char talk[] = "[{\"role\": \"user\", \"content\": \" Zo\\u00eb <|x|>\\n\", \"n\": 7, "
                           "\"list\": [\"a\", \"b\"]}]";

/* Renders `source` and expects it with the user's parts in brackets. */
static void expect_shown(const char *source, const char *wanted) {
    struct json *messages = document_of(talk), *extra = document_of("{\"k\": \"v\"}");
    struct chat_input input = {.messages = messages, .extra = extra, .bos_token = "<s>"};
    struct chat_template *chat_template;
    struct chat_piece *pieces = NULL;
    struct buf out = {0}, shown = {0};
    struct err err = {0};
    int n = 0;
    buf_puts(&out, "before"); /* rendering appends: pieces count from the start of the buffer */
    ck_assert_int_eq(chat_template_new(&chat_template, source, strlen(source), &err), STATUS_OK);
    enum status status =
        chat_template_render(chat_template, &input, MAX_BYTES, &out, &pieces, &n, &err);
    ck_assert_msg(status == STATUS_OK, "%s: %s", source, err.message);
    buf_puts(&shown, "");
    for (int i = 0; i < n; i++) {
        if (pieces[i].from_user) buf_puts(&shown, "[");
        buf_add(&shown, out.data + pieces[i].start, pieces[i].length);
        if (pieces[i].from_user) buf_puts(&shown, "]");
    }
    ck_assert_str_eq(shown.data, wanted);
    free(pieces);
    buf_free(&out);
    buf_free(&shown);
    chat_template_free(chat_template);
    json_free(messages);
    json_free(extra);
}

START_TEST(knows_whose_each_byte_is) {
    expect_shown("<a>{{ messages[0].content }}</a>", "<a>[ Zoë <|x|>\n]</a>");
    expect_shown("{{ '<a>' + messages[0].role + '\\n' + messages[0].content|trim + '<b>' }}",
                 "<a>[user]\n[Zoë <|x|>]<b>");
    expect_shown("{{ ('<' ~ messages[0].role ~ '>')|upper }}", "<[USER]>");
    expect_shown("{{ ('ab' ~ messages[0].role ~ 'cd')[1:5] }}", "b[use]");
    expect_shown("{{ ('ab' ~ messages[0].role)[::-1] }}", "[resu]ba");
    expect_shown("{{ messages[0].role|replace('s', '-') }}", "[u]-[er]");
    expect_shown("{{ 'a-b'|replace('-', messages[0].role) }}", "a[user]b");
    expect_shown("{{ messages[0].list|join(', ') }}", "[a], [b]");
    expect_shown("{{ ('x ' ~ messages[0].role ~ ' y').split(' ')|join('+') }}", "x+[user]+y");
    expect_shown("{{ messages[0].list }}", "['[a]', '[b]']");
    expect_shown("{{ messages[0]|tojson }}",
                 "{\"[role]\": \"[user]\", \"[content]\": \"[ Zoë <|x|>\\n]\", "
                 "\"[n]\": 7, \"[list]\": [\"[a]\", \"[b]\"]}");
    expect_shown("{% set x %}<{{ k }}>{% endset %}{{ x }}{{ x|title }}", "<[v]><[V]>");
    expect_shown("{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(k) }}{{ m('t') }}", "<[v]><t>");
    expect_shown("{{ '%s=%5s|' % ('a', k) }}{{ '{}:{:>3}'.format(k, k) }}", "a=    [v]|[v]:  [v]");
    expect_shown("{{ bos_token }}{{ k }}{{ k }}{{ bos_token }}", "<s>[vv]<s>");
    expect_shown("{% for key, value in messages[0]|items %}{{ key[0] }}{% endfor %}", "[rcnl]");
    expect_shown("{% filter indent(2, true) %}a\n{{ messages[0].role }}{% endfilter %}",
                 "  a\n  [user]");
    expect_shown("{{ messages[0].role * 2 ~ '!' * 2 }}", "[useruser]!!");
    expect_shown("{{ (messages[0].role ~ '\n<b>').splitlines()|map('e')|join }}",
                 "[user]&lt;b&gt;");
    expect_shown(
        "{{ k ~ '' }}{{ '' ~ k }}{{ k|default('d') }}{{ zz|default(k) }}{{ k|string|safe }}",
        "[vvvvv]");
    expect_shown("", "");
}
END_TEST

/* ---- bounds --------------------------------------------------------------------------------- */

/* Expects rendering to fail with an error that contains `cause`. */
static void expect_failure(const char *source, const char *cause) {
    struct json *messages = document_of(talk);
    struct chat_input input = {.messages = messages};
    struct err err = {0};
    bool failed;
    struct buf out = render(source, &input, &err, &failed);
    ck_assert_msg(failed, "%.80s renders", source);
    ck_assert_msg(strstr(err.message, cause) != NULL, "%.80s: %s", source, err.message);
    buf_free(&out);
    json_free(messages);
}

/* Returns `head`, then `part` n times, then `tail`. */
static char *repeated(const char *head, const char *part, int n, const char *tail) {
    struct buf buf = {0};
    buf_puts(&buf, head);
    for (int i = 0; i < n; i++) buf_puts(&buf, part);
    buf_puts(&buf, tail);
    return buf.data;
}

START_TEST(is_bounded) {
    static const char *const endless[] = {
        "{% for a in range(100000) %}{% for b in range(100000) %}{% set x = a * b %}{% endfor %}{% "
        "endfor %}",
        "{% set n = namespace(a=(1,)) %}{% for a in range(60) %}{% set n.a = (n.a, n.a) %}{% "
        "endfor %}{{ {n.a: 1} }}",
        "{% set a = 'a' * 1000000 %}{% set b = 'a' * 500000 %}{% for x in range(99999) %}{{ "
        "a.rfind(b) }}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% set y = 1e300|round(40) %}{% "
        "endfor %}{% endfor %}"};
    for (size_t i = 0; i < sizeof endless / sizeof *endless; i++)
        expect_failure(endless[i], "too many steps");
    expect_failure(
        "{% set n = namespace(a='x') %}{% for a in range(99) %}{% set n.a = n.a + n.a %}{% "
        "endfor %}",
        "more memory");
    expect_failure("{% for a in range(99999) %}{{ 'abc' * 1000 }}{% endfor %}",
                   "longer than 1048576 bytes");
    expect_failure("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nested too deeply");
    expect_failure(
        "{% set n = namespace(a=[]) %}{% for a in range(9999) %}{% set n.a = [n.a] %}{% endfor "
        "%}{{ n.a }}",
        "nested too deeply");
    static const char *const deep[][2] = {
        {"(", "1"},      {"[", "1"}, {"- ", "1 }}"}, {"not ", "1 }}"}, {"1 if 1 else ", "1 }}"},
        {"1 + ", "1 }}"}};
    for (size_t i = 0; i < sizeof deep / sizeof *deep; i++) {
        char *source = repeated("{{ ", deep[i][0], 50000, deep[i][1]);
        expect_failure(source, "nested too deeply");
        free(source);
    }
    char *source = repeated("", "{% if 1 %}", 50000, "");
    expect_failure(source, "nested too deeply");
    free(source);
    source = repeated("", "a", 2 << 20, "");
    expect_failure(source, "longer than");
    free(source);
}
END_TEST

START_TEST(grows_strings_and_lists_in_place) {
    expect_shown(
        "{% set n = namespace(a='') %}{% for x in range(99999) %}{% set n.a = n.a + 'abcdefgh' %}"
        "{% endfor %}{{ n.a|length }}",
        "799992");
    expect_shown(
        "{% set n = namespace(a=[]) %}{% for x in range(99999) %}{% set n.a = n.a + [x] %}{% "
        "endfor %}"
        "{{ n.a|length }}",
        "99999");
}
END_TEST

START_TEST(tells_line_and_cause) {
    expect_failure("a\nb\n{{ 1 + }}", "line 3: expected an expression, got '}}'");
    expect_failure("{% if x %}\n\n", "line");
    expect_failure("\n\n{{ messages.a.b }}", "line 3: 'list' has no attribute 'a'");
    expect_failure("{{ q.a }}", "line 1: 'q' is undefined");
    expect_failure("{% if 1 %}\n{{ raise_exception('Roles must alternate') }}{% endif %}",
                   "line 2: Roles must alternate");
    expect_failure("{{ messages|nothing }}", "unknown filter 'nothing'");
    expect_failure("{{ messages.append(1) }}", "'list' has no attribute 'append'");
}
END_TEST

/* A message's reasoning has several names; null under one of them does not count. */
START_TEST(reasoning_has_two_names) {
    static const char source[] = "{{ messages[0].thinking }}|{{ messages[0].reasoning_content }}";
    static const char *const texts[] = {
        "[{\"role\": \"a\", \"reasoning_content\": null, \"reasoning\": \"x\"}]",
        "[{\"role\": \"a\", \"thinking\": \"x\"}]",
        "[{\"role\": \"a\", \"reasoning_content\": \"x\", \"thinking\": null}]",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct json *messages = document_of(texts[i]);
        struct chat_input input = {.messages = messages};
        struct err err = {0};
        bool failed;
        struct buf out = render(source, &input, &err, &failed);
        ck_assert_msg(!failed && strcmp(out.data, i == 2 ? "None|x" : "x|x") == 0, "%s: %s",
                      texts[i], out.data);
        buf_free(&out);
        json_free(messages);
    }
}
END_TEST

START_TEST(tells_the_time) {
    static const char source[] = "{{ strftime_now('%Y-%m-%d %H:%M:%S') }}";
    struct json *messages = document_of(talk);
    struct chat_input input = {.messages = messages, .time_s = 1700000000};
    struct err err = {0};
    bool failed;
    struct buf out = render(source, &input, &err, &failed);
    ck_assert_str_eq(out.data, "2023-11-14 22:13:20");
    buf_free(&out);
    json_free(messages);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("text_template");
    TCase *core = tcase_create("core"), *limits = tcase_create("limits");
    tcase_add_test(core, agrees_with_jinja2);
    tcase_add_test(core, knows_whose_each_byte_is);
    tcase_add_test(core, grows_strings_and_lists_in_place);
    tcase_add_test(core, tells_line_and_cause);
    tcase_add_test(core, reasoning_has_two_names);
    tcase_add_test(core, tells_the_time);
    tcase_add_test(limits, is_bounded);
    tcase_set_timeout(core, 60);
    tcase_set_timeout(limits, 120);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, limits);
    return suite_main(suite);
}
