/* The short convolution: compared with its formula in double precision, and the same bytes on every
 * path, in steps of any size, alone or beside other sequences, with any number of threads. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "support/kernel_data.h"
#include "support/suite_main.h"

enum { ROWS = 23, LAYERS = 2, LAYER = 1, STATES = 5, MOST_SEQUENCES = 3 };

static const struct conv_case {
    int N, taps;
    bool has_bias;
} cases[] = {{1, 2, false}, {15, 3, true}, {16, 4, true}, {40, 3, false}, {70, 8, true}};
enum { N_CASES = sizeof cases / sizeof *cases };

/* The inputs of one sequence of ROWS rows, and its right outputs. */
struct conv_data {
    struct short_conv conv;
    float *in, *out, *x, *w, *bias, *right;
};

static struct backend *open_conv(const char *path, int threads) {
    return open_backend(path, threads, MOST_SEQUENCES * ROWS, 128);
}

static struct kv_cache *open_cache(struct backend *b, const struct short_conv *conv) {
    struct kv_cache *cache = NULL;
    const struct kv_config config = {.L = 1,
                                     .G = 1,
                                     .D = 16,
                                     .n_blocks = 1,
                                     .block_size = 16,
                                     .dtype = DTYPE_F32,
                                     .n_states = STATES,
                                     .state_layers = LAYERS,
                                     .state_floats = short_conv_state(conv)};
    ck_assert_int_eq(b->cache->kv_new(b, &cache, &config, NULL), STATUS_OK);
    memset(cache->states, 0xff, cache->state_bytes); /* NaN: nothing may depend on it */
    return cache;
}

static const int32_t *state_after; /* [rows] of the next steps, or NULL */

/* Runs rows first..first + n - 1 of `seqs` equal sequences, which have states 0, 1, ...; copies
 * state `from` to `to` first, unless these are equal. */
static void run_rows(struct backend *b, struct kv_cache *cache, const struct conv_data *d, float *y,
                     int first, int n, int seqs, int from, int to) {
    const size_t N = (size_t)d->conv.N, length = (size_t)n * N, at = (size_t)first * N;
    int32_t position[MOST_SEQUENCES * ROWS], start[MOST_SEQUENCES + 1], state[MOST_SEQUENCES];
    int32_t copy_from = from, copy_to = to;
    float *rows[3];
    const float *whole[] = {d->in, d->out, d->x};
    for (int i = 0; i < 3; i++) {
        rows[i] = mem_alloc((size_t)seqs * length * sizeof *rows[i]);
        for (int s = 0; s < seqs; s++)
            memcpy(rows[i] + (size_t)s * length, whole[i] + at, length * sizeof *rows[i]);
    }
    for (int s = 0; s <= seqs; s++) start[s] = s * n;
    for (int s = 0; s < seqs; s++) state[s] = seqs == 1 ? to : s;
    for (int m = 0; m < seqs * n; m++) position[m] = first + m % n;
    const struct step step = {.M = seqs * n,
                              .position = position,
                              .S = seqs,
                              .row_start = start,
                              .state = state,
                              .state_after = state_after,
                              .n_state_copies = from != to,
                              .state_from = &copy_from,
                              .state_to = &copy_to};
    b->compute->step_begin(b, &step, cache);
    b->compute->short_conv(b, y, rows[0], rows[1], rows[2], cache, LAYER, &d->conv);
    for (int i = 0; i < 3; i++) mem_free(rows[i]);
}

static void conv_data_init(struct conv_data *d, const struct conv_case *c) {
    uint64_t seed = 91 + (uint64_t)c->N;
    const size_t N = (size_t)c->N;
    d->in = random_floats(&seed, ROWS * N), d->out = random_floats(&seed, ROWS * N);
    d->x = random_floats(&seed, ROWS * N), d->w = random_floats(&seed, (size_t)c->taps * N);
    d->bias = random_floats(&seed, N);
    d->conv = (struct short_conv){c->N, c->taps, d->w, c->has_bias ? d->bias : NULL};
    d->right = mem_alloc(ROWS * N * sizeof *d->right);
    struct backend *plain = open_conv("plain", 1);
    struct kv_cache *cache = open_cache(plain, &d->conv);
    run_rows(plain, cache, d, d->right, 0, ROWS, 1, 0, 0);
    plain->cache->kv_free(plain, cache);
    backend_close(plain);
}

static void conv_data_free(struct conv_data *d) {
    free(d->in), free(d->out), free(d->x), free(d->w), free(d->bias);
    mem_free(d->right);
}

START_TEST(numbers_are_those_of_the_formula) {
    const struct conv_case *c = &cases[_i];
    struct conv_data d;
    conv_data_init(&d, c);
    for (int p = 0; p < ROWS; p++)
        for (int n = 0; n < c->N; n++) {
            double sum = c->has_bias ? (double)d.bias[n] : 0;
            for (int t = 0; t < c->taps; t++) {
                int q = p - c->taps + 1 + t;
                if (q < 0) continue;
                sum += (double)d.w[t * c->N + n] * (double)d.in[q * c->N + n] *
                       (double)d.x[q * c->N + n];
            }
            double right = sum * (double)d.out[p * c->N + n];
            ck_assert_double_eq_tol((double)d.right[p * c->N + n], right,
                                    1e-5 + 1e-5 * fabs(right));
        }
    conv_data_free(&d);
}
END_TEST

/* A step of a few rows continues where the last one ended. */
START_TEST(steps_of_any_size_give_the_same_bytes) {
    static const int chunks[] = {1, 2, 3, 7, ROWS};
    struct conv_data d;
    conv_data_init(&d, &cases[_i]);
    size_t N = (size_t)d.conv.N;
    float *y = mem_alloc(MOST_SEQUENCES * ROWS * N * sizeof *y);
    for (const char *const *path = backend_cpu_paths(); *path; path++)
        for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++)
            for (int seqs = 1; seqs <= MOST_SEQUENCES; seqs++) {
                struct backend *b = open_conv(*path, seqs);
                struct kv_cache *cache = open_cache(b, &d.conv);
                for (int at = 0; at < ROWS; at += chunks[i]) {
                    int n = at + chunks[i] < ROWS ? chunks[i] : ROWS - at;
                    run_rows(b, cache, &d, y, at, n, seqs, 0, 0);
                    for (int s = 0; s < seqs; s++)
                        assert_same_floats(y + (size_t)(s * n) * N, d.right + (size_t)at * N,
                                           (size_t)n * N, *path);
                }
                b->cache->kv_free(b, cache);
                backend_close(b);
            }
    mem_free(y);
    conv_data_free(&d);
}
END_TEST

START_TEST(a_copied_state_continues_like_the_first) {
    struct conv_data d;
    conv_data_init(&d, &cases[_i]);
    size_t N = (size_t)d.conv.N;
    float *y = mem_alloc(ROWS * N * sizeof *y);
    struct backend *b = open_conv(NULL, 1);
    struct kv_cache *cache = open_cache(b, &d.conv);
    run_rows(b, cache, &d, y, 0, 9, 1, 2, 2);
    for (int to = 4; to >= 2; to -= 2) {
        run_rows(b, cache, &d, y, 9, 5, 1, 2, to);
        assert_same_floats(y, d.right + 9 * N, 5 * N, "copied, then the original");
    }
    b->cache->kv_free(b, cache);
    backend_close(b);
    mem_free(y);
    conv_data_free(&d);
}
END_TEST

/* A step of 9 rows copies the state after some of them. The rows after a copy have the same
 * bytes. */
START_TEST(a_state_copied_after_a_row_continues_from_there) {
    static const int32_t after[9] = {-1, 3, -1, -1, 1, 4, -1, -1, -1};
    struct conv_data d;
    conv_data_init(&d, &cases[_i]);
    size_t N = (size_t)d.conv.N;
    float *y = mem_alloc(ROWS * N * sizeof *y);
    for (const char *const *path = backend_cpu_paths(); *path; path++) {
        struct backend *b = open_conv(*path, 2);
        struct kv_cache *cache = open_cache(b, &d.conv);
        state_after = after;
        run_rows(b, cache, &d, y, 0, 9, 1, 2, 2);
        state_after = NULL;
        assert_same_floats(y, d.right, 9 * N, *path);
        for (int row = 0; row < 9; row++) {
            if (after[row] < 0) continue;
            run_rows(b, cache, &d, y, row + 1, 5, 1, after[row], after[row]);
            assert_same_floats(y, d.right + (size_t)(row + 1) * N, 5 * N, *path);
        }
        run_rows(b, cache, &d, y, 9, 5, 1, 2, 2);
        assert_same_floats(y, d.right + 9 * N, 5 * N, "the sequence's own state");
        b->cache->kv_free(b, cache);
        backend_close(b);
    }
    mem_free(y);
    conv_data_free(&d);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels/short_conv");
    TCase *all = tcase_create("all");
    tcase_add_loop_test(all, numbers_are_those_of_the_formula, 0, N_CASES);
    tcase_add_loop_test(all, steps_of_any_size_give_the_same_bytes, 0, N_CASES);
    tcase_add_loop_test(all, a_copied_state_continues_like_the_first, 0, N_CASES);
    tcase_add_loop_test(all, a_state_copied_after_a_row_continues_from_there, 0, N_CASES);
    suite_add_tcase(suite, all);
    return suite_main(suite);
}
