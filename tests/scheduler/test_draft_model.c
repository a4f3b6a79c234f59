/* A draft model: the rows of its passes and the use of its blocks. The model is a fake engine, so
 * each draft that is not spoilt must be accepted: a refused one reveals a wrong row, slot or
 * table. test_simulation.c and test_same_bytes.c show that drafts change no byte. */
#include <check.h>

#include "support/draft_world.h"
#include "support/suite_main.h"

/* ---- passes --------------------------------------------------------------------------------- */

/* The prompt's step yields one token, each later step 1 + k; k passes draft for it. If all drafts
 * of a step were accepted, the last one has no row yet, so the next first pass computes two. */
START_TEST(a_model_that_is_right_saves_steps) {
    int k = _i;
    struct world *w = world_new(&ample, k, 200);
    world_ask(w, 0, 9, 1 + 10 * (k + 1));
    world_submit(w, 0);
    fake_run(w->scheduler);
    ck_assert_int_eq(w->n_ended, 1);
    ck_assert_uint_eq(w->engine->n_steps, 1 + 10);
    ck_assert_uint_eq(world_stats(w)->draft_tokens, 10 * (uint64_t)k);
    ck_assert_uint_eq(world_stats(w)->accepted_tokens, 10 * (uint64_t)k);
    ck_assert_uint_eq(w->draft.engine->n_steps, 10 * (uint64_t)k);
    ck_assert_uint_eq(w->draft.engine->n_rows, 10 + (uint64_t)(k - 1) + 9 * (uint64_t)(k + 1));
    world_free(w);
}
END_TEST

/* No row is computed twice, except the rows of refused drafts. */
START_TEST(a_model_that_is_wrong_computes_a_row_a_draft) {
    struct world *w = world_new(&ample, 5, 200);
    w->draft.wrong = 100;
    world_ask(w, 0, 9, 31);
    world_submit(w, 0);
    fake_run(w->scheduler);
    ck_assert_uint_eq(w->engine->n_steps, 31);
    ck_assert_uint_eq(world_stats(w)->accepted_tokens, 0);
    uint64_t drafts = world_stats(w)->draft_tokens;
    ck_assert_uint_eq(w->draft.n_drafts, drafts);
    ck_assert_uint_eq(w->draft.engine->n_rows, 9 + drafts);
    world_free(w);
}
END_TEST

/* After any number of accepted drafts, the next drafts are right again. */
START_TEST(accepted_rows_are_kept_and_others_recomputed) {
    struct world *w = world_new(&ample, 6, 200);
    w->draft.random = (uint64_t)_i;
    w->draft.wrong = 30;
    world_ask(w, 0, 9, 300);
    world_submit(w, 0);
    for (int i = 0; i < 25; i++) fake_step(w->scheduler);
    w->draft.wrong = 0;
    fake_step(w->scheduler);
    uint64_t drafts = world_stats(w)->draft_tokens, held = world_stats(w)->accepted_tokens;
    ck_assert_uint_gt(drafts, held);
    for (int i = 0; i < 5; i++) fake_step(w->scheduler);
    ck_assert_uint_eq(world_stats(w)->draft_tokens - drafts, 5 * 6);
    ck_assert_uint_eq(world_stats(w)->accepted_tokens - held, 5 * 6);
    fake_run(w->scheduler);
    world_free(w);
}
END_TEST

/* If several tokens follow a refused draft, its row and the later rows do not belong to them. */
START_TEST(drafts_from_before_a_rest_are_not_kept) {
    struct world *w = world_new(&ample, 6, 200);
    w->draft.wrong = 100;
    world_ask(w, 0, 9, 60);
    world_submit(w, 0);
    for (int i = 0; i < 2; i++) fake_step(w->scheduler);
    struct sequence *sequence = sequence_of(w->scheduler->running.head.next);
    uint64_t drafts = world_stats(w)->draft_tokens;
    ck_assert_uint_eq(drafts, 6);
    sequence->request->max_drafts = 0; /* the draft model skips it */
    for (int i = 0; i < 4; i++) fake_step(w->scheduler);
    sequence->request->max_drafts = 6;
    w->draft.wrong = 0;
    fake_run(w->scheduler);
    ck_assert_uint_gt(world_stats(w)->draft_tokens, drafts + 30);
    ck_assert_uint_eq(world_stats(w)->accepted_tokens, world_stats(w)->draft_tokens - drafts);
    world_free(w);
}
END_TEST

/* The step has logit rows for only one of three drafts. If the others turn out right without
 * verification, the row of the last token is still computed again, for its logits. */
START_TEST(drafts_that_no_step_verified_do_no_harm) {
    struct world *w = world_new(&ample, 3, 200);
    w->scheduler->config.max_logit_rows = 2;
    world_ask(w, 0, 9, 1 + 10 * 2);
    world_submit(w, 0);
    fake_run(w->scheduler);
    ck_assert_uint_eq(w->engine->n_steps, 1 + 10);
    ck_assert_uint_eq(world_stats(w)->draft_tokens, 10);
    ck_assert_uint_eq(world_stats(w)->accepted_tokens, 10);
    world_free(w);
}
END_TEST

START_TEST(sequences_share_its_passes) {
    struct world *w = world_new(&ample, 3, 300);
    for (int k = 0; k < 4; k++) {
        world_ask(w, k, 9 + k, 1 + 10 * 4);
        world_submit(w, k);
    }
    fake_run(w->scheduler);
    ck_assert_int_eq(w->n_ended, 4);
    ck_assert_uint_eq(w->engine->n_steps, 1 + 10);
    ck_assert_uint_eq(w->draft.engine->n_steps, 10 * 3);
    ck_assert_int_eq(w->draft.engine->most_seqs, 4);
    ck_assert_uint_eq(world_stats(w)->accepted_tokens, 4 * 10 * 3);
    world_free(w);
}
END_TEST

/* Drafts are drawn with the same random numbers, also for several choices. */
START_TEST(draws_have_the_numbers_of_their_positions) {
    struct world *w = world_new(&ample, 3, 300);
    struct generation *g = world_ask(w, 0, 9, 1 + 5 * 4);
    g->n = 3;
    g->sampling.seed = 4711;
    g->min_tokens = 7;
    g->n_stop_ids = 2;
    g->stop_ids[0] = 3;
    g->stop_ids[1] = 5;
    world_submit(w, 0);
    /* one step of the prompt, two of four tokens */
    for (int i = 0; i < 3; i++) fake_step(w->scheduler);
    ck_assert_uint_eq(world_stats(w)->draft_tokens, 3 * 2 * 3);
    /* among the first seven tokens, six */
    ck_assert_uint_ge(world_stats(w)->accepted_tokens, 3 * 5);
    fake_run(w->scheduler);
    world_free(w);
}
END_TEST

/* A prompt that is longer than a pass is computed in parts, one per step. */
START_TEST(a_long_prompt_is_computed_in_parts) {
    struct draft_room room = ample;
    room.max_rows = 16;
    struct world *w = world_new(&room, 3, 200);
    world_ask(w, 0, 60, 40);
    world_submit(w, 0);
    fake_step(w->scheduler); /* the prompt, and one token */
    for (int i = 0; i < 3; i++) {
        fake_step(w->scheduler);
        ck_assert_uint_eq(world_stats(w)->draft_tokens, 0);
        ck_assert_uint_eq(w->draft.engine->n_rows, 16 * (uint64_t)(i + 1));
    }
    fake_step(w->scheduler); /* 64 tokens are known, 48 are computed */
    ck_assert_uint_eq(world_stats(w)->draft_tokens, 3);
    fake_run(w->scheduler);
    ck_assert_uint_eq(world_stats(w)->accepted_tokens, world_stats(w)->draft_tokens);
    world_free(w);
}
END_TEST

/* The long prompt, which is first in the order, gets the rows of a pass that the other leaves. */
START_TEST(a_sequence_that_catches_up_delays_no_other) {
    struct draft_room room = ample;
    room.max_rows = 8;
    struct world *w = world_new(&room, 2, 200);
    world_ask(w, 1, 3, 60);
    world_submit(w, 1);
    for (int i = 0; i < 3; i++) fake_step(w->scheduler);
    world_ask(w, 0, 60, 20)->priority = -1; /* it precedes the other */
    world_submit(w, 0);
    while (w->client[0].choice[0].n_output == 0) fake_step(w->scheduler);
    uint64_t drafts = world_stats(w)->draft_tokens;
    for (int i = 0; i < 4; i++) fake_step(w->scheduler);
    ck_assert_uint_eq(world_stats(w)->draft_tokens, drafts + 4 * 2);
    fake_run(w->scheduler);
    ck_assert_uint_eq(world_stats(w)->accepted_tokens, world_stats(w)->draft_tokens);
    world_free(w);
}
END_TEST

/* ---- preempted, found, ended ---------------------------------------------------------------- */

/* There are blocks for one sequence of full length and little more. The second one is preempted,
 * starts again without its blocks, and drafts as before. */
START_TEST(drafts_are_right_after_preemption) {
    struct world *w = world_new(&ample, 4, 30);
    for (int k = 0; k < 2; k++) {
        world_ask(w, k, 30, 60);
        world_submit(w, k);
    }
    fake_run(w->scheduler);
    ck_assert_int_eq(w->n_ended, 2);
    ck_assert_uint_gt(world_stats(w)->preemptions, 0);
    ck_assert_uint_gt(world_stats(w)->accepted_tokens, 20);
    ck_assert_uint_eq(world_stats(w)->accepted_tokens, world_stats(w)->draft_tokens);
    world_free(w);
}
END_TEST

/* The prefix cache saves the main model a prompt, but not the draft model. */
START_TEST(drafts_are_right_after_a_cached_prefix) {
    struct world *w = world_new(&ample, 4, 200);
    world_ask(w, 0, 40, 11);
    world_submit(w, 0);
    fake_run(w->scheduler);
    uint64_t drafts = world_stats(w)->draft_tokens;
    world_ask(w, 1, 40, 11);
    for (int i = 0; i < 40; i++) w->client[1].prompt[i] = i % FAKE_V;
    world_submit(w, 1);
    fake_run(w->scheduler);
    ck_assert_uint_gt(world_stats(w)->prefix_hits, 0);
    ck_assert_uint_eq(world_stats(w)->draft_tokens, 2 * drafts);
    ck_assert_uint_eq(world_stats(w)->accepted_tokens, 2 * drafts);
    world_free(w);
}
END_TEST

START_TEST(a_cancelled_sequence_gives_its_blocks_back) {
    struct draft_room room = ample;
    room.n_blocks = 12; /* for one sequence */
    struct world *w = world_new(&room, 4, 200);
    for (int k = 0; k < 2; k++) world_ask(w, k, 20, 20);
    world_submit(w, 0);
    for (int i = 0; i < 2; i++) fake_step(w->scheduler);
    atomic_store(&w->client[0].generation.cancelled, true);
    fake_run(w->scheduler);
    uint64_t drafts = world_stats(w)->draft_tokens;
    world_submit(w, 1);
    fake_run(w->scheduler);
    ck_assert_uint_gt(world_stats(w)->draft_tokens, drafts + 10);
    ck_assert_uint_eq(world_stats(w)->accepted_tokens, world_stats(w)->draft_tokens);
    world_free(w);
}
END_TEST

/* ---- room ----------------------------------------------------------------------------------- */

/* The first in the order gets the blocks. The other has drafts after the first has ended. */
START_TEST(without_room_there_are_no_drafts) {
    struct draft_room room = ample;
    room.n_blocks = 13; /* 52 tokens */
    struct world *w = world_new(&room, 3, 200);
    for (int k = 0; k < 2; k++) {
        world_ask(w, k, 30, k == 0 ? 21 : 20);
        world_submit(w, k);
    }
    while (!w->client[0].done) {
        int before = w->client[1].choice[0].n_output;
        fake_step(w->scheduler);
        ck_assert_int_le(w->client[1].choice[0].n_output, before + 1);
    }
    ck_assert_uint_eq(world_stats(w)->draft_tokens, 5 * 3);
    fake_run(w->scheduler);
    ck_assert_uint_gt(world_stats(w)->draft_tokens, 5 * 3 + 6);
    ck_assert_uint_eq(world_stats(w)->accepted_tokens, world_stats(w)->draft_tokens);
    world_free(w);
}
END_TEST

/* There are blocks for both at first. When they grow, the later one loses its blocks. */
START_TEST(the_last_in_order_loses_its_blocks) {
    struct draft_room room = ample;
    room.n_blocks = 10; /* 40 tokens */
    struct world *w = world_new(&room, 3, 200);
    for (int k = 0; k < 2; k++) {
        world_ask(w, k, 9, 25);
        world_submit(w, k);
    }
    for (int i = 0; i < 3; i++) fake_step(w->scheduler);
    ck_assert_uint_eq(world_stats(w)->draft_tokens, 2 * 2 * 3); /* for both */
    while (!w->client[0].done) fake_step(w->scheduler);
    ck_assert_uint_eq(w->engine->n_steps, 1 + 24 / 4); /* the first never lacked blocks */
    fake_run(w->scheduler);
    ck_assert_uint_eq(world_stats(w)->accepted_tokens, world_stats(w)->draft_tokens);
    world_free(w);
}
END_TEST

START_TEST(a_sequence_that_can_never_fit_takes_no_blocks) {
    struct draft_room room = ample;
    room.n_blocks = 10; /* 40 tokens */
    struct world *w = world_new(&room, 3, 200);
    world_ask(w, 0, 50, 20);
    world_ask(w, 1, 9, 21);
    for (int k = 0; k < 2; k++) world_submit(w, k);
    while (!w->client[1].done) fake_step(w->scheduler);
    ck_assert_uint_eq(world_stats(w)->draft_tokens, 5 * 3);
    ck_assert_uint_eq(w->engine->n_steps, 1 + 5);
    fake_run(w->scheduler);
    world_free(w);
}
END_TEST

/* A sequence without drafts keeps its blocks until another one needs them. */
START_TEST(the_longest_unused_sequence_loses_its_blocks) {
    struct draft_room room = ample;
    room.n_blocks = 20; /* 80 tokens */
    struct world *w = world_new(&room, 3, 100);
    for (int k = 0; k < 2; k++) world_ask(w, k, 40, k == 0 ? 80 : 20);
    world_submit(w, 0);
    for (int i = 0; i < 2; i++) fake_step(w->scheduler);
    struct sequence *first = sequence_of(w->scheduler->running.head.next);
    first->request->max_drafts = 0; /* the draft model skips it */
    uint64_t drafts = world_stats(w)->draft_tokens;
    world_submit(w, 1);
    while (!w->client[1].done) fake_step(w->scheduler);
    ck_assert_uint_gt(world_stats(w)->draft_tokens, drafts + 9);
    first->request->max_drafts = 3;
    drafts = world_stats(w)->draft_tokens;
    fake_step(w->scheduler);
    /* its lost blocks were recomputed */
    ck_assert_uint_eq(world_stats(w)->draft_tokens, drafts + 3);
    fake_run(w->scheduler);
    ck_assert_uint_eq(world_stats(w)->accepted_tokens, world_stats(w)->draft_tokens);
    world_free(w);
}
END_TEST

START_TEST(drafts_end_at_the_draft_model_s_length) {
    struct draft_room room = ample;
    room.max_tokens = 32;
    struct world *w = world_new(&room, 4, 200);
    world_ask(w, 0, 20, 60);
    world_submit(w, 0);
    fake_run(w->scheduler);
    /* the prompt's step yields one token; then 26, 31, 33 are known; then one more per step */
    ck_assert_uint_eq(world_stats(w)->draft_tokens, 4 + 4 + 1);
    ck_assert_uint_eq(world_stats(w)->accepted_tokens, 4 + 4 + 1);
    ck_assert_uint_eq(w->engine->n_steps, 1 + 3 + 47);
    world_free(w);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler_draft_model");
    TCase *core = tcase_create("core");
    tcase_add_loop_test(core, a_model_that_is_right_saves_steps, 1, MAX_DRAFTS + 1);
    tcase_add_test(core, a_model_that_is_wrong_computes_a_row_a_draft);
    tcase_add_loop_test(core, accepted_rows_are_kept_and_others_recomputed, 0, 10);
    tcase_add_test(core, drafts_from_before_a_rest_are_not_kept);
    tcase_add_test(core, drafts_that_no_step_verified_do_no_harm);
    tcase_add_test(core, sequences_share_its_passes);
    tcase_add_test(core, draws_have_the_numbers_of_their_positions);
    tcase_add_test(core, a_long_prompt_is_computed_in_parts);
    tcase_add_test(core, a_sequence_that_catches_up_delays_no_other);
    tcase_add_test(core, drafts_are_right_after_preemption);
    tcase_add_test(core, drafts_are_right_after_a_cached_prefix);
    tcase_add_test(core, a_cancelled_sequence_gives_its_blocks_back);
    tcase_add_test(core, without_room_there_are_no_drafts);
    tcase_add_test(core, the_last_in_order_loses_its_blocks);
    tcase_add_test(core, a_sequence_that_can_never_fit_takes_no_blocks);
    tcase_add_test(core, the_longest_unused_sequence_loses_its_blocks);
    tcase_add_test(core, drafts_end_at_the_draft_model_s_length);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
