/* Parses expressions by jinja2's grammar. Each level of precedence is one function. The height of
 * the tree is bounded, so neither the parser nor the interpreter can exhaust the stack. */
#include <assert.h>
#include <string.h>

#include "engine/text/template/parser.h"

/* Appends a node to a list whose last link is `last`; returns the new last link. */
static struct template_node **append(struct template_node **last, struct template_node *node) {
    *last = node;
    return &node->next;
}

/* ---- literals and names --------------------------------------------------------------------- */

static struct template_node *constant(struct parser *p, struct value value) {
    struct template_node *node = parser_node(p, NODE_CONST);
    node->constant = value;
    parser_next(p);
    return node;
}

static struct template_node *parse_name(struct parser *p) {
    const struct string *name = p->token->string;
    if (string_is(name, "true") || string_is(name, "True")) return constant(p, VALUE_OF_BOOL(true));
    if (string_is(name, "false") || string_is(name, "False"))
        return constant(p, VALUE_OF_BOOL(false));
    if (string_is(name, "none") || string_is(name, "None")) return constant(p, VALUE_OF_NONE);
    struct template_node *node = parser_node(p, NODE_NAME);
    node->name = name;
    if (p->macro) { /* the caller, and the arguments beyond the parameters */
        p->macro->uses_caller |= string_is(name, "caller");
        p->macro->uses_kwargs |= string_is(name, "kwargs");
        p->macro->uses_varargs |= string_is(name, "varargs");
    }
    parser_next(p);
    return node;
}

/* Parses one string, or several adjacent ones, which are joined. */
static struct template_node *parse_strings(struct parser *p) {
    size_t length = 0;
    for (const struct token *t = p->token; t->kind == TEMPLATE_STRING; t++)
        length += t->string->length;
    char *data = guard_alloc(p->guard, length + 1), *out = data;
    struct string *text = guard_alloc(p->guard, sizeof *text);
    struct template_node *node = parser_node(p, NODE_CONST);
    for (; p->token->kind == TEMPLATE_STRING; parser_next(p)) {
        memcpy(out, p->token->string->data, p->token->string->length);
        out += p->token->string->length;
    }
    assert(out == data + length);
    *text = (struct string){.data = data, .length = length};
    node->constant = VALUE_OF_STRING(text);
    return node;
}

static struct template_node *parse_list(struct parser *p) {
    struct template_node *node = parser_node(p, NODE_LIST), **last = &node->a;
    parser_expect(p, '[', "'['");
    while (p->token->kind != ']') {
        last = append(last, parse_expression(p));
        if (!parser_skip(p, ',')) break;
    }
    parser_expect(p, ']', "',' or ']'");
    return parser_close(p, node);
}

static struct template_node *parse_dict(struct parser *p) {
    struct template_node *node = parser_node(p, NODE_DICT), **last = &node->a;
    parser_expect(p, '{', "'{'");
    while (p->token->kind != '}') {
        last = append(last, parse_expression(p));
        parser_expect(p, ':', "':'");
        last = append(last, parse_expression(p));
        if (!parser_skip(p, ',')) break;
    }
    parser_expect(p, '}', "',' or '}'");
    return parser_close(p, node);
}

static struct template_node *parse_primary(struct parser *p) {
    struct template_node *node;
    switch (p->token->kind) {
    case TEMPLATE_NAME:
        return parse_name(p);
    case TEMPLATE_STRING:
        return parse_strings(p);
    case TEMPLATE_INT:
        return constant(p, VALUE_OF_INT(p->token->integer));
    case TEMPLATE_FLOAT:
        return constant(p, VALUE_OF_FLOAT(p->token->real));
    case '(':
        parser_next(p);
        node = parse_tuple(p, true, true);
        parser_expect(p, ')', "')'");
        return node;
    case '[':
        return parse_list(p);
    case '{':
        return parse_dict(p);
    default:
        parser_fail(p, "an expression");
    }
}

static bool at_tuple_end(const struct parser *p) {
    int kind = p->token->kind;
    return kind == TEMPLATE_VARIABLE_END || kind == TEMPLATE_BLOCK_END || kind == ')';
}

struct template_node *parse_tuple(struct parser *p, bool inline_if, bool in_brackets) {
    struct template_node *tuple = parser_node(p, NODE_TUPLE), **last = &tuple->a;
    bool is_tuple = false;
    while (!at_tuple_end(p)) {
        last = append(last, inline_if ? parse_expression(p) : parse_or(p));
        if (!parser_skip(p, ',')) break;
        is_tuple = true;
    }
    if (!is_tuple && tuple->a) return tuple->a;
    if (!is_tuple && !in_brackets) parser_fail(p, "an expression");
    return parser_close(p, tuple);
}

static struct template_node *parse_target_name(struct parser *p, bool member) {
    if (p->token->kind == '(') {
        parser_next(p);
        struct template_node *inner = parse_target(p, member);
        parser_expect(p, ')', "')'");
        return inner;
    }
    struct template_node *node = parse_primary(p);
    if (node->kind != NODE_NAME) guard_fail(p->guard, "this cannot be assigned to");
    if (member && parser_skip(p, '.')) {
        node->kind = NODE_MEMBER;
        node->attribute = parser_expect_name(p);
    }
    return node;
}

struct template_node *parse_target(struct parser *p, bool member) {
    struct template_node *tuple = parser_node(p, NODE_TUPLE), **last = &tuple->a;
    bool is_tuple = false;
    while (!at_tuple_end(p) && !parser_sees_name(p, "in")) {
        last = append(last, parse_target_name(p, member));
        if (!parser_skip(p, ',')) break;
        is_tuple = true;
    }
    if (!is_tuple && tuple->a) return tuple->a;
    if (!is_tuple) parser_fail(p, "a name to assign to");
    return parser_close(p, tuple);
}

/* ---- subscripts, calls, filters, tests ------------------------------------------------------ */

static struct template_node *parse_attribute(struct parser *p, struct template_node *object) {
    struct template_node *node = parser_node(p, NODE_ATTRIBUTE);
    node->a = object;
    if (p->token->kind == TEMPLATE_INT) {
        node->kind = NODE_ITEM;
        node->b = constant(p, VALUE_OF_INT(p->token->integer));
    } else {
        node->name = parser_expect_name(p);
    }
    return parser_close(p, node);
}

static struct template_node *parse_slice_part(struct parser *p) {
    int kind = p->token->kind;
    return kind == ':' || kind == ']' || kind == ',' ? NULL : parse_expression(p);
}

static struct template_node *parse_subscribed(struct parser *p) {
    struct template_node *slice = parser_node(p, NODE_SLICE);
    if (p->token->kind != ':') {
        slice->a = parse_expression(p);
        if (p->token->kind != ':') return slice->a;
    }
    parser_next(p);
    slice->b = parse_slice_part(p);
    if (parser_skip(p, ':')) slice->c = parse_slice_part(p);
    return parser_close(p, slice);
}

static struct template_node *parse_item(struct parser *p, struct template_node *object) {
    struct template_node *node = parser_node(p, NODE_ITEM), *tuple = parser_node(p, NODE_TUPLE);
    struct template_node **last = &tuple->a;
    node->a = object;
    while (p->token->kind != ']') {
        if (tuple->a) parser_expect(p, ',', "',' or ']'");
        last = append(last, parse_subscribed(p));
    }
    parser_expect(p, ']', "']'");
    bool is_one = tuple->a && !tuple->a->next;
    for (const struct template_node *part = tuple->a; part && !is_one; part = part->next) {
        if (part->kind == NODE_SLICE) guard_fail(p->guard, "a slice must be alone in its brackets");
    }
    node->b = is_one ? tuple->a : parser_close(p, tuple);
    return parser_close(p, node);
}

static struct template_node *parse_argument(struct parser *p) {
    struct template_node *node = parser_node(p, NODE_ARGUMENT);
    if (p->token->kind == '*' || p->token->kind == TEMPLATE_POW) {
        node->op = p->token->kind;
        parser_next(p);
    } else if (p->token->kind == TEMPLATE_NAME && p->token[1].kind == '=') {
        node->name = p->token->string;
        parser_next(p);
        parser_next(p);
    }
    node->a = parse_expression(p);
    return parser_close(p, node);
}

/* Plain arguments are first, then *list, keywords, and **dict: ranks 0 to 3. */
static struct template_node *parse_arguments(struct parser *p) {
    struct template_node *list = NULL, **last = &list;
    int rank = 0;
    bool starred = false;
    parser_expect(p, '(', "'('");
    while (p->token->kind != ')') {
        struct template_node *argument = parse_argument(p);
        int now = argument->op == TEMPLATE_POW ? 3
                  : argument->name             ? 2
                  : argument->op == '*'        ? 1
                                               : 0;
        if ((now == 1 && starred) || (now == 0 && (rank > 0 || starred)) || rank == 3) {
            guard_fail(p->guard, "the arguments of a call are in the wrong order");
        }
        starred |= now == 1;
        rank = now > rank ? now : rank;
        last = append(last, argument);
        if (!parser_skip(p, ',')) break;
    }
    parser_expect(p, ')', "',' or ')'");
    return list;
}

static struct template_node *parse_call(struct parser *p, struct template_node *callee) {
    struct template_node *node = parser_node(p, NODE_CALL);
    node->a = callee;
    node->b = parse_arguments(p);
    return parser_close(p, node);
}

static struct template_node *parse_postfix(struct parser *p, struct template_node *node) {
    for (;;) {
        if (parser_skip(p, '.')) {
            node = parse_attribute(p, node);
        } else if (parser_skip(p, '[')) {
            node = parse_item(p, node);
        } else if (p->token->kind == '(') {
            node = parse_call(p, node);
        } else {
            return node;
        }
    }
}

struct template_node *parse_filters(struct parser *p, struct template_node *input, bool first) {
    while (first || parser_skip(p, '|')) {
        struct template_node *node = parser_node(p, NODE_FILTER);
        first = false;
        node->name = parser_expect_name(p);
        node->builtin = builtin_filter(node->name->data, node->name->length);
        node->a = input;
        if (p->token->kind == '(') node->b = parse_arguments(p);
        input = parser_close(p, node);
    }
    return input;
}

/* Does a test's argument without brackets follow: `is divisibleby 3`? */
static bool sees_test_argument(const struct parser *p) {
    int kind = p->token->kind;
    if (kind == TEMPLATE_NAME) {
        return !parser_sees_name(p, "else") && !parser_sees_name(p, "or") &&
               !parser_sees_name(p, "and");
    }
    return kind == TEMPLATE_STRING || kind == TEMPLATE_INT || kind == TEMPLATE_FLOAT ||
           kind == '[' || kind == '{';
}

static struct template_node *parse_test(struct parser *p, struct template_node *subject) {
    bool negated = parser_skip_name(p, "not");
    struct template_node *node = parser_node(p, NODE_TEST);
    node->a = subject;
    node->name = parser_expect_name(p);
    node->builtin = builtin_test(node->name->data, node->name->length);
    if (p->token->kind == '(') {
        node->b = parse_arguments(p);
    } else if (sees_test_argument(p)) {
        if (parser_sees_name(p, "is")) guard_fail(p->guard, "tests with 'is' cannot be chained");
        node->b = parser_node(p, NODE_ARGUMENT);
        node->b->a = parse_postfix(p, parse_primary(p));
        parser_close(p, node->b);
    }
    parser_close(p, node);
    if (!negated) return node;
    struct template_node *not = parser_node(p, NODE_NOT);
    not ->a = node;
    return parser_close(p, not );
}

/* ---- operators, from the highest precedence ------------------------------------------------- */

static struct template_node *parse_unary(struct parser *p, bool with_filters) {
    struct template_node *node;
    int kind = p->token->kind;
    guard_enter(p->guard);
    if (kind == '-' || kind == '+') {
        node = parser_node(p, kind == '-' ? NODE_NEGATIVE : NODE_POSITIVE);
        parser_next(p);
        node->a = parse_unary(p, false);
        parser_close(p, node);
    } else {
        node = parse_primary(p);
    }
    node = parse_postfix(p, node);
    while (with_filters) {
        if (p->token->kind == '|') {
            node = parse_filters(p, node, false);
        } else if (parser_skip_name(p, "is")) {
            node = parse_test(p, node);
        } else if (p->token->kind == '(') {
            node = parse_call(p, node);
        } else {
            break;
        }
    }
    guard_leave(p->guard);
    return node;
}

static struct template_node *binary(struct parser *p, enum node_kind kind, int op,
                                    struct template_node *left, struct template_node *right) {
    assert(left && right);
    struct template_node *node = parser_node(p, kind);
    node->op = op;
    node->a = left;
    node->b = right;
    return parser_close(p, node);
}

static struct template_node *parse_power(struct parser *p) {
    struct template_node *left = parse_unary(p, true);
    while (parser_skip(p, TEMPLATE_POW)) {
        left = binary(p, NODE_BINARY, TEMPLATE_POW, left, parse_unary(p, true));
    }
    return left;
}

static struct template_node *parse_product(struct parser *p) {
    struct template_node *left = parse_power(p);
    for (;;) {
        int op = p->token->kind;
        if (op != '*' && op != '/' && op != '%' && op != TEMPLATE_FLOORDIV) return left;
        parser_next(p);
        left = binary(p, NODE_BINARY, op, left, parse_power(p));
    }
}

static struct template_node *parse_concat(struct parser *p) {
    struct template_node *first = parse_product(p);
    if (p->token->kind != '~') return first;
    struct template_node *node = parser_node(p, NODE_CONCAT), **last = append(&node->a, first);
    while (parser_skip(p, '~')) last = append(last, parse_product(p));
    return parser_close(p, node);
}

static struct template_node *parse_sum(struct parser *p) {
    struct template_node *left = parse_concat(p);
    for (;;) {
        int op = p->token->kind;
        if (op != '+' && op != '-') return left;
        parser_next(p);
        left = binary(p, NODE_BINARY, op, left, parse_concat(p));
    }
}

/* Reads a comparison operator; returns 0 if it finds none. */
static int skip_comparison(struct parser *p) {
    int kind = p->token->kind;
    if (kind == TEMPLATE_EQ || kind == TEMPLATE_NE || kind == TEMPLATE_GE || kind == TEMPLATE_LE ||
        kind == '<' || kind == '>') {
        parser_next(p);
        return kind;
    }
    if (parser_skip_name(p, "in")) return TEMPLATE_IN;
    if (!parser_sees_name(p, "not") || !parser_token_is_name(p->token + 1, "in")) return 0;
    parser_next(p);
    parser_next(p);
    return TEMPLATE_NOT_IN;
}

static struct template_node *parse_comparison(struct parser *p) {
    struct template_node *first = parse_sum(p);
    int op = skip_comparison(p);
    if (!op) return first;
    struct template_node *node = parser_node(p, NODE_COMPARE), **last = &node->b;
    node->a = first;
    for (; op; op = skip_comparison(p)) {
        struct template_node *operand = parser_node(p, NODE_OPERAND);
        operand->op = op;
        operand->a = parse_sum(p);
        last = append(last, parser_close(p, operand));
    }
    return parser_close(p, node);
}

static struct template_node *parse_not(struct parser *p) {
    if (!parser_sees_name(p, "not")) return parse_comparison(p);
    struct template_node *node = parser_node(p, NODE_NOT);
    parser_next(p);
    guard_enter(p->guard);
    node->a = parse_not(p);
    guard_leave(p->guard);
    return parser_close(p, node);
}

static struct template_node *parse_and(struct parser *p) {
    struct template_node *left = parse_not(p);
    while (parser_skip_name(p, "and")) left = binary(p, NODE_AND, 0, left, parse_not(p));
    return left;
}

struct template_node *parse_or(struct parser *p) {
    struct template_node *left = parse_and(p);
    while (parser_skip_name(p, "or")) left = binary(p, NODE_OR, 0, left, parse_and(p));
    return left;
}

struct template_node *parse_expression(struct parser *p) {
    guard_enter(p->guard);
    struct template_node *node = parse_or(p);
    while (parser_sees_name(p, "if")) {
        struct template_node *condition = parser_node(p, NODE_CONDITION);
        parser_next(p);
        condition->b = node;
        condition->a = parse_or(p);
        if (parser_skip_name(p, "else")) condition->c = parse_expression(p);
        node = parser_close(p, condition);
    }
    guard_leave(p->guard);
    return node;
}
