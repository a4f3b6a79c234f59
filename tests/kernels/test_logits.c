/* Reductions over a row of logits: their results, and the same bytes on every path. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "support/kernel_data.h"
#include "support/suite_main.h"

static const int lengths[] = {1, 2, 15, 16, 17, 63, 64, 65, 255, 256, 257, 271, 272, 1000, 5003};
enum { N_LENGTHS = sizeof lengths / sizeof *lengths };
enum { MOST = 5003, PAD = 32 };

static float x[MOST + PAD], maxima[MOST], weight[MOST + PAD], value[MOST];
static int32_t id[MOST];

/* Fills x with ordinary numbers; a higher kind has more special values. */
static void fill(int n, int kind) {
    static const float special[] = {NAN, -INFINITY, INFINITY, -0.0f, 0, 3e38f, -3e38f, 1e-40f};
    uint64_t state = 5 + (uint64_t)n * 10 + (uint64_t)kind;
    for (int i = 0; i < n; i++) {
        x[i] = 4 * random_float(&state);
        if (kind > 0 && random_below(&state, 8 / kind) == 0)
            x[i] = special[random_below(&state, kind > 2 ? 8 : 2)];
    }
    for (int i = n; i < n + PAD; i++) x[i] = 1e38f; /* must not be read */
}

#define EACH_PATH(ops)                                                                             \
    for (const char *const *path = backend_cpu_paths(); *path; path++)                             \
        for (const struct logit_ops *ops = backend_cpu_logit_ops(*path); ops; ops = NULL)

START_TEST(maxima_are_of_their_columns) {
    int n = lengths[_i];
    for (int kind = 0; kind < 5; kind++) {
        fill(n, kind);
        float right = -INFINITY;
        for (int i = 0; i < n; i++) right = x[i] > right ? x[i] : right;
        EACH_PATH(ops) {
            ck_assert(ops->maxima(maxima, x, n) == right);
            for (int m = 0; m < (int)logit_maxima(n); m++) {
                float most = -INFINITY;
                for (int i = m / 16 * 256 + m % 16; i < n && i / 256 == m / 16; i += 16)
                    most = x[i] > most ? x[i] : most;
                ck_assert(maxima[m] == most);
            }
        }
    }
}
END_TEST

/* The bits of words are mixed, all set, or all clear. */
START_TEST(a_mask_is_laid_over_a_row) {
    static float right[MOST + PAD], right_maxima[MOST], own[MOST + PAD];
    uint32_t mask[(MOST + 31) / 32];
    int n = lengths[_i];
    for (int kind = 0; kind < 5; kind++) {
        uint64_t state = 99 + (uint64_t)kind;
        fill(n, kind);
        for (int i = 0; i < (n + 31) / 32; i++) {
            uint32_t mixed = random_u32(&state);
            mask[i] = kind == 0 ? mixed : random_below(&state, 2) ? UINT32_MAX : 0;
        }
        for (int i = 0; i < n; i++) right[i] = mask[i / 32] >> i % 32 & 1 ? x[i] : -INFINITY;
        float largest = plain_logits.maxima(right_maxima, right, n);
        EACH_PATH(ops) {
            own[n] = 77;
            ck_assert(ops->mask(own, maxima, x, mask, n) == largest);
            ck_assert(own[n] == 77);
            assert_same_floats(own, right, (size_t)n, *path);
            assert_same_floats(maxima, right_maxima, logit_maxima(n), *path);
            memcpy(own, x, sizeof own); /* in place */
            ops->mask(own, maxima, own, mask, n);
            assert_same_floats(own, right, (size_t)n, *path);
        }
    }
}
END_TEST

START_TEST(logits_that_reach_a_bound_are_counted_and_collected) {
    static const float bounds[] = {-INFINITY, -3, 0, 2.5f, 9, 3e38f, INFINITY};
    int n = lengths[_i];
    for (int kind = 0; kind < 5; kind++) {
        fill(n, kind);
        EACH_PATH(ops) {
            ops->maxima(maxima, x, n);
            for (int b = 0; b < 7; b++) {
                int above = 0, found = ops->collect(value, id, n, x, n, maxima, bounds[b]), k = 0;
                bool same = true;
                for (int i = 0; i < n; i++) {
                    above += x[i] > bounds[b];
                    if (!(x[i] >= bounds[b])) continue;
                    same = same && k < found && id[k] == i && value[k] == x[i];
                    k++;
                }
                ck_assert(same && found == k);
                ck_assert_int_eq(ops->count_above(x, n, bounds[b]), above);
                int most = found / 2;
                ck_assert_int_eq(ops->collect(value, id, most, x, n, maxima, bounds[b]), most);
            }
        }
    }
}
END_TEST

START_TEST(weights_have_the_same_bytes) {
    static const float inverses[] = {1, 1.25f, 0.01f, 1e-30f, 1e30f};
    static float right[MOST];
    int n = lengths[_i];
    for (int kind = 0; kind < 5; kind++) {
        fill(n, kind);
        float max = plain_logits.maxima(maxima, x, n);
        for (int i = 0; i < 5; i++) {
            uint64_t sum = plain_logits.weights(right, x, n, max, inverses[i]);
            EACH_PATH(ops) {
                weight[n] = 77;
                ck_assert_uint_eq(ops->weights(weight, x, n, max, inverses[i]), sum);
                ck_assert(weight[n] == 77);
                assert_same_floats(weight, right, (size_t)n, *path);
                memcpy(weight, x, (size_t)n * sizeof *x); /* in place */
                ops->weights(weight, weight, n, max, inverses[i]);
                assert_same_floats(weight, right, (size_t)n, *path);
            }
        }
    }
}
END_TEST

/* Compares with the oracle's bits for every relevant exponent, in steps finer than those of a
 * float. */
START_TEST(weights_agree_over_their_whole_range) {
    for (float at = 0; at > -90;) {
        for (int i = 0; i < MOST; i++) x[i] = at -= 0.00037f;
        EACH_PATH(ops) {
            ops->weights(weight, x, MOST, 0, 1);
            bool same = true;
            for (int i = 0; i < MOST; i++) {
                float right = plain_weight(x[i]);
                same = same && memcmp(&right, &weight[i], sizeof right) == 0;
            }
            ck_assert_msg(same, "%s", *path);
        }
    }
}
END_TEST

/* Shares are rounded to nearest, ties to even, like the machine's rounding of the product. */
START_TEST(shares_are_rounded_weights) {
    ck_assert_uint_eq(weight_share(0), 0);
    ck_assert_uint_eq(weight_share(1), (uint64_t)1 << 44);
    ck_assert_uint_eq(weight_share(0x1p-45f), 0);
    ck_assert_uint_eq(weight_share(0x1.000002p-45f), 1);
    ck_assert_uint_eq(weight_share(0x3p-45f), 2);
    ck_assert_uint_eq(weight_share(0x5p-45f), 2);
    for (float w = 1; w > 1e-20f; w *= 0.99991f)
        ck_assert_uint_eq(weight_share(w), (uint64_t)rint((double)w * 0x1p44));
}
END_TEST

START_TEST(runs_are_summed) {
    uint64_t state = 8, right[LOGIT_RUNS], own[LOGIT_RUNS];
    for (int i = 0; i < LOGIT_RUNS * LOGIT_BLOCK; i++)
        weight[i] = plain_weight(-fabsf(5 * random_float(&state)));
    for (int r = 0; r < LOGIT_RUNS; r++) {
        right[r] = 0;
        for (int i = 0; i < LOGIT_BLOCK; i++) right[r] += weight_share(weight[r * LOGIT_BLOCK + i]);
    }
    EACH_PATH(ops) {
        ops->run_sums(own, weight);
        ck_assert_msg(memcmp(own, right, sizeof own) == 0, "%s", *path);
    }
}
END_TEST

START_TEST(an_unknown_path_is_the_plain_one) {
    ck_assert_ptr_eq(backend_cpu_logit_ops("abacus"), &plain_logits);
    ck_assert_ptr_eq(backend_cpu_logit_ops("plain"), &plain_logits);
    ck_assert_ptr_eq(backend_cpu_logit_ops(NULL), backend_cpu_logit_ops(backend_cpu_paths()[0]));
}
END_TEST

int main(void) {
    unsetenv("PENSTOCK_CPU");
    Suite *suite = suite_create("kernels_logits");
    TCase *t = tcase_create("logits");
    tcase_add_loop_test(t, maxima_are_of_their_columns, 0, N_LENGTHS);
    tcase_add_loop_test(t, a_mask_is_laid_over_a_row, 0, N_LENGTHS);
    tcase_add_loop_test(t, logits_that_reach_a_bound_are_counted_and_collected, 0, N_LENGTHS);
    tcase_add_loop_test(t, weights_have_the_same_bytes, 0, N_LENGTHS);
    tcase_add_test(t, weights_agree_over_their_whole_range);
    tcase_add_test(t, shares_are_rounded_weights);
    tcase_add_test(t, runs_are_summed);
    tcase_add_test(t, an_unknown_path_is_the_plain_one);
    tcase_set_timeout(t, 120);
    suite_add_tcase(suite, t);
    return suite_main(suite);
}
