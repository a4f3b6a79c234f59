/* JSON documents: the values of each type, which of two equal names counts, and changes to a
 * tree. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "support/suite_main.h"

static struct json *document_of(const char *text) {
    struct json *json;
    struct err err;
    ck_assert_msg(!json_parse(&json, "It", text, strlen(text), &err), "%s", err.message);
    return json;
}

START_TEST(each_type_has_its_value) {
    struct json *json = document_of("[null,true,false,\"a\\u0000b\",1.5,[7,8],{\"x\":{}}]");
    const struct json *item = json->child;
    ck_assert_int_eq(json->n_children, 7);
    ck_assert(json_is(item, JSON_NULL) && !json_first(item));
    item = item->next;
    ck_assert(json_is(item, JSON_BOOL) && item->boolean);
    item = item->next;
    ck_assert(json_is(item, JSON_BOOL) && !item->boolean);
    item = item->next;
    ck_assert(json_is(item, JSON_STRING) && item->length == 3);
    ck_assert_mem_eq(item->string, "a\0b", 4);
    ck_assert(!json_first(item) && !json_member(item, "x"));
    item = item->next;
    ck_assert(json_is(item, JSON_NUMBER) && item->number == 1.5 && !item->is_integer);
    item = item->next;
    ck_assert(json_is(item, JSON_ARRAY) && item->n_children == 2);
    ck_assert(json_first(item)->integer == 7 && json_first(item)->next->integer == 8);
    ck_assert(!json_first(item)->name && !json_first(item)->next->next);
    item = item->next;
    ck_assert(json_is(json_member(item, "x"), JSON_OBJECT) && !item->next);
    ck_assert(!json_is(NULL, JSON_NULL) && !json_member(NULL, "x") && !json_first(NULL));
    json_free(json);
}
END_TEST

START_TEST(integers_are_exact) {
    static const struct {
        const char *text;
        bool is_integer;
        int64_t integer;
    } numbers[] = {{"0", true, 0},
                   {"-0", true, 0},
                   {"1e3", true, 1000},
                   {"5.0", true, 5},
                   {"0.5", false, 0},
                   {"9007199254740993", true, 9007199254740993},
                   {"-9223372036854775808", true, INT64_MIN},
                   {"9223372036854775807", true, INT64_MAX},
                   {"9223372036854775808", false, 0},
                   {"9007199254740994.0", false, 0},
                   {"1e17", false, 0}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct json *json = document_of(numbers[i].text);
        ck_assert_msg(json->is_integer == numbers[i].is_integer, "%s", numbers[i].text);
        if (json->is_integer) ck_assert_int_eq(json->integer, numbers[i].integer);
        ck_assert(json->number == strtod(numbers[i].text, NULL));
        json_free(json);
    }
}
END_TEST

/* The digits of an integer beyond int64 stay as they are written. */
START_TEST(large_integers_keep_their_digits) {
    static const struct {
        const char *text;
        bool is_large;
    } numbers[] = {{"9223372036854775807", false},
                   {"9223372036854775808", true},
                   {"-9223372036854775809", true},
                   {"123456789012345678901234567890", true},
                   {"0.5", false},
                   {"1e30", false}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct json *json = document_of(numbers[i].text);
        ck_assert_msg(!json_digits(json) == !numbers[i].is_large, "%s", numbers[i].text);
        if (json_digits(json)) ck_assert_str_eq(json_digits(json), numbers[i].text);
        json_free(json);
    }
}
END_TEST

START_TEST(an_old_error_number_does_not_spoil_an_integer) {
    errno = ERANGE;
    struct json *json = document_of("9007199254740993");
    ck_assert(json->is_integer);
    json_free(json);
}
END_TEST

START_TEST(the_first_of_two_names_is_found) {
    struct json *json = document_of("{\"a\":1,\"b\":2,\"a\":3}");
    ck_assert_int_eq(json_member(json, "a")->integer, 1);
    ck_assert_ptr_null(json_member(json, "c"));
    struct json *first = json_detach(json, "a");
    ck_assert(first->integer == 1 && !first->next && json->n_children == 2);
    ck_assert_int_eq(json_member(json, "a")->integer, 3);
    struct json *second = json_detach(json, "a");
    ck_assert_int_eq(second->integer, 3);
    ck_assert_ptr_null(json_detach(json, "a"));
    ck_assert(json->n_children == 1 && json_first(json)->integer == 2);
    ck_assert_ptr_null(json_detach(first, "a"));
    json_free(first);
    json_free(second);
    json_free(json);
}
END_TEST

START_TEST(empty_members_of_a_name_are_dropped) {
    struct json *json = document_of("{\"a\":[],\"b\":[],\"a\":null,\"a\":[0],\"a\":[],\"a\":{}}");
    json_drop_empty(json, "a");
    json_drop_empty(json, "c");
    ck_assert_int_eq(json->n_children, 3);
    ck_assert_int_eq(json_member(json, "b")->n_children, 0);
    ck_assert_int_eq(json_member(json, "a")->n_children, 1);
    ck_assert(json_is(json->child->next->next, JSON_OBJECT) && !json->child->next->next->next);
    json_free(json);
}
END_TEST

START_TEST(a_value_becomes_a_string) {
    struct json *json = document_of("{\"a\":[1,[2]],\"b\":\"x\"}");
    for (struct json *member = json_first(json); member; member = member->next) {
        json_set_string(member, mem_strdup("text"), 4);
        ck_assert(json_is_text(member, "text") && !json_is_text(member, "tex"));
    }
    ck_assert_str_eq(json_member(json, "b")->string, "text");
    json_free(json);
}
END_TEST

START_TEST(an_added_string_is_the_last_member) {
    struct json *json = document_of("{\"a\":1}");
    const struct json *added = json_add_string(json, "other");
    ck_assert_str_eq(added->name, "other");
    ck_assert(json_is(added, JSON_STRING) && added->length == 0 && !added->next);
    ck_assert(json->n_children == 2 && json_first(json)->next == added);
    json_free(json);
}
END_TEST

START_TEST(types_have_names) {
    static const char *const texts[] = {"null", "true", "1", "\"\"", "[]", "{}"};
    static const char *const names[] = {"null",     "a boolean", "a number",
                                        "a string", "an array",  "an object"};
    for (int i = 0; i < 6; i++) {
        struct json *json = document_of(texts[i]);
        ck_assert_str_eq(json_type_name(json), names[i]);
        json_free(json);
    }
}
END_TEST

START_TEST(depth_and_place_are_told) {
    struct json *json;
    struct err err;
    char text[JSON_MAX_DEPTH + 1];
    memset(text, '[', sizeof text);
    ck_assert_int_eq(json_parse(&json, "It", text, sizeof text, &err), STATUS_INVALID_REQUEST);
    ck_assert_ptr_null(json);
    ck_assert_str_eq(err.message, "It is not valid JSON: too deep a nesting at line 1, column 129 "
                                  "(byte 128).");
    memset(text + JSON_MAX_DEPTH / 2, ']', JSON_MAX_DEPTH / 2);
    ck_assert_int_eq(json_parse(&json, "It", text, JSON_MAX_DEPTH, &err), STATUS_OK);
    json_free(json);
}
END_TEST

/* Siblings do not count as depth, and a number may have 127 characters. */
START_TEST(siblings_and_numbers_have_limits) {
    struct buf text = {0};
    buf_puts(&text, "[[]");
    for (int i = 0; i < 2 * JSON_MAX_DEPTH; i++) buf_puts(&text, ",[{}]");
    buf_puts(&text, "]");
    struct json *json = document_of(text.data);
    ck_assert_int_eq(json->n_children, 2 * JSON_MAX_DEPTH + 1);
    json_free(json);
    for (size_t n = 127; n <= 128; n++) {
        struct err err;
        buf_clear(&text);
        buf_puts(&text, "0.");
        while (text.length < n) buf_puts(&text, "1");
        enum status wanted = n > 127 ? STATUS_INVALID_REQUEST : STATUS_OK;
        ck_assert_int_eq(json_parse(&json, "It", text.data, text.length, &err), wanted);
        json_free(json);
    }
    buf_free(&text);
}
END_TEST

START_TEST(halves_of_pairs_are_replaced) {
    struct json *json =
        document_of("\"\\ud83d\\ue000|\\ud83d\\ud83d\\ude00|\\udc00|\\ud83d\\udc00\"");
    ck_assert_str_eq(json->string, "\xEF\xBF\xBD\xEE\x80\x80|\xEF\xBF\xBD\xF0\x9F\x98\x80|"
                                   "\xEF\xBF\xBD|\xF0\x9F\x90\x80");
    json_free(json);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("config_json");
    TCase *core = tcase_create("core");
    tcase_add_test(core, each_type_has_its_value);
    tcase_add_test(core, integers_are_exact);
    tcase_add_test(core, large_integers_keep_their_digits);
    tcase_add_test(core, an_old_error_number_does_not_spoil_an_integer);
    tcase_add_test(core, the_first_of_two_names_is_found);
    tcase_add_test(core, empty_members_of_a_name_are_dropped);
    tcase_add_test(core, a_value_becomes_a_string);
    tcase_add_test(core, an_added_string_is_the_last_member);
    tcase_add_test(core, types_have_names);
    tcase_add_test(core, depth_and_place_are_told);
    tcase_add_test(core, siblings_and_numbers_have_limits);
    tcase_add_test(core, halves_of_pairs_are_replaced);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
