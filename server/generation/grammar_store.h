/* grammar_store: compiled grammars and stop_regex, kept for the next request that gives the same
 * text, and the vocabulary that all grammars go over. */
#ifndef PENSTOCK_SERVER_GRAMMAR_STORE_H
#define PENSTOCK_SERVER_GRAMMAR_STORE_H

#include "engine/engine.h"
#include "engine/grammar/grammar.h"
#include "server/message/message.h"

struct grammar_store;

/* For the engine's vocabulary of V, which must outlive it. Keeps what takes at most max_bytes
 * together, 0: none. */
struct grammar_store *grammar_store_new(const struct engine *engine, int V, size_t max_bytes);
/* No thread may use it any more; what was handed out stays. NULL is ignored. */
void grammar_store_free(struct grammar_store *store);

/* The compiled grammar of a text, which the caller releases. Fails as grammar_compile does. Workers
 * only: it compiles, or waits for another one that compiles the same. */
enum status grammar_store_get(struct grammar_store *store, enum grammar_kind kind, const char *text,
                              size_t length, struct grammar **out, struct err *err);

/* States of the automata of all regular expressions that end a request's answers: their memory is
 * bounded by it. */
#define MAX_SEARCH_STATES 4000

/* The same for a regular expression that is looked for, of at most MAX_SEARCH_STATES; fails as
 * search_compile does. A store of NULL keeps nothing. */
enum status grammar_store_search(struct grammar_store *store, const char *text, size_t length,
                                 struct search **out, struct err *err);

/* The model's vocabulary, which is made at the first call: that takes up to a tenth of a second.
 * Special tokens have no text in it, so that no grammar lets them pass, but those that mark calls
 * and thoughts of these formats: either may be NULL, and is at each call NULL or the same. It lives
 * as long as the store. Workers only. */
const struct vocabulary *grammar_store_vocabulary(struct grammar_store *store,
                                                  const struct tool_format *tools,
                                                  const struct reasoning_format *reasoning);

#endif
