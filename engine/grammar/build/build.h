/* The grammar that a reader builds: rules whose bodies are expressions over bytes, characters and
 * other rules. Private to engine/grammar.
 *
 * One arena holds it until the automaton exists. The first failure of a builder is final: after
 * builder_fail every function still returns a harmless result, so a reader checks b->status only in
 * loops. One thread.
 */
#ifndef PENSTOCK_GRAMMAR_BUILD_H
#define PENSTOCK_GRAMMAR_BUILD_H

#include "config/json.h"
#include "engine/grammar/build/limits.h"

/* MAX_COUNT: larger counts of repetitions are read as this one. */
enum { MAX_CODE_POINT = 0x10FFFF, NO_MAX = -1, MAX_COUNT = 100000000 };

struct range { /* of code points */
    uint32_t low, high;
};

enum expr_kind {
    EXPR_BYTES,    /* text[n] */
    EXPR_BYTE,     /* any one byte */
    EXPR_CLASS,    /* one character of ranges[n_ranges], which are sorted and do not touch */
    EXPR_CAT,      /* its children in sequence; no children: the empty text */
    EXPR_ALT,      /* one of its children; none: no text at all */
    EXPR_REPEAT,   /* the child, from min to max times */
    EXPR_CALL,     /* the text of a rule */
    EXPR_AND,      /* text that all children match; they are regular and have no calls */
    EXPR_NOT,      /* any bytes that the child does not match; restrictions as for AND */
    EXPR_MULTIPLE, /* decimal numbers that are multiples of divisor / 10^scale; only in AND */
    EXPR_BEGIN,    /* the empty text at the beginning of the text; for searches */
    EXPR_AHEAD,    /* a look-ahead; only while a regular expression is read (regex_anchor.c) */
    EXPR_FAILED,   /* the result of a failed builder */
};

struct expr {
    enum expr_kind kind;
    struct expr *next; /* next child of the same parent; an expression has at most one parent */
    union {
        struct {
            const char *text;
            size_t n;
        };
        struct {
            const struct range *ranges;
            int n_ranges;
        };
        struct {
            struct expr *child, *last;
            int min, max; /* of REPEAT; NO_MAX: unbounded */
            bool is_not;  /* of AHEAD: the child may not match */
        };
        struct {
            int divisor, scale;
        };
        int rule;
    };
};

struct rule {
    struct expr *body; /* NULL until defined */
    const char *name;  /* for messages; NULL: the reader created the rule */
    /* for messages: the tool and the place of its schema when the rule was created; or NULL */
    const char *owner;
    const struct json *at_root, *at;
};

/* The rules that all JSON grammars share; -1: not created yet. */
enum json_rule {
    JSON_RULE_SPACE,
    JSON_RULE_STRING,
    JSON_RULE_CHARACTER,     /* a character of a string with its escapes */
    JSON_RULE_SINGLE_STRING, /* Python's, in single quotes */
    JSON_RULE_SINGLE_CHARACTER,
    JSON_RULE_NUMBER,
    JSON_RULE_INTEGER,
    JSON_RULE_ANY,
    JSON_RULE_OBJECT,
    JSON_RULE_ARRAY,
    N_JSON_RULES,
};

struct builder {
    struct arena *arena;
    struct grammar_limits limits; /* defaults filled in */
    uint64_t deadline_ns;         /* in the time of builder_thread_ns */
    size_t n_steps;               /* since the last look at the clock */
    int depth;                    /* current nesting */
    const char *owner;            /* for messages: the tool whose schema is read; or NULL */
    bool is_python;               /* spell values as Python does, not as JSON does */
    const char *text_mark;  /* ... as Gemma: no quotes around keys, this around texts; NULL: not */
    bool has_single_quotes; /* ... and strings also in single quotes */
    struct rule *rules;
    int n_rules, max_rules;
    int json_rules[N_JSON_RULES];
    enum status status;
    struct err *err;
    struct json *document;           /* contains the nodes below; freed with the builder */
    const struct json *at_root, *at; /* for messages: the schema whose rule is read; or NULL */
    /* for messages: the place of the current pattern; or NULL */
    const struct json *pattern_root, *pattern;
    struct expr spare; /* returned after a failure */
};

/* ---- builders ------------------------------------------------------------------------------- */

/* Begins a grammar of n bytes of text. limits NULL: the defaults. False: the text is too long, and
 * the builder failed. After true, the caller calls builder_end. */
bool builder_begin(struct builder *b, const struct grammar_limits *limits, size_t n,
                   struct err *err);

/* Frees all rules and expressions. Returns the status. */
enum status builder_end(struct builder *b);

/* Records the first failure; the format is as in err_set. Returns the status. */
enum status builder_fail(struct builder *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* CPU time of this thread, so that the limit does not depend on other load. */
uint64_t builder_thread_ns(void);

/* Is there time left, and is the grammar still wanted? Fails if not. */
bool builder_in_time(struct builder *b);

/* Like builder_in_time, after n more steps of about 10 ns each. It reads the clock rarely, so loops
 * can call it at each step. */
bool builder_works(struct builder *b, size_t n);

/* Enters one level of nesting. False: it is too deep, and the builder failed. Each success needs a
 * builder_up. */
bool builder_down(struct builder *b, const char *what);
void builder_up(struct builder *b);

/* Writes the JSON pointer of a node of a document; the root's is "". For messages. */
void json_pointer(const struct json *root, const struct json *node, struct buf *out);

/* Returns memory that lives as long as the builder; NULL after a failure. */
void *builder_alloc(struct builder *b, size_t bytes);

/* Adds a rule without a body and returns its index. */
int rule_new(struct builder *b, const char *name);
void rule_define(struct builder *b, int rule, struct expr *body);

struct expr *expr_new(struct builder *b, enum expr_kind kind);
struct expr *expr_bytes(struct builder *b, const char *text, size_t n);
struct expr *expr_text(struct builder *b, const char *text);
struct expr *expr_call(struct builder *b, int rule);
struct expr *expr_repeat(struct builder *b, struct expr *child, int min, int max);

/* Appends a child and returns the parent. */
struct expr *expr_add(struct expr *parent, struct expr *child);

/* Returns an expression with the children that follow, up to a NULL. */
struct expr *expr_of(struct builder *b, enum expr_kind kind, ...) __attribute__((sentinel));

/* Finds the kinds of texts that up to 32 expressions without calls tell apart: writes to kinds[max]
 * the bit set of matching expressions of each kind, and returns their number; max + 1: there are
 * more. Becomes the parent of the expressions. (kinds.c) */
int builder_kinds(struct builder *b, struct expr *const *exprs, int n, unsigned *kinds, int max);

/* One character of the ranges, in any order. Copies them and removes surrogates. */
struct expr *expr_class(struct builder *b, const struct range *ranges, int n);

/* Writes the ranges of characters outside ranges[n] and returns their number. Sorts `ranges`; `out`
 * has room for n + 1. */
int ranges_complement(struct range *ranges, int n, struct range *out);

/* Sorts ranges, joins those that touch, and returns the new number. */
int ranges_normalise(struct range *ranges, int n);

#endif
