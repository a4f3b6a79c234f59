/* engine/grammar: constrained decoding. Computes the tokens that may follow so that the output
 * matches a grammar.
 *
 *   text of a grammar --grammar_compile--> struct grammar        shared, with a reference count
 *   one sequence: struct matcher, a position in a grammar:       mask -> accept -> mask -> ...
 *
 * Any worker thread compiles a grammar, and all sequences that use it share it. It caches states
 * and masks under its own lock. A matcher belongs to one thread at a time. This room does not
 * depend on models, HTTP or other threads. docs/structured-output.md lists the supported grammars
 * and their limits.
 */
#ifndef PENSTOCK_GRAMMAR_H
#define PENSTOCK_GRAMMAR_H

#include <stdatomic.h>

#include "config/config.h"

enum grammar_kind {
    GRAMMAR_JSON_OBJECT, /* any JSON object; the text is ignored */
    GRAMMAR_JSON_SCHEMA, /* the text is a JSON Schema */
    GRAMMAR_REGEX,       /* RE2's syntax; the whole output matches */
    GRAMMAR_CHOICE,      /* a JSON array of strings */
    GRAMMAR_GBNF, /* llama-server's; also EBNF and a part of Lark, recognised by their form */
    GRAMMAR_STRUCTURAL_TAG, /* JSON: free text with marked parts that follow grammars */
};

/* ---- the vocabulary ------------------------------------------------------------------------- */

/* The bytes of all tokens as a flat trie. Immutable. Created once per model; outlives every matcher
 * that uses it. */
struct vocabulary;

/* bytes[i] of lengths[i] is the text of token i. A token of length 0 is never allowed: use it for
 * tokens without text. Copies its input. */
struct vocabulary *vocabulary_new(const char *const *bytes, const int *lengths, int V);
void vocabulary_free(struct vocabulary *vocabulary);

/* ---- grammars ------------------------------------------------------------------------------- */

struct grammar;

/* Limits of a grammar; 0: the default in the comment. Above a limit compilation fails with a
 * message that names it. max_bytes also limits the memory during use. */
struct grammar_limits {
    size_t max_text;  /* 256 KiB */
    int max_depth;    /* 64 levels of nesting */
    int max_states;   /* 50,000 */
    size_t max_bytes; /* 16 MiB */
    int max_ms;       /* 500 ms of CPU time of the compiling thread */
    /* Checked together with max_ms: if it becomes true, compilation fails with STATUS_CANCELLED.
     * NULL: compilation cannot be cancelled. */
    const atomic_bool *cancelled;
};

/* Compiles text[n]. The caller releases the result. Fails with STATUS_INVALID_REQUEST and a message
 * that names the place: a JSON pointer, or a line and a column. */
enum status grammar_compile(enum grammar_kind kind, const char *text, size_t n,
                            const struct grammar_limits *limits, struct grammar **out,
                            struct err *err);

/* Adds or removes a reference. The last release frees the grammar. Releasing NULL is allowed. Any
 * thread. */
struct grammar *grammar_acquire(struct grammar *grammar);
void grammar_release(struct grammar *grammar);

/* Returns the memory of a grammar in bytes; it grows during use. Any thread. Does not wait for the
 * lock, so the result excludes growth by a call in progress. */
size_t grammar_bytes(struct grammar *grammar);

/* Returns the memory of all referenced grammars and searches of the process. Any thread. */
size_t grammar_live_bytes(void);

/* Did memory run out while the grammar was in use? Then it and its matchers allow nothing any more,
 * and it should be released. Any thread. */
bool grammar_is_broken(const struct grammar *grammar);

/* Returns the number of bytes of text[n] that the grammar accepts, without regard to tokens.
 * *complete: may the text end there? */
size_t grammar_match(struct grammar *grammar, const char *text, size_t n, bool *complete);

/* ---- one sequence --------------------------------------------------------------------------- */

struct matcher;

/* Creates a matcher at the beginning of a grammar and adds a reference to the grammar.
 * NULL: memory is short. */
struct matcher *matcher_new(struct grammar *grammar, const struct vocabulary *vocabulary);

/* Returns a matcher at the same position, with the same history to roll back. NULL: memory is
 * short. */
struct matcher *matcher_copy(const struct matcher *matcher);
void matcher_free(struct matcher *matcher);

/* Writes mask[ceil(V / 32)]: bit i % 32 of word i / 32 is set if token i may follow. The caller
 * handles end tokens: they are allowed exactly if matcher_may_end. False: no token may follow and
 * the text may not end; this is due to a limit, to bytes that the vocabulary lacks, or to a broken
 * grammar. */
bool matcher_mask(struct matcher *matcher, uint32_t *mask);
bool matcher_may_end(const struct matcher *matcher);

/* Is any token allowed? Stops at the first one, so it is much cheaper than a mask. */
bool matcher_may_go_on(struct matcher *matcher);

/* Prepares the mask for matcher_mask with at most about max_work, in trie nodes or steps of equal
 * cost. False: the mask is not ready; the next call continues. */
bool matcher_prepare(struct matcher *matcher, int max_work);

/* Appends a token. False: it is not allowed, and nothing changed. */
bool matcher_accept(struct matcher *matcher, int32_t id);

/* Removes the last n tokens; at least n must have been accepted. */
void matcher_roll_back(struct matcher *matcher, int n);

/* Writes at most `max` bytes that must follow whatever is sampled. Returns their number. */
int matcher_forced(struct matcher *matcher, char *bytes, int max);

/* ---- stop patterns --------------------------------------------------------------------------- */

/* A regular expression to find in a stream of bytes. Immutable: any number of threads may use it at
 * the same time. */
struct search;

/* Compiles a regular expression in RE2's syntax; ^ is the beginning of the text. The caller
 * releases the result. Fails like grammar_compile, and also if the expression matches the empty
 * text, matches no text, or depends on the end of the text. limits->max_states limits the states of
 * its automaton. */
enum status search_compile(const char *text, size_t n, const struct grammar_limits *limits,
                           struct search **out, struct err *err);

/* Adds or removes a reference. The last release frees the search. Releasing NULL is allowed. Any
 * thread. */
struct search *search_acquire(struct search *search);
void search_release(struct search *search);

/* The number of states, and the memory in bytes. */
int search_states(const struct search *search);
size_t search_bytes(const struct search *search);

/* The position of a search in a text. All zero: the beginning. */
struct search_run {
    struct search_thread {
        size_t begin; /* offset of the possible match */
        uint32_t state;
    } * threads; /* [n] sorted by `begin` */
    int n, max;
    size_t at;             /* bytes so far */
    uint32_t *seen, stamp; /* [states] the last step in which a thread reached the state */
};

/* Reads the next byte. Returns the length of the longest match that ends with it, or 0. The time is
 * proportional to the open matches, which are fewer than the states. */
size_t search_step(const struct search *search, struct search_run *run, uint8_t byte);

/* Returns the number of last bytes that may begin a match. */
size_t search_open(const struct search_run *run);
void search_run_free(struct search_run *run);

#endif
