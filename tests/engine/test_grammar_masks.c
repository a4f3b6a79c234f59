/* Masks are exact: for random grammars and regular expressions each mask equals the result of a
 * naive recogniser for all tokens, also after a rollback, and when it is read from the cache. ctest
 * label: slow */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/grammar.h"
#include "engine/grammar/run/automaton.h"
#include "support/matcher_copy.h"
#include "support/naive_grammar.h"
#include "support/suite_main.h"

enum { V = 301, WORDS = (V + 31) / 32, GRAMMARS = 60, STEPS = 12, MAX_PREFIX = 24 };

static char tokens[V][16];
static int lengths[V];
static struct vocabulary *vocabulary;

/* Tokens: ASCII, all continuation bytes of characters, random mixes of the grammars' parts, a few
 * duplicates, and an empty one. */
static void setup(void) {
    static const char *const parts[] = {"a",  "b",  "ab", "aab", "\u00e9", "\xc3",     "\xa9",
                                        "c",  ",",  "(",  ")",   "\u20ac", "\xe2\x82", "x",
                                        "bb", "aa", "A",  "7",   "\"",     "d"};
    const char *bytes[V];
    uint64_t seed = 7;
    for (int id = 0; id < V; id++) {
        bytes[id] = tokens[id];
        if (id < 160) tokens[id][lengths[id]++] = (char)(id < 96 ? ' ' + id : 0x80 + id - 96);
        int n = id < 160 || id == 200 || id == 201 ? 0 : 1 + naive_draw(&seed, 4);
        if (id == 201) memcpy(tokens[id], "ab7", (size_t)(lengths[id] = 3));
        for (int i = 0; i < n; i++) {
            const char *part = parts[naive_draw(&seed, 20)];
            memcpy(tokens[id] + lengths[id], part, strlen(part));
            lengths[id] += (int)strlen(part);
        }
    }
    vocabulary = vocabulary_new(bytes, lengths, V);
}

static void teardown(void) {
    vocabulary_free(vocabulary);
    memset(lengths, 0, sizeof lengths);
}

struct place {
    struct naive_grammar naive;
    struct matcher *matcher;
    const char *grammar_text;
    char text[NAIVE_MAX_TEXT + 1];
    int n, n_taken, taken[STEPS]; /* number of bytes; tokens */
};

static bool is_in(const uint32_t *mask, int id) {
    return mask[id / 32] >> (id % 32) & 1;
}

static void check_mask(struct place *p, const uint32_t *mask) {
    char text[NAIVE_MAX_TEXT + 1];
    bool complete;
    memcpy(text, p->text, (size_t)p->n);
    for (int id = 0; id < V; id++) {
        memcpy(text + p->n, tokens[id], (size_t)lengths[id]);
        bool may_come =
            lengths[id] > 0 && naive_matches(&p->naive, text, p->n + lengths[id], &complete);
        ck_assert_msg(is_in(mask, id) == may_come, "%s after \"%.*s\": token %d \"%.*s\" is %d",
                      p->grammar_text, p->n, p->text, id, lengths[id], tokens[id], !may_come);
    }
    ck_assert(naive_matches(&p->naive, p->text, p->n, &complete));
    ck_assert_msg(matcher_may_end(p->matcher) == complete, "%s after \"%.*s\"", p->grammar_text,
                  p->n, p->text);
}

/* Forced bytes are bytes without an alternative. */
static void check_forced(struct place *p) {
    char forced[8], text[NAIVE_MAX_TEXT + 9];
    int n = matcher_forced(p->matcher, forced, 8);
    memcpy(text, p->text, (size_t)p->n);
    for (int i = 0; i <= n && i < 8 && p->n + i < NAIVE_MAX_TEXT; i++) {
        int found = 0;
        bool complete, ends;
        naive_matches(&p->naive, text, p->n + i, &ends);
        for (int byte = 0; byte < 256; byte++) {
            text[p->n + i] = (char)byte;
            found += naive_matches(&p->naive, text, p->n + i + 1, &complete);
        }
        ck_assert_msg((found == 1 && !ends) == (i < n), "%s after \"%.*s\"", p->grammar_text, p->n,
                      p->text);
        text[p->n + i] = i < n ? forced[i] : 0;
    }
}

/* Accepts a random token of the mask, or rolls some back. Returns false at the end. */
static bool move(struct place *p, const uint32_t *mask, uint64_t *seed) {
    if (p->n_taken > 0 && naive_draw(seed, 4) == 0) {
        int n = 1 + naive_draw(seed, p->n_taken);
        matcher_roll_back(p->matcher, n);
        for (int i = 0; i < n; i++) p->n -= lengths[p->taken[--p->n_taken]];
        return true;
    }
    int allowed[V], n = 0;
    for (int id = 0; id < V; id++) {
        bool taken = is_in(mask, id);
        if (taken) allowed[n++] = id;
        if (!taken) ck_assert(!matcher_accept(p->matcher, id));
    }
    if (n == 0 || p->n > MAX_PREFIX || p->n_taken == STEPS) return false;
    int id = allowed[naive_draw(seed, n)];
    ck_assert(matcher_accept(p->matcher, id));
    memcpy(p->text + p->n, tokens[id], (size_t)lengths[id]);
    p->n += lengths[id];
    p->taken[p->n_taken++] = id;
    return true;
}

/* Makes the matcher free all unused states before it computes the next unknown mask. */
static void free_states(struct grammar *grammar) {
    grammar->automaton.max_bytes = 1;
}

/* One checked walk. In the second walk all masks are in the cache, unless states are freed. */
static void walk(struct grammar *grammar, struct naive_grammar naive, const char *text,
                 uint64_t seed, bool checks) {
    bool frees = !checks && seed % 2 == 0;
    struct place place = {.naive = naive, .grammar_text = text};
    place.matcher = matcher_new(grammar, vocabulary);
    for (int step = 0; step < STEPS; step++) {
        uint32_t mask[WORDS], again[WORDS];
        if (frees) free_states(grammar);
        bool goes_on = matcher_may_go_on(place.matcher), any = matcher_mask(place.matcher, mask);
        struct matcher *copy = matcher_copy(place.matcher);
        bool has_some = false;
        for (int i = 0; i < WORDS; i++) has_some |= mask[i] != 0;
        ck_assert(goes_on == has_some);
        ck_assert(any);
        ck_assert(matcher_mask(copy, again) && memcmp(mask, again, sizeof mask) == 0);
        matcher_free(copy);
        if (checks || step % 4 == 3) check_mask(&place, mask);
        if (checks) check_forced(&place);
        if (!move(&place, mask, &seed)) break;
    }
    matcher_free(place.matcher);
}

START_TEST(masks_are_what_a_naive_recogniser_says) {
    uint64_t seed = (uint64_t)_i + 1;
    bool as_regex = _i % 3 == 0;
    struct naive_grammar naive = naive_random(&seed, as_regex);
    struct buf text = {0};
    struct grammar *grammar;
    struct err err = {0};
    const struct grammar_limits limits = {.max_copies = _i % 2 ? 1 : 0}; /* 1: all repeats count */
    naive_write(&naive, as_regex, &text);
    enum status status = grammar_compile(as_regex ? GRAMMAR_REGEX : GRAMMAR_GBNF, text.data,
                                         text.length, &limits, &grammar, &err);
    ck_assert_msg(status == STATUS_OK, "%s: %s", text.data, err.message);
    walk(grammar, naive, text.data, seed, true);
    walk(grammar, naive, text.data, seed, false);
    grammar_release(grammar);
    buf_free(&text);
    naive_free(&naive);
}
END_TEST

/* Texts whose masks begin with a slice. */
static const struct {
    enum grammar_kind kind;
    const char *text;
} long_texts[] = {
    {GRAMMAR_JSON_OBJECT, ""},
    {GRAMMAR_REGEX, ".*"},
    {GRAMMAR_REGEX, "[^\"]{0,9}x"},
    {GRAMMAR_REGEX, "[^<]*<a>"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"maxLength\":9}"},
    {GRAMMAR_REGEX, "(?:[^,]{2,50},){3,70}x"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"array\",\"items\":{\"type\":\"string\"}}"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"null\"}}}"},
    {GRAMMAR_REGEX, "([^a\"]{0,5}|aa[^\"]{0,7})x"},
    {GRAMMAR_REGEX, "(?:[^\"\u00a9\u00e9]|\u00e9[^a])*"},
    {GRAMMAR_REGEX, "[\\x00-\\x{ffff}]{3,40}"},
    /* letters that lead to several states: immediately, after a byte, after other letters */
    {GRAMMAR_REGEX, "[b-z].*|a[ab]*|\\(a[^b]*|\\([b-d]+"},
    {GRAMMAR_REGEX, "[b-z].*|a[a-z][4-9].*"},
    {GRAMMAR_REGEX, "[\\x00-\\x7f]*\u20ac?"},
    {GRAMMAR_REGEX, "([^(\"]|\\([ab])[^\"]*"},
    {GRAMMAR_REGEX, "([a-z][ab]|[A-Z][0-7]|[\u00e9\u20ac][^a]|[^a-zA-Z])*"},
    {GRAMMAR_REGEX, "[0-9]([a-c][0-9]|,[a-z]|\u00e9)*"},
    {GRAMMAR_REGEX, "(\"\u00e9?[^a\u20ac]*,|x[ab])*"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"string\"},"
                          "\"b\":{\"type\":\"integer\"},\"\u00e9\":{\"type\":\"null\"}}}"},
};

/* Without a naive recogniser, the mask is compared with a match of each token's bytes. */
static void check_by_match(struct grammar *grammar, const uint32_t *mask, char *text, int n) {
    for (int id = 0; id < V; id++) {
        bool ends;
        memcpy(text + n, tokens[id], (size_t)lengths[id]);
        size_t all = (size_t)(n + lengths[id]);
        bool may_come = lengths[id] > 0 && grammar_match(grammar, text, all, &ends) == all;
        ck_assert_msg(is_in(mask, id) == may_come, "after \"%.*s\": token %d", n, text, id);
    }
}

START_TEST(masks_of_long_texts_are_exact_while_states_are_freed) {
    struct grammar *grammar;
    struct err err = {0};
    const char *source = long_texts[_i].text;
    ck_assert(!grammar_compile(long_texts[_i].kind, source, strlen(source), NULL, &grammar, &err));
    uint64_t seed = (uint64_t)_i;
    for (int round = 0; round < 20; round++) {
        struct matcher *matcher = matcher_new(grammar, vocabulary);
        char text[30 * 16];
        int n = 0;
        for (int step = 0; step < 25; step++) {
            uint32_t mask[WORDS];
            int allowed[V], count = 0;
            free_states(grammar);
            if (!matcher_mask(matcher, mask)) break;
            if (step % 5 == 0) check_by_match(grammar, mask, text, n);
            for (int id = 0; id < V; id++) {
                if (is_in(mask, id)) allowed[count++] = id;
            }
            if (count == 0) break;
            int id = allowed[naive_draw(&seed, count)];
            ck_assert(matcher_accept(matcher, id));
            memcpy(text + n, tokens[id], (size_t)lengths[id]);
            n += lengths[id];
        }
        matcher_free(matcher);
    }
    grammar_release(grammar);
}
END_TEST

/* Computes a mask in as many calls as needed with `work` each. If states are freed in between,
 * walks start again, so the number of calls is limited. Returns the number of incomplete calls. */
static int mask_in_parts(struct matcher *matcher, int work, uint32_t *mask) {
    int interrupted = 0;
    while (interrupted < 3000 && !matcher_prepare(matcher, work)) interrupted++;
    ck_assert(matcher_mask(matcher, mask) || matcher_may_end(matcher));
    ck_assert(interrupted == 3000 || matcher_prepare(matcher, 1));
    return interrupted;
}

/* Meanwhile another sequence uses the same grammar, at another place in it. */
START_TEST(interrupted_walks_find_the_same_masks) {
    const char *source = long_texts[_i / 2].text;
    struct grammar *grammars[2];
    struct matcher *matchers[2], *other;
    uint32_t masks[2][WORDS];
    uint64_t seed = (uint64_t)_i;
    int interrupted = 0;
    for (int k = 0; k < 2; k++) {
        ck_assert(!grammar_compile(long_texts[_i / 2].kind, source, strlen(source), NULL,
                                   &grammars[k], NULL));
        if (_i % 2) grammars[k]->automaton.max_bytes = 30000;
        matchers[k] = matcher_new(grammars[k], vocabulary);
    }
    other = matcher_copy(matchers[1]);
    for (int step = 0; step < 25; step++) {
        int allowed[V], count = 0;
        matcher_mask(matchers[0], masks[0]);
        matcher_prepare(other, 1 + naive_draw(&seed, 20));
        interrupted += mask_in_parts(matchers[1], 1 + naive_draw(&seed, 60), masks[1]);
        ck_assert(memcmp(masks[0], masks[1], sizeof masks[0]) == 0);
        for (int id = 0; id < V; id++)
            if (is_in(masks[0], id)) allowed[count++] = id;
        if (count == 0) break;
        int id = allowed[naive_draw(&seed, count)];
        for (int k = 0; k < 2; k++) ck_assert(matcher_accept(matchers[k], id));
        if (step % 3 == 0) matcher_accept(other, id);
    }
    ck_assert_int_gt(interrupted, 0);
    matcher_free(other);
    for (int k = 0; k < 2; k++) matcher_free(matchers[k]), grammar_release(grammars[k]);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("grammar_masks");
    TCase *cases = tcase_create("random");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_set_timeout(cases, 120);
    tcase_add_loop_test(cases, masks_are_what_a_naive_recogniser_says, 0, GRAMMARS);
    tcase_add_loop_test(cases, masks_of_long_texts_are_exact_while_states_are_freed, 0,
                        (int)(sizeof long_texts / sizeof *long_texts));
    tcase_add_loop_test(cases, interrupted_walks_find_the_same_masks, 0,
                        (int)(2 * sizeof long_texts / sizeof *long_texts));
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
