/* engine/grammar/read: readers of regular expressions and of grammars as text (GBNF, EBNF, Lark).
 * A reader adds rules to a builder and returns an expression. After a failure the builder has the
 * status and the message. */
#ifndef PENSTOCK_GRAMMAR_READ_H
#define PENSTOCK_GRAMMAR_READ_H

#include "engine/grammar/build/build.h"

/* How a regular expression applies to a text: WHOLE matches all of it, PART a part of it, so it
 * cannot look ahead. SEARCH matches anywhere unless anchored. STOP is for searches, which look for
 * the beginning of a match in a stream: ^ becomes an EXPR_BEGIN at any place, and $ is refused. */
enum regex_match { REGEX_WHOLE, REGEX_PART, REGEX_SEARCH, REGEX_STOP };

/* Reads a regular expression in RE2's syntax. A failure's message begins with `what` ("The regular
 * expression", "The pattern at /a/b") and names the byte. */
struct expr *pattern_read(struct builder *b, const char *what, const char *text, size_t n,
                          enum regex_match match);

/* Reads a pattern of this program, which must be correct. */
struct expr *pattern_own(struct builder *b, const char *text);

/* Reads a grammar in GBNF, EBNF or a part of Lark. Returns a call of its start rule. */
struct expr *gbnf_read(struct builder *b, const char *text, size_t n);

#endif
