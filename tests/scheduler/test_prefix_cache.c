#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/kv/prefix_cache.h"
#include "support/suite_main.h"

enum { B = 4, N = 8 };
static const uint64_t common[2] = {0, 0}, other_salt[2] = {0, 1};
static struct prefix_cache cache;

static void setup(void) {
    prefix_cache_init(&cache, N, B);
}

static void teardown(void) {
    prefix_cache_free(&cache);
}

/* Computes the hashes of the full blocks of tokens[n] under a salt. */
static void hash_all(const uint64_t *salt, const int32_t *tokens, int n,
                     struct block_hash *hashes) {
    struct block_hash parent = {salt[0], salt[1]};
    for (int i = 0; i < n / B; i++) parent = hashes[i] = prefix_hash(parent, tokens + i * B, B);
}

/* Registers blocks 0, 1, ... as the full blocks of tokens[n]. */
static void know_all(const uint64_t *salt, const int32_t *tokens, int n,
                     const struct block_hash *hashes, int32_t first_block) {
    uint64_t parent = 0;
    for (int i = 0; i < n / B; i++) {
        struct block_key key = {hashes[i], salt, tokens + i * B, parent};
        prefix_cache_add(&cache, first_block + i, &key, 0);
        parent = prefix_cache_id(&cache, first_block + i);
    }
}

static int match(const uint64_t *salt, const int32_t *tokens, const struct block_hash *hashes,
                 int n, int32_t *blocks) {
    struct block_key key = {.salt = salt, .tokens = tokens};
    return prefix_cache_match(&cache, key, hashes, n, blocks);
}

static const int32_t text[3 * B] = {5, 6, 7, 8, 5, 6, 7, 8, 9, 9, 9, 9};

START_TEST(equal_prefixes_match_as_far_as_they_are_equal) {
    struct block_hash hashes[3], others[3];
    int32_t blocks[3], changed[3 * B];
    hash_all(common, text, 3 * B, hashes);
    know_all(common, text, 3 * B, hashes, 0);
    ck_assert_int_eq(match(common, text, hashes, 3, blocks), 3);
    for (int i = 0; i < 3; i++) ck_assert_int_eq(blocks[i], i);
    memcpy(changed, text, sizeof text);
    changed[B + 1] = 1;
    hash_all(common, changed, 3 * B, others);
    ck_assert_int_eq(match(common, changed, others, 3, blocks), 1);
    ck_assert_int_eq(match(common, text, hashes, 2, blocks), 2);
}
END_TEST

START_TEST(another_salt_shares_nothing) {
    struct block_hash hashes[3], salted[3];
    int32_t blocks[3];
    hash_all(common, text, 3 * B, hashes);
    hash_all(other_salt, text, 3 * B, salted);
    know_all(common, text, 3 * B, hashes, 0);
    ck_assert(hashes[0].low != salted[0].low && hashes[2].low != salted[2].low);
    ck_assert_int_eq(match(other_salt, text, salted, 3, blocks), 0);
    ck_assert_int_eq(match(other_salt, text, hashes, 3, blocks), 0);
}
END_TEST

START_TEST(a_forged_hash_finds_nothing_false) {
    struct block_hash same = {1, 2};
    const int32_t one[B] = {1, 1, 1, 1}, two[B] = {2, 2, 2, 2};
    struct block_key first = {same, common, one, 0}, second = {same, common, two, 0};
    prefix_cache_add(&cache, 3, &first, 0);
    ck_assert_int_eq(prefix_cache_find(&cache, &first), 3);
    ck_assert_int_eq(prefix_cache_find(&cache, &second), -1);
    prefix_cache_add(&cache, 4, &second, 0);
    ck_assert_int_eq(prefix_cache_find(&cache, &first), 3);
    ck_assert_int_eq(prefix_cache_find(&cache, &second), 4);
    struct block_key salted = {same, other_salt, one, 0};
    ck_assert_int_eq(prefix_cache_find(&cache, &salted), -1);
    struct block_key after_3 = {same, common, one, prefix_cache_id(&cache, 3)};
    struct block_key after_4 = {same, common, one, prefix_cache_id(&cache, 4)};
    prefix_cache_add(&cache, 5, &after_3, 0);
    ck_assert_int_eq(prefix_cache_find(&cache, &after_3), 5);
    ck_assert_int_eq(prefix_cache_find(&cache, &after_4), -1);
}
END_TEST

START_TEST(equal_tokens_at_another_place_are_another_block) {
    struct block_hash hashes[2];
    hash_all(common, text, 2 * B, hashes);
    ck_assert(memcmp(text, text + B, B * sizeof *text) == 0);
    ck_assert(hashes[0].low != hashes[1].low || hashes[0].high != hashes[1].high);
}
END_TEST

START_TEST(every_bit_of_parent_and_tokens_counts) {
    struct block_hash parent = {0, 0}, base = prefix_hash(parent, text, B);
    for (int bit = 0; bit < 128; bit++) {
        struct block_hash flipped = parent;
        *(bit < 64 ? &flipped.low : &flipped.high) ^= (uint64_t)1 << (bit % 64);
        ck_assert(prefix_hash(flipped, text, B).low != base.low);
    }
    for (int i = 0; i < B; i++) {
        int32_t tokens[B];
        memcpy(tokens, text, sizeof tokens);
        tokens[i] ^= 1 << 20;
        ck_assert(prefix_hash(parent, tokens, B).low != base.low);
    }
}
END_TEST

START_TEST(forgetting_keeps_the_rest_even_in_one_bucket) {
    cache.hash_mask = 0;
    int32_t tokens[N][B];
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < B; j++) tokens[i][j] = i;
        struct block_key key = {{(uint64_t)i, 0}, common, tokens[i], 0};
        prefix_cache_add(&cache, i, &key, 0);
    }
    static const int order[N] = {3, 0, 7, 5, 1, 6, 2, 4};
    bool gone[N] = {false};
    for (int k = 0; k < N; k++) {
        prefix_cache_remove(&cache, order[k]);
        gone[order[k]] = true;
        for (int i = 0; i < N; i++) {
            struct block_key key = {{(uint64_t)i, 0}, common, tokens[i], 0};
            ck_assert_int_eq(prefix_cache_find(&cache, &key), gone[i] ? -1 : i);
        }
    }
    ck_assert_int_eq(cache.n_known, 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler_prefix_cache");
    TCase *core = tcase_create("core");
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_test(core, equal_prefixes_match_as_far_as_they_are_equal);
    tcase_add_test(core, another_salt_shares_nothing);
    tcase_add_test(core, a_forged_hash_finds_nothing_false);
    tcase_add_test(core, equal_tokens_at_another_place_are_another_block);
    tcase_add_test(core, every_bit_of_parent_and_tokens_counts);
    tcase_add_test(core, forgetting_keeps_the_rest_even_in_one_bucket);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
