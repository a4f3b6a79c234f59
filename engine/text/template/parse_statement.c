/* Parses a template's statements into the tree that template/exec.c runs. Also defines the
 * functions that both halves of the parser use: nodes, and moving over the tokens. */
#include <assert.h>
#include <string.h>

#include "engine/text/template/parser.h"

/* ---- nodes and tokens ----------------------------------------------------------------------- */

struct template_node *parser_node(struct parser *p, enum node_kind kind) {
    struct template_node *node = guard_alloc(p->guard, sizeof *node);
    *node = (struct template_node){.kind = kind, .line = p->token->line};
    return node;
}

struct template_node *parser_close(struct parser *p, struct template_node *node) {
    struct template_node *const children[] = {node->a, node->b, node->c, node->d, node->e};
    assert(node->height == 0); /* a node is closed once, after its children */
    for (size_t i = 0; i < sizeof children / sizeof *children; i++) {
        for (const struct template_node *child = children[i]; child; child = child->next) {
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

/* ---- statements ----------------------------------------------------------------------------- */

static struct template_node *parse_body(struct parser *p, const char *const *ends);

static void expect_block_end(struct parser *p) {
    parser_expect(p, TEMPLATE_BLOCK_END, "'%}'");
}

/* Reads the rest of an opening tag ("%}" or ":%}"), then the statements before the tag that is
 * named `end`, `or` or `or2` (NULL: no such name). The caller reads that name. */
static struct template_node *parse_block(struct parser *p, const char *end, const char * or,
                                         const char *or2) {
    const char *const ends[] = {end, or, or2, NULL};
    parser_skip(p, ':');
    expect_block_end(p);
    guard_enter(p->guard);
    struct template_node *body = parse_body(p, ends);
    guard_leave(p->guard);
    if (p->token->kind == TEMPLATE_END) {
        guard_fail(p->guard, "the template ends without '{%% %s %%}'", end);
    }
    return body;
}

/* Reads a body that only `end` can end, and also the name of that tag. */
static struct template_node *parse_block_to(struct parser *p, const char *end) {
    struct template_node *body = parse_block(p, end, NULL, NULL);
    parser_skip_name(p, end);
    return body;
}

static struct template_node *parse_branch(struct parser *p, struct template_node *test,
                                          const char * or, const char *or2) {
    struct template_node *branch = parser_node(p, NODE_BRANCH);
    branch->a = test;
    branch->b = parse_block(p, "endif", or, or2);
    return parser_close(p, branch);
}

static struct template_node *parse_if(struct parser *p) {
    struct template_node *node = parser_node(p, NODE_IF), **last = &node->a;
    do {
        *last = parse_branch(p, parse_tuple(p, false, false), "elif", "else");
        last = &(*last)->next;
    } while (parser_skip_name(p, "elif"));
    if (parser_skip_name(p, "else")) *last = parse_branch(p, NULL, NULL, NULL);
    parser_skip_name(p, "endif");
    return parser_close(p, node);
}

/* The iterable is a tuple or an expression without inline if: "if" begins the loop's condition. */
static struct template_node *parse_for(struct parser *p) {
    struct template_node *node = parser_node(p, NODE_FOR);
    node->a = parse_target(p, false);
    if (!parser_skip_name(p, "in")) parser_fail(p, "'in'");
    node->b = parse_tuple(p, false, false);
    if (parser_skip_name(p, "if")) node->e = parse_expression(p);
    if (parser_skip_name(p, "recursive")) node->op = 1;
    p->n_loops++;
    node->c = parse_block(p, "endfor", "else", NULL);
    p->n_loops--;
    assert(p->n_loops >= 0);
    if (parser_skip_name(p, "else")) {
        node->d = parse_block_to(p, "endfor");
    } else {
        parser_skip_name(p, "endfor");
    }
    return parser_close(p, node);
}

static struct template_node *parse_set(struct parser *p) {
    struct template_node *node = parser_node(p, NODE_SET);
    node->a = parse_target(p, true);
    if (parser_skip(p, '=')) {
        node->b = parse_tuple(p, true, false);
        return parser_close(p, node);
    }
    node->kind = NODE_SET_BLOCK;
    node->b = parse_filters(p, NULL, false);
    node->c = parse_block_to(p, "endset");
    return parser_close(p, node);
}

static struct template_node *parse_with(struct parser *p) {
    struct template_node *node = parser_node(p, NODE_WITH), **last = &node->a;
    while (p->token->kind != TEMPLATE_BLOCK_END) {
        if (node->a) parser_expect(p, ',', "','");
        struct template_node *target = parser_node(p, NODE_NAME);
        target->name = parser_expect_name(p);
        parser_expect(p, '=', "'='");
        *last = target;
        target->next = parse_expression(p);
        last = &target->next->next;
    }
    node->c = parse_block_to(p, "endwith");
    return parser_close(p, node);
}

/* ---- macros and similar statements ---------------------------------------------------------- */

static void check_parameter(struct parser *p, const struct template_node *list,
                            const struct template_node *parameter) {
    for (; list; list = list->next) {
        guard_charge(p->guard, 1);
        if (string_equal(list->name, parameter->name))
            guard_fail(p->guard, "two parameters have the same name");
    }
    if (string_is(parameter->name, "caller") && !parameter->a) {
        guard_fail(p->guard, "the parameter 'caller' needs a default");
    }
}

static struct template_node *parse_parameters(struct parser *p) {
    struct template_node *list = NULL, **last = &list;
    bool has_default = false;
    parser_expect(p, '(', "'('");
    while (p->token->kind != ')') {
        struct template_node *parameter = parser_node(p, NODE_PARAMETER);
        if (list) parser_expect(p, ',', "','");
        parameter->name = parser_expect_name(p);
        if (parser_skip(p, '=')) {
            parameter->a = parse_expression(p);
        } else if (has_default) {
            guard_fail(p->guard, "a parameter without a default follows one that has one");
        }
        has_default |= parameter->a != NULL;
        check_parameter(p, list, parameter);
        *last = parser_close(p, parameter);
        last = &parameter->next;
    }
    parser_expect(p, ')', "')'");
    return list;
}

/* Parses the body of a function. A break in it cannot end a loop around it. */
static void parse_function_body(struct parser *p, struct template_node *node, const char *end) {
    struct template_node *macro = p->macro;
    int n_loops = p->n_loops;
    p->macro = node;
    p->n_loops = 0;
    node->c = parse_block_to(p, end);
    assert(p->n_loops == 0);
    p->macro = macro;
    p->n_loops = n_loops;
    if (!macro) return;
    macro->uses_caller |= node->uses_caller;
    macro->uses_kwargs |= node->uses_kwargs;
    macro->uses_varargs |= node->uses_varargs;
}

static struct template_node *parse_macro(struct parser *p) {
    struct template_node *node = parser_node(p, NODE_MACRO);
    node->name = parser_expect_name(p);
    node->a = parse_parameters(p);
    parse_function_body(p, node, "endmacro");
    return parser_close(p, node);
}

static struct template_node *parse_call_block(struct parser *p) {
    struct template_node *node = parser_node(p, NODE_CALL_BLOCK);
    if (p->token->kind == '(') node->a = parse_parameters(p);
    node->b = parse_expression(p);
    if (node->b->kind != NODE_CALL) guard_fail(p->guard, "a call block needs a call");
    parse_function_body(p, node, "endcall");
    return parser_close(p, node);
}

static struct template_node *parse_filter_block(struct parser *p) {
    struct template_node *node = parser_node(p, NODE_FILTER_BLOCK);
    node->b = parse_filters(p, NULL, true);
    node->c = parse_block_to(p, "endfilter");
    return parser_close(p, node);
}

/* transformers' tag around text on which a model is trained; here it only outputs its content. */
static struct template_node *parse_generation(struct parser *p) {
    struct template_node *node = parser_node(p, NODE_SCOPE);
    parse_function_body(p, node, "endgeneration");
    return parser_close(p, node);
}

/* Parses a named block: without inheritance it is a scope that outputs its content. */
static struct template_node *parse_named_block(struct parser *p) {
    struct template_node *node = parser_node(p, NODE_SCOPE);
    const struct string *name = parser_expect_name(p);
    parser_skip_name(p, "scoped");
    parse_function_body(p, node, "endblock");
    if (p->token->kind == TEMPLATE_NAME && string_equal(p->token->string, name)) parser_next(p);
    return parser_close(p, node);
}

/* {% print a, b %}: one output per expression, in a list without a scope. */
static struct template_node *parse_print(struct parser *p) {
    struct template_node *list = NULL, **last = &list;
    while (p->token->kind != TEMPLATE_BLOCK_END) {
        struct template_node *output = parser_node(p, NODE_OUTPUT);
        if (list) parser_expect(p, ',', "','");
        output->a = parse_expression(p);
        *last = parser_close(p, output);
        last = &output->next;
    }
    return list;
}

static struct template_node *parse_jump(struct parser *p, enum node_kind kind) {
    if (p->n_loops == 0) guard_fail(p->guard, "break and continue are only allowed in a loop");
    return parser_node(p, kind);
}

static struct template_node *parse_break(struct parser *p) {
    return parse_jump(p, NODE_BREAK);
}

static struct template_node *parse_continue(struct parser *p) {
    return parse_jump(p, NODE_CONTINUE);
}

/* ---- statements ----------------------------------------------------------------------------- */

static struct template_node *parse_statement(struct parser *p) {
    static const struct {
        const char *tag;
        struct template_node *(*parse)(struct parser *p);
    } statements[] = {
        {"if", parse_if},
        {"for", parse_for},
        {"set", parse_set},
        {"with", parse_with},
        {"macro", parse_macro},
        {"call", parse_call_block},
        {"filter", parse_filter_block},
        {"generation", parse_generation},
        {"block", parse_named_block},
        {"print", parse_print},
        {"break", parse_break},
        {"continue", parse_continue},
    };
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        if (parser_skip_name(p, statements[i].tag)) return statements[i].parse(p);
    }
    parser_fail(p, "a known tag");
}

/* Parses statements up to the end of the template or to a tag of `ends`, whose "{%" it has then
 * read. */
static struct template_node *parse_body(struct parser *p, const char *const *ends) {
    struct template_node *list = NULL, **last = &list;
    while (p->token->kind != TEMPLATE_END) {
        if (p->token->kind == TEMPLATE_DATA) {
            *last = parser_node(p, NODE_DATA);
            (*last)->constant = VALUE_OF_STRING(p->token->string);
            parser_next(p);
        } else if (parser_skip(p, TEMPLATE_VARIABLE_BEGIN)) {
            struct template_node *output = parser_node(p, NODE_OUTPUT);
            output->a = parse_tuple(p, true, false);
            parser_expect(p, TEMPLATE_VARIABLE_END, "'}}'");
            *last = parser_close(p, output);
        } else {
            parser_expect(p, TEMPLATE_BLOCK_BEGIN, "a tag");
            for (const char *const *end = ends; *end; end++) {
                if (parser_sees_name(p, *end)) return list;
            }
            *last = parse_statement(p);
            expect_block_end(p);
        }
        while (*last) last = &(*last)->next;
    }
    return list;
}

struct template_node *template_parse(struct guard *guard, const char *source, size_t length) {
    static const char *const no_ends[] = {NULL};
    struct parser p = {.guard = guard, .token = template_lex(guard, source, length)};
    guard->line = 1;
    return parse_body(&p, no_ends);
}
