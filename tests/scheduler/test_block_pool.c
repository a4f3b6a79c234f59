#include <check.h>
#include <stdlib.h>

#include "scheduler/kv/block_pool.h"
#include "support/suite_main.h"

enum { B = 4, N = 6 };
static const uint64_t salt[2];
static struct block_pool pool;

static void setup(void) {
    block_pool_init(&pool, N, B, true);
}

static void teardown(void) {
    block_pool_free(&pool);
}

/* Registers `block` as B times `token` after `parent`. */
static int32_t know(int32_t block, int32_t token, int32_t parent) {
    int32_t tokens[B] = {token, token, token, token};
    struct block_hash hash = {(uint64_t)token * 977 + (uint64_t)(parent + 1), 5};
    struct block_key key = {.hash = hash,
                            .salt = salt,
                            .tokens = tokens,
                            .parent = prefix_cache_id(&pool.known, parent)};
    return block_pool_register(&pool, block, &key);
}

static int32_t look_up(int32_t token, int32_t parent) {
    int32_t tokens[B] = {token, token, token, token};
    struct block_hash hash = {(uint64_t)token * 977 + (uint64_t)(parent + 1), 5};
    struct block_key key = {.hash = hash,
                            .salt = salt,
                            .tokens = tokens,
                            .parent = prefix_cache_id(&pool.known, parent)};
    return prefix_cache_find(&pool.known, &key);
}

START_TEST(all_blocks_can_be_taken_once) {
    bool seen[N] = {false};
    for (int i = 0; i < N; i++) {
        ck_assert_int_eq(block_pool_available(&pool), N - i);
        int32_t block = block_pool_acquire(&pool);
        ck_assert(block >= 0 && block < N && !seen[block]);
        seen[block] = true;
        ck_assert_int_eq(block_pool_references(&pool, block), 1);
    }
    ck_assert_int_eq(block_pool_available(&pool), 0);
}
END_TEST

START_TEST(a_block_is_free_after_its_last_reference) {
    int32_t block = block_pool_acquire(&pool);
    block_pool_share(&pool, block);
    block_pool_release(&pool, block);
    ck_assert_int_eq(block_pool_available(&pool), N - 1);
    block_pool_release(&pool, block);
    ck_assert_int_eq(block_pool_available(&pool), N);
    ck_assert_int_eq(pool.n_cached, 0);
}
END_TEST

START_TEST(a_known_block_stays_until_it_is_needed) {
    int32_t a = know(block_pool_acquire(&pool), 1, -1);
    block_pool_release(&pool, a);
    ck_assert_int_eq(pool.n_cached, 1);
    ck_assert_int_eq(look_up(1, -1), a);
    for (int i = 0; i < N - 1; i++) ck_assert_int_ne(block_pool_acquire(&pool), a);
    ck_assert_int_eq(look_up(1, -1), a);
    ck_assert_int_eq(block_pool_acquire(&pool), a);
    ck_assert_int_eq(look_up(1, -1), -1);
}
END_TEST

START_TEST(the_oldest_is_forgotten_first_and_use_renews) {
    int32_t block[N];
    for (int i = 0; i < N; i++) block[i] = know(block_pool_acquire(&pool), i, -1);
    for (int i = 0; i < N; i++) block_pool_release(&pool, block[i]);
    block_pool_share(&pool, block[0]);
    block_pool_release(&pool, block[0]);
    for (int i = 1; i < N; i++) ck_assert_int_eq(block_pool_acquire(&pool), block[i]);
    ck_assert_int_eq(look_up(0, -1), block[0]);
    ck_assert_int_eq(block_pool_acquire(&pool), block[0]);
}
END_TEST

START_TEST(an_equal_block_takes_the_place_of_a_second_copy) {
    int32_t a = know(block_pool_acquire(&pool), 7, -1);
    int32_t b = block_pool_acquire(&pool);
    ck_assert_int_eq(know(b, 7, -1), a);
    ck_assert_int_eq(block_pool_references(&pool, a), 2);
    ck_assert_int_eq(block_pool_references(&pool, b), 0);
    ck_assert_int_eq(block_pool_available(&pool), N - 1);
}
END_TEST

START_TEST(a_cached_block_can_take_the_place_too) {
    int32_t a = know(block_pool_acquire(&pool), 7, -1);
    block_pool_release(&pool, a);
    ck_assert_int_eq(know(block_pool_acquire(&pool), 7, -1), a);
    ck_assert_int_eq(block_pool_references(&pool, a), 1);
    ck_assert_int_eq(pool.n_cached, 0);
}
END_TEST

START_TEST(a_chain_is_forgotten_from_its_end) {
    int32_t a = know(block_pool_acquire(&pool), 1, -1), b = know(block_pool_acquire(&pool), 2, a);
    int32_t c = know(block_pool_acquire(&pool), 3, b);
    block_pool_release(&pool, c);
    block_pool_release(&pool, b);
    block_pool_release(&pool, a);
    for (int i = 0; i < N - 3; i++) block_pool_acquire(&pool);
    ck_assert_int_eq(block_pool_acquire(&pool), c);
    ck_assert_int_eq(look_up(2, a), b);
    ck_assert_int_eq(block_pool_acquire(&pool), b);
    ck_assert_int_eq(look_up(1, -1), a);
    ck_assert_int_eq(block_pool_acquire(&pool), a);
}
END_TEST

/* An observer that writes down what it is told: +token when a block is known, -token before it is
 * evicted. */
struct notes {
    int n, token[16], window[16];
};

static void note(struct notes *notes, const struct block_parts *parts, int sign) {
    ck_assert_int_lt(notes->n, 16);
    ck_assert(prefix_cache_knows(&pool.known, parts->block));
    notes->token[notes->n] = sign * prefix_cache_tokens(&pool.known, parts->block)[0];
    notes->window[notes->n++] = parts->window;
}

static void note_known(void *arg, const struct block_parts *parts) {
    note(arg, parts, 1);
}

static void note_evict(void *arg, const struct block_parts *parts) {
    note(arg, parts, -1);
}

static void check_notes(const struct notes *notes, int n, const int *token) {
    ck_assert_int_eq(notes->n, n);
    for (int i = 0; i < n; i++) ck_assert_int_eq(notes->token[i], token[i]);
}

START_TEST(each_observer_hears_of_known_and_evicted_blocks_once) {
    struct notes both = {0}, evicted = {0};
    block_pool_observe(&pool, &(struct block_observer){note_known, note_evict, &both});
    block_pool_observe(&pool, &(struct block_observer){.on_evict = note_evict, .arg = &evicted});
    int32_t a = know(block_pool_acquire(&pool), 1, -1), b = know(block_pool_acquire(&pool), 2, a);
    know(block_pool_acquire(&pool), 2, a); /* the second copy of b is no new block */
    block_pool_release(&pool, b);
    block_pool_release(&pool, b);
    block_pool_release(&pool, a);
    for (int i = 0; i < N; i++) block_pool_acquire(&pool);
    check_notes(&both, 4, (const int[]){1, 2, -2, -1});
    check_notes(&evicted, 2, (const int[]){-2, -1});
    for (int i = 0; i < 4; i++) ck_assert_int_eq(both.window[i], -1);
}
END_TEST

START_TEST(as_many_observers_as_the_limit_hear_of_each_block) {
    struct notes notes[MAX_BLOCK_OBSERVERS] = {0};
    for (int i = 0; i < MAX_BLOCK_OBSERVERS; i++)
        block_pool_observe(&pool, &(struct block_observer){note_known, note_evict, &notes[i]});
    block_pool_release(&pool, know(block_pool_acquire(&pool), 1, -1));
    block_pool_forget(&pool);
    for (int i = 0; i < MAX_BLOCK_OBSERVERS; i++) check_notes(&notes[i], 2, (const int[]){1, -1});
}
END_TEST

START_TEST(observers_hear_of_restored_blocks_and_of_window_blocks) {
    static const int32_t tokens[B] = {7, 7, 7, 7};
    const struct block_key key = {.hash = {1, 2}, .salt = salt, .tokens = tokens};
    struct notes notes = {0};
    window_pool_init(&pool.windows, 2, B, N, B);
    block_pool_observe(&pool, &(struct block_observer){note_known, note_evict, &notes});
    int32_t with = block_pool_acquire(&pool), without = block_pool_acquire_unseen(&pool);
    know(with, 3, -1);
    block_pool_restore(&pool, without, &key, 99);
    check_notes(&notes, 2, (const int[]){3, 7});
    ck_assert_int_eq(notes.window[0], pool.windows.of[with]);
    ck_assert_int_ge(notes.window[0], 0);
    ck_assert_int_eq(notes.window[1], -1);
}
END_TEST

START_TEST(slots_round_up_to_blocks) {
    ck_assert_int_eq(block_pool_blocks_for(&pool, 0), 0);
    ck_assert_int_eq(block_pool_blocks_for(&pool, 1), 1);
    ck_assert_int_eq(block_pool_blocks_for(&pool, B), 1);
    ck_assert_int_eq(block_pool_blocks_for(&pool, B + 1), 2);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler_block_pool");
    TCase *core = tcase_create("core");
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_test(core, all_blocks_can_be_taken_once);
    tcase_add_test(core, a_block_is_free_after_its_last_reference);
    tcase_add_test(core, a_known_block_stays_until_it_is_needed);
    tcase_add_test(core, the_oldest_is_forgotten_first_and_use_renews);
    tcase_add_test(core, an_equal_block_takes_the_place_of_a_second_copy);
    tcase_add_test(core, a_cached_block_can_take_the_place_too);
    tcase_add_test(core, a_chain_is_forgotten_from_its_end);
    tcase_add_test(core, each_observer_hears_of_known_and_evicted_blocks_once);
    tcase_add_test(core, as_many_observers_as_the_limit_hear_of_each_block);
    tcase_add_test(core, observers_hear_of_restored_blocks_and_of_window_blocks);
    tcase_add_test(core, slots_round_up_to_blocks);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
