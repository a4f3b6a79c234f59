/* The store of prefixes on its own: what is written is read, and whatever else is in the files is
 * a miss. tests/e2e/test_prefix_store.py has it in a server. */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/config.h"
#include "scheduler/store/internal.h"
#include "support/suite_main.h"

enum { B = 4, BYTES = 1000, LARGE = 70000, N = 12 };
static size_t n_bytes = BYTES; /* of a block */
static char folder[] = "/tmp/prefix_store_XXXXXX";
static int32_t text[N * B];
static struct prefix_store *store;

static struct prefix_store_config config_of(uint64_t identity, int64_t max_bytes) {
    return (struct prefix_store_config){folder, max_bytes, {identity, 2}, N, B, 0, {n_bytes}};
}

static void open_store(uint64_t identity, int64_t max_bytes) {
    struct err err;
    const struct prefix_store_config config = config_of(identity, max_bytes);
    ck_assert_msg(prefix_store_open(&store, &config, &err) == STATUS_OK, "%s", err.message);
}

static void close_store(void) {
    prefix_store_close(store);
    store = NULL;
}

static void setup(void) {
    ck_assert_ptr_nonnull(mkdtemp(folder));
    for (int i = 0; i < N * B; i++) text[i] = i * 31 % 97;
}

/* Calls fn with the path of each segment. Returns their number. */
static int each_segment(void (*fn)(const char *path)) {
    DIR *dir = opendir(folder);
    int n = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        char path[400];
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (fn) fn(path);
        n++;
    }
    closedir(dir);
    return n;
}

static void remove_file(const char *path) {
    ck_assert_int_eq(unlink(path), 0);
}

static void teardown(void) {
    if (store) close_store();
    n_bytes = BYTES;
    each_segment(remove_file);
    rmdir(folder);
    memcpy(folder + strlen(folder) - 6, "XXXXXX", 6);
}

/* The content of block i of the text. */
static void fill(uint8_t *content, int i) {
    for (size_t k = 0; k < n_bytes; k++) content[k] = (uint8_t)((size_t)i * 7 + k);
}

static struct block_hash hash_before(int block) {
    struct block_hash hash = {0};
    for (int i = 0; i < block; i++) hash = prefix_hash(hash, text + i * B, B);
    return hash;
}

/* Offers blocks from..to-1 of the text. */
static void offer(int from, int to) {
    for (int i = from; i < to; i++) {
        uint8_t *content = prefix_store_reserve(store, PART_BLOCK, hash_before(i + 1),
                                                hash_before(i), text + i * B);
        if (!content) continue;
        fill(content, i);
        prefix_store_put(store, PART_BLOCK);
    }
}

/* Reads the blocks of the text and checks their bytes. Returns their number. */
static int read_back(int *first) {
    struct restored_prefix *prefix = prefix_store_read(store, text, N * B, 0);
    uint8_t expected[LARGE];
    int n = prefix ? prefix->n_parts : 0;
    if (first) *first = prefix ? prefix->part[0].block : -1;
    for (int i = 0; i < n; i++) {
        const struct restored_part *part = &prefix->part[i];
        ck_assert(part->part == PART_BLOCK && part->block == prefix->part[0].block + i);
        fill(expected, part->block);
        ck_assert_mem_eq(part->content, expected, n_bytes);
    }
    restored_prefix_free(prefix);
    return n;
}

static void write_and_reopen(int n) {
    open_store(1, 1 << 20);
    offer(0, n);
    close_store();
    open_store(1, 1 << 20);
}

START_TEST(a_later_process_reads_what_was_written) {
    write_and_reopen(5);
    ck_assert_int_eq(read_back(NULL), 5);
    offer(0, 8);
    close_store();
    open_store(1, 1 << 20);
    ck_assert_int_eq(read_back(NULL), 8);
    ck_assert_int_eq(each_segment(NULL), 2);
}
END_TEST

START_TEST(blocks_that_the_pool_knows_are_not_read) {
    int first;
    write_and_reopen(5);
    for (int i = 0; i < 3; i++) prefix_store_note(store, PART_BLOCK, hash_before(i + 1), true);
    ck_assert_int_eq(read_back(&first), 2);
    ck_assert_int_eq(first, 3);
    for (int i = 3; i > 1; i--) /* evicted from the end */
        prefix_store_note(store, PART_BLOCK, hash_before(i), false);
    ck_assert_int_eq(read_back(&first), 4);
    ck_assert_int_eq(first, 1);
    for (int i = 0; i < 5; i++) prefix_store_note(store, PART_BLOCK, hash_before(i + 1), true);
    ck_assert_int_eq(read_back(NULL), 0);
}
END_TEST

/* A block is known when it is offered, and may be evicted while it is in the queue or later. */
START_TEST(a_block_is_known_until_it_is_evicted) {
    int first;
    open_store(1, 1 << 20);
    offer(0, 4);
    for (int i = 1; i <= 4; i++) prefix_store_note(store, PART_BLOCK, hash_before(i), true);
    prefix_store_note(store, PART_BLOCK, hash_before(4), false); /* queued, or written already */
    while (atomic_load(&store->part[PART_BLOCK].tail) < 4) usleep(1000);
    ck_assert_int_eq(read_back(&first), 1);
    ck_assert_int_eq(first, 3);
    for (int i = 3; i > 1; i--) prefix_store_note(store, PART_BLOCK, hash_before(i), false);
    ck_assert_int_eq(read_back(&first), 3);
    ck_assert_int_eq(first, 1);
}
END_TEST

START_TEST(another_identity_block_size_or_prefix_is_a_miss) {
    struct err err;
    write_and_reopen(5);
    text[0]++;
    ck_assert_int_eq(read_back(NULL), 0);
    text[0]--;
    text[3 * B]++;
    ck_assert_int_eq(read_back(NULL), 3);
    text[3 * B]--;
    close_store();
    open_store(9, 1 << 20);
    ck_assert_int_eq(read_back(NULL), 0);
    close_store();
    struct prefix_store_config config = config_of(1, 1 << 20);
    config.part_bytes[PART_BLOCK] = BYTES + 64;
    ck_assert_int_eq(prefix_store_open(&store, &config, &err), STATUS_OK);
    ck_assert_int_eq(read_back(NULL), 0);
}
END_TEST

static long flipped_at;

static void flip(const char *path) {
    int fd = open(path, O_RDWR);
    uint8_t byte;
    ck_assert(pread(fd, &byte, 1, flipped_at) == 1);
    byte ^= 0x10;
    ck_assert(pwrite(fd, &byte, 1, flipped_at) == 1);
    close(fd);
}

/* Each byte of a segment of two blocks. A flip in the padding after a record is seen, too. */
START_TEST(no_flipped_byte_gives_other_bytes) {
    int n_whole = 0;
    open_store(1, 1 << 20);
    long size = SEGMENT_HEAD + 2 * (long)store->part[PART_BLOCK].record_bytes;
    offer(0, 2);
    close_store();
    for (flipped_at = 0; flipped_at < size; flipped_at++) {
        if (flipped_at == (long)sizeof(struct segment_head)) flipped_at = SEGMENT_HEAD;
        each_segment(flip);
        open_store(1, 1 << 20);
        n_whole += read_back(NULL) == 2; /* which compares the bytes */
        close_store();
        each_segment(flip);
    }
    ck_assert_int_eq(n_whole, 0);
    open_store(1, 1 << 20);
    ck_assert_int_eq(read_back(NULL), 2);
}
END_TEST

static void cut(const char *path) {
    struct stat file;
    ck_assert_int_eq(stat(path, &file), 0);
    ck_assert_int_eq(truncate(path, file.st_size - 10), 0);
}

START_TEST(a_part_of_a_record_is_not_read) {
    open_store(1, 1 << 20);
    offer(0, 5);
    close_store();
    each_segment(cut);
    open_store(1, 1 << 20);
    ck_assert_int_eq(read_back(NULL), 4);
    offer(0, 5);
    close_store();
    open_store(1, 1 << 20);
    ck_assert_int_eq(read_back(NULL), 5);
}
END_TEST

START_TEST(a_file_that_changes_while_it_is_open_is_a_miss) {
    write_and_reopen(5);
    flipped_at = SEGMENT_HEAD + 3 * (long)store->part[PART_BLOCK].record_bytes + 500;
    each_segment(flip);
    ck_assert_int_eq(read_back(NULL), 3);
    ck_assert_int_eq(read_back(NULL), 3);
    offer(3, 4); /* it is written again */
    close_store();
    open_store(1, 1 << 20);
    ck_assert_int_ge(read_back(NULL), 3);
}
END_TEST

static int64_t total;

static void add_size(const char *path) {
    struct stat file;
    ck_assert_int_eq(stat(path, &file), 0);
    total += file.st_size;
}

START_TEST(the_oldest_segments_make_room) {
    struct prefix_store_stats stats;
    const int64_t limit = 40000;
    for (int round = 0; round < 8; round++) {
        open_store(1, limit);
        for (int i = 0; i < N * B; i++) text[i] = i * 31 % 97 + round;
        offer(0, 5); /* a segment each */
        close_store();
        total = 0;
        each_segment(add_size);
        ck_assert_int_le(total, limit);
    }
    open_store(1, limit);
    ck_assert_int_eq(read_back(NULL), 5);
    prefix_store_stats(store, &stats);
    ck_assert_int_le(stats.n_bytes, limit);
}
END_TEST

/* Files that the store did not write do not count, and stay even if they are the oldest. */
START_TEST(other_files_in_the_folder_are_left_alone) {
    static const char *const names[] = {"notes.txt",
                                        "notes-with-a-name-that-is-longer-than-a-segment-s"};
    struct prefix_store_stats stats;
    for (int i = 0; i < 2; i++) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        FILE *file = fopen(path, "w");
        ck_assert(file && fwrite(path, 1, sizeof path, file) == sizeof path && fclose(file) == 0);
    }
    for (int round = 0; round < 8; round++) {
        open_store(1, 40000);
        for (int i = 0; i < N * B; i++) text[i] = i * 31 % 97 + round;
        offer(0, 5);
        close_store();
    }
    total = 0;
    each_segment(add_size);
    open_store(1, 40000);
    prefix_store_stats(store, &stats);
    ck_assert_int_eq(stats.n_bytes, total - 2 * 400);
    for (int i = 0; i < 2; i++) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        ck_assert_int_eq(access(path, R_OK), 0);
    }
}
END_TEST

START_TEST(two_processes_share_a_folder) {
    open_store(1, 1 << 20);
    struct prefix_store *first = store;
    offer(0, 4);
    open_store(1, 1 << 20);
    offer(4, 8);
    close_store();
    prefix_store_close(first);
    open_store(1, 1 << 20);
    ck_assert_int_eq(read_back(NULL), 8);
}
END_TEST

/* ---- direct I/O ----------------------------------------------------------------------------- */

/* Does the folder's file system have it? */
static bool has_direct(void) {
    char path[64];
    snprintf(path, sizeof path, "%s/probe", folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_DIRECT, 0600);
    if (fd >= 0) close(fd);
    unlink(path);
    return fd >= 0;
}

static void wait_until_written(uint64_t n) {
    struct prefix_store_stats stats = {0};
    while (stats.n_written < n) {
        usleep(1000);
        prefix_store_stats(store, &stats);
        ck_assert_int_eq((int)stats.n_errors, 0);
    }
}

START_TEST(large_records_are_written_by_direct_io) {
    const struct part_store *of;
    open_store(1, 1 << 20);
    of = &store->part[PART_BLOCK];
    offer(0, 1);
    wait_until_written(1);
    ck_assert_int_eq(of->direct_fd, -1); /* small ones are not */
    close_store();
    n_bytes = LARGE;
    open_store(1, 64 << 20);
    of = &store->part[PART_BLOCK];
    ck_assert_int_eq((int)(of->record_bytes % DIRECT_UNIT), 0);
    offer(0, 5);
    wait_until_written(5);
    ck_assert_int_eq(of->direct_fd >= 0, has_direct());
    ck_assert_int_eq(read_back(NULL), 5);
    close_store();
    open_store(1, 64 << 20);
    ck_assert_int_eq(read_back(NULL), 5);
}
END_TEST

/* The kernel takes only numbers for this file. It refuses the records with EINVAL, as a disk with
 * larger units does. */
START_TEST(a_disk_that_refuses_direct_io_is_written_without) {
    n_bytes = LARGE;
    open_store(1, 64 << 20);
    struct part_store *of = &store->part[PART_BLOCK];
    offer(0, 1);
    wait_until_written(1);
    if (of->direct_fd >= 0) close(of->direct_fd);
    of->direct_fd = open("/proc/self/oom_score_adj", O_WRONLY);
    ck_assert_int_ge(of->direct_fd, 0);
    offer(1, 5);
    wait_until_written(5);
    ck_assert_int_eq(of->direct_fd, -1);
    close_store();
    open_store(1, 64 << 20);
    ck_assert_int_eq(read_back(NULL), 5);
}
END_TEST

/* Other errors are not tried again: /dev/full is a disk without room. */
START_TEST(a_full_disk_is_an_error_for_direct_io_too) {
    struct prefix_store_stats stats = {0};
    n_bytes = LARGE;
    open_store(1, 64 << 20);
    struct part_store *of = &store->part[PART_BLOCK];
    offer(0, 1);
    wait_until_written(1);
    if (of->direct_fd >= 0) close(of->direct_fd);
    of->direct_fd = open("/dev/full", O_WRONLY);
    ck_assert_int_ge(of->direct_fd, 0);
    offer(1, 3);
    while (stats.dropped[DROP_UNAVAILABLE] < 2) {
        usleep(1000);
        prefix_store_stats(store, &stats);
    }
    close_store();
    ck_assert_int_eq((int)stats.n_errors, 1);
    ck_assert_int_eq((int)stats.dropped[DROP_UNAVAILABLE], 2);
    open_store(1, 64 << 20);
    ck_assert_int_eq(read_back(NULL), 1);
}
END_TEST

START_TEST(folders_and_sizes_that_cannot_be_used_are_refused) {
    struct err err;
    struct prefix_store_config config = config_of(1, 2 * BYTES);
    ck_assert_int_eq(prefix_store_open(&store, &config, &err), STATUS_USAGE);
    ck_assert_ptr_nonnull(strstr(err.message, "--prefix-store-size must be at least"));
    config = config_of(1, 1 << 20);
    config.place = "/proc/none";
    ck_assert_int_eq(prefix_store_open(&store, &config, &err), STATUS_SYSTEM);
    ck_assert_ptr_nonnull(strstr(err.message, "/proc/none"));
    config.place = "/dev/null";
    ck_assert_int_eq(prefix_store_open(&store, &config, &err), STATUS_SYSTEM);
    ck_assert_ptr_null(store);
}
END_TEST

START_TEST(reading_that_is_slower_than_computing_is_a_miss) {
    write_and_reopen(5);
    store->ns_per_byte = 1e6;
    int n = 0;
    for (int i = 0; i < 15; i++) {
        struct restored_prefix *prefix = prefix_store_read(store, text, N * B, 1);
        n += prefix != NULL;
        restored_prefix_free(prefix);
    }
    ck_assert_int_eq(n, 0);
    ck_assert_int_eq(read_back(NULL), 5); /* the time of a token is not known */
}
END_TEST

/* The first read gives the time of a byte. Each later one counts a quarter. */
START_TEST(the_time_of_a_byte_is_an_average_of_the_reads) {
    struct prefix_store_stats stats;
    open_store(1, 1 << 20);
    store_count_read(store, 100, 1000);
    ck_assert_double_eq(store->ns_per_byte, 10);
    store_count_read(store, 200, 6000);
    ck_assert_double_eq(store->ns_per_byte, 0.75 * 10 + 0.25 * 30);
    prefix_store_stats(store, &stats);
    ck_assert_uint_eq(stats.bytes_read, 300);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler_prefix_store");
    TCase *core = tcase_create("core");
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_set_timeout(core, 60);
    tcase_add_test(core, a_later_process_reads_what_was_written);
    tcase_add_test(core, blocks_that_the_pool_knows_are_not_read);
    tcase_add_test(core, a_block_is_known_until_it_is_evicted);
    tcase_add_test(core, another_identity_block_size_or_prefix_is_a_miss);
    tcase_add_test(core, no_flipped_byte_gives_other_bytes);
    tcase_add_test(core, a_part_of_a_record_is_not_read);
    tcase_add_test(core, a_file_that_changes_while_it_is_open_is_a_miss);
    tcase_add_test(core, the_oldest_segments_make_room);
    tcase_add_test(core, other_files_in_the_folder_are_left_alone);
    tcase_add_test(core, two_processes_share_a_folder);
    tcase_add_test(core, large_records_are_written_by_direct_io);
    tcase_add_test(core, a_disk_that_refuses_direct_io_is_written_without);
    tcase_add_test(core, a_full_disk_is_an_error_for_direct_io_too);
    tcase_add_test(core, folders_and_sizes_that_cannot_be_used_are_refused);
    tcase_add_test(core, reading_that_is_slower_than_computing_is_a_miss);
    tcase_add_test(core, the_time_of_a_byte_is_an_average_of_the_reads);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
