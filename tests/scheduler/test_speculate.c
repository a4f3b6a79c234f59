/* Speculation: look-ups, estimates of costs and chances, the drafts in a step, and their results.
 * test_simulation.c and test_same_bytes.c show that drafts change no byte. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/speculate.h"
#include "support/fake_client.h"
#include "support/replay_drafter.h"
#include "support/suite_main.h"

/* ---- lookup --------------------------------------------------------------------------------- */

enum { MOST_TEXT = 20000 };

struct text {
    struct drafter drafter;
    int32_t tokens[MOST_TEXT];
    void *state;
    int n;
};

static const struct lookup_config lookup = {.min_match = 2, .max_match = MAX_DRAFT_MATCH};

static void text_begin(struct text *text) {
    memset(text, 0, sizeof *text);
    text->drafter = drafter_lookup(&lookup);
    text->state = mem_calloc(1, text->drafter.state_bytes(text->drafter.self, MOST_TEXT));
}

static struct draft look_up(struct text *text, int max_drafts) {
    struct draft_context context = {
        .state = text->state, .tokens = text->tokens, .n = text->n, .max_tokens = MOST_TEXT};
    return text->drafter.propose(text->drafter.self, &context, max_drafts);
}

static void add(struct text *text, const char *letters) {
    for (; *letters; letters++) text->tokens[text->n++] = *letters;
}

static void check_draft(struct text *text, int max_drafts, const char *wanted, int match) {
    struct draft draft = look_up(text, max_drafts);
    ck_assert_int_eq(draft.n, (int)strlen(wanted));
    for (int i = 0; i < draft.n; i++) ck_assert_int_eq(text->tokens[text->n + i], wanted[i]);
    if (draft.n > 0) ck_assert_int_eq(draft.match, match);
}

START_TEST(the_longest_match_is_followed) {
    static struct text text;
    text_begin(&text);
    add(&text, "xbcd1 abcd2 ybcd3 abc");
    check_draft(&text, 4, "d2 y", 4);
    add(&text, "d");
    check_draft(&text, 3, "2 y", 5);
    free(text.state);
}
END_TEST

START_TEST(of_equal_matches_the_latest_is_followed) {
    static struct text text;
    text_begin(&text);
    add(&text, "-ab1 +ab2 *ab");
    check_draft(&text, 2, "2 ", 2);
    free(text.state);
}
END_TEST

START_TEST(unseen_text_is_not_guessed) {
    static struct text text;
    text_begin(&text);
    check_draft(&text, 4, "", 0);
    add(&text, "a");
    check_draft(&text, 4, "", 0);
    add(&text, "bcdefg");
    check_draft(&text, 4, "", 0);
    add(&text, "a"); /* a single token does not match */
    check_draft(&text, 4, "", 0);
    free(text.state);
}
END_TEST

START_TEST(repetition_is_continued) {
    static struct text text;
    text_begin(&text);
    add(&text, "abcabc");
    check_draft(&text, 7, "abcabca", 3);
    add(&text, "abcabc");
    check_draft(&text, 2, "ab", MAX_DRAFT_MATCH);
    free(text.state);
}
END_TEST

/* ---- predicted output ----------------------------------------------------------------------- */

static struct draft predict(struct text *text, struct prediction *prediction, int n_prompt) {
    const struct draft_context context = {.tokens = text->tokens, .n = text->n, .max_tokens = 40};
    struct draft draft = draft_predicted(prediction, &context, n_prompt, 4);
    text->tokens[text->n + draft.n] = 0;
    return draft;
}

static void check_prediction(struct text *text, struct prediction *prediction, const char *come,
                             const char *wanted, int match) {
    add(text, come);
    struct draft draft = predict(text, prediction, 3);
    ck_assert_int_eq(draft.n, (int)strlen(wanted));
    for (int i = 0; i < draft.n; i++) ck_assert_int_eq(text->tokens[text->n + i], wanted[i]);
    ck_assert_int_eq(draft.match, match);
}

START_TEST(a_prediction_is_followed_and_found_again) {
    static const char expected[] = "abcdefghijkl";
    static struct text text;
    int32_t tokens[sizeof expected];
    for (size_t i = 0; i < sizeof expected; i++) tokens[i] = expected[i];
    struct prediction p = {.tokens = tokens, .n = (int)sizeof expected - 1};
    text_begin(&text);
    check_prediction(&text, &p, "efg", "abcd", 4); /* the prompt is not part of the match */
    check_prediction(&text, &p, "abc", "defg", 7);
    check_prediction(&text, &p, "xe", "", 0); /* a single token does not match */
    check_prediction(&text, &p, "f", "ghij", 2);
    check_prediction(&text, &p, "ghij", "kl", 6);
    check_prediction(&text, &p, "kl", "", 0); /* the end of the text */
    check_prediction(&text, &p, "ab", "cdef", 2);
    free(text.state);
}
END_TEST

/* After the output has left the text, the cursor stays until two tokens match. */
START_TEST(one_token_does_not_lead_back_to_a_prediction) {
    static const char expected[] = "abcdefghijkl";
    static struct text text;
    int32_t tokens[sizeof expected];
    for (size_t i = 0; i < sizeof expected; i++) tokens[i] = expected[i];
    struct prediction p = {.tokens = tokens, .n = (int)sizeof expected - 1};
    text_begin(&text);
    check_prediction(&text, &p, "---", "abcd", 4);
    check_prediction(&text, &p, "abcxd", "", 0);
    check_prediction(&text, &p, "e", "fghi", 2);
    free(text.state);
}
END_TEST

START_TEST(the_longest_match_in_a_prediction_is_followed) {
    static const char expected[] = "xab1 yab2 zab3";
    static struct text text;
    int32_t tokens[sizeof expected];
    for (size_t i = 0; i < sizeof expected; i++) tokens[i] = expected[i];
    struct prediction p = {.tokens = tokens, .n = (int)sizeof expected - 1};
    text_begin(&text);
    check_prediction(&text, &p, "---", "xab1", 4);
    check_prediction(&text, &p, "-yab", "2 za", 3);
    check_prediction(&text, &p, "-ab", "3", 2); /* the first match after the cursor */
    free(text.state);
}
END_TEST

/* The end of the prompt is no match: the output must be found by its own tokens. */
START_TEST(a_prediction_is_found_by_the_output_alone) {
    static const char expected[] = "qrabxcd";
    static struct text text;
    int32_t tokens[sizeof expected];
    for (size_t i = 0; i < sizeof expected; i++) tokens[i] = expected[i];
    struct prediction p = {.tokens = tokens, .n = (int)sizeof expected - 1};
    text_begin(&text);
    check_prediction(&text, &p, "zab", "qrab", 4);
    check_prediction(&text, &p, "x", "", 0); /* after "ab", as in the text */
    check_prediction(&text, &p, "c", "d", 2);
    free(text.state);
}
END_TEST

/* Drafts that were refused are not indexed. */
START_TEST(drafts_are_not_indexed) {
    static struct text text;
    text_begin(&text);
    add(&text, "ab12 ab");
    check_draft(&text, 2, "12", 2);
    add(&text, "34 ab");
    check_draft(&text, 2, "34", 3);
    free(text.state);
}
END_TEST

/* A long prompt is indexed over several calls, and found completely afterwards. */
START_TEST(a_long_prompt_is_indexed_in_parts) {
    static struct text text;
    text_begin(&text);
    for (int i = 0; i < 19990; i++) text.tokens[i] = i;
    text.n = 19990;
    int calls = 0;
    text.tokens[text.n++] = 77;
    text.tokens[text.n++] = 78;
    struct draft draft;
    while ((draft = look_up(&text, 3)).n == 0) ck_assert_int_lt(++calls, 10);
    ck_assert_int_gt(calls, 1);
    ck_assert_int_eq(text.tokens[text.n], 79);
    ck_assert_int_eq(draft.match, 2);
    free(text.state);
}
END_TEST

/* Compares with a search of all places. */
START_TEST(lookup_equals_a_search_of_all_places) {
    static struct text text;
    uint64_t random = (uint64_t)_i + 1;
    text_begin(&text);
    for (int step = 0; step < 300; step++) {
        text.tokens[text.n++] = fake_between(&random, 0, 12);
        int best = 0, match = lookup.min_match - 1;
        for (int place = text.n - 1; place > 0; place--) {
            int n = 0;
            while (n < place && n < MAX_DRAFT_MATCH &&
                   text.tokens[place - 1 - n] == text.tokens[text.n - 1 - n])
                n++;
            if (n > match) best = place, match = n;
        }
        struct draft draft = look_up(&text, 1);
        ck_assert_int_eq(draft.n, best > 0);
        if (best == 0) continue;
        ck_assert_int_eq(draft.match, match);
        ck_assert_int_eq(text.tokens[text.n], text.tokens[best]);
    }
    free(text.state);
}
END_TEST

/* ---- costs and chances ---------------------------------------------------------------------- */

START_TEST(costs_have_the_expected_form_between_measured_ones) {
    struct step_cost cost;
    step_cost_init(&cost, true);
    float one = step_cost_ns(&cost, 1), eight = step_cost_ns(&cost, 8);
    float four = step_cost_ns(&cost, 4);
    for (int m = 2; m <= MAX_COST_ROWS; m++)
        ck_assert(step_cost_ns(&cost, m) > step_cost_ns(&cost, m - 1));
    step_cost_note(&cost, 1, 1000000);
    ck_assert_float_eq_tol(step_cost_ns(&cost, 1), 1e6f, 1);
    ck_assert_float_eq_tol(step_cost_ns(&cost, 8), 1e6f * eight / one, 100);
    for (int i = 0; i < 200; i++) {
        step_cost_note(&cost, 8, 2000000);
        step_cost_note(&cost, 1, 1000000);
    }
    ck_assert_float_eq_tol(step_cost_ns(&cost, 8), 2e6f, 2e4f);
    float scale = 2e6f / eight * one / 1e6f, share = 3.0f / 7; /* 4 is between 1 and 8 */
    ck_assert_float_eq_tol(step_cost_ns(&cost, 4), four * 1e6f * (1 + (scale - 1) * share), 4e4f);
    step_cost_note(&cost, 8, 2000000000); /* it was interrupted */
    ck_assert(step_cost_ns(&cost, 8) < 2.3e6f);
    struct step_cost before = cost;
    step_cost_note(&cost, MAX_COST_ROWS + 1, 5);
    ck_assert_mem_eq(&before, &cost, sizeof cost);
}
END_TEST

/* A step of five rows was interrupted, which made all steps of several rows look expensive. */
START_TEST(an_interrupted_step_is_forgotten) {
    struct step_cost cost;
    step_cost_init(&cost, true);
    float five = step_cost_ns(&cost, 5) * 1e6f;
    step_cost_note(&cost, 1, 1000000);
    step_cost_note(&cost, 5, 500000000);
    ck_assert(step_cost_ns(&cost, 5) < 2.01f * five);
    /* the machine is slow for some time */
    for (int i = 0; i < 40; i++) step_cost_note(&cost, 5, 500000000);
    ck_assert(step_cost_ns(&cost, 5) > 10 * five);
    for (int i = 0; i < 4000; i++) step_cost_note(&cost, 1, 1000000);
    ck_assert_float_eq_tol(step_cost_ns(&cost, 5), five, 0.02f * five);
    ck_assert_float_eq_tol(step_cost_ns(&cost, 1), 1e6f, 100);
}
END_TEST

START_TEST(a_chance_follows_the_accepted_drafts) {
    struct sequence sequence = {.drafts.n = 3, .drafts.match = 2};
    drafts_init(&sequence.drafts);
    float at2 = sequence.drafts.chance[2], at3 = sequence.drafts.chance[3],
          at4 = sequence.drafts.chance[4];
    drafts_learn(&sequence.drafts, 1);
    ck_assert(sequence.drafts.chance[2] > at2 && sequence.drafts.chance[3] < at3);
    ck_assert(sequence.drafts.chance[4] == at4); /* not tried */
    sequence.drafts.n = 2;
    drafts_learn(&sequence.drafts, 2); /* all accepted: the next one was not tried */
    ck_assert(sequence.drafts.chance[4] == at4);
    for (int i = 0; i < 100; i++) drafts_learn(&sequence.drafts, 0);
    ck_assert(sequence.drafts.chance[2] < 0.01f);
    for (int i = 0; i < 2000; i++) drafts_forget(&sequence.drafts);
    ck_assert_float_eq_tol(sequence.drafts.chance[2], at2, 0.01);
}
END_TEST

START_TEST(a_chance_is_on_average_the_accepted_share) {
    struct sequence sequence = {.drafts.n = 1, .drafts.match = 2};
    float sum = 0;
    drafts_init(&sequence.drafts);
    for (int i = 0; i < 400; i++) {
        drafts_learn(&sequence.drafts, i % 4 > 0);
        if (i >= 200) sum += sequence.drafts.chance[2] / 200;
    }
    ck_assert_float_eq_tol(sum, 0.75f, 0.02);
}
END_TEST

/* ---- a scheduler that speculates ------------------------------------------------------------ */

enum { MODEL_LEN = 400, MOST = 8, MOST_EVENTS = 4096 };

struct world {
    struct replay replay;
    struct drafter drafter;
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

static struct world *world_new(int wrong, int max_drafts, int n_blocks, int in_flight) {
    struct world *w = mem_calloc(1, sizeof *w);
    w->replay = (struct replay){.foresee = fake_foresee, .V = FAKE_V, .wrong = wrong, .random = 1};
    w->drafter = replay_drafter(&w->replay);
    struct scheduler_config config = {.max_num_seqs = 8,
                                      .max_num_batched_tokens = 64,
                                      .max_model_len = MODEL_LEN,
                                      .max_queued_requests = MOST,
                                      .max_queued_tokens = MOST * MODEL_LEN,
                                      .n_blocks = n_blocks,
                                      .block_size = 4,
                                      .max_logit_rows = 64,
                                      .prefix_caching = true,
                                      .drafter = &w->drafter,
                                      .speculation.max_tokens = max_drafts,
                                      .fixed_drafts = true,
                                      .on_events = on_events,
                                      .arg = w};
    w->engine = fake_engine_new(&config);
    w->engine->in_flight = in_flight;
    struct engine_port port = fake_engine_port(w->engine);
    w->scheduler = scheduler_new_on(&config, &port);
    return w;
}

static void world_free(struct world *w) {
    scheduler_free(w->scheduler);
    fake_engine_free(w->engine);
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
    for (int i = 0; i < n_prompt; i++) w->client[k].prompt[i] = (i + k) % FAKE_V;
    return g;
}

static void submit(struct world *w, int k) {
    fake_client_submit(&w->client[k], w->scheduler, MODEL_LEN);
}

/* The prompt's step yields a token, each later one 1 + k. */
START_TEST(drafts_that_all_hold_save_steps) {
    int k = _i;
    struct world *w = world_new(0, k, 200, 1);
    ask(w, 0, 9, 1 + 10 * (k + 1));
    submit(w, 0);
    fake_run(w->scheduler);
    ck_assert_int_eq(w->n_ended, 1);
    ck_assert_uint_eq(w->engine->n_steps, 1 + 10);
    ck_assert_uint_eq(w->scheduler->stats.draft_tokens, 10 * (uint64_t)k);
    ck_assert_uint_eq(w->scheduler->stats.accepted_tokens, 10 * (uint64_t)k);
    world_free(w);
}
END_TEST

START_TEST(drafts_that_never_hold_cost_no_step) {
    struct world *w = world_new(100, 5, 200, 1);
    ask(w, 0, 9, 50);
    submit(w, 0);
    fake_run(w->scheduler);
    ck_assert_uint_eq(w->engine->n_steps, 50);
    ck_assert_uint_eq(w->scheduler->stats.accepted_tokens, 0);
    ck_assert_uint_gt(w->scheduler->stats.draft_tokens, 200);
    world_free(w);
}
END_TEST

/* The blocks of refused drafts are free after the step, and the accepted tokens are known to the
 * prefix cache. */
START_TEST(blocks_are_those_of_the_tokens_that_held) {
    struct world *w = world_new(100, 15, 200, 1);
    ask(w, 0, 9, 60);
    submit(w, 0);
    while (fake_step(w->scheduler)) {
        const struct sequence *sequence = sequence_of(w->scheduler->running.head.next);
        ck_assert_int_eq(sequence->kv.n_blocks, (sequence->n_computed + 3) / 4);
        ck_assert_int_eq(block_pool_available(&w->scheduler->pool), 200 - sequence->kv.n_blocks);
    }
    world_free(w);
}
END_TEST

START_TEST(a_request_may_refuse_drafts_and_bound_them) {
    struct world *w = world_new(0, 8, 200, 1);
    ask(w, 0, 9, 30)->max_drafts = 0;
    submit(w, 0);
    fake_step(w->scheduler);
    ck_assert_ptr_null(sequence_of(w->scheduler->running.head.next)->drafts.state);
    fake_run(w->scheduler);
    ck_assert_uint_eq(w->scheduler->stats.draft_tokens, 0);
    ask(w, 1, 9, 31)->max_drafts = 2;
    submit(w, 1);
    fake_run(w->scheduler);
    ck_assert_uint_eq(w->scheduler->stats.drafts, 10);
    ck_assert_uint_eq(w->scheduler->stats.draft_tokens, 20);
    world_free(w);
}
END_TEST

/* In the last step of a sequence, no draft goes beyond its maximum length. */
START_TEST(drafts_end_with_the_sequence) {
    struct world *w = world_new(0, 15, 200, 1);
    ask(w, 0, 9, 4);
    submit(w, 0);
    fake_run(w->scheduler);
    ck_assert_uint_eq(w->engine->n_steps, 2);
    ck_assert_uint_eq(w->scheduler->stats.draft_tokens, 2);
    world_free(w);
}
END_TEST

/* While a sequence waits or computes a prompt, it gets the rows. */
START_TEST(drafts_take_nothing_from_others) {
    struct world *w = world_new(0, 15, 200, 1);
    ask(w, 0, 9, 100);
    submit(w, 0);
    fake_step(w->scheduler);
    uint64_t before = w->scheduler->stats.draft_tokens;
    ask(w, 1, 200, 5);
    submit(w, 1);
    while (w->client[1].choice[0].n_output == 0) { /* chunks of the prompt in steps that decode */
        fake_step(w->scheduler);
        ck_assert_uint_eq(w->scheduler->stats.draft_tokens, before);
    }
    fake_run(w->scheduler);
    ck_assert_uint_gt(w->scheduler->stats.draft_tokens, before);
    ck_assert_uint_eq(w->scheduler->stats.preemptions, 0);
    world_free(w);
}
END_TEST

START_TEST(there_are_no_drafts_while_a_request_waits) {
    struct world *w = world_new(0, 15, 26, 1);
    ask(w, 0, 9, 80);
    ask(w, 1, 95, 3); /* its blocks are free when the first one ends */
    submit(w, 0);
    fake_step(w->scheduler);
    uint64_t before = w->scheduler->stats.draft_tokens;
    submit(w, 1);
    while (w->client[1].choice[0].n_output == 0) {
        fake_step(w->scheduler);
        ck_assert_uint_eq(w->scheduler->stats.draft_tokens, before);
    }
    ck_assert(w->client[0].done);
    fake_run(w->scheduler);
    world_free(w);
}
END_TEST

/* There are blocks for one sequence and a little more: drafts that would need the other's are left
 * out. */
START_TEST(drafts_never_preempt) {
    struct world *w = world_new(0, 15, 26, 1);
    for (int k = 0; k < 2; k++) {
        ask(w, k, 9, 36);
        submit(w, k);
    }
    fake_run(w->scheduler);
    ck_assert_int_eq(w->n_ended, 2);
    ck_assert_uint_eq(w->scheduler->stats.preemptions, 0);
    ck_assert_uint_gt(w->scheduler->stats.draft_tokens, 0);
    world_free(w);
}
END_TEST

/* With learnt costs, refused drafts end soon, and accepted drafts continue. */
START_TEST(guessing_ends_if_it_does_not_pay) {
    uint64_t drafts[2];
    for (int bad = 0; bad < 2; bad++) {
        struct world *w = world_new(bad ? 100 : 0, 15, 200, 1);
        w->scheduler->config.fixed_drafts = false;
        ask(w, 0, 9, 300);
        submit(w, 0);
        while (scheduler_step(w->scheduler)) step_cost_init(&w->scheduler->cost, true);
        drafts[bad] = w->scheduler->stats.draft_tokens;
        world_free(w);
    }
    ck_assert_uint_gt(drafts[0], 150);
    ck_assert_uint_lt(drafts[1], 100); /* ten for each match length */
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler_speculate");
    TCase *core = tcase_create("core");
    tcase_add_test(core, the_longest_match_is_followed);
    tcase_add_test(core, of_equal_matches_the_latest_is_followed);
    tcase_add_test(core, unseen_text_is_not_guessed);
    tcase_add_test(core, repetition_is_continued);
    tcase_add_test(core, a_prediction_is_followed_and_found_again);
    tcase_add_test(core, one_token_does_not_lead_back_to_a_prediction);
    tcase_add_test(core, the_longest_match_in_a_prediction_is_followed);
    tcase_add_test(core, a_prediction_is_found_by_the_output_alone);
    tcase_add_test(core, drafts_are_not_indexed);
    tcase_add_test(core, a_long_prompt_is_indexed_in_parts);
    tcase_add_loop_test(core, lookup_equals_a_search_of_all_places, 0, 10);
    tcase_add_test(core, costs_have_the_expected_form_between_measured_ones);
    tcase_add_test(core, an_interrupted_step_is_forgotten);
    tcase_add_test(core, a_chance_follows_the_accepted_drafts);
    tcase_add_test(core, a_chance_is_on_average_the_accepted_share);
    tcase_add_loop_test(core, drafts_that_all_hold_save_steps, 0, MAX_DRAFTS + 1);
    tcase_add_test(core, drafts_that_never_hold_cost_no_step);
    tcase_add_test(core, blocks_are_those_of_the_tokens_that_held);
    tcase_add_test(core, a_request_may_refuse_drafts_and_bound_them);
    tcase_add_test(core, drafts_end_with_the_sequence);
    tcase_add_test(core, drafts_take_nothing_from_others);
    tcase_add_test(core, there_are_no_drafts_while_a_request_waits);
    tcase_add_test(core, drafts_never_preempt);
    tcase_add_test(core, guessing_ends_if_it_does_not_pay);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
