/* engine/grammar/run: compiled grammars in use. This header is a part of grammar.h; other rooms
 * include that.
 *
 *   struct vocabulary   the bytes of all tokens; shared, immutable
 *   struct grammar      a network and its automaton; shared, with a reference count and a lock
 *   struct matcher      the position of one sequence in a grammar; one thread at a time
 *   struct search       a regular expression to find in a stream; shared, immutable
 *
 * The objects are created from the results of engine/grammar/build; this room reads no text of a
 * grammar. */
#ifndef PENSTOCK_GRAMMAR_RUN_H
#define PENSTOCK_GRAMMAR_RUN_H

#include "config/config.h"

struct network;
struct dfa;

/* ---- the vocabulary ------------------------------------------------------------------------- */

/* The bytes of all tokens as a flat trie. Immutable. Created once per model; outlives every matcher
 * that uses it. */
struct vocabulary;

/* bytes[i] of lengths[i] is the text of token i. A token of length 0 is never allowed: use it for
 * tokens without text. Copies its input. */
struct vocabulary *vocabulary_new(const char *const *bytes, const int *lengths, int V);
void vocabulary_free(struct vocabulary *vocabulary);

/* Returns the text of a token, which is not NUL-terminated. */
const char *vocabulary_text(const struct vocabulary *vocabulary, int32_t id, size_t *length);

/* ---- grammars ------------------------------------------------------------------------------- */

struct grammar;

/* Creates a grammar that owns `network`. max_bytes limits its states and masks. A private grammar
 * belongs to one compilation: it is not counted in grammar_live_bytes, and lack of memory ends the
 * caller's scope instead of breaking the grammar. */
struct grammar *grammar_new(struct network *network, size_t max_bytes, bool is_private);

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

/* Ends the matcher's use of its grammar. NULL is allowed. */
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

/* ---- stop patterns -------------------------------------------------------------------------- */

/* A regular expression to find in a stream of bytes. Immutable: any number of threads may use it at
 * the same time. */
struct search;

/* Builds a search from its automaton; live: dfa_find_live. At most UINT16_MAX + 1 states. */
struct search *search_new(const struct dfa *dfa, const bool *live);

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
