/* engine/grammar: constrained decoding. Computes the tokens that may follow so that the output
 * matches a grammar.
 *
 *   text of a grammar --grammar_compile--> struct grammar        shared, with a reference count
 *   one sequence: struct matcher, a position in a grammar:       mask -> accept -> mask -> ...
 *
 *   build/    rules and expressions; networks and deterministic automata
 *   read/     regular expressions, GBNF, Lark           build <- read
 *   schema/   JSON Schema, structural tags, choices     build, read, run <- schema
 *   run/      states, masks, matchers, searches         build <- run
 *   compile.c calls all of them
 *
 * Any worker thread compiles a grammar, and all sequences that use it share it. It caches states
 * and masks under its own lock. A matcher belongs to one thread at a time. This room does not
 * depend on models, HTTP or other threads. docs/structured-output.md lists the supported grammars
 * and their limits.
 */
#ifndef PENSTOCK_GRAMMAR_H
#define PENSTOCK_GRAMMAR_H

#include "engine/grammar/build/limits.h"
#include "engine/grammar/run/run.h"

enum grammar_kind {
    GRAMMAR_JSON_OBJECT, /* any JSON object; the text is ignored */
    GRAMMAR_JSON_SCHEMA, /* the text is a JSON Schema */
    GRAMMAR_REGEX,       /* RE2's syntax; the whole output matches */
    GRAMMAR_CHOICE,      /* a JSON array of strings */
    GRAMMAR_GBNF, /* llama-server's; also EBNF and a part of Lark, recognised by their form */
    GRAMMAR_STRUCTURAL_TAG,     /* JSON: free text with marked parts that follow grammars */
    GRAMMAR_JSON_SCHEMA_STRICT, /* as GRAMMAR_JSON_SCHEMA; unknown formats are refused */
};

/* Compiles text[n]. The caller releases the result. Fails with STATUS_INVALID_REQUEST and a message
 * that names the place: a JSON pointer, or a line and a column. */
enum status grammar_compile(enum grammar_kind kind, const char *text, size_t n,
                            const struct grammar_limits *limits, struct grammar **out,
                            struct err *err);

/* Compiles a regular expression in RE2's syntax; ^ is the beginning of the text. The caller
 * releases the result, which is NULL after a failure. Fails like grammar_compile, and also if the
 * expression matches the empty text, matches no text, or depends on the end of the text.
 * limits->max_states limits the states of its automaton. */
enum status search_compile(const char *text, size_t n, const struct grammar_limits *limits,
                           struct search **out, struct err *err);

#endif
