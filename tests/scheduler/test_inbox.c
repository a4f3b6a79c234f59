/* Refusals of submit, the statistics, and the ends of single requests. The test runs the steps
 * itself. */
#include <check.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/internal.h"
#include "support/fake_scheduler.h"
#include "support/suite_main.h"

static struct fake_scheduler at;

static void begin(void) {
    const struct scheduler_config config = {.max_num_seqs = 4,
                                            .max_num_batched_tokens = 16,
                                            .max_model_len = 100,
                                            .max_queued_requests = 3,
                                            .max_queued_tokens = 50,
                                            .n_blocks = 16,
                                            .block_size = 4,
                                            .max_logit_rows = 8,
                                            .prefix_caching = true};
    fake_scheduler_open(&at, config);
}

static void end(void) {
    fake_scheduler_close(&at);
}

static struct generation *ask(int k, int n_prompt, int max_tokens, int n) {
    return fake_scheduler_ask(&at, k, n_prompt, max_tokens, n);
}

static enum status put(struct generation *g, struct err *err) {
    return fake_scheduler_put(&at, g, err);
}

START_TEST(too_long_is_refused_with_both_numbers) {
    struct err err;
    ck_assert_int_eq(put(ask(0, 101, 0, 1), &err), STATUS_INVALID_REQUEST);
    ck_assert_str_eq(err.code, "context_length_exceeded");
    ck_assert(strstr(err.message, "100") && strstr(err.message, "101"));
    ck_assert_int_eq(put(ask(0, 100, 1, 1), &err), STATUS_INVALID_REQUEST);
    ck_assert_int_eq(put(ask(0, 40, 26, 1), &err), STATUS_INVALID_REQUEST);
    ck_assert(strstr(err.message, "64") && strstr(err.message, "65"));
    ck_assert_int_eq(put(ask(0, 40, 25, 1), &err), STATUS_OK);
    ck_assert_int_eq(put(ask(1, 0, 1, 1), &err), STATUS_INVALID_REQUEST);
    struct generation *many = ask(1, 1, 1, 1);
    many->n = MAX_CHOICES + 1;
    ck_assert_int_eq(put(many, &err), STATUS_INVALID_REQUEST);
    end();
}
END_TEST

START_TEST(the_queue_is_bounded) {
    struct err err;
    ck_assert_int_eq(put(ask(0, 60, 1, 1), &err), STATUS_OK);
    ck_assert(!scheduler_has_room(at.scheduler, 1, 1));
    ck_assert_int_eq(put(ask(1, 1, 1, 1), &err), STATUS_OVERLOADED);
    while (scheduler_step(at.scheduler)) {
    }
    for (int k = 0; k < 3; k++) ck_assert_int_eq(put(ask(k, 10, 1, 1), &err), STATUS_OK);
    ck_assert_int_eq(put(ask(3, 1, 1, 1), &err), STATUS_OVERLOADED);
    struct scheduler_stats stats;
    scheduler_stats(at.scheduler, &stats);
    ck_assert_int_eq(stats.waiting, 3);
    ck_assert_int_eq(stats.queued_tokens, 30);
    end();
}
END_TEST

START_TEST(new_weights_count_from_the_next_step) {
    struct err err;
    scheduler_set_weights(at.scheduler, (const int[]){7}, 1);
    ck_assert_int_eq(at.scheduler->shares.share[0].weight, 1);
    ck_assert_int_eq(put(ask(0, 10, 1, 1), &err), STATUS_OK);
    scheduler_step(at.scheduler);
    ck_assert_int_eq(at.scheduler->shares.share[0].weight, 7);
    end();
}
END_TEST

/* A later refusal states the time that has passed. */
START_TEST(a_full_queue_states_its_pace) {
    struct err err = {0};
    for (int k = 0; k < 3; k++) ck_assert_int_eq(put(ask(k, 10, 1, 1), &err), STATUS_OK);
    ck_assert_int_eq(put(ask(3, 1, 1, 1), &err), STATUS_OVERLOADED);
    ck_assert_int_eq(err.retry_after_s, 1);
    at.scheduler->inbox.queue_since_ns -= 4500000000u; /* as if the queue had waited */
    ck_assert_int_eq(put(ask(3, 1, 1, 1), &err), STATUS_OVERLOADED);
    ck_assert_int_eq(err.retry_after_s, 5);
    scheduler_step(at.scheduler); /* the first one leaves */
    ck_assert_int_eq(scheduler_retry_s(at.scheduler), 5);
    ck_assert_int_eq(put(ask(3, 10, 1, 1), &err), STATUS_OK);
    while (scheduler_step(at.scheduler)) {
    }
    ck_assert_double_lt(at.scheduler->stats.queue_pace.interval_ns, 4.6e9);
    end();
}
END_TEST

/* Otherwise a health check would take an idle time for a hanging step. */
START_TEST(new_work_restarts_the_clock_of_steps) {
    struct err err;
    struct scheduler_stats stats;
    uint64_t before = now_ns();
    ck_assert_int_eq(put(ask(0, 5, 1, 1), &err), STATUS_OK);
    uint64_t after = now_ns();
    ck_assert_int_eq(put(ask(1, 5, 1, 1), &err), STATUS_OK);
    scheduler_stats(at.scheduler, &stats);
    ck_assert(stats.last_step_ns >= before && stats.last_step_ns <= after);
    end();
}
END_TEST

/* Each wait takes two milliseconds, and each sampling one. */
enum { MS = 1000000 };
static const struct sampled *(*quick_wait)(void *self);
static void (*quick_sample)(void *self, const struct sample *samples, int n);
static uint64_t n_slow_waits;

static void spend(uint64_t ns) {
    uint64_t until = now_ns() + ns;
    while (now_ns() < until) {
    }
}

static const struct sampled *slow_wait(void *self) {
    n_slow_waits++;
    spend(2 * MS);
    return quick_wait(self);
}

static void slow_sample(void *self, const struct sample *samples, int n) {
    spend(MS);
    quick_sample(self, samples, n);
}

START_TEST(the_time_of_steps_has_parts) {
    struct err err;
    struct scheduler_stats stats;
    quick_wait = at.scheduler->port.wait;
    at.scheduler->port.wait = slow_wait;
    quick_sample = at.scheduler->port.sample;
    at.scheduler->port.sample = slow_sample;
    ck_assert_int_eq(put(ask(0, 5, 4, 1), &err), STATUS_OK);
    uint64_t began = now_ns();
    while (scheduler_step(at.scheduler)) {
    }
    uint64_t took = now_ns() - began;
    scheduler_stats(at.scheduler, &stats);
    ck_assert_uint_eq(n_slow_waits, stats.steps);
    ck_assert_uint_ge(stats.part_ns[PART_SAMPLE], n_slow_waits * MS);
    ck_assert_uint_ge(stats.part_ns[PART_FORWARD], n_slow_waits * 2 * MS);
    ck_assert_uint_gt(stats.part_ns[PART_PLAN], 0);
    ck_assert_uint_gt(stats.part_ns[PART_COMMIT], 0);
    uint64_t sum = 0;
    for (int part = 0; part < N_STEP_PARTS; part++) sum += stats.part_ns[part];
    ck_assert_uint_le(sum, took);
    end();
}
END_TEST

START_TEST(a_stopping_scheduler_takes_nothing) {
    struct err err;
    inbox_stop(at.scheduler);
    ck_assert_int_eq(put(ask(0, 3, 1, 1), &err), STATUS_UNAVAILABLE);
    end();
}
END_TEST

START_TEST(no_tokens_wanted_ends_each_choice_once) {
    struct err err;
    struct generation *g = ask(0, 9, 0, 3);
    g->prompt_logprobs = 1;
    ck_assert_int_eq(put(g, &err), STATUS_OK);
    while (scheduler_step(at.scheduler)) {
    }
    ck_assert_int_eq(at.n_seen, 8 + 3);
    for (int i = 0; i < at.n_seen; i++) fake_client_take(&at.client[0], &at.seen[i]);
    for (int i = 8; i < at.n_seen; i++) {
        ck_assert_int_eq(at.seen[i].kind, EVENT_END);
        ck_assert_int_eq(at.seen[i].finish, FINISH_LENGTH);
        ck_assert_int_eq(at.seen[i].choice, i - 8);
    }
    ck_assert(at.client[0].done);
    end();
}
END_TEST

START_TEST(choices_share_one_prompt_in_the_numbers) {
    struct err err;
    ck_assert_int_eq(put(ask(0, 10, 2, 3), &err), STATUS_OK);
    while (scheduler_step(at.scheduler)) {
    }
    struct scheduler_stats stats;
    scheduler_stats(at.scheduler, &stats);
    ck_assert_int_eq((int)stats.prompt_tokens, 10);
    ck_assert_int_eq((int)stats.cached_tokens, 0);
    ck_assert_int_eq((int)stats.generated_tokens, 6);
    end();
}
END_TEST

START_TEST(a_prompt_is_found_again) {
    struct err err;
    for (int k = 0; k < 2; k++) {
        ck_assert_int_eq(put(ask(0, 16, 1, 1), &err), STATUS_OK);
        while (scheduler_step(at.scheduler)) {
        }
    }
    struct scheduler_stats stats;
    scheduler_stats(at.scheduler, &stats);
    ck_assert_int_eq(at.seen[0].n_cached, 0);
    ck_assert_int_eq(at.seen[1].n_cached, 12);
    ck_assert_int_eq((int)stats.prefix_hits, 12);
    ck_assert_int_eq((int)stats.prompt_tokens, 32);
    ck_assert_int_eq((int)stats.cached_tokens, 12);
    ck_assert_int_eq((int)stats.step_rows, 16 + 4);
    ck_assert(stats.steps == 2 && stats.steps_by_rows[1] == 1 && stats.steps_by_rows[2] == 1);
    ck_assert_int_eq((int)stats.generated_tokens, 2);
    ck_assert_int_eq((int)at.engine->n_rows, 16 + 4);
    ck_assert_int_eq(stats.blocks_used, 0);
    ck_assert_int_eq(stats.blocks_cached, 4);
    end();
}
END_TEST

START_TEST(choices_beyond_the_batch_wait_their_turn) {
    struct err err;
    ck_assert_int_eq(put(ask(0, 9, 5, 9), &err), STATUS_OK);
    while (scheduler_step(at.scheduler)) {
        scheduler_check(at.scheduler);
        for (int i = 0; i < at.n_seen; i++) fake_client_take(&at.client[0], &at.seen[i]);
        at.n_seen = 0;
    }
    for (int i = 0; i < at.n_seen; i++) fake_client_take(&at.client[0], &at.seen[i]);
    ck_assert(at.client[0].done);
    ck_assert_int_le(at.engine->most_seqs, 4);
    end();
}
END_TEST

START_TEST(the_leader_may_be_cancelled_before_its_prompt_is_done) {
    struct err err;
    struct generation *g = ask(0, 40, 3, 3);
    ck_assert_int_eq(put(g, &err), STATUS_OK);
    scheduler_step(at.scheduler);
    atomic_store(&g->cancelled_choices[0], 1);
    while (scheduler_step(at.scheduler)) scheduler_check(at.scheduler);
    for (int i = 0; i < at.n_seen; i++) fake_client_take(&at.client[0], &at.seen[i]);
    ck_assert(at.client[0].done);
    ck_assert_int_eq(at.client[0].choice[0].finish, FINISH_CANCELLED);
    ck_assert_int_eq(at.client[0].choice[0].n_output, 0);
    for (int c = 1; c < 3; c++) ck_assert_int_eq(at.client[0].choice[c].n_output, 3);
    ck_assert_int_eq((int)at.engine->n_rows, 40 + 2 * 2);
    end();
}
END_TEST

static struct sampled bad_results[2];

static void submit_nothing(void *self, const struct step *step) {
    (void)self, (void)step;
}

static void sample_badly(void *self, const struct sample *samples, int n) {
    (void)self;
    for (int i = 0; i < n; i++)
        bad_results[i] = (struct sampled){.id = samples[i].n_prompt == 5 ? FAKE_V : 1};
}

static const struct sampled *bring_bad_results(void *self) {
    (void)self;
    return bad_results;
}

START_TEST(a_token_out_of_range_ends_its_request_alone) {
    struct err err;
    at.scheduler->port.submit = submit_nothing;
    at.scheduler->port.sample = sample_badly;
    at.scheduler->port.wait = bring_bad_results;
    ck_assert_int_eq(put(ask(0, 5, 3, 1), &err), STATUS_OK);
    ck_assert_int_eq(put(ask(1, 6, 3, 1), &err), STATUS_OK);
    while (scheduler_step(at.scheduler)) {
    }
    ck_assert_int_eq(at.n_seen, 4);
    ck_assert_int_eq(at.seen[0].kind, EVENT_END);
    ck_assert_int_eq(at.seen[0].finish, FINISH_ERROR);
    ck_assert_int_eq(at.seen[3].finish, FINISH_LENGTH);
    end();
}
END_TEST

/* ---- views ---------------------------------------------------------------------------------- */

static struct scheduler_view view;

START_TEST(a_view_is_made_after_it_was_asked_for) {
    struct err err;
    at.client[0].generation.name = "first";
    at.client[0].generation.client = 9;
    ck_assert_int_eq(put(ask(0, 5, 9, 2), &err), STATUS_OK);
    ck_assert_int_eq(put(ask(1, 30, 9, 1), &err), STATUS_OK);
    scheduler_step(at.scheduler);
    ck_assert(!scheduler_look(at.scheduler, &view)); /* it was not asked for */
    scheduler_step(at.scheduler);
    ck_assert(scheduler_look(at.scheduler, &view));
    ck_assert(!scheduler_look(at.scheduler, &view)); /* no step since */
    ck_assert_int_eq(view.n, 3);
    for (int i = 0; i < 2; i++) {
        ck_assert_str_eq(view.sequences[i].name, "first");
        ck_assert_uint_eq(view.sequences[i].client, 9);
        ck_assert_int_eq(view.sequences[i].choice, i);
        ck_assert_int_eq(view.sequences[i].state, VIEW_DECODE);
        ck_assert_int_eq(view.sequences[i].computed, 5);
        ck_assert_int_gt(view.sequences[i].output, 0);
        ck_assert_int_eq(view.sequences[i].blocks, 2);
    }
    ck_assert_str_eq(view.sequences[2].name, "");
    ck_assert_uint_eq(view.sequences[2].client, 0);
    ck_assert_int_eq(view.sequences[2].state, VIEW_PREFILL);
    ck_assert_int_eq(view.sequences[2].prompt, 30);
    ck_assert(view.sequences[2].computed > 0 && view.sequences[2].computed < 30);
    end();
}
END_TEST

START_TEST(a_view_lists_sequences_that_wait) {
    struct err err;
    ck_assert_int_eq(put(ask(0, 20, 4, 6), &err), STATUS_OK); /* a batch holds 4 */
    scheduler_look(at.scheduler, &view);
    scheduler_step(at.scheduler);
    ck_assert(scheduler_look(at.scheduler, &view));
    ck_assert_int_eq(view.n, 6); /* five choices wait for their prompt */
    ck_assert_int_eq(view.sequences[0].state, VIEW_PREFILL);
    for (int i = 1; i < 6; i++) ck_assert_int_eq(view.sequences[i].state, VIEW_WAITING);
    while (scheduler_step(at.scheduler)) {
    }
    scheduler_look(at.scheduler, &view); /* of the first step */
    scheduler_step(at.scheduler);
    ck_assert(scheduler_look(at.scheduler, &view));
    ck_assert_int_eq(view.n, 0);
    end();
}
END_TEST

START_TEST(a_sleeping_engine_thread_makes_a_view) {
    scheduler_start(at.scheduler);
    view.n = 1;
    while (!scheduler_look(at.scheduler, &view)) sched_yield();
    ck_assert_int_eq(view.n, 0);
    end();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler_inbox");
    TCase *core = tcase_create("core");
    tcase_add_checked_fixture(core, begin, NULL);
    tcase_add_test(core, too_long_is_refused_with_both_numbers);
    tcase_add_test(core, the_queue_is_bounded);
    tcase_add_test(core, a_full_queue_states_its_pace);
    tcase_add_test(core, new_weights_count_from_the_next_step);
    tcase_add_test(core, new_work_restarts_the_clock_of_steps);
    tcase_add_test(core, the_time_of_steps_has_parts);
    tcase_add_test(core, a_stopping_scheduler_takes_nothing);
    tcase_add_test(core, no_tokens_wanted_ends_each_choice_once);
    tcase_add_test(core, choices_share_one_prompt_in_the_numbers);
    tcase_add_test(core, a_prompt_is_found_again);
    tcase_add_test(core, choices_beyond_the_batch_wait_their_turn);
    tcase_add_test(core, the_leader_may_be_cancelled_before_its_prompt_is_done);
    tcase_add_test(core, a_token_out_of_range_ends_its_request_alone);
    tcase_add_test(core, a_view_is_made_after_it_was_asked_for);
    tcase_add_test(core, a_view_lists_sequences_that_wait);
    tcase_add_test(core, a_sleeping_engine_thread_makes_a_view);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
