/* The part of Check that the suites use, for a GPU's machine without that library. A failure ends
 * its test and the suite continues. The name of each test is printed before the test runs, so that
 * it is known after a crash. */
#ifndef PENSTOCK_TESTS_CUDA_DEVICE_CHECK_H
#define PENSTOCK_TESTS_CUDA_DEVICE_CHECK_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct TCase TCase;
typedef struct Suite Suite;
typedef struct SRunner SRunner;
enum print_output { CK_NORMAL };
typedef struct {
    const char *name;
    void (*run)(int);
} TTest;

Suite *suite_create(const char *name);
TCase *tcase_create(const char *name);
void suite_add_tcase(Suite *suite, TCase *cases);
/* ignored: the caller of the program sets a limit */
void tcase_set_timeout(TCase *cases, double seconds);
/* The fixtures of the suite: before its first test and after its last. */
void tcase_add_unchecked_fixture(TCase *cases, void (*setup)(void), void (*teardown)(void));
/* The fixture of each test, also of one that failed. A suite has at most one; it may not fail. */
void tcase_add_checked_fixture(TCase *cases, void (*setup)(void), void (*teardown)(void));
void tcase_add_test(TCase *cases, const TTest *test);
void tcase_add_loop_test(TCase *cases, const TTest *test, int from, int to);
SRunner *srunner_create(Suite *suite);
void srunner_run_all(SRunner *runner, enum print_output output);
int srunner_ntests_failed(SRunner *runner);
void srunner_free(SRunner *runner);

/* Prints the message and ends the test. */
void check_fail(const char *file, int line, const char *format, ...)
    __attribute__((noreturn, format(printf, 3, 4)));
void check_numbers(const char *file, int line, const char *text, bool right, intmax_t a,
                   intmax_t b);
void check_strings(const char *file, int line, const char *text, bool right, const char *a,
                   const char *b);

#ifdef __cplusplus
}
#endif

#define START_TEST(test)                                                                           \
    static void test##_run(int _i);                                                                \
    static const TTest test##_test = {#test, test##_run};                                          \
    static const TTest *const test = &test##_test;                                                 \
    static void test##_run(int _i __attribute__((unused)))
#define END_TEST

#define ck_abort_msg(...) check_fail(__FILE__, __LINE__, __VA_ARGS__)
#define ck_assert_msg(x, ...) ((x) ? (void)0 : check_fail(__FILE__, __LINE__, __VA_ARGS__))
#define ck_assert(x) ((x) ? (void)0 : check_fail(__FILE__, __LINE__, "%s", #x))
#define CHECK_NUMBERS(a, op, b)                                                                    \
    do {                                                                                           \
        const intmax_t check_a = (intmax_t)(a), check_b = (intmax_t)(b);                           \
        check_numbers(__FILE__, __LINE__, #a " " #op " " #b, check_a op check_b, check_a,          \
                      check_b);                                                                    \
    } while (0)
#define ck_assert_ptr_null(p) ck_assert((p) == NULL)
#define ck_assert_ptr_nonnull(p) ck_assert((p) != NULL)
#define ck_assert_ptr_eq(a, b) ck_assert((a) == (b))
#define ck_assert_int_eq(a, b) CHECK_NUMBERS(a, ==, b)
#define ck_assert_int_ne(a, b) CHECK_NUMBERS(a, !=, b)
#define ck_assert_int_ge(a, b) CHECK_NUMBERS(a, >=, b)
#define ck_assert_int_gt(a, b) CHECK_NUMBERS(a, >, b)
#define ck_assert_int_le(a, b) CHECK_NUMBERS(a, <=, b)
#define ck_assert_int_lt(a, b) CHECK_NUMBERS(a, <, b)
#define ck_assert_uint_eq(a, b) CHECK_NUMBERS(a, ==, b)
#define ck_assert_uint_ne(a, b) CHECK_NUMBERS(a, !=, b)
#define ck_assert_uint_ge(a, b) CHECK_NUMBERS(a, >=, b)
#define ck_assert_uint_gt(a, b) CHECK_NUMBERS(a, >, b)
#define ck_assert_uint_le(a, b) CHECK_NUMBERS(a, <=, b)
#define ck_assert_uint_lt(a, b) CHECK_NUMBERS(a, <, b)
#define CHECK_STRINGS(a, op, b)                                                                    \
    do {                                                                                           \
        const char *check_a = (a), *check_b = (b);                                                 \
        check_strings(__FILE__, __LINE__, #a " " #op " " #b, strcmp(check_a, check_b) op 0,        \
                      check_a, check_b);                                                           \
    } while (0)
#define ck_assert_str_eq(a, b) CHECK_STRINGS(a, ==, b)
#define ck_assert_str_ne(a, b) CHECK_STRINGS(a, !=, b)
#define ck_assert_mem_eq(a, b, bytes) ck_assert(memcmp(a, b, bytes) == 0)

#endif
