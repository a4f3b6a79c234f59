/* A draft model: the rows of its passes, the use of its blocks, and the conditions of its use. The
 * model is a fake engine, so each draft that is not spoilt must be accepted: a refused one reveals
 * a wrong row, slot or table. test_simulation.c and test_same_bytes.c show that drafts change no
 * byte. */
#include <check.h>
#include <stdlib.h>

#include "support/fake_client.h"
#include "support/fake_draft.h"
#include "support/lettered.h"
#include "support/suite_main.h"

enum { MODEL_LEN = 400, MOST = 8, B = 4 };

static const struct draft_room ample = {
    .n_blocks = 500, .block_size = B, .max_tokens = MODEL_LEN, .max_seqs = 8, .max_rows = 64};

struct world {
    struct fake_draft draft;
    struct fake_engine *engine;
    struct scheduler *scheduler;
    struct fake_client client[MOST];
    int n_ended;
};

static void on_events(void *arg, const struct event *events, int n) {
    struct world *w = arg;
    for (int i = 0; i < n; i++) {
        fake_client_take(events[i].generation->owner, &events[i]);
        w->n_ended += events[i].last;
    }
}

static struct world *world_new(const struct draft_room *room, int max_drafts, int n_blocks) {
    struct world *w = mem_calloc(1, sizeof *w);
    struct scheduler_config config = {.max_num_seqs = 8,
                                      .max_num_batched_tokens = 64,
                                      .max_model_len = MODEL_LEN,
                                      .max_queued_requests = MOST,
                                      .max_queued_tokens = MOST * MODEL_LEN,
                                      .n_blocks = n_blocks,
                                      .block_size = B,
                                      .max_logit_rows = 64,
                                      .prefix_caching = true,
                                      .speculation.max_tokens = max_drafts,
                                      .fixed_drafts = true,
                                      .on_events = on_events,
                                      .arg = w};
    w->engine = fake_engine_new(&config);
    struct engine_port port = fake_engine_port(w->engine);
    w->scheduler = scheduler_new_on(&config, &port);
    fake_draft_open(&w->draft, w->scheduler, room);
    return w;
}

static void world_free(struct world *w) {
    scheduler_free(w->scheduler); /* asserts that all blocks were released */
    fake_engine_free(w->engine);
    fake_draft_close(&w->draft);
    free(w);
}

static struct generation *ask(struct world *w, int k, int n_prompt, int max_tokens) {
    struct generation *g = &w->client[k].generation;
    *g = (struct generation){.n_prompt = n_prompt,
                             .max_tokens = max_tokens,
                             .n = 1,
                             .max_drafts = MAX_DRAFTS,
                             .sampling.repetition_penalty = 1,
                             .prompt_logprobs = -1};
    for (int i = 0; i < n_prompt; i++) w->client[k].prompt[i] = (i + 3 * k) % FAKE_V;
    return g;
}

static void submit(struct world *w, int k) {
    fake_client_submit(&w->client[k], w->scheduler, MODEL_LEN);
}

static const struct scheduler_stats *stats_of(const struct world *w) {
    return &w->scheduler->stats;
}

/* ---- passes --------------------------------------------------------------------------------- */

/* The prompt's step yields one token, each later step 1 + k; k passes draft for it. If all drafts
 * of a step were accepted, the last one has no row yet, so the next first pass computes two. */
START_TEST(a_model_that_is_right_saves_steps) {
    int k = _i;
    struct world *w = world_new(&ample, k, 200);
    ask(w, 0, 9, 1 + 10 * (k + 1));
    submit(w, 0);
    fake_run(w->scheduler);
    ck_assert_int_eq(w->n_ended, 1);
    ck_assert_uint_eq(w->engine->n_steps, 1 + 10);
    ck_assert_uint_eq(stats_of(w)->draft_tokens, 10 * (uint64_t)k);
    ck_assert_uint_eq(stats_of(w)->accepted_tokens, 10 * (uint64_t)k);
    ck_assert_uint_eq(w->draft.engine->n_steps, 10 * (uint64_t)k);
    ck_assert_uint_eq(w->draft.engine->n_rows, 10 + (uint64_t)(k - 1) + 9 * (uint64_t)(k + 1));
    world_free(w);
}
END_TEST

/* No row is computed twice, except the rows of refused drafts. */
START_TEST(a_model_that_is_wrong_computes_a_row_a_draft) {
    struct world *w = world_new(&ample, 5, 200);
    w->draft.wrong = 100;
    ask(w, 0, 9, 31);
    submit(w, 0);
    fake_run(w->scheduler);
    ck_assert_uint_eq(w->engine->n_steps, 31);
    ck_assert_uint_eq(stats_of(w)->accepted_tokens, 0);
    uint64_t drafts = stats_of(w)->draft_tokens;
    ck_assert_uint_eq(w->draft.n_drafts, drafts);
    ck_assert_uint_eq(w->draft.engine->n_rows, 9 + drafts);
    world_free(w);
}
END_TEST

/* After any number of accepted drafts, the next drafts are right again. */
START_TEST(what_held_is_kept_and_the_rest_computed_again) {
    struct world *w = world_new(&ample, 6, 200);
    w->draft.random = (uint64_t)_i;
    w->draft.wrong = 30;
    ask(w, 0, 9, 300);
    submit(w, 0);
    for (int i = 0; i < 25; i++) fake_step(w->scheduler);
    w->draft.wrong = 0;
    fake_step(w->scheduler);
    uint64_t drafts = stats_of(w)->draft_tokens, held = stats_of(w)->accepted_tokens;
    ck_assert_uint_gt(drafts, held);
    for (int i = 0; i < 5; i++) fake_step(w->scheduler);
    ck_assert_uint_eq(stats_of(w)->draft_tokens - drafts, 5 * 6);
    ck_assert_uint_eq(stats_of(w)->accepted_tokens - held, 5 * 6);
    fake_run(w->scheduler);
    world_free(w);
}
END_TEST

/* If several tokens follow a refused draft, its row and the later rows do not belong to them. */
START_TEST(drafts_from_before_a_rest_are_not_kept) {
    struct world *w = world_new(&ample, 6, 200);
    w->draft.wrong = 100;
    ask(w, 0, 9, 60);
    submit(w, 0);
    for (int i = 0; i < 2; i++) fake_step(w->scheduler);
    struct sequence *sequence = sequence_of(w->scheduler->running.head.next);
    uint64_t drafts = stats_of(w)->draft_tokens;
    ck_assert_uint_eq(drafts, 6);
    sequence->request->max_drafts = 0; /* the draft model skips it */
    for (int i = 0; i < 4; i++) fake_step(w->scheduler);
    sequence->request->max_drafts = 6;
    w->draft.wrong = 0;
    fake_run(w->scheduler);
    ck_assert_uint_gt(stats_of(w)->draft_tokens, drafts + 30);
    ck_assert_uint_eq(stats_of(w)->accepted_tokens, stats_of(w)->draft_tokens - drafts);
    world_free(w);
}
END_TEST

/* The step has logit rows for only one of three drafts. If the others turn out right without
 * verification, the row of the last token is still computed again, for its logits. */
START_TEST(drafts_that_no_step_has_taken_are_no_hindrance) {
    struct world *w = world_new(&ample, 3, 200);
    w->scheduler->config.max_logit_rows = 2;
    ask(w, 0, 9, 1 + 10 * 2);
    submit(w, 0);
    fake_run(w->scheduler);
    ck_assert_uint_eq(w->engine->n_steps, 1 + 10);
    ck_assert_uint_eq(stats_of(w)->draft_tokens, 10);
    ck_assert_uint_eq(stats_of(w)->accepted_tokens, 10);
    world_free(w);
}
END_TEST

START_TEST(sequences_share_its_passes) {
    struct world *w = world_new(&ample, 3, 300);
    for (int k = 0; k < 4; k++) {
        ask(w, k, 9 + k, 1 + 10 * 4);
        submit(w, k);
    }
    fake_run(w->scheduler);
    ck_assert_int_eq(w->n_ended, 4);
    ck_assert_uint_eq(w->engine->n_steps, 1 + 10);
    ck_assert_uint_eq(w->draft.engine->n_steps, 10 * 3);
    ck_assert_int_eq(w->draft.engine->most_seqs, 4);
    ck_assert_uint_eq(stats_of(w)->accepted_tokens, 4 * 10 * 3);
    world_free(w);
}
END_TEST

/* Drafts are drawn with the same random numbers, also for several choices. */
START_TEST(draws_have_the_numbers_of_their_positions) {
    struct world *w = world_new(&ample, 3, 300);
    struct generation *g = ask(w, 0, 9, 1 + 5 * 4);
    g->n = 3;
    g->sampling.seed = 4711;
    g->min_tokens = 7;
    g->n_stop_ids = 2;
    g->stop_ids[0] = 3;
    g->stop_ids[1] = 5;
    submit(w, 0);
    /* one step of the prompt, two of four tokens */
    for (int i = 0; i < 3; i++) fake_step(w->scheduler);
    ck_assert_uint_eq(stats_of(w)->draft_tokens, 3 * 2 * 3);
    ck_assert_uint_ge(stats_of(w)->accepted_tokens, 3 * 5); /* among the first seven tokens, six */
    fake_run(w->scheduler);
    world_free(w);
}
END_TEST

/* A prompt that is longer than a pass is computed in parts, one per step. */
START_TEST(a_long_prompt_is_computed_in_parts) {
    struct draft_room room = ample;
    room.max_rows = 16;
    struct world *w = world_new(&room, 3, 200);
    ask(w, 0, 60, 40);
    submit(w, 0);
    fake_step(w->scheduler); /* the prompt, and one token */
    for (int i = 0; i < 3; i++) {
        fake_step(w->scheduler);
        ck_assert_uint_eq(stats_of(w)->draft_tokens, 0);
        ck_assert_uint_eq(w->draft.engine->n_rows, 16 * (uint64_t)(i + 1));
    }
    fake_step(w->scheduler); /* 64 tokens are known, 48 are computed */
    ck_assert_uint_eq(stats_of(w)->draft_tokens, 3);
    fake_run(w->scheduler);
    ck_assert_uint_eq(stats_of(w)->accepted_tokens, stats_of(w)->draft_tokens);
    world_free(w);
}
END_TEST

/* The long prompt, which is first in the order, gets the rows of a pass that the other leaves. */
START_TEST(who_catches_up_holds_up_nobody) {
    struct draft_room room = ample;
    room.max_rows = 8;
    struct world *w = world_new(&room, 2, 200);
    ask(w, 1, 3, 60);
    submit(w, 1);
    for (int i = 0; i < 3; i++) fake_step(w->scheduler);
    ask(w, 0, 60, 20)->priority = -1; /* it precedes the other */
    submit(w, 0);
    while (w->client[0].choice[0].n_output == 0) fake_step(w->scheduler);
    uint64_t drafts = stats_of(w)->draft_tokens;
    for (int i = 0; i < 4; i++) fake_step(w->scheduler);
    ck_assert_uint_eq(stats_of(w)->draft_tokens, drafts + 4 * 2);
    fake_run(w->scheduler);
    ck_assert_uint_eq(stats_of(w)->accepted_tokens, stats_of(w)->draft_tokens);
    world_free(w);
}
END_TEST

/* ---- preempted, found, ended ---------------------------------------------------------------- */

/* There are blocks for one sequence of full length and little more. The second one is preempted,
 * starts again without its blocks, and drafts as before. */
START_TEST(drafts_hold_after_preemption) {
    struct world *w = world_new(&ample, 4, 30);
    for (int k = 0; k < 2; k++) {
        ask(w, k, 30, 60);
        submit(w, k);
    }
    fake_run(w->scheduler);
    ck_assert_int_eq(w->n_ended, 2);
    ck_assert_uint_gt(stats_of(w)->preemptions, 0);
    ck_assert_uint_gt(stats_of(w)->accepted_tokens, 20);
    ck_assert_uint_eq(stats_of(w)->accepted_tokens, stats_of(w)->draft_tokens);
    world_free(w);
}
END_TEST

/* The prefix cache saves the main model a prompt, but not the draft model. */
START_TEST(drafts_hold_behind_a_prefix_that_was_found) {
    struct world *w = world_new(&ample, 4, 200);
    ask(w, 0, 40, 11);
    submit(w, 0);
    fake_run(w->scheduler);
    uint64_t drafts = stats_of(w)->draft_tokens;
    ask(w, 1, 40, 11);
    for (int i = 0; i < 40; i++) w->client[1].prompt[i] = i % FAKE_V;
    submit(w, 1);
    fake_run(w->scheduler);
    ck_assert_uint_gt(stats_of(w)->prefix_hits, 0);
    ck_assert_uint_eq(stats_of(w)->draft_tokens, 2 * drafts);
    ck_assert_uint_eq(stats_of(w)->accepted_tokens, 2 * drafts);
    world_free(w);
}
END_TEST

START_TEST(a_cancelled_sequence_gives_its_blocks_back) {
    struct draft_room room = ample;
    room.n_blocks = 12; /* for one sequence */
    struct world *w = world_new(&room, 4, 200);
    for (int k = 0; k < 2; k++) ask(w, k, 20, 20);
    submit(w, 0);
    for (int i = 0; i < 2; i++) fake_step(w->scheduler);
    atomic_store(&w->client[0].generation.cancelled, true);
    fake_run(w->scheduler);
    uint64_t drafts = stats_of(w)->draft_tokens;
    submit(w, 1);
    fake_run(w->scheduler);
    ck_assert_uint_gt(stats_of(w)->draft_tokens, drafts + 10);
    ck_assert_uint_eq(stats_of(w)->accepted_tokens, stats_of(w)->draft_tokens);
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
        ask(w, k, 30, k == 0 ? 21 : 20);
        submit(w, k);
    }
    while (!w->client[0].done) {
        int before = w->client[1].choice[0].n_output;
        fake_step(w->scheduler);
        ck_assert_int_le(w->client[1].choice[0].n_output, before + 1);
    }
    ck_assert_uint_eq(stats_of(w)->draft_tokens, 5 * 3);
    fake_run(w->scheduler);
    ck_assert_uint_gt(stats_of(w)->draft_tokens, 5 * 3 + 6);
    ck_assert_uint_eq(stats_of(w)->accepted_tokens, stats_of(w)->draft_tokens);
    world_free(w);
}
END_TEST

/* There are blocks for both at first. When they grow, the later one loses its blocks. */
START_TEST(the_last_in_order_gives_way) {
    struct draft_room room = ample;
    room.n_blocks = 10; /* 40 tokens */
    struct world *w = world_new(&room, 3, 200);
    for (int k = 0; k < 2; k++) {
        ask(w, k, 9, 25);
        submit(w, k);
    }
    for (int i = 0; i < 3; i++) fake_step(w->scheduler);
    ck_assert_uint_eq(stats_of(w)->draft_tokens, 2 * 2 * 3); /* for both */
    while (!w->client[0].done) fake_step(w->scheduler);
    ck_assert_uint_eq(w->engine->n_steps, 1 + 24 / 4); /* the first never lacked blocks */
    fake_run(w->scheduler);
    ck_assert_uint_eq(stats_of(w)->accepted_tokens, stats_of(w)->draft_tokens);
    world_free(w);
}
END_TEST

START_TEST(who_can_never_have_room_takes_nothing) {
    struct draft_room room = ample;
    room.n_blocks = 10; /* 40 tokens */
    struct world *w = world_new(&room, 3, 200);
    ask(w, 0, 50, 20);
    ask(w, 1, 9, 21);
    for (int k = 0; k < 2; k++) submit(w, k);
    while (!w->client[1].done) fake_step(w->scheduler);
    ck_assert_uint_eq(stats_of(w)->draft_tokens, 5 * 3);
    ck_assert_uint_eq(w->engine->n_steps, 1 + 5);
    fake_run(w->scheduler);
    world_free(w);
}
END_TEST

/* A sequence without drafts keeps its blocks until another one needs them. */
START_TEST(who_was_not_drafted_for_the_longest_gives_way) {
    struct draft_room room = ample;
    room.n_blocks = 20; /* 80 tokens */
    struct world *w = world_new(&room, 3, 100);
    for (int k = 0; k < 2; k++) ask(w, k, 40, k == 0 ? 80 : 20);
    submit(w, 0);
    for (int i = 0; i < 2; i++) fake_step(w->scheduler);
    struct sequence *first = sequence_of(w->scheduler->running.head.next);
    first->request->max_drafts = 0; /* the draft model skips it */
    uint64_t drafts = stats_of(w)->draft_tokens;
    submit(w, 1);
    while (!w->client[1].done) fake_step(w->scheduler);
    ck_assert_uint_gt(stats_of(w)->draft_tokens, drafts + 9);
    first->request->max_drafts = 3;
    drafts = stats_of(w)->draft_tokens;
    fake_step(w->scheduler);
    ck_assert_uint_eq(stats_of(w)->draft_tokens, drafts + 3); /* its lost blocks were recomputed */
    fake_run(w->scheduler);
    ck_assert_uint_eq(stats_of(w)->accepted_tokens, stats_of(w)->draft_tokens);
    world_free(w);
}
END_TEST

START_TEST(drafts_end_where_the_draft_model_s_length_does) {
    struct draft_room room = ample;
    room.max_tokens = 32;
    struct world *w = world_new(&room, 4, 200);
    ask(w, 0, 20, 60);
    submit(w, 0);
    fake_run(w->scheduler);
    /* the prompt's step yields one token; then 26, 31, 33 are known; then one more per step */
    ck_assert_uint_eq(stats_of(w)->draft_tokens, 4 + 4 + 1);
    ck_assert_uint_eq(stats_of(w)->accepted_tokens, 4 + 4 + 1);
    ck_assert_uint_eq(w->engine->n_steps, 1 + 3 + 47);
    world_free(w);
}
END_TEST

/* ---- when it is asked ----------------------------------------------------------------------- */

/* Runs 300 tokens of a sequence, with passes that take `thousandths` of a step. */
static struct world *run_with_costs(int thousandths, int wrong) {
    struct world *w = world_new(&ample, 15, 200);
    w->scheduler->config.fixed_drafts = false;
    w->draft.wrong = wrong;
    ask(w, 0, 9, 300);
    submit(w, 0);
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
    ck_assert_uint_gt(stats_of(w)->draft_tokens, 6 * stats_of(w)->drafts);
    ck_assert_uint_lt(w->engine->n_steps, 60);
    world_free(w);
}
END_TEST

START_TEST(a_model_as_dear_as_the_steps_is_not_asked) {
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
    ask(w, 0, 9, 380);
    submit(w, 0);
    uint64_t held = 0;
    while (fake_step(w->scheduler)) {
        step_cost_init(&w->scheduler->cost, true);
        step_cost_init(&w->scheduler->draft_engine.cost, true);
        step_cost_note(&w->scheduler->cost, 1, 1000000);
        step_cost_note(&w->scheduler->draft_engine.cost, 1, 20000);
        if (w->client[0].choice[0].n_output == 60) w->draft.wrong = 0;
        held = stats_of(w)->accepted_tokens;
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
        ask(w, k, 9, 100);
        submit(w, k);
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
    ask(w, 0, 9, 50);
    submit(w, 0);
    for (int i = 0; i < 10 && !w->scheduler->draft_engine.cost.known; i++) fake_step(w->scheduler);
    ck_assert(w->scheduler->draft_engine.cost.known);
    ck_assert_uint_gt(w->draft.n_drafts, 0);
    fake_run(w->scheduler);
    world_free(w);
}
END_TEST

/* Steps with prompts verify nothing, so no drafts are made for them. */
START_TEST(nobody_drafts_beside_a_prompt) {
    struct world *w = world_new(&ample, 4, 300);
    ask(w, 0, 9, 100);
    submit(w, 0);
    for (int i = 0; i < 2; i++) fake_step(w->scheduler);
    uint64_t passes = w->draft.engine->n_steps;
    ask(w, 1, 200, 5);
    submit(w, 1);
    while (w->client[1].choice[0].n_output == 0) {
        ck_assert_uint_eq(w->draft.engine->n_steps, passes);
        fake_step(w->scheduler);
    }
    fake_run(w->scheduler);
    ck_assert_uint_gt(w->draft.engine->n_steps, passes);
    world_free(w);
}
END_TEST

START_TEST(a_prediction_comes_before_the_model) {
    struct world *w = world_new(&ample, 4, 200);
    struct generation *g = ask(w, 0, 9, 41);
    fake_client_ready(&w->client[0], MODEL_LEN);
    g->predicted = w->client[0].predicted;
    g->n_predicted = fake_foresee(&w->client[0], 0, 9, w->client[0].predicted, 21);
    submit(w, 0);
    for (int i = 0; i < 1 + 4; i++) fake_step(w->scheduler);
    ck_assert_uint_eq(stats_of(w)->accepted_tokens, 4 * 4);
    ck_assert_uint_eq(w->draft.engine->n_steps, 0);
    fake_run(w->scheduler);
    ck_assert_uint_eq(w->engine->n_steps, 1 + 8);
    ck_assert_uint_eq(stats_of(w)->accepted_tokens, stats_of(w)->draft_tokens);
    world_free(w);
}
END_TEST

/* The drafts of a sequence end before the first token that its grammar does not allow. */
START_TEST(drafts_end_before_what_may_not_come) {
    struct world *w = world_new(&ample, 8, 200);
    struct vocabulary *vocabulary = lettered_vocabulary(FAKE_V);
    uint64_t random = 11;
    struct generation *g = ask(w, 0, 9, 60);
    struct grammar *grammar = draw_grammar(&random);
    g->grammar = grammar;
    g->vocabulary = vocabulary;
    g->sampling.n_logprobs = 0; /* all tokens are sampled */
    submit(w, 0);
    fake_run(w->scheduler);
    ck_assert_int_eq(w->n_ended, 1);
    ck_assert_uint_gt(w->draft.n_drafts, stats_of(w)->draft_tokens);
    grammar_release(grammar);
    world_free(w);
    vocabulary_free(vocabulary);
}
END_TEST

/* A failed pass yields no drafts, and the sequence continues without them. */
START_TEST(a_pass_that_fails_drafts_nothing) {
    struct world *w = world_new(&ample, 3, 200);
    w->draft.engine->fails_at = 8;
    ask(w, 0, 9, 40);
    submit(w, 0);
    fake_run(w->scheduler);
    ck_assert_int_eq(w->n_ended, 1);
    ck_assert_uint_eq(w->draft.n_drafts, 7);
    ck_assert_uint_eq(stats_of(w)->draft_tokens, 7);
    world_free(w);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler_draft_model");
    TCase *core = tcase_create("core");
    tcase_add_loop_test(core, a_model_that_is_right_saves_steps, 1, MAX_DRAFTS + 1);
    tcase_add_test(core, a_model_that_is_wrong_computes_a_row_a_draft);
    tcase_add_loop_test(core, what_held_is_kept_and_the_rest_computed_again, 0, 10);
    tcase_add_test(core, drafts_from_before_a_rest_are_not_kept);
    tcase_add_test(core, drafts_that_no_step_has_taken_are_no_hindrance);
    tcase_add_test(core, sequences_share_its_passes);
    tcase_add_test(core, draws_have_the_numbers_of_their_positions);
    tcase_add_test(core, a_long_prompt_is_computed_in_parts);
    tcase_add_test(core, who_catches_up_holds_up_nobody);
    tcase_add_test(core, drafts_hold_after_preemption);
    tcase_add_test(core, drafts_hold_behind_a_prefix_that_was_found);
    tcase_add_test(core, a_cancelled_sequence_gives_its_blocks_back);
    tcase_add_test(core, without_room_there_are_no_drafts);
    tcase_add_test(core, the_last_in_order_gives_way);
    tcase_add_test(core, who_can_never_have_room_takes_nothing);
    tcase_add_test(core, who_was_not_drafted_for_the_longest_gives_way);
    tcase_add_test(core, drafts_end_where_the_draft_model_s_length_does);
    tcase_add_test(core, a_cheap_model_that_is_right_is_asked_for_many);
    tcase_add_test(core, a_model_as_dear_as_the_steps_is_not_asked);
    tcase_add_test(core, a_model_that_is_wrong_rests);
    tcase_add_test(core, a_rest_ends);
    tcase_add_test(core, each_sequence_rests_for_itself);
    tcase_add_test(core, a_first_pass_measures_the_model);
    tcase_add_test(core, nobody_drafts_beside_a_prompt);
    tcase_add_test(core, a_prediction_comes_before_the_model);
    tcase_add_test(core, drafts_end_before_what_may_not_come);
    tcase_add_test(core, a_pass_that_fails_drafts_nothing);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
