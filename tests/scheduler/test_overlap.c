/* Two steps in flight have the same results as one: the same random load runs with one step and
 * with two steps in flight, and everything that a client can see is compared. Then single cases
 * show the cost of planning ahead and the things that it must not do. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "support/fake_client.h"
#include "support/suite_main.h"

enum { MODEL_LEN = 100, MOST = 24, MOST_EVENTS = 4096, N_SEEDS = 60 };

/* ---- a scheduler and its clients ------------------------------------------------------------ */

struct world {
    struct fake_engine *engine;
    struct scheduler *scheduler;
    struct fake_client client[MOST];
    int cancel_after[MOST]; /* number of tokens of choice 0 after which it is cancelled; 0: never */
    int n_tokens[MOST];
    struct event event[MOST_EVENTS];
    int n_events, n_ended;
};

static void note_token(struct world *w, const struct event *event) {
    int k = (int)((struct fake_client *)event->generation->owner - w->client);
    if (event->kind != EVENT_TOKEN || event->choice != 0) return;
    if (++w->n_tokens[k] == w->cancel_after[k])
        atomic_store(&event->generation->cancelled_choices[0], 1);
}

static void on_events(void *arg, const struct event *events, int n) {
    struct world *w = arg;
    for (int i = 0; i < n; i++) {
        note_token(w, &events[i]);
        fake_client_take(events[i].generation->owner, &events[i]);
        ck_assert_int_lt(w->n_events, MOST_EVENTS);
        w->event[w->n_events++] = events[i];
        w->n_ended += events[i].last;
    }
}

enum mode { ONE, TWO, N_MODES };

static struct world *world_new(enum mode mode, int n_blocks, int max_rows) {
    struct world *w = mem_calloc(1, sizeof *w);
    struct scheduler_config config = {.max_num_seqs = 6,
                                      .max_num_batched_tokens = max_rows,
                                      .max_model_len = MODEL_LEN,
                                      .max_queued_requests = MOST,
                                      .max_queued_tokens = MOST * MODEL_LEN,
                                      .n_blocks = n_blocks,
                                      .block_size = 4,
                                      .max_logit_rows = 12,
                                      .prefix_caching = true,
                                      .on_events = on_events,
                                      .arg = w};
    w->engine = fake_engine_new(&config);
    w->engine->in_flight = mode == ONE ? 1 : 2;
    struct engine_port port = fake_engine_port(w->engine);
    w->scheduler = scheduler_new_on(&config, &port);
    return w;
}

static void world_free(struct world *w) {
    scheduler_free(w->scheduler);
    fake_engine_free(w->engine);
    free(w);
}

static struct generation *ask(struct world *w, int k, int n_prompt, int max_tokens, int n) {
    struct generation *g = &w->client[k].generation;
    *g = (struct generation){
        .n_prompt = n_prompt, .max_tokens = max_tokens, .n = n, .prompt_logprobs = -1};
    for (int i = 0; i < n_prompt; i++) w->client[k].prompt[i] = i % FAKE_V;
    return g;
}

static void submit(struct world *w, int k) {
    fake_client_submit(&w->client[k], w->scheduler, MODEL_LEN);
}

/* ---- the same load -------------------------------------------------------------------------- */

/* Draws mixed lengths, stop ids, choices, prompt logprobs, common prefixes, cancels in flight. */
static void draw(struct world *w, int k, uint64_t *random) {
    struct generation *g = ask(w, k, fake_between(random, 1, 60), fake_between(random, 0, 20),
                               fake_between(random, 1, 3) == 1 ? fake_between(random, 2, 5) : 1);
    if (fake_between(random, 0, 1)) w->client[k].prompt[g->n_prompt / 2] = 3;
    g->sampling.seed = fake_random(random);
    g->min_tokens = g->max_tokens > 2 ? fake_between(random, 0, 2) : 0;
    g->n_stop_ids = fake_between(random, 0, 2);
    for (int i = 0; i < g->n_stop_ids; i++) g->stop_ids[i] = fake_between(random, 0, FAKE_V - 1);
    g->prompt_logprobs = fake_between(random, 1, 6) == 1 ? 2 : -1;
    w->cancel_after[k] = fake_between(random, 1, 3) == 1 ? fake_between(random, 1, 6) : 0;
}

static struct world *run_load(enum mode mode, uint64_t seed, bool together) {
    struct world *w = world_new(mode, together && seed % 2 ? 26 : 2000, seed % 3 ? 16 : 40);
    uint64_t random = seed;
    for (int k = 0; k < MOST; k++) {
        draw(w, k, &random);
        submit(w, k);
        if (!together) fake_run(w->scheduler);
    }
    fake_run(w->scheduler);
    ck_assert_int_eq(w->n_ended, MOST);
    return w;
}

/* Returns the next event of client k from *at on. */
static const struct event *next_of(const struct world *w, int k, int *at) {
    while (*at < w->n_events) {
        const struct event *event = &w->event[(*at)++];
        if (event->generation->owner == &w->client[k]) return event;
    }
    return NULL;
}

static void compare_event(const struct event *a, const struct event *b, bool cached_too) {
    ck_assert(a->kind == b->kind && a->choice == b->choice && a->finish == b->finish);
    ck_assert(a->last == b->last && a->position == b->position);
    if (cached_too) ck_assert_int_eq(a->n_cached, b->n_cached);
    if (a->kind == EVENT_END) return;
    ck_assert_int_eq(a->sampled.id, b->sampled.id);
    ck_assert(memcmp(&a->sampled.logprob, &b->sampled.logprob, sizeof(float)) == 0);
}

/* Events of choices that live together may have another order. Those of one choice may not. */
static void compare_choice(const struct world *a, const struct world *b, int k, int choice,
                           bool cached_too) {
    int i = 0, j = 0;
    for (;;) {
        const struct event *p = next_of(a, k, &i), *q = next_of(b, k, &j);
        while (p && p->choice != choice) p = next_of(a, k, &i);
        while (q && q->choice != choice) q = next_of(b, k, &j);
        ck_assert(!p == !q);
        if (!p) return;
        struct event without = *q;
        without.last = p->last; /* any of the choices that end in one step may be the last */
        compare_event(p, a->client[k].n_ended > 1 ? &without : q, cached_too);
    }
}

static void compare_worlds(struct world *a, struct world *b, bool cached_too) {
    struct scheduler_stats p, q;
    scheduler_stats(a->scheduler, &p);
    scheduler_stats(b->scheduler, &q);
    ck_assert_uint_eq(p.generated_tokens, q.generated_tokens);
    ck_assert_uint_eq(p.prompt_tokens, q.prompt_tokens);
    if (cached_too) {
        ck_assert_uint_eq(p.prefix_queries, q.prefix_queries);
        ck_assert_uint_eq(p.prefix_hits, q.prefix_hits);
        ck_assert_int_eq(p.blocks_cached, q.blocks_cached);
    }
    for (int k = 0; k < MOST; k++)
        for (int c = 0; c < a->client[k].n_ended; c++) compare_choice(a, b, k, c, cached_too);
}

static void check_modes_agree(bool together) {
    uint64_t dropped = 0, pending = 0, hits = 0;
    for (uint64_t seed = 1; seed <= N_SEEDS; seed++) {
        struct world *one = run_load(ONE, seed, together);
        struct world *two = run_load(TWO, seed, together);
        compare_worlds(one, two, !together);
        dropped += two->scheduler->stats.dropped_samples;
        pending += two->engine->n_pending;
        hits += two->scheduler->stats.prefix_hits;
        ck_assert_uint_eq(one->engine->n_pending, 0);
        ck_assert_uint_eq(one->scheduler->stats.dropped_samples, 0);
        world_free(two);
        world_free(one);
    }
    ck_assert(dropped > 0 && pending > 0 && hits > 0);
}

START_TEST(together_they_give_the_same) {
    check_modes_agree(true);
}
END_TEST

/* If requests run one after the other, the prefix cache also gives equal results. (If blocks are
 * few, the superfluous row may evict a known one.) */
START_TEST(one_by_one_the_cache_is_the_same) {
    check_modes_agree(false);
}
END_TEST

/* ---- costs ----------------------------------------------------------------------------------- */

START_TEST(an_end_by_length_is_known_before) {
    struct world *w = world_new((enum mode)_i, 100, 16);
    ask(w, 0, 10, 7, 1);
    submit(w, 0);
    fake_run(w->scheduler);
    ck_assert_int_eq((int)w->engine->n_rows, 10 + 6);
    ck_assert_int_eq((int)w->engine->n_pending, _i == ONE ? 0 : 6);
    ck_assert_int_eq((int)w->scheduler->stats.dropped_samples, 0);
    world_free(w);
}
END_TEST

static bool came_before(const struct world *w, int i) {
    for (int j = 0; j < i; j++)
        if (w->event[j].sampled.id == w->event[i].sampled.id) return true;
    return false;
}

/* Returns one of the 7 tokens that follow a prompt of 10, between the first and the last, as a stop
 * id. */
static int32_t stop_between(void) {
    struct world *w = world_new(ONE, 100, 16);
    ask(w, 0, 10, 7, 1);
    submit(w, 0);
    fake_run(w->scheduler);
    int i = 1;
    while (came_before(w, i)) i++;
    ck_assert_int_lt(i, 6);
    int32_t id = w->event[i].sampled.id;
    world_free(w);
    return id;
}

static struct world *run_to_stop(enum mode mode) {
    struct world *w = world_new(mode, 100, 16);
    struct generation *g = ask(w, 0, 10, 7, 1);
    g->n_stop_ids = 1;
    g->stop_ids[0] = stop_between();
    submit(w, 0);
    fake_run(w->scheduler);
    return w;
}

START_TEST(a_stop_throws_one_row_away) {
    struct world *one = run_to_stop(ONE), *w = run_to_stop((enum mode)_i);
    ck_assert_int_eq(w->n_events, one->n_events);
    ck_assert_int_eq(w->event[w->n_events - 1].finish, FINISH_STOP);
    ck_assert_int_eq((int)w->engine->n_rows, (int)one->engine->n_rows + (_i != ONE));
    ck_assert_int_eq((int)w->scheduler->stats.dropped_samples, _i != ONE);
    ck_assert_int_eq(block_pool_available(&w->scheduler->pool), 100);
    world_free(one);
    world_free(w);
}
END_TEST

/* The host forks the choices of a prompt, which delays them by one plan. Others continue. */
START_TEST(choices_wait_for_their_fork_and_others_do_not) {
    struct world *w = world_new(TWO, 100, 16);
    ask(w, 0, 4, 30, 1);
    submit(w, 0);
    fake_step(w->scheduler);
    fake_step(w->scheduler);
    ask(w, 1, 6, 5, 3);
    submit(w, 1);
    fake_run(w->scheduler);
    /* 4 tokens of the prompt were known */
    ck_assert_int_eq((int)w->engine->n_rows, 4 + 29 + 2 + 3 * 4);
    ck_assert_int_eq((int)w->engine->n_pending, 29 + 3 * 3);
    ck_assert_int_eq((int)w->engine->n_steps, 30);
    ck_assert_int_eq((int)w->engine->n_named, 30); /* the step includes their settings */
    world_free(w);
}
END_TEST

/* The blocks that a step in flight computes are not known yet, but will be soon. */
START_TEST(equal_prompts_wait_for_the_one_in_flight) {
    struct world *w = world_new((enum mode)_i, 100, 16);
    for (int k = 0; k < 2; k++) {
        ask(w, k, 14, 3, 1);
        submit(w, k);
    }
    fake_run(w->scheduler);
    ck_assert_int_eq(w->client[0].n_cached, 0);
    ck_assert_int_eq(w->client[1].n_cached, 12);
    ck_assert_int_eq((int)w->engine->n_rows, 14 + 2 + 2 + 2);
    world_free(w);
}
END_TEST

/* ---- ends while a step is in flight --------------------------------------------------------- */

static void take_in_flight(struct world *w, int n_prompt, int n) {
    struct generation *g = ask(w, 0, n_prompt, 5, n);
    if (n > 3) g->prompt_logprobs = 2;
    submit(w, 0);
    ck_assert(fake_step(w->scheduler));
    ck_assert_int_eq(w->scheduler->n_in_flight, 1);
}

START_TEST(a_leader_may_be_cancelled_when_all_choices_are_on_their_way) {
    struct world *w = world_new(TWO, 100, 16);
    take_in_flight(w, 9, 4);
    atomic_store(&w->client[0].generation.cancelled_choices[0], 1 | 4);
    fake_run(w->scheduler);
    ck_assert(w->client[0].done);
    for (int c = 0; c < 4; c++)
        ck_assert_int_eq(w->client[0].choice[c].n_output, c % 2 == 0 ? 0 : 5);
    world_free(w);
}
END_TEST

START_TEST(a_cancelled_request_gives_its_blocks_back_at_once) {
    struct world *w = world_new(TWO, 10, 16);
    take_in_flight(w, 9, 3);
    atomic_store(&w->client[0].generation.cancelled, true);
    ask(w, 1, 36, 4, 1); /* uses all blocks, in the next step */
    submit(w, 1);
    ck_assert(fake_step(w->scheduler));
    ck_assert(w->client[0].done);
    ck_assert_int_eq(w->scheduler->running.n, 1);
    fake_run(w->scheduler);
    ck_assert_int_eq(w->client[1].choice[0].n_output, 4);
    world_free(w);
}
END_TEST

START_TEST(a_scheduler_may_go_while_a_step_is_in_flight) {
    struct world *w = world_new(TWO, 100, 16);
    take_in_flight(w, 9, 1);
    fake_step(w->scheduler);
    ck_assert_int_eq(w->scheduler->n_in_flight, 1);
    atomic_store(&w->client[0].generation.cancelled, true); /* the checker expects the end */
    world_free(w);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler_overlap");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 120);
    tcase_add_test(core, together_they_give_the_same);
    tcase_add_test(core, one_by_one_the_cache_is_the_same);
    tcase_add_loop_test(core, an_end_by_length_is_known_before, ONE, N_MODES);
    tcase_add_loop_test(core, a_stop_throws_one_row_away, ONE, N_MODES);
    tcase_add_loop_test(core, equal_prompts_wait_for_the_one_in_flight, ONE, N_MODES);
    tcase_add_test(core, choices_wait_for_their_fork_and_others_do_not);
    tcase_add_test(core, a_leader_may_be_cancelled_when_all_choices_are_on_their_way);
    tcase_add_test(core, a_cancelled_request_gives_its_blocks_back_at_once);
    tcase_add_test(core, a_scheduler_may_go_while_a_step_is_in_flight);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
