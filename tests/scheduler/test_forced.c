/* Forced tokens: they are not sampled, and save the steps of their sampling. The client of the fake
 * engine asserts that the tokens are the same; test_simulation.c and test_same_bytes.c check it at
 * random. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "support/constrained.h"
#include "support/lettered.h"
#include "support/suite_main.h"

static struct {
    struct constrained on;
    struct fake_client client[CONSTRAINED_MOST];
    int n_ended;
    enum finish finish;
    uint64_t forced;
} w;

static void on_events(void *arg, const struct event *events, int n) {
    (void)arg;
    for (int i = 0; i < n; i++) {
        fake_client_take(events[i].generation->owner, &events[i]);
        w.n_ended += events[i].last;
        if (events[i].finish != FINISH_NONE) w.finish = events[i].finish;
    }
}

/* The tokens are the letters a to d, and pairs; no pair begins with "cd" or "d". */
static void open_world_ahead(const char *regex, bool samples_forced, int in_flight) {
    struct scheduler_config config = {.samples_forced = samples_forced, .on_events = on_events};
    memset(&w, 0, sizeof w);
    constrained_open(&w.on, &config, regex, lettered_vocabulary(FAKE_V), in_flight);
}

static void open_world(const char *regex, bool samples_forced) {
    open_world_ahead(regex, samples_forced, 1);
}

static void close_world(void) {
    constrained_close(&w.on);
}

static struct generation *ask(int n_prompt, int max_tokens) {
    constrained_ask(&w.on, &w.client[0], n_prompt, 0, max_tokens);
    return &w.client[0].generation;
}

/* Runs the request. Returns the number of steps. */
static uint64_t run(void) {
    fake_client_submit(&w.client[0], w.on.scheduler, CONSTRAINED_LEN);
    fake_run(w.on.scheduler);
    ck_assert_int_eq(w.n_ended, 1);
    w.forced = w.on.scheduler->stats.forced_tokens;
    return w.on.engine->n_steps;
}

/* The first token is sampled after the prompt, the last after the forced ones. */
START_TEST(a_run_of_forced_tokens_is_one_step) {
    open_world("cd{9}[ab]", _i == 1);
    struct generation *g = ask(5, 40);
    if (_i == 2) g->sampling.n_logprobs = 2;
    ck_assert_uint_eq(run(), _i == 0 ? 2 : 11);
    ck_assert_uint_eq(w.forced, _i == 0 ? 9 : 0);
    ck_assert_uint_eq(w.on.scheduler->stats.generated_tokens, 11);
    ck_assert_int_eq(w.finish, FINISH_COMPLETE);
    close_world();
}
END_TEST

/* A grammar with a letter that no token contains: after the a, neither a token nor the end is
 * allowed. */
START_TEST(a_sequence_without_next_token_or_end_is_stuck) {
    open_world("ae", _i);
    ask(5, 40);
    run();
    ck_assert_int_eq(w.finish, FINISH_STUCK);
    ck_assert_uint_eq(w.on.scheduler->stats.generated_tokens, 1);
    close_world();
}
END_TEST

/* With two steps in flight a row is computed before its token is known. The last row is unused. */
START_TEST(a_step_is_planned_before_the_token_is_known) {
    open_world_ahead("[ab]{20}", false, 2);
    ask(5, 40);
    uint64_t steps = run();
    ck_assert_uint_eq(steps, w.on.scheduler->stats.generated_tokens + 1);
    ck_assert_uint_eq(w.on.engine->n_pending, steps - 1);
    ck_assert_uint_eq(w.on.engine->n_named, 0); /* masks are made later */
    ck_assert_int_eq(w.finish, FINISH_COMPLETE);
    close_world();
}
END_TEST

/* The row of the first token is in flight when the others become known: its sample is removed. */
START_TEST(forced_tokens_take_back_a_sample_in_flight) {
    open_world_ahead("cd{9}[ab]", _i == 1, 2);
    ask(5, 40);
    ck_assert_uint_eq(run(), _i == 0 ? 4 : 12);
    ck_assert_uint_eq(w.forced, _i == 0 ? 9 : 0);
    ck_assert_uint_eq(w.on.scheduler->stats.generated_tokens, 11);
    ck_assert_uint_eq(w.on.scheduler->stats.dropped_samples, 1);
    ck_assert_int_eq(w.finish, FINISH_COMPLETE);
    close_world();
}
END_TEST

/* The end of the grammar, or max_tokens, needs no extra step. */
START_TEST(forced_tokens_may_be_the_last) {
    open_world(_i ? "cd{30}" : "cd{5}", false);
    ask(5, _i ? 7 : 40);
    ck_assert_uint_eq(run(), 1);
    ck_assert_uint_eq(w.on.scheduler->stats.generated_tokens, _i ? 7 : 6);
    ck_assert_int_eq(w.finish, _i ? FINISH_LENGTH : FINISH_COMPLETE);
    close_world();
}
END_TEST

/* If a step has too few rows for the forced tokens, they are computed in parts, like a prompt. */
START_TEST(a_long_run_is_computed_in_parts) {
    open_world("cd{40}[ab]", false);
    ask(5, 100);
    ck_assert_uint_eq(run(), 1 + 3); /* 41 rows, at most 16 in a step */
    ck_assert_uint_eq(w.forced, 40);
    close_world();
}
END_TEST

/* Each choice has separate forced tokens. */
START_TEST(choices_are_forced_apart) {
    open_world("(ad{3}|bd{6}|c|dd{9})[ab]", false);
    ask(5, 40)->n = 4;
    uint64_t steps = run();
    ck_assert_uint_gt(w.forced, 3);
    ck_assert_uint_lt(steps, 6);
    close_world();
}
END_TEST

/* If another setting refuses the forced token, no token is left, and the request ends with an
 * error. */
START_TEST(a_forbidden_token_is_not_forced) {
    static const struct bad_word words[] = {{.last = 3}};
    static const uint32_t allowed[] = {0xFFF7};
    open_world("cd{9}[ab]", false);
    struct generation *g = ask(5, 40);
    if (_i == 0) g->sampling.allowed = allowed;
    if (_i == 1) g->sampling.bad_words = words, g->sampling.n_bad_words = 1;
    if (_i == 2) g->sampling.no_repeat_ngram = 1;
    run();
    ck_assert_uint_eq(w.forced, 0);
    close_world();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler/forced");
    TCase *core = tcase_create("core");
    tcase_add_loop_test(core, a_run_of_forced_tokens_is_one_step, 0, 3);
    tcase_add_loop_test(core, a_sequence_without_next_token_or_end_is_stuck, 0, 2);
    tcase_add_test(core, a_step_is_planned_before_the_token_is_known);
    tcase_add_loop_test(core, forced_tokens_take_back_a_sample_in_flight, 0, 2);
    tcase_add_loop_test(core, forced_tokens_may_be_the_last, 0, 2);
    tcase_add_test(core, a_long_run_is_computed_in_parts);
    tcase_add_test(core, choices_are_forced_apart);
    tcase_add_loop_test(core, a_forbidden_token_is_not_forced, 0, 3);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
