/* Changes to a row's logits that follow from its history: the n-grams that transformers forbids
 * (tests/vectors/make_ngrams.py), and DRY in cases that can be counted by hand. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/sampling/changes.h"
#include "support/suite_main.h"

enum { V = 40, MOST = 300 };

static int32_t place[V], history[MOST];
static struct logit_change change[V];

static int list(const struct sampling *s, int n_prompt, int n_output) {
    const struct sample sample = {
        .sampling = s, .history = history, .n_prompt = n_prompt, .n_output = n_output};
    int n = list_changes(&sample, place, change);
    for (int id = 0; id < V; id++) ck_assert_int_eq(place[id], 0);
    return n;
}

/* The generator of make_ngrams.py. */
static void draw_history(uint64_t state, int length, int kinds) {
    for (int i = 0; i < length; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        history[i] = (int32_t)((state >> 33) % (uint64_t)kinds);
    }
}

START_TEST(ngrams_that_transformers_forbids) {
    FILE *file = fopen("tests/vectors/ngrams.txt", "r");
    ck_assert_ptr_nonnull(file);
    int n, seed, length, kinds, wanted, wanted_sum, n_cases = 0;
    while (fscanf(file, "%d %d %d %d %d %d", &n, &seed, &length, &kinds, &wanted, &wanted_sum) ==
           6) {
        struct sampling s = {.no_repeat_ngram = n, .repetition_penalty = 1};
        int sum = 0;
        draw_history((uint64_t)seed, length, kinds);
        int listed = list(&s, length / 2, length - length / 2);
        for (int i = 0; i < listed; i++) {
            ck_assert(change[i].minus == INFINITY && change[i].count == 0);
            sum += change[i].id;
        }
        ck_assert_msg(listed == wanted && sum == wanted_sum, "n %d, history %d: %d ids, not %d", n,
                      seed, listed, wanted);
        n_cases++;
    }
    fclose(file);
    ck_assert_int_eq(n_cases, 49);
}
END_TEST

/* Returns the only penalty of the list. Fails unless it is for `id`. */
static float only_penalty(const struct sampling *s, int n, int32_t id) {
    ck_assert_int_eq(list(s, 1, n - 1), 1);
    ck_assert_int_eq(change[0].id, id);
    return change[0].minus;
}

START_TEST(repeats_are_counted) {
    static const int32_t text[] = {1, 2, 3, 4, 9, 2, 3};
    uint32_t breakers[2] = {1 << 2};
    memcpy(history, text, sizeof text);
    struct sampling s = {.dry_multiplier = 3,
                         .dry_base = 2,
                         .dry_allowed_length = 1,
                         .dry_last_n = INT32_MAX,
                         .repetition_penalty = 1};
    ck_assert(only_penalty(&s, 7, 4) == 6); /* 2 3 was followed by 4 */
    s.dry_last_n = 5;                       /* 3 4 9 2 3: the first 3 has no 2 before it */
    ck_assert(only_penalty(&s, 7, 4) == 3);
    s.dry_last_n = 4; /* 4 9 2 3 */
    ck_assert_int_eq(list(&s, 1, 6), 0);
    s.dry_last_n = 7;
    s.dry_breakers = breakers; /* 2 is a breaker, so only 3 repeats */
    ck_assert(only_penalty(&s, 7, 4) == 3);
    s.dry_allowed_length = 2;
    ck_assert_int_eq(list(&s, 1, 6), 0);
    s.dry_breakers = NULL;
    ck_assert(only_penalty(&s, 7, 4) == 3);
    s.dry_base = 1e6f, s.dry_multiplier = 1e6f, s.dry_allowed_length = 1;
    /* the longest comparison: the penalty is still finite */
    for (int i = 0; i < MOST; i++) history[i] = 5;
    ck_assert(isfinite(only_penalty(&s, MOST, 5)));
    s.dry_base = 1;
    ck_assert(only_penalty(&s, MOST, 5) == 1e6f);
}
END_TEST

/* OpenAI's penalties count only the output. A window counts all of its tokens. */
START_TEST(windows_count_prompts_too) {
    struct sampling s = {.repetition_penalty = 1.5f};
    memcpy(history, (int32_t[]){1, 2, 2, 3, 2}, 5 * sizeof *history);
    ck_assert_int_eq(list(&s, 3, 2), 3);
    for (int i = 0; i < 3; i++) ck_assert_int_eq(change[i].count, change[i].id == 1 ? -1 : 1);
    s.penalty_last_n = 4;
    ck_assert_int_eq(list(&s, 3, 2), 2);
    for (int i = 0; i < 2; i++) ck_assert_int_eq(change[i].count, change[i].id == 2 ? 3 : 1);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine_changes");
    TCase *core = tcase_create("core");
    tcase_add_test(core, ngrams_that_transformers_forbids);
    tcase_add_test(core, repeats_are_counted);
    tcase_add_test(core, windows_count_prompts_too);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
