/* Prefixes of models with window blocks and recurrent layers in a store: which parts are read, and
 * that a damaged part is a miss. tests/scheduler/test_same_bytes.c has them under a scheduler. */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/config.h"
#include "scheduler/store/internal.h"
#include "support/suite_main.h"

/* A row after n blocks sees the blocks from (4 n - 5) / 4 on. */
enum { B = 4, N = 12, WINDOW = 6, LIMIT = 1 << 20 };
static const size_t part_bytes[N_CACHE_PARTS] = {100, 60, 200};
static char folder[] = "/tmp/store_parts_XXXXXX";
static int32_t text[N * B];
static struct block_hash hash[N + 1];
static struct prefix_store *store;

static struct prefix_store_config config_of(int64_t max_bytes) {
    struct prefix_store_config config = {folder, max_bytes, {1, 2}, N, B, WINDOW, {0}};
    memcpy(config.part_bytes, part_bytes, sizeof part_bytes);
    return config;
}

static void open_store(void) {
    struct err err;
    const struct prefix_store_config config = config_of(LIMIT);
    ck_assert_msg(prefix_store_open(&store, &config, &err) == STATUS_OK, "%s", err.message);
}

static void close_store(void) {
    prefix_store_close(store);
    store = NULL;
}

static void reopen(void) {
    close_store();
    open_store();
}

static void setup(void) {
    ck_assert_ptr_nonnull(mkdtemp(folder));
    for (int i = 0; i < N * B; i++) text[i] = i * 31 % 97;
    for (int i = 0; i < N; i++) hash[i + 1] = prefix_hash(hash[i], text + i * B, B);
    open_store();
}

/* Calls fn with the path of each segment. */
static void each_segment(void (*fn)(const char *path)) {
    DIR *dir = opendir(folder);
    for (struct dirent *entry; (entry = readdir(dir));) {
        char path[400];
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        fn(path);
    }
    closedir(dir);
}

static void remove_file(const char *path) {
    ck_assert_int_eq(unlink(path), 0);
}

static void teardown(void) {
    if (store) close_store();
    each_segment(remove_file);
    rmdir(folder);
    memcpy(folder + strlen(folder) - 6, "XXXXXX", 6);
}

static void fill(uint8_t *content, enum cache_part part, int block) {
    for (size_t k = 0; k < part_bytes[part]; k++)
        content[k] = (uint8_t)((size_t)block * 7 + k + 50 * (size_t)part);
}

static void offer(enum cache_part part, int block) {
    uint8_t *content =
        prefix_store_reserve(store, part, hash[block + 1], hash[block], text + block * B);
    if (!content) return;
    fill(content, part, block);
    prefix_store_put(store, part);
}

/* Offers all parts of blocks from..to-1, except the states. */
static void offer_blocks(int from, int to) {
    for (int i = from; i < to; i++) {
        offer(PART_BLOCK, i);
        offer(PART_WINDOW, i);
    }
}

static void know(enum cache_part part, int from, int to) {
    for (int i = from; i < to; i++) prefix_store_note(store, part, hash[i + 1], true);
}

/* Tells what was read: the number of blocks before a sequence starts, and bit i for block i. */
struct seen {
    int n_blocks, part[N_CACHE_PARTS];
};

/* Reads the text. Checks the order of the parts and each byte. */
static struct seen read_text(void) {
    struct restored_prefix *prefix = prefix_store_read(store, text, N * B, 0);
    struct seen seen = {prefix ? prefix->n_blocks : 0, {0}};
    uint8_t expected[200];
    int before = -1;
    for (int i = 0; prefix && i < prefix->n_parts; i++) {
        const struct restored_part *part = &prefix->part[i];
        int place = (int)part->part * N + part->block;
        ck_assert(place > before && part->block < prefix->n_blocks);
        before = place;
        fill(expected, part->part, part->block);
        ck_assert_mem_eq(part->content, expected, part_bytes[part->part]);
        seen.part[part->part] |= 1 << part->block;
    }
    restored_prefix_free(prefix);
    return seen;
}

static void expect(int n_blocks, int blocks, int windows, int states) {
    const struct seen seen = read_text();
    ck_assert_int_eq(seen.n_blocks, n_blocks);
    ck_assert_int_eq(seen.part[PART_BLOCK], blocks);
    ck_assert_int_eq(seen.part[PART_WINDOW], windows);
    ck_assert_int_eq(seen.part[PART_STATE], states);
}

/* The bits of blocks from..to-1. */
static int bits(int from, int to) {
    return (1 << to) - (1 << from);
}

/* ---- which parts are read -------------------------------------------------------------------- */

START_TEST(a_prefix_is_read_with_the_windows_and_the_state_at_its_end) {
    offer_blocks(0, N);
    offer(PART_STATE, 4);
    offer(PART_STATE, N - 1);
    reopen();
    expect(N, bits(0, N), bits(10, N), 1 << (N - 1));
}
END_TEST

START_TEST(a_prefix_ends_at_the_last_state) {
    offer_blocks(0, N);
    reopen();
    expect(0, 0, 0, 0); /* no state is stored */
    offer(PART_STATE, 3);
    offer(PART_STATE, 7);
    reopen();
    expect(8, bits(0, 8), bits(6, 8), 1 << 7);
}
END_TEST

START_TEST(a_prefix_ends_where_all_windows_are_stored) {
    for (int i = 0; i < N; i++) {
        offer(PART_BLOCK, i);
        offer(PART_STATE, i);
        if (i != 9 && i != 11) offer(PART_WINDOW, i);
    }
    reopen();
    expect(9, bits(0, 9), bits(7, 9), 1 << 8);
    offer(PART_WINDOW, 11);
    reopen();
    expect(N, bits(0, N), bits(10, N), 1 << (N - 1)); /* its row does not see block 9 */
}
END_TEST

START_TEST(a_prefix_ends_at_the_first_block_that_is_not_stored) {
    offer_blocks(0, 6);
    offer_blocks(7, N);
    for (int i = 0; i < N; i++) offer(PART_STATE, i);
    reopen();
    expect(6, bits(0, 6), bits(4, 6), 1 << 5);
}
END_TEST

START_TEST(parts_that_the_pool_has_are_not_read) {
    offer_blocks(0, N);
    offer(PART_STATE, N - 1);
    reopen();
    know(PART_BLOCK, 0, 5);
    know(PART_WINDOW, 0, 11);
    expect(N, bits(5, N), 1 << 11, 1 << (N - 1));
    know(PART_BLOCK, 5, N);
    know(PART_WINDOW, 11, N);
    expect(N, 0, 0, 1 << (N - 1)); /* only the state lacks */
    know(PART_STATE, N - 1, N);
    expect(0, 0, 0, 0); /* the pool has all */
    prefix_store_note(store, PART_WINDOW, hash[11], false);
    expect(N, 0, 1 << 10, 0);
    know(PART_STATE, 2, 3);
    prefix_store_note(store, PART_STATE, hash[N], false);
    prefix_store_note(store, PART_BLOCK, hash[N], false);
    expect(N, 1 << 11, 1 << 10, 1 << (N - 1)); /* 3 blocks are usable, all others are known */
}
END_TEST

static void expect_counts(uint64_t n_hits, uint64_t n_misses) {
    struct prefix_store_stats stats;
    prefix_store_stats(store, &stats);
    ck_assert_uint_eq(stats.n_hits, n_hits);
    ck_assert_uint_eq(stats.n_misses, n_misses);
}

START_TEST(only_blocks_that_the_pool_lacks_are_hits_or_misses) {
    offer_blocks(0, 9);
    offer(PART_STATE, 7);
    offer(PART_STATE, N - 1);
    reopen();
    know(PART_BLOCK, 0, 5);
    know(PART_WINDOW, 0, 5);
    expect(8, bits(5, 8), bits(6, 8), 1 << 7);
    expect_counts(3, N - 8);
    know(PART_BLOCK, 5, N);
    know(PART_WINDOW, 5, N);
    expect(N, 0, 0, 1 << (N - 1)); /* only the state is read */
    expect_counts(3, N - 8);
}
END_TEST

START_TEST(nothing_is_read_that_does_not_lead_beyond_the_pool) {
    offer_blocks(0, N);
    offer(PART_STATE, 3);
    reopen();
    know(PART_BLOCK, 0, 6);
    know(PART_WINDOW, 0, 6);
    know(PART_STATE, 5, 6);
    expect(0, 0, 0, 0);
}
END_TEST

/* A model of recurrent layers alone: its blocks have no bytes, only tokens. */
START_TEST(blocks_without_bytes_have_records) {
    struct err err;
    struct prefix_store_config config = config_of(LIMIT);
    config.part_bytes[PART_BLOCK] = config.part_bytes[PART_WINDOW] = 0;
    for (int round = 0; round < 2; round++) {
        close_store();
        ck_assert_int_eq(prefix_store_open(&store, &config, &err), STATUS_OK);
        struct restored_prefix *prefix = prefix_store_read(store, text, N * B, 0);
        ck_assert_int_eq(prefix ? prefix->n_blocks : 0, round * N);
        ck_assert(!prefix || prefix->n_parts == N + 1);
        restored_prefix_free(prefix);
        for (int i = 0; i < N; i++) offer(PART_BLOCK, i);
        offer(PART_STATE, N - 1);
    }
}
END_TEST

/* ---- damage ---------------------------------------------------------------------------------- */

static long flipped_at;
static int n_flipped;

static void flip(const char *path) {
    int fd = open(path, O_RDWR);
    uint8_t byte;
    if (pread(fd, &byte, 1, flipped_at) == 1) {
        byte ^= 0x10;
        ck_assert(pwrite(fd, &byte, 1, flipped_at) == 1);
        n_flipped++;
    }
    close(fd);
}

static char only[400]; /* the segment to flip */
static uint64_t only_part;

static void find_segment(const char *path) {
    struct segment_head head;
    int fd = open(path, O_RDONLY);
    ck_assert(pread(fd, &head, sizeof head, 0) == sizeof head);
    close(fd);
    if (head.part == only_part) snprintf(only, sizeof only, "%s", path);
}

/* Each byte of the segments of all parts, which have two blocks and a state. The padding between
 * the head and the first record has no meaning. */
START_TEST(no_flipped_byte_gives_other_bytes) {
    offer_blocks(0, 2);
    offer(PART_STATE, 1);
    for (only_part = 0; only_part < N_CACHE_PARTS; only_part++) {
        int n_records = only_part == PART_STATE ? 1 : 2;
        long record = (long)store->part[only_part].record_bytes;
        close_store();
        each_segment(find_segment);
        n_flipped = 0;
        for (flipped_at = 0; flipped_at < SEGMENT_HEAD + n_records * record; flipped_at++) {
            if (flipped_at == (long)sizeof(struct segment_head)) flipped_at = SEGMENT_HEAD;
            flip(only);
            open_store();
            expect(0, 0, 0, 0); /* the only state is after both blocks */
            close_store();
            flip(only);
        }
        ck_assert_int_eq(n_flipped,
                         2 * ((int)sizeof(struct segment_head) + n_records * (int)record));
        open_store();
        expect(2, 3, 3, 2);
    }
}
END_TEST

/* The file changes while it is open: the head was read before. */
START_TEST(a_damaged_part_makes_the_prefix_shorter) {
    offer_blocks(0, N);
    offer(PART_STATE, 3);
    offer(PART_STATE, 9);
    reopen();
    only_part = PART_STATE;
    each_segment(find_segment);
    flipped_at = SEGMENT_HEAD + (long)store->part[PART_STATE].record_bytes + 150;
    flip(only);
    expect(0, 0, 0, 0); /* blocks without the state are of no use */
    expect(4, bits(0, 4), bits(2, 4), 1 << 3);
    only_part = PART_WINDOW;
    each_segment(find_segment);
    flipped_at = SEGMENT_HEAD + 3 * (long)store->part[PART_WINDOW].record_bytes + 100;
    flip(only);
    expect(0, 0, 0, 0);
    struct prefix_store_stats stats;
    prefix_store_stats(store, &stats);
    ck_assert_uint_eq(stats.dropped[DROP_DAMAGED], 2);
}
END_TEST

/* Renames the record of a part: it has the bytes of another part of the same size. */
START_TEST(a_record_of_another_part_is_a_miss) {
    struct record_head head;
    offer_blocks(0, 2);
    offer(PART_STATE, 1);
    close_store();
    only_part = PART_WINDOW;
    each_segment(find_segment);
    int fd = open(only, O_RDWR);
    ck_assert(pread(fd, &head, sizeof head, SEGMENT_HEAD) == sizeof head);
    ck_assert_uint_eq(head.part, PART_WINDOW);
    head.part = PART_STATE;
    ck_assert(pwrite(fd, &head, sizeof head, SEGMENT_HEAD) == sizeof head);
    close(fd);
    open_store();
    expect(0, 0, 0, 0);
}
END_TEST

/* ---- room ------------------------------------------------------------------------------------ */

START_TEST(the_parts_share_the_limit) {
    struct err err;
    struct prefix_store_stats stats;
    struct prefix_store_config config = config_of(2 * 3 * SEGMENT_HEAD);
    close_store();
    ck_assert_int_eq(prefix_store_open(&store, &config, &err), STATUS_USAGE);
    config.max_bytes = 30000;
    for (int round = 0; round < 4; round++) {
        ck_assert_int_eq(prefix_store_open(&store, &config, &err), STATUS_OK);
        for (int i = 0; i < N * B; i++) text[i] = i * 31 % 97 + round;
        for (int i = 0; i < N; i++) hash[i + 1] = prefix_hash(hash[i], text + i * B, B);
        offer_blocks(0, 2);
        offer(PART_STATE, 1);
        close_store();
        ck_assert_int_eq(prefix_store_open(&store, &config, &err), STATUS_OK);
        expect(2, 3, 3, 2);
        prefix_store_stats(store, &stats);
        ck_assert_int_le(stats.n_bytes, config.max_bytes);
        close_store();
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler_store_parts");
    TCase *core = tcase_create("core");
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_set_timeout(core, 60);
    tcase_add_test(core, a_prefix_is_read_with_the_windows_and_the_state_at_its_end);
    tcase_add_test(core, a_prefix_ends_at_the_last_state);
    tcase_add_test(core, a_prefix_ends_where_all_windows_are_stored);
    tcase_add_test(core, a_prefix_ends_at_the_first_block_that_is_not_stored);
    tcase_add_test(core, parts_that_the_pool_has_are_not_read);
    tcase_add_test(core, only_blocks_that_the_pool_lacks_are_hits_or_misses);
    tcase_add_test(core, nothing_is_read_that_does_not_lead_beyond_the_pool);
    tcase_add_test(core, blocks_without_bytes_have_records);
    tcase_add_test(core, no_flipped_byte_gives_other_bytes);
    tcase_add_test(core, a_damaged_part_makes_the_prefix_shorter);
    tcase_add_test(core, a_record_of_another_part_is_a_miss);
    tcase_add_test(core, the_parts_share_the_limit);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
