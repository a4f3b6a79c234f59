/* The short convolution: compared with its formula in double precision, and the same bytes on every
 * path, in steps of any size, alone or beside other sequences, with any number of threads. */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "support/kernel_data.h"
#include "support/state_rows.h"
#include "support/suite_main.h"

enum { ROWS = STATE_ROWS };

static const struct conv_case {
    int N, taps;
    bool has_bias;
} cases[] = {{1, 2, false}, {15, 3, true}, {16, 4, true}, {40, 3, false}, {70, 8, true}};
enum { N_CASES = sizeof cases / sizeof *cases };

/* The inputs of one sequence of ROWS rows, and its right outputs. */
struct conv_data {
    struct short_conv conv;
    struct state_op op;
    float *in, *out, *x, *w, *bias;
};

static void run_rows(struct backend *b, struct kv_cache *cache, const void *data, float *y,
                     int first, int n, int seqs) {
    const struct conv_data *d = data;
    float *in = state_rows_copy(d->in, d->conv.N, first, n, seqs);
    float *out = state_rows_copy(d->out, d->conv.N, first, n, seqs);
    float *x = state_rows_copy(d->x, d->conv.N, first, n, seqs);
    b->compute->short_conv(b, y, in, out, x, cache, STATE_LAYER, &d->conv);
    mem_free(in), mem_free(out), mem_free(x);
}

static void conv_data_init(struct conv_data *d, const struct conv_case *c) {
    uint64_t seed = 91 + (uint64_t)c->N;
    const size_t N = (size_t)c->N;
    d->in = random_floats(&seed, ROWS * N), d->out = random_floats(&seed, ROWS * N);
    d->x = random_floats(&seed, ROWS * N), d->w = random_floats(&seed, (size_t)c->taps * N);
    d->bias = random_floats(&seed, N);
    d->conv = (struct short_conv){c->N, c->taps, d->w, c->has_bias ? d->bias : NULL};
    d->op = (struct state_op){
        .width = c->N, .state_floats = short_conv_state(&d->conv), .run = run_rows, .data = d};
    state_op_begin(&d->op);
}

static void conv_data_free(struct conv_data *d) {
    free(d->in), free(d->out), free(d->x), free(d->w), free(d->bias);
    state_op_end(&d->op);
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
            ck_assert_double_eq_tol((double)d.op.right[p * c->N + n], right,
                                    1e-5 + 1e-5 * fabs(right));
        }
    conv_data_free(&d);
}
END_TEST

/* ---- the same bytes ------------------------------------------------------------------------- */

START_TEST(steps_of_any_size_give_the_same_bytes) {
    struct conv_data d;
    conv_data_init(&d, &cases[_i]);
    check_steps_of_any_size(&d.op);
    conv_data_free(&d);
}
END_TEST

START_TEST(a_copied_state_continues_like_the_first) {
    struct conv_data d;
    conv_data_init(&d, &cases[_i]);
    check_copied_states(&d.op);
    conv_data_free(&d);
}
END_TEST

START_TEST(a_state_copied_after_a_row_continues_from_there) {
    struct conv_data d;
    conv_data_init(&d, &cases[_i]);
    check_states_after_rows(&d.op);
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
