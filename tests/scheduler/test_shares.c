/* Shares: the services of backlogged shares stay within the bound of Sheng et al. 2024, no share
 * starves, and an absent share saves up no claim. On the fake engine, step by step. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/fake_client.h"
#include "support/suite_main.h"

enum { N_SHARES = 4, SEQS = 6, MOST_PROMPT = 40, MOST_OUTPUT = 30, BACKLOG = 3 };
enum { STEPS_OF_PROMPT = 21 }; /* for a prompt of 20 tokens, with one row left in each step */

static struct scheduler_config config;
static struct fake_engine *engine;
static struct scheduler *scheduler;
static int weight[N_SHARES];
static uint64_t random_state;

/* What the test itself counts: the weighted service of each share, and its live requests. */
static double service[N_SHARES];
static int live[N_SHARES];

static int between(int low, int high) {
    return fake_between(&random_state, low, high);
}

static void on_events(void *arg, const struct event *events, int n) {
    (void)arg;
    for (int i = 0; i < n; i++) {
        struct fake_client *client = events[i].generation->owner;
        int share = client->generation.share;
        bool first = events[i].kind == EVENT_TOKEN && client->choice[0].n_output == 0;
        if (first)
            service[share] +=
                (double)(client->generation.n_prompt - events[i].n_cached) / weight[share];
        if (events[i].kind == EVENT_TOKEN) service[share] += 2.0 / weight[share];
        bool last = events[i].last;
        fake_client_take(client, &events[i]);
        if (!last) continue;
        live[share]--;
        free(client);
    }
}

static void submit(int share, int n_prompt, int max_tokens) {
    struct fake_client *client = mem_calloc(1, sizeof *client);
    struct generation *g = &client->generation;
    g->share = share;
    g->n_prompt = n_prompt;
    for (int i = 0; i < n_prompt; i++) client->prompt[i] = between(0, FAKE_V - 1);
    g->n = 1;
    g->max_tokens = max_tokens;
    g->sampling.seed = fake_random(&random_state);
    g->sampling.repetition_penalty = 1;
    g->prompt_logprobs = -1;
    fake_client_submit(client, scheduler, config.max_model_len);
    live[share]++;
}

static void begin(uint64_t seed, int in_flight) {
    random_state = seed * 1000003;
    for (int i = 0; i < N_SHARES; i++) {
        weight[i] = between(1, 4);
        service[i] = live[i] = 0;
    }
    config = (struct scheduler_config){.max_num_seqs = SEQS,
                                       .max_num_batched_tokens = between(SEQS, 60),
                                       .max_mixed_prefill_tokens = 1000,
                                       .max_model_len = MOST_PROMPT + MOST_OUTPUT,
                                       .max_queued_requests = 1000,
                                       .max_queued_tokens = 100000,
                                       .share_weights = weight,
                                       .n_shares = N_SHARES,
                                       .n_blocks = 200,
                                       .block_size = 4,
                                       .max_logit_rows = SEQS,
                                       .prefix_caching = seed % 2,
                                       .on_events = on_events};
    engine = fake_engine_new(&config);
    engine->in_flight = in_flight;
    struct engine_port port = fake_engine_port(engine);
    scheduler = scheduler_new_on(&config, &port);
}

static void end(void) {
    fake_run(scheduler);
    for (int i = 0; i < N_SHARES; i++) ck_assert_int_eq(live[i], 0);
    scheduler_free(scheduler);
    fake_engine_free(engine);
}

/* A share always has more waiting requests than a step can admit. */
static void keep_backlogged(int share) {
    while (live[share] < SEQS + BACKLOG) submit(share, between(1, MOST_PROMPT), MOST_OUTPUT);
}

/* The bound of the paper for weights of at least 1, and what may be in flight: a share is charged
 * for a prompt before its tokens arrive. */
static double bound(void) {
    return 2.0 * (MOST_PROMPT + 2 * SEQS * MOST_OUTPUT) + SEQS * MOST_PROMPT;
}

START_TEST(backlogged_shares_are_served_by_their_weights) {
    begin((uint64_t)_i + 1, 1 + _i % 2);
    double from[N_SHARES] = {0};
    for (int step = 0; step < 6000; step++) {
        for (int i = 0; i < N_SHARES; i++) keep_backlogged(i);
        fake_step(scheduler);
        if (step == 1000)
            for (int i = 0; i < N_SHARES; i++) from[i] = service[i];
        for (int i = 1; i < N_SHARES && step >= 1000; i++) {
            double differ = (service[i] - from[i]) - (service[0] - from[0]);
            ck_assert_msg(differ < bound() && differ > -bound(), "step %d, share %d: %g", step, i,
                          differ);
        }
    }
    ck_assert_double_gt(service[0], 4 * bound()); /* the bound says something */
    end();
}
END_TEST

/* Beside a share with a hundred requests, the next plan admits the single request of another share:
 * a share must not fill the batch. */
START_TEST(a_single_request_waits_for_no_queue) {
    begin(77, 1);
    for (int i = 0; i < N_SHARES; i++) scheduler->shares.share[i].weight = weight[i] = 1;
    for (int i = 0; i < 100; i++) submit(0, 20, MOST_OUTPUT);
    for (int i = 0; i < 40; i++) fake_step(scheduler);
    ck_assert_int_le(scheduler->running.n, SEQS - 1);
    submit(1, 20, 5);
    int steps = 0;
    for (; live[1] > 0; steps++) fake_step(scheduler);
    ck_assert_int_ge(live[0], 100 - 4 * SEQS);
    ck_assert_int_le(steps, 5 + STEPS_OF_PROMPT);
    end();
}
END_TEST

/* One share alone leaves one row unused, and other shares then fill the batch. */
START_TEST(a_share_leaves_some_rows) {
    begin(78, 1);
    for (int i = 0; i < N_SHARES; i++) scheduler->shares.share[i].weight = weight[i] = 1;
    for (int i = 0; i < 50; i++) submit(0, 4, MOST_OUTPUT);
    for (int i = 0; i < 20; i++) fake_step(scheduler);
    ck_assert_int_eq(scheduler->running.n, SEQS - 1);
    for (int i = 0; i < 50; i++) submit(1 + i % 2, 4, MOST_OUTPUT);
    int most = 0;
    for (int i = 0; i < 10; i++) {
        fake_step(scheduler);
        most = scheduler->running.n > most ? scheduler->running.n : most;
    }
    ck_assert_int_eq(most, SEQS);
    end();
}
END_TEST

/* A share that was away gets its part from now on, not what it did not use. */
START_TEST(an_absent_share_saves_up_nothing) {
    begin(5, 1);
    for (int i = 0; i < N_SHARES; i++) scheduler->shares.share[i].weight = weight[i] = 1;
    for (int step = 0; step < 2000; step++) {
        keep_backlogged(0);
        keep_backlogged(1);
        fake_step(scheduler);
    }
    double before[2] = {service[0], service[2]};
    ck_assert(before[0] > 1000 && before[1] == 0);
    for (int step = 0; step < 1500; step++) {
        for (int i = 0; i < 3; i++) keep_backlogged(i);
        fake_step(scheduler);
    }
    double differ = (service[2] - before[1]) - (service[0] - before[0]);
    ck_assert_msg(differ < bound() && differ > -bound(), "%g", differ);
    end();
}
END_TEST

START_TEST(rows_of_one_share) {
    static const int cases[][3] = {{1, 64, 64}, {2, 64, 63}, {9, 64, 56}, {1000, 64, 56},
                                   {2, 1, 1},   {5, 2, 1},   {3, 8, 7},   {4, 24, 21}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct shares shares = {.n = cases[i][0]};
        ck_assert_int_eq(shares_most_rows(&shares, cases[i][1]), cases[i][2]);
    }
}
END_TEST

START_TEST(counters) {
    struct shares shares;
    shares_init(&shares, 3, (int[]){1, 2, 1000});
    share_charge(&shares.share[0], 10);
    share_charge(&shares.share[1], 20);
    ck_assert_uint_eq(shares.share[0].service, shares.share[1].service);
    ck_assert_uint_gt(share_cost(&shares.share[2], 1), 0);
    shares_arrive(&shares, 0);
    shares_arrive(&shares, 2); /* lifted to the least of those that wait */
    ck_assert_uint_eq(shares.share[2].service, shares.share[0].service);
    share_charge(&shares.share[2], 5000);
    shares_leave(&shares, 0);
    shares_leave(&shares, 2);
    shares_arrive(&shares, 0); /* no key waits: lifted to the last that left */
    ck_assert_uint_eq(shares.share[0].service, shares.share[2].service);
    shares_arrive(&shares, 0); /* lifted only at the first */
    share_charge(&shares.share[1], 100000);
    shares_arrive(&shares, 1); /* never lowered */
    ck_assert_uint_eq(shares.share[1].service, 100020ull << 19);
    shares_free(&shares);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler_shares");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 120);
    tcase_add_test(core, rows_of_one_share);
    tcase_add_test(core, counters);
    tcase_add_loop_test(core, backlogged_shares_are_served_by_their_weights, 0, 4);
    tcase_add_test(core, a_single_request_waits_for_no_queue);
    tcase_add_test(core, a_share_leaves_some_rows);
    tcase_add_test(core, an_absent_share_saves_up_nothing);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
