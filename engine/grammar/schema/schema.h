/* engine/grammar/schema: readers of grammars that are written as JSON: JSON Schema, structural
 * tags, choices. A reader adds rules to a builder and returns the expression of the whole grammar.
 * After a failure the builder has the status and the message. */
#ifndef PENSTOCK_GRAMMAR_SCHEMA_H
#define PENSTOCK_GRAMMAR_SCHEMA_H

#include "engine/grammar/build/build.h"

/* Returns a call of a rule that JSON grammars share, which is created at its first use. */
struct expr *json_call(struct builder *b, enum json_rule which);

/* Reads a JSON Schema. is_strict: unknown formats are refused; else they are annotations. */
struct expr *schema_read(struct builder *b, const char *text, size_t n, bool is_strict);

/* Reads a structural tag: free text with marked parts that follow grammars. */
struct expr *structural_tag_read(struct builder *b, const char *text, size_t n);

/* Reads an array of strings; the output is one of them. */
struct expr *choice_read(struct builder *b, const char *text, size_t n);

#endif
