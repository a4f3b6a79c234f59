/* The state space with its convolution: compared with their formulas in double precision, and
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

static const struct space_case {
    int Hk, Hv, dk, dv;
    bool lacks_norm, norms_first;
} cases[] = {{1, 1, 1, 16, false, false},   {2, 6, 16, 16, false, false},
             {2, 6, 16, 16, false, true},   {3, 3, 12, 48, true, false},
             {2, 4, 33, 80, false, true},   {1, 2, 128, 128, false, false},
             {1, 1, 256, 256, false, false}};
enum { N_CASES = sizeof cases / sizeof *cases };

/* The products of one sequence of ROWS rows, and its right outputs. */
struct space_data {
    struct short_conv conv;
    struct state_space space;
    int C, width; /* channels of the convolution, of the outputs */
    float *xbc, *z, *dt, *w, *bias, *decay, *dt_bias, *skip, *gain, *right;
};

static struct kv_cache *open_cache(struct backend *b, const struct space_data *d) {
    struct kv_cache *cache = NULL;
    const struct kv_config config = {.L = 1,
                                     .G = 1,
                                     .D = 16,
                                     .n_blocks = 1,
                                     .block_size = 16,
                                     .dtype = DTYPE_F32,
                                     .n_states = STATES,
                                     .state_layers = LAYERS,
                                     .state_floats = d->space.state_first + d->space.dk * d->width};
    ck_assert_int_eq(b->cache->kv_new(b, &cache, &config, NULL), STATUS_OK);
    memset(cache->states, 0xff, cache->state_bytes); /* NaN: nothing may depend on it */
    return cache;
}

static struct backend *open_space(const char *path, int threads) {
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
static void run_rows(struct backend *b, struct kv_cache *cache, const struct space_data *d,
                     float *y, int first, int n, int seqs, int from, int to) {
    int32_t position[MOST_SEQUENCES * ROWS], start[MOST_SEQUENCES + 1], state[MOST_SEQUENCES];
    int32_t copy_from = from, copy_to = to;
    float *xbc = copy_rows(d->xbc, d->C, first, n, seqs);
    float *dt = copy_rows(d->dt, d->space.Hv, first, n, seqs);
    const struct space_rows rows = {xbc, copy_rows(d->z, d->width, first, n, seqs), dt};
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
    b->compute->short_conv(b, xbc, NULL, NULL, xbc, cache, LAYER, &d->conv);
    b->compute->state_space(b, y, &rows, cache, LAYER, &d->space);
    mem_free(xbc), mem_free(rows.z), mem_free(dt);
}

static void space_data_init(struct space_data *d, const struct space_case *c) {
    uint64_t seed = 17 + (uint64_t)c->dv;
    d->C = 2 * c->Hk * c->dk + c->Hv * c->dv, d->width = c->Hv * c->dv;
    const size_t C = (size_t)d->C, width = (size_t)d->width, Hv = (size_t)c->Hv;
    d->xbc = random_floats(&seed, ROWS * C), d->z = random_floats(&seed, ROWS * width);
    d->dt = random_floats(&seed, ROWS * Hv), d->w = random_floats(&seed, TAPS * C);
    d->bias = random_floats(&seed, C), d->decay = random_floats(&seed, Hv);
    d->dt_bias = random_floats(&seed, Hv), d->skip = random_floats(&seed, Hv);
    d->gain = random_floats(&seed, width);
    for (size_t i = 0; i < Hv; i++) d->decay[i] = -0.3f * fabsf(d->decay[i]);
    for (size_t i = 1; i < Hv; i += 2) d->dt_bias[i] += 22; /* the straight part of softplus */
    d->conv = (struct short_conv){d->C, TAPS, d->w, d->bias};
    d->space = (struct state_space){.Hk = c->Hk,
                                    .Hv = c->Hv,
                                    .dk = c->dk,
                                    .dv = c->dv,
                                    .state_first = (TAPS - 1) * d->C + 5,
                                    .decay = d->decay,
                                    .dt_bias = d->dt_bias,
                                    .skip = d->skip,
                                    .dt_min = 0.5f,
                                    .dt_max = 22,
                                    .gain = c->lacks_norm ? NULL : d->gain,
                                    .epsilon = 1e-6f,
                                    .norms_first = c->norms_first};
    d->right = mem_alloc(ROWS * width * sizeof *d->right);
    struct backend *plain = open_space("plain", 1);
    struct kv_cache *cache = open_cache(plain, d);
    run_rows(plain, cache, d, d->right, 0, ROWS, 1, 0, 0);
    plain->cache->kv_free(plain, cache);
    backend_close(plain);
}

static void space_data_free(struct space_data *d) {
    free(d->xbc), free(d->z), free(d->dt), free(d->w), free(d->bias), free(d->decay);
    free(d->dt_bias), free(d->skip), free(d->gain);
    mem_free(d->right);
}

/* ---- the formula ---------------------------------------------------------------------------- */

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

/* out[n] = SiLU of the convolution of channels from `first` on, in row p. */
static void convolve(const struct space_data *d, int p, int first, int n, double *out) {
    for (int i = 0; i < n; i++) {
        double sum = (double)d->bias[first + i];
        for (int t = 0; t < TAPS; t++)
            if (p - TAPS + 1 + t >= 0)
                sum += (double)d->w[t * d->C + first + i] *
                       (double)d->xbc[(p - TAPS + 1 + t) * d->C + first + i];
        out[i] = sum * sigmoid(sum);
    }
}

/* Computes one row of a head: o[dv], and replaces S[dv][dk]. */
static void space_row(const struct space_data *d, int head, int p, double *S, double *o) {
    const struct state_space *s = &d->space;
    const int dk = s->dk, dv = s->dv, group = head / (s->Hv / s->Hk);
    double B[MAX_DELTA_HEAD], C[MAX_DELTA_HEAD], x[MAX_DELTA_HEAD];
    convolve(d, p, head * dv, dv, x);
    convolve(d, p, d->width + group * dk, dk, B);
    convolve(d, p, d->width + (s->Hk + group) * dk, dk, C);
    double dt = log1p(exp((double)d->dt[p * s->Hv + head] + (double)s->dt_bias[head]));
    dt = fmin(fmax(dt, (double)s->dt_min), (double)s->dt_max);
    for (int j = 0; j < dv; j++) {
        o[j] = (double)s->skip[head] * x[j];
        for (int i = 0; i < dk; i++) {
            S[j * dk + i] = S[j * dk + i] * exp((double)s->decay[head] * dt) + dt * x[j] * B[i];
            o[j] += S[j * dk + i] * C[i];
        }
    }
}

/* Replaces the outputs o of a row by those after the gate and the norm of each group. */
static void finish(const struct space_data *d, int p, double *o) {
    const struct state_space *s = &d->space;
    const int each = d->width / s->Hk;
    for (int g = 0; g < s->Hk; g++) {
        double sum = 0;
        for (int j = g * each; j < (g + 1) * each; j++) {
            double z = (double)d->z[p * d->width + j];
            if (!s->norms_first) o[j] *= z * sigmoid(z);
            sum += o[j] * o[j];
        }
        for (int j = g * each; j < (g + 1) * each; j++) {
            double z = (double)d->z[p * d->width + j];
            if (s->gain) o[j] *= (double)s->gain[j] / sqrt(sum / each + 1e-6);
            if (s->norms_first) o[j] *= z * sigmoid(z);
        }
    }
}

START_TEST(numbers_are_those_of_the_formula) {
    struct space_data d;
    space_data_init(&d, &cases[_i]);
    const int Hv = d.space.Hv, dv = d.space.dv, each = d.space.dk * dv;
    double *S = mem_calloc((size_t)(Hv * each), sizeof *S);
    double *o = mem_alloc((size_t)d.width * sizeof *o);
    for (int p = 0; p < ROWS; p++) {
        for (int head = 0; head < Hv; head++)
            space_row(&d, head, p, S + head * each, o + head * dv);
        finish(&d, p, o);
        for (int j = 0; j < d.width; j++)
            ck_assert_double_eq_tol((double)d.right[p * d.width + j], o[j],
                                    1e-4 + 1e-4 * fabs(o[j]));
    }
    mem_free(S), mem_free(o);
    space_data_free(&d);
}
END_TEST

/* ---- the same bytes ------------------------------------------------------------------------- */

/* A step of a few rows continues where the last one ended. */
START_TEST(steps_of_any_size_give_the_same_bytes) {
    static const int chunks[] = {1, 3, 7, ROWS};
    struct space_data d;
    space_data_init(&d, &cases[_i]);
    size_t N = (size_t)d.width;
    float *y = mem_alloc(MOST_SEQUENCES * ROWS * N * sizeof *y);
    for (const char *const *path = backend_cpu_paths(); *path; path++)
        for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++)
            for (int seqs = 1; seqs <= MOST_SEQUENCES; seqs++) {
                struct backend *b = open_space(*path, seqs);
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
    space_data_free(&d);
}
END_TEST

START_TEST(a_copied_state_continues_like_the_first) {
    struct space_data d;
    space_data_init(&d, &cases[_i]);
    size_t N = (size_t)d.width;
    float *y = mem_alloc(ROWS * N * sizeof *y);
    struct backend *b = open_space(NULL, 1);
    struct kv_cache *cache = open_cache(b, &d);
    run_rows(b, cache, &d, y, 0, 9, 1, 2, 2);
    for (int to = 4; to >= 2; to -= 2) {
        run_rows(b, cache, &d, y, 9, 5, 1, 2, to);
        assert_same_floats(y, d.right + 9 * N, 5 * N, "copied, then the original");
    }
    b->cache->kv_free(b, cache);
    backend_close(b);
    mem_free(y);
    space_data_free(&d);
}
END_TEST

/* A step of 9 rows copies the state after some of them. The rows after a copy have the same
 * bytes. */
START_TEST(a_state_copied_after_a_row_continues_from_there) {
    static const int32_t after[9] = {-1, 3, -1, -1, 1, 4, -1, -1, -1};
    struct space_data d;
    space_data_init(&d, &cases[_i]);
    size_t N = (size_t)d.width;
    float *y = mem_alloc(ROWS * N * sizeof *y);
    for (const char *const *path = backend_cpu_paths(); *path; path++) {
        struct backend *b = open_space(*path, 2);
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
    space_data_free(&d);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels/state_space");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 60);
    tcase_add_loop_test(all, numbers_are_those_of_the_formula, 0, N_CASES);
    tcase_add_loop_test(all, steps_of_any_size_give_the_same_bytes, 0, N_CASES);
    tcase_add_loop_test(all, a_copied_state_continues_like_the_first, 0, N_CASES);
    tcase_add_loop_test(all, a_state_copied_after_a_row_continues_from_there, 0, N_CASES);
    suite_add_tcase(suite, all);
    return suite_main(suite);
}
