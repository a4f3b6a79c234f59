/* The store of compiled grammars and stop_regex: equal texts compile once, also at the same time;
 * the least recently used go; what fails is not kept. And the vocabulary that it makes. */
#include <check.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/generation/grammar_store.h"
#include "support/suite_main.h"
#include "support/tokenizer_fixture.h"

enum { V = 762, END = 761, AT_ONCE = 6, ROUNDS = 40 };

static struct tokenizer *tokenizer;

/* ---- stand-ins of the engine's -------------------------------------------------------------- */

const struct tokenizer *engine_tokenizer(const struct engine *engine) {
    (void)engine;
    return tokenizer;
}

const int32_t *engine_end_ids(const struct engine *engine, int *n) {
    static const int32_t ends[] = {END};
    (void)engine;
    *n = 1;
    return ends;
}

/* ---- tests ---------------------------------------------------------------------------------- */

static struct grammar_store *store;

static void open_store(size_t max_bytes) {
    if (!tokenizer) tokenizer = fixture_tokenizer("gpt-2");
    store = grammar_store_new(NULL, V, max_bytes);
}

static struct grammar *get(enum grammar_kind kind, const char *text) {
    struct grammar *grammar;
    struct err err;
    enum status status = grammar_store_get(store, kind, text, strlen(text), &grammar, &err);
    ck_assert_msg(status == STATUS_OK, "%s: %s", text, err.message);
    return grammar;
}

/* Returns the grammar's address, by which another one with the same text is known. */
static void *used(enum grammar_kind kind, const char *text) {
    struct grammar *grammar = get(kind, text);
    grammar_release(grammar);
    return grammar;
}

START_TEST(equal_texts_of_a_kind_compile_once) {
    open_store(1 << 20);
    struct grammar *a = get(GRAMMAR_REGEX, "[\"a\"]"), *b = get(GRAMMAR_CHOICE, "[\"a\"]");
    ck_assert_ptr_eq(used(GRAMMAR_REGEX, "[\"a\"]"), a);
    ck_assert_ptr_eq(used(GRAMMAR_CHOICE, "[\"a\"]"), b);
    ck_assert_ptr_ne(a, b);
    struct grammar *c = get(GRAMMAR_REGEX, "[\"a\"]+");
    ck_assert_ptr_ne(c, a);
    grammar_store_free(store);
    bool complete;
    ck_assert_uint_eq(grammar_match(a, "a", 1, &complete), 1); /* those handed out stay */
    grammar_release(a), grammar_release(b), grammar_release(c);
}
END_TEST

/* One is kept at a time: with the first one held, a new one cannot have its address. */
START_TEST(the_least_recently_used_go) {
    open_store(1 << 20);
    struct grammar *probe = get(GRAMMAR_REGEX, "a{3}");
    size_t bytes = grammar_bytes(probe);
    grammar_release(probe);
    grammar_store_free(store);
    open_store(3 * bytes + 3 * 256); /* of such ones three are kept, and no four */
    struct grammar *a = get(GRAMMAR_REGEX, "a{3}"), *b = get(GRAMMAR_REGEX, "b{3}");
    struct grammar *c = get(GRAMMAR_REGEX, "c{3}");
    ck_assert_ptr_eq(used(GRAMMAR_REGEX, "a{3}"), a); /* so that b is the oldest */
    used(GRAMMAR_REGEX, "d{3}");
    ck_assert_ptr_eq(used(GRAMMAR_REGEX, "a{3}"), a);
    ck_assert_ptr_eq(used(GRAMMAR_REGEX, "c{3}"), c);
    ck_assert_ptr_ne(used(GRAMMAR_REGEX, "b{3}"), b);
    grammar_release(a), grammar_release(b), grammar_release(c);
    grammar_store_free(store);
    open_store(0);
    a = get(GRAMMAR_REGEX, "a");
    ck_assert_ptr_ne(used(GRAMMAR_REGEX, "a"), a);
    grammar_release(a);
    grammar_store_free(store);
}
END_TEST

START_TEST(what_fails_is_not_kept) {
    open_store(1 << 20);
    for (int i = 0; i < 2; i++) {
        struct grammar *grammar;
        struct err err = {0};
        ck_assert_int_eq(grammar_store_get(store, GRAMMAR_REGEX, "(", 1, &grammar, &err),
                         STATUS_INVALID_REQUEST);
        ck_assert(!grammar && err.message[0]);
    }
    grammar_store_free(store);
}
END_TEST

/* Bytes of the heap that are in use. */
static size_t heap_bytes(void) {
    return mallinfo2().uordblks + mallinfo2().hblkhd;
}

START_TEST(ten_thousand_failures_leave_memory_flat) {
    size_t before = 0;
    open_store(1 << 20);
    for (int i = 0; i < 10000; i++) {
        char text[32];
        struct grammar *grammar;
        int n = snprintf(text, sizeof text, "(%d", i);
        ck_assert_int_ne(grammar_store_get(store, GRAMMAR_REGEX, text, (size_t)n, &grammar, NULL),
                         STATUS_OK);
        if (i == 99) before = heap_bytes();
    }
    ck_assert_uint_le(heap_bytes(), before + 4096);
    grammar_store_free(store);
}
END_TEST

START_TEST(ten_thousand_schemas_leave_memory_flat) {
    size_t kept = 4 << 20, before = 0, most = 0;
    open_store(kept);
    for (int i = 0; i < 10000; i++) {
        char schema[200];
        uint32_t mask[V / 32 + 1];
        snprintf(schema, sizeof schema,
                 "{\"type\":\"object\",\"properties\":{\"p%d\":{\"maxLength\":%d}},\"required\":["
                 "\"p%d\"]}",
                 i, i % 50 + 1, i);
        struct grammar *grammar = get(GRAMMAR_JSON_SCHEMA, schema);
        struct matcher *matcher = matcher_new(grammar, grammar_store_vocabulary(store, NULL, NULL));
        ck_assert(matcher_mask(matcher, mask));
        matcher_free(matcher);
        grammar_release(grammar);
        if (i == 999) before = heap_bytes(); /* the store is full */
        if (i > 999 && i % 100 == 0 && heap_bytes() > most) most = heap_bytes();
    }
    ck_assert_msg(most < before + kept / 2, "%zu bytes, then %zu", before, most);
    grammar_store_free(store);
}
END_TEST

/* A stop_regex shares the store's bound with the grammars, and is no grammar of the same text. */
START_TEST(what_ends_answers_is_kept_too) {
    struct search *first, *again, *unkept;
    open_store(1 << 20);
    struct grammar *grammar = get(GRAMMAR_REGEX, "a{3}");
    ck_assert_int_eq(grammar_store_search(store, "a{3}", 4, &first, NULL), STATUS_OK);
    ck_assert_ptr_eq(used(GRAMMAR_REGEX, "a{3}"), grammar);
    ck_assert_int_eq(grammar_store_search(store, "a{3}", 4, &again, NULL), STATUS_OK);
    ck_assert_ptr_eq(again, first);
    ck_assert_int_eq(grammar_store_search(NULL, "a{3}", 4, &unkept, NULL), STATUS_OK);
    ck_assert_ptr_ne(unkept, first);
    ck_assert_int_ne(grammar_store_search(store, "a*", 2, &again, NULL), STATUS_OK);
    ck_assert_ptr_null(again);
    grammar_store_free(store);
    struct search_run run = {0};
    for (int i = 0; i < 3; i++) ck_assert_uint_eq(search_step(first, &run, 'a'), i == 2 ? 3 : 0);
    search_run_free(&run);
    search_release(first), search_release(first), search_release(unkept);
    grammar_release(grammar);
}
END_TEST

/* The heap grows no more once the store is full. */
START_TEST(ten_thousand_of_them_leave_memory_flat) {
    size_t kept = 1 << 20, before = 0;
    open_store(kept);
    for (int i = 0; i < 10000; i++) {
        char text[32];
        struct search *search;
        int n = snprintf(text, sizeof text, "x{%d}%d", i % 50 + 1, i);
        ck_assert_int_eq(grammar_store_search(store, text, (size_t)n, &search, NULL), STATUS_OK);
        search_release(search);
        if (i == 4999) before = heap_bytes();
    }
    ck_assert_uint_lt(heap_bytes(), before + kept / 4);
    ck_assert(before == 0 || before > kept / 2); /* sanitizers' heaps do not tell */
    grammar_store_free(store);
}
END_TEST

static pthread_barrier_t together;

/* Large enough that some come while another thread compiles the same. */
static void *get_many(void *arg) {
    for (int i = 0; i < ROUNDS; i++) {
        char text[32];
        bool complete;
        snprintf(text, sizeof text, i % 5 == 4 ? "(%d" : "x{%d,900}", i + 2);
        struct grammar *grammar;
        struct err err;
        pthread_barrier_wait(&together);
        enum status status =
            grammar_store_get(store, GRAMMAR_REGEX, text, strlen(text), &grammar, &err);
        ck_assert_int_eq(status == STATUS_OK, i % 5 != 4);
        if (!grammar) continue;
        ck_assert_uint_eq(grammar_match(grammar, "xxx", 3, &complete), 3);
        ((struct grammar **)arg)[i] = grammar;
    }
    ck_assert_ptr_nonnull(grammar_store_vocabulary(store, NULL, NULL));
    return NULL;
}

/* Those that come together get the same grammar, which one of them has compiled. */
START_TEST(many_threads_share_them) {
    static struct grammar *got[AT_ONCE][ROUNDS];
    pthread_t threads[AT_ONCE];
    open_store(1 << 24);
    pthread_barrier_init(&together, NULL, AT_ONCE);
    for (int i = 0; i < AT_ONCE; i++) pthread_create(&threads[i], NULL, get_many, got[i]);
    for (int i = 0; i < AT_ONCE; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < AT_ONCE; i++)
        for (int j = 0; j < ROUNDS; j++) {
            ck_assert_ptr_eq(got[i][j], got[0][j]);
            if (got[i][j]) grammar_release(got[i][j]);
        }
    pthread_barrier_destroy(&together);
    grammar_store_free(store);
}
END_TEST

/* Fails, but only after most of its automaton was made. */
static const char failing[] = "(?:a|b)*a(?:a|b){20}";

static double cpu_s(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void *fail_once(void *arg) {
    struct search *search;
    struct err *err = arg;
    pthread_barrier_wait(&together);
    ck_assert_int_ne(grammar_store_search(store, failing, sizeof failing - 1, &search, err), 0);
    ck_assert_ptr_null(search);
    return NULL;
}

/* Runs n threads that ask for the same; returns what they took of the processor. */
static double fail_at_once(int n) {
    static struct err err[AT_ONCE];
    pthread_t threads[AT_ONCE];
    memset(err, 0, sizeof err);
    pthread_barrier_init(&together, NULL, (unsigned)n);
    double before = cpu_s(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < n; i++) pthread_create(&threads[i], NULL, fail_once, &err[i]);
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
    double took = cpu_s(CLOCK_PROCESS_CPUTIME_ID) - before;
    pthread_barrier_destroy(&together);
    for (int i = 0; i < n; i++) {
        ck_assert_int_eq(err[i].status, STATUS_INVALID_REQUEST);
        ck_assert(err[i].message[0] && strcmp(err[i].message, err[0].message) == 0);
    }
    return took;
}

/* Those that have waited for a text that fails get the sentence without compiling it, too. On a
 * loaded machine some may come too late for that. */
START_TEST(many_threads_share_a_failure) {
    open_store(1 << 20);
    double one = fail_at_once(1), least = 1e9;
    for (int i = 0; i < 8 && least > one * AT_ONCE / 2; i++) {
        double took = fail_at_once(AT_ONCE);
        if (took < least) least = took;
    }
    ck_assert_msg(least < one * AT_ONCE / 2, "%.3f s, of one %.3f s", least, one);
    grammar_store_free(store);
}
END_TEST

/* Searches with automata that take long enough to make that others wait for them. */
static void *search_many(void *arg) {
    for (int i = 0; i < ROUNDS; i++) {
        char text[32];
        struct search *search;
        struct search_run run = {0};
        int n = snprintf(text, sizeof text, "[a-y]{%d}z", 900 + i);
        pthread_barrier_wait(&together);
        ck_assert_int_eq(grammar_store_search(store, text, (size_t)n, &search, NULL), STATUS_OK);
        for (int at = 0; at < 2000; at++) {
            bool ends = at % 1000 == 999;
            ck_assert_uint_eq(search_step(search, &run, ends ? 'z' : 'a'), ends ? 901 + i : 0);
        }
        search_run_free(&run);
        ((struct search **)arg)[i] = search;
    }
    return NULL;
}

START_TEST(many_threads_search_with_them) {
    static struct search *got[AT_ONCE][ROUNDS];
    pthread_t threads[AT_ONCE];
    open_store(1 << 24);
    pthread_barrier_init(&together, NULL, AT_ONCE);
    for (int i = 0; i < AT_ONCE; i++) pthread_create(&threads[i], NULL, search_many, got[i]);
    for (int i = 0; i < AT_ONCE; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < AT_ONCE; i++)
        for (int j = 0; j < ROUNDS; j++) {
            ck_assert_ptr_eq(got[i][j], got[0][j]);
            search_release(got[i][j]);
        }
    pthread_barrier_destroy(&together);
    grammar_store_free(store);
}
END_TEST

/* A token may come as the text that it has; one without text of its own never does. */
START_TEST(the_vocabulary_has_the_texts_of_tokens) {
    uint32_t mask[(V + 31) / 32];
    open_store(1 << 20);
    struct grammar *grammar = get(GRAMMAR_REGEX, "(?s:.)+");
    struct matcher *matcher = matcher_new(grammar, grammar_store_vocabulary(store, NULL, NULL));
    ck_assert_ptr_eq(grammar_store_vocabulary(store, NULL, NULL),
                     grammar_store_vocabulary(store, NULL, NULL));
    int32_t a = tokenizer_find(tokenizer, "a", 1);
    ck_assert(matcher_mask(matcher, mask));
    ck_assert(mask[a / 32] >> a % 32 & 1);
    ck_assert(!(mask[END / 32] >> END % 32 & 1) && !matcher_accept(matcher, END));
    ck_assert(matcher_accept(matcher, a) && matcher_may_end(matcher));
    matcher_free(matcher);
    grammar_release(grammar);
    grammar_store_free(store);
}
END_TEST

/* With tools the control tokens that mark calls and thoughts have a text, and no others do. */
START_TEST(markers_have_a_text_where_calls_are_read) {
    static const char *const names[] = {"a", "[TOOL_CALLS]", "[THINK]", "[INST]"};
    static const uint32_t lengths[] = {1, 12, 7, 6};
    static const int32_t types[] = {1, 3, 3, 3};
    const struct tokenizer_spec spec = {.n_tokens = 4,
                                        .token = names,
                                        .token_length = lengths,
                                        .type = types,
                                        .bos = -1,
                                        .eos = -1,
                                        .unknown = -1};
    struct tokenizer *before = tokenizer;
    struct err err;
    ck_assert_msg(tokenizer_new(&tokenizer, &spec, &err) == STATUS_OK, "%s", err.message);
    store = grammar_store_new(NULL, 4, 1 << 20);
    struct grammar *grammar = get(GRAMMAR_REGEX, "(?s:.)+");
    for (int with = 0; with < 2; with++) {
        const struct vocabulary *v =
            grammar_store_vocabulary(store, with ? tool_format_find("mistral") : NULL,
                                     with ? reasoning_format_find("mistral") : NULL);
        struct matcher *matcher = matcher_new(grammar, v);
        uint32_t mask = 0;
        ck_assert(matcher_mask(matcher, &mask));
        ck_assert_uint_eq(mask, with ? 7 : 1);
        matcher_free(matcher);
    }
    grammar_release(grammar);
    grammar_store_free(store);
    tokenizer_free(tokenizer);
    tokenizer = before;
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_grammar_store");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 120);
    tcase_add_test(core, equal_texts_of_a_kind_compile_once);
    tcase_add_test(core, the_least_recently_used_go);
    tcase_add_test(core, what_fails_is_not_kept);
    tcase_add_test(core, ten_thousand_failures_leave_memory_flat);
    tcase_add_test(core, ten_thousand_schemas_leave_memory_flat);
    tcase_add_test(core, what_ends_answers_is_kept_too);
    tcase_add_test(core, ten_thousand_of_them_leave_memory_flat);
    tcase_add_test(core, many_threads_share_them);
    tcase_add_test(core, many_threads_share_a_failure);
    tcase_add_test(core, many_threads_search_with_them);
    tcase_add_test(core, the_vocabulary_has_the_texts_of_tokens);
    tcase_add_test(core, markers_have_a_text_where_calls_are_read);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
