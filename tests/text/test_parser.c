/* The parser: the shape of the tree, its notes about macros, its refusals, and the limit on the
 * height of a tree. test_template.c compares the meaning of each node with jinja2. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/template/parser.h"
#include "support/suite_main.h"
#include "support/template_fixture.h"

static struct template_node *parsed(struct render *r, const char *source) {
    if (setjmp(r->guard.escape)) ck_abort_msg("%s: %s", source, r->guard.err->message);
    return template_parse(&r->guard, source, strlen(source));
}

/* Returns the expression of "{{ ... }}". */
static const struct template_node *expression(struct render *r, const char *source) {
    const struct template_node *output = parsed(r, source);
    ck_assert_int_eq(output->kind, NODE_OUTPUT);
    return output->a;
}

START_TEST(operators_bind_by_precedence) {
    struct render *r = fixture_render_new(1 << 20);
    const struct template_node *sum = expression(r, "{{ 1 + 2 * 3 ** 4 }}");
    ck_assert_int_eq(sum->op, '+');
    ck_assert_int_eq(sum->b->op, '*');
    ck_assert_int_eq(sum->b->b->op, TEMPLATE_POW);
    const struct template_node *logic = expression(r, "{{ not a and b or c }}");
    ck_assert_int_eq(logic->kind, NODE_OR);
    ck_assert_int_eq(logic->a->kind, NODE_AND);
    ck_assert_int_eq(logic->a->a->kind, NODE_NOT);
    const struct template_node *left = expression(r, "{{ 1 - 2 - 3 }}");
    ck_assert_int_eq(left->a->op, '-');
    ck_assert_int_eq(left->b->kind, NODE_CONST);
    const struct template_node *compare = expression(r, "{{ a < b not in c }}");
    ck_assert_int_eq(compare->kind, NODE_COMPARE);
    ck_assert_int_eq(compare->b->op, '<');
    ck_assert_int_eq(compare->b->next->op, TEMPLATE_NOT_IN);
    /* the filter applies to -a, not to a */
    const struct template_node *filter = expression(r, "{{ -a|f }}");
    ck_assert_int_eq(filter->kind, NODE_FILTER);
    ck_assert_int_eq(filter->a->kind, NODE_NEGATIVE);
    fixture_render_free(r);
}
END_TEST

START_TEST(statements_hold_their_parts) {
    struct render *r = fixture_render_new(1 << 20);
    const struct template_node *branch =
        parsed(r, "{% if a %}1{% elif b %}2{% else %}3{% endif %}")->a;
    ck_assert(branch->a && branch->next->a && !branch->next->next->a);
    ck_assert(branch->next->next->next == NULL);
    const struct template_node *loop = parsed(r, "{% for x in y if z %}1{% else %}2{% endfor %}");
    ck_assert(loop->a && loop->b && loop->c && loop->d && loop->e);
    const struct template_node *set = parsed(r, "{% set a.b = 1, 2 %}");
    ck_assert_int_eq(set->a->kind, NODE_MEMBER);
    ck_assert_int_eq(set->b->kind, NODE_TUPLE);
    const struct template_node *block = parsed(r, "{% set a|upper %}x{% endset %}");
    ck_assert_int_eq(block->kind, NODE_SET_BLOCK);
    ck_assert_ptr_nonnull(block->b->builtin);
    fixture_render_free(r);
}
END_TEST

/* A macro's node notes what its body, and the macros in it, use. */
START_TEST(macros_note_the_names_in_their_bodies) {
    struct render *r = fixture_render_new(1 << 20);
    const struct template_node *plain = parsed(r, "{% macro m(a) %}{{ a }}{% endmacro %}");
    ck_assert(!plain->uses_caller && !plain->uses_kwargs && !plain->uses_varargs);
    const struct template_node *macro =
        parsed(r, "{% macro m() %}{{ caller() }}{% macro n() %}{{ kwargs }}{% endmacro %}"
                  "{% endmacro %}");
    ck_assert(macro->uses_caller && macro->uses_kwargs && !macro->uses_varargs);
    fixture_render_free(r);
}
END_TEST

START_TEST(a_height_is_one_more_than_the_highest_child) {
    struct render *r = fixture_render_new(1 << 20);
    ck_assert_int_eq(expression(r, "{{ 1 }}")->height, 0);
    ck_assert_int_eq(expression(r, "{{ 1 + 2 }}")->height, 1);
    ck_assert_int_eq(expression(r, "{{ 1 + [2, -3] }}")->height, 3);
    fixture_render_free(r);
}
END_TEST

START_TEST(a_message_names_the_expected_token) {
    static const struct fixture_case refused[] = {
        {"{{ }}", "expected an expression, got '}}'"},
        {"{{ 1 2 }}", "expected '}}', got an integer"},
        {"{{ 1 'a' }}", "expected '}}', got a string"},
        {"{{ a b }}", "expected '}}', got 'b'"},
        {"{{ a[1 }}", "unexpected '}'"},
        {"{{ f(a=1, 2) }}", "in the wrong order"},
        {"{{ f(**a, b) }}", "in the wrong order"},
        {"{{ f(*a, *b) }}", "in the wrong order"},
        {"{{ a[1:2, 3] }}", "a slice must be alone"},
        {"{% for 1 in x %}{% endfor %}", "cannot be assigned to"},
        {"{% for x of y %}{% endfor %}", "expected 'in', got 'of'"},
        {"{% break %}", "only allowed in a loop"},
        {"{% for x in y %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
         "only allowed in a loop"},
        {"{% macro m(a, a) %}{% endmacro %}", "two parameters have the same name"},
        {"{% macro m(a=1, b) %}{% endmacro %}", "a parameter without a default follows"},
        {"{% macro m(caller) %}{% endmacro %}", "the parameter 'caller' needs a default"},
        {"{% call m %}{% endcall %}", "a call block needs a call"},
        {"{% include 'x' %}", "expected a known tag, got 'include'"},
        {"{% if a %}\n\n", "the template ends without '{% endif %}'"},
        {"{% endif %}", "expected a known tag, got 'endif'"},
        {NULL, NULL},
    };
    for (const struct fixture_case *one = refused; one->source; one++) {
        expect_template_failure(one->source, NULL, one->wanted);
    }
}
END_TEST

/* A tree of the maximum height is accepted and can run; one level more is refused. */
START_TEST(trees_are_as_high_as_the_limit) {
    for (int over = 0; over < 2; over++) {
        struct buf source = {0};
        buf_puts(&source, "{{ 0");
        for (int i = 0; i < TEMPLATE_NESTING_MAX - 1 + over; i++) buf_puts(&source, " + 1");
        buf_puts(&source, " }}");
        if (over) {
            expect_template_failure(source.data, NULL, "the template is nested too deeply");
        } else {
            expect_template(source.data, NULL, "199");
        }
        buf_free(&source);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("text_parser");
    TCase *core = tcase_create("core"), *limits = tcase_create("limits");
    tcase_add_test(core, operators_bind_by_precedence);
    tcase_add_test(core, statements_hold_their_parts);
    tcase_add_test(core, macros_note_the_names_in_their_bodies);
    tcase_add_test(core, a_height_is_one_more_than_the_highest_child);
    tcase_add_test(core, a_message_names_the_expected_token);
    tcase_add_test(limits, trees_are_as_high_as_the_limit);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, limits);
    return suite_main(suite);
}
