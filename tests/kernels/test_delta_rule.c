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
    bool tiles, by_channel, by_sigmoid, has_parts; /* q, k and v in buffers of their own */
} cases[] = {{1, 1, 1, 16},
             {2, 6, 16, 16},
             {2, 6, 16, 16, .tiles = true},
             {3, 3, 12, 48},
             {2, 4, 33, 80, .tiles = true},
             {1, 2, 128, 128},
             {1, 1, 256, 256},
             {3, 3, 16, 16, .by_channel = true},
             {2, 6, 33, 80, .by_channel = true, .by_sigmoid = true, .has_parts = true},
             {1, 1, 1, 16, .by_sigmoid = true},
             {3, 3, 128, 128, .by_channel = true, .by_sigmoid = true, .has_parts = true},
             {1, 1, 256, 256, .by_channel = true, .has_parts = true}};
enum { N_CASES = sizeof cases / sizeof *cases };

/* The products of one sequence of ROWS rows, and its right outputs. */
struct delta_data {
    struct short_conv conv;
    struct delta_rule rule;
    struct state_op op;
    int C, width; /* channels of the convolution, of the outputs */
    int gates;    /* numbers dt of a row */
    bool has_parts;
    float *qkv, *z, *b, *dt, *w, *decay, *dt_bias, *gain;
};

/* Returns the channels [from, from + n) of rows of C. */
static float *part_of(const float *rows, int M, int C, int from, int n) {
    float *part = mem_alloc((size_t)(M * n) * sizeof *part);
    for (int m = 0; m < M; m++) memcpy(part + m * n, rows + m * C + from, (size_t)n * sizeof *part);
    return part;
}

/* The convolution of some channels in a buffer of their own. */
static float *convolved_part(struct backend *b, struct kv_cache *cache, const struct delta_data *d,
                             const float *qkv, int M, int from, int n) {
    float *part = part_of(qkv, M, d->C, from, n);
    const struct short_conv conv = {n, TAPS, d->w, NULL, d->C, from};
    b->compute->short_conv(b, part, NULL, NULL, part, cache, STATE_LAYER, &conv);
    return part;
}

/* The rule with q, k and v in buffers of their own. */
static void run_parts(struct backend *b, struct kv_cache *cache, const struct delta_data *d,
                      float *y, const struct delta_rows *whole, int M) {
    const int keys = d->rule.Hk * d->rule.dk;
    struct delta_rows rows = *whole;
    rows.qkv = convolved_part(b, cache, d, whole->qkv, M, 0, keys);
    rows.k = convolved_part(b, cache, d, whole->qkv, M, keys, keys);
    rows.v = convolved_part(b, cache, d, whole->qkv, M, 2 * keys, d->C - 2 * keys);
    b->compute->delta_rule(b, y, &rows, cache, STATE_LAYER, &d->rule);
    mem_free(rows.qkv), mem_free(rows.k), mem_free(rows.v);
}

static void run_rows(struct backend *b, struct kv_cache *cache, const void *data, float *y,
                     int first, int n, int seqs) {
    const struct delta_data *d = data;
    const int Hv = d->rule.Hv;
    const struct delta_rows rows = {state_rows_copy(d->qkv, d->C, first, n, seqs),
                                    state_rows_copy(d->z, d->width, first, n, seqs),
                                    state_rows_copy(d->b, Hv, first, n, seqs),
                                    state_rows_copy(d->dt, d->gates, first, n, seqs)};
    if (d->has_parts) {
        run_parts(b, cache, d, y, &rows, n * seqs);
    } else {
        b->compute->short_conv(b, rows.qkv, NULL, NULL, rows.qkv, cache, STATE_LAYER, &d->conv);
        b->compute->delta_rule(b, y, &rows, cache, STATE_LAYER, &d->rule);
    }
    mem_free(rows.qkv), mem_free(rows.z), mem_free(rows.b), mem_free(rows.dt);
}

static void delta_data_init(struct delta_data *d, const struct delta_case *c) {
    uint64_t seed = 17 + (uint64_t)c->dv;
    d->C = 2 * c->Hk * c->dk + c->Hv * c->dv, d->width = c->Hv * c->dv;
    d->gates = c->Hv * (c->by_channel ? c->dk : 1), d->has_parts = c->has_parts;
    const size_t C = (size_t)d->C, width = (size_t)d->width, Hv = (size_t)c->Hv;
    const size_t gates = (size_t)d->gates;
    d->qkv = random_floats(&seed, ROWS * C), d->z = random_floats(&seed, ROWS * width);
    d->b = random_floats(&seed, ROWS * Hv), d->dt = random_floats(&seed, ROWS * gates);
    d->w = random_floats(&seed, TAPS * C), d->decay = random_floats(&seed, Hv);
    d->dt_bias = random_floats(&seed, gates), d->gain = random_floats(&seed, (size_t)c->dv);
    for (size_t i = 0; i < Hv; i++) d->decay[i] = -0.3f * fabsf(d->decay[i]);
    for (size_t i = 0; i < gates; i += 2) d->dt_bias[i] += 30; /* the straight part of softplus */
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
                                  .epsilon = 1e-6f,
                                  .by_channel = c->by_channel,
                                  .by_sigmoid = c->by_sigmoid};
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

/* Returns the decay of row i of a head's matrix at position p. */
static double decay_of(const struct delta_data *d, int head, int p, int i) {
    const struct delta_rule *r = &d->rule;
    const int at = r->by_channel ? head * r->dk + i : head;
    const double dt = (double)d->dt[p * d->gates + at] + (double)r->dt_bias[at];
    return exp((double)r->decay[head] * log1p(exp(dt)));
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
    double g[MAX_DELTA_HEAD];
    for (int i = 0; i < dk; i++) g[i] = decay_of(d, head, p, i);
    double beta = sigmoid((double)d->b[p * r->Hv + head]);
    for (int j = 0; j < dv; j++) {
        double seen = 0;
        for (int i = 0; i < dk; i++) S[i * dv + j] *= g[i], seen += S[i * dv + j] * k[i];
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
        double right = o[j] / sqrt(sum / r->dv + 1e-6) * (double)r->gain[j] * sigmoid(z);
        if (!r->by_sigmoid) right *= z;
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

/* A model whose channels have the decay of the first one gives other numbers. */
START_TEST(channels_have_decays_of_their_own) {
    struct delta_data own, first;
    delta_data_init(&own, &cases[7]);
    delta_data_init(&first, &cases[7]);
    ck_assert(own.rule.by_channel && own.gates == own.rule.Hv * own.rule.dk);
    for (int i = 0; i < ROWS * first.gates; i++)
        first.dt[i] = first.dt[i / first.rule.dk * first.rule.dk];
    for (int i = 0; i < first.gates; i++)
        first.dt_bias[i] = first.dt_bias[i / first.rule.dk * first.rule.dk];
    state_op_end(&first.op);
    state_op_begin(&first.op);
    const size_t row = (size_t)own.width * sizeof(float);
    ck_assert_mem_eq(own.op.right, first.op.right, row); /* S is zero before it */
    ck_assert_mem_ne(own.op.right + own.width, first.op.right + own.width, row);
    delta_data_free(&own);
    delta_data_free(&first);
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
    tcase_add_test(all, channels_have_decays_of_their_own);
    suite_add_tcase(suite, all);
    return suite_main(suite);
}
