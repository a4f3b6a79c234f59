/* engine/grammar: which tokens may come next, so that a text keeps to a grammar.
 *
 *   text of a grammar --grammar_compile--> struct grammar        shared, counted
 *   one sequence: struct matcher, a position in a grammar:       mask -> accept -> mask -> ...
 *
 * A grammar is compiled on any worker thread and shared by all sequences that keep to it; what it
 * finds out about itself while it is used (states, masks) it keeps under its own lock. A matcher
 * belongs to one thread at a time. Nothing here knows of models, HTTP or other threads.
 * docs/structured-output.md says which grammars there are and what of them is refused.
 */
#ifndef PENSTOCK_GRAMMAR_H
#define PENSTOCK_GRAMMAR_H

#include <stdatomic.h>

#include "config/config.h"

enum grammar_kind {
    GRAMMAR_JSON_OBJECT,    /* any JSON object; the text is ignored */
    GRAMMAR_JSON_SCHEMA,    /* the text is a schema */
    GRAMMAR_REGEX,          /* RE2's syntax; the whole output matches */
    GRAMMAR_CHOICE,         /* a JSON array of strings */
    GRAMMAR_GBNF,           /* llama-server's; also EBNF and a part of Lark, found by their form */
    GRAMMAR_STRUCTURAL_TAG, /* JSON: text with marked parts that keep to grammars of their own */
};

/* ---- the vocabulary ------------------------------------------------------------------------- */

/* The bytes of all tokens, as a flat trie. Immutable but for what it keeps under its own lock; made
 * once a model, it outlives every matcher over it. */
struct vocabulary;

/* bytes[i], of lengths[i], are what token i adds to the text. A token of length 0 never matches:
 * give it to those that add no text of their own. Copies what it keeps. */
struct vocabulary *vocabulary_new(const char *const *bytes, const int *lengths, int V);
void vocabulary_free(struct vocabulary *vocabulary);

/* ---- grammars ------------------------------------------------------------------------------- */

struct grammar;

/* What a grammar may take; 0 is the default beside it. Beyond them compiling fails with a sentence
 * that names the limit. The bytes also bound what it keeps while it is used. */
struct grammar_limits {
    size_t max_text;  /* 256 KiB of text */
    int max_depth;    /* 64 levels of nesting */
    int max_states;   /* 50,000 */
    size_t max_bytes; /* 16 MiB */
    int max_ms;       /* 500 ms of the thread that compiles */
    /* Checked where max_ms is checked: if it becomes true, compiling fails with STATUS_CANCELLED.
     * NULL: compiling cannot be cancelled. */
    const atomic_bool *cancelled;
};

/* Compiles text[n]; the result is the caller's, to be released. Fails with STATUS_INVALID_REQUEST
 * and a sentence that names the place: a JSON pointer, or a line and a column. */
enum status grammar_compile(enum grammar_kind kind, const char *text, size_t n,
                            const struct grammar_limits *limits, struct grammar **out,
                            struct err *err);

/* Counts one more owner, or one less; the last one's release frees it. NULL is released, too. Any
 * thread. */
struct grammar *grammar_acquire(struct grammar *grammar);
void grammar_release(struct grammar *grammar);

/* The memory that it takes, in bytes: it grows while it is used. Any thread; it waits for none, so
 * that what it says while a mask is found is what it said before. */
size_t grammar_bytes(struct grammar *grammar);

/* The memory of all grammars and searches of the process that have an owner. Any thread. */
size_t grammar_live_bytes(void);

/* Was memory short while the grammar was in use? Then it lets nothing pass any more, its matchers
 * included, and is to be released. Any thread. */
bool grammar_is_broken(const struct grammar *grammar);

/* How many bytes of text[n] the grammar accepts, for texts that are not tokens; *complete says
 * whether it may end after them. */
size_t grammar_match(struct grammar *grammar, const char *text, size_t n, bool *complete);

/* ---- one sequence --------------------------------------------------------------------------- */

struct matcher;

/* At the beginning of a grammar, which it counts itself an owner of. NULL: memory is short. */
struct matcher *matcher_new(struct grammar *grammar, const struct vocabulary *vocabulary);

/* One at the same place, with the same tokens to roll back. NULL: memory is short. */
struct matcher *matcher_copy(const struct matcher *matcher);
void matcher_free(struct matcher *matcher);

/* mask[ceil(V / 32)]: bit i % 32 of word i / 32 says whether token i may come next. The tokens that
 * end a text are the caller's: they are allowed exactly where matcher_may_end. False: nothing may
 * come and it may not end either, because of a limit, a vocabulary that lacks bytes, or a broken
 * grammar. */
bool matcher_mask(struct matcher *matcher, uint32_t *mask);
bool matcher_may_end(const struct matcher *matcher);

/* May any token come? It looks for one only, so it takes far less than a mask. */
bool matcher_may_go_on(struct matcher *matcher);

/* Works towards the mask, which matcher_mask then has at once, but no more than about max_work:
 * nodes of a trie that are walked over, or what takes as long. False: that was not enough, and the
 * next call goes on. */
bool matcher_prepare(struct matcher *matcher, int max_work);

/* Takes the token. False: it is not allowed here, and nothing has changed. */
bool matcher_accept(struct matcher *matcher, int32_t id);

/* Takes back the last n tokens, of which there must be so many. */
void matcher_roll_back(struct matcher *matcher, int n);

/* Writes the bytes that must come next whatever is chosen, at most `max`; returns how many. */
int matcher_forced(struct matcher *matcher, char *bytes, int max);

/* ---- where a text is to stop ---------------------------------------------------------------- */

/* A regular expression that is looked for in texts while they come. Immutable: any threads search
 * any texts with it at the same time. */
struct search;

/* Compiles a regular expression in RE2's syntax; the result is the caller's, to be released. ^ is
 * the beginning of the text. Fails as
 * grammar_compile does, also on one that the empty text matches, or none, or that asks for the end
 * of the text. limits->max_states counts the states of its automaton. */
enum status search_compile(const char *text, size_t n, const struct grammar_limits *limits,
                           struct search **out, struct err *err);

/* Counts one more owner, or one less; the last one's release frees it. NULL is released, too. Any
 * thread. */
struct search *search_acquire(struct search *search);
void search_release(struct search *search);

/* Its states, and the memory that it takes. */
int search_states(const struct search *search);
size_t search_bytes(const struct search *search);

/* How far a text has been searched, by one expression. All zero is its beginning. */
struct search_run {
    struct search_thread {
        size_t begin; /* of what may become a match */
        uint32_t state;
    } * threads; /* [n], the earliest first */
    int n, max;
    size_t at;             /* bytes so far */
    uint32_t *seen, stamp; /* [states]: the step in which a thread came there */
};

/* Takes the next byte. Returns the length of the longest match that ends with it, 0: there is
 * none. Takes time for the matches that are begun, of which there are fewer than states. */
size_t search_step(const struct search *search, struct search_run *run, uint8_t byte);

/* How many of the last bytes may be the beginning of a match. */
size_t search_open(const struct search_run *run);
void search_run_free(struct search_run *run);

#endif
