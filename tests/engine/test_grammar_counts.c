/* Counts of repetitions that the automaton counts give the masks that a copy per count gives, and
 * bounds of any size are kept exactly. ctest label: slow */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/grammar.h"
#include "engine/grammar/run/automaton.h"
#include "support/naive_grammar.h"
#include "support/suite_main.h"

enum { V = 200, WORDS = (V + 31) / 32, STEPS = 40 };

static char tokens[V][12];
static int lengths[V];
static struct vocabulary *vocabulary;

/* All bytes that the texts use, and random mixes of their parts. */
static void setup(void) {
    static const char *const parts[] = {"a", "b",  "ab", "\u00e9", "c",   ",", "\"", "(",
                                        "x", "bb", "aa", "\\n",    "\",", "]", "[",  "\xc3"};
    const char *bytes[V];
    uint64_t seed = 3;
    for (int id = 0; id < V; id++) {
        bytes[id] = tokens[id];
        lengths[id] = 0;
        if (id < 97) tokens[id][lengths[id]++] = (char)(id < 95 ? ' ' + id : id < 96 ? 0xc3 : 0xa9);
        int n = id < 97 ? 0 : 1 + naive_draw(&seed, 4);
        for (int i = 0; i < n; i++) {
            const char *part = parts[naive_draw(&seed, 16)];
            memcpy(tokens[id] + lengths[id], part, strlen(part));
            lengths[id] += (int)strlen(part);
        }
    }
    vocabulary = vocabulary_new(bytes, lengths, V);
}

static void teardown(void) {
    vocabulary_free(vocabulary);
}

static bool is_in(const uint32_t *mask, int id) {
    return mask[id / 32] >> (id % 32) & 1;
}

/* ---- copies and counts ---------------------------------------------------------------------- */

/* One walk through both grammars in random tokens, sometimes back. Each mask is the same. */
static void walk_both(struct grammar *const grammars[2], const char *text, uint64_t *seed) {
    struct matcher *matchers[2];
    int taken = 0;
    for (int k = 0; k < 2; k++) matchers[k] = matcher_new(grammars[k], vocabulary);
    for (int step = 0; step < STEPS; step++) {
        uint32_t masks[2][WORDS];
        int allowed[V], n = 0;
        while (!matcher_prepare(matchers[1], 1 + naive_draw(seed, 99))) continue;
        for (int k = 0; k < 2; k++) matcher_mask(matchers[k], masks[k]);
        for (int id = 0; id < V; id++) {
            ck_assert_msg(is_in(masks[0], id) == is_in(masks[1], id), "%s: step %d, token \"%.*s\"",
                          text, step, lengths[id], tokens[id]);
            if (is_in(masks[0], id)) allowed[n++] = id;
        }
        ck_assert(matcher_may_end(matchers[0]) == matcher_may_end(matchers[1]));
        int back = taken > 0 && naive_draw(seed, 8) == 0 ? 1 + naive_draw(seed, taken) : 0;
        if (n == 0 && back == 0) break;
        int id = back ? 0 : allowed[naive_draw(seed, n)];
        for (int k = 0; k < 2 && !back; k++) ck_assert(matcher_accept(matchers[k], id));
        for (int k = 0; k < 2 && back; k++) matcher_roll_back(matchers[k], back);
        taken += back ? -back : 1;
    }
    for (int k = 0; k < 2; k++) matcher_free(matchers[k]);
}

/* Compiles with a copy per count, and with counts only. */
static void compare(enum grammar_kind kind, const char *text, uint64_t seed) {
    static const int max_copies[2] = {1000000, 1};
    struct grammar *grammars[2] = {NULL, NULL};
    struct err errs[2] = {0};
    for (int k = 0; k < 2; k++) {
        const struct grammar_limits limits = {.max_copies = max_copies[k], .max_ms = 100000};
        grammar_compile(kind, text, strlen(text), &limits, &grammars[k], &errs[k]);
    }
    bool is_too_large = strstr(errs[0].message, "more than") != NULL; /* with copies */
    ck_assert_msg(is_too_large || (grammars[0] != NULL) == (grammars[1] != NULL), "%s: %s %s", text,
                  errs[0].message, errs[1].message);
    for (int round = 0; round < 6 && grammars[0]; round++) walk_both(grammars, text, &seed);
    for (int k = 0; k < 2; k++) grammar_release(grammars[k]);
}

static void write_escaped(struct buf *out, const char *text) {
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') buf_puts(out, "\\");
        buf_add(out, text, 1);
    }
}

START_TEST(patterns_with_lengths_have_the_same_masks_with_counts) {
    uint64_t seed = (uint64_t)_i + 100;
    struct naive_grammar naive = naive_random(&seed, true);
    struct buf pattern = {0}, text = {0};
    naive_write(&naive, true, &pattern);
    int min = naive_draw(&seed, 3) ? 0 : naive_draw(&seed, 6);
    int max = min + naive_draw(&seed, _i % 2 ? 8 : 60);
    buf_puts(&text, _i % 3 ? "{" : "{\"type\":\"array\",\"maxItems\":3,\"items\":{");
    buf_puts(&text, "\"type\":\"string\",\"pattern\":\"^(?:");
    write_escaped(&text, pattern.data);
    buf_printf(&text, ")%s\",\"minLength\":%d,\"maxLength\":%d}%s", _i % 4 ? "$" : "", min, max,
               _i % 3 ? "" : "}");
    compare(GRAMMAR_JSON_SCHEMA, text.data, seed);
    buf_free(&pattern);
    buf_free(&text);
    naive_free(&naive);
}
END_TEST

static const struct {
    enum grammar_kind kind;
    const char *text;
} repeats[] = {
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"maxLength\":70}"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"minLength\":60}"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"minLength\":50,\"maxLength\":90}"},
    {GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"array\",\"minItems\":3,\"maxItems\":40,\"items\":{\"type\":\"string\","
     "\"maxLength\":40}}"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"array\",\"maxItems\":30,\"items\":{\"type\":\"array\","
                          "\"minItems\":2,\"maxItems\":30,\"items\":{\"pattern\":\"^[ab]{0,40}$\","
                          "\"type\":\"string\"}}}"},
    {GRAMMAR_REGEX, "(a|b|ab){3,60}c"},
    {GRAMMAR_REGEX, "(a|aa){0,50}"},
    {GRAMMAR_REGEX, "(?:(?:a|bb){2,30},){1,40}x{40,}"},
    {GRAMMAR_REGEX, "[^,]{30,60}(,[^,]{0,3}){9,}"},
    {GRAMMAR_REGEX, "(a?b?){20,30}c"},
    {GRAMMAR_GBNF, "root ::= item{4,50} \"x\"\nitem ::= \"a\" | \"(\" root? \")\" | \"b\" item"},
    {GRAMMAR_GBNF, "root ::= (item \",\"){0,50} \"x\"\nitem ::= item \"a\" | \"b\""},
};

START_TEST(repeats_have_the_same_masks_with_counts) {
    compare(repeats[_i].kind, repeats[_i].text, (uint64_t)_i + 1);
}
END_TEST

/* ---- sizes ---------------------------------------------------------------------------------- */

static struct grammar *compile(enum grammar_kind kind, const char *text) {
    struct grammar *grammar = NULL;
    struct err err = {0};
    grammar_compile(kind, text, strlen(text), NULL, &grammar, &err);
    ck_assert_msg(grammar, "%s: %s", text, err.message);
    return grammar;
}

static const struct sized {
    enum grammar_kind kind;
    const char *grammar; /* with the smallest and the largest count */
    int min, max;
    const char *open, *one, *between, *close;
} sizes[] = {
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"minLength\":%d,\"maxLength\":%d}", 0, 65536, "\"",
     "a", "", "\""},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"minLength\":%d,\"maxLength\":%d}", 20000, 20001,
     "\"", "\\n", "", "\""},
    {GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"string\",\"pattern\":\"^a*$\",\"minLength\":%d,\"maxLength\":%d}", 9, 65536, "\"",
     "a", "", "\""},
    {GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"string\",\"pattern\":\"^a*$\",\"minLength\":%d,\"maxLength\":%d}", 1, 65536, "\"",
     "a", "", "\""},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^(?:ab){%d,%d}$\"}", 2, 9000, "\"",
     "ab", "", "\""},
    {GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"minItems\":%d,\"maxItems\":%d}", 600,
     9000, "[", "null", ",", "]"},
    {GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"array\",\"prefixItems\":[{},{\"const\":1},{}],\"minItems\":%d,\"maxItems\":%d}",
     2, 5000, "[", "1", ",", "]"},
    {GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"format\":\"uri\",\"maxLength\":2083},"
     "\"minItems\":%d,\"maxItems\":%d}",
     0, 2000, "[", "\"urn:x\"", ",", "]"},
    {GRAMMAR_REGEX, "(?:a|b){%d,%d}", 100, 100000, "", "a", "", ""},
    {GRAMMAR_GBNF, "root ::= (a | \"b\"){%d,%d}\na ::= \"a\"", 0, 5000, "", "ab", "", ""},
    {GRAMMAR_GBNF, "start: \"ab\" ~ %d..%d", 7, 30000, "", "ab", "", ""},
};

/* Takes texts of n repetitions if they are within the bounds. */
static void check_size(struct grammar *grammar, const struct sized *s, int n) {
    struct buf text = {0};
    bool is_whole;
    int ones = strcmp(s->one, "ab") == 0 && s->grammar[0] == 'r' ? n / 2 : n;
    if (ones * 2 != n && ones != n) return;
    buf_puts(&text, s->open);
    for (int i = 0; i < ones; i++) {
        if (i) buf_puts(&text, s->between);
        buf_puts(&text, s->one);
    }
    buf_puts(&text, s->close);
    bool takes = grammar_match(grammar, text.data, text.length, &is_whole) == text.length;
    ck_assert_msg((takes && is_whole) == (n >= s->min && n <= s->max), "%s: %d", s->grammar, n);
    buf_free(&text);
}

START_TEST(bounds_of_any_size_are_kept) {
    const struct sized *s = &sizes[_i];
    char text[300];
    snprintf(text, sizeof text, s->grammar, s->min, s->max);
    struct grammar *grammar = compile(s->kind, text);
    for (int d = -1; d <= 1; d++) {
        if (s->min + d >= 0) check_size(grammar, s, s->min + d);
        check_size(grammar, s, s->max + d);
    }
    grammar_release(grammar);
}
END_TEST

/* ---- masks are shared ----------------------------------------------------------------------- */

/* Where no token reaches a bound, all places have one mask. */
START_TEST(places_far_from_a_bound_share_a_mask) {
    struct grammar *grammar = compile(GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"maxLength\":"
                                                           "524288}");
    struct matcher *matcher = matcher_new(grammar, vocabulary);
    uint32_t mask[WORDS];
    ck_assert(matcher_accept(matcher, '"' - ' '));
    for (int i = 0; i < 300; i++) {
        ck_assert(matcher_mask(matcher, mask));
        ck_assert(matcher_accept(matcher, 'a' - ' '));
    }
    ck_assert_uint_le(grammar->automaton.masks.n, 2);
    int64_t before = grammar->automaton.work;
    ck_assert(matcher_prepare(matcher, 1)); /* known without a walk */
    ck_assert_int_lt(grammar->automaton.work - before, 1000);
    matcher_free(matcher);
    grammar_release(grammar);
}
END_TEST

/* The mask after n letters in a string of at most 3,000, which a new matcher finds. */
static void check_place(struct grammar *grammar, struct matcher *matcher, int n) {
    struct matcher *other = matcher_new(grammar, vocabulary);
    uint32_t masks[2][WORDS];
    ck_assert(matcher_accept(other, '"' - ' '));
    for (int i = 0; i < n; i++) ck_assert(matcher_accept(other, 'a' - ' '));
    matcher_mask(matcher, masks[0]);
    matcher_mask(other, masks[1]);
    ck_assert(memcmp(masks[0], masks[1], sizeof masks[0]) == 0);
    matcher_free(other);
}

/* A long text holds few states, and a roll back of any length returns to the same places. */
START_TEST(a_long_text_holds_few_states_and_may_be_rolled_back) {
    struct grammar *grammar =
        compile(GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"maxLength\":3000}");
    struct matcher *matcher = matcher_new(grammar, vocabulary);
    uint32_t mask[WORDS];
    uint64_t seed = 1;
    ck_assert(matcher_accept(matcher, '"' - ' '));
    for (int i = 0; i < 3000; i++) ck_assert(matcher_accept(matcher, 'a' - ' '));
    grammar->automaton.max_bytes = 1;
    ck_assert(matcher_mask(matcher, mask));
    ck_assert(is_in(mask, '"' - ' ') && !is_in(mask, 'a' - ' '));
    ck_assert_uint_lt(grammar->automaton.n_states, 200);
    static const int backs[] = {2990, 2000, 1, 64, 65, 1024, 1500, 3000};
    for (int i = 0, n = 3000; i < 8; i++) {
        matcher_roll_back(matcher, backs[i]);
        n -= backs[i];
        check_place(grammar, matcher, n);
        int back = n ? naive_draw(&seed, n) : 0;
        matcher_roll_back(matcher, back);
        check_place(grammar, matcher, n - back);
        for (n -= back; n < 3000; n++) ck_assert(matcher_accept(matcher, 'a' - ' '));
        ck_assert(!matcher_accept(matcher, 'a' - ' '));
    }
    matcher_free(matcher);
    grammar_release(grammar);
}
END_TEST

/* Two hundred tools with large bounds take little memory. */
START_TEST(large_bounds_take_little_memory) {
    struct buf text = {0};
    buf_puts(&text, "{\"type\":\"object\",\"properties\":{");
    for (int i = 0; i < 200; i++)
        buf_printf(&text,
                   "%s\"p%d\":{\"type\":\"array\",\"maxItems\":65536,\"items\":{\"type\":"
                   "\"string\",\"maxLength\":524288,\"minLength\":%d}}",
                   i ? "," : "", i, i);
    buf_puts(&text, "}}");
    struct grammar *grammar = compile(GRAMMAR_JSON_SCHEMA, text.data);
    ck_assert_uint_lt(grammar_bytes(grammar), 4 << 20);
    grammar_release(grammar);
    buf_free(&text);
}
END_TEST

/* Equal bounds share a rule, so only the names take nodes. */
START_TEST(thousands_of_bounded_integers_are_served) {
    struct buf text = {0};
    buf_puts(&text, "{\"type\":\"object\",\"properties\":{");
    for (int i = 0; i < 2000; i++)
        buf_printf(&text, "%s\"n%d\":{\"type\":\"integer\",\"minimum\":%d,\"maximum\":2147483647}",
                   i ? "," : "", i, i % 9);
    buf_puts(&text, "}}");
    struct grammar *grammar = compile(GRAMMAR_JSON_SCHEMA, text.data);
    static const char *const taken[] = {"{\"n0\":0,\"n8\":8,\"n1999\":2147483647}", "{\"n7\":7}"};
    static const char *const refused[] = {"{\"n8\":7}", "{\"n1999\":2147483648}", "{\"n2000\":1}"};
    for (int i = 0; i < 2; i++) {
        bool is_whole;
        size_t n = strlen(taken[i]);
        ck_assert(grammar_match(grammar, taken[i], n, &is_whole) == n && is_whole);
    }
    for (int i = 0; i < 3; i++) {
        bool is_whole;
        ck_assert(grammar_match(grammar, refused[i], strlen(refused[i]), &is_whole) <
                  strlen(refused[i]));
    }
    grammar_release(grammar);
    buf_free(&text);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("grammar_counts");
    TCase *cases = tcase_create("counts");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_set_timeout(cases, 120);
    tcase_add_loop_test(cases, patterns_with_lengths_have_the_same_masks_with_counts, 0, 60);
    tcase_add_loop_test(cases, repeats_have_the_same_masks_with_counts, 0,
                        (int)(sizeof repeats / sizeof *repeats));
    tcase_add_loop_test(cases, bounds_of_any_size_are_kept, 0, (int)(sizeof sizes / sizeof *sizes));
    tcase_add_test(cases, places_far_from_a_bound_share_a_mask);
    tcase_add_test(cases, large_bounds_take_little_memory);
    tcase_add_test(cases, a_long_text_holds_few_states_and_may_be_rolled_back);
    tcase_add_test(cases, thousands_of_bounded_integers_are_served);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
