/* The gated delta rule with its convolution: compared with their formulas in double precision, and
 * the same bytes on every path, in steps of any size, alone or beside other sequences, with any
 * number of threads. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "support/kernel_data.h"
#include "support/suite_main.h"

enum { ROWS = 21, LAYERS = 2, LAYER = 1, STATES = 5, MOST_SEQUENCES = 3, TAPS = 4 };

static const struct delta_case {
    int Hk, Hv, dk, dv;
    bool tiles;
} cases[] = {{1, 1, 1, 16, false},   {2, 6, 16, 16, false}, {2, 6, 16, 16, true},
             {3, 3, 12, 48, false},  {2, 4, 33, 80, true},  {1, 2, 128, 128, false},
             {1, 1, 256, 256, false}};
enum { N_CASES = sizeof cases / sizeof *cases };

/* The products of one sequence of ROWS rows, and its right outputs. */
struct delta_data {
    struct short_conv conv;
    struct delta_rule rule;
    int C, width; /* channels of the convolution, of the outputs */
    float *qkv, *z, *b, *dt, *w, *decay, *dt_bias, *gain, *right;
};

static struct kv_cache *open_cache(struct backend *b, const struct delta_data *d) {
    struct kv_cache *cache = NULL;
    const struct kv_config config = {.L = 1,
                                     .G = 1,
                                     .D = 16,
                                     .n_blocks = 1,
                                     .block_size = 16,
                                     .dtype = DTYPE_F32,
                                     .n_states = STATES,
                                     .state_layers = LAYERS,
                                     .state_floats = d->rule.state_first + d->rule.dk * d->width};
    ck_assert_int_eq(b->cache->kv_new(b, &cache, &config, NULL), STATUS_OK);
    memset(cache->states, 0xff, cache->state_bytes); /* NaN: nothing may depend on it */
    return cache;
}

static struct backend *open_delta(const char *path, int threads) {
    return open_backend(path, threads, MOST_SEQUENCES * ROWS, 128);
}

/* Copies rows first..first + n - 1 of width N for each of `seqs` sequences. */
static float *copy_rows(const float *rows, int N, int first, int n, int seqs) {
    const size_t length = (size_t)n * (size_t)N;
    float *copy = mem_alloc((size_t)seqs * length * sizeof *copy);
    for (int s = 0; s < seqs; s++)
        memcpy(copy + (size_t)s * length, rows + (size_t)first * (size_t)N, length * sizeof *copy);
    return copy;
}

static const int32_t *state_after; /* [rows] of the next steps, or NULL */

/* Runs rows first..first + n - 1 of `seqs` equal sequences, which have states 0, 1, ...; copies
 * state `from` to `to` first, unless these are equal. */
static void run_rows(struct backend *b, struct kv_cache *cache, const struct delta_data *d,
                     float *y, int first, int n, int seqs, int from, int to) {
    int32_t position[MOST_SEQUENCES * ROWS], start[MOST_SEQUENCES + 1], state[MOST_SEQUENCES];
    int32_t copy_from = from, copy_to = to;
    const int Hv = d->rule.Hv;
    const struct delta_rows rows = {
        copy_rows(d->qkv, d->C, first, n, seqs), copy_rows(d->z, d->width, first, n, seqs),
        copy_rows(d->b, Hv, first, n, seqs), copy_rows(d->dt, Hv, first, n, seqs)};
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
    b->compute->short_conv(b, rows.qkv, NULL, NULL, rows.qkv, cache, LAYER, &d->conv);
    b->compute->delta_rule(b, y, &rows, cache, LAYER, &d->rule);
    mem_free(rows.qkv), mem_free(rows.z), mem_free(rows.b), mem_free(rows.dt);
}

static void delta_data_init(struct delta_data *d, const struct delta_case *c) {
    uint64_t seed = 17 + (uint64_t)c->dv;
    d->C = 2 * c->Hk * c->dk + c->Hv * c->dv, d->width = c->Hv * c->dv;
    const size_t C = (size_t)d->C, width = (size_t)d->width, Hv = (size_t)c->Hv;
    d->qkv = random_floats(&seed, ROWS * C), d->z = random_floats(&seed, ROWS * width);
    d->b = random_floats(&seed, ROWS * Hv), d->dt = random_floats(&seed, ROWS * Hv);
    d->w = random_floats(&seed, TAPS * C), d->decay = random_floats(&seed, Hv);
    d->dt_bias = random_floats(&seed, Hv), d->gain = random_floats(&seed, (size_t)c->dv);
    for (size_t i = 0; i < Hv; i++) d->decay[i] = -0.3f * fabsf(d->decay[i]);
    for (size_t i = 0; i < Hv; i += 2) d->dt_bias[i] += 30; /* the straight part of softplus */
    d->conv = (struct short_conv){d->C, TAPS, d->w, NULL};
    d->rule = (struct delta_rule){.Hk = c->Hk,
                                  .Hv = c->Hv,
                                  .dk = c->dk,
                                  .dv = c->dv,
                                  .tiles = c->tiles,
                                  .state_first = (TAPS - 1) * d->C + 5,
                                  .decay = d->decay,
                                  .dt_bias = d->dt_bias,
                                  .gain = d->gain,
                                  .epsilon = 1e-6f};
    d->right = mem_alloc(ROWS * width * sizeof *d->right);
    struct backend *plain = open_delta("plain", 1);
    struct kv_cache *cache = open_cache(plain, d);
    run_rows(plain, cache, d, d->right, 0, ROWS, 1, 0, 0);
    plain->cache->kv_free(plain, cache);
    backend_close(plain);
}

static void delta_data_free(struct delta_data *d) {
    free(d->qkv), free(d->z), free(d->b), free(d->dt), free(d->w), free(d->decay);
    free(d->dt_bias), free(d->gain);
    mem_free(d->right);
}

/* ---- the formula ---------------------------------------------------------------------------- */

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

/* out[n] = SiLU of the convolution of channels from `first` on, in row p. */
static void convolve(const struct delta_data *d, int p, int first, int n, double *out) {
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int t = 0; t < TAPS; t++)
            if (p - TAPS + 1 + t >= 0)
                sum += (double)d->w[t * d->C + first + i] *
                       (double)d->qkv[(p - TAPS + 1 + t) * d->C + first + i];
        out[i] = sum * sigmoid(sum);
    }
}

static void divide_by_length(double *x, int n) {
    double sum = 1e-6;
    for (int i = 0; i < n; i++) sum += x[i] * x[i];
    for (int i = 0; i < n; i++) x[i] /= sqrt(sum);
}

/* Computes one row of a head: o[dv], and replaces S[dk][dv]. */
static void rule_row(const struct delta_data *d, int head, int p, double *S, double *o) {
    const struct delta_rule *r = &d->rule;
    const int dk = r->dk, dv = r->dv, key = r->tiles ? head % r->Hk : head / (r->Hv / r->Hk);
    double q[MAX_DELTA_HEAD], k[MAX_DELTA_HEAD], v[MAX_DELTA_HEAD];
    convolve(d, p, key * dk, dk, q);
    convolve(d, p, (r->Hk + key) * dk, dk, k);
    convolve(d, p, 2 * r->Hk * dk + head * dv, dv, v);
    divide_by_length(q, dk), divide_by_length(k, dk);
    double dt = (double)d->dt[p * r->Hv + head] + (double)r->dt_bias[head];
    double g = exp((double)r->decay[head] * log1p(exp(dt)));
    double beta = sigmoid((double)d->b[p * r->Hv + head]);
    for (int j = 0; j < dv; j++) {
        double seen = 0;
        for (int i = 0; i < dk; i++) S[i * dv + j] *= g, seen += S[i * dv + j] * k[i];
        o[j] = 0;
        for (int i = 0; i < dk; i++) {
            S[i * dv + j] += k[i] * (v[j] - seen) * beta;
            o[j] += S[i * dv + j] * q[i] / sqrt(dk);
        }
    }
}

static void check_row(const struct delta_data *d, int head, int p, const double *o) {
    const struct delta_rule *r = &d->rule;
    double sum = 0;
    for (int j = 0; j < r->dv; j++) sum += o[j] * o[j];
    for (int j = 0; j < r->dv; j++) {
        int at = p * d->width + head * r->dv + j;
        double z = (double)d->z[at];
        double right = o[j] / sqrt(sum / r->dv + 1e-6) * (double)r->gain[j] * z * sigmoid(z);
        ck_assert_double_eq_tol((double)d->right[at], right, 2e-5 + 2e-5 * fabs(right));
    }
}

START_TEST(numbers_are_those_of_the_formula) {
    struct delta_data d;
    delta_data_init(&d, &cases[_i]);
    double *S = mem_alloc((size_t)(d.rule.dk * d.rule.dv) * sizeof *S), o[MAX_DELTA_HEAD];
    for (int head = 0; head < d.rule.Hv; head++) {
        for (int i = 0; i < d.rule.dk * d.rule.dv; i++) S[i] = 0;
        for (int p = 0; p < ROWS; p++) {
            rule_row(&d, head, p, S, o);
            check_row(&d, head, p, o);
        }
    }
    mem_free(S);
    delta_data_free(&d);
}
END_TEST

/* ---- the same bytes ------------------------------------------------------------------------- */

/* A step of a few rows continues where the last one ended. */
START_TEST(steps_of_any_size_give_the_same_bytes) {
    static const int chunks[] = {1, 3, 7, ROWS};
    struct delta_data d;
    delta_data_init(&d, &cases[_i]);
    size_t N = (size_t)d.width;
    float *y = mem_alloc(MOST_SEQUENCES * ROWS * N * sizeof *y);
    for (const char *const *path = backend_cpu_paths(); *path; path++)
        for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++)
            for (int seqs = 1; seqs <= MOST_SEQUENCES; seqs++) {
                struct backend *b = open_delta(*path, seqs);
                struct kv_cache *cache = open_cache(b, &d);
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
    delta_data_free(&d);
}
END_TEST

START_TEST(a_copied_state_continues_like_the_first) {
    struct delta_data d;
    delta_data_init(&d, &cases[_i]);
    size_t N = (size_t)d.width;
    float *y = mem_alloc(ROWS * N * sizeof *y);
    struct backend *b = open_delta(NULL, 1);
    struct kv_cache *cache = open_cache(b, &d);
    run_rows(b, cache, &d, y, 0, 9, 1, 2, 2);
    for (int to = 4; to >= 2; to -= 2) {
        run_rows(b, cache, &d, y, 9, 5, 1, 2, to);
        assert_same_floats(y, d.right + 9 * N, 5 * N, "copied, then the original");
    }
    b->cache->kv_free(b, cache);
    backend_close(b);
    mem_free(y);
    delta_data_free(&d);
}
END_TEST

/* A step of 9 rows copies the state after some of them. The rows after a copy have the same
 * bytes. */
START_TEST(a_state_copied_after_a_row_continues_from_there) {
    static const int32_t after[9] = {-1, 3, -1, -1, 1, 4, -1, -1, -1};
    struct delta_data d;
    delta_data_init(&d, &cases[_i]);
    size_t N = (size_t)d.width;
    float *y = mem_alloc(ROWS * N * sizeof *y);
    for (const char *const *path = backend_cpu_paths(); *path; path++) {
        struct backend *b = open_delta(*path, 2);
        struct kv_cache *cache = open_cache(b, &d);
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
    delta_data_free(&d);
}
END_TEST

/* A model that reads tiled heads as grouped ones gives other numbers. */
START_TEST(tiled_heads_are_not_grouped_ones) {
    struct delta_data grouped, tiled;
    delta_data_init(&grouped, &cases[1]);
    delta_data_init(&tiled, &cases[2]);
    ck_assert(!cases[1].tiles && cases[2].tiles && cases[1].Hv == cases[2].Hv);
    ck_assert_mem_eq(grouped.qkv, tiled.qkv, (size_t)grouped.C * ROWS * sizeof *grouped.qkv);
    for (int head = 0; head < grouped.rule.Hv; head++) {
        bool is_same_key = head / 3 == head % 2;
        size_t at = (size_t)(head * grouped.rule.dv),
               bytes = (size_t)grouped.rule.dv * sizeof(float);
        ck_assert((memcmp(grouped.right + at, tiled.right + at, bytes) == 0) == is_same_key);
    }
    delta_data_free(&grouped);
    delta_data_free(&tiled);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels/delta_rule");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 60);
    tcase_add_loop_test(all, numbers_are_those_of_the_formula, 0, N_CASES);
    tcase_add_loop_test(all, steps_of_any_size_give_the_same_bytes, 0, N_CASES);
    tcase_add_loop_test(all, a_copied_state_continues_like_the_first, 0, N_CASES);
    tcase_add_loop_test(all, a_state_copied_after_a_row_continues_from_there, 0, N_CASES);
    tcase_add_test(all, tiled_heads_are_not_grouped_ones);
    suite_add_tcase(suite, all);
    return suite_main(suite);
}
