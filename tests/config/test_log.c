#include <check.h>
#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/config.h"
#include "support/suite_main.h"

/* A packet pipe replaces standard error: each read returns exactly one write. */
static int saved_stderr, packets;

static void capture_begin(void) {
    int ends[2];
    ck_assert_int_eq(pipe2(ends, O_DIRECT | O_NONBLOCK), 0);
    saved_stderr = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    packets = ends[0];
}

/* Returns the next write, or "" if there was none. Fails unless it is one line. */
static const char *capture_next(void) {
    static char line[2 * PIPE_BUF];
    ssize_t n = read(packets, line, sizeof line - 1);
    line[n > 0 ? n : 0] = 0;
    if (n > 0) {
        ck_assert_uint_eq(strlen(line), (size_t)n);
        ck_assert_ptr_eq(strchr(line, '\n'), line + n - 1);
        ck_assert_int_le((int)n, PIPE_BUF);
        line[n - 1] = 0;
    }
    return line;
}

static void capture_end(void) {
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    close(packets);
    log_setup(LOG_INFO, LOG_TEXT);
}

/* Returns the text after the time. Fails unless the time has the right form. */
static const char *after_time(const char *line) {
    static const char form[] = "dddd-dd-ddTdd:dd:dd.dddZ ";
    for (size_t i = 0; form[i]; i++) {
        if (form[i] == 'd')
            ck_assert(line[i] >= '0' && line[i] <= '9');
        else
            ck_assert_int_eq(line[i], form[i]);
    }
    return line + strlen(form);
}

START_TEST(text_lines) {
    capture_begin();
    struct log_field fields[] = {LOG_S("path", "/v1/models"), LOG_I("status", 200),
                                 LOG_R("seconds", 0.25), LOG_S("empty", ""), LOG_S("none", NULL)};
    log_fields(LOG_INFO, "request", fields, 5);
    ck_assert_str_eq(after_time(capture_next()),
                     "INFO  request path=/v1/models status=200 seconds=0.25 empty=\"\" none=-");
    log_line(LOG_WARNING, "%d left", 3);
    ck_assert_str_eq(after_time(capture_next()), "WARN  3 left");
    capture_end();
}
END_TEST

START_TEST(levels_are_held_back) {
    capture_begin();
    log_setup(LOG_WARNING, LOG_TEXT);
    log_line(LOG_INFO, "not this");
    log_fields(LOG_DEBUG, "nor this", NULL, 0);
    ck_assert_str_eq(capture_next(), "");
    log_line(LOG_ERROR, "this");
    ck_assert_str_eq(after_time(capture_next()), "ERROR this");
    log_setup(LOG_DEBUG, LOG_TEXT);
    log_line(LOG_DEBUG, "and this");
    ck_assert_str_eq(after_time(capture_next()), "DEBUG and this");
    capture_end();
}
END_TEST

START_TEST(text_values_cannot_forge) {
    static const struct {
        const char *value, *expected;
    } cases[] = {
        {"a b", "\"a b\""},
        {"a=b", "\"a=b\""},
        {"say \"hi\"", "\"say \\\"hi\\\"\""},
        {"a\\b", "\"a\\\\b\""},
        {"x\n2026-11-21 ERROR forged", "\"x\\n2026-11-21 ERROR forged\""},
        {"\x1b[2J", "\"\\u001b[2J\""},
        {"\x7f", "\\u007f"},
        {"\xC2\x85", "\\u0085"},
        {"\xE2\x80\xA8", "\\u2028"},
        {"\xE2\x80\xAE", "\\u202e"},
        {"caf\xC3\xA9", "caf\xC3\xA9"},
        {"\xF0\x9F\x9A\xB0", "\xF0\x9F\x9A\xB0"},
        {"\xFF", "\\ufffd"},
        {"\xE2\x82", "\\ufffd\\ufffd"},
        {"\xC0\x8A", "\\ufffd\\ufffd"},
        {"\xED\xA0\x80", "\\ufffd\\ufffd\\ufffd"},
        {"\xF4\x90\x80\x80", "\\ufffd\\ufffd\\ufffd\\ufffd"},
    };
    capture_begin();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct log_field field = LOG_S("v", cases[i].value);
        struct buf expected = {0};
        log_fields(LOG_INFO, "m", &field, 1);
        buf_printf(&expected, "INFO  m v=%s", cases[i].expected);
        ck_assert_str_eq(after_time(capture_next()), expected.data);
        buf_free(&expected);
    }
    log_line(LOG_INFO, "two\nlines");
    ck_assert_str_eq(after_time(capture_next()), "INFO  two\\nlines");
    capture_end();
}
END_TEST

/* The first and the last character of each unsafe range are escaped, their neighbours are not. */
START_TEST(unsafe_characters_have_exact_bounds) {
    static const uint32_t ranges[][2] = {
        {0x7F, 0x9F}, {0x200E, 0x200F}, {0x2028, 0x202E}, {0x2066, 0x2069}, {0xFEFF, 0xFEFF}};
    capture_begin();
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        for (uint32_t code = ranges[i][0] - 1; code <= ranges[i][1] + 1; code++) {
            char text[8] = {0};
            utf8_write(code, text);
            log_line(LOG_INFO, "a%s", text);
            bool escapes = code >= ranges[i][0] && code <= ranges[i][1];
            const char *line = capture_next();
            ck_assert_msg(!strstr(line, text) == escapes, "U+%04X: %s", code, line);
        }
    }
    capture_end();
}
END_TEST

START_TEST(json_lines_read_back) {
    capture_begin();
    log_setup(LOG_INFO, LOG_JSON);
    struct log_field fields[] = {LOG_S("path", "/a\n\"b\"\\ \x01 \xC3\xA9"), LOG_I("status", -5),
                                 LOG_R("seconds", 0.125), LOG_R("none", NAN), LOG_S("null", NULL)};
    log_fields(LOG_ERROR, "it \"broke\"", fields, 5);
    cJSON *line = cJSON_Parse(capture_next());
    ck_assert_ptr_nonnull(line);
    ck_assert_int_eq(cJSON_GetArraySize(line), 8);
    ck_assert_str_eq(cJSON_GetStringValue(cJSON_GetObjectItem(line, "level")), "error");
    ck_assert_str_eq(cJSON_GetStringValue(cJSON_GetObjectItem(line, "message")), "it \"broke\"");
    ck_assert_str_eq(cJSON_GetStringValue(cJSON_GetObjectItem(line, "path")), fields[0].string);
    ck_assert_int_eq(cJSON_GetObjectItem(line, "status")->valueint, -5);
    ck_assert_double_eq(cJSON_GetObjectItem(line, "seconds")->valuedouble, 0.125);
    ck_assert(cJSON_IsNull(cJSON_GetObjectItem(line, "none")));
    ck_assert(cJSON_IsNull(cJSON_GetObjectItem(line, "null")));
    cJSON_Delete(line);
    capture_end();
}
END_TEST

/* A line of any length is one write of at most PIPE_BUF and, as JSON, valid. */
START_TEST(long_lines_stay_whole) {
    capture_begin();
    log_setup(LOG_INFO, LOG_JSON);
    for (size_t length = 0; length < 9000; length += 123) {
        char *text = mem_calloc(1, length + 1);
        memset(text, length % 2 ? 'x' : '\x02', length);
        struct log_field fields[12];
        for (int i = 0; i < 12; i++) fields[i] = LOG_S("value", text);
        log_fields(LOG_INFO, text, fields, 12);
        const char *line = capture_next();
        cJSON *read = cJSON_Parse(line);
        ck_assert_msg(read != NULL, "%s", line);
        ck_assert_ptr_nonnull(cJSON_GetObjectItem(read, "message"));
        ck_assert_ptr_nonnull(cJSON_GetObjectItem(read, "value"));
        cJSON_Delete(read);
        free(text);
    }
    capture_end();
}
END_TEST

START_TEST(cut_values_end_at_a_character) {
    capture_begin();
    char text[4000] = "";
    for (int i = 0; i < 900; i++) strcat(text, "\xF0\x9F\x9A\xB0");
    struct log_field field = LOG_S("v", text);
    log_fields(LOG_INFO, "m", &field, 1);
    const char *line = after_time(capture_next());
    ck_assert_str_eq(line + strlen(line) - 7, "\xF0\x9F\x9A\xB0\xE2\x80\xA6");
    ck_assert_uint_lt(strlen(line), 600);
    capture_end();
}
END_TEST

START_TEST(errno_is_kept) {
    capture_begin();
    close(packets);
    packets = open("/dev/null", O_RDONLY);
    dup2(packets, STDERR_FILENO); /* not open for writing: write(2) fails */
    errno = ENOENT;
    log_line(LOG_ERROR, "nobody hears this");
    ck_assert_int_eq(errno, ENOENT);
    capture_end();
}
END_TEST

static void *write_many(void *arg) {
    struct log_field field = LOG_S("who", arg);
    for (int i = 0; i < 50; i++) log_fields(LOG_INFO, "from a thread", &field, 1);
    return NULL;
}

START_TEST(threads_do_not_mix_lines) {
    static char names[4][300];
    pthread_t threads[4];
    capture_begin();
    fcntl(packets, F_SETPIPE_SZ, 1 << 20);
    for (int i = 0; i < 4; i++) {
        memset(names[i], 'a' + i, sizeof names[i] - 1);
        pthread_create(&threads[i], NULL, write_many, names[i]);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    int n = 0;
    for (const char *line; *(line = capture_next()); n++) {
        const char *who = strstr(after_time(line), "who=");
        ck_assert_ptr_nonnull(who);
        ck_assert_uint_eq(strlen(who + 4), 299);
        ck_assert_uint_eq(strspn(who + 4, (char[]){who[4], 0}), 299);
    }
    ck_assert_int_eq(n, 200);
    capture_end();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("config_log");
    TCase *cases = tcase_create("core");
    suite_add_tcase(suite, cases);
    tcase_add_test(cases, text_lines);
    tcase_add_test(cases, levels_are_held_back);
    tcase_add_test(cases, text_values_cannot_forge);
    tcase_add_test(cases, unsafe_characters_have_exact_bounds);
    tcase_add_test(cases, json_lines_read_back);
    tcase_add_test(cases, long_lines_stay_whole);
    tcase_add_test(cases, cut_values_end_at_a_character);
    tcase_add_test(cases, errno_is_kept);
    tcase_add_test(cases, threads_do_not_mix_lines);
    return suite_main(suite);
}
