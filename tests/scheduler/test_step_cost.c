/* The time of prompt rows, learnt from the steps of a simulated machine: a constant, a time per
 * decode, per row and per pair, and noise. And the ITL target of the plan, in a closed loop: the
 * plan chooses rows, the machine takes its time, and the time is learnt. */
#include <check.h>
#include <limits.h>
#include <math.h>

#include "scheduler/plan/step_cost.h"
#include "support/fake_engine.h"
#include "support/suite_main.h"

enum { TILE = 16, MOST_ROWS = 512, LONGEST = 6000 };

struct machine {
    double constant, per_decode, per_row, per_pair; /* ns */
    double noise;                                   /* standard deviation of the logarithm */
    uint64_t random;
};

static const struct machine cpu = {2e6, 4e5, 2.5e5, 60, 0.05, 7};

static double clean_ns(const struct machine *m, const struct step_shape *shape) {
    return m->constant + shape->decode_rows * m->per_decode + shape->prefill_rows * m->per_row +
           shape->pairs * m->per_pair;
}

static double noisy_ns(struct machine *m, const struct step_shape *shape) {
    double sum = -6; /* the sum of twelve uniform numbers is nearly normal */
    for (int i = 0; i < 12; i++) sum += fake_between(&m->random, 0, 1000000) * 1e-6;
    return clean_ns(m, shape) * exp(m->noise * sum);
}

static struct step_shape shape_of(int decodes, int from, int rows) {
    return (struct step_shape){decodes, rows, rows * (from + rows / 2.0)};
}

static void note_decodes(struct step_cost *cost, struct machine *m) {
    for (int decodes = 1; decodes <= 16; decodes++) {
        struct step_shape shape = shape_of(decodes, 0, 0);
        step_cost_note(cost, decodes, (uint64_t)noisy_ns(m, &shape));
    }
}

/* Returns the rows of whole tiles for which an exact model without noise has time. */
static int ideal_rows(const struct machine *m, int decodes, int from, double target) {
    int rows = TILE;
    for (; rows + TILE <= MOST_ROWS; rows += TILE) {
        struct step_shape shape = shape_of(decodes, from, rows + TILE);
        if (clean_ns(m, &shape) > target) break;
    }
    return rows;
}

struct outcome {
    int steps, late;
    double rows, ideal;
};

/* Runs long prompts with a changing number of decodes. The first steps, which teach the model, are
 * not counted. */
static struct outcome keep_target(struct step_cost *cost, struct machine *m, double target,
                                  int steps, int uncounted) {
    struct outcome o = {0};
    int from = 0, decodes = 8;
    for (int i = 0; i < steps; i++) {
        struct step_shape none = shape_of(decodes, 0, 0);
        int rows = step_cost_rows_in(cost, &none, from, (float)target) / TILE * TILE;
        rows = rows < TILE ? TILE : rows > MOST_ROWS ? MOST_ROWS : rows;
        struct step_shape shape = shape_of(decodes, from, rows);
        double ns = noisy_ns(m, &shape);
        step_cost_note_prefill(cost, &shape, (uint64_t)ns);
        if (i >= uncounted) {
            o.steps++;
            o.late += ns > target;
            o.rows += rows;
            o.ideal += ideal_rows(m, decodes, from, target);
        }
        from = from + rows > LONGEST ? 0 : from + rows;
        if (i % 4 == 0) note_decodes(cost, m);
        if (i % 8 == 0) decodes = fake_between(&m->random, 1, 16);
    }
    return o;
}

START_TEST(nothing_is_known_before_a_prompt) {
    struct step_cost cost;
    struct step_shape none = shape_of(4, 0, 0);
    step_cost_init(&cost, true);
    ck_assert_int_eq(step_cost_rows_in(&cost, &none, 0, 1), INT_MAX);
    struct step_shape shape = shape_of(0, 0, 100);
    step_cost_note_prefill(&cost, &shape, 1000000);
    ck_assert_int_eq(step_cost_rows_in(&cost, &none, 0, 0), 0);
    ck_assert_int_lt(step_cost_rows_in(&cost, &none, 0, 1e6f), 101);
    ck_assert_int_gt(step_cost_rows_in(&cost, &none, 0, 1e6f), 50);
}
END_TEST

START_TEST(rows_and_pairs_are_told_apart) {
    struct step_cost cost;
    struct machine quiet = cpu;
    quiet.noise = 0;
    step_cost_init(&cost, true);
    note_decodes(&cost, &quiet);
    for (int i = 0; i < 200; i++) {
        struct step_shape shape = shape_of(1 + i % 16, i * 397 % LONGEST, TILE * (1 + i % 9));
        step_cost_note_prefill(&cost, &shape, (uint64_t)clean_ns(&quiet, &shape));
    }
    ck_assert_double_eq_tol(cost.prefill.per_row, quiet.per_row, 0.02 * quiet.per_row);
    ck_assert_double_eq_tol(cost.prefill.per_pair, quiet.per_pair, 0.02 * quiet.per_pair);
    struct step_shape joined = shape_of(8, 3000, 32);
    int rows = step_cost_rows_in(&cost, &joined, 1000, 30e6f);
    double left = 30e6 / cost.prefill.quantile_99 - clean_ns(&quiet, &joined);
    ck_assert_double_eq_tol(rows, left / (quiet.per_row + 1000 * quiet.per_pair), 1.5);
}
END_TEST

/* If all contexts are equal, the pairs explain nothing and get no share of the time. */
START_TEST(equal_contexts_leave_all_to_the_rows) {
    struct step_cost cost;
    step_cost_init(&cost, true);
    for (int i = 0; i < 50; i++) {
        struct step_shape shape = shape_of(0, 0, 64);
        step_cost_note_prefill(&cost, &shape, 64000);
    }
    ck_assert_double_eq_tol(cost.prefill.per_row + 32 * cost.prefill.per_pair, 1000, 20);
}
END_TEST

START_TEST(ninety_nine_of_a_hundred_steps_keep_the_target) {
    static const double targets[] = {20e6, 40e6, 80e6}, noises[] = {0.02, 0.05, 0.1};
    for (int i = 0; i < 9; i++) {
        struct step_cost cost;
        struct machine m = cpu;
        m.noise = noises[i / 3];
        step_cost_init(&cost, true);
        note_decodes(&cost, &m);
        struct outcome o = keep_target(&cost, &m, targets[i % 3], 6000, 500);
        ck_assert_msg(o.late * 100 <= o.steps * 1.5, "%.0f ms, noise %.2f: %d of %d late",
                      targets[i % 3] * 1e-6, m.noise, o.late, o.steps);
        ck_assert_msg(o.rows > o.ideal * (0.85 - 2.3 * m.noise), "%.0f ms, noise %.2f: %.2f",
                      targets[i % 3] * 1e-6, m.noise, o.rows / o.ideal);
    }
}
END_TEST

/* A model that is wrong by a factor of ten, either way, is corrected by its steps. A prompt
 * advances in the meantime. */
START_TEST(a_wrong_model_mends) {
    for (int wrong = 0; wrong < 2; wrong++) {
        struct step_cost cost;
        struct machine other = cpu, m = cpu;
        double times = wrong ? 0.1 : 10;
        other.constant *= times, other.per_decode *= times;
        other.per_row *= times, other.per_pair *= times;
        step_cost_init(&cost, true);
        note_decodes(&cost, &other);
        keep_target(&cost, &other, 40e6 * times, 500, 0);
        struct outcome first = keep_target(&cost, &m, 40e6, 20, 0);
        ck_assert_double_ge(first.rows, 20 * TILE);
        struct outcome o = keep_target(&cost, &m, 40e6, 2500, 500);
        ck_assert_int_le(o.late * 100, o.steps * 2);
        ck_assert_double_gt(o.rows, 0.7 * o.ideal);
    }
}
END_TEST

/* Interruptions of a step are not learnt as its cost. */
START_TEST(interruptions_count_little) {
    struct step_cost cost;
    struct machine m = cpu;
    step_cost_init(&cost, true);
    note_decodes(&cost, &m);
    keep_target(&cost, &m, 40e6, 500, 0);
    struct step_shape none = shape_of(8, 0, 0), shape = shape_of(8, 0, 64);
    int before = step_cost_rows_in(&cost, &none, 0, 40e6f);
    step_cost_note_prefill(&cost, &shape, 5000000000);
    ck_assert_int_gt(step_cost_rows_in(&cost, &none, 0, 40e6f), before * 8 / 10);
    for (int i = 0; i < 1000; i++) step_cost_note_prefill(&cost, &shape, 5000000000);
    ck_assert_double_le(cost.prefill.quantile_99, 2);
}
END_TEST

int main(void) {
    TCase *core = tcase_create("core");
    tcase_add_test(core, nothing_is_known_before_a_prompt);
    tcase_add_test(core, rows_and_pairs_are_told_apart);
    tcase_add_test(core, equal_contexts_leave_all_to_the_rows);
    tcase_add_test(core, ninety_nine_of_a_hundred_steps_keep_the_target);
    tcase_add_test(core, a_wrong_model_mends);
    tcase_add_test(core, interruptions_count_little);
    Suite *suite = suite_create("scheduler_step_cost");
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
