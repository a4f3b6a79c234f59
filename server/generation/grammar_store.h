/* grammar_store: compiled grammars and stop_regex, cached by their text, and the vocabulary that
 * all grammars use. Cached objects outlive the requests that create them, so they are created in
 * separate memory scopes (config/config.h). Lack of memory is STATUS_UNAVAILABLE. */
#ifndef PENSTOCK_SERVER_GRAMMAR_STORE_H
#define PENSTOCK_SERVER_GRAMMAR_STORE_H

#include "config/list.h"
#include "engine/engine.h"
#include "engine/grammar/grammar.h"
#include "server/message/message.h"

struct grammar_store;

/* Makes a store for the engine's vocabulary of V tokens. The engine must outlive it. It caches at
 * most max_bytes; 0: nothing. While all grammars of the process have max_live_bytes or more, new
 * ones are refused; 0: no limit. */
struct grammar_store *grammar_store_new(const struct engine *engine, int V, size_t max_bytes,
                                        size_t max_live_bytes);
/* Sets whether objects of schemas are open by default (grammar_limits.open_objects; false in a new
 * store). Called before the first claim. */
void grammar_store_open_objects(struct grammar_store *store, bool open_objects);

/* Frees the store, which must not be in use. Requests keep their grammars. NULL is ignored. */
void grammar_store_free(struct grammar_store *store);

/* ---- claims --------------------------------------------------------------------------------- */

/* The result for a text: one of the two, by its kind. */
struct compiled {
    struct grammar *grammar;
    struct search *search;
};

/* A request's interest in the text that it needs next. A text is compiled as long as one request
 * wants it. Zero-initialise it, except for `resume`. The other fields are private to
 * grammar_store.c. */
struct grammar_claim {
    /* Called after CLAIM_WAITS: the request may ask again and then gets its answer. The caller
     * holds a lock of the store. Any thread may call it. */
    void (*resume)(struct grammar_claim *claim);
    struct list_node node;  /* among the claims that wait for the entry */
    struct entry *entry;    /* the entry being compiled for this request, or NULL */
    bool is_answered;       /* resumed, and not yet asked again */
    bool is_left;           /* its client has left: all calls return STATUS_CANCELLED */
    struct compiled result; /* the answer, if it succeeded */
    struct err refusal;     /* the answer, if it failed */
};

enum claim_verdict {
    CLAIM_READY,      /* the caller gets a reference and releases it */
    CLAIM_REFUSED,    /* `err` has the reason */
    CLAIM_UNCOMPILED, /* not compiled yet, and the caller may not compile */
    CLAIM_WAITS,      /* another thread compiles it: ask again after `resume` */
};

/* Gets the compiled grammar of a text. Fails as grammar_compile does; with STATUS_OVERLOADED if the
 * grammars in use have too much memory; with STATUS_CANCELLED after grammar_store_leave. Compiles
 * or waits only if may_compile is set. For workers only. */
enum claim_verdict grammar_store_get(struct grammar_store *store, struct grammar_claim *claim,
                                     bool may_compile, enum grammar_kind kind, const char *text,
                                     size_t length, struct grammar **out, struct err *err);

/* Maximum number of states of all regular expressions that end a request's answers; bounds their
 * memory. */
#define MAX_SEARCH_STATES 4000

/* The same for a regular expression to search for, with at most MAX_SEARCH_STATES states; fails as
 * search_compile does. If the store is NULL, nothing is cached, and the claim may be NULL. */
enum claim_verdict grammar_store_search(struct grammar_store *store, struct grammar_claim *claim,
                                        bool may_compile, const char *text, size_t length,
                                        struct search **out, struct err *err);

/* Ends a claim whose client has left: it is not resumed, and a compilation that only it wants is
 * cancelled. Releases an unused answer. Any thread may call it. */
void grammar_store_leave(struct grammar_store *store, struct grammar_claim *claim);

/* ---- statistics ----------------------------------------------------------------------------- */

struct grammar_store_stats {
    uint64_t compiled, refused, cancelled; /* finished compilations, by result */
    int compiling;                         /* compilations in progress */
    size_t kept_bytes;                     /* of cached entries */
    size_t live_bytes;                     /* of all grammars, also those that only requests hold */
};
void grammar_store_stats(struct grammar_store *store, struct grammar_store_stats *out);

/* Returns the model's vocabulary. The first call creates it, in up to 0.1 s. In it, special tokens
 * are without text, so grammars do not accept them, except for the markers of calls and reasoning
 * of these formats. Each format is NULL or, in all calls, the same one. The vocabulary lives as
 * long as the store. Returns NULL if memory is short. For workers only. */
const struct vocabulary *grammar_store_vocabulary(struct grammar_store *store,
                                                  const struct tool_format *tools,
                                                  const struct reasoning_format *reasoning);

/* Reads the vocabulary of V tokens for answers with calls and reasoning in these formats, or NULL.
 * End tokens and control tokens other than markers add nothing to an answer. The caller owns it
 * (vocabulary.c). */
struct vocabulary *vocabulary_of_model(const struct engine *engine, int V,
                                       const struct tool_format *tools,
                                       const struct reasoning_format *reasoning);

#endif
