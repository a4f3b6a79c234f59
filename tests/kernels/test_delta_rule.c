/* The gated delta rule with its convolution: compared with their formulas in double precision, and
 * the same bytes on every path, in steps of any size, alone or beside other sequences, with any
 * number of threads. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/kernel_data.h"
#include "support/state_rows.h"
#include "support/suite_main.h"

enum { ROWS = STATE_ROWS, TAPS = 4 };

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
    struct state_op op;
    int C, width; /* channels of the convolution, of the outputs */
    float *qkv, *z, *b, *dt, *w, *decay, *dt_bias, *gain;
};

static void run_rows(struct backend *b, struct kv_cache *cache, const void *data, float *y,
                     int first, int n, int seqs) {
    const struct delta_data *d = data;
    const int Hv = d->rule.Hv;
    const struct delta_rows rows = {state_rows_copy(d->qkv, d->C, first, n, seqs),
                                    state_rows_copy(d->z, d->width, first, n, seqs),
                                    state_rows_copy(d->b, Hv, first, n, seqs),
                                    state_rows_copy(d->dt, Hv, first, n, seqs)};
    b->compute->short_conv(b, rows.qkv, NULL, NULL, rows.qkv, cache, STATE_LAYER, &d->conv);
    b->compute->delta_rule(b, y, &rows, cache, STATE_LAYER, &d->rule);
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
    d->op = (struct state_op){.width = d->width,
                              .state_floats = d->rule.state_first + d->rule.dk * d->width,
                              .run = run_rows,
                              .data = d};
    state_op_begin(&d->op);
}

static void delta_data_free(struct delta_data *d) {
    free(d->qkv), free(d->z), free(d->b), free(d->dt), free(d->w), free(d->decay);
    free(d->dt_bias), free(d->gain);
    state_op_end(&d->op);
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
        ck_assert_double_eq_tol((double)d->op.right[at], right, 2e-5 + 2e-5 * fabs(right));
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

START_TEST(steps_of_any_size_give_the_same_bytes) {
    struct delta_data d;
    delta_data_init(&d, &cases[_i]);
    check_steps_of_any_size(&d.op);
    delta_data_free(&d);
}
END_TEST

START_TEST(a_copied_state_continues_like_the_first) {
    struct delta_data d;
    delta_data_init(&d, &cases[_i]);
    check_copied_states(&d.op);
    delta_data_free(&d);
}
END_TEST

START_TEST(a_state_copied_after_a_row_continues_from_there) {
    struct delta_data d;
    delta_data_init(&d, &cases[_i]);
    check_states_after_rows(&d.op);
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
        ck_assert((memcmp(grouped.op.right + at, tiled.op.right + at, bytes) == 0) == is_same_key);
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
