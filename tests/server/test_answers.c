/* Memory for answers that wait to be read: the limit of one answer, the limit of all together, and
 * a sum of zero after all are gone. */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>

#include "server/app/app.h"
#include "support/suite_main.h"

#define ALL ((size_t)1 << 20)

START_TEST(small_answers_are_not_counted) {
    struct answers answers = {.max_bytes = 1};
    struct answer_share share = {0};
    ck_assert_int_eq(answer_reserve(&answers, &share, ANSWER_SMALL_BYTES, "x", NULL), STATUS_OK);
    answer_settle(&answers, &share, ANSWER_SMALL_BYTES);
    ck_assert(share.bytes == 0 && answers.bytes == 0);
    answer_release(&answers, &share);
    ck_assert_uint_eq(answers.bytes, 0);
}
END_TEST

START_TEST(one_answer_has_a_bound) {
    struct answers answers = {0};
    struct answer_share share = {0};
    struct err err = {0};
    ck_assert_int_eq(answer_reserve(&answers, &share, ANSWER_MAX_BYTES, "x", &err), STATUS_OK);
    ck_assert_int_eq(answer_reserve(&answers, &share, ANSWER_MAX_BYTES + 1, "x", &err),
                     STATUS_INVALID_REQUEST);
    ck_assert_str_eq(err.param, "x");
    ck_assert_uint_eq(share.bytes, ANSWER_MAX_BYTES);
    answer_release(&answers, &share);
    ck_assert_uint_eq(answers.bytes, 0);
}
END_TEST

START_TEST(all_answers_have_a_bound) {
    struct answers answers = {.max_bytes = ALL};
    struct answer_share first = {0}, second = {0};
    struct err err = {0};
    ck_assert_int_eq(answer_reserve(&answers, &first, ALL - ANSWER_SMALL_BYTES, "x", &err),
                     STATUS_OK);
    ck_assert_int_eq(answer_reserve(&answers, &second, ANSWER_SMALL_BYTES + 1, "x", &err),
                     STATUS_UNAVAILABLE);
    ck_assert_str_eq(err.code, "too_many_answers");
    ck_assert_uint_eq(second.bytes, 0);
    ck_assert_int_eq(answer_reserve(&answers, &first, ALL, "x", &err), STATUS_OK);
    ck_assert_int_eq(answer_reserve(&answers, &first, ALL + 1, "x", &err), STATUS_UNAVAILABLE);
    ck_assert_uint_eq(first.bytes, ALL);
    answer_settle(&answers, &first, ALL / 2);
    ck_assert_int_eq(answer_reserve(&answers, &second, ALL / 2, "x", &err), STATUS_OK);
    ck_assert_uint_eq(answers.bytes, ALL);
    answer_release(&answers, &first);
    answer_release(&answers, &first);
    answer_release(&answers, &second);
    ck_assert_uint_eq(answers.bytes, 0);
}
END_TEST

/* A finished answer is counted in full, even above the limits. */
START_TEST(written_bytes_are_counted) {
    struct answers answers = {.max_bytes = ALL};
    struct answer_share share = {0};
    answer_settle(&answers, &share, 2 * ALL);
    ck_assert(share.bytes == 2 * ALL && answers.bytes == 2 * ALL);
    struct answer_share other = {0};
    ck_assert_int_eq(answer_reserve(&answers, &other, ANSWER_SMALL_BYTES + 1, "x", NULL),
                     STATUS_UNAVAILABLE);
    answer_release(&answers, &share);
    ck_assert_uint_eq(answers.bytes, 0);
}
END_TEST

static void *reserve_often(void *arg) {
    struct answers *answers = arg;
    for (int i = 1; i < 20000; i++) {
        struct answer_share share = {0};
        size_t bytes = (size_t)i * 7919 % ALL;
        answer_reserve(answers, &share, bytes, "x", NULL);
        if (atomic_load(&answers->bytes) > ALL) return answers;
        answer_settle(answers, &share, share.bytes / 2);
        answer_release(answers, &share);
    }
    return NULL;
}

START_TEST(workers_and_loop_share_the_sum) {
    static struct answers answers = {.max_bytes = ALL};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, reserve_often, &answers);
    for (int i = 0; i < 4; i++) {
        void *exceeded;
        pthread_join(threads[i], &exceeded);
        ck_assert_ptr_null(exceeded);
    }
    ck_assert_uint_eq(answers.bytes, 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_answers");
    TCase *core = tcase_create("core");
    tcase_add_test(core, small_answers_are_not_counted);
    tcase_add_test(core, one_answer_has_a_bound);
    tcase_add_test(core, all_answers_have_a_bound);
    tcase_add_test(core, written_bytes_are_counted);
    tcase_add_test(core, workers_and_loop_share_the_sum);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
