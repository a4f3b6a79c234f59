/* store_fixture: a store of grammars over a tokenizer, and requests that wait for it. It defines
 * the functions of engine.h that the store calls, so one file of a suite includes it. */
#ifndef SUPPORT_STORE_FIXTURE_H
#define SUPPORT_STORE_FIXTURE_H

#include <check.h>
#include <semaphore.h>
#include <string.h>

#include "server/generation/grammar_store.h"
#include "support/tokenizer_fixture.h"

enum { V = 762, END = 761 };

static struct tokenizer *tokenizer;

/* ---- stand-ins for the engine --------------------------------------------------------------- */

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

static inline enum status get_grammar(enum grammar_kind kind, const char *text,
                                      struct grammar **out, struct err *err) {
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

static inline enum status get_search(struct grammar_store *from, const char *text,
                                     struct search **out, struct err *err) {
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

static inline struct grammar_store_stats stats_of_store(void) {
    struct grammar_store_stats stats;
    grammar_store_stats(store, &stats);
    return stats;
}

static inline struct grammar *get(enum grammar_kind kind, const char *text) {
    struct grammar *grammar;
    struct err err;
    enum status status = get_grammar(kind, text, &grammar, &err);
    ck_assert_msg(status == STATUS_OK, "%s: %s", text, err.message);
    return grammar;
}

/* Returns the grammar's address, which identifies it among grammars with the same text. */
static inline void *used(enum grammar_kind kind, const char *text) {
    struct grammar *grammar = get(kind, text);
    grammar_release(grammar);
    return grammar;
}

/* Fails after most of its automaton was made. */
static const char failing[] = "(?:a|b)*a(?:a|b){20}";

#endif
