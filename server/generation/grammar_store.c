/* DESIGN: a table of compiled grammars, and of automata that search for the ends of answers.
 *
 *     text --> entry    being compiled: has the claims of all requests that want it
 *                       compiled: in `kept`, until newer entries need its space
 *                       refused: in `refused`, with the message, until newer ones need its space
 *
 * One mutex guards the table. It is not held while a worker compiles. A worker that finds no entry
 * for its text adds one, compiles it, and answers all claims. A worker that finds an entry being
 * compiled adds its claim and is free: equal texts that arrive together are compiled once, and
 * no worker waits. If all requests with a claim have left, the compilation is cancelled.
 *
 * An entry stores its text, because clients may choose texts with equal hashes. A grammar grows
 * while it is used (states, masks), so an entry's size is updated whenever it is found.
 *
 * Refusals are stored, because the same text would take the same time and be refused again. A
 * refusal at the time limit may depend on the load, so it expires after a minute.
 */
#include "server/generation/grammar_store.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

enum {
    N_BUCKETS = 1024,
    KIND_SEARCH = -1, /* a text compiled to a search; other kinds are those of grammars */
    MAX_REFUSED = 1024,
    MAX_REFUSED_BYTES = 4 << 20,
    GRAMMAR_MS = 500, /* CPU time of a compilation */
    SEARCH_MS = 250,
    TIMED_REFUSAL_S = 60 /* lifetime of a refusal at the time limit */
};

struct entry {
    struct list_node by_age; /* in `kept` or `refused`; in neither during its compilation */
    struct entry *next;      /* in the same bucket */
    uint64_t hash;
    int kind;
    struct compiled compiled;
    const struct err *refusal;      /* NULL: not refused */
    uint64_t forgotten_ns;          /* expiry of a refusal; 0: only when others need its space */
    struct grammar_claim *compiler; /* its worker compiles the entry; NULL: its client has left */
    struct list claims;             /* waiting claims */
    bool is_compiling;
    bool is_removed;       /* from the table, during its compilation */
    atomic_bool cancelled; /* no request wants it */
    size_t bytes;          /* counted in its list; 0: in no list */
    size_t length;
    char text[];
};

/* Entries by age, the newest first. */
struct entries {
    struct list list;
    size_t bytes, max_bytes;
    int max_n; /* 0: no limit */
};

struct grammar_store {
    const struct engine *engine;
    int V;
    size_t max_live_bytes;
    bool open_objects;
    pthread_mutex_t mutex; /* guards the fields below */
    struct entries kept, refused;
    struct entry *bucket[N_BUCKETS];
    struct grammar_store_stats stats;    /* counters */
    pthread_mutex_t reading;             /* guards `vocabulary` */
    struct vocabulary *vocabulary[2][2]; /* [with markers of calls][with markers of reasoning] */
};

struct grammar_store *grammar_store_new(const struct engine *engine, int V, size_t max_bytes,
                                        size_t max_live_bytes) {
    struct grammar_store *store = mem_calloc(1, sizeof *store);
    store->engine = engine;
    store->V = V;
    store->max_live_bytes = max_live_bytes;
    store->kept.max_bytes = max_bytes;
    store->refused.max_bytes = MAX_REFUSED_BYTES;
    store->refused.max_n = MAX_REFUSED;
    list_init(&store->kept.list);
    list_init(&store->refused.list);
    pthread_mutex_init(&store->mutex, NULL);
    pthread_mutex_init(&store->reading, NULL);
    return store;
}

void grammar_store_open_objects(struct grammar_store *store, bool open_objects) {
    store->open_objects = open_objects;
}

/* Used if a refusal cannot be allocated. */
static const struct err no_memory = {.status = STATUS_UNAVAILABLE,
                                     .code = "out_of_memory",
                                     .message = "Not enough memory for this grammar."};

/* ---- entries -------------------------------------------------------------------------------- */

static struct compiled acquire(struct compiled compiled) {
    if (compiled.grammar) grammar_acquire(compiled.grammar);
    if (compiled.search) search_acquire(compiled.search);
    return compiled;
}

static void release(struct compiled *compiled) {
    grammar_release(compiled->grammar);
    search_release(compiled->search);
    *compiled = (struct compiled){0};
}

static struct entry **place_of(struct grammar_store *store, uint64_t hash, int kind,
                               const char *text, size_t length) {
    struct entry **place = &store->bucket[hash % N_BUCKETS];
    for (; *place; place = &(*place)->next) {
        const struct entry *entry = *place;
        if (entry->hash == hash && entry->kind == kind && entry->length == length &&
            memcmp(entry->text, text, length) == 0)
            break;
    }
    return place;
}

/* Returns NULL if memory is short. */
static struct entry *entry_new(uint64_t hash, int kind, const char *text, size_t length) {
    struct entry *entry = mem_try_alloc(sizeof *entry + length);
    if (!entry) return NULL;
    *entry = (struct entry){.hash = hash, .kind = kind, .length = length, .is_compiling = true};
    list_init(&entry->claims);
    memcpy(entry->text, text, length);
    return entry;
}

static void entry_free(struct entry *entry) {
    assert(!entry->is_compiling && entry->claims.n == 0 && !entry->by_age.list);
    release(&entry->compiled);
    if (entry->refusal != &no_memory) mem_free((void *)(uintptr_t)entry->refusal);
    mem_free(entry);
}

static struct entries *entries_of(struct grammar_store *store, const struct entry *entry) {
    return entry->refusal ? &store->refused : &store->kept;
}

/* Removes an entry from the table and frees it; during its compilation, its worker frees it. */
static void remove_entry(struct grammar_store *store, struct entry *entry) {
    struct entry **place = &store->bucket[entry->hash % N_BUCKETS];
    while (*place != entry) place = &(*place)->next;
    *place = entry->next;
    if (entry->is_compiling) {
        entry->is_removed = true;
        return;
    }
    struct entries *entries = entries_of(store, entry);
    list_remove(&entries->list, &entry->by_age);
    assert(entries->bytes >= entry->bytes);
    entries->bytes -= entry->bytes;
    entry_free(entry);
}

static struct entry *oldest(const struct entries *entries) {
    return list_entry(entries->list.head.prev, struct entry, by_age);
}

static size_t bytes_of(const struct entry *entry) {
    size_t bytes = sizeof *entry + entry->length;
    if (entry->compiled.grammar) return bytes + grammar_bytes(entry->compiled.grammar);
    if (entry->compiled.search) return bytes + search_bytes(entry->compiled.search);
    return bytes + sizeof *entry->refusal;
}

/* Makes an entry, new or found, the newest one. Removes the oldest entries until all fit. */
static void renew(struct grammar_store *store, struct entry *entry) {
    struct entries *entries = entries_of(store, entry);
    list_detach(&entry->by_age);
    entries->bytes -= entry->bytes;
    entry->bytes = bytes_of(entry);
    entries->bytes += entry->bytes;
    list_insert_after(&entries->list, &entries->list.head, &entry->by_age);
    while (entries->bytes > entries->max_bytes ||
           (entries->max_n && entries->list.n > entries->max_n))
        remove_entry(store, oldest(entries));
}

void grammar_store_free(struct grammar_store *store) {
    if (!store) return;
    for (int i = 0; i < N_BUCKETS; i++)
        while (store->bucket[i]) remove_entry(store, store->bucket[i]);
    assert(store->kept.bytes == 0 && store->refused.bytes == 0);
    for (int i = 0; i < 4; i++) vocabulary_free(store->vocabulary[i / 2][i % 2]);
    pthread_mutex_destroy(&store->reading);
    pthread_mutex_destroy(&store->mutex);
    mem_free(store);
}

/* ---- claims --------------------------------------------------------------------------------- */

/* Answers all waiting claims with the entry's result. */
static void answer_claims(struct entry *entry) {
    for (struct list_node *node; (node = list_first(&entry->claims));) {
        struct grammar_claim *claim = list_entry(node, struct grammar_claim, node);
        list_remove(&entry->claims, node);
        claim->entry = NULL;
        claim->is_answered = true;
        claim->result = acquire(entry->compiled);
        if (entry->refusal) claim->refusal = *entry->refusal;
        claim->resume(claim);
    }
}

static enum claim_verdict take_answer(struct grammar_claim *claim, struct compiled *out,
                                      struct err *err) {
    bool is_refused = claim->refusal.status != STATUS_OK;
    *out = claim->result;
    if (is_refused) *err = claim->refusal;
    claim->is_answered = false;
    claim->result = (struct compiled){0};
    claim->refusal = (struct err){0};
    return is_refused ? CLAIM_REFUSED : CLAIM_READY;
}

static void leave_entry(struct grammar_store *store, struct grammar_claim *claim) {
    struct entry *entry = claim->entry;
    if (entry->compiler == claim)
        entry->compiler = NULL;
    else
        list_remove(&entry->claims, &claim->node);
    claim->entry = NULL;
    if (entry->compiler || entry->claims.n > 0) return;
    atomic_store(&entry->cancelled, true);
    remove_entry(store, entry);
}

void grammar_store_leave(struct grammar_store *store, struct grammar_claim *claim) {
    pthread_mutex_lock(&store->mutex);
    claim->is_left = true;
    if (claim->entry) leave_entry(store, claim);
    release(&claim->result);
    claim->is_answered = false;
    pthread_mutex_unlock(&store->mutex);
}

static enum claim_verdict refuse_left(struct err *err) {
    err_set(err, STATUS_CANCELLED, NULL, "The client has left.");
    return CLAIM_REFUSED;
}

/* ---- compilations --------------------------------------------------------------------------- */

static uint64_t thread_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static enum status compile_text(int kind, const char *text, size_t length, bool open_objects,
                                const atomic_bool *cancelled, struct compiled *out,
                                struct err *err) {
    struct grammar_limits limits = {
        .max_ms = GRAMMAR_MS, .open_objects = open_objects, .cancelled = cancelled};
    if (kind != KIND_SEARCH)
        return grammar_compile((enum grammar_kind)kind, text, length, &limits, &out->grammar, err);
    limits.max_states = MAX_SEARCH_STATES, limits.max_ms = SEARCH_MS;
    return search_compile(text, length, &limits, &out->search, err);
}

/* A compilation, in a separate memory scope because its result is shared. */
struct compilation {
    struct entry *entry;
    bool open_objects;
    enum status status;
    struct err why;
};

static void compile_entry(void *compilation) {
    struct compilation *c = compilation;
    struct entry *entry = c->entry;
    c->status = compile_text(entry->kind, entry->text, entry->length, c->open_objects,
                             &entry->cancelled, &entry->compiled, &c->why);
}

static void undo_compilation(void *arg) {
    struct compilation *c = arg;
    c->entry->compiled = (struct compiled){0};
    c->status = err_out_of_memory(&c->why);
}

/* Stores the reason of a refusal. */
static void keep_refusal(struct entry *entry, const struct err *err, uint64_t took_ns) {
    uint64_t limit_ms = entry->kind == KIND_SEARCH ? SEARCH_MS : GRAMMAR_MS;
    struct err *refusal = mem_try_alloc(sizeof *err);
    entry->refusal = refusal ? refusal : &no_memory;
    if (refusal) *refusal = *err;
    if (took_ns >= limit_ms * 1000000)
        entry->forgotten_ns = now_ns() + (uint64_t)TIMED_REFUSAL_S * 1000000000;
}

/* Ends a compilation after the entry's result is set, in `compiled` or `refusal`. */
static void end_compiling(struct grammar_store *store, struct entry *entry, enum status status) {
    bool is_lasting = status == STATUS_OK || status == STATUS_INVALID_REQUEST;
    if (entry->compiler) entry->compiler->entry = NULL;
    answer_claims(entry);
    if (!is_lasting && !entry->is_removed) remove_entry(store, entry);
    entry->compiler = NULL;
    entry->is_compiling = false;
    store->stats.compiling--;
    store->stats.compiled += status == STATUS_OK;
    store->stats.cancelled += status == STATUS_CANCELLED;
    store->stats.refused += status != STATUS_OK && status != STATUS_CANCELLED;
    if (entry->is_removed)
        entry_free(entry);
    else
        renew(store, entry);
}

/* Compiles the text of a new entry. The caller holds the mutex. */
static enum claim_verdict compile(struct grammar_store *store, struct entry *entry,
                                  struct grammar_claim *claim, struct compiled *out,
                                  struct err *err) {
    struct compilation c = {.entry = entry, .open_objects = store->open_objects};
    entry->compiler = claim;
    claim->entry = entry;
    store->stats.compiling++;
    pthread_mutex_unlock(&store->mutex);
    uint64_t began = thread_ns();
    mem_run(compile_entry, undo_compilation, &c);
    uint64_t took_ns = thread_ns() - began;
    pthread_mutex_lock(&store->mutex);
    if (c.status) keep_refusal(entry, &c.why, took_ns);
    enum status status = entry->refusal ? entry->refusal->status : STATUS_OK;
    if (status) *err = *entry->refusal;
    if (!claim->is_left) *out = acquire(entry->compiled);
    end_compiling(store, entry, status);
    if (claim->is_left) return refuse_left(err);
    return status ? CLAIM_REFUSED : CLAIM_READY;
}

/* ---- lookup --------------------------------------------------------------------------------- */

/* Is there memory for one more grammar? Removes grammars that are not in use first. */
static bool has_room(struct grammar_store *store) {
    if (store->max_live_bytes == 0) return true;
    while (grammar_live_bytes() >= store->max_live_bytes && store->kept.list.n > 0)
        remove_entry(store, oldest(&store->kept));
    return grammar_live_bytes() < store->max_live_bytes;
}

static enum claim_verdict refuse_full(const struct grammar_store *store, struct err *err) {
    err_set(err, STATUS_OVERLOADED, NULL,
            "The grammars of running and waiting requests take %zu MiB, which is the limit "
            "(--grammar-memory); try again later.",
            store->max_live_bytes >> 20);
    return CLAIM_REFUSED;
}

/* Uses an entry that is not being compiled. */
static enum claim_verdict use(struct grammar_store *store, struct entry *entry,
                              struct compiled *out, struct err *err) {
    enum claim_verdict verdict = entry->refusal ? CLAIM_REFUSED : CLAIM_READY;
    *out = acquire(entry->compiled);
    if (entry->refusal) *err = *entry->refusal;
    renew(store, entry);
    return verdict;
}

static struct entry *find(struct grammar_store *store, struct entry **place) {
    struct entry *entry = *place;
    if (!entry) return NULL;
    bool is_old = entry->forgotten_ns && now_ns() >= entry->forgotten_ns;
    bool is_broken = !entry->is_compiling && entry->compiled.grammar &&
                     grammar_is_broken(entry->compiled.grammar);
    if (!is_old && !is_broken) return entry;
    remove_entry(store, entry);
    return NULL;
}

static enum claim_verdict ask(struct grammar_store *store, struct grammar_claim *claim,
                              bool may_compile, int kind, const char *text, size_t length,
                              struct compiled *out, struct err *err) {
    if (claim->is_left) return refuse_left(err);
    if (claim->is_answered) return take_answer(claim, out, err);
    uint64_t hash = XXH3_64bits_withSeed(text, length, (XXH64_hash_t)kind);
    struct entry *entry = find(store, place_of(store, hash, kind, text, length));
    if (entry && !entry->is_compiling) return use(store, entry, out, err);
    if (!may_compile) return CLAIM_UNCOMPILED;
    if (entry) {
        assert(!claim->entry && claim->resume);
        claim->entry = entry;
        list_append(&entry->claims, &claim->node);
        return CLAIM_WAITS;
    }
    if (!has_room(store)) return refuse_full(store, err);
    entry = entry_new(hash, kind, text, length);
    if (!entry) {
        err_out_of_memory(err);
        return CLAIM_REFUSED;
    }
    entry->next = store->bucket[hash % N_BUCKETS];
    store->bucket[hash % N_BUCKETS] = entry;
    return compile(store, entry, claim, out, err);
}

static enum claim_verdict get(struct grammar_store *store, struct grammar_claim *claim,
                              bool may_compile, int kind, const char *text, size_t length,
                              struct compiled *out, struct err *err) {
    struct err ignored;
    *out = (struct compiled){0};
    pthread_mutex_lock(&store->mutex);
    enum claim_verdict verdict =
        ask(store, claim, may_compile, kind, text, length, out, err ? err : &ignored);
    pthread_mutex_unlock(&store->mutex);
    return verdict;
}

enum claim_verdict grammar_store_get(struct grammar_store *store, struct grammar_claim *claim,
                                     bool may_compile, enum grammar_kind kind, const char *text,
                                     size_t length, struct grammar **out, struct err *err) {
    struct compiled compiled;
    enum claim_verdict verdict =
        get(store, claim, may_compile, (int)kind, text, length, &compiled, err);
    *out = compiled.grammar;
    return verdict;
}

enum claim_verdict grammar_store_search(struct grammar_store *store, struct grammar_claim *claim,
                                        bool may_compile, const char *text, size_t length,
                                        struct search **out, struct err *err) {
    struct compiled compiled = {0};
    enum claim_verdict verdict = CLAIM_READY;
    if (store)
        verdict = get(store, claim, may_compile, KIND_SEARCH, text, length, &compiled, err);
    else if (compile_text(KIND_SEARCH, text, length, false, NULL, &compiled, err))
        verdict = CLAIM_REFUSED;
    *out = compiled.search;
    return verdict;
}

void grammar_store_stats(struct grammar_store *store, struct grammar_store_stats *out) {
    pthread_mutex_lock(&store->mutex);
    *out = store->stats;
    out->kept_bytes = store->kept.bytes;
    out->live_bytes = grammar_live_bytes();
    pthread_mutex_unlock(&store->mutex);
}

/* ---- vocabulary ----------------------------------------------------------------------------- */

struct listing {
    const struct grammar_store *store;
    const struct tool_format *tools;
    const struct reasoning_format *reasoning;
    struct vocabulary **place;
};

static void read_vocabulary(void *arg) {
    const struct listing *reading = arg;
    *reading->place = vocabulary_of_model(reading->store->engine, reading->store->V, reading->tools,
                                          reading->reasoning);
}

const struct vocabulary *grammar_store_vocabulary(struct grammar_store *store,
                                                  const struct tool_format *tools,
                                                  const struct reasoning_format *reasoning) {
    struct vocabulary **place = &store->vocabulary[tools != NULL][reasoning != NULL];
    pthread_mutex_lock(&store->reading);
    if (!*place) mem_run(read_vocabulary, NULL, &(struct listing){store, tools, reasoning, place});
    pthread_mutex_unlock(&store->reading);
    return *place; /* NULL on failure */
}
