/* The store of compiled grammars and stop_regex. Equal texts compile once, also at the same time,
 * and compilation stops if all clients have left. The least recently used ones are freed. Refusals
 * are remembered. Also tested: the vocabulary that the store makes. */
#include <check.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/generation/grammar_store.h"
#include "support/slow_schema.h"
#include "support/suite_main.h"
#include "support/tokenizer_fixture.h"

enum { V = 762, END = 761, AT_ONCE = 6, ROUNDS = 40 };

static struct tokenizer *tokenizer;

/* ---- stand-ins for the engine ---------------------------------------------------------------- */

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
    store = grammar_store_new(NULL, V, max_bytes, 0);
}

/* A request that blocks its thread until the answer, unlike the server's. */
struct asker {
    struct grammar_claim claim;
    sem_t resumed;
};

static void wake_asker(struct grammar_claim *claim) {
    sem_post(&list_entry(claim, struct asker, claim)->resumed);
}

static void asker_init(struct asker *asker) {
    *asker = (struct asker){.claim.resume = wake_asker};
    sem_init(&asker->resumed, 0, 0);
}

static enum status get_grammar(enum grammar_kind kind, const char *text, struct grammar **out,
                               struct err *err) {
    struct asker asker;
    struct err why = {0};
    enum claim_verdict verdict;
    asker_init(&asker);
    while ((verdict = grammar_store_get(store, &asker.claim, true, kind, text, strlen(text), out,
                                        &why)) == CLAIM_WAITS)
        sem_wait(&asker.resumed);
    ck_assert(verdict == CLAIM_READY || (verdict == CLAIM_REFUSED && !*out && why.message[0]));
    if (err) *err = why;
    return why.status;
}

static enum status get_search(struct grammar_store *from, const char *text, struct search **out,
                              struct err *err) {
    struct asker asker;
    struct err why = {0};
    enum claim_verdict verdict;
    asker_init(&asker);
    while ((verdict = grammar_store_search(from, &asker.claim, true, text, strlen(text), out,
                                           &why)) == CLAIM_WAITS)
        sem_wait(&asker.resumed);
    ck_assert(verdict == CLAIM_READY || (verdict == CLAIM_REFUSED && !*out && why.message[0]));
    if (err) *err = why;
    return why.status;
}

static struct grammar_store_stats stats_of_store(void) {
    struct grammar_store_stats stats;
    grammar_store_stats(store, &stats);
    return stats;
}

static struct grammar *get(enum grammar_kind kind, const char *text) {
    struct grammar *grammar;
    struct err err;
    enum status status = get_grammar(kind, text, &grammar, &err);
    ck_assert_msg(status == STATUS_OK, "%s: %s", text, err.message);
    return grammar;
}

/* Returns the grammar's address, which identifies it among grammars with the same text. */
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
    ck_assert_uint_eq(grammar_match(a, "a", 1, &complete), 1); /* a grammar in use stays valid */
    grammar_release(a), grammar_release(b), grammar_release(c);
}
END_TEST

/* The store keeps one of these at a time. The first one is held, so a new one has another address.
 */
START_TEST(the_least_recently_used_go) {
    open_store(1 << 20);
    struct grammar *probe = get(GRAMMAR_REGEX, "a{3}");
    size_t bytes = grammar_bytes(probe);
    grammar_release(probe);
    grammar_store_free(store);
    open_store(3 * bytes + 3 * 256); /* three of these fit in the store, four do not */
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

/* Fails after most of its automaton was made. */
static const char failing[] = "(?:a|b)*a(?:a|b){20}";

START_TEST(a_refused_text_is_compiled_once) {
    struct err first, again;
    struct grammar *grammar;
    open_store(1 << 20);
    ck_assert_int_eq(get_grammar(GRAMMAR_REGEX, "(", &grammar, &first), STATUS_INVALID_REQUEST);
    ck_assert_int_eq(get_grammar(GRAMMAR_REGEX, "(", &grammar, &again), STATUS_INVALID_REQUEST);
    ck_assert_str_eq(first.message, again.message);
    ck_assert_uint_eq(stats_of_store().refused, 1);
    for (int i = 0; i < 2; i++) {
        struct search *search;
        ck_assert_int_ne(get_search(store, failing, &search, &again), STATUS_OK);
        ck_assert_uint_eq(stats_of_store().refused, 2);
    }
    get_grammar(GRAMMAR_GBNF, "(", &grammar, NULL); /* another kind, another text */
    ck_assert_uint_eq(stats_of_store().refused, 3);
    grammar_store_free(store);
}
END_TEST

/* 1,024 refusals are remembered. One more, and the oldest is forgotten. */
START_TEST(refusals_are_remembered_within_bounds) {
    struct grammar *grammar;
    char text[32];
    open_store(1 << 20);
    for (int i = 0; i < 1025; i++) {
        snprintf(text, sizeof text, "(%d", i);
        get_grammar(GRAMMAR_REGEX, text, &grammar, NULL);
        /* keeps it recently used */
        if (i % 100 == 0) get_grammar(GRAMMAR_REGEX, "(1", &grammar, NULL);
    }
    ck_assert_uint_eq(stats_of_store().refused, 1025);
    get_grammar(GRAMMAR_REGEX, "(1", &grammar, NULL);
    ck_assert_uint_eq(stats_of_store().refused, 1025);
    get_grammar(GRAMMAR_REGEX, "(0", &grammar, NULL);
    ck_assert_uint_eq(stats_of_store().refused, 1026);
    struct buf large = {0};
    buf_puts(&large, "(");
    while (large.length < 5 << 20) buf_puts(&large, "aaaaaaaaaaaaaaaa");
    for (int i = 0; i < 2; i++) get_grammar(GRAMMAR_REGEX, large.data, &grammar, NULL);
    ck_assert_uint_eq(stats_of_store().refused, 1028); /* its text is too large to keep */
    buf_free(&large);
    grammar_store_free(store);
}
END_TEST

/* Returns the bytes of the heap that are in use. */
static size_t heap_bytes(void) {
    return mallinfo2().uordblks + mallinfo2().hblkhd;
}

START_TEST(ten_thousand_failures_leave_memory_flat) {
    size_t before = 0;
    open_store(1 << 20);
    for (int i = 0; i < 10000; i++) {
        char text[32];
        struct grammar *grammar;
        snprintf(text, sizeof text, "(%d", i);
        ck_assert_int_ne(get_grammar(GRAMMAR_REGEX, text, &grammar, NULL), STATUS_OK);
        if (i == 1999) before = heap_bytes(); /* the list of refusals is full */
    }
    ck_assert_uint_le(heap_bytes(), before + 65536);
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

/* A stop_regex and a grammar share the store's limit. They are different entries even if their
 * texts are equal. */
START_TEST(what_ends_answers_is_kept_too) {
    struct search *first, *again, *unkept;
    open_store(1 << 20);
    struct grammar *grammar = get(GRAMMAR_REGEX, "a{3}");
    ck_assert_int_eq(get_search(store, "a{3}", &first, NULL), STATUS_OK);
    ck_assert_ptr_eq(used(GRAMMAR_REGEX, "a{3}"), grammar);
    ck_assert_int_eq(get_search(store, "a{3}", &again, NULL), STATUS_OK);
    ck_assert_ptr_eq(again, first);
    ck_assert_int_eq(get_search(NULL, "a{3}", &unkept, NULL), STATUS_OK);
    ck_assert_ptr_ne(unkept, first);
    ck_assert_int_ne(get_search(store, "a*", &again, NULL), STATUS_OK);
    ck_assert_ptr_null(again);
    grammar_store_free(store);
    struct search_run run = {0};
    for (int i = 0; i < 3; i++) ck_assert_uint_eq(search_step(first, &run, 'a'), i == 2 ? 3 : 0);
    search_run_free(&run);
    search_release(first), search_release(first), search_release(unkept);
    grammar_release(grammar);
}
END_TEST

/* The heap stops growing after the store is full. */
START_TEST(ten_thousand_of_them_leave_memory_flat) {
    size_t kept = 1 << 20, before = 0;
    open_store(kept);
    for (int i = 0; i < 10000; i++) {
        char text[32];
        struct search *search;
        snprintf(text, sizeof text, "x{%d}%d", i % 50 + 1, i);
        ck_assert_int_eq(get_search(store, text, &search, NULL), STATUS_OK);
        search_release(search);
        if (i == 4999) before = heap_bytes();
    }
    ck_assert_uint_lt(heap_bytes(), before + kept / 4);
    ck_assert(before == 0 || before > kept / 2); /* not with a sanitizer's heap */
    grammar_store_free(store);
}
END_TEST

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

/* The last of several requests that leave stops the compilation. A later request starts it again.
 */
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
START_TEST(only_who_may_compiles) {
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

/* ---- memory --------------------------------------------------------------------------------- */

/* Grammars that only the store holds are freed for room; those in use by requests are not. */
START_TEST(grammars_in_use_are_bounded_together) {
    struct grammar *grammar;
    struct err err;
    if (!tokenizer) tokenizer = fixture_tokenizer("gpt-2");
    store = grammar_store_new(NULL, V, 1 << 24, grammar_live_bytes() + (1 << 20));
    for (int i = 0; i < 50; i++) {
        char text[32];
        snprintf(text, sizeof text, "y{%d}", 1000 + i);
        used(GRAMMAR_REGEX, text);
    }
    struct grammar *held[200];
    int n = 0;
    for (; n < 200; n++) {
        char text[32];
        snprintf(text, sizeof text, "x{%d}", 1000 + n);
        if (get_grammar(GRAMMAR_REGEX, text, &held[n], &err)) break;
    }
    ck_assert(n > 1 && n < 200);
    ck_assert_int_eq(err.status, STATUS_OVERLOADED);
    ck_assert_ptr_nonnull(strstr(err.message, "--grammar-memory"));
    grammar_release(held[--n]);
    ck_assert_int_eq(get_grammar(GRAMMAR_REGEX, "z", &grammar, &err), STATUS_OK);
    grammar_release(grammar);
    while (n > 0) grammar_release(held[--n]);
    grammar_store_free(store);
}
END_TEST

/* A grammar grows while it is used. This memory is counted until the grammar is freed. */
START_TEST(growth_of_a_grammar_is_counted) {
    open_store(0);
    size_t before = grammar_live_bytes();
    struct grammar *grammar = get(GRAMMAR_JSON_OBJECT, "");
    size_t compiled = grammar_live_bytes(), bytes = grammar_bytes(grammar);
    ck_assert_uint_eq(compiled - before, bytes);
    uint32_t mask[(V + 31) / 32];
    struct matcher *matcher = matcher_new(grammar, grammar_store_vocabulary(store, NULL, NULL));
    ck_assert(matcher_mask(matcher, mask));
    ck_assert_uint_gt(grammar_live_bytes(), compiled);
    ck_assert_uint_eq(grammar_live_bytes() - before, grammar_bytes(grammar));
    matcher_free(matcher);
    grammar_release(grammar);
    ck_assert_uint_eq(grammar_live_bytes(), before);
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

/* A token's text decides whether it may be chosen. A token without text is never allowed. */
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

/* With tools, control tokens that mark calls and thoughts have a text. Other control tokens do not.
 */
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
    store = grammar_store_new(NULL, 4, 1 << 20, 0);
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
    tcase_add_test(core, a_refused_text_is_compiled_once);
    tcase_add_test(core, refusals_are_remembered_within_bounds);
    tcase_add_test(core, a_compilation_stops_when_its_only_client_leaves);
    tcase_add_test(core, a_compilation_goes_on_for_those_that_wait);
    tcase_add_test(core, a_compilation_that_was_given_up_begins_anew);
    tcase_add_test(core, only_who_may_compiles);
    tcase_add_test(core, grammars_in_use_are_bounded_together);
    tcase_add_test(core, growth_of_a_grammar_is_counted);
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
