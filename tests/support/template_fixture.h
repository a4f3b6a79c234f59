/* The chat template interpreter for tests: whole renders, and a render whose parts a test calls
 * directly. */
#ifndef PENSTOCK_TESTS_TEMPLATE_FIXTURE_H
#define PENSTOCK_TESTS_TEMPLATE_FIXTURE_H

#include "engine/text/template/template.h"

/* Renders `source` with the members of the JSON object `variables` (may be NULL) as variables.
 * Returns the output, or the message of the error if it cannot be compiled or rendered. Free with
 * free. */
char *fixture_render(const char *source, const char *variables);

/* Fails the test unless `source` renders to `wanted` (for errors: the message contains it). */
void expect_template(const char *source, const char *variables, const char *wanted);
void expect_template_failure(const char *source, const char *variables, const char *cause);

/* One template and its expected output, without variables. NULL ends a list. */
struct fixture_case {
    const char *source, *wanted;
};
void expect_templates(const struct fixture_case *cases);

/* Returns a render without a template: an arena of `max_bytes`, no globals, one scope. A failure
 * aborts the test, unless it occurs within EXPECT_FAILURE or the test has called
 * setjmp(r->guard.escape). Free with fixture_render_free. */
struct render *fixture_render_new(size_t max_bytes);
void fixture_render_free(struct render *r);

/* Does `statement` fail, with `cause` in its message? Sets r->guard.escape. */
#define EXPECT_FAILURE(r, cause, statement)                                                        \
    do {                                                                                           \
        if (setjmp((r)->guard.escape) == 0) {                                                      \
            statement;                                                                             \
            ck_abort_msg("%s does not fail", #statement);                                          \
        }                                                                                          \
        ck_assert_msg(strstr((r)->guard.err->message, cause) != NULL, "%s",                        \
                      (r)->guard.err->message);                                                    \
    } while (0)

#endif
