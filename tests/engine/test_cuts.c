/* The rules that need the whole row keep the ids that transformers' warpers keep
 * (tests/vectors/make_warpers.py). The standard deviation agrees with double precision. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/sampling/cuts.h"
#include "support/suite_main.h"

enum { V = 500 };

static float logits[V], weight[V], distance[V];

/* The generator of make_warpers.py. */
static void fill_row(uint64_t seed, float spread) {
    uint64_t state = seed;
    for (int i = 0; i < V; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        logits[i] = (float)(((double)(state >> 40) * 0x1p-23 - 1) * (double)spread);
    }
}

/* Returns the number of ids that the rules keep and writes their sum to *sum. */
static int count_kept(const struct sampling *s, float mu, int *sum) {
    const struct logit_ops *ops = backend_cpu_logit_ops(NULL);
    float max = -INFINITY, inverse = 1.0f / s->temperature;
    for (int i = 0; i < V; i++) max = fmaxf(max, logits[i]);
    struct cuts cuts = cuts_of(s, ops, logits, V, max, mu, weight, distance);
    ops->weights(weight, logits, V, max, inverse);
    int n = *sum = 0;
    for (int i = 0; i < V; i++) {
        if (!cuts_keep(&cuts, logits[i], (logits[i] - max) * inverse, weight[i])) continue;
        n++;
        *sum += i;
    }
    return n;
}

static float *field_of(struct sampling *s, const char *rule) {
    if (strcmp(rule, "typical_p") == 0) return &s->typical_p;
    if (strcmp(rule, "epsilon_cutoff") == 0) return &s->epsilon_cutoff;
    ck_assert_str_eq(rule, "eta_cutoff");
    return &s->eta_cutoff;
}

START_TEST(warpers_keep_the_tokens_of_transformers) {
    FILE *file = fopen("tests/vectors/warpers.txt", "r");
    ck_assert_ptr_nonnull(file);
    char rule[32];
    float value, temperature, spread;
    int seed, n, sum, n_cases = 0;
    while (fscanf(file, "%31s %f %f %d %f %d %d", rule, &value, &temperature, &seed, &spread, &n,
                  &sum) == 7) {
        struct sampling s = {.temperature = temperature};
        int own_sum;
        *field_of(&s, rule) = value;
        fill_row((uint64_t)seed, spread);
        int own = count_kept(&s, 0, &own_sum);
        ck_assert_msg(own == n && own_sum == sum, "%s %g, row %d: %d kept, not %d", rule,
                      (double)value, seed, own, n);
        n_cases++;
    }
    fclose(file);
    ck_assert_int_eq(n_cases, 65);
}
END_TEST

START_TEST(sigma_counts_standard_deviations_of_finite_logits) {
    fill_row(7, 10);
    for (int i = 0; i < V; i += 9) logits[i] = -INFINITY;
    double sum = 0, squares = 0, max = -INFINITY;
    int n = 0, unused;
    for (int i = 0; i < V; i++) {
        if (logits[i] == -INFINITY) continue;
        n++;
        sum += (double)logits[i];
        squares += (double)logits[i] * (double)logits[i];
        max = fmax(max, (double)logits[i]);
    }
    double sigma = sqrt(squares / n - sum / n * (sum / n));
    for (float sigmas = 0.25f; sigmas < 4; sigmas += 0.25f) {
        struct sampling s = {.temperature = 0.7f, .top_n_sigma = sigmas};
        int right = 0;
        for (int i = 0; i < V; i++) right += (double)logits[i] >= max - (double)sigmas * sigma;
        ck_assert_int_eq(count_kept(&s, 0, &unused), right);
    }
}
END_TEST

/* 2^-mu is the smallest probability, but the likeliest id is always kept. */
START_TEST(mirostat_keeps_unsurprising_tokens) {
    const struct sampling s = {.temperature = 1, .mirostat_tau = 1, .mirostat_eta = 0.5f};
    int sum;
    double probability[V], total = 0;
    fill_row(9, 8);
    for (int i = 0; i < V; i++) total += exp((double)logits[i]);
    for (int i = 0; i < V; i++) probability[i] = exp((double)logits[i]) / total;
    for (float mu = -1; mu < 30; mu += 0.37f) {
        int right = 0;
        for (int i = 0; i < V; i++) right += -log2(probability[i]) <= (double)mu;
        ck_assert_int_eq(count_kept(&s, mu, &sum), right > 0 ? right : 1);
    }
    ck_assert_int_eq(count_kept(&s, 1000, &sum), V);
    ck_assert(mirostat_next(&s, 3, 1, 8) == 2); /* 3 bits, 2 above the target */
    ck_assert(mirostat_next(&s, 3, 5, 5) == 3.5f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine_cuts");
    TCase *core = tcase_create("core");
    tcase_add_test(core, warpers_keep_the_tokens_of_transformers);
    tcase_add_test(core, sigma_counts_standard_deviations_of_finite_logits);
    tcase_add_test(core, mirostat_keeps_unsurprising_tokens);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
