/* Sampling: the random numbers, greedy and drawn tokens, each setting, logprobs, and reproducible
 * bits. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sampling/math.h"
#include "engine/sampling/sampling.h"
#include "kernels/cpu/cpu.h"
#include "support/suite_main.h"

#define V 1000

static struct sampler *sampler;
static float logits[V];

static void setup(void) {
    sampler = sampler_new(V, NULL);
    for (int i = 0; i < V; i++) logits[i] = (float)sin(i * 12.9898) * 4;
}

static void teardown(void) {
    sampler_free(sampler);
}

static struct sampling neutral(void) {
    return (struct sampling){
        .temperature = 1, .top_p = 1, .repetition_penalty = 1, .n_logprobs = -1};
}

static struct sampled sample_at(const struct sampling *s, int position) {
    float row[V];
    struct sampled out;
    memcpy(row, logits, sizeof row);
    const struct sample sample = {.sampling = s, .position = position};
    sampler_sample(sampler, &sample, row, &out);
    return out;
}

static int descending(const void *a, const void *b) {
    float x = logits[*(const int *)a], y = logits[*(const int *)b];
    return x != y ? (x < y) - (x > y) : *(const int *)a - *(const int *)b;
}

static void ranking(int *order) {
    for (int i = 0; i < V; i++) order[i] = i;
    qsort(order, V, sizeof *order, descending);
}

START_TEST(philox_matches_the_published_vectors) {
    /* the known answers for philox4x32-10 in Random123's distribution */
    uint32_t zero[4] = {0, 0, 0, 0};
    philox4x32_10(zero, 0, 0);
    ck_assert_uint_eq(zero[0], 0x6627e8d5u);
    ck_assert_uint_eq(zero[1], 0xe169c58du);
    ck_assert_uint_eq(zero[2], 0xbc57ac4cu);
    ck_assert_uint_eq(zero[3], 0x9b00dbd8u);
    uint32_t ones[4] = {~0u, ~0u, ~0u, ~0u};
    philox4x32_10(ones, ~0u, ~0u);
    ck_assert_uint_eq(ones[0], 0x408f276du);
    ck_assert_uint_eq(ones[1], 0x41c83b0eu);
    uint32_t pi[4] = {0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u};
    philox4x32_10(pi, 0xa4093822u, 0x299f31d0u);
    ck_assert_uint_eq(pi[0], 0xd16cfe09u);
}
END_TEST

START_TEST(exp_and_log_are_close_to_the_true_ones) {
    for (float x = 0; x > -87; x -= 0.00731f) {
        double want = exp((double)x);
        ck_assert_double_le(fabs((double)plain_weight(x) - want), 3e-7 * want);
    }
    ck_assert_float_eq(plain_weight(0), 1.0f);
    ck_assert_float_eq(plain_weight(-INFINITY), 0.0f);
    for (double x = 1e-6; x < 1e9; x *= 1.0371) {
        ck_assert_double_le(fabs(log_positive(x) - log(x)), 1e-15 * (1 + fabs(log(x))));
    }
}
END_TEST

START_TEST(greedy_takes_the_best_and_the_lowest_of_equals) {
    struct sampling s = neutral();
    s.temperature = 0;
    logits[700] = logits[300] = 50;
    ck_assert_int_eq(sample_at(&s, 0).id, 300);
}
END_TEST

START_TEST(a_seed_decides_and_positions_differ) {
    struct sampling s = neutral();
    int same = 0;
    for (int position = 0; position < 200; position++) {
        ck_assert_int_eq(sample_at(&s, position).id, sample_at(&s, position).id);
        same += sample_at(&s, position).id == sample_at(&s, position + 1).id;
    }
    ck_assert_int_lt(same, 20);
    int first = sample_at(&s, 5).id, differs = 0;
    for (s.seed = 1; s.seed < 50; s.seed++) differs += sample_at(&s, 5).id != first;
    ck_assert_int_gt(differs, 40);
}
END_TEST

/* Draws follow the distribution: chi-square of the 40 most likely ids against their
 * probabilities. */
static void check_distribution(const struct sampling *s, int n_kept) {
    int order[V], count[V] = {0}, draws = 40000;
    ranking(order);
    double total = 0, chi = 0;
    for (int i = 0; i < n_kept; i++)
        total += exp((double)(logits[order[i]] - logits[order[0]]) / (double)s->temperature);
    for (int i = 0; i < draws; i++) count[sample_at(s, i).id]++;
    int seen = 0;
    for (int i = 0; i < n_kept; i++) seen += count[order[i]];
    ck_assert_int_eq(seen, draws);
    int bins = n_kept < 40 ? n_kept : 40;
    for (int i = 0; i < bins; i++) {
        double p =
            exp((double)(logits[order[i]] - logits[order[0]]) / (double)s->temperature) / total;
        double off = count[order[i]] - p * draws;
        chi += off * off / (p * draws);
    }
    ck_assert_double_lt(chi, bins + 5 * sqrt(2.0 * bins));
}

START_TEST(draws_follow_the_distribution) {
    struct sampling s = neutral();
    check_distribution(&s, V);
    s.temperature = 0.5f;
    check_distribution(&s, V);
}
END_TEST

START_TEST(top_k_keeps_the_k_best) {
    struct sampling s = neutral();
    s.top_k = 7;
    check_distribution(&s, 7);
    s.top_k = 1;
    int order[V];
    ranking(order);
    for (int i = 0; i < 50; i++) ck_assert_int_eq(sample_at(&s, i).id, order[0]);
}
END_TEST

START_TEST(top_p_keeps_the_shortest_run_that_reaches_it) {
    struct sampling s = neutral();
    s.top_p = 0.3f;
    int order[V], n = 0;
    ranking(order);
    double total = 0, sum = 0;
    for (int i = 0; i < V; i++) total += exp((double)(logits[i] - logits[order[0]]));
    while (sum < 0.3 * total) sum += exp((double)(logits[order[n++]] - logits[order[0]]));
    check_distribution(&s, n);
    s.top_p = 1e-6f;
    for (int i = 0; i < 50; i++) ck_assert_int_eq(sample_at(&s, i).id, order[0]);
}
END_TEST

START_TEST(top_p_applies_to_the_rest_of_top_k) {
    struct sampling s = neutral();
    s.top_k = 10;
    s.top_p = 0.5f;
    int order[V], n = 0;
    ranking(order);
    double total = 0, sum = 0;
    for (int i = 0; i < 10; i++) total += exp((double)(logits[order[i]] - logits[order[0]]));
    while (sum < 0.5 * total) sum += exp((double)(logits[order[n++]] - logits[order[0]]));
    check_distribution(&s, n);
}
END_TEST

START_TEST(min_p_keeps_those_near_the_best) {
    struct sampling s = neutral();
    s.min_p = 0.25f;
    int order[V], n = 0;
    ranking(order);
    while (n < V && exp((double)(logits[order[n]] - logits[order[0]])) >= 0.25) n++;
    check_distribution(&s, n);
}
END_TEST

START_TEST(bias_and_bans_move_the_choice) {
    struct sampling s = neutral();
    struct logit_bias bias = {123, 100};
    s.temperature = 0;
    s.bias = &bias;
    s.n_bias = 1;
    ck_assert_int_eq(sample_at(&s, 0).id, 123);
    int32_t banned = 123;
    s.banned = &banned;
    s.n_banned = 1;
    ck_assert_int_ne(sample_at(&s, 0).id, 123);
    s.temperature = 1;
    for (int i = 0; i < 500; i++) ck_assert_int_ne(sample_at(&s, i).id, 123);
}
END_TEST

START_TEST(only_allowed_ids_are_chosen) {
    struct sampling s = neutral();
    uint32_t allowed[(V + 31) / 32] = {0};
    s.allowed = allowed;
    allowed[999 / 32] |= 1u << 999 % 32; /* the last id, in a partly used word of bits */
    for (int i = 0; i < 20; i++) ck_assert_int_eq(sample_at(&s, i).id, 999);
    allowed[1] = 0x80000001u; /* ids 32 and 63 */
    int seen[V] = {0};
    for (int i = 0; i < 2000; i++) seen[sample_at(&s, i).id]++;
    ck_assert_int_eq(seen[32] + seen[63] + seen[999], 2000);
    ck_assert(seen[32] > 0 && seen[63] > 0 && seen[999] > 0);
    s.temperature = 0;
    int best = logits[32] > logits[63] ? 32 : 63;
    ck_assert_int_eq(sample_at(&s, 0).id, logits[best] > logits[999] ? best : 999);
    s.n_logprobs = 1; /* of the model's distribution, which includes all ids */
    ck_assert_float_lt(sample_at(&s, 0).logprob, -0.5f);
    memset(allowed, 0xff, sizeof allowed);
    ck_assert_int_eq(sample_at(&s, 0).rank, 1);
}
END_TEST

/* Bad words of two and three tokens: the last token is banned after the others. */
START_TEST(a_bad_word_is_not_completed) {
    const struct bad_word words[] = {
        {.last = 40, .n_before = 1, .before = {6}},
        {.last = 50, .n_before = 2, .before = {7, 6}},
        {.last = 60, .n_before = 1, .before = {7}},
    };
    int32_t history[] = {6, 7, 7, 6, 7}; /* prompt 6 7, output 7 6 7 */
    struct sampling s = neutral();
    struct sampled out;
    s.n_bad_words = 3;
    s.bad_words = words;
    s.temperature = 0;
    for (int n_output = 0; n_output <= 3; n_output++) {
        float row[V] = {0};
        bool six = n_output == 2, seven = n_output == 1 || n_output == 3;
        const struct sample sample = {
            .sampling = &s, .history = history, .n_prompt = 2, .n_output = n_output, .position = 5};
        sampler_sample(sampler, &sample, row, &out);
        bool both = n_output == 3; /* the prompt's 6 does not count as output */
        ck_assert(!isinf(row[40]) == !six && !isinf(row[60]) == !seven && !isinf(row[50]) == !both);
        for (int i = 0; i < V; i++) ck_assert(i == 40 || i == 50 || i == 60 || !isinf(row[i]));
    }
}
END_TEST

/* A mask belongs to one sample. The sample is chosen from its ids, even if others are likelier. An
 * empty mask leaves no token. Logprobs are those of the unchanged row. */
START_TEST(a_mask_leaves_the_allowed_ids) {
    struct sampling s = neutral();
    uint32_t mask[(V + 31) / 32] = {0};
    const struct logit_bias bias = {40, 100};
    struct sample sample = {.sampling = &s, .mask = mask};
    struct sampled out;
    float row[V];
    s.bias = &bias, s.n_bias = 1, s.n_logprobs = 2;
    for (int left = 2; left >= 0; left--) {
        memcpy(row, logits, sizeof row);
        mask[0] = left > 0 ? 1u << 7 : 0;
        mask[999 / 32] = left > 1 ? 1u << 999 % 32 : 0;
        sampler_sample(sampler, &sample, row, &out);
        if (left == 2) ck_assert(out.id == 7 || out.id == 999);
        if (left == 1) ck_assert_int_eq(out.id, 7);
        if (left == 0) ck_assert_int_eq(out.id, -1);
        ck_assert_int_eq(out.n_top, 2);
    }
    sample.mask = NULL;
    memcpy(row, logits, sizeof row);
    sampler_sample(sampler, &sample, row, &out);
    ck_assert_int_eq(out.id, 40);
}
END_TEST

START_TEST(penalties_follow_their_formulas) {
    int32_t history[] = {10, 20, 20, 30, 20}; /* prompt 10 20, output 20 30 20 */
    float row[V] = {0};
    row[10] = 2, row[20] = 3, row[30] = -1;
    struct sampling s = neutral();
    s.temperature = 0;
    s.presence_penalty = 0.5f;
    s.frequency_penalty = 0.25f;
    s.repetition_penalty = 2;
    struct sampled out;
    struct sample sample = {
        .sampling = &s, .history = history, .n_prompt = 2, .n_output = 3, .position = 5};
    sampler_sample(sampler, &sample, row, &out);
    ck_assert_float_eq(row[10], 1.0f); /* only in the prompt */
    ck_assert_float_eq(row[20], 1.5f - 2 * 0.25f - 0.5f);
    ck_assert_float_eq(row[30], -2.0f - 0.25f - 0.5f);
    ck_assert_int_eq(out.id, 10);
    float again[V] = {0};
    again[20] = 3;
    sample.n_prompt = sample.n_output = 0;
    sampler_sample(sampler, &sample, again, &out);
    ck_assert_float_eq(again[20], 3.0f); /* the counts of the previous call are cleared */
}
END_TEST

START_TEST(logprobs_are_of_the_models_own_distribution) {
    struct sampling s = neutral();
    s.temperature = 0.3f;
    s.top_k = 5;
    s.frequency_penalty = 1;
    s.n_logprobs = 20;
    int order[V];
    ranking(order);
    double sum = 0;
    for (int i = 0; i < V; i++) sum += exp((double)logits[i]);
    struct sampled out = sample_at(&s, 3);
    ck_assert_int_eq(out.n_top, 20);
    ck_assert_double_eq_tol((double)out.logprob, (double)logits[out.id] - log(sum), 1e-5);
    for (int i = 0; i < 20; i++) {
        ck_assert_int_eq(out.top[i].id, order[i]);
        ck_assert_double_eq_tol((double)out.top[i].logprob, (double)logits[order[i]] - log(sum),
                                1e-5);
        if (order[i] == out.id) ck_assert_int_eq(out.rank, i + 1);
    }
    struct sampled scored = {0};
    const struct sample score = {.scored = order[9], .n_top = 3};
    sampler_score(sampler, &score, logits, &scored);
    ck_assert_int_eq(scored.rank, 10);
    ck_assert_int_eq(scored.n_top, 3);
}
END_TEST

/* Ids replace the best ones, in the order of the request, whether a token is sampled or scored. */
START_TEST(logprobs_of_given_ids_are_listed) {
    const int32_t ids[] = {7, 3, 7, V - 1};
    struct sampling s = SAMPLING_GREEDY;
    double sum = 0;
    s.n_logprobs = 0;
    for (int i = 0; i < V; i++) sum += exp((double)(logits[i] = (float)(i % 11) * 0.25f));
    const struct sample scores[] = {{.scored = 3, .n_top = 5, .ids = ids, .n_ids = 4},
                                    {.sampling = &s, .ids = ids, .n_ids = 4, .position = 1}};
    for (int way = 0; way < 2; way++) {
        struct sampled out = {0};
        if (way == 0)
            sampler_score(sampler, &scores[way], logits, &out);
        else
            sampler_sample(sampler, &scores[way], logits, &out);
        ck_assert_int_eq(out.n_top, 4);
        for (int i = 0; i < 4; i++) {
            ck_assert_int_eq(out.top[i].id, ids[i]);
            ck_assert_double_eq_tol((double)out.top[i].logprob, (double)logits[ids[i]] - log(sum),
                                    1e-5);
        }
    }
}
END_TEST

/* Large logits leave few digits after the point in a float. The logarithm of the sum must not lose
 * them. */
START_TEST(logprobs_keep_their_digits_beside_large_logits) {
    for (int i = 0; i < V; i++) logits[i] = 0;
    logits[7] = 1000;
    logits[8] = 990;
    struct sampled scored = {0};
    const struct sample score = {.scored = 7, .n_top = 2};
    sampler_score(sampler, &score, logits, &scored);
    double best = -log1p(exp(-10));
    ck_assert_double_eq_tol((double)scored.logprob, best, -1e-6 * best);
    ck_assert_double_eq_tol((double)scored.top[0].logprob, best, -1e-6 * best);
    ck_assert_double_eq_tol((double)scored.top[1].logprob, best - 10, 1e-6);
}
END_TEST

/* ---- beams ---------------------------------------------------------------------------------- */

static float changed[V]; /* the row from which the best tokens are taken, computed directly */

static int changed_descending(const void *a, const void *b) {
    float x = changed[*(const int *)a], y = changed[*(const int *)b];
    return x != y ? (x < y) - (x > y) : *(const int *)a - *(const int *)b;
}

/* Log-softmax first, then the bias, the bans and the repetition penalty. */
static void change_plainly(const struct sampling *s, const int32_t *history, int n) {
    double sum = 0, max = -INFINITY;
    for (int i = 0; i < V; i++) max = fmax(max, logits[i]);
    for (int i = 0; i < V; i++) sum += exp((double)logits[i] - max);
    for (int i = 0; i < V; i++) changed[i] = logits[i];
    for (int i = 0; i < s->n_bias; i++) changed[s->bias[i].id] += s->bias[i].bias;
    for (int i = 0; i < s->n_banned; i++) changed[s->banned[i]] = -INFINITY;
    for (int i = 0; i < V; i++) changed[i] = (float)((double)changed[i] - max - log(sum));
    for (int i = 0; i < n; i++) changed[history[i]] *= s->repetition_penalty;
}

START_TEST(the_best_of_a_beam_are_those_of_its_changed_log_softmax) {
    static const struct logit_bias bias[] = {{3, 5}, {4, -100}};
    static const int32_t banned[] = {44, 31}, history[] = {3, 700, 12};
    static const int wanted[] = {1, 20, 21, 64};
    struct sampling s = neutral();
    struct sampled out[MAX_BEST_PARTS];
    float row[V];
    int order[V], n = wanted[_i % 4];
    uint32_t mask[(V + 31) / 32];
    if (_i >= 4) s.bias = bias, s.n_bias = 2, s.banned = banned, s.n_banned = 2;
    if (_i >= 8) s.repetition_penalty = 1.5f;
    logits[5] = logits[9] = logits[800] = 4.5f; /* ties, some at the last place */
    memcpy(row, logits, sizeof row);
    change_plainly(&s, history, 3);
    memset(mask, 0x55, sizeof mask); /* the even ids */
    for (int i = 1; i < V && _i >= 8; i += 2) changed[i] = -INFINITY;
    for (int i = 0; i < V; i++) order[i] = i;
    qsort(order, V, sizeof *order, changed_descending);
    const struct sample sample = {.sampling = &s,
                                  .history = history,
                                  .n_prompt = 1,
                                  .n_output = 2,
                                  .n_best = n,
                                  .mask = _i >= 8 ? mask : NULL};
    sampler_best(sampler, &sample, row, out);
    for (int i = 0; i < n; i++) {
        const struct token_logprob *best = &out[i / MAX_TOP_LOGPROBS].top[i % MAX_TOP_LOGPROBS];
        ck_assert_int_eq(best->id, order[i]);
        ck_assert_float_eq_tol(best->logprob, changed[order[i]], 1e-6f);
    }
    for (int part = 0, left = n; part < sample_parts(n); part++, left -= MAX_TOP_LOGPROBS)
        ck_assert_int_eq(out[part].n_top, min_int(left, MAX_TOP_LOGPROBS));
}
END_TEST

START_TEST(a_temperature_too_small_to_divide_by_is_greedy) {
    struct sampling s = neutral();
    logits[345] = 9;
    for (int path = 0; path < 2; path++) {
        for (float t = 1e-2f; t > 0; t *= 0.01f) {
            s.temperature = t;
            ck_assert_int_eq(sample_at(&s, 3).id, 345);
        }
        s.top_p = 0.9f;
    }
}
END_TEST

START_TEST(nan_is_never_drawn) {
    struct sampling s = neutral();
    for (int i = 0; i < V; i += 2) logits[i] = NAN;
    for (int i = 0; i < 200; i++) ck_assert_int_eq(sample_at(&s, i).id % 2, 1);
    s.top_p = 0.9f;
    for (int i = 0; i < 200; i++) ck_assert_int_eq(sample_at(&s, i).id % 2, 1);
}
END_TEST

START_TEST(strange_rows_do_no_harm) {
    struct sampling s = neutral();
    for (int i = 0; i < V; i++) logits[i] = NAN;
    int id = sample_at(&s, 0).id;
    ck_assert_int_ge(id, 0);
    ck_assert_int_lt(id, V);
    for (int i = 0; i < V; i++) logits[i] = -INFINITY;
    s.top_p = 0.5f;
    id = sample_at(&s, 0).id;
    ck_assert_int_ge(id, 0);
    logits[77] = 1;
    for (int i = 0; i < 20; i++) ck_assert_int_eq(sample_at(&s, i).id, 77);
    s.top_p = 1;
    for (int i = 0; i < 20; i++) ck_assert_int_eq(sample_at(&s, i).id, 77);
    for (int i = 0; i < V; i++) logits[i] = 0;
    s.top_p = 0.9f;
    check_distribution(&s, 900);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine_sampling");
    TCase *t = tcase_create("sampling");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, philox_matches_the_published_vectors);
    tcase_add_test(t, exp_and_log_are_close_to_the_true_ones);
    tcase_add_test(t, greedy_takes_the_best_and_the_lowest_of_equals);
    tcase_add_test(t, a_seed_decides_and_positions_differ);
    tcase_add_test(t, draws_follow_the_distribution);
    tcase_add_test(t, top_k_keeps_the_k_best);
    tcase_add_test(t, top_p_keeps_the_shortest_run_that_reaches_it);
    tcase_add_test(t, top_p_applies_to_the_rest_of_top_k);
    tcase_add_test(t, min_p_keeps_those_near_the_best);
    tcase_add_test(t, bias_and_bans_move_the_choice);
    tcase_add_test(t, only_allowed_ids_are_chosen);
    tcase_add_test(t, a_mask_leaves_the_allowed_ids);
    tcase_add_test(t, a_bad_word_is_not_completed);
    tcase_add_test(t, penalties_follow_their_formulas);
    tcase_add_test(t, logprobs_are_of_the_models_own_distribution);
    tcase_add_test(t, logprobs_of_given_ids_are_listed);
    tcase_add_test(t, logprobs_keep_their_digits_beside_large_logits);
    tcase_add_loop_test(t, the_best_of_a_beam_are_those_of_its_changed_log_softmax, 0, 12);
    tcase_add_test(t, a_temperature_too_small_to_divide_by_is_greedy);
    tcase_add_test(t, nan_is_never_drawn);
    tcase_add_test(t, strange_rows_do_no_harm);
    suite_add_tcase(suite, t);
    return suite_main(suite);
}
