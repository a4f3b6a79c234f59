/* The policy among shares: whose waiting sequence is next, and how running prompts share rows. */
#include <check.h>

#include "scheduler/plan_scene.h"
#include "support/suite_main.h"

/* The share with the least service is next, whatever arrived first. */
START_TEST(the_share_with_the_least_service_is_next) {
    begin(100, 1, 64, 8, false);
    share[0].service = share_cost(&share[0], 11);
    share[1].service = share_cost(&share[1], 10);
    share[2].service = share_cost(&share[2], 12);
    struct sequence *a = wait_of(0, 8, 0), *b = wait_of(1, 8, 0), *c = wait_of(2, 8, 0);
    struct sequence *late = wait_of(1, 8, 0);
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(b), 8);
    ck_assert_int_eq(rows_of(a) + rows_of(c) + rows_of(late), -3);
    share[1].service = share_cost(&share[1], 11); /* equal: the first that arrived */
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(a), 8);
    struct sequence *urgent = wait_of(2, 8, -1); /* priority comes before shares */
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(urgent), 8);
    end();
}
END_TEST

static struct sequence *run_of(int who, int n_prompt, int n_computed) {
    struct sequence *sequence = run(n_prompt, n_computed, 0);
    sequence->request->share = who;
    sequence->request->queued = false;
    return sequence;
}

/* Among shares with equal service, the one with fewer running sequences is next. */
START_TEST(a_share_that_runs_less_is_next) {
    begin(100, 8, 20, 8, false);
    run_of(0, 9, 8);
    struct sequence *more = wait_of(0, 40, 0), *other = wait_of(1, 8, 0);
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(other), 8);
    ck_assert_int_eq(rows_of(more), 11);
    end();
}
END_TEST

/* The first running prompts of all shares get rows before the second ones. */
START_TEST(prompts_of_shares_take_turns) {
    begin(100, 8, 40, 8, false);
    struct sequence *a = run_of(0, 60, 30), *b = run_of(0, 90, 8), *other = run_of(1, 14, 4);
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(a), 30);
    ck_assert_int_eq(rows_of(other), 10);
    ck_assert_int_eq(rows_of(b), 0);
    a->n_computed = 55;
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(a), 5);
    ck_assert_int_eq(rows_of(other), 10);
    ck_assert_int_eq(rows_of(b), 25);
    b->request->priority = -1; /* comes first */
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(b), 40);
    end();
}
END_TEST

/* A long prompt leaves rows to the first prompt of another share, at least until that runs. */
START_TEST(a_long_prompt_leaves_rows_to_another_share) {
    begin(100, 8, 64, 8, false);
    struct sequence *first = run_of(0, 9, 8), *along = run_of(0, 200, 8),
                    *other = wait_of(1, 20, 0);
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(first), 1);
    ck_assert_int_eq(rows_of(along), 43);
    ck_assert_int_eq(rows_of(other), 20);
    share[1].service = 1; /* its own share's next prompt has the turn: nothing is left to that */
    struct sequence *next = wait_of(0, 20, 0);
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(along), 63);
    ck_assert_int_eq(rows_of(next) + rows_of(other), -2);
    end();
}
END_TEST

/* A running prompt gets a tile, whatever waits; the first of its share leaves nothing. */
START_TEST(a_long_prompt_gets_a_tile) {
    begin(100, 8, 64, 8, false);
    struct sequence *first = run_of(0, 9, 8), *along = run_of(0, 200, 8),
                    *other = wait_of(1, 90, 0);
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(first), 1);
    ck_assert_int_eq(rows_of(along), 16);
    ck_assert_int_eq(rows_of(other), 47);
    first->request->share = 2;
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(along), 63);
    ck_assert_int_eq(rows_of(other), -1);
    end();
}
END_TEST

/* A waiting prompt without room for its blocks leaves the rows to the running one. */
START_TEST(rows_that_nobody_takes_return) {
    begin(56, 8, 64, 8, false);
    struct sequence *first = run_of(0, 9, 8), *along = run_of(0, 200, 8),
                    *other = wait_of(1, 90, 0);
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(first), 1);
    ck_assert_int_eq(rows_of(along), 63);
    ck_assert_int_eq(rows_of(other), -1);
    end();
}
END_TEST

/* Rows are left only to a sequence that the step may admit. */
START_TEST(a_full_batch_leaves_no_rows) {
    begin(100, 2, 64, 8, false);
    struct sequence *first = run_of(0, 9, 8), *along = run_of(0, 200, 8);
    wait_of(1, 20, 0);
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(first), 1);
    ck_assert_int_eq(rows_of(along), 63);
    end();
}
END_TEST

START_TEST(whole_prompts_are_not_divided) {
    begin(100, 8, 60, 8, false);
    view.whole_prompts = true;
    struct sequence *first = run_of(0, 20, 0), *along = run_of(0, 30, 0),
                    *other = wait_of(1, 20, 0);
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(first), 20);
    ck_assert_int_eq(rows_of(along), 30);
    ck_assert_int_eq(rows_of(other), -1);
    end();
}
END_TEST

/* A share leaves a place in the batch to the others, even if only its own sequences wait. Another
 * share gets that place at once. */
START_TEST(no_share_fills_the_batch) {
    begin(100, 3, 64, 8, false);
    struct sequence *a = run(9, 8, 0), *b = wait_of(0, 4, 0), *c = wait_of(0, 4, 0);
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(a), 1);
    ck_assert_int_eq(rows_of(b), 4);
    ck_assert_int_eq(rows_of(c), -1);
    struct sequence *other = wait_of(2, 6, 1); /* even with a worse priority */
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(c), -1);
    ck_assert_int_eq(rows_of(other), 6);
    end();
}
END_TEST

/* A search that lacks batch rows is not overtaken by later sequences of its share. */
START_TEST(a_search_keeps_its_place) {
    begin(100, 4, 64, 8, false);
    run(9, 8, 0), run(9, 8, 0);
    struct sequence *search = wait_of(0, 4, 0), *later = wait_of(0, 4, 0),
                    *other = wait_of(1, 4, 0);
    search->request->beams = (void *)search; /* the plan does not read it */
    search->request->n = 3;
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(search), -1);
    ck_assert_int_eq(rows_of(later), -1);
    ck_assert_int_eq(rows_of(other), 4);
    search->request->beams = NULL;
    search->request->n = 1;
    end();
}
END_TEST

/* A prompt that a plan admits counts for the next one, at the share's weight. */
START_TEST(admitted_prompts_take_turns) {
    begin(100, 4, 200, 8, false);
    struct sequence *a[4], *b[4];
    for (int i = 0; i < 4; i++) a[i] = wait_of(0, 10, 0);
    for (int i = 0; i < 4; i++) b[i] = wait_of(1, 10, 0);
    plan_make(&plan, &view);
    for (int i = 0; i < 4; i++) ck_assert_int_eq(rows_of(a[i]) + rows_of(b[i]), i < 2 ? 20 : -2);
    share[1].weight = 3;
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(a[0]) + rows_of(b[0]) + rows_of(b[1]) + rows_of(b[2]), 40);
    ck_assert_int_eq(rows_of(a[1]) + rows_of(b[3]), -2);
    end();
}
END_TEST

/* If the next one lacks room, none of another share passes it. */
START_TEST(a_turn_is_kept_until_there_is_room) {
    begin(7, 4, 200, 8, false);
    struct sequence *large = wait_of(0, 90, 0), *small = wait_of(1, 4, 0);
    share[1].service = 1;
    run(9, 8, 0);
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(large) + rows_of(small), -2);
    share[0].service = 2;
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(small), 4);
    ck_assert_int_eq(rows_of(large), -1);
    end();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler_plan_shares");
    TCase *core = tcase_create("core");
    tcase_add_test(core, the_share_with_the_least_service_is_next);
    tcase_add_test(core, a_share_that_runs_less_is_next);
    tcase_add_test(core, prompts_of_shares_take_turns);
    tcase_add_test(core, a_long_prompt_leaves_rows_to_another_share);
    tcase_add_test(core, a_long_prompt_gets_a_tile);
    tcase_add_test(core, rows_that_nobody_takes_return);
    tcase_add_test(core, a_full_batch_leaves_no_rows);
    tcase_add_test(core, whole_prompts_are_not_divided);
    tcase_add_test(core, no_share_fills_the_batch);
    tcase_add_test(core, a_search_keeps_its_place);
    tcase_add_test(core, admitted_prompts_take_turns);
    tcase_add_test(core, a_turn_is_kept_until_there_is_room);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
