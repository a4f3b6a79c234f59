/* Intersections of expressions that no reader builds today. */
#include <check.h>
#include <string.h>

#include "engine/grammar/build/network.h"
#include "engine/grammar/run/run.h"
#include "support/suite_main.h"

/* Texts with a byte other than 'x', as a complement. */
static struct expr *has_another(struct builder *b) {
    return expr_of(b, EXPR_NOT, expr_repeat(b, expr_text(b, "x"), 0, NO_MAX), NULL);
}

static struct expr *two_that_have_another(struct builder *b) {
    struct expr *any = expr_repeat(b, expr_new(b, EXPR_BYTE), 0, NO_MAX);
    return expr_of(b, EXPR_AND, any, expr_repeat(b, has_another(b), 2, 2), NULL);
}

static struct grammar *grammar_of(struct expr *(*body)(struct builder *b)) {
    struct builder b;
    struct err err;
    ck_assert(builder_begin(&b, NULL, 0, &err));
    int root = rule_new(&b, NULL);
    rule_define(&b, root, body(&b));
    struct network *network = network_new(&b, root);
    ck_assert_int_eq(builder_end(&b), STATUS_OK);
    return grammar_new(network, 1 << 20, false);
}

static const struct {
    const char *text;
    bool matches;
} texts[] = {
    {"aa", true}, {"aab", true}, {"xaxax", true}, {"a", false}, {"xax", false}, {"xx", false},
};

START_TEST(a_repeated_complement_may_end_at_any_of_its_ends) {
    struct grammar *grammar = grammar_of(two_that_have_another);
    const char *text = texts[_i].text;
    bool complete;
    size_t n = grammar_match(grammar, text, strlen(text), &complete);
    ck_assert_msg((n == strlen(text) && complete) == texts[_i].matches, "%s", text);
    grammar_release(grammar);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("grammar_build");
    TCase *cases = tcase_create("core");
    tcase_add_loop_test(cases, a_repeated_complement_may_end_at_any_of_its_ends, 0,
                        (int)(sizeof texts / sizeof *texts));
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
