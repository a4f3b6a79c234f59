/* What both halves of the parser use: nodes, and the walk over the tokens. */
#include <assert.h>

#include "engine/text/template/parser.h"

struct node *parser_node(struct parser *p, enum node_kind kind) {
    struct node *node = guard_alloc(p->guard, sizeof *node);
    *node = (struct node){.kind = kind, .line = p->token->line};
    return node;
}

struct node *parser_close(struct parser *p, struct node *node) {
    struct node *const children[] = {node->a, node->b, node->c, node->d, node->e};
    assert(node->height == 0); /* a node is closed once, after its children */
    for (size_t i = 0; i < sizeof children / sizeof *children; i++) {
        for (const struct node *child = children[i]; child; child = child->next) {
            if (child->height >= node->height) node->height = child->height + 1;
        }
    }
    if (node->height > TEMPLATE_NESTING_MAX)
        guard_fail(p->guard, "the template is nested too deeply");
    return node;
}

void parser_next(struct parser *p) {
    assert(p->token);
    if (p->token->kind != TEMPLATE_END) p->token++;
    p->guard->line = p->token->line;
}

_Noreturn void parser_fail(struct parser *p, const char *wanted) {
    static const char *const kinds[] = {[TEMPLATE_END] = "the end of the template",
                                        [TEMPLATE_DATA] = "text",
                                        [TEMPLATE_VARIABLE_BEGIN] = "'{{'",
                                        [TEMPLATE_VARIABLE_END] = "'}}'",
                                        [TEMPLATE_BLOCK_BEGIN] = "'{%'",
                                        [TEMPLATE_BLOCK_END] = "'%}'",
                                        [TEMPLATE_STRING] = "a string",
                                        [TEMPLATE_INT] = "an integer",
                                        [TEMPLATE_FLOAT] = "a float"};
    int kind = p->token->kind;
    if (kind == TEMPLATE_NAME) {
        guard_fail(p->guard, "expected %s, got '%.*s'", wanted, shown_length(p->token->string),
                   p->token->string->data);
    }
    if (kind < 10) guard_fail(p->guard, "expected %s, got %s", wanted, kinds[kind]);
    if (kind >= 256) guard_fail(p->guard, "expected %s, got an operator", wanted);
    guard_fail(p->guard, "expected %s, got '%c'", wanted, kind);
}

bool parser_skip(struct parser *p, int kind) {
    if (p->token->kind != kind) return false;
    parser_next(p);
    return true;
}

void parser_expect(struct parser *p, int kind, const char *name) {
    if (!parser_skip(p, kind)) parser_fail(p, name);
}

bool parser_token_is_name(const struct token *token, const char *name) {
    return token->kind == TEMPLATE_NAME && string_is(token->string, name);
}

bool parser_sees_name(const struct parser *p, const char *name) {
    return parser_token_is_name(p->token, name);
}

bool parser_skip_name(struct parser *p, const char *name) {
    if (!parser_sees_name(p, name)) return false;
    parser_next(p);
    return true;
}

const struct string *parser_expect_name(struct parser *p) {
    const struct string *name = p->token->string;
    parser_expect(p, TEMPLATE_NAME, "a name");
    return name;
}
