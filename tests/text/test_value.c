/* Values and dicts: equality, order and truth as in Python, growing lists, hash tables. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/suite_main.h"
#include "support/template_fixture.h"

static struct render *r;

static void begin(void) {
    r = fixture_render_new(1 << 24);
}

static void end(void) {
    fixture_render_free(r);
}

static struct value numbers(size_t n, enum list_flavour flavour) {
    struct template_list *list = list_open(r, flavour);
    for (size_t i = 0; i < n; i++) list_push(r, list, VALUE_OF_INT((int64_t)i));
    return VALUE_OF_LIST(list);
}

START_TEST(numbers_of_all_kinds_are_equal_by_value) {
    ck_assert(value_equal(r, VALUE_OF_INT(1), VALUE_OF_FLOAT(1)));
    ck_assert(value_equal(r, VALUE_OF_BOOL(true), VALUE_OF_FLOAT(1)));
    ck_assert(!value_equal(r, VALUE_OF_INT(1), string_of(r, "1")));
    ck_assert(!value_equal(r, VALUE_OF_FLOAT(NAN), VALUE_OF_FLOAT(NAN)));
    /* integers are compared as integers: as floats these two are the same */
    ck_assert(!value_equal(r, VALUE_OF_INT(INT64_MAX), VALUE_OF_INT(INT64_MAX - 1)));
    ck_assert_int_eq(value_compare(r, VALUE_OF_INT(INT64_MAX - 1), VALUE_OF_INT(INT64_MAX)), -1);
}
END_TEST

START_TEST(lists_are_equal_by_kind_and_content) {
    struct value list = numbers(3, LIST_PLAIN), tuple = numbers(3, LIST_TUPLE);
    ck_assert(value_equal(r, list, numbers(3, LIST_PLAIN)));
    ck_assert(!value_equal(r, list, numbers(4, LIST_PLAIN)));
    ck_assert(!value_equal(r, list, tuple));
    ck_assert(value_equal(r, tuple, numbers(3, LIST_TUPLE)));
    struct value generator = numbers(3, LIST_GENERATOR);
    ck_assert(value_equal(r, generator, generator));
    ck_assert(!value_equal(r, generator, numbers(3, LIST_GENERATOR)));
}
END_TEST

START_TEST(order_is_that_of_python) {
    ck_assert_int_eq(value_compare(r, string_of(r, "ab"), string_of(r, "abc")), -1);
    ck_assert_int_eq(value_compare(r, string_of(r, "b"), string_of(r, "abc")), 1);
    ck_assert_int_eq(value_compare(r, VALUE_OF_INT(2), VALUE_OF_FLOAT(1.5)), 1);
    ck_assert_int_eq(value_compare(r, VALUE_OF_FLOAT(NAN), VALUE_OF_INT(1)), 2);
    ck_assert_int_eq(value_compare(r, numbers(2, LIST_PLAIN), numbers(3, LIST_PLAIN)), -1);
    ck_assert_int_eq(value_compare(r, numbers(3, LIST_TUPLE), numbers(3, LIST_TUPLE)), 0);
    EXPECT_FAILURE(r, "'int' and 'str' cannot be ordered",
                   value_compare(r, VALUE_OF_INT(1), string_of(r, "a")));
    EXPECT_FAILURE(r, "'list' and 'tuple' cannot be ordered",
                   value_compare(r, numbers(1, LIST_PLAIN), numbers(1, LIST_TUPLE)));
    EXPECT_FAILURE(r, "'range' and 'range' cannot be ordered",
                   value_compare(r, numbers(1, LIST_RANGE), numbers(1, LIST_RANGE)));
}
END_TEST

START_TEST(truth_is_that_of_python) {
    ck_assert(!value_truth(VALUE_OF_NONE) && !value_truth(VALUE_OF_INT(0)));
    ck_assert(!value_truth(VALUE_OF_FLOAT(-0.0)) && value_truth(VALUE_OF_FLOAT(NAN)));
    ck_assert(!value_truth(string_of(r, "")) && value_truth(string_of(r, "0")));
    ck_assert(!value_truth(numbers(0, LIST_PLAIN)) && value_truth(numbers(1, LIST_PLAIN)));
    ck_assert(value_truth(numbers(0, LIST_GENERATOR)));
    ck_assert(!value_truth((struct value){.kind = VALUE_UNDEFINED}));
    struct dict *dict = dict_new(r);
    ck_assert(!value_truth(VALUE_OF_DICT(dict)));
    dict_set(r, dict, VALUE_OF_INT(0), VALUE_OF_NONE);
    ck_assert(value_truth(VALUE_OF_DICT(dict)));
}
END_TEST

/* A sum that shares its left side's memory must not change it, nor a second sum of it. */
START_TEST(sums_of_lists_leave_their_parts_alone) {
    struct template_list *left = numbers(3, LIST_PLAIN).list, *right = numbers(2, LIST_PLAIN).list;
    struct template_list *first = list_concat(r, left, right), *second = list_concat(r, left, left);
    ck_assert_uint_eq(left->n, 3);
    ck_assert_uint_eq(first->n, 5);
    ck_assert_uint_eq(second->n, 6);
    ck_assert_int_eq(first->items[3].integer, 0);
    ck_assert_int_eq(first->items[4].integer, 1);
    ck_assert_int_eq(second->items[5].integer, 2);
    /* right is left, and grows in place */
    struct template_list *doubled = list_concat(r, second, second);
    ck_assert_uint_eq(doubled->n, 12);
    ck_assert_int_eq(doubled->items[11].integer, 2);
}
END_TEST

START_TEST(generators_are_iterated_once) {
    struct value generator = numbers(3, LIST_GENERATOR);
    ck_assert_uint_eq(value_iterate(r, generator)->n, 3);
    ck_assert_uint_eq(value_iterate(r, generator)->n, 0);
    EXPECT_FAILURE(r, "'generator' has no length", value_length(r, generator));
    EXPECT_FAILURE(r, "'int' is not iterable", value_iterate(r, VALUE_OF_INT(1)));
}
END_TEST

START_TEST(strings_are_iterated_by_character) {
    const struct template_list *list = value_iterate(r, string_of(r, "a\xC3\xA9\xFF"));
    ck_assert_uint_eq(list->n, 3);
    ck_assert(string_is(list->items[1].string, "\xC3\xA9"));
    ck_assert_uint_eq(value_length(r, string_of(r, "a\xC3\xA9\xFF")), 3);
    ck_assert(value_contains(r, string_of(r, "abc"), string_of(r, "bc")));
    ck_assert(!value_contains(r, string_of(r, "abc"), string_of(r, "ac")));
    EXPECT_FAILURE(r, "must be a string", value_contains(r, string_of(r, "1"), VALUE_OF_INT(1)));
}
END_TEST

/* ---- dicts ---------------------------------------------------------------------------------- */

static struct value key_of(int i) {
    char text[32];
    int n = snprintf(text, sizeof text, "key %d", i);
    return i % 2 ? VALUE_OF_INT(i) : string_copy(r, text, (size_t)n, i % 4 == 0);
}

/* Over the sizes at which a dict makes its hash table and grows it. */
START_TEST(dicts_find_all_their_keys_in_order) {
    struct dict *dict = dict_new(r);
    for (int i = 0; i < 300; i++) {
        ck_assert_ptr_null(dict_get(r, dict, key_of(i)));
        dict_set(r, dict, key_of(i), VALUE_OF_INT(i));
        ck_assert_uint_eq(dict->n, (size_t)i + 1);
        ck_assert_int_eq(dict_get(r, dict, key_of(i / 2))->integer, i / 2);
    }
    dict_set(r, dict, key_of(7), VALUE_OF_INT(-7));
    ck_assert_uint_eq(dict->n, 300);
    const struct dict *copy = dict_copy(r, dict);
    for (int i = 0; i < 300; i++) {
        ck_assert_int_eq(copy->pairs[i].value.integer, i == 7 ? -7 : i);
        ck_assert_int_eq(dict_get(r, copy, key_of(i))->integer, i == 7 ? -7 : i);
    }
    ck_assert_ptr_null(dict_find(r, copy, "key 1"));
    ck_assert_int_eq(dict_find(r, copy, "key 2")->integer, 2);
}
END_TEST

/* 1, 1.0 and true are one key, in a small dict and in one with a hash table. */
START_TEST(equal_numbers_are_one_key) {
    for (int n = 2; n <= 20; n += 18) {
        struct dict *dict = dict_new(r);
        for (int i = 0; i < n; i++) dict_set(r, dict, VALUE_OF_INT(i), VALUE_OF_INT(i));
        ck_assert_ptr_nonnull(dict_get(r, dict, VALUE_OF_FLOAT(1)));
        ck_assert_ptr_nonnull(dict_get(r, dict, VALUE_OF_BOOL(true)));
        ck_assert_ptr_nonnull(dict_get(r, dict, VALUE_OF_FLOAT(-0.0)));
        ck_assert_ptr_null(dict_get(r, dict, VALUE_OF_FLOAT(1.5)));
        dict_set(r, dict, VALUE_OF_BOOL(true), VALUE_OF_NONE);
        ck_assert_uint_eq(dict->n, (size_t)n);
        struct value tuple = list_pair(r, VALUE_OF_INT(1), VALUE_OF_FLOAT(2));
        dict_set(r, dict, tuple, VALUE_OF_NONE);
        struct value same = list_pair(r, VALUE_OF_BOOL(true), VALUE_OF_INT(2));
        ck_assert_ptr_nonnull(dict_get(r, dict, same));
    }
}
END_TEST

START_TEST(mutable_values_are_no_keys) {
    struct dict *dict = dict_new(r);
    EXPECT_FAILURE(r, "'list' cannot be a key", dict_get(r, dict, numbers(1, LIST_PLAIN)));
    EXPECT_FAILURE(r, "'dict' cannot be a key", dict_get(r, dict, VALUE_OF_DICT(dict)));
    struct value tuple = list_pair(r, VALUE_OF_INT(1), numbers(1, LIST_PLAIN));
    EXPECT_FAILURE(r, "'list' cannot be a key", dict_set(r, dict, tuple, VALUE_OF_NONE));
}
END_TEST

START_TEST(dicts_are_equal_without_order) {
    struct dict *a = dict_new(r), *b = dict_new(r);
    for (int i = 0; i < 3; i++) {
        dict_set(r, a, VALUE_OF_INT(i), VALUE_OF_INT(i));
        dict_set(r, b, VALUE_OF_INT(2 - i), VALUE_OF_INT(2 - i));
    }
    ck_assert(value_equal(r, VALUE_OF_DICT(a), VALUE_OF_DICT(b)));
    dict_set(r, b, VALUE_OF_INT(1), VALUE_OF_INT(5));
    ck_assert(!value_equal(r, VALUE_OF_DICT(a), VALUE_OF_DICT(b)));
}
END_TEST

/* ---- limits --------------------------------------------------------------------------------- */

START_TEST(work_and_depth_are_bounded) {
    EXPECT_FAILURE(r, "too many steps", render_charge(r, (size_t)TEMPLATE_STEPS_MAX + 1));
    r->guard.steps = 0;
    struct value nested = VALUE_OF_NONE;
    for (int i = 0; i < TEMPLATE_DEPTH_MAX + 1; i++) nested = list_pair(r, nested, nested);
    EXPECT_FAILURE(r, "nested too deeply", value_repr(r, builder_new(r), nested));
    r->guard.depth = 0;
    EXPECT_FAILURE(r, "more memory than its limit", render_alloc(r, 1 << 25));
    EXPECT_FAILURE(r, "more memory than its limit", guard_array(&r->guard, SIZE_MAX / 4, 8));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("text_value");
    TCase *values = tcase_create("values"), *dicts = tcase_create("dicts");
    TCase *limits = tcase_create("limits");
    TCase *const all[] = {values, dicts, limits};
    tcase_add_test(values, numbers_of_all_kinds_are_equal_by_value);
    tcase_add_test(values, lists_are_equal_by_kind_and_content);
    tcase_add_test(values, order_is_that_of_python);
    tcase_add_test(values, truth_is_that_of_python);
    tcase_add_test(values, sums_of_lists_leave_their_parts_alone);
    tcase_add_test(values, generators_are_iterated_once);
    tcase_add_test(values, strings_are_iterated_by_character);
    tcase_add_test(dicts, dicts_find_all_their_keys_in_order);
    tcase_add_test(dicts, equal_numbers_are_one_key);
    tcase_add_test(dicts, mutable_values_are_no_keys);
    tcase_add_test(dicts, dicts_are_equal_without_order);
    tcase_add_test(limits, work_and_depth_are_bounded);
    for (size_t i = 0; i < 3; i++) {
        tcase_add_checked_fixture(all[i], begin, end);
        suite_add_tcase(suite, all[i]);
    }
    return suite_main(suite);
}
