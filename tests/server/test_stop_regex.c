/* Regular expressions that end a text: for any split of the text the result is that of a slow
 * recogniser for the whole text, and bytes are held no longer than necessary. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/generation/stop_matcher.h"
#include "support/suite_main.h"

static uint64_t random_state = 1;

static unsigned below(unsigned n) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(random_state >> 33) % n;
}

/* ---- expressions, and the slow recogniser --------------------------------------------------- */

enum { MAX_NODES = 64, MAX_TEXT = 40 };

/* An expression as a tree, next to its text. Positions of a text are the bits of a number. */
struct node {
    enum { CHARACTER, ANY, CAT, ALT, REPEAT, BEGIN } kind;
    const char *text; /* of a CHARACTER */
    int child[2], min, max;
};

static struct node nodes[MAX_NODES];
static int n_nodes;

static const char *const characters[] = {"a", "b", "\xC3\xA9"};

static int random_node(struct buf *out, int depth);

static int add_node(struct node node) {
    nodes[n_nodes] = node;
    return n_nodes++;
}

static int random_repeat(struct buf *out, int depth) {
    static const struct {
        const char *text;
        int min, max;
    } repeats[] = {{"*", 0, 99}, {"+", 1, 99}, {"?", 0, 1}, {"{2}", 2, 2}, {"{1,3}", 1, 3}};
    unsigned which = below(5);
    buf_puts(out, "(");
    int child = random_node(out, depth - 1);
    buf_printf(out, ")%s", repeats[which].text);
    return add_node((struct node){
        .kind = REPEAT, .child = {child}, .min = repeats[which].min, .max = repeats[which].max});
}

static int random_node(struct buf *out, int depth) {
    unsigned kind = depth == 0 || n_nodes > MAX_NODES - 20 ? below(4) : below(10);
    if (kind < 3) {
        buf_puts(out, characters[kind]);
        return add_node((struct node){.kind = CHARACTER, .text = characters[kind]});
    }
    if (kind == 3) {
        buf_puts(out, ".");
        return add_node((struct node){.kind = ANY});
    }
    if (kind > 7) return random_repeat(out, depth);
    bool is_alt = kind < 5;
    if (is_alt) buf_puts(out, "(");
    int first = random_node(out, depth - 1);
    if (is_alt) buf_puts(out, "|");
    int second = random_node(out, depth - 1);
    if (is_alt) buf_puts(out, ")");
    return add_node((struct node){.kind = is_alt ? ALT : CAT, .child = {first, second}});
}

/* Sometimes one alternative of two matches only at the start. */
static int random_regex(struct buf *out) {
    n_nodes = 0;
    if (below(5) > 0) return random_node(out, 4);
    buf_puts(out, "(^|a)");
    int begin = add_node((struct node){.kind = BEGIN});
    int a = add_node((struct node){.kind = CHARACTER, .text = "a"});
    int either = add_node((struct node){.kind = ALT, .child = {begin, a}});
    int rest = random_node(out, 3);
    return add_node((struct node){.kind = CAT, .child = {either, rest}});
}

/* Returns the ends of matches of a character from the positions `from`. Sets *is_cut if the text's
 * end cuts a match short: more text could continue it. */
static uint64_t ends_of_character(const char *c, const char *text, size_t length, uint64_t from,
                                  bool *is_cut) {
    uint64_t ends = 0;
    size_t n = strlen(c);
    for (size_t i = 0; i <= length; i++) {
        if (!(from >> i & 1)) continue;
        if (i + n <= length && memcmp(text + i, c, n) == 0) ends |= (uint64_t)1 << (i + n);
        if (i + n > length && memcmp(text + i, c, length - i) == 0) *is_cut = true;
    }
    return ends;
}

static uint64_t ends_of(int at, const char *text, size_t length, uint64_t from, bool *is_cut) {
    const struct node *node = &nodes[at];
    uint64_t ends = 0, now = from;
    switch (node->kind) {
    case CHARACTER:
        return ends_of_character(node->text, text, length, from, is_cut);
    case ANY:
        for (int i = 0; i < 3; i++)
            ends |= ends_of_character(characters[i], text, length, from, is_cut);
        return ends;
    case BEGIN:
        return from & 1;
    case CAT:
        now = ends_of(node->child[0], text, length, from, is_cut);
        return now ? ends_of(node->child[1], text, length, now, is_cut) : 0;
    case ALT:
        return ends_of(node->child[0], text, length, from, is_cut) |
               ends_of(node->child[1], text, length, from, is_cut);
    case REPEAT:
        for (int i = 0; i <= node->max && i <= MAX_TEXT + 1 && now; i++) {
            if (i >= node->min) ends |= now;
            if (i < node->max) now = ends_of(node->child[0], text, length, now, is_cut);
        }
    }
    return ends;
}

/* The match that ends first, after the first `asleep` bytes; among those the longest. Returns its
 * length; 0: no match. */
static size_t oracle(int root, const char *text, size_t length, size_t asleep, size_t *end) {
    bool ignored;
    uint64_t ends[MAX_TEXT];
    for (size_t i = 0; i < length; i++)
        ends[i] = ends_of(root, text, length, (uint64_t)1 << i, &ignored);
    for (*end = asleep + 1; *end <= length; (*end)++)
        for (size_t begin = 0; begin < *end; begin++)
            if (ends[begin] >> *end & 1) return *end - begin;
    return 0;
}

/* Returns how many of the last bytes may begin a match, or a character. */
static size_t needed(int root, const char *text, size_t length, bool include) {
    for (size_t begin = 0; begin < length && !include; begin++) {
        bool is_cut = false;
        ends_of(root, text, length, (uint64_t)1 << begin, &is_cut);
        if (is_cut) return length - begin;
    }
    return utf8_unfinished(text, length);
}

/* ---- random expressions, texts and cuts ----------------------------------------------------- */

static void check_split(struct search *search, int root, const char *regex, const char *text) {
    struct api_text one = {regex, strlen(regex)};
    bool include = below(2), met = false;
    struct api_request request = {
        .n_stop_regexes = 1, .stop_regexes = &one, .include_stop_str_in_output = include};
    size_t length = strlen(text), asleep = below(3) ? 0 : below(10), end, at = 0;
    size_t expected = oracle(root, text, length, asleep, &end);
    struct stop_matcher matcher;
    struct buf out = {0};
    stop_matcher_init(&matcher, &request, &search);
    while (at < length && !met) {
        size_t part = 1 + below(5), left = at < asleep ? asleep - at : length - at;
        if (part > left) part = left;
        if (part > length - at) part = length - at;
        matcher.asleep = at < asleep;
        met = stop_matcher_add(&matcher, text + at, part, &out);
        at += part;
        if (!met) ck_assert_uint_eq(at - out.length, needed(root, text, at, include));
    }
    if (!met) stop_matcher_finish(&matcher, &out);
    ck_assert_msg(met == (expected > 0), "/%s/ in %s", regex, text);
    ck_assert(!met || matcher.matched == regex);
    size_t certain = !met ? length : include ? end : end - expected;
    ck_assert_msg(out.length == certain, "/%s/ in %s: %zu, not %zu", regex, text, out.length,
                  certain);
    if (certain) ck_assert_mem_eq(out.data, text, certain);
    stop_matcher_free(&matcher);
    buf_free(&out);
}

START_TEST(splits_do_not_matter) {
    int n_used = 0;
    for (int round = 0; round < 4000; round++) {
        struct buf regex = {0}, text = {0};
        struct search *search;
        struct err err = {0};
        int root = random_regex(&regex);
        bool ignored, is_empty = ends_of(root, "", 0, 1, &ignored) & 1;
        enum status status = search_compile(regex.data, regex.length, NULL, &search, &err);
        ck_assert_msg((status == STATUS_OK) == !is_empty, "%s: %s", regex.data, err.message);
        for (int i = 0; i < 6 && search; i++) {
            buf_clear(&text);
            for (unsigned n = below(20); n > 0; n--) buf_puts(&text, characters[below(3)]);
            check_split(search, root, regex.data, text.data ? text.data : "");
            n_used++;
        }
        search_release(search);
        buf_free(&regex);
        buf_free(&text);
    }
    ck_assert_int_gt(n_used, 10000);
}
END_TEST

/* ---- selected ones -------------------------------------------------------------------------- */

/* Returns the remaining text if `text` arrives byte by byte, and the stop that matched. */
static const char *run(const char *stop, const char *regex, const char *other, const char *text) {
    static char result[1200];
    struct api_text regexes[] = {{regex, strlen(regex)}, {other, other ? strlen(other) : 0}};
    struct api_request request = {.n_stop_regexes = other ? 2 : 1, .stop_regexes = regexes};
    struct stop_matcher matcher;
    struct search **searches = NULL;
    struct buf out = {0};
    struct err err = {0};
    if (stop) request.stops[request.n_stops++] = (struct api_text){stop, strlen(stop)};
    if (stop_searches_get(NULL, &request, "stop_regex", &searches, &err) != CLAIM_READY) {
        snprintf(result, sizeof result, "%s: %s", err.param, err.message);
    } else {
        stop_matcher_init(&matcher, &request, searches);
        for (const char *p = text; *p && !stop_matcher_add(&matcher, p, 1, &out);) p++;
        stop_matcher_finish(&matcher, &out);
        snprintf(result, sizeof result, "%s|%s", out.length ? out.data : "",
                 matcher.matched ? matcher.matched : "");
        stop_matcher_free(&matcher);
    }
    stop_searches_free(searches, request.n_stop_regexes);
    buf_free(&out);
    return result;
}

START_TEST(cases) {
    ck_assert_str_eq(run(NULL, "[0-9]+", NULL, "a 12 b"), "a |[0-9]+"); /* as soon as it matches */
    ck_assert_str_eq(run(NULL, "(^|\\n)Human:", NULL, "Human:"), "|(^|\\n)Human:");
    ck_assert_str_eq(run(NULL, "(^|\\n)Human:", NULL, "a Human: x\nHuman:"),
                     "a Human: x|(^|\\n)Human:");
    ck_assert_str_eq(run(NULL, "(?i)end\\.", NULL, "the eND, the End. y"),
                     "the eND, the |(?i)end\\.");
    ck_assert_str_eq(run(NULL, "\\Aab", NULL, "xab"), "xab|");
    ck_assert_str_eq(run(NULL, "<.*>", NULL, "a < b < c"), "a < b < c|");
    ck_assert_str_eq(run(NULL, "<.*>", NULL, "a < b < c>"), "a |<.*>"); /* the longest */
    ck_assert_str_eq(run("b", "a.b", NULL, "acb"), "|a.b");             /* both end; it is longer */
    ck_assert_str_eq(run("cb", "b", NULL, "acb"), "a|cb");
    ck_assert_str_eq(run(NULL, "b", "a?b", "cab"), "c|a?b");
    ck_assert_str_eq(run("b", "b", NULL, "ab"), "a|b");
    ck_assert_str_eq(run(NULL, "\\p{L}{3}", NULL, "1\xC3\xA9\xC3\xA9\xC3\xA9"), "1|\\p{L}{3}");
}
END_TEST

START_TEST(unservable_patterns_are_refused) {
    static const struct {
        const char *regex, *says;
    } refused[] = {
        {"a*", "matches the empty text"},
        {"^", "matches the empty text"},
        {"a|", "matches the empty text"},
        {"a$", "an anchor at the end of the text, which cannot stop an answer at byte 1"},
        {"a|b\\z", "which cannot stop an answer at byte 3"},
        {"a^b", "matches no text"},
        {"(a", "a '(' without its ')' at byte 0"},
        {"a(?=b)", "a lookaround, which is not served at byte 1"},
        {"\\bx", "a word boundary, which is not served at byte 0"},
        {"(a|b)*a(a|b){20}", "more than 4000 states"},
        {".{0,900}x", "more than 4000 states"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const char *said = run(NULL, refused[i].regex, NULL, "");
        ck_assert_msg(strstr(said, refused[i].says), "%s: %s", refused[i].regex, said);
        ck_assert(strstr(said, "stop_regex: 'stop_regex' cannot be searched for: ") == said);
    }
    ck_assert(strstr(run(NULL, "a", "b*", ""), "stop_regex[1]: 'stop_regex[1]' cannot") != NULL);
    /* the states of all expressions together are limited */
    ck_assert(strstr(run(NULL, "a.{300}b", "b.{300}c", ""), "stop_regex[1]") != NULL);
}
END_TEST

START_TEST(a_refused_pattern_leaves_no_search) {
    static const struct {
        const char *regex;
        size_t max_text;
    } refused[] = {{"a*", 0}, {"(a", 0}, {"abc", 2}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const struct grammar_limits limits = {.max_text = refused[i].max_text};
        struct search *search = (struct search *)&search; /* not NULL before */
        size_t n = strlen(refused[i].regex);
        ck_assert_int_eq(search_compile(refused[i].regex, n, &limits, &search, NULL),
                         STATUS_INVALID_REQUEST);
        ck_assert_ptr_null(search);
    }
}
END_TEST

/* Adds a text 4 bytes at a time to a matcher of one regular expression that does not match it.
 * Returns the number of held bytes. Fails if more than `most` matches are open at any time. */
static size_t held_of(const char *regex, const char *text, size_t length, int most) {
    struct api_text one = {regex, strlen(regex)};
    struct api_request request = {.n_stop_regexes = 1, .stop_regexes = &one};
    struct stop_matcher matcher;
    struct search **searches = NULL;
    struct buf out = {0};
    struct err err;
    ck_assert_int_eq(stop_searches_get(NULL, &request, "stop_regex", &searches, &err), CLAIM_READY);
    stop_matcher_init(&matcher, &request, searches);
    for (size_t i = 0; i < length; i += 4) {
        stop_matcher_add(&matcher, text + i, length - i < 4 ? length - i : 4, &out);
        ck_assert_int_le(matcher.runs[0].n, most);
    }
    ck_assert_int_lt(most, search_states(searches[0]));
    size_t held = length - out.length;
    stop_matcher_free(&matcher);
    stop_searches_free(searches, 1);
    buf_free(&out);
    return held;
}

/* One of several equivalent matches is followed: each byte costs one table lookup per followed
 * match. */
START_TEST(the_cost_of_a_byte_is_bounded) {
    static char text[20000];
    memset(text, 'a', sizeof text);
    ck_assert_uint_eq(held_of("a[a-y]{900}z", text, sizeof text, 901), 901);
    ck_assert_uint_eq(held_of("a[a-y]*z", text, sizeof text, 2), sizeof text);
    ck_assert_uint_eq(held_of("(a|aa|ab)*c", text, sizeof text, 3), sizeof text);
}
END_TEST

/* Text that begins like a match, but cannot become one. */
START_TEST(text_that_cannot_match_is_not_held) {
    ck_assert_uint_eq(held_of("xa^b|y", "xa", 2, 1), 0);
    ck_assert_uint_eq(held_of("^xab|y", "xaxa", 4, 1), 0);
    ck_assert_uint_eq(held_of("^xab|y", "xa", 2, 1), 2);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_stop_regex");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 60);
    tcase_add_test(core, cases);
    tcase_add_test(core, unservable_patterns_are_refused);
    tcase_add_test(core, a_refused_pattern_leaves_no_search);
    tcase_add_test(core, splits_do_not_matter);
    tcase_add_test(core, the_cost_of_a_byte_is_bounded);
    tcase_add_test(core, text_that_cannot_match_is_not_held);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
