#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "support/suite_main.h"

/* ---- buf ------------------------------------------------------------------------------------ */

START_TEST(buf_grows_and_stays_terminated) {
    struct buf buf = {0};
    for (int i = 0; i < 1000; i++) {
        buf_add(&buf, "abc", 3);
        ck_assert_uint_eq(buf.length, (size_t)(i + 1) * 3);
        ck_assert_int_eq(buf.data[buf.length], 0);
    }
    ck_assert_int_eq(memcmp(buf.data + 2997, "abc", 4), 0);
    buf_free(&buf);
    ck_assert_ptr_null(buf.data);
    ck_assert_uint_eq(buf.length + buf.capacity, 0);
}
END_TEST

START_TEST(buf_takes_nothing_and_nul_bytes) {
    struct buf buf = {0};
    buf_add(&buf, NULL, 0);
    ck_assert_str_eq(buf.data, "");
    buf_add(&buf, "a\0b", 3);
    ck_assert_uint_eq(buf.length, 3);
    ck_assert_int_eq(memcmp(buf.data, "a\0b", 4), 0);
    buf_free(&buf);
}
END_TEST

START_TEST(buf_printf_is_exact_at_every_capacity) {
    for (int n = 0; n < 200; n++) {
        struct buf buf = {0};
        buf_puts(&buf, "x");
        buf_printf(&buf, "%*d", n, 7);
        ck_assert_uint_eq(buf.length, strlen(buf.data));
        ck_assert_uint_eq(buf.length, (size_t)(n > 0 ? n : 1) + 1);
        buf_free(&buf);
    }
}
END_TEST

START_TEST(buf_clear_keeps_its_memory) {
    struct buf buf = {0};
    buf_clear(&buf); /* still empty */
    buf_puts(&buf, "something longer than sixty-four bytes, so that it has grown at least once");
    size_t capacity = buf.capacity;
    buf_clear(&buf);
    ck_assert_uint_eq(buf.length, 0);
    ck_assert_str_eq(buf.data, "");
    ck_assert_uint_eq(buf.capacity, capacity);
    buf_free(&buf);
}
END_TEST

/* ---- arena ---------------------------------------------------------------------------------- */

START_TEST(arena_blocks_are_aligned_and_keep_their_bytes) {
    struct arena *arena = arena_new(1 << 20);
    char *pieces[300];
    for (int i = 0; i < 300; i++) {
        pieces[i] = arena_alloc(arena, (size_t)i * 7 + 1);
        ck_assert_ptr_nonnull(pieces[i]);
        ck_assert_uint_eq((uintptr_t)pieces[i] % 16, 0);
        memset(pieces[i], i & 0xFF, (size_t)i * 7 + 1);
    }
    for (int i = 0; i < 300; i++) {
        for (int j = 0; j <= i * 7; j++) ck_assert_int_eq((unsigned char)pieces[i][j], i & 0xFF);
    }
    arena_free(arena);
}
END_TEST

START_TEST(arena_stops_at_its_limit) {
    struct arena *arena = arena_new(100);
    ck_assert_ptr_nonnull(arena_alloc(arena, 60));
    ck_assert_ptr_null(arena_alloc(arena, 41));
    ck_assert_ptr_null(arena_alloc(arena, SIZE_MAX));
    ck_assert_ptr_nonnull(arena_alloc(arena, 40));
    ck_assert_ptr_null(arena_alloc(arena, 1));
    ck_assert_ptr_nonnull(arena_alloc(arena, 0));
    arena_free(arena);
    arena = arena_new(SIZE_MAX);
    ck_assert_ptr_null(arena_alloc(arena, SIZE_MAX));
    arena_free(arena);
    arena_free(NULL);
}
END_TEST

START_TEST(arena_copies_text) {
    struct arena *arena = arena_new(8);
    ck_assert_str_eq(arena_strndup(arena, "hello world", 5), "hello");
    ck_assert_ptr_null(arena_strndup(arena, "hello", 5));
    ck_assert_ptr_null(arena_strndup(arena, "", SIZE_MAX));
    arena_free(arena);
}
END_TEST

/* ---- large tables --------------------------------------------------------------------------- */

START_TEST(large_tables_are_zero_and_aligned) {
    static const size_t sizes[] = {0, 1, 4096, 4097, (4u << 20) - 1, 4u << 20, (5u << 20) + 3};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *table = mem_large(sizes[i]);
        ck_assert_ptr_nonnull(table);
        ck_assert_uint_eq((uintptr_t)table % (sizes[i] >= 4u << 20 ? 2u << 20 : 64), 0);
        for (size_t at = 0; at < sizes[i]; at += 4096) ck_assert_int_eq(table[at], 0);
        if (sizes[i]) table[sizes[i] - 1] = 1;
        mem_large_free(table, sizes[i]);
    }
    mem_large_free(NULL, 4096);
}
END_TEST

START_TEST(start_up_memory) {
    int *numbers = mem_calloc(10, sizeof *numbers);
    for (int i = 0; i < 10; i++) ck_assert_int_eq(numbers[i], 0);
    numbers[9] = 9;
    numbers = mem_realloc(numbers, 1000 * sizeof *numbers);
    ck_assert_int_eq(numbers[9], 9);
    free(numbers);
    char *copy = mem_strdup("penstock");
    ck_assert_str_eq(copy, "penstock");
    free(copy);
    void *nothing = mem_alloc(0);
    ck_assert_ptr_nonnull(nothing);
    nothing = mem_try_realloc(nothing, 0); /* a block of 0 bytes exists */
    ck_assert_ptr_nonnull(nothing);
    free(nothing);
}
END_TEST

/* ---- err ------------------------------------------------------------------------------------ */

START_TEST(err_set_fills_and_returns) {
    struct err err;
    memset(&err, 0x55, sizeof err);
    ck_assert_int_eq(err_set(&err, STATUS_NOT_FOUND, "model", "no model %s", "x"),
                     STATUS_NOT_FOUND);
    ck_assert_int_eq(err.status, STATUS_NOT_FOUND);
    ck_assert_str_eq(err.param, "model");
    ck_assert_str_eq(err.code, "");
    ck_assert_str_eq(err.message, "no model x");
    err_set(&err, STATUS_TIMEOUT, NULL, "late");
    ck_assert_str_eq(err.param, "");
    ck_assert_int_eq(err_set(NULL, STATUS_TIMEOUT, "a", "b"), STATUS_TIMEOUT);
}
END_TEST

/* A message of `lead` ASCII bytes and then many of one character: after cutting, it must consist of
 * whole characters. */
static void check_cut(size_t lead, const char *character) {
    struct buf buf = {0};
    struct err err;
    for (size_t i = 0; i < lead; i++) buf_puts(&buf, "a");
    while (buf.length < 2000) buf_puts(&buf, character);
    err_set(&err, STATUS_SERVER_ERROR, buf.data, "%s", buf.data);
    size_t n = strlen(err.message), p = strlen(err.param), width = strlen(character);
    ck_assert_uint_eq((n - lead) % width, 0);
    ck_assert_uint_gt(n + width, sizeof err.message - 1);
    ck_assert_uint_eq((p - lead) % width, 0);
    ck_assert_uint_gt(p + width, sizeof err.param - 1);
    buf_free(&buf);
}

START_TEST(err_set_cuts_between_characters) {
    for (size_t lead = 0; lead < 5; lead++) {
        check_cut(lead, "a");
        check_cut(lead, "\xC3\xA9");
        check_cut(lead, "\xE2\x82\xAC");
        check_cut(lead, "\xF0\x9F\x9A\xB0");
    }
}
END_TEST

START_TEST(status_codes_have_types) {
    ck_assert_str_eq(status_type(STATUS_OVERLOADED), "overloaded_error");
    ck_assert_int_eq(status_http(STATUS_OVERLOADED), 429);
    ck_assert_str_eq(status_type((enum status)999), "server_error");
    ck_assert_int_eq(status_http((enum status)999), 500);
}
END_TEST

START_TEST(time_does_not_run_back) {
    uint64_t before = now_ns();
    for (int i = 0; i < 1000; i++) {
        uint64_t now = now_ns();
        ck_assert_uint_ge(now, before);
        before = now;
    }
}
END_TEST

START_TEST(build_is_told) {
    struct build_info info = build_info();
    ck_assert_uint_gt(strlen(info.version), 0);
    ck_assert_uint_gt(strlen(info.commit), 0);
    ck_assert_uint_gt(strlen(info.build), 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("config_memory");
    TCase *cases = tcase_create("core");
    suite_add_tcase(suite, cases);
    tcase_add_test(cases, buf_grows_and_stays_terminated);
    tcase_add_test(cases, buf_takes_nothing_and_nul_bytes);
    tcase_add_test(cases, buf_printf_is_exact_at_every_capacity);
    tcase_add_test(cases, buf_clear_keeps_its_memory);
    tcase_add_test(cases, arena_blocks_are_aligned_and_keep_their_bytes);
    tcase_add_test(cases, arena_stops_at_its_limit);
    tcase_add_test(cases, arena_copies_text);
    tcase_add_test(cases, large_tables_are_zero_and_aligned);
    tcase_add_test(cases, start_up_memory);
    tcase_add_test(cases, err_set_fills_and_returns);
    tcase_add_test(cases, err_set_cuts_between_characters);
    tcase_add_test(cases, status_codes_have_types);
    tcase_add_test(cases, time_does_not_run_back);
    tcase_add_test(cases, build_is_told);
    return suite_main(suite);
}
