/* An object that contains a name twice is refused at any place, and the message names the place. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "config/json.h"
#include "support/suite_main.h"

static enum status strict(const char *text, struct err *err) {
    struct json *json;
    *err = (struct err){0};
    enum status status = json_parse_strict(&json, "The body", text, strlen(text), err);
    ck_assert((status == STATUS_OK) == (json != NULL));
    json_free(json);
    return status;
}

static void expect_refused(const char *text, const char *pointer) {
    struct err err;
    ck_assert_msg(strict(text, &err) == STATUS_INVALID_REQUEST, "%s was taken", text);
    ck_assert_str_eq(err.param, pointer);
    ck_assert_msg(strstr(err.message, pointer) != NULL, "%s", err.message);
}

/* Writes an object of n members; the member `second` has the name of the member `first`. */
static void write_object(struct buf *out, int n, int first, int second) {
    for (int i = 0; i < n; i++)
        buf_printf(out, "%s\"name%d\":%d", i > 0 ? "," : "{", i == second ? first : i, i);
    buf_puts(out, n > 0 ? "}" : "{}");
}

START_TEST(any_two_members_of_one_name_are_refused) {
    struct buf text = {0};
    struct err err;
    char pointer[32];
    for (int n = 0; n <= 24; n++) {
        buf_clear(&text);
        write_object(&text, n, -1, -1);
        ck_assert_int_eq(strict(text.data, &err), STATUS_OK);
        for (int second = 1; second < n; second++) {
            for (int first = 0; first < second; first++) {
                buf_clear(&text);
                write_object(&text, n, first, second);
                snprintf(pointer, sizeof pointer, "/name%d", first);
                expect_refused(text.data, pointer);
            }
        }
    }
    buf_free(&text);
}
END_TEST

START_TEST(the_place_is_a_json_pointer) {
    struct err err;
    expect_refused("{\"a\":1,\"a\":1}", "/a");
    expect_refused("[0,{\"a\":1},{\"b\":{\"c\":[[],{\"d\":0,\"d\":0}]}}]", "/2/b/c/1/d");
    expect_refused("{\"x\":{\"m/n~o\":0,\"m/n~o\":[]}}", "/x/m~1n~0o");
    expect_refused("{\"\":0,\"\":0}", "/");
    ck_assert_int_eq(strict("{\"a\":{\"a\":{\"a\":0}},\"b\":[{\"a\":0},{\"a\":0}]}", &err),
                     STATUS_OK);
    ck_assert_int_eq(strict("[]", &err), STATUS_OK);
    ck_assert_int_eq(strict("{\"a\":1,\"A\":1,\"\\u0061b\":1}", &err), STATUS_OK);
    expect_refused("{\"a\":1,\"\\u0061\":1}", "/a");
}
END_TEST

START_TEST(a_long_name_is_shown_in_part) {
    struct buf name = {0}, text = {0};
    struct err err;
    for (int i = 0; i < 2000; i++) buf_puts(&name, "\xC3\xA4");
    buf_printf(&text, "{\"%s\":1,\"%s\":1}", name.data, name.data);
    ck_assert_int_eq(strict(text.data, &err), STATUS_INVALID_REQUEST);
    ck_assert(utf8_valid_prefix(err.param, strlen(err.param)) == strlen(err.param));
    ck_assert_ptr_nonnull(strstr(err.message, "..."));
    buf_free(&name);
    buf_free(&text);
}
END_TEST

/* The deepest object that the reader accepts. */
START_TEST(the_deepest_object_is_checked) {
    struct buf text = {0};
    struct err err;
    for (int i = 1; i < JSON_MAX_DEPTH; i++) buf_puts(&text, "[");
    buf_puts(&text, "{\"a\":0,\"a\":0}");
    for (int i = 1; i < JSON_MAX_DEPTH; i++) buf_puts(&text, "]");
    ck_assert_int_eq(strict(text.data, &err), STATUS_INVALID_REQUEST);
    ck_assert_ptr_nonnull(strstr(err.message, "/0/0/a'"));
    buf_free(&text);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("config_json_names");
    TCase *core = tcase_create("core");
    tcase_add_test(core, any_two_members_of_one_name_are_refused);
    tcase_add_test(core, the_place_is_a_json_pointer);
    tcase_add_test(core, a_long_name_is_shown_in_part);
    tcase_add_test(core, the_deepest_object_is_checked);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
