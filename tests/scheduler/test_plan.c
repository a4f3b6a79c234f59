/* The policy, rule by rule: queues and a pool are set up by hand, and the plan is checked. */
#include <check.h>

#include "scheduler/plan_scene.h"
#include "support/suite_main.h"

START_TEST(decodes_are_first_and_a_prompt_takes_the_rest) {
    begin(100, 8, 10, 8, false);
    struct sequence *prefill = run(50, 8, 0), *a = run(9, 8, 0), *b = run(21, 20, 0);
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(a), 1);
    ck_assert_int_eq(rows_of(b), 1);
    ck_assert_int_eq(rows_of(prefill), 8);
    ck_assert_int_eq(plan.rows, 10);
    ck_assert_int_eq(plan.logit_rows, 2);
    end();
}
END_TEST

/* In a step that decodes, a prompt gets mixed_rows, and the rest of the last tile of 16 rows. */
START_TEST(prompts_do_not_hold_decodes_up) {
    begin(100, 8, 64, 8, false);
    struct sequence *prefill = run(200, 8, 0), *late = wait(90, 0);
    view.mixed_rows = 20;
    plan_make(&plan, &view); /* no sequence decodes */
    ck_assert_int_eq(rows_of(prefill), 64);
    ck_assert_int_eq(rows_of(late), -1);
    struct sequence *a = run(9, 8, 0), *b = run(21, 20, 0);
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(a) + rows_of(b), 2);
    ck_assert_int_eq(rows_of(prefill), 30);
    ck_assert_int_eq(rows_of(late), -1);
    view.mixed_rows = 1;
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(prefill), 14);
    view.max_rows = 3; /* less than a tile */
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(prefill), 1);
    end();
}
END_TEST

START_TEST(several_prompts_share_a_step) {
    begin(100, 8, 32, 8, false);
    struct sequence *a = run(20, 8, 0), *b = wait(10, 0), *c = wait(30, 0), *d = wait(5, 0);
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(a), 12);
    ck_assert_int_eq(rows_of(b), 10);
    ck_assert_int_eq(rows_of(c), 10);
    ck_assert_int_eq(rows_of(d), -1);
    end();
}
END_TEST

START_TEST(no_more_sequences_than_allowed) {
    begin(100, 3, 100, 8, false);
    struct sequence *a = run(9, 8, 0), *b = wait(4, 0), *c = wait_of(1, 4, 0), *d = wait(4, 0);
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(a), 1);
    ck_assert_int_eq(rows_of(b), 4);
    ck_assert_int_eq(rows_of(c), 4);
    ck_assert_int_eq(rows_of(d), -1);
    end();
}
END_TEST

START_TEST(waiting_go_by_priority_then_arrival) {
    begin(100, 8, 6, 8, false);
    struct sequence *late = wait(4, 1), *first = wait(4, 0), *second = wait(4, 0);
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(first), 4);
    ck_assert_int_eq(rows_of(second), 2);
    ck_assert_int_eq(rows_of(late), -1);
    end();
}
END_TEST

START_TEST(the_last_in_order_is_preempted) {
    begin(6, 8, 32, 8, false);
    struct sequence *low = run(9, 8, 1), *a = run(9, 8, 0), *b = run(9, 8, 0);
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(a), 1);
    ck_assert_int_eq(rows_of(b), 1);
    ck_assert_int_eq(rows_of(low), -1);
    ck_assert_int_eq(plan.n_kept, 2);
    end();
}
END_TEST

START_TEST(the_last_sits_out_and_keeps_its_blocks) {
    begin(5, 8, 32, 8, false);
    struct sequence *a = run(9, 8, 0), *b = run(9, 8, 0), *c = wait(1, 0);
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(a), 1);
    ck_assert_int_eq(rows_of(b), 0);
    ck_assert_int_eq(rows_of(c), -1);
    ck_assert_int_eq(plan.n_kept, 2);
    end();
}
END_TEST

START_TEST(a_decode_that_was_planned_can_still_be_preempted) {
    begin(5, 8, 32, 8, false);
    struct sequence *prompt_first = run(30, 8, 0), *decode = run(11, 10, 0);
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(decode), -1);
    ck_assert_int_eq(rows_of(prompt_first), 12);
    ck_assert_int_eq(plan.rows, 12);
    ck_assert_int_eq(plan.logit_rows, 0);
    end();
}
END_TEST

START_TEST(a_prompt_shrinks_before_it_preempts) {
    begin(5, 8, 32, 8, false);
    struct sequence *a = run(30, 8, 0), *b = run(8, 7, 0);
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(a), 4);
    ck_assert_int_eq(rows_of(b), 1);
    end();
}
END_TEST

START_TEST(an_admitted_sequence_has_room_for_all_known_tokens) {
    begin(10, 8, 16, 8, false);
    struct sequence *a = run(16, 4, 0), *b = wait(20, 0), *c = wait(1, 0);
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(a), 12);
    ck_assert_int_eq(rows_of(b), -1);
    ck_assert_int_eq(rows_of(c), -1);
    end();
    begin(11, 8, 16, 8, false);
    a = run(16, 4, 0), b = wait(20, 0);
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(a), 12);
    ck_assert_int_eq(rows_of(b), 4);
    end();
}
END_TEST

START_TEST(all_sharers_but_the_last_copy) {
    begin(20, 8, 32, 8, false);
    struct sequence *a = run(10, 9, 0), *b = make(10, 0, 1, -1);
    run_more(b, 0);
    b->n_computed = 9;
    for (int i = 0; i < a->kv.n_blocks; i++) {
        b->kv.table[b->kv.n_blocks++] = a->kv.table[i];
        block_pool_share(&pool, a->kv.table[i]);
    }
    plan_make(&plan, &view);
    ck_assert(plan.item[0].copy && !plan.item[1].copy);
    ck_assert_int_eq(plan.item[0].blocks[KV_BLOCKS], 1);
    ck_assert_int_eq(plan.item[1].blocks[KV_BLOCKS], 0);
    ck_assert_int_eq(plan.ledger[KV_BLOCKS].available, 20 - 3 - 1);
    end();
}
END_TEST

START_TEST(prompt_logprobs_take_logit_rows) {
    begin(50, 4, 40, 4, false);
    struct sequence *scored = run_more(make(20, 0, 1, 0), 0), *decode = run(9, 8, 0);
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(decode), 1);
    ck_assert_int_eq(rows_of(scored), 3);
    scored->n_scored = 10;
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(scored), 13);
    ck_assert_int_eq(plan.logit_rows, 4);
    end();
}
END_TEST

/* A prompt of an encoder that does not fit the rest of the step waits for the next one, and keeps
 * later ones waiting. */
START_TEST(whole_prompts_get_all_their_rows_or_none) {
    begin(100, 8, 64, 64, false);
    view.whole_prompts = true;
    struct sequence *a = wait(40, 0), *b = wait(25, 0), *c = wait(5, 0);
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(a), 40);
    ck_assert_int_eq(rows_of(b), -1);
    ck_assert_int_eq(rows_of(c), -1);
    view.max_rows = 65;
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(a) + rows_of(b), 65);
    ck_assert_int_eq(rows_of(c), -1);
    view.max_rows = 70;
    plan_make(&plan, &view);
    ck_assert_int_eq(plan.rows, 70);
    ck_assert_int_eq(rows_of(c), 5);
    end();
}
END_TEST

START_TEST(few_prompts_fork_in_one_step) {
    begin(50, 8, 60, 8, false);
    struct sequence *a = run_more(make(6, 0, 100, -1), 2), *b = run_more(make(6, 0, 100, -1), 2);
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(a), 4);
    ck_assert_int_eq(rows_of(b), 3);
    ck_assert_int_eq(plan.samples, 99);
    end();
}
END_TEST

START_TEST(equal_prompts_wait_for_the_first) {
    begin(50, 8, 60, 8, true);
    struct sequence *a = wait(20, 0);
    memcpy(prompt[1], prompt[0], sizeof prompt[0]);
    struct sequence *b = make(20, 0, 1, -1), *c;
    memcpy(b->tokens, a->tokens, 20 * sizeof *a->tokens);
    memcpy(b->kv.hashes, a->kv.hashes, 5 * sizeof *a->kv.hashes);
    b->state = SEQUENCE_WAITING;
    sequence_enqueue(&waiting, b);
    c = wait(8, 0);
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(a), 20);
    ck_assert_int_eq(rows_of(b), -1);
    ck_assert_int_eq(rows_of(c), 8);
    end();
}
END_TEST

/* Makes a search with two beams, each with a prompt of 5 tokens and one more. */
static void make_two_beams(struct sequence *beam[2]) {
    beam[0] = make_search(5, 0, 1, -1, 2);
    beam[1] = &beam[0]->request->sequence[1];
    beam[1]->kv.table = table[MAX - 1];
    sequence_append(beam[0], 5);
    beam[1]->n_tokens = beam[0]->n_tokens;
    beam[0]->request->beams->n_live = 2;
    beam[0]->request->beams->at[1] = 1;
}

static void run_two_beams(struct sequence *beam[2]) {
    make_two_beams(beam);
    for (int i = 0; i < 2; i++) run_more(beam[i], 5);
}

/* A search that was preempted waits until there are blocks for both beams, two for each. */
START_TEST(a_search_waits_for_the_blocks_of_all_beams) {
    for (int n_blocks = 3; n_blocks <= 4; n_blocks++) {
        struct sequence *beam[2];
        begin(n_blocks, 8, 32, 8, false);
        make_two_beams(beam);
        for (int i = 0; i < 2; i++) {
            beam[i]->state = SEQUENCE_WAITING;
            sequence_enqueue(&waiting, beam[i]);
        }
        plan_make(&plan, &view);
        ck_assert_int_eq(rows_of(beam[0]), n_blocks == 4 ? 6 : -1);
        end();
    }
}
END_TEST

/* A new search has one beam. Beams that it may get later need no blocks yet. */
START_TEST(a_new_search_waits_for_the_blocks_of_its_first_beam) {
    for (int n_blocks = 1; n_blocks <= 2; n_blocks++) {
        begin(n_blocks, 8, 32, 8, false);
        struct sequence *beam = make_search(5, 0, 1, -1, 2);
        beam->state = SEQUENCE_WAITING;
        sequence_enqueue(&waiting, beam);
        plan_make(&plan, &view);
        ck_assert_int_eq(rows_of(beam), n_blocks == 2 ? 5 : -1);
        end();
    }
}
END_TEST

/* One beam runs, and the step lacks a row for the other, whose blocks of both kinds stay promised.
 * Each beam will have three blocks; the running one holds two. */
START_TEST(blocks_stay_promised_to_a_beam_that_is_not_admitted) {
    struct sequence *beam[2];
    begin(16, 8, 1, 8, false);
    window_pool_init(&pool.windows, 16, 9, 16, B);
    make_two_beams(beam);
    run_more(beam[0], 5);
    beam[1]->state = SEQUENCE_WAITING;
    sequence_enqueue(&waiting, beam[1]);
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(beam[1]), -1);
    for (int kind = 0; kind < N_BLOCK_KINDS; kind++)
        ck_assert_int_eq(plan.ledger[kind].promised, 1 + 3);
    end();
}
END_TEST

/* A step with room for one row gives none to a search of two beams. */
START_TEST(beams_of_a_search_get_rows_together) {
    struct sequence *beam[2];
    begin(16, 8, 1, 8, false);
    run_two_beams(beam);
    for (int room = 1; room <= 2; room++) {
        view.max_rows = view.mixed_rows = room;
        plan_make(&plan, &view);
        ck_assert_int_eq(rows_of(beam[0]), room == 2);
        ck_assert_int_eq(rows_of(beam[1]), room == 2);
        ck_assert_int_eq(plan.rows, room == 2 ? 2 : 0);
    }
    end();
}
END_TEST

/* The beam that runs is computed, and the other one waits for the blocks of a later sequence, which
 * lacks a block itself. */
START_TEST(a_later_sequence_makes_room_for_a_beam_that_the_first_search_waits_for) {
    struct sequence *beam[2];
    begin(6, 8, 32, 8, false);
    make_two_beams(beam);
    run_more(beam[0], 6);
    struct sequence *later = run(17, 16, 1);
    beam[1]->state = SEQUENCE_WAITING;
    sequence_enqueue(&waiting, beam[1]);
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(later), -1);
    ck_assert_int_eq(rows_of(beam[0]), 0);
    ck_assert_int_eq(rows_of(beam[1]), 6);
    end();
}
END_TEST

/* All beams of a search are preempted together, even if the blocks of one would be enough. */
START_TEST(a_search_is_preempted_whole) {
    struct sequence *beam[2];
    begin(6, 8, 32, 8, false);
    struct sequence *urgent = run(8, 8, -1);
    sequence_append(urgent, 5);
    run_two_beams(beam);
    ck_assert_int_eq(block_pool_available(&pool), 0);
    plan_make(&plan, &view);
    ck_assert_int_eq(rows_of(urgent), 1);
    ck_assert_int_eq(rows_of(beam[0]), -1);
    ck_assert_int_eq(rows_of(beam[1]), -1);
    end();
}
END_TEST

START_TEST(a_plan_moves_nothing_and_repeats) {
    begin(7, 8, 32, 8, false);
    run(9, 8, 1), run(9, 8, 0), run(30, 8, 0), wait(9, 0);
    struct block before[8];
    struct sequence sequences[4];
    struct plan_item items[8];
    memcpy(before, pool.block, sizeof before);
    for (int i = 0; i < 4; i++) sequences[i] = made[i]->sequence[0];
    plan_make(&plan, &view);
    memcpy(items, plan.item, sizeof items);
    int n_kept = plan.n_kept, rows = plan.rows, available = plan.ledger[KV_BLOCKS].available;
    plan_make(&plan, &view);
    ck_assert(memcmp(items, plan.item, sizeof items) == 0);
    ck_assert(n_kept == plan.n_kept && rows == plan.rows &&
              available == plan.ledger[KV_BLOCKS].available);
    ck_assert(memcmp(before, pool.block, sizeof before) == 0);
    for (int i = 0; i < 4; i++)
        ck_assert(memcmp(&sequences[i], &made[i]->sequence[0], sizeof sequences[i]) == 0);
    end();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler_plan");
    TCase *core = tcase_create("core");
    tcase_add_test(core, decodes_are_first_and_a_prompt_takes_the_rest);
    tcase_add_test(core, several_prompts_share_a_step);
    tcase_add_test(core, prompts_do_not_hold_decodes_up);
    tcase_add_test(core, no_more_sequences_than_allowed);
    tcase_add_test(core, waiting_go_by_priority_then_arrival);
    tcase_add_test(core, the_last_in_order_is_preempted);
    tcase_add_test(core, the_last_sits_out_and_keeps_its_blocks);
    tcase_add_test(core, a_decode_that_was_planned_can_still_be_preempted);
    tcase_add_test(core, a_prompt_shrinks_before_it_preempts);
    tcase_add_test(core, an_admitted_sequence_has_room_for_all_known_tokens);
    tcase_add_test(core, all_sharers_but_the_last_copy);
    tcase_add_test(core, prompt_logprobs_take_logit_rows);
    tcase_add_test(core, few_prompts_fork_in_one_step);
    tcase_add_test(core, whole_prompts_get_all_their_rows_or_none);
    tcase_add_test(core, equal_prompts_wait_for_the_first);
    tcase_add_test(core, a_later_sequence_makes_room_for_a_beam_that_the_first_search_waits_for);
    tcase_add_test(core, a_search_is_preempted_whole);
    tcase_add_test(core, a_search_waits_for_the_blocks_of_all_beams);
    tcase_add_test(core, a_new_search_waits_for_the_blocks_of_its_first_beam);
    tcase_add_test(core, blocks_stay_promised_to_a_beam_that_is_not_admitted);
    tcase_add_test(core, beams_of_a_search_get_rows_together);
    tcase_add_test(core, a_plan_moves_nothing_and_repeats);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
