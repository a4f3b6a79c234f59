/* When a draft model is asked for drafts: its cost, the share of its drafts that are accepted, and
 * the other work of the step. */
#include <check.h>

#include "support/draft_world.h"
#include "support/lettered.h"
#include "support/suite_main.h"

/* ---- when it is asked ----------------------------------------------------------------------- */

/* Runs 300 tokens of a sequence, with passes that take `thousandths` of a step. */
static struct world *run_with_costs(int thousandths, int wrong) {
    struct world *w = world_new(&ample, 15, 200);
    w->scheduler->config.fixed_drafts = false;
    w->draft.wrong = wrong;
    world_ask(w, 0, 9, 300);
    world_submit(w, 0);
    do { /* ignore the measured times of the fakes */
        struct step_cost *cost = &w->scheduler->cost, *draft = &w->scheduler->draft_engine.cost;
        step_cost_init(cost, true);
        step_cost_init(draft, true);
        step_cost_note(cost, 1, 1000000);
        step_cost_note(draft, 1, (uint64_t)thousandths * 1000);
    } while (scheduler_step(w->scheduler));
    return w;
}

START_TEST(a_cheap_model_that_is_right_is_asked_for_many) {
    struct world *w = run_with_costs(20, 0);
    ck_assert_uint_gt(world_stats(w)->draft_tokens, 6 * world_stats(w)->drafts);
    ck_assert_uint_lt(w->engine->n_steps, 60);
    world_free(w);
}
END_TEST

START_TEST(a_model_as_slow_as_the_steps_is_not_asked) {
    struct world *w = run_with_costs(1000, 0);
    ck_assert_uint_eq(w->draft.engine->n_steps, 0);
    ck_assert_uint_eq(w->engine->n_steps, 300);
    world_free(w);
}
END_TEST

START_TEST(a_model_that_is_wrong_rests) {
    struct world *w = run_with_costs(20, 100);
    ck_assert_uint_gt(w->draft.n_drafts, 0);
    ck_assert_uint_lt(w->draft.n_drafts, 60);
    ck_assert_uint_lt(w->draft.engine->n_steps, 60); /* the known tokens are not computed either */
    world_free(w);
}
END_TEST

/* The estimates fade while the model is not used: it is tried again, and stays in use if its drafts
 * are accepted. */
START_TEST(a_rest_ends) {
    struct world *w = world_new(&ample, 6, 200);
    w->scheduler->config.fixed_drafts = false;
    w->draft.wrong = 100;
    world_ask(w, 0, 9, 380);
    world_submit(w, 0);
    uint64_t held = 0;
    while (fake_step(w->scheduler)) {
        step_cost_init(&w->scheduler->cost, true);
        step_cost_init(&w->scheduler->draft_engine.cost, true);
        step_cost_note(&w->scheduler->cost, 1, 1000000);
        step_cost_note(&w->scheduler->draft_engine.cost, 1, 20000);
        if (w->client[0].choice[0].n_output == 60) w->draft.wrong = 0;
        held = world_stats(w)->accepted_tokens;
    }
    ck_assert_uint_gt(held, 60);
    world_free(w);
}
END_TEST

/* Only the sequence whose drafts are refused stops using the model. The other one continues. */
START_TEST(each_sequence_rests_for_itself) {
    struct world *w = world_new(&ample, 6, 200);
    w->scheduler->config.fixed_drafts = false;
    for (int k = 0; k < 2; k++) {
        world_ask(w, k, 9, 100);
        world_submit(w, k);
    }
    fake_step(w->scheduler);
    struct sequence *bad = sequence_of(w->scheduler->running.head.next);
    while (!w->client[1].done) {
        step_cost_init(&w->scheduler->cost, true);
        step_cost_init(&w->scheduler->draft_engine.cost, true);
        step_cost_note(&w->scheduler->cost, 1, 1000000);
        step_cost_note(&w->scheduler->draft_engine.cost, 1, 50000);
        bad->drafts.chance[MAX_DRAFT_MATCH] = 0.05f;
        int before = w->client[0].choice[0].n_output;
        fake_step(w->scheduler);
        ck_assert_int_le(w->client[0].choice[0].n_output, before + 1);
    }
    ck_assert_int_lt(w->client[0].choice[0].n_output, 50);
    fake_run(w->scheduler);
    world_free(w);
}
END_TEST

/* The model is tried before its cost is known. Afterwards the cost is known. */
START_TEST(a_first_pass_measures_the_model) {
    struct world *w = world_new(&ample, 8, 200);
    w->scheduler->config.fixed_drafts = false;
    world_ask(w, 0, 9, 50);
    world_submit(w, 0);
    for (int i = 0; i < 10 && !w->scheduler->draft_engine.cost.known; i++) fake_step(w->scheduler);
    ck_assert(w->scheduler->draft_engine.cost.known);
    ck_assert_uint_gt(w->draft.n_drafts, 0);
    fake_run(w->scheduler);
    world_free(w);
}
END_TEST

/* Steps with prompts verify nothing, so no drafts are made for them. */
START_TEST(steps_with_a_prompt_have_no_drafts) {
    struct world *w = world_new(&ample, 4, 300);
    world_ask(w, 0, 9, 100);
    world_submit(w, 0);
    for (int i = 0; i < 2; i++) fake_step(w->scheduler);
    uint64_t passes = w->draft.engine->n_steps;
    world_ask(w, 1, 200, 5);
    world_submit(w, 1);
    while (w->client[1].choice[0].n_output == 0) {
        ck_assert_uint_eq(w->draft.engine->n_steps, passes);
        fake_step(w->scheduler);
    }
    fake_run(w->scheduler);
    ck_assert_uint_gt(w->draft.engine->n_steps, passes);
    world_free(w);
}
END_TEST

START_TEST(a_prediction_precedes_the_model) {
    struct world *w = world_new(&ample, 4, 200);
    struct generation *g = world_ask(w, 0, 9, 41);
    fake_client_ready(&w->client[0], MODEL_LEN);
    g->predicted = w->client[0].predicted;
    g->n_predicted = fake_foresee(&w->client[0], 0, 9, w->client[0].predicted, 21);
    world_submit(w, 0);
    for (int i = 0; i < 1 + 4; i++) fake_step(w->scheduler);
    ck_assert_uint_eq(world_stats(w)->accepted_tokens, 4 * 4);
    ck_assert_uint_eq(w->draft.engine->n_steps, 0);
    fake_run(w->scheduler);
    ck_assert_uint_eq(w->engine->n_steps, 1 + 8);
    ck_assert_uint_eq(world_stats(w)->accepted_tokens, world_stats(w)->draft_tokens);
    world_free(w);
}
END_TEST

/* The drafts of a sequence end before the first token that its grammar does not allow. */
START_TEST(drafts_end_before_a_forbidden_token) {
    struct world *w = world_new(&ample, 8, 200);
    struct vocabulary *vocabulary = lettered_vocabulary(FAKE_V);
    uint64_t random = 11;
    struct generation *g = world_ask(w, 0, 9, 60);
    struct grammar *grammar = draw_grammar(&random);
    g->grammar = grammar;
    g->vocabulary = vocabulary;
    g->sampling.n_logprobs = 0; /* all tokens are sampled */
    world_submit(w, 0);
    fake_run(w->scheduler);
    ck_assert_int_eq(w->n_ended, 1);
    ck_assert_uint_gt(w->draft.n_drafts, world_stats(w)->draft_tokens);
    grammar_release(grammar);
    world_free(w);
    vocabulary_free(vocabulary);
}
END_TEST

/* A failed pass yields no drafts, and the sequence continues without them. */
START_TEST(a_pass_that_fails_drafts_nothing) {
    struct world *w = world_new(&ample, 3, 200);
    w->draft.engine->fails_at = 8;
    world_ask(w, 0, 9, 40);
    world_submit(w, 0);
    fake_run(w->scheduler);
    ck_assert_int_eq(w->n_ended, 1);
    ck_assert_uint_eq(w->draft.n_drafts, 7);
    ck_assert_uint_eq(world_stats(w)->draft_tokens, 7);
    world_free(w);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler_draft_use");
    TCase *core = tcase_create("core");
    tcase_add_test(core, a_cheap_model_that_is_right_is_asked_for_many);
    tcase_add_test(core, a_model_as_slow_as_the_steps_is_not_asked);
    tcase_add_test(core, a_model_that_is_wrong_rests);
    tcase_add_test(core, a_rest_ends);
    tcase_add_test(core, each_sequence_rests_for_itself);
    tcase_add_test(core, a_first_pass_measures_the_model);
    tcase_add_test(core, steps_with_a_prompt_have_no_drafts);
    tcase_add_test(core, a_prediction_precedes_the_model);
    tcase_add_test(core, drafts_end_before_a_forbidden_token);
    tcase_add_test(core, a_pass_that_fails_drafts_nothing);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
