/* The journal of promises: group commit, eviction, its folder, and full disks. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "support/suite_main.h"
#include "tests/support/journal_fixture.h"

enum { LARGE = 40 << 10 };

static char large[LARGE];

static enum status put_large(enum record_kind kind, uint64_t number) {
    return write_sample(kind, number, large, sizeof large);
}

START_TEST(promises_survive_the_process) {
    ck_assert_int_eq(open_journal(), STATUS_OK);
    uint64_t a = journal_number(journal), b = journal_number(journal);
    uint64_t c = journal_number(journal);
    put(RECORD_PROMISE, a), put(RECORD_PROMISE, b), put(RECORD_PROMISE, c);
    put(RECORD_ANSWER, a), put(RECORD_REMOVED, b);
    close_journal();
    ck_assert_int_eq(open_journal(), STATUS_OK);
    struct promise_entry entry;
    ck_assert(has(a) && !has(b) && has(c));
    ck_assert_int_eq(stats_now().finished, 1);
    ck_assert_int_eq(journal_running(journal, &entry, 1), 1);
    ck_assert_uint_eq(entry.number, c);
    ck_assert_uint_gt(journal_number(journal), c);
    ck_assert(journal_find_idempotent(journal, NULL, "k1", &entry) && entry.is_finished);
    ck_assert(!journal_find_idempotent(journal, NULL, "k2", &entry));
}
END_TEST

START_TEST(a_promise_is_found_only_with_its_key) {
    static const uint8_t key[RECORD_KEY_BYTES] = {7}, other[RECORD_KEY_BYTES] = {8};
    struct promise_entry entry;
    struct sample sample;
    ck_assert_int_eq(open_journal(), STATUS_OK);
    sample_make(&sample, RECORD_PROMISE, 1, "{}", 2);
    record_set(&sample.record, RECORD_KEY, key, sizeof key);
    journal_push(journal, journal_write_new(&sample.record, NULL));
    struct journal_write *write;
    while (!(write = journal_take(journal))) sem_wait(&done);
    journal_write_free(write);
    ck_assert(journal_find_id(journal, key, "i1", &entry));
    ck_assert(!journal_find_id(journal, other, "i1", &entry));
    ck_assert(!journal_find_id(journal, NULL, "i1", &entry));
    ck_assert(!journal_find_idempotent(journal, other, "k1", &entry));
}
END_TEST

/* Many writes share a sync; their order is kept. */
START_TEST(writes_come_back_in_their_order) {
    enum { N = 500 };
    static int owners[N];
    struct sample sample;
    ck_assert_int_eq(open_journal(), STATUS_OK);
    for (int i = 0; i < N; i++) {
        sample_make(&sample, RECORD_PROMISE, (uint64_t)i + 1, "{}", 2);
        journal_push(journal, journal_write_new(&sample.record, &owners[i]));
    }
    for (int i = 0; i < N; i++) {
        struct journal_write *write;
        while (!(write = journal_take(journal))) sem_wait(&done);
        ck_assert_ptr_eq(write->owner, &owners[i]);
        ck_assert_int_eq(write->err.status, STATUS_OK);
        journal_write_free(write);
    }
    struct journal_stats stats = stats_now();
    ck_assert_int_eq(stats.running, N);
    ck_assert_uint_ge(stats.syncs, 1); /* one sync may serve several writes */
    ck_assert_uint_le(stats.syncs, N);
}
END_TEST

START_TEST(a_settled_journal_has_all_writes_of_before) {
    enum { N = 64 };
    struct sample sample;
    struct journal_write *write;
    ck_assert_int_eq(open_journal(), STATUS_OK);
    for (uint64_t i = 1; i <= N; i++) {
        sample_make(&sample, RECORD_PROMISE, i, "{}", 2);
        journal_push(journal, journal_write_new(&sample.record, NULL));
        if (i % 8) continue;
        journal_settle(journal);
        ck_assert_int_eq(stats_now().running, (int)i);
    }
    while ((write = journal_take(journal))) journal_write_free(write);
    journal_settle(journal); /* nothing is under way */
}
END_TEST

START_TEST(syncs_and_recovered_promises_are_counted) {
    ck_assert_int_eq(open_journal(), STATUS_OK);
    uint64_t empty = stats_now().bytes;
    for (uint64_t i = 1; i <= 3; i++) {
        ck_assert_int_eq(put(RECORD_PROMISE, i), STATUS_OK);
        ck_assert_uint_eq(stats_now().syncs, i);
    }
    ck_assert_int_eq(put(RECORD_ANSWER, 2), STATUS_OK);
    struct journal_stats stats = stats_now();
    ck_assert_uint_eq(stats.recovered, 0);
    ck_assert_uint_gt(stats.bytes, empty);
    close_journal();
    ck_assert_int_eq(open_journal(), STATUS_OK);
    ck_assert_uint_eq(stats_now().recovered, 2);
    ck_assert_uint_eq(stats_now().syncs, 0);
    ck_assert_uint_ge(stats_now().bytes, stats.bytes);
    ck_assert_int_eq(put(RECORD_ANSWER, 1), STATUS_OK);
    ck_assert_int_eq(stats_now().running, 1);
    ck_assert_uint_eq(stats_now().recovered, 2); /* a count since the start */
}
END_TEST

/* ---- eviction ------------------------------------------------------------------------------- */

START_TEST(the_oldest_finished_promises_are_evicted_first) {
    const uint64_t last = 200;
    ck_assert_int_eq(open_journal(), STATUS_OK);
    put_large(RECORD_PROMISE, 1); /* it runs all the time */
    for (uint64_t i = 2; i <= last; i++) {
        ck_assert_int_eq(put(RECORD_PROMISE, i), STATUS_OK);
        ck_assert_int_eq(put_large(RECORD_ANSWER, i), STATUS_OK);
        ck_assert_int_le(stats_now().bytes, JOURNAL_MIN_SIZE);
    }
    struct journal_stats stats = stats_now();
    ck_assert_uint_gt(stats.evicted, 100);
    ck_assert_int_gt(stats.finished, 10);
    ck_assert(has(1));
    for (uint64_t i = 2; i <= last; i++)
        ck_assert_int_eq(has(i), i > last - (uint64_t)stats.finished);
    close_journal();
    ck_assert_int_eq(open_journal(), STATUS_OK);
    ck_assert(has(1) && has(last) && !has(2));
    ck_assert_int_eq(stats_now().finished, stats.finished);
}
END_TEST

START_TEST(running_promises_are_never_evicted) {
    int n = 0;
    ck_assert_int_eq(open_journal(), STATUS_OK);
    while (put_large(RECORD_PROMISE, (uint64_t)n + 1) == STATUS_OK) n++;
    ck_assert_int_eq(err.status, STATUS_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(err.message, "--state-size is full"));
    ck_assert_uint_eq(stats_now().refused[JOURNAL_REFUSES_SIZE], 1);
    ck_assert_int_gt(n, 15);
    for (int i = 1; i <= n; i++) ck_assert(has((uint64_t)i));
    ck_assert_int_le(stats_now().bytes, JOURNAL_MIN_SIZE);
    close_journal();
    ck_assert_int_eq(open_journal(), STATUS_OK);
    ck_assert_int_eq(stats_now().running, n);
    /* after some end, there is room again */
    for (int i = 1; i <= n; i++) ck_assert_int_eq(put(RECORD_REMOVED, (uint64_t)i), STATUS_OK);
    ck_assert_int_eq(put_large(RECORD_PROMISE, 1000), STATUS_OK);
}
END_TEST

START_TEST(a_record_larger_than_a_quarter_is_refused) {
    static char body[(JOURNAL_MIN_SIZE >> 2) + 1];
    ck_assert_int_eq(open_journal(), STATUS_OK);
    ck_assert_int_eq(write_sample(RECORD_PROMISE, 1, body, sizeof body), STATUS_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(err.message, "a quarter of --state-size"));
    ck_assert_uint_eq(stats_now().refused[JOURNAL_REFUSES_SIZE], 1);
    ck_assert_uint_eq(stats_now().refused[JOURNAL_REFUSES_DISK], 0);
    ck_assert_int_eq(put(RECORD_PROMISE, 2), STATUS_OK);
}
END_TEST

/* ---- the folder ----------------------------------------------------------------------------- */

/* Opens the folder in another process. Returns true if it is refused with this text. */
static bool is_refused_elsewhere(const char *text, uid_t user) {
    pid_t child = fork();
    if (child == 0) {
        if (user && seteuid(user) != 0) _exit(2);
        bool refused = open_journal() != STATUS_OK && strstr(err.message, text);
        _exit(refused ? 0 : 1);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

START_TEST(a_second_process_is_refused) {
    char text[64];
    ck_assert_int_eq(open_journal(), STATUS_OK);
    snprintf(text, sizeof text, "another process (pid %ld)", (long)getpid());
    ck_assert(is_refused_elsewhere(text, 0));
    close_journal();
    ck_assert(!is_refused_elsewhere(text, 0)); /* the child's journal ends with it */
}
END_TEST

START_TEST(a_folder_that_cannot_be_written_is_refused) {
    ck_assert_int_eq(chmod(folder, 0555), 0);
    ck_assert(
        is_refused_elsewhere("name a folder that this user may write", geteuid() == 0 ? 65534 : 0));
    ck_assert_int_eq(chmod(folder, 0755), 0);
    write_file("file", "", 0);
    char *path = path_in(folder, "file/below"), *file = path_in(folder, "file");
    struct journal_config config = {.folder = path, .size = JOURNAL_MIN_SIZE, .on_done = on_done};
    ck_assert_int_eq(journal_open(&journal, &config, &err), STATUS_SYSTEM);
    config.folder = file;
    ck_assert_int_eq(journal_open(&journal, &config, &err), STATUS_SYSTEM);
    ck_assert_ptr_null(journal);
    mem_free(path);
    mem_free(file);
}
END_TEST

/* ---- full disks ----------------------------------------------------------------------------- */

/* A limit on file sizes fails writes as a full disk does, after a part of the bytes. */
START_TEST(a_full_disk_fails_the_write_and_nothing_else) {
    struct rlimit before, limit;
    ck_assert_int_eq(open_journal(), STATUS_OK);
    ck_assert_int_eq(put(RECORD_PROMISE, 1), STATUS_OK);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = (rlim_t)stats_now().bytes + 1000;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    enum status status = put_large(RECORD_PROMISE, 2);
    struct err full = err;
    enum status small = put(RECORD_ANSWER, 1), answer = put_large(RECORD_ANSWER, 1);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    ck_assert_int_eq(answer, STATUS_UNAVAILABLE);
    ck_assert_uint_eq(stats_now().refused[JOURNAL_REFUSES_DISK], 1);
    ck_assert_uint_eq(stats_now().lost_answers, 1);
    ck_assert_int_eq(status, STATUS_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(full.message, "cannot be kept in --state-dir"));
    ck_assert_int_eq(small, STATUS_OK);
    ck_assert_int_eq(put_large(RECORD_PROMISE, 3), STATUS_OK);
    close_journal();
    ck_assert_int_eq(open_journal(), STATUS_OK);
    ck_assert(has(1) && !has(2) && has(3));
    ck_assert_uint_eq(stats_now().damaged, 0);
}
END_TEST

static Suite *suite(void) {
    Suite *s = suite_create("journal");
    TCase *tests = tcase_create("journal");
    tcase_add_checked_fixture(tests, folder_setup, folder_teardown);
    tcase_add_test(tests, promises_survive_the_process);
    tcase_add_test(tests, a_promise_is_found_only_with_its_key);
    tcase_add_test(tests, writes_come_back_in_their_order);
    tcase_add_test(tests, a_settled_journal_has_all_writes_of_before);
    tcase_add_test(tests, syncs_and_recovered_promises_are_counted);
    tcase_add_test(tests, the_oldest_finished_promises_are_evicted_first);
    tcase_add_test(tests, running_promises_are_never_evicted);
    tcase_add_test(tests, a_record_larger_than_a_quarter_is_refused);
    tcase_add_test(tests, a_second_process_is_refused);
    tcase_add_test(tests, a_folder_that_cannot_be_written_is_refused);
    tcase_add_test(tests, a_full_disk_fails_the_write_and_nothing_else);
    suite_add_tcase(s, tests);
    return s;
}

int main(void) {
    return suite_main(suite());
}
