/* Shared declarations of the parser's files. Expressions are in template/parse_expression.c.
 * Statements, and the functions that both use, are in template/parse_statement.c. */
#ifndef PENSTOCK_TEMPLATE_PARSER_H
#define PENSTOCK_TEMPLATE_PARSER_H

#include "engine/text/template/template.h"

/* ---- tokens (template/lexer.c) -------------------------------------------------------------- */

enum token_kind {
    TEMPLATE_END,
    TEMPLATE_DATA,
    TEMPLATE_VARIABLE_BEGIN,
    TEMPLATE_VARIABLE_END,
    TEMPLATE_BLOCK_BEGIN,
    TEMPLATE_BLOCK_END,
    TEMPLATE_NAME,
    TEMPLATE_STRING,
    TEMPLATE_INT,
    TEMPLATE_FLOAT,
    /* single characters have their codes as kinds; the others: */
    TEMPLATE_POW = 256, /* ** */
    TEMPLATE_FLOORDIV,  /* // */
    TEMPLATE_EQ,
    TEMPLATE_NE,
    TEMPLATE_GE,
    TEMPLATE_LE,
    TEMPLATE_IN, /* operands of NODE_COMPARE only */
    TEMPLATE_NOT_IN,
};

struct token {
    int kind; /* enum token_kind, or a character */
    int line;
    const struct string *string; /* data, names, strings */
    union {
        int64_t integer;
        double real;
    };
};

/* Returns all tokens of a template, with TEMPLATE_END at the end. */
struct token *template_lex(struct guard *guard, const char *source, size_t length);

struct parser {
    struct guard *guard;
    const struct token *token;   /* the current token; the parser never moves past TEMPLATE_END */
    struct template_node *macro; /* the macro whose body is being read, or NULL */
    int n_loops;                 /* loops around the current statement, within the macro */
};

/* Makes a node at the current line. parser_close sets its height after its children are set. */
struct template_node *parser_node(struct parser *p, enum node_kind kind);
struct template_node *parser_close(struct parser *p, struct template_node *node);
_Noreturn void parser_fail(struct parser *p, const char *wanted); /* "expected X, got Y" */
void parser_next(struct parser *p);
bool parser_skip(struct parser *p, int kind);
void parser_expect(struct parser *p, int kind, const char *name);
bool parser_token_is_name(const struct token *token, const char *name);
bool parser_sees_name(const struct parser *p, const char *name);
bool parser_skip_name(struct parser *p, const char *name);
const struct string *parser_expect_name(struct parser *p);

struct template_node *parse_expression(struct parser *p);
struct template_node *parse_or(struct parser *p); /* an expression without inline if */
/* Parses one expression or, with commas, a tuple. `inline_if` allows conditions; `in_brackets`
 * allows the empty tuple. */
struct template_node *parse_tuple(struct parser *p, bool inline_if, bool in_brackets);
/* Parses the target of a set, for or with. `member` allows name.attribute. */
struct template_node *parse_target(struct parser *p, bool member);
/* Parses filters for `input` (NULL: for a block). If `first`, a filter without '|' begins. */
struct template_node *parse_filters(struct parser *p, struct template_node *input, bool first);

#endif
