/* The history's file: any appended text is read back, and the file stays bounded. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/commands/console.h"
#include "support/suite_main.h"

static char folder[64], path[128];

static void make_place(void) {
    strcpy(folder, "/tmp/test-history-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a/b/history", folder);
}

static void remove_place(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
}

/* Appends a loaded entry, followed by a bar. */
static void collect(void *arg, const char *text) {
    buf_printf(arg, "%s|", text);
}

static void expect(const char *entries) {
    struct buf all = {0};
    buf_puts(&all, "");
    history_load(path, collect, &all);
    ck_assert_str_eq(all.data, entries);
    buf_free(&all);
}

static void append(const char *text) {
    struct err err;
    ck_assert_msg(history_append(path, text, &err) == STATUS_OK, "%s", err.message);
}

static int count_lines(void) {
    int n = 0, c;
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    while ((c = getc(file)) != EOF) n += c == '\n';
    fclose(file);
    return n;
}

START_TEST(entries_are_read_as_written) {
    make_place();
    expect("");
    append("one");
    append("two\nlines \\n of \\\\ which one ends with \\");
    append("\xE6\xB0\xB4\t'\"");
    expect("one|two\nlines \\n of \\\\ which one ends with \\|\xE6\xB0\xB4\t'\"|");
    remove_place();
}
END_TEST

START_TEST(file_and_folders_are_for_this_user_alone) {
    struct stat info;
    make_place();
    append("one");
    ck_assert_int_eq(stat(path, &info), 0);
    ck_assert_int_eq(info.st_mode & 0777, 0600);
    *strrchr(path, '/') = 0;
    ck_assert_int_eq(stat(path, &info), 0);
    ck_assert_int_eq(info.st_mode & 0777, 0700);
    strcat(path, "/history");
    ck_assert_int_eq(chmod(path, 0644), 0);
    append("two");
    ck_assert_int_eq(stat(path, &info), 0);
    ck_assert_int_eq(info.st_mode & 0777, 0600);
    remove_place();
}
END_TEST

START_TEST(only_the_newest_entries_are_kept) {
    char text[32];
    struct buf all = {0};
    make_place();
    for (int i = 0; i < 2 * HISTORY_ENTRIES - 1; i++) {
        snprintf(text, sizeof text, "%d", i);
        append(text);
    }
    history_load(path, collect, &all);
    ck_assert_int_eq(strncmp(all.data, "999|1000|", 9), 0);
    ck_assert_int_eq(count_lines(), 2 * HISTORY_ENTRIES - 1); /* not shortened yet */
    append("last");
    buf_clear(&all);
    history_load(path, collect, &all);
    ck_assert_int_eq(strncmp(all.data, "1000|1001|", 10), 0);
    ck_assert_ptr_nonnull(strstr(all.data, "|1998|last|"));
    ck_assert_int_eq(count_lines(), HISTORY_ENTRIES);
    buf_free(&all);
    remove_place();
}
END_TEST

START_TEST(long_entries_are_left_out) {
    char *text = mem_calloc(1, HISTORY_ENTRY_BYTES + 2);
    struct buf all = {0};
    make_place();
    memset(text, 'x', HISTORY_ENTRY_BYTES);
    append(text);
    text[HISTORY_ENTRY_BYTES] = 'x';
    append(text);
    append("y");
    history_load(path, collect, &all);
    ck_assert_uint_eq(all.length, HISTORY_ENTRY_BYTES + strlen("|y|"));
    buf_free(&all);
    free(text);
    remove_place();
}
END_TEST

/* Lines that were written by hand, or cut off by a full disk. */
START_TEST(odd_lines_do_no_harm) {
    make_place();
    append("one");
    FILE *file = fopen(path, "a");
    fputs("\n\r\ntwo\r\nthree\\", file);
    fclose(file);
    expect("one|two|three\\|");
    remove_place();
}
END_TEST

START_TEST(a_failed_write_is_reported) {
    struct err err;
    make_place();
    strcat(folder, "/a");
    int fd = open(folder, O_CREAT | O_WRONLY, 0600);
    ck_assert_int_ge(fd, 0);
    close(fd);
    ck_assert_int_eq(history_append(path, "one", &err), STATUS_SYSTEM);
    ck_assert_ptr_nonnull(strstr(err.message, "/a/b/history: Not a directory"));
    folder[strlen(folder) - 2] = 0;
    remove_place();
}
END_TEST

START_TEST(the_place_follows_the_environment) {
    struct buf place = {0};
    setenv("HOME", "/home/me", 1);
    unsetenv("XDG_STATE_HOME");
    ck_assert(history_path(&place));
    ck_assert_str_eq(place.data, "/home/me/.local/state/penstock/history");
    buf_clear(&place);
    setenv("XDG_STATE_HOME", "/state", 1);
    ck_assert(history_path(&place));
    ck_assert_str_eq(place.data, "/state/penstock/history");
    buf_clear(&place);
    setenv("XDG_STATE_HOME", "relative", 1); /* the specification says to ignore it */
    ck_assert(history_path(&place));
    ck_assert_str_eq(place.data, "/home/me/.local/state/penstock/history");
    buf_clear(&place);
    unsetenv("HOME");
    ck_assert(!history_path(&place));
    buf_free(&place);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_history");
    TCase *cases = tcase_create("core");
    suite_add_tcase(suite, cases);
    tcase_add_test(cases, entries_are_read_as_written);
    tcase_add_test(cases, file_and_folders_are_for_this_user_alone);
    tcase_add_test(cases, only_the_newest_entries_are_kept);
    tcase_add_test(cases, long_entries_are_left_out);
    tcase_add_test(cases, odd_lines_do_no_harm);
    tcase_add_test(cases, a_failed_write_is_reported);
    tcase_add_test(cases, the_place_follows_the_environment);
    return suite_main(suite);
}
