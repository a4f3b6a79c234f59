/* The host cache with a pool, and a port that copies block contents: evicted blocks are found again
 * by their keys, and loaded with their content and id. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/kv/swap.h"
#include "support/suite_main.h"

enum { B = 4, N_BLOCKS = 3, N_HOST = 5, MAX_BLOCKS = 8, N_TEXT = 9 };

static struct block_pool pool;
static struct swap_space swap;
static int content[N_BLOCKS], host_content[N_HOST]; /* the content of a block is one number */
static int n_reserved, n_host_memory, n_arrived;
static const uint64_t salt[2] = {3, 4};
static int32_t text[N_TEXT * B];
static struct block_hash hashes[N_TEXT];

static bool reserve(void *self, enum block_kind kind, int n) {
    ck_assert(self == content && kind == KV_BLOCKS && n > 0 && n <= N_HOST);
    if (n > n_host_memory) return false;
    n_reserved = n > n_reserved ? n : n_reserved;
    return true;
}

static void copy_out(void *self, enum block_kind kind, const int32_t *block,
                     const int32_t *host_block, int n) {
    ck_assert(self == content && kind == KV_BLOCKS);
    for (int i = 0; i < n; i++) {
        ck_assert(host_block[i] >= 0 && host_block[i] < n_reserved);
        host_content[host_block[i]] = content[block[i]];
    }
}

static void copy_in(void *self, enum block_kind kind, const int32_t *host_block,
                    const int32_t *block, int n) {
    ck_assert(self == content && kind == KV_BLOCKS);
    for (int i = 0; i < n; i++) content[block[i]] = host_content[host_block[i]];
}

static void arrive(void *self) {
    ck_assert_ptr_eq(self, content);
    n_arrived++;
}

static void begin_with(int n_host_blocks, int n_memory, bool caching) {
    const struct swap_port port = {content, n_host_blocks, 0, reserve, copy_out, copy_in, arrive};
    struct block_hash parent = {salt[0], salt[1]};
    n_reserved = n_arrived = 0;
    n_host_memory = n_memory;
    block_pool_init(&pool, N_BLOCKS, B, caching);
    swap_init(&swap, &port, &pool, MAX_BLOCKS);
    for (int i = 0; i < N_TEXT * B; i++) text[i] = i * 7 % 11;
    for (int i = 0; i < N_TEXT; i++) parent = hashes[i] = prefix_hash(parent, text + i * B, B);
}

static void begin(void) {
    begin_with(N_HOST, N_HOST, true);
}

static void end(void) {
    swap_free(&swap);
    block_pool_free(&pool);
}

/* Returns the key of the i-th block of the text, after a block with the id `parent`. */
static struct block_key key_of(int i, uint64_t parent) {
    return (struct block_key){hashes[i], salt, text + i * B, parent};
}

/* Computes blocks from..from+n-1 of the text after a block with the id `parent`, and releases them
 * from the end. Returns the id of the last. */
static uint64_t compute(int from, int n, uint64_t parent) {
    int32_t block[N_BLOCKS];
    for (int i = 0; i < n; i++) {
        struct block_key key = key_of(from + i, parent);
        block[i] = block_pool_acquire(&pool);
        host_cache_offload(&swap);
        content[block[i]] = 100 + from + i;
        ck_assert_int_eq(block_pool_register(&pool, block[i], &key), block[i]);
        parent = prefix_cache_id(&pool.known, block[i]);
    }
    for (int i = n - 1; i >= 0; i--) block_pool_release(&pool, block[i]);
    return parent;
}

static int match(int from, int n, uint64_t parent) {
    struct block_key key = key_of(from, parent);
    return host_cache_match(&swap.cache, &key, hashes + from, n, from);
}

/* ---- tests ---------------------------------------------------------------------------------- */

START_TEST(evicted_blocks_are_found_and_loaded) {
    compute(0, N_BLOCKS, 0);
    ck_assert_int_eq(match(0, 3, 0), 0);
    compute(5, N_BLOCKS, 99); /* another prompt uses all blocks */
    ck_assert_int_eq(host_cache_blocks(&swap.cache), N_BLOCKS);
    ck_assert_int_eq((int)swap.n_out, N_BLOCKS);
    ck_assert_int_eq(match(0, 3, 0), 3);
    ck_assert_int_eq(match(0, 3, 1), 0); /* not found after another block */
    struct block_key key = key_of(0, 0);
    int32_t block[2];
    host_cache_claim(&swap.cache, &key, hashes, 2);
    ck_assert_int_eq(match(0, 3, 0), 0);
    host_cache_load(&swap, &key, hashes, 2, 0, block);
    ck_assert(swap.loading && content[block[0]] == 100 && content[block[1]] == 101);
    ck_assert_int_eq((int)swap.n_in, 2);
    swap_arrive(&swap);
    ck_assert(!swap.loading && n_arrived == 1);
    ck_assert_int_eq(prefix_cache_find(&pool.known, &key), block[0]);
    ck_assert_int_eq(prefix_cache_id(&pool.known, block[1]), 2); /* as before */
    for (int i = 1; i >= 0; i--) block_pool_release(&pool, block[i]);
    ck_assert_int_eq(swap_used(&swap), 0);
}
END_TEST

START_TEST(the_oldest_goes_when_there_is_no_more_room) {
    uint64_t last = compute(0, N_BLOCKS, 0);
    compute(3, N_BLOCKS, last); /* evicts 2, 1, 0 */
    compute(6, 3, 99);          /* evicts 5, 4, 3: the oldest of 5 host blocks is dropped */
    ck_assert_int_eq(host_cache_blocks(&swap.cache), N_HOST);
    ck_assert_int_eq(match(0, 3, 0), 2);
}
END_TEST

START_TEST(a_block_cached_twice_is_copied_once) {
    compute(0, 1, 0);
    compute(5, N_BLOCKS, 99);
    ck_assert_int_eq((int)swap.n_out, 1);
    compute(0, 1, 0); /* computed again, and evicted again */
    uint64_t before = swap.n_out;
    compute(5, N_BLOCKS, 98);
    ck_assert_int_eq(match(0, 1, 0), 1);
    /* two of the other prompt; block 0 is already cached */
    ck_assert_int_eq((int)(swap.n_out - before), 2);
}
END_TEST

START_TEST(swapped_sequences_precede_the_cache) {
    const int32_t held[N_HOST] = {0, 1, 2, 0, 1};
    compute(0, N_BLOCKS, 0);
    compute(5, N_BLOCKS, 99);
    ck_assert_int_eq(host_cache_blocks(&swap.cache), N_BLOCKS);
    int32_t first = swap_out(&swap, held, N_HOST, 0);
    ck_assert_int_ge(first, 0);
    ck_assert(host_cache_blocks(&swap.cache) == 0 && swap_used(&swap) == N_HOST);
    ck_assert_int_lt(swap_out(&swap, held, 1, 0), 0);
    compute(0, 1, 0); /* evicts, but there is no room */
    ck_assert_int_eq(host_cache_blocks(&swap.cache), 0);
    swap_drop(&swap, first, N_HOST);
}
END_TEST

START_TEST(without_memory_the_host_blocks_shrink) {
    end();
    begin_with(N_HOST, 2, true);
    compute(0, N_BLOCKS, 0);
    compute(5, N_BLOCKS, 99); /* one block per step: the third one finds no memory */
    ck_assert_int_eq(swap.n_host_blocks, 2);
    ck_assert_int_eq(host_cache_blocks(&swap.cache), 2);
}
END_TEST

START_TEST(one_host_block_is_enough) {
    end();
    begin_with(1, 1, true);
    compute(0, 1, 0);
    compute(5, N_BLOCKS, 99);
    ck_assert_int_eq(host_cache_blocks(&swap.cache), 1);
    ck_assert_int_eq(match(0, 1, 0), 1);
}
END_TEST

START_TEST(it_is_off_without_caching_or_host_blocks) {
    for (int i = 0; i < 2; i++) {
        end();
        begin_with(i ? N_HOST : 0, N_HOST, i == 0);
        ck_assert(!swap.cache.on && pool.n_observers == 0);
        ck_assert_int_eq(match(0, 1, 0), 0);
        ck_assert_int_eq(host_cache_blocks(&swap.cache), 0);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler_host_cache");
    TCase *core = tcase_create("core");
    tcase_add_checked_fixture(core, begin, end);
    tcase_add_test(core, evicted_blocks_are_found_and_loaded);
    tcase_add_test(core, the_oldest_goes_when_there_is_no_more_room);
    tcase_add_test(core, a_block_cached_twice_is_copied_once);
    tcase_add_test(core, swapped_sequences_precede_the_cache);
    tcase_add_test(core, without_memory_the_host_blocks_shrink);
    tcase_add_test(core, one_host_block_is_enough);
    tcase_add_test(core, it_is_off_without_caching_or_host_blocks);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
