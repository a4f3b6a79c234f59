/* What the readers of grammars build: rules, whose bodies are expressions over bytes, characters
 * and other rules. For engine/grammar only.
 *
 * All of it lives in one arena until the automaton is made. A builder fails once and for all: after
 * builder_fail every function goes on to return something harmless, so that a reader asks for
 * b->status only where it would loop. One thread.
 */
#ifndef PENSTOCK_GRAMMAR_BUILD_H
#define PENSTOCK_GRAMMAR_BUILD_H

#include "config/json.h"
#include "engine/grammar/grammar.h"

enum { MAX_CODE_POINT = 0x10FFFF, NO_MAX = -1 };

struct range { /* of code points */
    uint32_t low, high;
};

enum expr_kind {
    EXPR_BYTES,    /* text[n] */
    EXPR_BYTE,     /* any one byte */
    EXPR_CLASS,    /* one character of ranges[n_ranges], which are sorted and apart */
    EXPR_CAT,      /* its children one after the other; none: the empty text */
    EXPR_ALT,      /* one of its children; none: no text at all */
    EXPR_REPEAT,   /* its child `min` to `max` times */
    EXPR_CALL,     /* what a rule matches */
    EXPR_AND,      /* what all children match; they are regular, without calls */
    EXPR_NOT,      /* every text of bytes that its child does not match; as for AND */
    EXPR_MULTIPLE, /* decimal numbers that are multiples of divisor / 10^scale; for AND too */
    EXPR_BEGIN,    /* nothing, at the beginning of the text only; for searches */
    EXPR_FAILED,   /* what a builder that failed returns */
};

struct expr {
    enum expr_kind kind;
    struct expr *next; /* child of the same parent after this one: an expression has one parent */
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
            int min, max; /* of REPEAT; NO_MAX: any number */
        };
        struct {
            int divisor, scale;
        };
        int rule;
    };
};

struct rule {
    struct expr *body; /* NULL until it is defined */
    const char *name;  /* for messages; NULL: made by the reader */
};

/* The rules that every JSON grammar shares; -1: not made yet. */
enum json_rule {
    JSON_RULE_SPACE,
    JSON_RULE_STRING,
    JSON_RULE_CHARACTER, /* of a string, as it is spelled */
    JSON_RULE_NUMBER,
    JSON_RULE_INTEGER,
    JSON_RULE_ANY,
    JSON_RULE_OBJECT,
    JSON_RULE_ARRAY,
    N_JSON_RULES,
};

struct builder {
    struct arena *arena;
    struct grammar_limits limits; /* without zeros */
    uint64_t deadline_ns;         /* of builder_thread_ns */
    size_t n_steps;               /* since the clock was last asked */
    int depth;                    /* of what is being read */
    const char *owner;            /* the tool whose schema is being read, for messages; or NULL */
    bool is_python;               /* values are spelled as in Python, not as in JSON */
    struct rule *rules;
    int n_rules, max_rules;
    int json_rules[N_JSON_RULES];
    enum status status;
    struct err *err;
    const struct json *pattern_root, *pattern; /* the place of the pattern that is being read, for
                                                  messages; or NULL */
    struct expr spare;                         /* what is returned without memory */
};

/* ---- compile.c ------------------------------------------------------------------------------ */

/* Begins within the limits, NULL: the defaults; without an arena. */
void builder_init(struct builder *b, const struct grammar_limits *limits, struct err *err);

/* Is a text of n bytes short enough? Otherwise it fails. */
bool builder_takes(struct builder *b, size_t n);

/* ---- builder.c ------------------------------------------------------------------------------ */

/* The first failure is kept; param as in err_set. Returns the status. */
enum status builder_fail(struct builder *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* CPU time of this thread: how long compiling takes does not depend on what else is running. */
uint64_t builder_thread_ns(void);

/* Is there time left, and does the caller still want the grammar? Otherwise it fails. */
bool builder_in_time(struct builder *b);

/* As builder_in_time, after n more small steps of some 10 ns each. It asks the clock only now and
 * then, so that loops can call it at each step. */
bool builder_works(struct builder *b, size_t n);

/* One level deeper; false: that is too deep, and it failed. Each true is answered by builder_up. */
bool builder_down(struct builder *b, const char *what);
void builder_up(struct builder *b);

/* Memory that lives as long as the builder; NULL after a failure. */
void *builder_alloc(struct builder *b, size_t bytes);

/* A new rule without a body. */
int rule_new(struct builder *b, const char *name);
void rule_define(struct builder *b, int rule, struct expr *body);

struct expr *expr_new(struct builder *b, enum expr_kind kind);
struct expr *expr_bytes(struct builder *b, const char *text, size_t n);
struct expr *expr_text(struct builder *b, const char *text);
struct expr *expr_call(struct builder *b, int rule);
struct expr *expr_repeat(struct builder *b, struct expr *child, int min, int max);

/* Adds a last child and returns the parent. */
struct expr *expr_add(struct expr *parent, struct expr *child);

/* A parent of the children that follow, up to a NULL. */
struct expr *expr_of(struct builder *b, enum expr_kind kind, ...) __attribute__((sentinel));

/* One character of the ranges, in any order; surrogates are left out. It copies them. */
struct expr *expr_class(struct builder *b, const struct range *ranges, int n);

/* The ranges of characters that are not in ranges[n], which it sorts; `out` has room for n + 1. */
int ranges_complement(struct range *ranges, int n, struct range *out);

/* Sorts ranges and joins those that touch; returns how many are left. */
int ranges_normalise(struct range *ranges, int n);

/* ---- regex.c -------------------------------------------------------------------------------- */

/* How a regular expression is held against a text: as a whole, or found in it unless it is
 * anchored; or its beginning is looked for while the text comes (search.c): then ^ is an
 * EXPR_BEGIN, wherever it stands, and $ is refused. */
enum regex_match { REGEX_WHOLE, REGEX_SEARCH, REGEX_STOP };

/* Reads RE2's syntax. A failure's sentence begins with `what` ("The regular expression", "The
 * pattern at /a/b") and names the byte. */
struct expr *pattern_read(struct builder *b, const char *what, const char *text, size_t n,
                          enum regex_match match);

/* Compiles a pattern to find in texts, within the builder's limits and remaining time. An
 * unserved pattern is a failure of this function, not of the builder. */
enum status pattern_compile(const struct builder *b, const char *pattern, struct grammar **out);

/* One of our own, which must be right. */
struct expr *pattern_own(struct builder *b, const char *text);

/* ---- json_rules.c --------------------------------------------------------------------------- */

/* A rule that JSON grammars share, made at its first use. */
int json_rule(struct builder *b, enum json_rule which);
struct expr *json_call(struct builder *b, enum json_rule which);

/* Writes the JSON pointer of a node of a document; "" is the root's. */
void json_pointer(const struct json *root, const struct json *node, struct buf *out);

/* Values are spelled as in Python from here on, or again as in JSON: only the words for true, false
 * and null differ. */
void json_spell_python(struct builder *b, bool is_python);

/* The word for true, false or null, of which `json` is JSON's. */
struct expr *json_word(struct builder *b, const char *json);

/* A JSON value in the spelling that is enforced: no blanks, strings as json_quoted. */
struct expr *json_literal(struct builder *b, const struct json *value);

/* The text in quotes: ASCII as it is where it may be, other characters also as \u escapes. */
struct expr *json_quoted(struct builder *b, const char *text, size_t n);

/* An expression over the characters of a string, as JSON spells them between the quotes. */
struct expr *json_spelled(struct builder *b, const struct expr *content);

/* The readers: each returns the body of the whole, as an expression. */
struct expr *schema_read(struct builder *b, const char *text, size_t n);
struct expr *schema_tree(struct builder *b, const struct json *root);

/* The arguments of a call as a model writes them that does not write JSON: "qwen_xml", "glm_xml",
 * "seed_xml" or "python"; NULL: there is no such style. `root` is the schema of their object,
 * whose properties must stand in itself; those that `texts` (an array of strings, or NULL) names
 * are written without quotes. Other properties than its own cannot be written. */
struct expr *schema_arguments(struct builder *b, const struct json *root, const char *style,
                              const struct json *texts);
struct expr *gbnf_read(struct builder *b, const char *text, size_t n);
struct expr *structural_tag_read(struct builder *b, const char *text, size_t n);
struct expr *choice_read(struct builder *b, const char *text, size_t n);

#endif
