/* The rows of prompts and the depth of drafts in a step with an ITL target. */
#include <check.h>

#include "scheduler/plan_scene.h"
#include "support/suite_main.h"

/* A decode takes 1 ms and a prompt row 0.1 ms. With a target of 6 ms a step has time for about 40
 * prompt rows, up to the end of a tile. A step that exceeds its target still advances a prompt. */
START_TEST(prompts_get_the_rows_that_there_is_time_for) {
    struct step_cost cost;
    struct step_shape shape = {0, 100, 0};
    begin(200, 8, 256, 8, false);
    step_cost_init(&cost, true);
    struct sequence *decode = run(9, 8, 0), *a = run(200, 8, 0), *b = wait(90, 0);
    view.mixed_rows = 20;
    view.cost = &cost;
    view.itl_target_ns = 6e6f;
    plan_make(&plan, &view); /* the time of prompt rows is not known */
    ck_assert_int_eq(rows_of(a), 31);
    step_cost_note(&cost, 1, 1000000);
    for (int i = 0; i < 200; i++) step_cost_note_prefill(&cost, &shape, 11000000);
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(decode), 1);
    ck_assert_int_eq(rows_of(a), 31);
    ck_assert_int_eq(rows_of(b), -1);
    view.itl_target_ns = 8e6f;
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(a), 47);
    ck_assert_int_eq(plan.shape.decode_rows, 1);
    ck_assert_int_eq(plan.shape.prefill_rows, 47);
    ck_assert_double_eq_tol(plan.shape.pairs, 47 * (8 + 23.5), 1e-9);
    view.itl_target_ns = 1;
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(a), 15);
    list_remove(&running, &decode->node); /* no sequence decodes: the target does not apply */
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(a), 192);
    ck_assert_int_eq(rows_of(b), 64);
    sequence_enqueue(&running, decode);
    end();
}
END_TEST

/* Without a target a step takes twice the time of its decodes. With more prompts than decodes, the
 * prompts get more: two prompts and one decode take three times the decode. Times are quantiles. */
START_TEST(an_automatic_target_follows_the_decodes_and_the_prompts) {
    struct step_cost cost;
    const struct step_shape shape = {0, 100, 0};
    begin(200, 3, 256, 8, false);
    step_cost_init(&cost, true);
    step_cost_note(&cost, 1, 4000000);
    struct sequence *decode = run(9, 8, 0), *a = run(200, 8, 0);
    view.mixed_rows = 20;
    view.cost = &cost;
    view.itl_auto = true;
    plan_make(&plan, &view); /* the time of prompt rows is not known */
    ck_assert_float_eq(plan_itl_target(&plan), 0);
    ck_assert_int_eq(rows_of(a), 31);
    for (int i = 0; i < 200; i++) step_cost_note_prefill(&cost, &shape, 14000000);
    const double slow = cost.prefill.quantile_99;
    plan_make(&plan, &view);
    ck_assert_double_eq_tol(plan_itl_target(&plan), 8e6 * slow, 1);
    ck_assert_int_eq(rows_of(a), 31); /* 4 ms for rows of 0.1 ms */
    struct sequence *b = wait(90, 0);
    plan_make(&plan, &view);
    ck_assert_double_eq_tol(plan_itl_target(&plan), 12e6 * slow, 1);
    ck_assert_int_eq(rows_of(a), 79);
    wait(90, 0); /* three sequences fill the batch */
    plan_make(&plan, &view);
    ck_assert_double_eq_tol(plan_itl_target(&plan), 12e6 * slow, 1);
    b->request->generation->max_tokens = 0;
    b->request->generation->hidden = HIDDEN_LAST;
    plan_make(&plan, &view); /* a prompt that is only read does not lengthen the step */
    ck_assert_double_eq_tol(plan_itl_target(&plan), 8e6 * slow, 1);
    a->request->generation->max_tokens = 0;
    a->request->generation->hidden = HIDDEN_LAST;
    plan_make(&plan, &view); /* no stream waits for the prompts */
    ck_assert_double_eq_tol(plan_itl_target(&plan), 6e6 * slow, 1);
    list_remove(&running, &decode->node);
    plan_make(&plan, &view); /* no sequence decodes */
    ck_assert_float_eq(plan_itl_target(&plan), 0);
    ck_assert_int_eq(rows_of(a), 192);
    sequence_enqueue(&running, decode);
    end();
}
END_TEST

/* The next prompts get the time that the first ones leave. Then only the tile is filled. */
START_TEST(prompts_share_the_time) {
    struct step_cost cost;
    struct step_shape shape = {0, 100, 0};
    begin(200, 8, 256, 8, false);
    step_cost_init(&cost, true);
    step_cost_note(&cost, 1, 1000000);
    for (int i = 0; i < 200; i++) step_cost_note_prefill(&cost, &shape, 11000000);
    run(9, 8, 0);
    struct sequence *a = run(30, 8, 0), *b = run(24, 8, 0), *late = wait(90, 0);
    view.cost = &cost;
    view.itl_target_ns = 8e6f;
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(a), 22);
    ck_assert_int_eq(rows_of(b), 16);
    ck_assert_int_eq(rows_of(late), 9);
    end();
}
END_TEST

/* Returns the estimated time of a step of this shape, if attention costs nothing. */
static double expected_ns(const struct step_cost *cost, const struct step_shape *shape) {
    return step_cost_ns(cost, shape->decode_rows) + shape->prefill_rows * cost->prefill.per_row;
}

static int up_to_tile(int rows, int tile) {
    return (rows + tile - 1) / tile * tile;
}

/* For any machine, tile, decodes and target: the first prompt gets rows in each step, so that it
 * does not starve. Apart from rows that fill the tile, the step has time for all its rows. If a
 * prompt needs more rows, the time left is less than that of a tile. */
START_TEST(no_prompt_starves_and_none_takes_more_than_the_time) {
    int n_late = 0, n_in_time = 0;
    for (int i = 0; i < 600; i++) {
        struct step_cost cost;
        int n_decodes = 1 + i % 12, tile = 1 << i / 12 % 6;
        begin(2000, MAX, 512, MAX, false);
        step_cost_init(&cost, i % 2);
        step_cost_note(&cost, n_decodes, 1000000);
        cost.prefill.known = true;
        cost.prefill.per_row = 1000 * (1 + i % 97);
        cost.prefill.quantile_99 = 1 + i % 5 * 0.2;
        view.row_quantum = tile;
        view.cost = &cost;
        view.itl_target_ns = (float)(i % 7) * 1e6f + 1;
        for (int k = 0; k < n_decodes; k++) run(9, 8, 0);
        struct sequence *first = run(200, 4, 0);
        wait(150, 0);
        plan_make(&plan, &view);
        const int rows = plan.shape.prefill_rows, filled = up_to_tile(n_decodes + 1, tile);
        ck_assert_int_eq(plan.shape.decode_rows, n_decodes);
        ck_assert_int_ge(rows_of(first), 1);
        double left =
            view.itl_target_ns / cost.prefill.quantile_99 - expected_ns(&cost, &plan.shape);
        bool late = left < 0;
        if (late) ck_assert_int_le(n_decodes + rows, filled);
        if (rows < 196 + 150) ck_assert_double_lt(left, (tile + 1) * cost.prefill.per_row);
        n_late += late, n_in_time += !late;
        end();
    }
    ck_assert(n_late > 50 && n_in_time > 50);
}
END_TEST

/* The depth of drafts is limited by the target. With costs that rise so little, each likely draft
 * is worth its row. */
START_TEST(drafts_are_as_deep_as_the_target_allows) {
    enum { DEPTH = 12 };
    for (int n = 1; n <= 3; n++) {
        for (int allowed = 0; allowed <= n * (DEPTH + 1); allowed++) {
            struct step_cost cost;
            begin(100, 8, 64, 64, false);
            step_cost_init(&cost, false);
            step_cost_note(&cost, n, 1000000);
            view.cost = &cost;
            view.drafts = true;
            view.itl_target_ns = allowed > 0 ? step_cost_ns(&cost, allowed) : 1;
            for (int k = 0; k < n; k++) {
                struct sequence *sequence = run(9, 8, 0);
                sequence->drafts.n_proposed = DEPTH;
                for (int m = 0; m <= MAX_DRAFT_MATCH; m++) sequence->drafts.chance[m] = 0.99f;
            }
            plan_make(&plan, &view);
            ck_assert_int_eq(plan.rows, max_int(allowed, n));
            end();
        }
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler_plan_time");
    TCase *core = tcase_create("core");
    tcase_add_test(core, prompts_get_the_rows_that_there_is_time_for);
    tcase_add_test(core, an_automatic_target_follows_the_decodes_and_the_prompts);
    tcase_add_test(core, prompts_share_the_time);
    tcase_add_test(core, no_prompt_starves_and_none_takes_more_than_the_time);
    tcase_add_test(core, drafts_are_as_deep_as_the_target_allows);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
