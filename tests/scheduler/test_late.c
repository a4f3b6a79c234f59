/* Masks that are late: their sequences sit the step out, and no others do. That the tokens are the
 * same is what the client of the fake engine asserts; test_simulation.c and test_same_bytes.c hold
 * late masks to it at random. */
#include <check.h>
#include <string.h>

#include "support/fake_client.h"
#include "support/lettered.h"
#include "support/suite_main.h"

enum { MODEL_LEN = 200, MOST = 3, TOKENS = 20 };

static struct {
    struct fake_engine *engine;
    struct scheduler *scheduler;
    struct grammar *grammar;
    struct vocabulary *vocabulary;
    struct fake_client client[MOST];
    int n_tokens[MOST], n_ended;
    uint64_t ended_after[MOST]; /* steps */
} w;

static void on_events(void *arg, const struct event *events, int n) {
    (void)arg;
    for (int i = 0; i < n; i++) {
        struct fake_client *client = events[i].generation->owner;
        fake_client_take(client, &events[i]);
        w.n_tokens[client - w.client] += events[i].kind == EVENT_TOKEN;
        if (!events[i].last) continue;
        w.ended_after[client - w.client] = w.engine->n_steps;
        w.n_ended++;
    }
}

/* Words of many forms over the letters a to d, so that a mask takes some steps of little work. */
static void open_world(int in_flight, int max_mask_work) {
    static const char regex[] = "([ab][cd]|[ac]b|d[a-c]){60}";
    struct scheduler_config config = {.max_num_seqs = 8,
                                      .max_num_batched_tokens = 16,
                                      .max_model_len = MODEL_LEN,
                                      .max_queued_requests = MOST,
                                      .max_queued_tokens = MOST * MODEL_LEN,
                                      .n_blocks = 150,
                                      .block_size = 4,
                                      .max_logit_rows = 16,
                                      .prefix_caching = true,
                                      .samples_forced = true,
                                      .max_mask_work = max_mask_work,
                                      .on_events = on_events};
    struct err err;
    memset(&w, 0, sizeof w);
    w.vocabulary = lettered_vocabulary(FAKE_V);
    ck_assert_int_eq(grammar_compile(GRAMMAR_REGEX, regex, strlen(regex), NULL, &w.grammar, &err),
                     STATUS_OK);
    w.engine = fake_engine_new(&config);
    w.engine->in_flight = in_flight;
    struct engine_port port = fake_engine_port(w.engine);
    w.scheduler = scheduler_new_on(&config, &port);
}

static void close_world(void) {
    scheduler_free(w.scheduler);
    fake_engine_free(w.engine);
    grammar_release(w.grammar);
    vocabulary_free(w.vocabulary);
}

static struct generation *ask(int k, bool constrained) {
    struct generation *g = &w.client[k].generation;
    *g = (struct generation){.n_prompt = 5,
                             .max_tokens = TOKENS,
                             .n = 1,
                             .grammar = constrained ? w.grammar : NULL,
                             .vocabulary = constrained ? w.vocabulary : NULL,
                             .sampling.repetition_penalty = 1,
                             .sampling.n_logprobs = -1,
                             .sampling.seed = (uint64_t)k,
                             .prompt_logprobs = -1};
    for (int i = 0; i < g->n_prompt; i++) w.client[k].prompt[i] = (i + k) % FAKE_V;
    return g;
}

/* Returns how many masks were late. */
static uint64_t run(int n) {
    for (int k = 0; k < n; k++) fake_client_submit(&w.client[k], w.scheduler, MODEL_LEN);
    while (scheduler_step(w.scheduler)) scheduler_check(w.scheduler);
    ck_assert_int_eq(w.n_ended, n);
    return w.scheduler->stats.late_masks;
}

/* The one without a grammar ends in as many steps as beside masks that are in time. */
START_TEST(only_its_own_sequence_sits_out) {
    uint64_t steps[2];
    for (int late = 0; late < 2; late++) {
        open_world(_i, late ? 8 : 1000000);
        ask(0, false);
        ask(1, true), ask(2, true);
        ck_assert_int_eq(run(3) > 0, late);
        for (int k = 0; k < 3; k++) ck_assert_int_eq(w.n_tokens[k], TOKENS);
        ck_assert(!late || w.ended_after[1] > w.ended_after[0] + 1);
        steps[late] = w.ended_after[0];
        close_world();
    }
    ck_assert_uint_ge(steps[1], steps[0]); /* a step more may be in flight as it ends */
    ck_assert_uint_lt(steps[1], steps[0] + (uint64_t)_i);
}
END_TEST

/* Where no other sequence would go on, nobody gains anything by waiting. */
START_TEST(nobody_sits_out_alone) {
    open_world(_i, 1);
    ask(0, true);
    ck_assert_uint_eq(run(1), 0);
    ck_assert_int_eq(w.n_tokens[0], TOKENS);
    close_world();
}
END_TEST

/* A mask that is known is nobody's to wait for: the second of two alike comes no later. */
START_TEST(known_masks_are_in_time) {
    open_world(_i, 8);
    ask(0, false), ask(1, true);
    ck_assert_uint_gt(run(2), 0);
    uint64_t before = w.scheduler->stats.late_masks;
    memset(w.n_tokens, 0, sizeof w.n_tokens);
    w.n_ended = 0;
    ask(0, false), ask(1, true);
    ck_assert_uint_eq(run(2), before);
    close_world();
}
END_TEST

/* The row of a prompt's last token is all choices': its mask is not late. */
START_TEST(choices_begin_together) {
    open_world(_i, 8);
    ask(0, false), ask(1, true)->n = 3;
    run(2);
    ck_assert_int_eq(w.n_tokens[1], 3 * TOKENS);
    close_world();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler/late");
    TCase *core = tcase_create("core");
    tcase_add_loop_test(core, only_its_own_sequence_sits_out, 1, MAX_IN_FLIGHT + 1);
    tcase_add_loop_test(core, nobody_sits_out_alone, 1, MAX_IN_FLIGHT + 1);
    tcase_add_loop_test(core, known_masks_are_in_time, 1, MAX_IN_FLIGHT + 1);
    tcase_add_loop_test(core, choices_begin_together, 1, MAX_IN_FLIGHT + 1);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
