/* The limit on thoughts: its state after each token of an output. */
#include <check.h>
#include <string.h>

#include "scheduler/sequence/thoughts.h"
#include "support/suite_main.h"

/* The ids are indices of these texts. */
static const char *const texts[] = {"<think>", "</think>", "\n\n", "a", "b",       "</",
                                    "think",   ">\n",      " ",    "<", "<thinks>"};

static const int32_t forced[] = {1, 2};

static const char *text_of(const void *arg, int32_t id, size_t *length) {
    (void)arg;
    *length = strlen(texts[id]);
    return texts[id];
}

static struct thought_limit limit_of(int max_tokens) {
    return (struct thought_limit){.is_set = true,
                                  .max_tokens = max_tokens,
                                  .begin = "<think>",
                                  .end = "</think>",
                                  .forced = forced,
                                  .n_forced = 2,
                                  .text_of = text_of};
}

/* Returns the number of the output's tokens, which a -1 ends, before a token is forced; -1 if none
 * is. */
static int forced_after(const struct thought_limit *limit, const int32_t *output) {
    struct thoughts thoughts = thoughts_first(limit);
    for (int i = 0;; i++) {
        if (thoughts_next(&thoughts, limit) >= 0) return i;
        if (output[i] < 0) return -1;
        thoughts_take(&thoughts, limit, output[i]);
    }
}

static const struct {
    int max_tokens;
    bool is_open, is_behind, may_return;
    int32_t output[12];
    int after;
} rows[] = {
    {2, false, false, false, {0, 3, 4, 3, -1}, 3},
    {2, true, false, false, {3, 4, 3, -1}, 2},
    {0, true, false, false, {3, -1}, 0},
    {0, false, false, false, {0, 3, -1}, 1},
    {2, true, true, false, {3, 4, 3, -1}, 2},          /* a continued message with an open block */
    {2, false, true, false, {0, 3, 4, 3, -1}, -1},     /* the prompt ends after a block */
    {2, false, false, false, {8, 2, 0, 3, 4, -1}, 5},  /* after white space */
    {2, false, false, false, {3, 0, 3, 4, 3, -1}, -1}, /* not at the start: text */
    {2, false, false, false, {9, 0, 3, 4, 3, -1}, -1},
    {2, false, false, false, {10, 3, 4, 3, -1}, -1}, /* a longer word */
    {2, false, false, true, {3, 0, 3, 4, 3, -1}, 4},
    {3, true, false, false, {3, 1, 3, 4, 3, 4, -1}, -1},     /* they end before the limit */
    {4, true, false, false, {3, 5, 6, 7, 3, 4, -1}, -1},     /* a marker of several tokens */
    {4, true, false, true, {3, 1, 0, 3, 1, 0, 3, 4, -1}, 8}, /* three blocks count together */
};

START_TEST(a_token_is_forced_after_the_limit) {
    struct thought_limit limit = limit_of(rows[_i].max_tokens);
    limit.is_open = rows[_i].is_open;
    limit.is_behind = rows[_i].is_behind;
    limit.may_return = rows[_i].may_return;
    ck_assert_int_eq(forced_after(&limit, rows[_i].output), rows[_i].after);
}
END_TEST

START_TEST(all_tokens_of_the_end_are_forced_and_then_none) {
    struct thought_limit limit = limit_of(1);
    limit.is_open = true;
    struct thoughts thoughts = thoughts_first(&limit);
    thoughts_take(&thoughts, &limit, 3);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(thoughts_next(&thoughts, &limit), forced[i]);
        thoughts_take(&thoughts, &limit, forced[i]);
    }
    for (int i = 0; i < 9; i++) {
        ck_assert_int_eq(thoughts_next(&thoughts, &limit), -1);
        thoughts_take(&thoughts, &limit, i % 2 ? 0 : 3);
    }
}
END_TEST

/* A grammar did not allow it. */
START_TEST(another_token_than_the_forced_one_ends_the_forcing) {
    struct thought_limit limit = limit_of(0);
    limit.is_open = true;
    struct thoughts thoughts = thoughts_first(&limit);
    thoughts_take(&thoughts, &limit, 1);
    thoughts_take(&thoughts, &limit, 3);
    ck_assert_int_eq(thoughts.state, THOUGHTS_OVER);
    ck_assert_int_eq(thoughts_next(&thoughts, &limit), -1);
}
END_TEST

/* A row is planned before its token is known only if no token can be forced until then. */
START_TEST(a_token_that_may_be_forced_is_foreseen) {
    for (int n = 1; n < 4; n++) {
        struct thought_limit limit = limit_of(3);
        limit.is_open = true;
        struct thoughts thoughts = thoughts_first(&limit);
        ck_assert_int_eq(thoughts_may_force(&thoughts, &limit, n), n >= 3);
        limit.is_open = false;
        thoughts = thoughts_first(&limit);
        ck_assert(!thoughts_may_force(&thoughts, &limit, n));
        ck_assert(thoughts_may_force(&thoughts, &limit, 4));
    }
}
END_TEST

START_TEST(without_a_limit_nothing_is_forced) {
    struct thought_limit limit = {0};
    struct thoughts thoughts = thoughts_first(&limit);
    thoughts_take(&thoughts, &limit, 0);
    ck_assert_int_eq(thoughts_next(&thoughts, &limit), -1);
    ck_assert(!thoughts_may_force(&thoughts, &limit, 5));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler/thoughts");
    TCase *core = tcase_create("core");
    tcase_add_loop_test(core, a_token_is_forced_after_the_limit, 0, sizeof rows / sizeof *rows);
    tcase_add_test(core, all_tokens_of_the_end_are_forced_and_then_none);
    tcase_add_test(core, another_token_than_the_forced_one_ends_the_forcing);
    tcase_add_test(core, a_token_that_may_be_forced_is_foreseen);
    tcase_add_test(core, without_a_limit_nothing_is_forced);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
