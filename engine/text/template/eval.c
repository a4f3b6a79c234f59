/* Expressions: walks the syntax tree and computes values. */
#include <assert.h>
#include <string.h>

#include "engine/text/template/parser.h"

/* ---- names, literals ------------------------------------------------------------------------ */

static struct value undefined(enum value_kind holder, const struct string *name) {
    return (struct value){.kind = VALUE_UNDEFINED, .holder = holder, .string = name};
}

/* Looks up a variable in the scopes from the innermost outwards, then a global, then a function. */
static struct value eval_name(struct render *r, const struct string *name) {
    size_t n_seen = 0;
    for (const struct template_frame *frame = r->frame; frame; frame = frame->parent) {
        for (const struct binding *b = frame->bindings; b; b = b->next, n_seen++) {
            if (!string_equal(b->name, name)) continue;
            render_charge(r, n_seen / 4);
            return b->value;
        }
        n_seen++;
    }
    render_charge(r, n_seen / 4);
    const struct value *global = dict_get(r, r->globals, VALUE_OF_STRING(name));
    if (global) return *global;
    const struct builtin *function = builtin_function(name->data, name->length);
    if (function) return (struct value){.kind = VALUE_FUNCTION, .function = function};
    return undefined(VALUE_MISSING, name);
}

static struct value eval_list(struct render *r, const struct template_node *node) {
    struct template_list *list = list_open(r, node->kind == NODE_TUPLE ? LIST_TUPLE : LIST_PLAIN);
    for (const struct template_node *item = node->a; item; item = item->next) {
        list_push(r, list, eval(r, item));
    }
    return VALUE_OF_LIST(list);
}

static struct value eval_dict(struct render *r, const struct template_node *node) {
    struct dict *dict = dict_new(r);
    for (const struct template_node *key = node->a; key; key = key->next->next) {
        assert(key->next); /* the parser reads keys and values in pairs */
        struct value name = eval(r, key);
        dict_set(r, dict, name, eval(r, key->next));
    }
    return VALUE_OF_DICT(dict);
}

/* ---- attributes and items ------------------------------------------------------------------- */

static struct value loop_neighbour(const struct loop *loop, size_t index) {
    return index < loop->list->n ? loop->list->items[index] : undefined(VALUE_MISSING, NULL);
}

static struct value loop_attribute(const struct loop *loop, const struct string *name) {
    int64_t index = (int64_t)loop->index, n = (int64_t)loop->list->n;
    assert(index <= n); /* equal after the loop, when a macro may still refer to it */
    if (string_is(name, "index")) return VALUE_OF_INT(index + 1);
    if (string_is(name, "index0")) return VALUE_OF_INT(index);
    if (string_is(name, "first")) return VALUE_OF_BOOL(index == 0);
    if (string_is(name, "last")) return VALUE_OF_BOOL(index + 1 == n);
    if (string_is(name, "length")) return VALUE_OF_INT(n);
    if (string_is(name, "revindex")) return VALUE_OF_INT(n - index);
    if (string_is(name, "revindex0")) return VALUE_OF_INT(n - index - 1);
    if (string_is(name, "depth")) return VALUE_OF_INT(loop->depth + 1);
    if (string_is(name, "depth0")) return VALUE_OF_INT(loop->depth);
    if (string_is(name, "previtem")) return loop_neighbour(loop, loop->index - 1);
    if (string_is(name, "nextitem")) return loop_neighbour(loop, loop->index + 1);
    return VALUE_NOTHING;
}

/* Returns the result of Python's getattr: methods, and the fields of the few objects with fields.
 * VALUE_MISSING if the attribute does not exist. */
static struct value own_attribute(struct render *r, struct value object,
                                  const struct string *name) {
    if (object.kind == VALUE_LOOP) {
        struct value field = loop_attribute(object.loop, name);
        if (field.kind != VALUE_MISSING) return field;
    }
    if (object.kind == VALUE_NAMESPACE) {
        const struct value *field = dict_get(r, object.dict, VALUE_OF_STRING(name));
        if (field) return *field;
    }
    if (object.kind == VALUE_MACRO && string_is(name, "name") && object.macro->node->name) {
        return VALUE_OF_STRING(object.macro->node->name);
    }
    const struct builtin *builtin = builtin_method(object, name->data, name->length);
    if (!builtin) return VALUE_NOTHING;
    struct method *method = render_alloc(r, sizeof *method);
    *method = (struct method){.builtin = builtin, .self = object};
    return (struct value){.kind = VALUE_METHOD, .method = method};
}

/* Returns object[index] without attributes; VALUE_MISSING if the item does not exist. */
static struct value own_item(struct render *r, struct value object, struct value index) {
    if (object.kind == VALUE_DICT) {
        bool is_key = index.kind != VALUE_DICT &&
                      (index.kind != VALUE_LIST || index.list->flavour == LIST_TUPLE);
        const struct value *value = is_key ? dict_get(r, object.dict, index) : NULL;
        return value ? *value : VALUE_NOTHING;
    }
    if (!value_is_integral(index)) return VALUE_NOTHING;
    int64_t at = value_integer(index);
    if (object.kind == VALUE_STRING) {
        int64_t n = (int64_t)string_points(r, object.string);
        if (at < 0) at += n;
        if (at < 0 || at >= n) return VALUE_NOTHING;
        size_t start = string_offset(object.string, 0, (size_t)at);
        render_charge(r, start / 8);
        return string_part(r, object.string, start, string_next(object.string, start) - start);
    }
    if (object.kind != VALUE_LIST || object.list->flavour > LIST_RANGE) return VALUE_NOTHING;
    if (at < 0) at += (int64_t)object.list->n;
    return at < 0 || at >= (int64_t)object.list->n ? VALUE_NOTHING : object.list->items[at];
}

struct value value_attribute(struct render *r, struct value object, const struct string *name) {
    if (object.kind == VALUE_UNDEFINED) value_undefined_fail(r, object);
    struct value found = own_attribute(r, object, name);
    if (found.kind == VALUE_MISSING) found = own_item(r, object, VALUE_OF_STRING(name));
    return found.kind == VALUE_MISSING ? undefined(object.kind, name) : found;
}

struct value value_item(struct render *r, struct value object, struct value index) {
    if (object.kind == VALUE_UNDEFINED) value_undefined_fail(r, object);
    struct value found = own_item(r, object, index);
    if (found.kind == VALUE_MISSING && index.kind == VALUE_STRING) {
        found = own_attribute(r, object, index.string);
    }
    if (found.kind == VALUE_MISSING) return undefined(object.kind, value_string(r, index));
    return value_is_safe(object) && found.kind == VALUE_STRING ? value_safe(found) : found;
}

static struct value eval_item(struct render *r, const struct template_node *node) {
    struct value object = eval(r, node->a);
    const struct template_node *index = node->b;
    if (index->kind != NODE_SLICE) return value_item(r, object, eval(r, index));
    struct value start = index->a ? eval(r, index->a) : VALUE_OF_NONE;
    struct value stop = index->b ? eval(r, index->b) : VALUE_OF_NONE;
    struct value step = index->c ? eval(r, index->c) : VALUE_OF_NONE;
    return value_slice(r, object, start, stop, step);
}

/* ---- calls, filters, tests ------------------------------------------------------------------ */

static void add_keyword(struct render *r, struct args *args, const struct string *name,
                        struct value value) {
    for (size_t i = 0; i < args->n_keywords; i++) {
        if (string_equal(args->keyword[i].name, name)) {
            render_fail(r, "the argument '%.*s' is given twice", shown_length(name), name->data);
        }
    }
    render_charge(r, args->n_keywords);
    assert(args->keyword); /* eval_args and add_keywords allocated it */
    args->keyword[args->n_keywords++] = (struct keyword){name, value};
}

/* Adds the items of *list as positions. */
static void add_positions(struct render *r, struct args *args, const struct template_list *list,
                          size_t room) {
    struct value *grown = guard_array(&r->guard, args->n_positions + list->n + room, sizeof *grown);
    if (args->n_positions) memcpy(grown, args->position, args->n_positions * sizeof *grown);
    if (list->n) memcpy(grown + args->n_positions, list->items, list->n * sizeof *grown);
    render_charge(r, list->n);
    args->position = grown;
    args->n_positions += list->n;
}

/* Adds the pairs of **dict as keywords. */
static void add_keywords(struct render *r, struct args *args, struct value dict, size_t room) {
    if (dict.kind != VALUE_DICT) render_fail(r, "the value after '**' must be a dict");
    size_t n = args->n_keywords + dict.dict->n + room;
    struct keyword *grown = guard_array(&r->guard, n, sizeof *grown);
    if (args->n_keywords) memcpy(grown, args->keyword, args->n_keywords * sizeof *grown);
    args->keyword = grown;
    for (size_t i = 0; i < dict.dict->n; i++) {
        const struct pair *pair = &dict.dict->pairs[i];
        add_keyword(r, args, value_need_string(r, pair->key, "a keyword"), pair->value);
    }
}

struct args eval_args(struct render *r, const struct template_node *list, size_t room) {
    struct args args = {0};
    size_t n = room;
    for (const struct template_node *argument = list; argument; argument = argument->next) n++;
    if (n == 0) return args;
    args.position = guard_array(&r->guard, n, sizeof *args.position);
    args.keyword = guard_array(&r->guard, n, sizeof *args.keyword);
    for (; list; list = list->next) {
        struct value value = eval(r, list->a);
        if (list->op == '*') {
            add_positions(r, &args, value_iterate(r, value), n);
        } else if (list->op == TEMPLATE_POW) {
            add_keywords(r, &args, value, n);
        } else if (list->name) {
            add_keyword(r, &args, list->name, value);
        } else {
            args.position[args.n_positions++] = value;
        }
    }
    return args;
}

/* A method of a safe string returns a safe string. */
static struct value call_method(struct render *r, const struct method *method,
                                const struct args *args) {
    struct value result = builtin_run(r, method->builtin, method->self, args);
    bool is_safe = value_is_safe(method->self) && result.kind == VALUE_STRING;
    return is_safe ? value_safe(result) : result;
}

struct value eval_call(struct render *r, struct value callee, const struct args *args) {
    switch (callee.kind) {
    case VALUE_UNDEFINED:
        value_undefined_fail(r, callee);
    case VALUE_FUNCTION:
        return builtin_run(r, callee.function, VALUE_NOTHING, args);
    case VALUE_METHOD:
        return call_method(r, callee.method, args);
    case VALUE_LOOP:
        return loop_call(r, callee.loop, args);
    case VALUE_MACRO:
        return macro_call(r, callee.macro, args);
    default:
        render_fail(r, "'%s' cannot be called", value_type(callee));
    }
}

static struct value apply_filter(struct render *r, const struct template_node *node,
                                 struct value self) {
    struct args args = eval_args(r, node->b, 0);
    r->guard.line = node->line;
    if (!node->builtin) {
        render_fail(r, "unknown filter '%.*s'", shown_length(node->name), node->name->data);
    }
    return builtin_run(r, node->builtin, self, &args);
}

struct value eval_filters(struct render *r, const struct template_node *node, struct value input) {
    return apply_filter(r, node, node->a ? eval_filters(r, node->a, input) : input);
}

static struct value eval_test(struct render *r, const struct template_node *node) {
    struct value self = eval(r, node->a);
    struct args args = eval_args(r, node->b, 0);
    if (!node->builtin) {
        render_fail(r, "unknown test '%.*s'", shown_length(node->name), node->name->data);
    }
    return builtin_run(r, node->builtin, self, &args);
}

/* ---- operators ------------------------------------------------------------------------------ */

static bool compare_one(struct render *r, int op, struct value a, struct value b) {
    if (op == TEMPLATE_EQ) return value_equal(r, a, b);
    if (op == TEMPLATE_NE) return !value_equal(r, a, b);
    if (op == TEMPLATE_IN) return value_contains(r, b, a);
    if (op == TEMPLATE_NOT_IN) return !value_contains(r, b, a);
    int order = value_compare(r, a, b);
    assert(op == '<' || op == '>' || op == TEMPLATE_LE || op == TEMPLATE_GE);
    if (op == '<') return order == -1;
    if (op == '>') return order == 1;
    if (op == TEMPLATE_LE) return order == -1 || order == 0;
    return order == 1 || order == 0;
}

/* Evaluates a < b < c: true if each adjacent pair is in order. Stops at the first pair that is
 * not. */
static struct value eval_compare(struct render *r, const struct template_node *node) {
    struct value left = eval(r, node->a);
    for (const struct template_node *operand = node->b; operand; operand = operand->next) {
        struct value right = eval(r, operand->a);
        if (!compare_one(r, operand->op, left, right)) return VALUE_OF_BOOL(false);
        left = right;
    }
    return VALUE_OF_BOOL(true);
}

static struct value eval_sign(struct render *r, const struct template_node *node) {
    struct value value = eval(r, node->a);
    if (value.kind == VALUE_UNDEFINED) value_undefined_fail(r, value);
    if (!value_is_number(value))
        render_fail(r, "a sign is not defined for '%s'", value_type(value));
    if (value.kind == VALUE_FLOAT) {
        return VALUE_OF_FLOAT(node->kind == NODE_NEGATIVE ? -value.real : value.real);
    }
    int64_t integer = value_integer(value);
    if (node->kind == NODE_POSITIVE) return VALUE_OF_INT(integer);
    if (integer == INT64_MIN) render_fail(r, "an integer is too large");
    return VALUE_OF_INT(-integer);
}

static struct value eval_node(struct render *r, const struct template_node *node) {
    struct value left, right;
    struct args args;
    switch (node->kind) {
    case NODE_CONST:
        return node->constant;
    case NODE_NAME:
        return eval_name(r, node->name);
    case NODE_LIST:
    case NODE_TUPLE:
        return eval_list(r, node);
    case NODE_DICT:
        return eval_dict(r, node);
    case NODE_ATTRIBUTE:
        return value_attribute(r, eval(r, node->a), node->name);
    case NODE_ITEM:
        return eval_item(r, node);
    case NODE_CALL:
        left = eval(r, node->a);
        args = eval_args(r, node->b, 0);
        r->guard.line = node->line;
        return eval_call(r, left, &args);
    case NODE_FILTER:
        return apply_filter(r, node, eval(r, node->a));
    case NODE_TEST:
        return eval_test(r, node);
    case NODE_NOT:
        return VALUE_OF_BOOL(!value_truth(eval(r, node->a)));
    case NODE_NEGATIVE:
    case NODE_POSITIVE:
        return eval_sign(r, node);
    case NODE_AND:
    case NODE_OR: /* the result is one of the operands, like in Python */
        left = eval(r, node->a);
        return value_truth(left) == (node->kind == NODE_AND) ? eval(r, node->b) : left;
    case NODE_BINARY:
        left = eval(r, node->a);
        right = eval(r, node->b);
        r->guard.line = node->line;
        return value_binary(r, node->op, left, right);
    case NODE_CONCAT:
        left = VALUE_OF_STRING(value_string(r, eval(r, node->a)));
        for (const struct template_node *part = node->a->next; part; part = part->next) {
            left = string_append(r, left.string, value_string(r, eval(r, part)));
        }
        return left;
    case NODE_COMPARE:
        return eval_compare(r, node);
    case NODE_CONDITION:
        if (value_truth(eval(r, node->a))) return eval(r, node->b);
        return node->c ? eval(r, node->c) : undefined(VALUE_MISSING, NULL);
    default:
        assert(!"a statement in the place of an expression");
        return VALUE_NOTHING;
    }
}

struct value eval(struct render *r, const struct template_node *node) {
    guard_enter(&r->guard);
    render_charge(r, 1);
    r->guard.line = node->line;
    struct value value = eval_node(r, node);
    guard_leave(&r->guard);
    return value;
}
