/* Swapping, case by case: swapped sequences are not recomputed, a sequence that ends frees its
 * slots, without slots nothing changes, and blocks that the prefix cache evicts are kept while no
 * sequence needs their slots. (test_simulation.c checks it at random.) */
#include <check.h>
#include <stdlib.h>

#include "support/fake_client.h"
#include "support/suite_main.h"

enum { MODEL_LEN = 64, BLOCK = 4, PROMPT = 12, OUTPUT = 21, MOST = 3 };
/* Two sequences of 32 slots do not fit into 13 blocks of 4. */
enum { FEW = 13, PLENTY = 100, ROWS = PROMPT + OUTPUT - 1 };

struct world {
    struct fake_engine *engine;
    struct scheduler *scheduler;
    struct fake_client client[MOST];
};

static void on_events(void *arg, const struct event *events, int n) {
    (void)arg;
    for (int i = 0; i < n; i++) fake_client_take(events[i].generation->owner, &events[i]);
}

static struct world *world_new(int n_blocks, int n_host_blocks, int n_host, int swap_from,
                               bool caching) {
    struct world *w = mem_calloc(1, sizeof *w);
    struct scheduler_config config = {.max_num_seqs = 4,
                                      .max_num_batched_tokens = 16,
                                      .max_model_len = MODEL_LEN,
                                      .max_queued_requests = MOST,
                                      .max_queued_tokens = MOST * MODEL_LEN,
                                      .n_blocks = n_blocks,
                                      .block_size = BLOCK,
                                      .max_logit_rows = 4,
                                      .prefix_caching = caching,
                                      .swap_from = swap_from,
                                      .on_events = on_events,
                                      .arg = w};
    w->engine = fake_engine_new(&config);
    w->engine->in_flight = 2;
    w->engine->n_host_blocks = n_host_blocks;
    w->engine->n_host = n_host;
    struct engine_port port = fake_engine_port(w->engine);
    w->scheduler = scheduler_new_on(&config, &port);
    return w;
}

static void world_free(struct world *w) {
    ck_assert_int_eq(swap_used(&w->scheduler->swap), 0);
    ck_assert_int_eq(block_pool_available(&w->scheduler->pool), w->engine->n_blocks);
    scheduler_free(w->scheduler);
    fake_engine_free(w->engine);
    free(w);
}

static void prepare(struct world *w, int k) {
    struct fake_client *client = &w->client[k];
    client->generation = (struct generation){
        .n_prompt = PROMPT, .max_tokens = OUTPUT, .n = 1, .prompt_logprobs = -1};
    for (int i = 0; i < PROMPT; i++) client->prompt[i] = (i * 3 + k) % FAKE_V;
    fake_client_ready(client, MODEL_LEN);
}

static void put(struct world *w, int k) {
    struct err err;
    ck_assert_int_eq(scheduler_submit(w->scheduler, &w->client[k].generation, &err), STATUS_OK);
}

static void submit(struct world *w, int k) {
    prepare(w, k);
    put(w, k);
}

static struct world *run_two(int n_blocks, int n_host_blocks, int n_host, int swap_from,
                             bool caching) {
    struct world *w = world_new(n_blocks, n_host_blocks, n_host, swap_from, caching);
    submit(w, 0);
    submit(w, 1);
    fake_run(w->scheduler);
    ck_assert(w->client[0].done && w->client[1].done);
    ck_assert_int_eq(w->scheduler->stats.preemptions > 0, n_blocks == FEW);
    return w;
}

START_TEST(restored_blocks_are_not_recomputed) {
    struct world *w = run_two(PLENTY, 0, 0, 1, _i);
    ck_assert_uint_eq(w->engine->n_rows, 2 * ROWS);
    world_free(w);
    w = run_two(FEW, 0, 0, 1, false);
    ck_assert_uint_gt(w->engine->n_rows, 2 * ROWS);
    world_free(w);
    w = run_two(FEW, 20, 20, 1, _i);
    ck_assert_uint_eq(w->engine->n_rows, 2 * ROWS);
    ck_assert_uint_gt(w->engine->n_in, 0);
    world_free(w);
}
END_TEST

START_TEST(without_memory_or_slots_or_need_it_is_computed_again) {
    static const struct {
        int n_host_blocks, n_host, swap_from;
    } cases[] = {{20, 0, 1}, {3, 3, 1}, {20, 20, MODEL_LEN}};
    struct world *w =
        run_two(FEW, cases[_i].n_host_blocks, cases[_i].n_host, cases[_i].swap_from, false);
    ck_assert_uint_gt(w->engine->n_rows, 2 * ROWS);
    ck_assert_uint_eq(w->engine->n_out, 0);
    world_free(w);
}
END_TEST

/* Runs until the second of the two requests is swapped. */
static struct world *run_to_swapped(void) {
    struct world *w = world_new(FEW, 20, 20, 1, true);
    struct scheduler_stats stats = {0};
    submit(w, 0);
    submit(w, 1);
    while (stats.swapped == 0) {
        ck_assert(fake_step(w->scheduler));
        scheduler_stats(w->scheduler, &stats);
    }
    ck_assert_int_eq(stats.running, 1);
    ck_assert_int_eq(stats.waiting, 0);
    ck_assert_int_eq(stats.host_blocks_total, 20);
    ck_assert_uint_eq(stats.swapped_out,
                      (uint64_t)(stats.host_blocks_used + stats.host_blocks_cached));
    return w;
}

START_TEST(a_sequence_that_ends_returns_its_slots) {
    struct world *w = run_to_swapped();
    atomic_store(&w->client[1].generation.cancelled, true);
    scheduler_cancel(w->scheduler, &w->client[1].generation);
    fake_step(w->scheduler);
    ck_assert(w->client[1].done);
    ck_assert_int_eq(swap_used(&w->scheduler->swap), 0);
    fake_run(w->scheduler);
    ck_assert_uint_eq(w->engine->n_in, 0);
    world_free(w);
}
END_TEST

START_TEST(a_scheduler_may_go_while_one_is_swapped) {
    struct world *w = run_to_swapped();
    for (int k = 0; k < 2; k++) atomic_store(&w->client[k].generation.cancelled, true);
    scheduler_free(w->scheduler);
    ck_assert_int_eq(w->engine->n_passes, 0);
    ck_assert_uint_eq(w->engine->n_in, 0);
    fake_engine_free(w->engine);
    free(w);
}
END_TEST

/* If others compute, the step that loads a sequence has no rows of it. */
START_TEST(a_restored_sequence_skips_a_step_beside_others) {
    struct world *w = run_to_swapped();
    while (w->engine->n_in == 0) ck_assert(fake_step(w->scheduler));
    ck_assert_int_eq(w->scheduler->swap.loading, w->scheduler->running.n > 1);
    fake_run(w->scheduler);
    world_free(w);
}
END_TEST

/* A request that precedes a search and grows preempts it at every point of its steps. A beam whose
 * candidates are known or in flight might not continue, so it is not swapped. */
START_TEST(a_beam_with_candidates_in_flight_is_not_swapped) {
    uint64_t preempted = 0;
    for (int wait = 1; wait < 16; wait++) {
        struct world *w = world_new(12, 20, 20, 1, false);
        struct generation *search = &w->client[0].generation;
        prepare(w, 0);
        search->max_tokens = 12;
        search->beams = (struct beam_search){.width = 2, .stopping = BEAMS_NEVER_STOP_EARLY};
        fake_client_ready(&w->client[0], MODEL_LEN);
        put(w, 0);
        for (int i = 0; i < wait; i++) fake_step(w->scheduler);
        prepare(w, 1);
        w->client[1].generation.priority = -1;
        put(w, 1);
        fake_run(w->scheduler);
        ck_assert(w->client[0].done && w->client[1].done);
        preempted += w->scheduler->stats.preemptions;
        world_free(w);
    }
    ck_assert_uint_gt(preempted, 0);
}
END_TEST

/* ---- blocks that the prefix cache evicts ---------------------------------------------------- */

/* Runs request k alone, under this salt. Returns how many tokens of its prompt were cached. */
static int run_one(struct world *w, int k, uint64_t salt) {
    struct fake_client *client = &w->client[k];
    prepare(w, k);
    client->generation.cache_salt[0] = salt;
    put(w, k);
    fake_run(w->scheduler);
    ck_assert(client->done);
    return client->n_cached;
}

/* The two full blocks of a prompt, and 6 more of its answer, were known. Then others used all
 * blocks, and all of these are known too, since the requests have the same length. */
static struct world *run_until_evicted(int n_host_blocks, int swap_from, bool caching) {
    struct world *w = world_new(FEW, n_host_blocks, n_host_blocks, swap_from, caching);
    ck_assert_int_eq(run_one(w, 0, 0), 0);
    ck_assert_int_eq(run_one(w, 1, 0), 0);
    ck_assert_int_eq(run_one(w, 2, 0), 0);
    return w;
}

START_TEST(an_evicted_block_is_restored) {
    struct world *w = run_until_evicted(20, _i ? 8 : 1, true);
    struct scheduler_stats stats;
    scheduler_stats(w->scheduler, &stats);
    ck_assert_int_eq(stats.host_blocks_cached, 3 * 8 - FEW);
    ck_assert_int_eq(stats.host_blocks_used, 0);
    ck_assert_uint_eq(w->engine->n_in, 0);
    uint64_t rows = w->engine->n_rows;
    ck_assert_int_eq(run_one(w, 0, 0), 8);
    ck_assert_uint_eq(w->engine->n_in, 2);
    ck_assert_uint_eq(w->engine->n_rows - rows, ROWS - 8);
    scheduler_stats(w->scheduler, &stats);
    ck_assert_uint_eq(stats.swapped_in, 2);
    ck_assert_uint_eq(stats.swapped_out, w->engine->n_out);
    world_free(w);
}
END_TEST

START_TEST(restored_blocks_are_found_with_their_successors) {
    struct world *w = run_until_evicted(40, 1, true);
    ck_assert_int_eq(run_one(w, 0, 0), 8);
    for (int i = 0; i < 4; i++) ck_assert_int_eq(run_one(w, i % 3, 0), 8);
    world_free(w);
}
END_TEST

START_TEST(kept_blocks_are_found_only_with_their_salt) {
    struct world *w = run_until_evicted(20, 1, true);
    ck_assert_int_eq(run_one(w, 0, 5), 0);
    ck_assert_uint_eq(w->engine->n_in, 0);
    world_free(w);
}
END_TEST

START_TEST(little_is_not_worth_the_wait) {
    struct world *w = run_until_evicted(20, 9, true);
    ck_assert_int_eq(run_one(w, 0, 0), 0);
    ck_assert_uint_eq(w->engine->n_in, 0);
    world_free(w);
}
END_TEST

START_TEST(nothing_is_kept_without_caching) {
    struct world *w = run_until_evicted(20, 1, false);
    ck_assert_uint_eq(w->engine->n_out, 0);
    world_free(w);
}
END_TEST

/* All slots hold cached blocks when two sequences need more blocks than there are. */
START_TEST(sequences_precede_cached_blocks) {
    struct world *w = run_until_evicted(8, 1, true);
    ck_assert_int_eq(host_cache_blocks(&w->scheduler->swap.cache), 8);
    struct scheduler_stats stats = {0};
    submit(w, 1);
    submit(w, 2);
    while (stats.swapped == 0) {
        ck_assert(fake_step(w->scheduler));
        scheduler_stats(w->scheduler, &stats);
    }
    ck_assert_int_gt(stats.host_blocks_used, 0);
    ck_assert_int_le(stats.host_blocks_used + stats.host_blocks_cached, 8);
    fake_run(w->scheduler);
    ck_assert(w->client[1].done && w->client[2].done);
    world_free(w);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler_swap");
    TCase *core = tcase_create("core");
    tcase_add_loop_test(core, restored_blocks_are_not_recomputed, false, true + 1);
    tcase_add_loop_test(core, without_memory_or_slots_or_need_it_is_computed_again, 0, 3);
    tcase_add_test(core, a_sequence_that_ends_returns_its_slots);
    tcase_add_test(core, a_scheduler_may_go_while_one_is_swapped);
    tcase_add_test(core, a_restored_sequence_skips_a_step_beside_others);
    tcase_add_test(core, a_beam_with_candidates_in_flight_is_not_swapped);
    tcase_add_loop_test(core, an_evicted_block_is_restored, 0, 2);
    tcase_add_test(core, restored_blocks_are_found_with_their_successors);
    tcase_add_test(core, kept_blocks_are_found_only_with_their_salt);
    tcase_add_test(core, little_is_not_worth_the_wait);
    tcase_add_test(core, nothing_is_kept_without_caching);
    tcase_add_test(core, sequences_precede_cached_blocks);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
