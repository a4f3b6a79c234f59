/* Shared by the files that read regular expressions. */
#ifndef PENSTOCK_GRAMMAR_REGEX_H
#define PENSTOCK_GRAMMAR_REGEX_H

#include "engine/grammar/read/read.h"

struct ranges { /* all zero: empty */
    struct range *list;
    int n, max;
};

void ranges_add(struct ranges *ranges, uint32_t low, uint32_t high);
void ranges_negate(struct ranges *ranges);
void ranges_free(struct ranges *ranges);

/* Adds the other case of each letter. Returns the number of visited characters. */
size_t ranges_fold(struct ranges *ranges);

/* Adds the set of \d, \w, \s or, in capitals, its complement. False: another letter. is_ecma: \s is
 * ECMA-262's, all blanks of Unicode; otherwise RE2's. */
bool ranges_add_perl(struct ranges *ranges, char letter, bool is_ecma);

/* Adds a Unicode category by its name: one letter, two letters, or in full. False: unknown. */
bool ranges_add_category(struct ranges *ranges, const char *name, size_t n);

/* Adds the set of [:name:]. False: unknown. */
bool ranges_add_posix(struct ranges *ranges, const char *name, size_t n);

/* The state of the reader. */
struct regex {
    struct builder *b;
    const char *what, *text, *at, *end;
    bool ignores_case, dot_takes_newline;
    bool counts_lines; /* messages give line and column instead of the byte */
    bool is_stop;      /* REGEX_STOP */
    bool is_ecma;      /* a schema's pattern: follows ECMA-262 instead of RE2 */
    bool sees_ahead;   /* look-ahead is served: the expression decides about the rest of a text */
    int n_ahead;       /* number of look-aheads */
};

enum status pattern_fail(struct regex *r, const char *at, const char *problem);

/* Reads a class after its '[', up to and including the ']'. */
struct expr *pattern_class(struct regex *r);

/* Reads the escape of one character after its backslash. Returns -1 if it is another escape. */
int32_t pattern_escaped(struct regex *r);

/* Reads the rest of \pN, \p{Name} or \P after the letter. */
bool pattern_property(struct regex *r, char letter, struct ranges *into);

/* Returns a class of the ranges, with both cases if case is ignored, and frees them. */
struct expr *pattern_ranges(struct regex *r, struct ranges *ranges);

/* Removes the anchors at the ends of `expr`, and replaces look-aheads. For a search, adds any text
 * at each end without an anchor. Fails on anchors and look-aheads elsewhere. */
struct expr *pattern_anchor(struct regex *r, struct expr *expr, enum regex_match match);

/* The placeholder of ^ or $ for pattern_anchor. */
struct expr *pattern_anchor_new(struct builder *b, bool at_end);

#endif
