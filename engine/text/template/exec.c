/* Statements: scopes, loops, assignments, macros. Output goes to r->out. Set blocks, macros and
 * filter blocks first write to a separate builder. */
#include <assert.h>
#include <string.h>

#include "engine/text/template/template.h"

/* ---- scopes --------------------------------------------------------------------------------- */

static struct template_frame *frame_push(struct render *r, struct template_frame *parent) {
    struct template_frame *frame = render_alloc(r, sizeof *frame);
    *frame = (struct template_frame){.parent = parent};
    r->frame = frame;
    return frame;
}

/* Empties a scope for the next iteration, or makes a new one if a macro still refers to it. */
static struct template_frame *frame_renew(struct render *r, struct template_frame *frame) {
    if (frame->captured) return frame_push(r, frame->parent);
    while (frame->bindings) {
        struct binding *binding = frame->bindings;
        frame->bindings = binding->next;
        binding->next = frame->spare;
        frame->spare = binding;
    }
    return frame;
}

void frame_set(struct render *r, struct template_frame *frame, const struct string *name,
               struct value value) {
    size_t n_seen = 0;
    for (struct binding *b = frame->bindings; b; b = b->next, n_seen++) {
        if (!string_equal(b->name, name)) continue;
        b->value = value;
        render_charge(r, n_seen / 4);
        return;
    }
    render_charge(r, n_seen / 4);
    struct binding *binding = frame->spare;
    if (binding) {
        frame->spare = binding->next;
    } else {
        binding = render_alloc(r, sizeof *binding);
    }
    *binding = (struct binding){.next = frame->bindings, .name = name, .value = value};
    frame->bindings = binding;
}

/* ---- assignment ----------------------------------------------------------------------------- */

static void assign_member(struct render *r, const struct template_node *target,
                          struct value value) {
    const struct template_node name = {
        .kind = NODE_NAME, .name = target->name, .line = target->line};
    struct value object = eval(r, &name);
    if (object.kind == VALUE_UNDEFINED) value_undefined_fail(r, object);
    if (object.kind != VALUE_NAMESPACE) {
        render_fail(r, "only a namespace's attributes can be set, not those of '%s'",
                    value_type(object));
    }
    if (target->attribute->data[0] == '_') {
        render_fail(r, "a namespace's attribute must not begin with an underscore");
    }
    dict_set(r, object.dict, VALUE_OF_STRING(target->attribute), value);
}

static void assign(struct render *r, const struct template_node *target, struct value value) {
    if (target->kind == NODE_NAME) {
        frame_set(r, r->frame, target->name, value);
        return;
    }
    if (target->kind == NODE_MEMBER) {
        assign_member(r, target, value);
        return;
    }
    assert(target->kind == NODE_TUPLE);
    const struct template_list *list = value_iterate(r, value);
    size_t i = 0;
    for (const struct template_node *part = target->a; part; part = part->next, i++) {
        if (i >= list->n) render_fail(r, "there are only %zu values to unpack", list->n);
        assign(r, part, list->items[i]);
    }
    if (i < list->n) render_fail(r, "there are %zu values to unpack, not %zu", list->n, i);
}

/* ---- captured output ------------------------------------------------------------------------ */

/* Runs a body in a new scope and returns its output. */
static struct value capture(struct render *r, const struct template_node *body, enum flow *flow) {
    struct template_builder *out = r->out;
    struct template_frame *frame = r->frame;
    struct template_builder *own = builder_new(r);
    frame_push(r, frame);
    r->out = own;
    *flow = exec(r, body);
    assert(r->out == own); /* the code that changes r->out also restores it */
    r->out = out;
    r->frame = frame;
    return builder_value(r, own);
}

/* ---- loops ---------------------------------------------------------------------------------- */

/* Returns the items that satisfy the loop's condition, which may use the loop's variables. */
static struct template_list *filtered(struct render *r, const struct template_node *node,
                                      struct template_list *all) {
    struct template_list *kept = list_open(r, LIST_PLAIN);
    struct template_frame *outer = r->frame, *frame = frame_push(r, outer);
    for (size_t i = 0; i < all->n; i++) {
        r->frame = frame = frame_renew(r, frame);
        assign(r, node->a, all->items[i]);
        if (value_truth(eval(r, node->e))) list_push(r, kept, all->items[i]);
    }
    r->frame = outer;
    return kept;
}

/* Runs the iterations. Returns whether any of them ended without break or continue; if not, jinja2
 * runs the loop's else. */
static bool run_iterations(struct render *r, const struct template_node *node, struct loop *loop) {
    static const struct string loop_name = {.data = "loop", .length = 4};
    struct value self = {.kind = VALUE_LOOP, .loop = loop};
    struct template_frame *frame = frame_push(r, r->frame);
    const struct template_list *list = loop->list;
    bool came_to_end = false;
    for (; loop->index < list->n; loop->index++) {
        render_charge(r, 1);
        r->frame = frame = frame_renew(r, frame);
        frame_set(r, frame, &loop_name, self);
        assign(r, node->a, list->items[loop->index]);
        enum flow flow = exec(r, node->c);
        came_to_end |= flow == FLOW_NEXT;
        if (flow == FLOW_BREAK) break;
    }
    return came_to_end;
}

/* Runs a loop over `list` at the recursion depth `depth`. */
static enum flow run_loop(struct render *r, const struct template_node *node,
                          struct template_list *list, int depth) {
    assert(depth >= 0);
    struct template_frame *outer = r->frame;
    enum flow flow = FLOW_NEXT;
    if (node->e) list = filtered(r, node, list);
    struct loop *loop = render_alloc(r, sizeof *loop);
    *loop = (struct loop){.node = node, .frame = outer, .depth = depth, .list = list};
    if (node->op) outer->captured = true; /* the loop may be called after an iteration has ended */
    bool came_to_end = run_iterations(r, node, loop);
    if (!came_to_end && node->d) {
        frame_push(r, outer);
        flow = exec(r, node->d);
    }
    r->frame = outer;
    return flow;
}

struct value loop_call(struct render *r, const struct loop *loop, const struct args *args) {
    struct template_frame *frame = r->frame;
    struct template_builder *out = r->out, *own = builder_new(r);
    if (!loop->node->op) render_fail(r, "the loop must be 'recursive' to be called");
    if (args->n_positions != 1 || args->n_keywords) render_fail(r, "a loop takes one list");
    guard_enter(&r->guard);
    r->frame = loop->frame;
    r->out = own;
    run_loop(r, loop->node, value_iterate(r, args->position[0]), loop->depth + 1);
    guard_leave(&r->guard);
    r->out = out;
    r->frame = frame;
    return builder_value(r, own);
}

/* ---- macros --------------------------------------------------------------------------------- */

static struct value *keyword_find(struct args *args, const struct string *name) {
    for (size_t i = 0; i < args->n_keywords; i++) {
        if (string_equal(args->keyword[i].name, name)) return &args->keyword[i].value;
    }
    return NULL;
}

/* Sets the macro's parameters from positions, keywords and defaults; a default may use earlier
 * parameters. Returns the number of parameters. */
static size_t bind_parameters(struct render *r, const struct template_node *parameters,
                              struct args *args) {
    size_t i = 0;
    for (const struct template_node *p = parameters; p; p = p->next, i++) {
        struct value value = {.kind = VALUE_UNDEFINED, .holder = VALUE_MISSING, .string = p->name};
        struct value *keyword = i < args->n_positions ? NULL : keyword_find(args, p->name);
        if (i < args->n_positions) {
            value = args->position[i];
        } else if (keyword) {
            value = *keyword;
            *keyword = VALUE_NOTHING; /* the remaining keywords go to kwargs */
        } else if (p->a) {
            value = eval(r, p->a);
        }
        frame_set(r, r->frame, p->name, value);
    }
    return i;
}

/* Sets varargs to the positions after the n parameters. */
static void bind_varargs(struct render *r, const struct template_node *node,
                         const struct args *args, size_t n) {
    static const struct string name = {.data = "varargs", .length = 7};
    size_t n_more = args->n_positions > n ? args->n_positions - n : 0;
    if (n_more && !node->uses_varargs) render_fail(r, "a macro takes at most %zu arguments", n);
    if (!node->uses_varargs) return;
    struct template_list *list = list_new(r, n_more, LIST_TUPLE);
    if (n_more) memcpy(list->items, args->position + n, n_more * sizeof *list->items);
    frame_set(r, r->frame, &name, VALUE_OF_LIST(list));
}

/* Sets kwargs to the keywords that are not parameters. */
static void bind_kwargs(struct render *r, const struct template_node *node,
                        const struct args *args) {
    static const struct string name = {.data = "kwargs", .length = 6};
    struct dict *dict = dict_new(r);
    for (size_t i = 0; i < args->n_keywords; i++) {
        const struct keyword *k = &args->keyword[i];
        if (k->value.kind == VALUE_MISSING) continue;
        if (!node->uses_kwargs) {
            render_fail(r, "the macro does not take the argument '%.*s'", shown_length(k->name),
                        k->name->data);
        }
        dict_set(r, dict, VALUE_OF_STRING(k->name), k->value);
    }
    if (node->uses_kwargs) frame_set(r, r->frame, &name, VALUE_OF_DICT(dict));
}

/* Sets caller to the body of the call block; undefined if an expression calls the macro. */
static void bind_caller(struct render *r, const struct template_node *node, struct args *args) {
    static const struct string name = {.data = "caller", .length = 6};
    if (!node->uses_caller) return;
    for (const struct template_node *p = node->a; p; p = p->next) {
        if (string_equal(p->name, &name)) return;
    }
    struct value *given = keyword_find(args, &name);
    struct value value = {.kind = VALUE_UNDEFINED, .holder = VALUE_MISSING, .string = &name};
    if (given) {
        value = *given;
        *given = VALUE_NOTHING;
    }
    frame_set(r, r->frame, &name, value);
}

struct value macro_call(struct render *r, const struct macro *macro, const struct args *given) {
    struct template_frame *frame = r->frame;
    struct template_builder *out = r->out;
    struct args args = *given;
    int line = r->guard.line;
    guard_enter(&r->guard);
    frame_push(r, macro->frame);
    bind_caller(r, macro->node, &args);
    size_t n = bind_parameters(r, macro->node->a, &args);
    bind_varargs(r, macro->node, &args, n);
    bind_kwargs(r, macro->node, &args);
    struct template_builder *own = builder_new(r);
    r->out = own;
    enum flow flow = exec(r, macro->node->c);
    assert(flow == FLOW_NEXT && r->out == own); /* the parser refuses a break out of a macro */
    (void)flow;
    r->out = out;
    r->frame = frame;
    r->guard.line = line;
    guard_leave(&r->guard);
    return builder_value(r, own);
}

static struct value new_macro(struct render *r, const struct template_node *node) {
    struct macro *macro = render_alloc(r, sizeof *macro);
    *macro = (struct macro){.node = node, .frame = r->frame};
    /* The macro refers to its scope and the outer ones: frame_renew must not empty them. */
    for (struct template_frame *f = r->frame; f && !f->captured; f = f->parent) f->captured = true;
    return (struct value){.kind = VALUE_MACRO, .macro = macro};
}

/* Calls a macro with an additional keyword, caller: the block's body. */
static void exec_call_block(struct render *r, const struct template_node *node) {
    static const struct string name = {.data = "caller", .length = 6};
    assert(node->b->kind == NODE_CALL);
    struct value callee = eval(r, node->b->a);
    struct args args = eval_args(r, node->b->b, 1);
    args.keyword[args.n_keywords++] = (struct keyword){&name, new_macro(r, node)};
    value_print(r, r->out, eval_call(r, callee, &args));
}

/* ---- the other statements ------------------------------------------------------------------- */

/* Runs a body in a new scope. `with` first sets some of its variables, from expressions that see
 * only the outer scope. */
static enum flow exec_scope(struct render *r, const struct template_node *node) {
    struct template_frame *outer = r->frame, *inner = frame_push(r, outer);
    for (const struct template_node *target = node->a; target; target = target->next->next) {
        r->frame = outer;
        struct value value = eval(r, target->next);
        r->frame = inner;
        assign(r, target, value);
    }
    enum flow flow = exec(r, node->c);
    r->frame = outer;
    return flow;
}

static enum flow exec_node(struct render *r, const struct template_node *node) {
    struct value text;
    enum flow flow;
    switch (node->kind) {
    case NODE_DATA:
        builder_add_string(r, r->out, node->constant.string);
        return FLOW_NEXT;
    case NODE_OUTPUT:
        value_print(r, r->out, eval(r, node->a));
        return FLOW_NEXT;
    case NODE_IF:
        for (const struct template_node *branch = node->a; branch; branch = branch->next) {
            if (!branch->a || value_truth(eval(r, branch->a))) return exec(r, branch->b);
        }
        return FLOW_NEXT;
    case NODE_FOR:
        return run_loop(r, node, value_iterate(r, eval(r, node->b)), 0);
    case NODE_SET:
        assign(r, node->a, eval(r, node->b));
        return FLOW_NEXT;
    case NODE_SET_BLOCK:
        text = capture(r, node->c, &flow);
        if (flow != FLOW_NEXT) return flow;
        assign(r, node->a, node->b ? eval_filters(r, node->b, text) : text);
        return FLOW_NEXT;
    case NODE_FILTER_BLOCK:
        text = capture(r, node->c, &flow);
        if (flow == FLOW_NEXT) value_print(r, r->out, eval_filters(r, node->b, text));
        return flow;
    case NODE_WITH:
    case NODE_SCOPE:
        return exec_scope(r, node);
    case NODE_MACRO:
        frame_set(r, r->frame, node->name, new_macro(r, node));
        return FLOW_NEXT;
    case NODE_CALL_BLOCK:
        exec_call_block(r, node);
        return FLOW_NEXT;
    case NODE_BREAK:
        return FLOW_BREAK;
    case NODE_CONTINUE:
        return FLOW_CONTINUE;
    default:
        assert(!"an expression in the place of a statement");
        return FLOW_NEXT;
    }
}

enum flow exec(struct render *r, const struct template_node *list) {
    enum flow flow = FLOW_NEXT;
    assert(r->out && r->frame);
    guard_enter(&r->guard);
    for (; list && flow == FLOW_NEXT; list = list->next) {
        render_charge(r, 1);
        r->guard.line = list->line;
        flow = exec_node(r, list);
    }
    guard_leave(&r->guard);
    return flow;
}
