/* Window blocks: their owners, their reuse, and how few a sequence keeps while it runs. */
#include <check.h>
#include <stdlib.h>

#include "support/fake_client.h"
#include "support/suite_main.h"

/* ---- the pool ------------------------------------------------------------------------------- */

enum { N = 3, BLOCKS = 8 };
static struct window_pool pool;

static void setup(void) {
    window_pool_init(&pool, N, 5, BLOCKS, 4);
}

static void teardown(void) {
    window_pool_free(&pool);
}

START_TEST(an_unwatched_window_block_is_free_or_idle) {
    window_pool_attach(&pool, 6);
    window_pool_watch(&pool, 6);
    window_pool_attach(&pool, 2);
    ck_assert(window_pool_has(&pool, 6) && window_pool_has(&pool, 2) && !window_pool_has(&pool, 0));
    ck_assert_int_eq(window_pool_available(&pool), 1);
    window_pool_unwatch(&pool, 6, true);
    ck_assert_int_eq(window_pool_available(&pool), 1);
    window_pool_unwatch(&pool, 6, true);
    window_pool_unwatch(&pool, 2, false);
    ck_assert_int_eq(window_pool_available(&pool), 3);
    ck_assert(window_pool_has(&pool, 6) && !window_pool_has(&pool, 2));
    window_pool_watch(&pool, 6);
    ck_assert_int_eq(window_pool_available(&pool), 2);
    window_pool_unwatch(&pool, 6, true);
    window_pool_detach(&pool, 6);
    ck_assert(!window_pool_has(&pool, 6) && pool.n_idle == 0 && pool.n_free == 3);
}
END_TEST

START_TEST(the_oldest_idle_one_is_taken_when_none_is_free) {
    for (int b = 0; b < 3; b++) window_pool_attach(&pool, b);
    window_pool_unwatch(&pool, 1, true);
    window_pool_unwatch(&pool, 0, true);
    window_pool_unwatch(&pool, 2, true);
    window_pool_attach(&pool, 5);
    ck_assert(!window_pool_has(&pool, 1) && window_pool_has(&pool, 0) && window_pool_has(&pool, 2));
    window_pool_watch(&pool, 0);
    window_pool_attach(&pool, 1);
    ck_assert(window_pool_has(&pool, 0) && !window_pool_has(&pool, 2));
    ck_assert_int_eq(window_pool_available(&pool), 0);
}
END_TEST

START_TEST(a_holder_that_moves_brings_its_window_block_if_needed) {
    window_pool_attach(&pool, 1);
    int32_t content = pool.of[1];
    window_pool_move(&pool, 1, 4);
    ck_assert(pool.of[4] == content && pool.owner[content] == 4 && !window_pool_has(&pool, 1));
    ck_assert(pool.watchers[4] == 1 && pool.watchers[1] == 0);
    window_pool_attach(&pool, 1);
    window_pool_move(&pool, 1, 4);
    ck_assert(pool.of[4] == content && pool.watchers[4] == 2 && !window_pool_has(&pool, 1));
    ck_assert_int_eq(window_pool_available(&pool), 2);
}
END_TEST

struct window_notes {
    int n_gained, n_lost;
    int32_t block;
};

static void note_gain(void *arg, int32_t block) {
    struct window_notes *notes = arg;
    ck_assert(window_pool_has(&pool, block));
    notes->n_gained++;
    notes->block = block;
}

static void note_lose(void *arg, int32_t block) {
    struct window_notes *notes = arg;
    ck_assert(window_pool_has(&pool, block));
    notes->n_lost++;
    notes->block = block;
}

START_TEST(an_observer_is_told_of_moved_and_reused_window_blocks) {
    struct window_notes notes = {0};
    window_pool_observe(&pool, &(struct window_observer){note_gain, note_lose, &notes});
    for (int b = 0; b < N; b++) window_pool_attach(&pool, b);
    ck_assert(notes.n_gained == 0 && notes.n_lost == 0);
    window_pool_move(&pool, 2, 7);
    ck_assert(notes.n_gained == 1 && notes.block == 7);
    window_pool_unwatch(&pool, 1, true);
    ck_assert_int_eq(notes.n_lost, 0); /* it is idle, and may be watched again */
    window_pool_attach(&pool, 4);
    ck_assert(notes.n_lost == 1 && notes.block == 1);
}
END_TEST

/* The first position that row n sees is in the first block that it sees, and at most `most` blocks
 * follow up to the row. */
START_TEST(a_row_sees_its_window_and_no_block_before_it) {
    for (int size = 1; size <= 17; size++) {
        for (int window = 1; window <= 40; window++) {
            struct window_pool p = {.n = 1, .window = window, .block_size = size};
            int most = 0;
            for (int n = 0; n < 100; n++) {
                int position = n - window + 1 > 0 ? n - window + 1 : 0;
                ck_assert_int_eq(window_pool_first_seen(&p, n), position / size);
                most = max_int(most, n / size - position / size + 1);
            }
            ck_assert_int_eq(most, window_blocks_seen(window, size));
        }
    }
    struct window_pool none = {.n = 0};
    ck_assert_int_eq(window_pool_first_seen(&none, 1000), 0);
}
END_TEST

/* Windows of 5 positions in blocks of 4: the row after block i sees only that block. */
START_TEST(blocks_are_usable_up_to_one_whose_row_finds_all) {
    static const int32_t block[] = {0, 1, 2, 3, 4, 5};
    struct window_pool p;
    window_pool_init(&p, 3, 5, 6, 4);
    ck_assert_int_eq(window_pool_usable(&p, block, 6, 0), 0);
    window_pool_attach(&p, 2);
    ck_assert_int_eq(window_pool_usable(&p, block, 6, 0), 3);
    ck_assert_int_eq(window_pool_usable(&p, block, 2, 0), 0);
    ck_assert_int_eq(window_pool_usable(&p, block, 6, 2), 3);
    ck_assert_int_eq(window_pool_usable(&p, block, 6, 5), 5); /* the sequence's own blocks */
    window_pool_attach(&p, 5);
    ck_assert_int_eq(window_pool_usable(&p, block, 6, 0), 6);
    window_pool_free(&p);
    const struct window_pool none = {.n = 0};
    ck_assert_int_eq(window_pool_usable(&none, block, 6, 0), 6);
}
END_TEST

/* ---- sequences ------------------------------------------------------------------------------ */

enum { MODEL_LEN = 200, BLOCK = 4, WINDOW = 10, ROWS = 8, SEEN = 4, MOST = 3, SLOTS = 160 };

struct world {
    struct fake_engine *engine;
    struct scheduler *scheduler;
    struct fake_client client[MOST];
};

static void on_events(void *arg, const struct event *events, int n) {
    (void)arg;
    for (int i = 0; i < n; i++) fake_client_take(events[i].generation->owner, &events[i]);
}

static struct world *world_new(int n_window_blocks) {
    struct world *w = mem_calloc(1, sizeof *w);
    struct scheduler_config config = {.max_num_seqs = 4,
                                      .max_num_batched_tokens = ROWS,
                                      .max_mixed_prefill_tokens = ROWS,
                                      .max_model_len = MODEL_LEN,
                                      .max_queued_requests = MOST,
                                      .max_queued_tokens = MOST * MODEL_LEN,
                                      .n_blocks = SLOTS,
                                      .block_size = BLOCK,
                                      .n_window_blocks = n_window_blocks,
                                      .window = WINDOW,
                                      .max_logit_rows = 4,
                                      .prefix_caching = true,
                                      .on_events = on_events,
                                      .arg = w};
    w->engine = fake_engine_new(&config);
    struct engine_port port = fake_engine_port(w->engine);
    w->scheduler = scheduler_new_on(&config, &port);
    return w;
}

static void world_free(struct world *w) {
    scheduler_free(w->scheduler);
    fake_engine_free(w->engine);
    free(w);
}

/* Prompts of one `text` have equal beginnings. */
static struct fake_client *submit(struct world *w, int k, int text, int n_prompt, int n_output) {
    struct fake_client *client = &w->client[k];
    *client = (struct fake_client){
        .generation = {
            .n_prompt = n_prompt, .max_tokens = n_output, .n = 1, .prompt_logprobs = -1}};
    for (int i = 0; i < n_prompt; i++) client->prompt[i] = (i * 3 + text) % FAKE_V;
    fake_client_submit(client, w->scheduler, MODEL_LEN);
    return client;
}

/* Runs steps until all have ended. Returns the maximum number of window blocks in use between two
 * steps. When a row sees the most blocks, its own is a new one. */
static int run(struct world *w) {
    int most = 0;
    for (bool more = true; more;) {
        more = fake_step(w->scheduler);
        fake_engine_poison(w->engine, &w->scheduler->pool.windows);
        most = max_int(most, w->scheduler->stats.window_blocks_used);
    }
    return most;
}

START_TEST(a_sequence_keeps_the_blocks_of_its_window) {
    struct world *w = world_new(40);
    submit(w, 0, 1, 120, 60);
    ck_assert_int_eq(run(w), SEEN - 1);
    ck_assert_int_eq(w->scheduler->stats.window_blocks_used, 0);
    ck_assert(w->client[0].done && w->engine->n_rows == 179);
    world_free(w);
}
END_TEST

START_TEST(sequences_run_together_on_the_window_blocks_that_they_see) {
    struct world *w = world_new(3 * SEEN + ROWS / BLOCK);
    for (int k = 0; k < 3; k++) submit(w, k, k, 100, 40);
    ck_assert_int_le(run(w), 3 * SEEN + ROWS / BLOCK);
    ck_assert_uint_eq(w->scheduler->stats.preemptions, 0);
    ck_assert_int_eq(w->engine->most_seqs, 3);
    world_free(w);
}
END_TEST

/* Runs one sequence, then two more with the same beginning, which find its blocks. Returns the
 * maximum number that ran together. */
static int run_sharers(int n_window_blocks) {
    struct world *w = world_new(n_window_blocks);
    submit(w, 0, 1, 82, 60);
    while (w->client[0].choice[0].n_output == 0) fake_step(w->scheduler);
    for (int k = 1; k < 3; k++) submit(w, k, 1, 82, 2);
    run(w);
    ck_assert_uint_eq(w->scheduler->stats.preemptions, 0);
    for (int k = 1; k < 3; k++) ck_assert_int_eq(w->client[k].n_cached, 80);
    int together = w->engine->most_seqs;
    world_free(w);
    return together;
}

/* Blocks 18 and 19 are in the window of each sequence, and count once. The last block of each is
 * separate. The two longest sequences are promised one more. */
START_TEST(window_blocks_that_are_shared_count_once) {
    ck_assert_int_eq(run_sharers(2 + 3 + 2), 3);
    ck_assert_int_eq(run_sharers(2 + 3 + 1), 2);
}
END_TEST

/* A running sequence keeps the window blocks that its next rows see: an admitted one never preempts
 * it, and is never preempted itself. Prompts are longer than the window here, so no sequence needs
 * more later. */
START_TEST(window_blocks_that_are_promised_are_not_given_away) {
    for (int i = 0; i < 4 * 3 * SEEN; i++) {
        int n = SEEN + i / 4;
        struct world *w = world_new(n);
        submit(w, 0, 1, 50 + i % 4, 60);
        for (int step = 0; step < 20; step++) fake_step(w->scheduler);
        for (int k = 1; k < 3; k++) submit(w, k, k + 1, 30 + k, 40);
        run(w);
        ck_assert_msg(w->scheduler->stats.preemptions == 0, "with %d window blocks", n);
        ck_assert_int_ge(w->engine->most_seqs, n >= 3 * SEEN + 1 ? 3 : 1);
        world_free(w);
    }
}
END_TEST

START_TEST(as_few_as_one_row_sees_are_enough) {
    struct world *w = world_new(SEEN);
    for (int k = 0; k < 3; k++) submit(w, k, 0, 70, 20);
    ck_assert_int_eq(run(w), SEEN - 1);
    for (int k = 0; k < 3; k++) ck_assert(w->client[k].done);
    world_free(w);
}
END_TEST

/* 60 tokens are 15 blocks. The first 14 can be hits; their last window is in blocks 11 to 13. */
START_TEST(a_prefix_needs_the_window_blocks_of_its_end) {
    struct world *w = world_new(40);
    struct window_pool *windows = &w->scheduler->pool.windows;
    submit(w, 0, 1, 60, 1);
    run(w);
    uint64_t rows = w->engine->n_rows;
    ck_assert_int_eq(submit(w, 1, 1, 60, 1)->n_cached, 0);
    run(w);
    ck_assert_uint_eq(w->engine->n_rows, rows + 4);
    submit(w, 2, 1, 60, 1);
    inbox_take(w->scheduler);
    struct sequence *sequence = sequence_of(w->scheduler->waiting.head.next);
    struct block_key key = sequence_key(sequence, 0, 0);
    int32_t hit[15];
    ck_assert_int_eq(
        prefix_cache_match(&w->scheduler->pool.known, key, sequence->kv.hashes, 14, hit), 14);
    window_pool_detach(windows, hit[12]);
    rows = w->engine->n_rows;
    run(w);
    ck_assert_uint_eq(w->engine->n_rows, rows + 60 - 12 * BLOCK);
    ck_assert_int_eq(w->client[2].n_cached, 12 * BLOCK);
    /* the known block got the recomputed window block */
    ck_assert(window_pool_has(windows, hit[12]));
    world_free(w);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler/window_pool");
    TCase *core = tcase_create("pool");
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_test(core, an_unwatched_window_block_is_free_or_idle);
    tcase_add_test(core, the_oldest_idle_one_is_taken_when_none_is_free);
    tcase_add_test(core, a_holder_that_moves_brings_its_window_block_if_needed);
    tcase_add_test(core, an_observer_is_told_of_moved_and_reused_window_blocks);
    tcase_add_test(core, a_row_sees_its_window_and_no_block_before_it);
    tcase_add_test(core, blocks_are_usable_up_to_one_whose_row_finds_all);
    suite_add_tcase(suite, core);
    TCase *sequences = tcase_create("sequences");
    tcase_add_test(sequences, a_sequence_keeps_the_blocks_of_its_window);
    tcase_add_test(sequences, sequences_run_together_on_the_window_blocks_that_they_see);
    tcase_add_test(sequences, window_blocks_that_are_shared_count_once);
    tcase_add_test(sequences, window_blocks_that_are_promised_are_not_given_away);
    tcase_add_test(sequences, as_few_as_one_row_sees_are_enough);
    tcase_add_test(sequences, a_prefix_needs_the_window_blocks_of_its_end);
    suite_add_tcase(suite, sequences);
    return suite_main(suite);
}
