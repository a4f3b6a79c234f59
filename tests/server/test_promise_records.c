/* Records of the journal: their format, and files that a crash or a disk has damaged. */
#include "tests/support/journal_fixture.h"

#include "support/suite_main.h"

/* ---- the format ----------------------------------------------------------------------------- */

static struct buf out;

static void write_example(void) {
    static const uint8_t key[RECORD_KEY_BYTES] = {1, 2, 3};
    struct sample sample;
    sample_make(&sample, RECORD_ANSWER, 5, "{\"a\":1}", 7);
    sample.record.finished_s = -3;
    sample.record.http_status = 200;
    record_set(&sample.record, RECORD_KEY, key, sizeof key);
    record_set(&sample.record, RECORD_EVENTS, "data: 1\n\n", 9);
    buf_free(&out);
    record_write(&out, &sample.record);
}

START_TEST(a_record_is_read_as_it_was_written) {
    struct record record;
    write_example();
    ck_assert_uint_eq(out.length % 8, 0);
    ck_assert_uint_eq(record_read(&record, out.data, out.length), out.length);
    ck_assert_int_eq(record.kind, RECORD_ANSWER);
    ck_assert_uint_eq(record.promise, 5);
    ck_assert_int_eq(record.created_s, 7);
    ck_assert_int_eq(record.finished_s, -3);
    ck_assert_uint_eq(record.flags, RECORD_STORED);
    ck_assert_int_eq(record.http_status, 200);
    ck_assert(record_is(&record, RECORD_ID, "i5", 2));
    ck_assert(record_is(&record, RECORD_BODY, "{\"a\":1}", 7));
    ck_assert(record_is(&record, RECORD_EVENTS, "data: 1\n\n", 9));
    ck_assert(record_is(&record, RECORD_PREVIOUS, NULL, 0));
    ck_assert_uint_eq(record.field[RECORD_KEY].length, RECORD_KEY_BYTES);
    buf_free(&out);
}
END_TEST

/* Released servers must read older folders: the layout is fixed. */
START_TEST(the_layout_of_a_record_is_fixed) {
    struct record record = {.kind = RECORD_REMOVED, .promise = 0x0102};
    buf_free(&out);
    record_write(&out, &record);
    ck_assert_uint_eq(out.length, 24 + 40);
    ck_assert_mem_eq(out.data, "PJR\3\45\0\0\0", 8);
    ck_assert_mem_eq(out.data + 24, "\0\40\0\0\0\2\1\0", 8);
    buf_free(&out);
}
END_TEST

START_TEST(a_record_with_a_flipped_bit_or_a_missing_byte_is_refused) {
    struct record record;
    write_example();
    for (size_t i = 0; i < out.length; i++) {
        ck_assert_uint_eq(record_read(&record, out.data, i), 0);
        for (int bit = 0; bit < 8; bit++) {
            out.data[i] ^= (char)(1 << bit);
            size_t n = record_read(&record, out.data, out.length);
            out.data[i] ^= (char)(1 << bit);
            ck_assert(n == 0 || i >= out.length - 7); /* the padding has no checksum */
        }
    }
    buf_free(&out);
}
END_TEST

START_TEST(fields_outside_their_limits_are_refused) {
    char id[RECORD_MAX_ID + 2] = "";
    struct sample sample;
    struct record read;
    memset(id, 'x', RECORD_MAX_ID + 1);
    for (int i = 0; i < 6; i++) {
        sample_make(&sample, RECORD_PROMISE, 1, "{}", 2);
        if (i == 0) record_set(&sample.record, RECORD_ID, id, RECORD_MAX_ID + 1);
        if (i == 1) record_set(&sample.record, RECORD_ID, NULL, 0);
        if (i == 2) record_set(&sample.record, RECORD_KEY, id, 5);
        if (i == 3) record_set(&sample.record, RECORD_SEEDS, id, 9);
        if (i == 4) record_set(&sample.record, RECORD_PATH, NULL, 0);
        if (i == 5) sample.record.promise = 0;
        buf_free(&out);
        record_write(&out, &sample.record);
        ck_assert_uint_eq(record_read(&read, out.data, out.length), 0);
    }
    buf_free(&out);
}
END_TEST

/* ---- damaged files -------------------------------------------------------------------------- */

/* Makes a journal of three promises and returns the content of its only segment. */
static struct buf three_promises(size_t ends[3]) {
    ck_assert_int_eq(open_journal(), STATUS_OK);
    for (uint64_t i = 1; i <= 3; i++) {
        ck_assert_int_eq(put(i == 2 ? RECORD_ANSWER : RECORD_PROMISE, i), STATUS_OK);
        ends[i - 1] = (size_t)stats_now().bytes;
    }
    close_journal();
    return file_content(FIRST_SEGMENT);
}

START_TEST(a_torn_tail_is_cut_at_every_byte) {
    size_t ends[3];
    struct buf whole = three_promises(ends);
    for (size_t n = 0; n < whole.length; n++) {
        int complete = (n >= ends[0]) + (n >= ends[1]) + (n >= ends[2]);
        write_file(FIRST_SEGMENT, whole.data, n);
        ck_assert_int_eq(open_journal(), STATUS_OK);
        struct journal_stats stats = stats_now();
        ck_assert_int_eq(stats.running + stats.finished, complete);
        ck_assert_uint_eq(stats.damaged, 0);
        ck_assert(has(1) == (complete >= 1) && has(2) == (complete >= 2));
        ck_assert_int_eq(put(RECORD_PROMISE, 9), STATUS_OK);
        ck_assert(has(9));
        close_journal();
        ck_assert_int_eq(open_journal(), STATUS_OK);
        ck_assert_int_eq(stats_now().running + stats_now().finished, complete + 1);
        close_journal();
        empty_folder();
    }
    buf_free(&whole);
}
END_TEST

/* One flipped bit costs at most the record that it is in. */
START_TEST(a_flipped_bit_costs_one_record) {
    size_t ends[3];
    struct buf whole = three_promises(ends);
    for (size_t i = SEGMENT_HEAD_BYTES; i < whole.length; i++) {
        int hit = i < ends[0] ? 1 : i < ends[1] ? 2 : 3;
        whole.data[i] ^= (char)(1 << (i % 8));
        write_file(FIRST_SEGMENT, whole.data, whole.length);
        whole.data[i] ^= (char)(1 << (i % 8));
        ck_assert_int_eq(open_journal(), STATUS_OK);
        for (int k = 1; k <= 3; k++) ck_assert(has((uint64_t)k) || k == hit);
        ck_assert_int_ge(stats_now().running + stats_now().finished, 2);
        close_journal();
    }
    buf_free(&whole);
}
END_TEST

START_TEST(a_file_of_another_format_is_refused_by_name) {
    write_file(FIRST_SEGMENT, "penstock journal 2\n\0\0\0\0\0", 24);
    ck_assert_int_eq(open_journal(), STATUS_BAD_FILE);
    ck_assert_ptr_nonnull(strstr(err.message, FIRST_SEGMENT));
    write_file("notes.txt", "x", 1);
    write_file(FIRST_SEGMENT, "", 0);
    ck_assert_int_eq(open_journal(), STATUS_OK);
}
END_TEST

static Suite *suite(void) {
    Suite *s = suite_create("promise records");
    TCase *format = tcase_create("format"), *files = tcase_create("files");
    tcase_add_test(format, a_record_is_read_as_it_was_written);
    tcase_add_test(format, the_layout_of_a_record_is_fixed);
    tcase_add_test(format, a_record_with_a_flipped_bit_or_a_missing_byte_is_refused);
    tcase_add_test(format, fields_outside_their_limits_are_refused);
    tcase_add_checked_fixture(files, folder_setup, folder_teardown);
    tcase_add_test(files, a_torn_tail_is_cut_at_every_byte);
    tcase_add_test(files, a_flipped_bit_costs_one_record);
    tcase_add_test(files, a_file_of_another_format_is_refused_by_name);
    suite_add_tcase(s, format);
    suite_add_tcase(s, files);
    return s;
}

int main(void) {
    return suite_main(suite());
}
