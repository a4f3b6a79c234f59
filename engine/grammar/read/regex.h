/* Between the files that read regular expressions. */
#ifndef PENSTOCK_GRAMMAR_REGEX_H
#define PENSTOCK_GRAMMAR_REGEX_H

#include "engine/grammar/build.h"

struct ranges { /* all zero is empty */
    struct range *list;
    int n, max;
};

void ranges_add(struct ranges *ranges, uint32_t low, uint32_t high);
void ranges_negate(struct ranges *ranges);
void ranges_free(struct ranges *ranges);

/* Adds the other case of every letter. Returns how many characters it has looked at. */
size_t ranges_fold(struct ranges *ranges);

/* Adds what \d, \w, \s and, in capitals, their complements stand for; false: the letter is none.
 * \s is that of RE2, or of ECMA-262: every blank of Unicode. */
bool ranges_add_perl(struct ranges *ranges, char letter, bool is_ecma);

/* Adds a category of Unicode by its name of one or two letters or in full; false: there is none. */
bool ranges_add_category(struct ranges *ranges, const char *name, size_t n);

/* Adds what [:name:] stands for; false: there is none. */
bool ranges_add_posix(struct ranges *ranges, const char *name, size_t n);

/* What is read. */
struct regex {
    struct builder *b;
    const char *what, *text, *at, *end;
    bool ignores_case, dot_takes_newline;
    bool counts_lines; /* messages give line and column, not a byte */
    bool is_stop;      /* REGEX_STOP */
    bool is_ecma;      /* a schema's pattern: where ECMA-262 and RE2 differ, the former holds */
};

enum status pattern_fail(struct regex *r, const char *at, const char *problem);

/* Reads what follows '[', with the ']'. */
struct expr *pattern_class(struct regex *r);

/* Reads the escape of one character, after its backslash; -1: it is no such escape. */
int32_t pattern_escaped(struct regex *r);

/* Reads \pN or \p{Name} or \P, of which the letter was read. */
bool pattern_property(struct regex *r, char letter, struct ranges *into);

/* A class of the ranges, which are freed, with the other case where that is ignored. */
struct expr *pattern_ranges(struct regex *r, struct ranges *ranges);

/* Takes the anchors off the ends of `expr`, and lets any text stand there where there are none if
 * it is to be found in a text. Fails if there are others. */
struct expr *pattern_anchor(struct regex *r, struct expr *expr, enum regex_match match);

/* What ^ and $ are until then. */
struct expr *pattern_anchor_new(struct builder *b, bool at_end);

#endif
