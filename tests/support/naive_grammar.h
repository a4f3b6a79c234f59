/* A slow and simple recogniser of random grammars: tables of the places at which each rule can
 * begin and end, filled until they stop changing. It has neither trie nor states nor cache. Masks
 * are compared with it. */
#ifndef PENSTOCK_TESTS_NAIVE_GRAMMAR_H
#define PENSTOCK_TESTS_NAIVE_GRAMMAR_H

#include "config/config.h"

enum { NAIVE_MAX_RULES = 5, NAIVE_MAX_TEXT = 60 };

struct naive_expr {
    enum naive_kind {
        NAIVE_TEXT,  /* `text` */
        NAIVE_CLASS, /* one of the characters of `text`, or if `negated` any other */
        NAIVE_CAT,
        NAIVE_ALT,
        NAIVE_REPEAT, /* `first`, `min` to `max` times; -1: any number */
        NAIVE_CALL,   /* a rule */
    } kind;
    const char *text;
    bool negated;
    int min, max, rule;
    struct naive_expr *first, *second;
};

struct naive_grammar {
    int n_rules;
    struct naive_expr *rules[NAIVE_MAX_RULES];
    struct arena *arena;
};

/* Returns a random grammar in which every rule matches some text; if `is_regular`, with only one
 * rule. The caller frees it with naive_free. */
struct naive_grammar naive_random(uint64_t *seed, bool is_regular);
void naive_free(struct naive_grammar *grammar);

/* Appends it as GBNF, or its first rule as a regular expression. */
void naive_write(const struct naive_grammar *grammar, bool as_regex, struct buf *out);

/* Can text[n] be the beginning of a match? *complete: is it a complete match? */
bool naive_matches(const struct naive_grammar *grammar, const char *text, int n, bool *complete);

/* Returns the next random number below `n`. */
int naive_draw(uint64_t *seed, int n);

/* Makes a compiled grammar drop all that it has learnt at its next mask. */
struct grammar;
void grammar_forget(struct grammar *grammar);

#endif
