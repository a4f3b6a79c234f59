/* DESIGN: a table of compiled grammars, and of automata that look for the ends of answers; the
 * least recently used go first.
 *
 * One mutex guards the table and is never held while something compiles. Who finds no entry for its
 * text adds an empty one, compiles, and then fills it; who finds such an entry waits. So
 * equal texts that come together compile once. One that fails is removed again; those that have
 * waited for it get its sentence, too.
 *
 * An entry keeps its text, because hashes of texts that clients choose may be equal. A grammar
 * grows while it is used (states, masks), so an entry's size is looked at whenever it is found.
 */
#include "server/generation/grammar_store.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "config/list.h"

#define N_BUCKETS 1024

/* The kind of a text that becomes a search, beside the kinds of grammars. */
enum { KIND_SEARCH = -1 };

/* What a text becomes, one of the two by its kind; neither: it is being compiled. */
struct compiled {
    struct grammar *grammar;
    struct search *search;
};

struct entry {
    struct list_node by_age;
    struct entry *next; /* in its bucket */
    uint64_t hash;
    int kind;
    struct compiled compiled;
    struct err *failed; /* why nothing became of it, for those that wait */
    int n_waiting;
    bool is_removed; /* from the table: the last one that waits frees it */
    size_t bytes;    /* as counted in the store's; 0 while it is being compiled */
    size_t length;
    char text[];
};

struct grammar_store {
    const struct engine *engine;
    int V;
    size_t max_bytes;
    pthread_mutex_t mutex; /* guards all that follows */
    pthread_cond_t compiled;
    struct list by_age; /* of the entries that are not being compiled, the newest first */
    size_t bytes;       /* of these */
    struct entry *bucket[N_BUCKETS];
    struct vocabulary *vocabulary[2][2]; /* with the markers of calls; of thoughts */
};

struct grammar_store *grammar_store_new(const struct engine *engine, int V, size_t max_bytes) {
    struct grammar_store *store = mem_calloc(1, sizeof *store);
    store->engine = engine;
    store->V = V;
    store->max_bytes = max_bytes;
    pthread_mutex_init(&store->mutex, NULL);
    pthread_cond_init(&store->compiled, NULL);
    list_init(&store->by_age);
    return store;
}

/* ---- entries -------------------------------------------------------------------------------- */

static bool is_compiled(const struct entry *entry) {
    return entry->compiled.grammar || entry->compiled.search;
}

static struct compiled acquire(struct compiled compiled) {
    if (compiled.grammar) grammar_acquire(compiled.grammar);
    if (compiled.search) search_acquire(compiled.search);
    return compiled;
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

static void free_entry(struct entry *entry) {
    if (entry->compiled.grammar) grammar_release(entry->compiled.grammar);
    if (entry->compiled.search) search_release(entry->compiled.search);
    mem_free(entry->failed);
    mem_free(entry);
}

static void remove_entry(struct grammar_store *store, struct entry *entry) {
    struct entry **place = &store->bucket[entry->hash % N_BUCKETS];
    while (*place != entry) place = &(*place)->next;
    *place = entry->next;
    if (is_compiled(entry)) {
        list_remove(&store->by_age, &entry->by_age);
        assert(store->bytes >= entry->bytes);
        store->bytes -= entry->bytes;
    }
    entry->is_removed = true;
    if (entry->n_waiting == 0) free_entry(entry);
}

/* An entry that was just used becomes the newest; the oldest ones go until all fit. */
static void count_entry(struct grammar_store *store, struct entry *entry) {
    store->bytes -= entry->bytes;
    const struct compiled *of = &entry->compiled;
    entry->bytes = sizeof *entry + entry->length;
    entry->bytes += of->grammar ? grammar_bytes(of->grammar) : search_bytes(of->search);
    store->bytes += entry->bytes;
    list_insert_after(&store->by_age, &store->by_age.head, &entry->by_age);
    while (store->bytes > store->max_bytes)
        remove_entry(store, list_entry(store->by_age.head.prev, struct entry, by_age));
}

void grammar_store_free(struct grammar_store *store) {
    if (!store) return;
    for (int i = 0; i < N_BUCKETS; i++)
        while (store->bucket[i]) remove_entry(store, store->bucket[i]);
    assert(store->bytes == 0);
    for (int i = 0; i < 4; i++) vocabulary_free(store->vocabulary[i / 2][i % 2]);
    pthread_cond_destroy(&store->compiled);
    pthread_mutex_destroy(&store->mutex);
    mem_free(store);
}

/* ---- compiling ------------------------------------------------------------------------------ */

static const struct grammar_limits search_limits = {.max_states = MAX_SEARCH_STATES, .max_ms = 250};

static enum status compile(struct grammar_store *store, struct entry *entry, struct compiled *out,
                           struct err *err) {
    static const struct grammar_limits defaults = {0};
    struct err why = {0};
    pthread_mutex_unlock(&store->mutex);
    enum status status =
        entry->kind == KIND_SEARCH
            ? search_compile(entry->text, entry->length, &search_limits, &out->search, &why)
            : grammar_compile((enum grammar_kind)entry->kind, entry->text, entry->length, &defaults,
                              &out->grammar, &why);
    pthread_mutex_lock(&store->mutex);
    pthread_cond_broadcast(&store->compiled);
    if (status == STATUS_OK) {
        entry->compiled = acquire(*out);
        count_entry(store, entry);
        return status;
    }
    if (err) *err = why;
    entry->failed = mem_alloc(sizeof why);
    *entry->failed = why;
    remove_entry(store, entry);
    return status;
}

/* Waits for the thread that compiles the entry, and takes what comes of it. */
static enum status wait_for(struct grammar_store *store, struct entry *entry, struct compiled *out,
                            struct err *err) {
    entry->n_waiting++;
    while (!is_compiled(entry) && !entry->failed)
        pthread_cond_wait(&store->compiled, &store->mutex);
    *out = acquire(entry->compiled);
    enum status status = entry->failed ? entry->failed->status : STATUS_OK;
    if (entry->failed && err) *err = *entry->failed;
    if (--entry->n_waiting == 0 && entry->is_removed) free_entry(entry);
    return status;
}

static enum status get(struct grammar_store *store, int kind, const char *text, size_t length,
                       struct compiled *out, struct err *err) {
    uint64_t hash = XXH3_64bits_withSeed(text, length, (XXH64_hash_t)kind);
    enum status status = STATUS_OK;
    *out = (struct compiled){0};
    pthread_mutex_lock(&store->mutex);
    struct entry **place = place_of(store, hash, kind, text, length), *entry = *place;
    if (!entry) {
        entry = *place = mem_alloc(sizeof *entry + length);
        *entry = (struct entry){.hash = hash, .kind = kind, .length = length};
        memcpy(entry->text, text, length);
        status = compile(store, entry, out, err);
    } else if (!is_compiled(entry)) {
        status = wait_for(store, entry, out, err);
    } else {
        *out = acquire(entry->compiled);
        list_remove(&store->by_age, &entry->by_age);
        count_entry(store, entry);
    }
    pthread_mutex_unlock(&store->mutex);
    return status;
}

enum status grammar_store_get(struct grammar_store *store, enum grammar_kind kind, const char *text,
                              size_t length, struct grammar **out, struct err *err) {
    struct compiled compiled;
    enum status status = get(store, (int)kind, text, length, &compiled, err);
    *out = compiled.grammar;
    return status;
}

enum status grammar_store_search(struct grammar_store *store, const char *text, size_t length,
                                 struct search **out, struct err *err) {
    struct compiled compiled = {0};
    enum status status = store
                             ? get(store, KIND_SEARCH, text, length, &compiled, err)
                             : search_compile(text, length, &search_limits, &compiled.search, err);
    *out = compiled.search;
    return status;
}

/* ---- the vocabulary ------------------------------------------------------------------------- */

static bool ends_answers(const struct engine *engine, int32_t id) {
    int n;
    const int32_t *ends = engine_end_ids(engine, &n);
    for (int i = 0; i < n; i++)
        if (ends[i] == id) return true;
    return false;
}

/* Has the token no text in an answer? Control tokens but those of markers, and ends, have none. */
static bool is_silent(const struct engine *engine, int32_t id, const struct tool_format *tools,
                      const struct reasoning_format *reasoning) {
    const struct tokenizer *tokenizer = engine_tokenizer(engine);
    if (ends_answers(engine, id)) return true;
    if (!tokenizer_is_special(tokenizer, id)) return false;
    const char *name = tokenizer_token_name(tokenizer, id);
    return !message_has_marker(tools, reasoning, name, strlen(name));
}

static struct vocabulary *read_vocabulary(const struct engine *engine, int V,
                                          const struct tool_format *tools,
                                          const struct reasoning_format *reasoning) {
    const struct tokenizer *tokenizer = engine_tokenizer(engine);
    const char **bytes = mem_calloc((size_t)V, sizeof *bytes);
    int *lengths = mem_calloc((size_t)V, sizeof *lengths);
    for (int id = 0; id < V; id++) {
        size_t length;
        bytes[id] = tokenizer_token_bytes(tokenizer, id, &length);
        lengths[id] = is_silent(engine, id, tools, reasoning) ? 0 : (int)length;
    }
    struct vocabulary *vocabulary = vocabulary_new(bytes, lengths, V);
    mem_free(bytes);
    mem_free(lengths);
    return vocabulary;
}

const struct vocabulary *grammar_store_vocabulary(struct grammar_store *store,
                                                  const struct tool_format *tools,
                                                  const struct reasoning_format *reasoning) {
    struct vocabulary **place = &store->vocabulary[tools != NULL][reasoning != NULL];
    pthread_mutex_lock(&store->mutex);
    if (!*place) *place = read_vocabulary(store->engine, store->V, tools, reasoning);
    pthread_mutex_unlock(&store->mutex);
    return *place;
}
