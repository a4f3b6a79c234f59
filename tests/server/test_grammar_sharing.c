/* Requests that share the compilation of a grammar. Equal texts compile once, also at the same
 * time, and compilation stops if all clients have left. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/slow_schema.h"
#include "support/store_fixture.h"
#include "support/suite_main.h"

enum { AT_ONCE = 6, ROUNDS = 40 };

static pthread_barrier_t together;

/* Large enough that requests arrive while another thread compiles the same text. */
static void *get_many(void *arg) {
    for (int i = 0; i < ROUNDS; i++) {
        char text[32];
        bool complete;
        snprintf(text, sizeof text, i % 5 == 4 ? "(%d" : "x{%d,900}", i + 2);
        struct grammar *grammar;
        struct err err;
        pthread_barrier_wait(&together);
        enum status status = get_grammar(GRAMMAR_REGEX, text, &grammar, &err);
        ck_assert_int_eq(status == STATUS_OK, i % 5 != 4);
        if (!grammar) continue;
        ck_assert_uint_eq(grammar_match(grammar, "xxx", 3, &complete), 3);
        ((struct grammar **)arg)[i] = grammar;
    }
    ck_assert_ptr_nonnull(grammar_store_vocabulary(store, NULL, NULL));
    return NULL;
}

/* Threads that ask at the same time get the same grammar, which one of them has compiled. */
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

static void *fail_once(void *arg) {
    struct search *search;
    pthread_barrier_wait(&together);
    ck_assert_int_ne(get_search(store, failing, &search, arg), STATUS_OK);
    return NULL;
}

/* Threads that wait for a text that fails get the message without compiling the text, too. */
START_TEST(many_threads_share_a_failure) {
    struct err err[AT_ONCE];
    pthread_t threads[AT_ONCE];
    open_store(1 << 20);
    pthread_barrier_init(&together, NULL, AT_ONCE);
    for (int i = 0; i < AT_ONCE; i++) pthread_create(&threads[i], NULL, fail_once, &err[i]);
    for (int i = 0; i < AT_ONCE; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&together);
    for (int i = 0; i < AT_ONCE; i++) {
        ck_assert_int_eq(err[i].status, STATUS_INVALID_REQUEST);
        ck_assert_str_eq(err[i].message, err[0].message);
    }
    ck_assert_uint_eq(stats_of_store().refused, 1);
    grammar_store_free(store);
}
END_TEST

/* Searches with automata that take long enough that other threads wait for them. */
static void *search_many(void *arg) {
    for (int i = 0; i < ROUNDS; i++) {
        char text[32];
        struct search *search;
        struct search_run run = {0};
        snprintf(text, sizeof text, "[a-y]{%d}z", 900 + i);
        pthread_barrier_wait(&together);
        ck_assert_int_eq(get_search(store, text, &search, NULL), STATUS_OK);
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

/* ---- clients that leave --------------------------------------------------------------------- */

static struct buf slow;

static void *compile_slow(void *arg) {
    struct asker *asker = arg;
    struct grammar *grammar;
    struct err err = {0};
    enum claim_verdict verdict = grammar_store_get(store, &asker->claim, true, GRAMMAR_JSON_SCHEMA,
                                                   slow.data, slow.length, &grammar, &err);
    ck_assert_int_eq(verdict, CLAIM_REFUSED);
    return (void *)(intptr_t)err.status;
}

static void start_slow(struct asker *compiler, pthread_t *thread) {
    if (slow.length == 0) slow_schema(&slow, 1);
    asker_init(compiler);
    pthread_create(thread, NULL, compile_slow, compiler);
    while (stats_of_store().compiling == 0) sched_yield();
}

static enum claim_verdict ask_slow(struct asker *asker, struct err *err) {
    struct grammar *grammar;
    return grammar_store_get(store, &asker->claim, true, GRAMMAR_JSON_SCHEMA, slow.data,
                             slow.length, &grammar, err);
}

static enum status status_of(pthread_t thread) {
    void *status;
    pthread_join(thread, &status);
    return (enum status)(intptr_t)status;
}

START_TEST(a_compilation_stops_when_its_only_client_leaves) {
    struct asker compiler;
    pthread_t thread;
    open_store(1 << 20);
    start_slow(&compiler, &thread);
    grammar_store_leave(store, &compiler.claim);
    ck_assert_int_eq(status_of(thread), STATUS_CANCELLED);
    ck_assert_uint_eq(stats_of_store().cancelled, 1);
    ck_assert_uint_eq(stats_of_store().refused, 0); /* the refusal is not remembered */
    ck_assert_int_eq(stats_of_store().compiling, 0);
    struct err err;
    ck_assert_int_eq(ask_slow(&compiler, &err), CLAIM_REFUSED); /* at its next check, again */
    ck_assert_int_eq(err.status, STATUS_CANCELLED);
    grammar_store_free(store);
}
END_TEST

/* Two requests wait and one of them leaves; the other gets the result. */
START_TEST(a_compilation_goes_on_for_those_that_wait) {
    struct asker compiler, waiting, leaving;
    struct err err;
    pthread_t thread;
    open_store(1 << 20);
    start_slow(&compiler, &thread);
    asker_init(&waiting), asker_init(&leaving);
    ck_assert_int_eq(ask_slow(&waiting, &err), CLAIM_WAITS);
    ck_assert_int_eq(ask_slow(&leaving, &err), CLAIM_WAITS);
    grammar_store_leave(store, &compiler.claim);
    grammar_store_leave(store, &leaving.claim);
    sem_wait(&waiting.resumed);
    ck_assert_int_eq(status_of(thread), STATUS_CANCELLED); /* for the one that has left */
    ck_assert_int_eq(ask_slow(&waiting, &err), CLAIM_REFUSED);
    ck_assert_int_eq(err.status, STATUS_INVALID_REQUEST);
    ck_assert_uint_eq(stats_of_store().refused, 1);
    ck_assert_int_ne(sem_trywait(&leaving.resumed), 0);
    grammar_store_free(store);
}
END_TEST

/* The last of several requests that leave stops the compilation. A later request starts it
 * again. */
START_TEST(a_compilation_that_was_given_up_begins_anew) {
    struct asker compiler, waiting, late;
    struct err err;
    pthread_t threads[2];
    open_store(1 << 20);
    start_slow(&compiler, &threads[0]);
    asker_init(&waiting);
    ck_assert_int_eq(ask_slow(&waiting, &err), CLAIM_WAITS);
    grammar_store_leave(store, &compiler.claim);
    grammar_store_leave(store, &waiting.claim);
    asker_init(&late);
    pthread_create(&threads[1], NULL, compile_slow, &late);
    ck_assert_int_eq(status_of(threads[1]), STATUS_INVALID_REQUEST);
    ck_assert_int_eq(status_of(threads[0]), STATUS_CANCELLED);
    ck_assert_uint_eq(stats_of_store().cancelled, 1);
    ck_assert_uint_eq(stats_of_store().refused, 1);
    ck_assert_int_eq(stats_of_store().compiling, 0);
    grammar_store_free(store);
}
END_TEST

/* Like workers that do not compile. */
START_TEST(only_permitted_requests_compile) {
    struct grammar *grammar, *other;
    struct asker waiting;
    struct err err = {0};
    static const char text[] = "x{2,4000}";
    open_store(1 << 24);
    asker_init(&waiting);
    ck_assert_int_eq(grammar_store_get(store, &waiting.claim, false, GRAMMAR_REGEX, text,
                                       strlen(text), &grammar, &err),
                     CLAIM_UNCOMPILED); /* it may not compile */
    other = get(GRAMMAR_REGEX, text);
    ck_assert_int_eq(grammar_store_get(store, &waiting.claim, false, GRAMMAR_REGEX, text,
                                       strlen(text), &grammar, &err),
                     CLAIM_READY);
    ck_assert_ptr_eq(grammar, other);
    grammar_release(grammar), grammar_release(other);
    grammar_store_free(store);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_grammar_sharing");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 120);
    tcase_add_test(core, a_compilation_stops_when_its_only_client_leaves);
    tcase_add_test(core, a_compilation_goes_on_for_those_that_wait);
    tcase_add_test(core, a_compilation_that_was_given_up_begins_anew);
    tcase_add_test(core, only_permitted_requests_compile);
    tcase_add_test(core, many_threads_share_them);
    tcase_add_test(core, many_threads_share_a_failure);
    tcase_add_test(core, many_threads_search_with_them);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
