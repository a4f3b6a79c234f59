/* The state space with its convolution: compared with their formulas in double precision, and
 * the same bytes on every path, in steps of any size, alone or beside other sequences, with any
 * number of threads. */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "support/kernel_data.h"
#include "support/state_rows.h"
#include "support/suite_main.h"

enum { ROWS = STATE_ROWS, TAPS = 4 };

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
    struct state_op op;
    int C, width; /* channels of the convolution, of the outputs */
    float *xbc, *z, *dt, *w, *bias, *decay, *dt_bias, *skip, *gain;
};

static void run_rows(struct backend *b, struct kv_cache *cache, const void *data, float *y,
                     int first, int n, int seqs) {
    const struct space_data *d = data;
    float *xbc = state_rows_copy(d->xbc, d->C, first, n, seqs);
    float *dt = state_rows_copy(d->dt, d->space.Hv, first, n, seqs);
    const struct space_rows rows = {xbc, state_rows_copy(d->z, d->width, first, n, seqs), dt};
    b->compute->short_conv(b, xbc, NULL, NULL, xbc, cache, STATE_LAYER, &d->conv);
    b->compute->state_space(b, y, &rows, cache, STATE_LAYER, &d->space);
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
    d->op = (struct state_op){.width = d->width,
                              .state_floats = d->space.state_first + d->space.dk * d->width,
                              .run = run_rows,
                              .data = d};
    state_op_begin(&d->op);
}

static void space_data_free(struct space_data *d) {
    free(d->xbc), free(d->z), free(d->dt), free(d->w), free(d->bias), free(d->decay);
    free(d->dt_bias), free(d->skip), free(d->gain);
    state_op_end(&d->op);
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
            ck_assert_double_eq_tol((double)d.op.right[p * d.width + j], o[j],
                                    1e-4 + 1e-4 * fabs(o[j]));
    }
    mem_free(S), mem_free(o);
    space_data_free(&d);
}
END_TEST

/* ---- the same bytes ------------------------------------------------------------------------- */

START_TEST(steps_of_any_size_give_the_same_bytes) {
    struct space_data d;
    space_data_init(&d, &cases[_i]);
    check_steps_of_any_size(&d.op);
    space_data_free(&d);
}
END_TEST

START_TEST(a_copied_state_continues_like_the_first) {
    struct space_data d;
    space_data_init(&d, &cases[_i]);
    check_copied_states(&d.op);
    space_data_free(&d);
}
END_TEST

START_TEST(a_state_copied_after_a_row_continues_from_there) {
    struct space_data d;
    space_data_init(&d, &cases[_i]);
    check_states_after_rows(&d.op);
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
