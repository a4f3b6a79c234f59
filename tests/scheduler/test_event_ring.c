/* The ring of block events with a pool: order, salts, a full ring, a restart. test_simulation.c has
 * a reader in half of its scenarios. */
#include <check.h>

#include "support/event_reader.h"
#include "support/suite_main.h"

enum { B = 4, N = 6 };
static const uint64_t open_salt[2], private_salt[2] = {0, 9};
static struct block_pool pool;
static struct event_reader *reader;
static int n_wakes;

static void count_wake(void *arg) {
    ck_assert_ptr_eq(arg, &n_wakes);
    n_wakes++;
}

static void setup(void) {
    block_pool_init(&pool, N, B, true);
    reader = event_reader_new(N, B);
    reader->ring->wake = count_wake;
    reader->ring->arg = &n_wakes;
    n_wakes = 0;
    event_ring_observe(reader->ring, &pool);
}

static void teardown(void) {
    event_reader_free(reader);
    block_pool_free(&pool);
}

/* Registers a new block of B times `token` after `parent` (-1: none), and returns it. */
static int32_t know(int32_t token, int32_t parent, const uint64_t *salt) {
    const int32_t tokens[B] = {token, token, token, token};
    struct block_hash before = {salt[0], salt[1]};
    if (parent >= 0) before = pool.known.block[parent].hash;
    const struct block_key key = {.hash = prefix_hash(before, tokens, B),
                                  .parent_hash = before,
                                  .salt = salt,
                                  .tokens = tokens,
                                  .parent = prefix_cache_id(&pool.known, parent)};
    return block_pool_register(&pool, block_pool_acquire(&pool), &key);
}

static void evict_all(void) {
    int32_t held[N];
    for (int i = 0; i < N; i++) held[i] = block_pool_acquire(&pool);
    for (int i = 0; i < N; i++) block_pool_release(&pool, held[i]);
}

static void step_and_check(void) {
    event_ring_end_step(reader->ring);
    event_reader_apply(reader);
    event_reader_check(reader, &pool);
}

START_TEST(a_reader_knows_the_blocks_of_the_pool) {
    int32_t a = know(1, -1, open_salt), b = know(2, a, open_salt);
    step_and_check();
    ck_assert_int_eq(reader->n_seen, 2);
    block_pool_release(&pool, b);
    block_pool_release(&pool, a);
    evict_all();
    step_and_check();
    ck_assert_int_eq(reader->n_seen, 0);
    ck_assert_int_eq(reader->n_cleared, 0);
}
END_TEST

START_TEST(events_are_visible_at_the_end_of_a_step_and_wake_the_reader_once) {
    event_ring_end_step(reader->ring);
    ck_assert_int_eq(n_wakes, 0);
    int32_t a = know(1, -1, open_salt);
    know(2, a, open_salt);
    ck_assert_uint_eq(event_ring_ready(reader->ring), 0);
    event_ring_end_step(reader->ring);
    ck_assert_uint_eq(event_ring_ready(reader->ring), 2);
    ck_assert_int_eq(n_wakes, 1);
    const struct block_event *child = event_ring_at(reader->ring, 1);
    ck_assert(child->has_parent && child->parent == event_ring_at(reader->ring, 0)->hash);
    event_ring_end_step(reader->ring);
    ck_assert_int_eq(n_wakes, 1);
}
END_TEST

START_TEST(private_prefixes_have_no_events) {
    int32_t a = know(1, -1, private_salt);
    know(1, -1, open_salt);
    step_and_check();
    ck_assert_uint_eq(reader->n_stored, 1);
    block_pool_release(&pool, a);
    event_ring_restart(reader->ring);
    step_and_check();
    ck_assert_uint_eq(reader->n_stored, 2);
    ck_assert_int_eq(reader->n_seen, 1);
}
END_TEST

/* Eight events fit. The ring has three when five more blocks come and go. */
START_TEST(a_full_ring_loses_events_and_then_lists_all_blocks) {
    int32_t a = know(1, -1, open_salt), b = know(2, a, open_salt);
    event_ring_end_step(reader->ring);
    for (int i = 0; i < 4; i++) {
        block_pool_release(&pool, know(10 + i, b, open_salt));
        int32_t held[N - 2];
        for (int k = 0; k < N - 2; k++) held[k] = block_pool_acquire(&pool);
        for (int k = 0; k < N - 2; k++) block_pool_release(&pool, held[k]);
    }
    ck_assert(atomic_load(&reader->ring->lost));
    event_ring_end_step(reader->ring); /* the ring is not empty: nothing can be listed */
    ck_assert_uint_eq(event_ring_ready(reader->ring), reader->ring->capacity);
    ck_assert(!event_ring_waits(reader->ring));
    event_reader_apply(reader);
    ck_assert(event_ring_waits(reader->ring));
    n_wakes = 0;
    step_and_check();
    ck_assert_int_eq(n_wakes, 1);
    ck_assert_uint_eq(reader->n_cleared, 1);
    ck_assert_int_eq(reader->n_seen, 2);
}
END_TEST

START_TEST(a_restart_lists_all_blocks_even_if_the_pool_is_full) {
    int32_t last = -1;
    for (int i = 0; i < N; i++) last = know(i, last, open_salt);
    step_and_check();
    event_ring_restart(reader->ring);
    ck_assert(event_ring_waits(reader->ring));
    step_and_check();
    ck_assert_uint_eq(reader->n_cleared, 1);
    ck_assert_int_eq(reader->n_seen, N);
    step_and_check();
    ck_assert_uint_eq(reader->n_cleared, 1);
}
END_TEST

START_TEST(the_ring_has_room_for_all_blocks_of_any_pool) {
    static const int sizes[] = {1, 1023, 1024, 5000};
    for (int i = 0; i < 4; i++) {
        struct event_ring *ring = event_ring_new(sizes[i], 16);
        ck_assert_uint_gt(ring->capacity, (uint64_t)sizes[i]);
        ck_assert_uint_eq(ring->capacity & (ring->capacity - 1), 0);
        ck_assert_uint_eq(event_ring_bytes(sizes[i], 16),
                          ring->capacity * (sizeof *ring->event + 16 * sizeof *ring->tokens));
        event_ring_free(ring);
    }
    event_ring_free(NULL); /* a server without events */
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler_event_ring");
    TCase *core = tcase_create("core");
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_test(core, a_reader_knows_the_blocks_of_the_pool);
    tcase_add_test(core, events_are_visible_at_the_end_of_a_step_and_wake_the_reader_once);
    tcase_add_test(core, private_prefixes_have_no_events);
    tcase_add_test(core, a_full_ring_loses_events_and_then_lists_all_blocks);
    tcase_add_test(core, a_restart_lists_all_blocks_even_if_the_pool_is_full);
    tcase_add_test(core, the_ring_has_room_for_all_blocks_of_any_pool);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
