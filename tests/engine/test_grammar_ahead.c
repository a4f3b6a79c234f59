/* Look-aheads of regular expressions: a text matches if the rest matches and each look-ahead does,
 * or does not, at its place. Random expressions are compared with a naive recogniser. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/grammar.h"
#include "support/naive_grammar.h"
#include "support/suite_main.h"

enum { EXPRESSIONS = 40, TEXTS = 400, MAX_TEXT = 7 };

static struct grammar *compile(enum grammar_kind kind, const char *text, bool may_be_empty) {
    struct grammar *grammar = NULL;
    struct err err = {0};
    grammar_compile(kind, text, strlen(text), NULL, &grammar, &err);
    bool is_empty = may_be_empty && strstr(err.message, "Nothing can match");
    ck_assert_msg(grammar || is_empty, "%s: %s", text, err.message);
    return grammar;
}

static bool takes(struct grammar *grammar, const char *text) {
    bool is_whole;
    size_t n = strlen(text);
    return grammar && grammar_match(grammar, text, n, &is_whole) == n && is_whole;
}

/* ---- random expressions --------------------------------------------------------------------- */

/* Does a beginning of the text match? */
static bool begins_with(const struct naive_grammar *naive, const char *text) {
    for (int n = 0; n <= (int)strlen(text); n++) {
        bool complete = false;
        if (naive_matches(naive, text, n, &complete) && complete) return true;
    }
    return false;
}

static bool matches(const struct naive_grammar *naive, const char *text) {
    bool complete = false;
    return naive_matches(naive, text, (int)strlen(text), &complete) && complete;
}

/* head(?!not)(?=yes)rest, where the text is cut at each place between head and rest. */
static bool expected(const struct naive_grammar parts[4], const char *text) {
    for (size_t cut = 0; cut <= strlen(text); cut++) {
        char head[MAX_TEXT * 2 + 1] = {0};
        memcpy(head, text, cut);
        if (matches(&parts[0], head) && !begins_with(&parts[1], text + cut) &&
            begins_with(&parts[2], text + cut) && matches(&parts[3], text + cut))
            return true;
    }
    return false;
}

static void draw_text(uint64_t *seed, char out[MAX_TEXT * 2 + 1]) {
    static const char *const parts[] = {"a", "b", "c", ",", "x", "\u00e9"};
    out[0] = 0;
    for (int n = naive_draw(seed, MAX_TEXT + 1); n > 0; n--)
        strcat(out, parts[naive_draw(seed, naive_draw(seed, 2) ? 2 : 6)]);
}

START_TEST(a_look_ahead_is_a_condition_on_the_rest) {
    uint64_t seed = (uint64_t)_i + 1;
    struct naive_grammar parts[4];
    struct buf regex = {0};
    static const char *const open[] = {"(?:", "(?!", "(?=", "(?:"};
    for (int i = 0; i < 4; i++) {
        parts[i] = naive_random(&seed, true);
        buf_puts(&regex, open[i]);
        naive_write(&parts[i], true, &regex);
        buf_puts(&regex, ")");
    }
    struct grammar *grammar = compile(GRAMMAR_REGEX, regex.data, true);
    for (int i = 0; i < TEXTS; i++) {
        char text[MAX_TEXT * 2 + 1];
        draw_text(&seed, text);
        ck_assert_msg(takes(grammar, text) == expected(parts, text), "%s: \"%s\"", regex.data,
                      text);
    }
    grammar_release(grammar);
    buf_free(&regex);
    for (int i = 0; i < 4; i++) naive_free(&parts[i]);
}
END_TEST

/* ---- patterns of libraries ------------------------------------------------------------------ */

#define P(pattern) "{\"type\":\"string\",\"pattern\":\"" pattern "\"}"

/* A text is taken after '+', refused after '-'. */
static const struct {
    const char *schema, *texts[9];
} patterns[] = {
    /* pydantic's Decimal */
    {P("^(?!^[-+.]*$)[+-]?0*\\\\d*\\\\.?\\\\d*$"),
     {"+\"1\"", "+\"-0.5\"", "+\"+.5\"", "+\"7.\"", "-\"\"", "-\"-\"", "-\"+.\"", "-\"1.2.3\""}},
    /* zod's email */
    {P("^(?!\\\\.)(?!.*\\\\.\\\\.)([A-Za-z0-9_'+\\\\-\\\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9"
       "\\\\-]*\\\\.)+[A-Za-z]{2,}$"),
     {"+\"a@b.cd\"", "+\"a.b+c@d-e.f.gh\"", "-\".a@b.cd\"", "-\"a..b@c.de\"", "-\"a.@b.cd\"",
      "-\"a@b\"", "-\"a@b..cd\""}},
    {P("^(?=.*[0-9])(?=.*[a-z]).{4,6}$"),
     {"+\"abc1\"", "+\"1abcde\"", "-\"abcd\"", "-\"1234\"", "-\"a1\"", "-\"abcdef1\""}},
    {P("^(?!.*\u00e9$)"),
     {"+\"\u00e9a\"", "-\"\u00e9\"", "-\"a\u00e9\"", "+\"\"", "+\"a\\n\u00e9b\""}},
    {P("a(?!b)"), {"+\"a\"", "+\"aba\"", "-\"ab\"", "-\"b\"", "+\"xac\""}},
    {P("(?=b)"), {"+\"ab\"", "-\"a\""}},
    {P("^x(?:(?!y)[a-z]|\\\\d)$"), {"+\"xa\"", "-\"xy\"", "+\"x1\"", "-\"x\""}},
    {"{\"type\":\"string\",\"maxLength\":4000,\"pattern\":\"^(?!a)[ab]*$\"}",
     {"+\"ba\"", "+\"\"", "-\"ab\""}},
    {"{\"type\":\"object\",\"patternProperties\":{\"^(?!x)\":{\"type\":\"null\"}},"
     "\"additionalProperties\":{\"type\":\"integer\"}}",
     {"+{\"a\":null}", "-{\"a\":1}", "+{\"xa\":1}", "-{\"xa\":null}"}},
};

START_TEST(patterns_with_look_aheads_take_what_they_say) {
    struct grammar *grammar = compile(GRAMMAR_JSON_SCHEMA, patterns[_i].schema, false);
    for (const char *const *text = patterns[_i].texts; *text; text++)
        ck_assert_msg(takes(grammar, *text + 1) == (**text == '+'), "%s: %s", patterns[_i].schema,
                      *text);
    grammar_release(grammar);
}
END_TEST

/* What decides about text after its own, or text before it, is refused. */
START_TEST(other_lookarounds_are_refused) {
    static const struct {
        enum grammar_kind kind;
        const char *text, *says;
    } rows[] = {
        {GRAMMAR_REGEX, "((?!a)b)*", "a lookaround inside a group that is repeated"},
        {GRAMMAR_REGEX, "(a(?!b)|c)d", "a lookaround inside a group that is repeated or not last"},
        {GRAMMAR_REGEX, "(?<=a)b", "a lookaround, which is not served at byte 0"},
        {GRAMMAR_REGEX, "(?<!a)b", "a lookaround, which is not served at byte 0"},
        {GRAMMAR_REGEX, "a(?!^b)", "an anchor inside it"},
        {GRAMMAR_GBNF, "start: /a(?!b)/ \"c\"", "a lookaround"},
        {GRAMMAR_REGEX,
         "(?!a)(?!a)(?!a)(?!a)(?!a)(?!a)(?!a)(?!a)(?!a)(?!a)(?!a)(?!a)(?!a)(?!a)(?!a)"
         "(?!a)(?!a)b",
         "more than 16 lookaheads"},
    };
    struct grammar *grammar;
    struct err err = {0};
    ck_assert(grammar_compile(rows[_i].kind, rows[_i].text, strlen(rows[_i].text), NULL, &grammar,
                              &err) == STATUS_INVALID_REQUEST);
    ck_assert_msg(strstr(err.message, rows[_i].says), "%s: %s", rows[_i].text, err.message);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("grammar_ahead");
    TCase *cases = tcase_create("look-ahead");
    tcase_add_loop_test(cases, a_look_ahead_is_a_condition_on_the_rest, 0, EXPRESSIONS);
    tcase_add_loop_test(cases, patterns_with_look_aheads_take_what_they_say, 0,
                        (int)(sizeof patterns / sizeof *patterns));
    tcase_add_loop_test(cases, other_lookarounds_are_refused, 0, 7);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
