/* Compares the sampler, which skips most ids of a row, with a plain sampler that reads all of them.
 * Both must choose the same token and give it the same score, bit by bit. This holds for all
 * settings, kinds of rows and CPU paths. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sampling/sampling.h"
#include "support/forbidden.h"
#include "support/kernel_data.h"
#include "support/sampling_reference.h"
#include "support/suite_main.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { ROUNDS = 100 };
#else
enum { ROUNDS = 2500 };
#endif

enum { HISTORY = 40, MOST_BIAS = 5, MOST_BAD = 12, MOST_V = 20000 };

static const int sizes[] = {1, 2, 15, 17, 255, 256, 257, 1000, 4099, 20000};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

/* ---- rows ----------------------------------------------------------------------------------- */

enum kind { SMOOTH, TIED, EQUAL, STEEP, MASKED, CLOSE, LARGE, HEADED, HOLES, N_KINDS };

static float logit_of(uint64_t *state, enum kind kind) {
    float x = random_float(state);
    switch (kind) {
    case TIED: /* few values, each many times */
        return roundf(x * 2) / 2;
    case EQUAL:
        return 1.25f;
    case STEEP: /* most weights are 0 */
        return x * 300;
    case MASKED:
        return random_below(state, 20) ? -INFINITY : x;
    case CLOSE: /* differences too small for the exponential */
        return 3 + x * 1e-6f;
    case LARGE:
        return x * 1e30f;
    case HEADED:
        return random_below(state, 100) ? x - 8 : 5 * x;
    case HOLES:
        return random_below(state, 3) ? x : NAN;
    default:
        return 3 * x;
    }
}

static void fill_row(uint64_t *state, float *row, int V, enum kind kind) {
    for (int i = 0; i < V; i++) row[i] = logit_of(state, kind);
    if (random_below(state, 4)) return;
    int run = random_below(state, V) + 1; /* the best ids are adjacent, or many ids are equal */
    float value = random_below(state, 2) ? row[0] : 6;
    for (int i = V - run; i < V && i < V - run + 60; i++) row[i] = value;
}

/* ---- settings ------------------------------------------------------------------------------- */

struct setting {
    struct sampling sampling;
    struct logit_bias bias[MOST_BIAS];
    int32_t banned[3], history[HISTORY];
    uint32_t allowed[(MOST_V + 31) / 32];
    uint32_t mask[(MOST_V + 31) / 32];
    bool masked;
    float mu;
    struct bad_word bad_words[MOST_BAD];
    uint32_t breakers[(MOST_V + 31) / 32];
    int n_prompt, n_output, position, choice;
};

static float one_of(uint64_t *state, const float *values, int n) {
    return values[random_below(state, n)];
}
#define ONE_OF(state, ...)                                                                         \
    one_of(state, (const float[]){__VA_ARGS__}, (int)(sizeof(float[]){__VA_ARGS__} / sizeof(float)))

static void draw_changes(uint64_t *state, struct setting *t, int V, bool any) {
    struct sampling *s = &t->sampling;
    t->n_prompt = random_below(state, HISTORY / 2);
    t->n_output = random_below(state, HISTORY / 2);
    for (int i = 0; i < HISTORY; i++) t->history[i] = random_below(state, V);
    for (int i = 0; i < MOST_BIAS; i++)
        t->bias[i] = (struct logit_bias){random_below(state, V), ONE_OF(state, -100, -1, 2, 100)};
    for (int i = 0; i < 3; i++) t->banned[i] = random_below(state, V);
    s->bias = t->bias;
    s->banned = t->banned;
    s->repetition_penalty = 1;
    if (!any) return;
    s->n_bias = random_below(state, MOST_BIAS + 1);
    s->n_banned = random_below(state, 4);
    if (random_below(state, 3) == 0) {
        draw_allowed(state, t->allowed, V, (int)ONE_OF(state, 0, 3, 50, 99));
        s->allowed = t->allowed;
    }
    t->masked = random_below(state, 3) == 0;
    if (t->masked) draw_allowed(state, t->mask, V, (int)ONE_OF(state, 0, 1, 10, 99));
    if (t->masked && random_below(state, 6) == 0) memset(t->mask, 0, sizeof t->mask);
    if (random_below(state, 3) == 0) {
        s->n_bad_words = random_below(state, MOST_BAD + 1);
        draw_bad_words(state, t->bad_words, s->n_bad_words, V, t->history + t->n_prompt,
                       t->n_output);
        s->bad_words = t->bad_words;
    }
    s->presence_penalty = ONE_OF(state, 0, 0, 0.5f, -1);
    s->frequency_penalty = ONE_OF(state, 0, 0, 0.3f, -0.2f);
    s->repetition_penalty = ONE_OF(state, 1, 1, 1.2f, 0.8f);
}

/* Settings about repeats. The history has few different ids, so that ids repeat in it. */
static void draw_repeats(uint64_t *state, struct setting *t, int V) {
    struct sampling *s = &t->sampling;
    int kinds = 1 + random_below(state, 5), n_history = t->n_prompt + t->n_output;
    if (random_below(state, 2)) return;
    for (int i = 0; i < HISTORY; i++) t->history[i] = random_below(state, V < kinds ? V : kinds);
    if (random_below(state, 3) == 0) s->penalty_last_n = 1 + random_below(state, n_history + 3);
    if (random_below(state, 3) == 0) s->no_repeat_ngram = 1 + random_below(state, 5);
    if (random_below(state, 2)) return;
    s->dry_multiplier = ONE_OF(state, 0.1f, 0.8f, 1e6f);
    s->dry_base = ONE_OF(state, 1, 1.75f, 1e6f);
    s->dry_allowed_length = 1 + random_below(state, 4);
    s->dry_last_n = random_below(state, 2) ? INT32_MAX : 1 + random_below(state, n_history + 3);
    if (random_below(state, 3)) return;
    draw_allowed(state, t->breakers, V, (int)ONE_OF(state, 0, 20, 80));
    s->dry_breakers = t->breakers;
}

/* Usually sets one of the rules, sometimes several. */
static void draw_cuts(uint64_t *state, struct sampling *s) {
    int only = random_below(state, 12);
    bool all = only == 5;
    if (all || only == 0) s->top_n_sigma = ONE_OF(state, 0, 0.1f, 1, 2.5f, 30, 1e30f);
    if (all || only == 1) s->epsilon_cutoff = ONE_OF(state, 0, 1e-6f, 3e-4f, 0.05f, 0.5f, 0.99f);
    if (all || only == 2) s->eta_cutoff = ONE_OF(state, 0, 1e-6f, 3e-4f, 0.05f, 0.5f, 0.99f);
    if (all || only == 6) s->mirostat_tau = ONE_OF(state, 1e-6f, 1, 5, 100);
    s->mirostat_eta = ONE_OF(state, 0, 0.1f, 1);
    if (all || only == 3) s->typical_p = ONE_OF(state, 1e-6f, 0.1f, 0.5f, 0.9f, 0.9999999f, 1);
    if (!all && only != 4) return;
    s->xtc_probability = ONE_OF(state, 0.5f, 1, 1);
    s->xtc_threshold = ONE_OF(state, 0, 1e-4f, 0.02f, 0.1f, 0.4f, 1);
}

static void draw_setting(uint64_t *state, struct setting *t, int V) {
    struct sampling *s = &t->sampling;
    *t = (struct setting){.position = random_below(state, 1000), .choice = random_below(state, 3)};
    s->temperature =
        ONE_OF(state, 0, 0.01f, 0.3f, 0.8f, 1, 1, 1.5f, 2, 50, 1e9f, 1e-30f, 1e-42f, 1e35f);
    s->top_p = ONE_OF(state, 1, 1, 0, 1e-6f, 0.1f, 0.5f, 0.9f, 0.95f, 0.999f, 0.9999999f);
    s->min_p = ONE_OF(state, 0, 0, 0, 0, 1e-40f, 1e-10f, 0.02f, 0.3f, 0.999999f, 1);
    s->top_k = (int)ONE_OF(state, 0, 0, 0, 1, 2, 7, 40, 100, 129, 1000, 5000, 1e6f, 0x1p30f);
    if (random_below(state, 10) == 0) s->top_k = V;
    s->seed = random_u32(state);
    t->mu = ONE_OF(state, -3, 0, 0.3f, 2, 5, 9, 30, 500);
    s->n_logprobs = random_below(state, 2) ? -1 : random_below(state, MAX_TOP_LOGPROBS + 1);
    draw_changes(state, t, V, random_below(state, 2));
    draw_repeats(state, t, V);
    draw_cuts(state, s);
}

/* ---- comparing ------------------------------------------------------------------------------ */

static bool same_bits(float a, float b) {
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

/* Ids outside the mask may keep their old logits. */
static bool same_row(const float *a, const float *b, int n, const uint32_t *mask) {
    for (int i = 0; i < n; i++) {
        bool matters = !mask || mask[i / 32] >> i % 32 & 1;
        if (matters && !same_bits(a[i], b[i])) return false;
    }
    return true;
}

static void check_same(const struct sampled *a, const struct sampled *b, bool tops,
                       const char *what) {
    ck_assert_msg(a->id == b->id, "%s: id %d, not %d", what, a->id, b->id);
    ck_assert_msg(a->rank == b->rank && same_bits(a->logprob, b->logprob), "%s: rank %d, not %d",
                  what, a->rank, b->rank);
    ck_assert_msg(same_bits(a->mirostat_mu, b->mirostat_mu), "%s: mu %g, not %g", what,
                  (double)a->mirostat_mu, (double)b->mirostat_mu);
    if (!tops) return;
    ck_assert_msg(a->n_top == b->n_top, "%s: %d best, not %d", what, a->n_top, b->n_top);
    for (int i = 0; i < a->n_top; i++)
        ck_assert_msg(
            a->top[i].id == b->top[i].id && same_bits(a->top[i].logprob, b->top[i].logprob),
            "%s: the best's number %d is %d, not %d", what, i, a->top[i].id, b->top[i].id);
}

struct bench {
    int V;
    float *row, *right_row, *own_row;
    struct reference *reference;
    struct sampler *sampler[8];
};

static void check_same_sample(struct bench *b, const struct setting *t, const char *const *paths,
                              bool tops, int round) {
    size_t bytes = (size_t)b->V * sizeof *b->row;
    struct sampled right, own;
    memcpy(b->right_row, b->row, bytes);
    const struct sample sample = {.sampling = &t->sampling,
                                  .position = t->position,
                                  .choice = t->choice,
                                  .mirostat_mu = t->mu,
                                  .history = t->history,
                                  .n_prompt = t->n_prompt,
                                  .n_output = t->n_output,
                                  .mask = t->masked ? t->mask : NULL};
    reference_sample(b->reference, &sample, b->right_row, &right);
    for (int i = 0; paths[i]; i++) {
        char what[300];
        const struct sampling *s = &t->sampling;
        snprintf(what, sizeof what,
                 "%s, V %d, round %d: t %g top_p %g min_p %g top_k %d sigma %g epsilon %g eta %g "
                 "typical %g xtc %g",
                 paths[i], b->V, round, (double)s->temperature, (double)s->top_p, (double)s->min_p,
                 s->top_k, (double)s->top_n_sigma, (double)s->epsilon_cutoff, (double)s->eta_cutoff,
                 (double)s->typical_p, (double)s->xtc_threshold);
        memcpy(b->own_row, b->row, bytes);
        sampler_sample(b->sampler[i], &sample, b->own_row, &own);
        check_same(&own, &right, tops, what);
        ck_assert_msg(same_row(b->own_row, b->right_row, b->V, sample.mask),
                      "%s: changed otherwise", what);
    }
}

static void check_same_score(struct bench *b, int id, int n_top, const char *const *paths,
                             bool tops) {
    struct sampled right = {0}, own = {0};
    reference_score(b->reference, b->row, id, n_top, &right);
    for (int i = 0; paths[i]; i++) {
        const struct sample score = {.scored = id, .n_top = n_top};
        sampler_score(b->sampler[i], &score, b->row, &own);
        check_same(&own, &right, tops, paths[i]);
    }
}

START_TEST(all_settings_choose_the_same) {
    const char *const *paths = backend_cpu_paths();
    int V = sizes[_i], rounds = V < 1000 ? ROUNDS : ROUNDS / 5;
    uint64_t state = 4321 + (uint64_t)V;
    struct bench b = {.V = V, .reference = reference_new(V)};
    b.row = mem_calloc((size_t)V, sizeof *b.row);
    b.right_row = mem_calloc((size_t)V, sizeof *b.row);
    b.own_row = mem_calloc((size_t)V, sizeof *b.row);
    for (int i = 0; paths[i]; i++) b.sampler[i] = sampler_new(V, paths[i]);
    for (int round = 0; round < rounds; round++) {
        enum kind kind = (enum kind)random_below(&state, N_KINDS);
        struct setting setting;
        fill_row(&state, b.row, V, kind);
        for (int i = 0; i < 3; i++) {
            draw_setting(&state, &setting, V);
            check_same_sample(&b, &setting, paths, kind != HOLES, round);
        }
        check_same_score(&b, random_below(&state, V), random_below(&state, 21), paths,
                         kind != HOLES);
    }
    for (int i = 0; paths[i]; i++) sampler_free(b.sampler[i]);
    reference_free(b.reference);
    free(b.row), free(b.right_row), free(b.own_row);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine_sampling_same");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 300);
    tcase_add_loop_test(core, all_settings_choose_the_same, 0, N_SIZES);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
