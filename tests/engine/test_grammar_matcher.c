/* The results of matchers other than masks, the tries of a vocabulary, and one grammar in many
 * threads. */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/grammar.h"
#include "engine/grammar/run/automaton.h"
#include "support/matcher_copy.h"
#include "support/naive_grammar.h"
#include "support/suite_main.h"

/* ---- forced bytes --------------------------------------------------------------------------- */

/* A vocabulary with one token per byte. */
static struct vocabulary *bytes_vocabulary(void) {
    static char text[256];
    const char *bytes[256];
    int lengths[256];
    for (int i = 0; i < 256; i++) {
        text[i] = (char)i;
        bytes[i] = &text[i];
        lengths[i] = 1;
    }
    return vocabulary_new(bytes, lengths, 256);
}

/* Bytes that all edges treat the same are one class, so none of them is forced. */
static const struct {
    const char *regex, *before, *forced;
} forced[] = {
    {"x[ab]cd", "", "x"},   {"x[ab]cd", "xb", "cd"},     {"ab?c", "", "a"},
    {".", "", ""},          {"[^a]b", "", ""},           {"[^a]b", "x", "b"},
    {"abc(d)?", "", "abc"}, {"\\x{e9}", "", "\xc3\xa9"},
};

START_TEST(bytes_are_forced_where_no_other_may_come) {
    struct vocabulary *vocabulary = bytes_vocabulary();
    struct grammar *grammar;
    const char *regex = forced[_i].regex;
    char bytes[8];
    ck_assert(!grammar_compile(GRAMMAR_REGEX, regex, strlen(regex), NULL, &grammar, NULL));
    struct matcher *matcher = matcher_new(grammar, vocabulary);
    for (const char *at = forced[_i].before; *at; at++)
        ck_assert(matcher_accept(matcher, (uint8_t)*at));
    int n = matcher_forced(matcher, bytes, sizeof bytes);
    ck_assert_int_eq(n, (int)strlen(forced[_i].forced));
    ck_assert(memcmp(bytes, forced[_i].forced, (size_t)n) == 0);
    matcher_free(matcher);
    grammar_release(grammar);
    vocabulary_free(vocabulary);
}
END_TEST

/* A token must match as a whole: a match of its first bytes is not enough. */
START_TEST(nothing_may_come_where_no_token_does) {
    static const char *const texts[] = {"ab", "c"};
    static const int sizes[] = {2, 1};
    static const char *const regexes[] = {"ad", "ab", "ad|c", "a*"};
    struct vocabulary *vocabulary = vocabulary_new(texts, sizes, 2);
    for (int i = 0; i < 4; i++) {
        struct grammar *grammar;
        uint32_t mask;
        ck_assert(
            !grammar_compile(GRAMMAR_REGEX, regexes[i], strlen(regexes[i]), NULL, &grammar, NULL));
        struct matcher *matcher = matcher_new(grammar, vocabulary);
        for (int known = 0; known < 2; known++) { /* the second time the mask is in the cache */
            ck_assert_int_eq(matcher_may_go_on(matcher), i == 1 || i == 2);
            ck_assert_int_eq(matcher_mask(matcher, &mask), i > 0);
        }
        matcher_free(matcher);
        grammar_release(grammar);
    }
    vocabulary_free(vocabulary);
}
END_TEST

/* ---- states that are freed ------------------------------------------------------------------ */

/* The rules are nested within one token, so no sequence was at the start of the outer ones, and
 * states are freed at every mask. The rules of the second grammar wait for themselves. */
static const struct {
    enum grammar_kind kind;
    const char *text, *taken[5];
} nested[] = {
    {GRAMMAR_JSON_SCHEMA,
     "{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"anyOf\":[{\"type\":\"array\",\"items\":"
     "{\"$ref\":\"#/$defs/a\"}},{\"type\":\"null\"}]}}}",
     {"[[[", "null", "]", "]", "]"}},
    {GRAMMAR_GBNF,
     "root ::= e\ne ::= e \"+\" t | t\nt ::= \"(\" e \")\" | \"x\"\n",
     {"((", "x", "+x", ")", "+x)"}},
};

START_TEST(who_waits_stays_while_states_are_freed) {
    static const char *const texts[] = {"[[[", "null", "]", "((", "x", "+x", ")", "+x)", "[", "a"};
    int sizes[10];
    for (int i = 0; i < 10; i++) sizes[i] = (int)strlen(texts[i]);
    struct vocabulary *vocabulary = vocabulary_new(texts, sizes, 10);
    struct grammar *grammar;
    const char *text = nested[_i].text;
    ck_assert(!grammar_compile(nested[_i].kind, text, strlen(text), NULL, &grammar, NULL));
    struct matcher *matcher = matcher_new(grammar, vocabulary);
    for (int i = 0; i < 5; i++) {
        uint32_t mask;
        int id = 0;
        while (strcmp(texts[id], nested[_i].taken[i]) != 0) id++;
        grammar->automaton.max_bytes = 1;
        ck_assert(matcher_mask(matcher, &mask) && (mask >> id & 1) && !(mask >> 9 & 1));
        ck_assert(!matcher_may_end(matcher));
        ck_assert(matcher_accept(matcher, id));
    }
    ck_assert(matcher_may_end(matcher));
    matcher_free(matcher);
    grammar_release(grammar);
    vocabulary_free(vocabulary);
}
END_TEST

/* States that only one sequence has needed are freed first. */
START_TEST(masks_that_are_wanted_again_stay) {
    struct vocabulary *vocabulary = bytes_vocabulary();
    struct grammar *grammar;
    uint32_t mask[8];
    ck_assert(!grammar_compile(GRAMMAR_REGEX, "[ab]{0,400}", 11, NULL, &grammar, NULL));
    struct automaton *a = &grammar->automaton;
    struct matcher *first = matcher_new(grammar, vocabulary);
    for (int i = 0; i < 3; i++) matcher_mask(first, mask);
    const size_t bytes = a->bytes;
    struct matcher *second = matcher_copy(first);
    for (int i = 0; i < 390; i++) ck_assert(matcher_accept(second, 'a'));
    matcher_free(second);
    for (int round = 0; round < 2; round++) {
        ck_assert_int_eq(a->start->n_wanted > 1, round == 0);
        ck_assert(a->start->mask);
        a->max_bytes = round == 0 ? a->bytes - 1 : 1;
        ck_assert(matcher_accept(first, 'a'));
        matcher_mask(first, mask);
    }
    ck_assert(!a->start->mask);
    matcher_roll_back(first, 2);
    a->max_bytes = 1;
    matcher_mask(first, mask); /* the same as at the start */
    ck_assert_uint_eq(a->bytes, bytes);
    matcher_free(first);
    grammar_release(grammar);
    vocabulary_free(vocabulary);
}
END_TEST

/* ---- the vocabulary ------------------------------------------------------------------------- */

enum { V = 3200, LONGEST = 40 };

static char tokens[V][LONGEST];
static int lengths[V];

/* Unordered tokens with bytes of all kinds: many share a long prefix, some are duplicates. */
static struct vocabulary *long_vocabulary(void) {
    static const char *const parts[] = {"inter", "nation", "  ",   "\u00e9", "7",
                                        "A",     "_",      "\xa9", "a",      "\t"};
    const char *bytes[V];
    uint64_t seed = 11;
    for (int id = 0; id < V; id++) {
        bytes[id] = tokens[id];
        lengths[id] = 0;
        for (int n = 1 + naive_draw(&seed, 6); n > 0; n--) {
            const char *part = parts[naive_draw(&seed, 10)];
            memcpy(tokens[id] + lengths[id], part, strlen(part));
            lengths[id] += (int)strlen(part);
        }
    }
    return vocabulary_new(bytes, lengths, V);
}

/* Siblings are in ascending order, so each prefix has one node; and each token ends at its node. */
START_TEST(a_trie_has_each_beginning_once) {
    struct vocabulary *v = long_vocabulary();
    int n_found = 0, depth = -1;
    char path[LONGEST];
    for (uint32_t i = 0; i < v->n_nodes; i++) {
        const struct trie_node *node = &v->nodes[i];
        ck_assert(node->depth <= depth + 1 && node->skip > i && node->skip <= v->n_nodes);
        ck_assert(node->depth > depth || node->byte > (uint8_t)path[node->depth]);
        depth = node->depth;
        path[depth] = (char)node->byte;
        for (int32_t id = node->token; id >= 0; id = v->same_next[id], n_found++) {
            ck_assert_int_eq(lengths[id], node->depth + 1);
            ck_assert(memcmp(tokens[id], path, (size_t)lengths[id]) == 0);
        }
    }
    ck_assert_int_eq(n_found, V);
    vocabulary_free(v);
}
END_TEST

/* Returns the number of tokens that end in a subtree of shapes. Fails if two siblings are equal. */
static int check_shapes(const struct shape_trie *trie, uint32_t at) {
    const struct shape_node *node = &trie->nodes[at];
    bool seen[N_SETS + 1][256] = {{false}};
    int n = (int)(node->own_end - node->ids);
    for (uint32_t i = node->children; i < node->children + node->n_children; i++) {
        const struct shape_node *child = &trie->nodes[i];
        ck_assert(!seen[child->set][child->byte]);
        seen[child->set][child->byte] = true;
        n += check_shapes(trie, i);
    }
    ck_assert_int_eq(n, (int)(node->all_end - node->ids));
    return n;
}

/* Does the token consist of whole characters of the slice, within the limit? */
static bool is_in_slice(int id, enum character_set slice) {
    int n = 0;
    for (size_t at = 0, size, length = (size_t)lengths[id]; at < length; at += size, n++) {
        uint8_t byte = (uint8_t)tokens[id][at];
        size = byte < 128 ? 1 : utf8_character(tokens[id] + at, length - at);
        if (size == 0 || (byte < 128 && !set_has(slice, byte))) return false;
    }
    return n <= MAX_CHARACTERS;
}

START_TEST(tries_of_shapes_have_each_beginning_once) {
    struct vocabulary *v = long_vocabulary();
    ck_assert_int_eq(check_shapes(&v->shapes, 0), V);
    ck_assert_int_eq(check_shapes(&v->by_first, 0), V);
    for (int i = 0; i < N_SLICES; i++) {
        int in_slice = 0;
        for (int id = 0; id < V; id++) {
            bool is_in = v->slices[i].at_most[MAX_CHARACTERS][id / 32] >> id % 32 & 1;
            ck_assert_int_eq(is_in, is_in_slice(id, (enum character_set)i));
            in_slice += is_in;
        }
        ck_assert_int_gt(in_slice, 0);
        ck_assert_int_eq(check_shapes(&v->slices[i].rest, 0), V - in_slice);
    }
    vocabulary_free(v);
}
END_TEST

/* ---- threads -------------------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 6, TOKENS = 20, WORDS = V / 32 };

static const char shared_regex[] = "([a-z]{1,9}[ _7]|\u00e9*A|[^a-z]{3,60}(inter)?){1,40}";

static struct grammar *compile_shared(size_t max_bytes) {
    struct grammar_limits limits = {.max_bytes = max_bytes};
    struct grammar *grammar;
    ck_assert(!grammar_compile(GRAMMAR_REGEX, shared_regex, sizeof shared_regex - 1, &limits,
                               &grammar, NULL));
    return grammar;
}

static struct {
    struct grammar *grammar;
    const struct vocabulary *vocabulary;
} shared;

/* Returns a random token of the mask; -1: the mask is empty. */
static int draw_token(const uint32_t *mask, uint64_t *seed) {
    int from = naive_draw(seed, V);
    for (int i = 0; i < V; i++) {
        int id = (from + i) % V;
        if (mask[id / 32] >> id % 32 & 1) return id;
    }
    return -1;
}

/* One sequence. Its masks equal those of a grammar that only this thread uses. */
static void keep_to_it(struct grammar *own, uint64_t seed) {
    uint32_t mask[WORDS], expected[WORDS];
    struct matcher *matcher = matcher_new(shared.grammar, shared.vocabulary);
    struct matcher *alone = matcher_new(own, shared.vocabulary);
    for (int i = 0; i < TOKENS; i++) {
        char bytes[4], bytes_alone[4];
        matcher_prepare(matcher, 1 + naive_draw(&seed, 2000));
        ck_assert(matcher_mask(matcher, mask) == matcher_mask(alone, expected));
        ck_assert(memcmp(mask, expected, sizeof mask) == 0);
        ck_assert(matcher_may_go_on(matcher) == matcher_may_go_on(alone));
        int n = matcher_forced(matcher, bytes, 4);
        ck_assert_int_eq(n, matcher_forced(alone, bytes_alone, 4));
        int id = draw_token(mask, &seed);
        if (id < 0) break;
        ck_assert(matcher_accept(matcher, id) && matcher_accept(alone, id));
        ck_assert(matcher_may_end(matcher) == matcher_may_end(alone));
        if (i % 7 == 6) matcher_roll_back(matcher, 3), matcher_roll_back(alone, 3);
    }
    matcher_free(matcher);
    matcher_free(alone);
}

static void *keep_to_it_often(void *arg) {
    uint64_t seed = (uint64_t)(uintptr_t)arg;
    struct grammar *own = compile_shared(0);
    for (int i = 0; i < ROUNDS; i++) keep_to_it(own, seed * 100 + (uint64_t)i);
    grammar_release(own);
    return NULL;
}

/* With the second limit, states are freed all the time. */
START_TEST(threads_share_a_grammar) {
    pthread_t threads[THREADS];
    struct vocabulary *vocabulary = long_vocabulary();
    shared.grammar = compile_shared(_i ? 1 << 20 : 0);
    shared.vocabulary = vocabulary;
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, keep_to_it_often, (void *)(i + 1));
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    grammar_release(shared.grammar);
    vocabulary_free(vocabulary);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("grammar_matcher");
    TCase *cases = tcase_create("core");
    tcase_set_timeout(cases, 300);
    tcase_add_loop_test(cases, bytes_are_forced_where_no_other_may_come, 0,
                        (int)(sizeof forced / sizeof *forced));
    tcase_add_test(cases, nothing_may_come_where_no_token_does);
    tcase_add_loop_test(cases, who_waits_stays_while_states_are_freed, 0, 2);
    tcase_add_test(cases, masks_that_are_wanted_again_stay);
    tcase_add_test(cases, a_trie_has_each_beginning_once);
    tcase_add_test(cases, tries_of_shapes_have_each_beginning_once);
    tcase_add_loop_test(cases, threads_share_a_grammar, 0, 2);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
