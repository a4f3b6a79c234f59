/* grammar_store: compiled grammars and stop_regex, kept for the next request that gives the same
 * text, and the vocabulary that all grammars go over. What it keeps outlives the request that has
 * it made, so it is made in scopes of its own (config/config.h); lack of memory is
 * STATUS_UNAVAILABLE. */
#ifndef PENSTOCK_SERVER_GRAMMAR_STORE_H
#define PENSTOCK_SERVER_GRAMMAR_STORE_H

#include "config/list.h"
#include "engine/engine.h"
#include "engine/grammar/grammar.h"
#include "server/message/message.h"

struct grammar_store;

/* For the engine's vocabulary of V, which must outlive it. Keeps what takes at most max_bytes
 * together, 0: nothing. While all grammars of the process take max_live_bytes or more, no other one
 * is compiled; 0: no limit. */
struct grammar_store *grammar_store_new(const struct engine *engine, int V, size_t max_bytes,
                                        size_t max_live_bytes);
/* No thread may use it any more; grammars that requests have stay. NULL is ignored. */
void grammar_store_free(struct grammar_store *store);

/* ---- claims --------------------------------------------------------------------------------- */

/* What a text becomes, one of the two by its kind. */
struct compiled {
    struct grammar *grammar;
    struct search *search;
};

/* The interest of one request in the text that it needs next. A text is compiled as long as one
 * request wants it. All zero before its first use, except for `resume`; its other fields are
 * grammar_store.c's. */
struct grammar_claim {
    /* The request, which was told CLAIM_WAITS, may ask again and has its answer then. Called with a
     * lock of the store's held. Any thread. */
    void (*resume)(struct grammar_claim *claim);
    struct list_node node;  /* among those that wait for the entry */
    struct entry *entry;    /* that is compiled for this request; NULL: none */
    bool is_answered;       /* it was resumed, and has not asked again */
    bool is_left;           /* its client has gone: it gets STATUS_CANCELLED from now on */
    struct compiled result; /* of an answer */
    struct err refusal;     /* or why it has failed */
};

enum claim_verdict {
    CLAIM_READY,      /* the caller has it now, and releases it */
    CLAIM_REFUSED,    /* `err` says why */
    CLAIM_UNCOMPILED, /* the caller may not compile, and the text is not compiled yet */
    CLAIM_WAITS,      /* another thread compiles it: ask again after `resume` */
};

/* The compiled grammar of a text. Refuses it as grammar_compile does; with STATUS_OVERLOADED if the
 * grammars in use take too much memory; with STATUS_CANCELLED after grammar_store_leave. Only if
 * may_compile it compiles or waits. Workers only. */
enum claim_verdict grammar_store_get(struct grammar_store *store, struct grammar_claim *claim,
                                     bool may_compile, enum grammar_kind kind, const char *text,
                                     size_t length, struct grammar **out, struct err *err);

/* States of the automata of all regular expressions that end a request's answers: their memory is
 * bounded by it. */
#define MAX_SEARCH_STATES 4000

/* The same for a regular expression that is looked for, of at most MAX_SEARCH_STATES; refused as
 * search_compile does. A store of NULL keeps nothing; its claim may be
 * NULL. */
enum claim_verdict grammar_store_search(struct grammar_store *store, struct grammar_claim *claim,
                                        bool may_compile, const char *text, size_t length,
                                        struct search **out, struct err *err);

/* The claim's client has gone: it is not resumed any more, and a compilation that only it wants is
 * cancelled. Releases an answer that was not taken. Any thread. */
void grammar_store_leave(struct grammar_store *store, struct grammar_claim *claim);

/* ---- what it has ---------------------------------------------------------------------------- */

struct grammar_store_stats {
    uint64_t compiled, refused, cancelled; /* compilations, by how they have ended */
    int compiling;                         /* texts that are being compiled */
    size_t kept_bytes;                     /* of compiled texts */
    size_t live_bytes;                     /* of all grammars, also those that only requests have */
};
void grammar_store_stats(struct grammar_store *store, struct grammar_store_stats *out);

/* The model's vocabulary, which is made at the first call: that takes up to a tenth of a second.
 * Special tokens have no text in it, so that no grammar lets them pass, but those that mark calls
 * and thoughts of these formats: either may be NULL, and is at each call NULL or the same. It lives
 * as long as the store. NULL: memory is short. Workers only. */
const struct vocabulary *grammar_store_vocabulary(struct grammar_store *store,
                                                  const struct tool_format *tools,
                                                  const struct reasoning_format *reasoning);

#endif
