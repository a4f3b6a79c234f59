/* Requests with a deadline: those that cannot be in time are refused, and those that become late
 * end within a step. The test runs the steps itself. */
#include <check.h>
#include <string.h>

#include "scheduler/internal.h"
#include "support/fake_scheduler.h"
#include "support/suite_main.h"

enum { MS = 1000000 };

static struct fake_scheduler at;
static const int weights[2] = {1, 1};

static void begin_with(bool prefix_caching) {
    const struct scheduler_config config = {.max_num_seqs = 2,
                                            .max_num_batched_tokens = 16,
                                            .max_model_len = 100,
                                            .max_queued_requests = 8,
                                            .max_queued_tokens = 500,
                                            .share_weights = weights,
                                            .n_shares = 2,
                                            .n_blocks = 64,
                                            .block_size = 4,
                                            .max_logit_rows = 8,
                                            .prefix_caching = prefix_caching};
    fake_scheduler_open(&at, config);
}

static void begin(void) {
    begin_with(true);
}

static void end(void) {
    fake_scheduler_close(&at);
}

/* A request whose deadline is in `ms`; 0: without one. */
static struct generation *ask(int k, int n_prompt, int max_tokens, int64_t ms) {
    struct generation *g = fake_scheduler_ask(&at, k, n_prompt, max_tokens, 1);
    g->deadline_ns = ms ? now_ns() + (uint64_t)ms * MS : 0;
    return g;
}

static enum status put(struct generation *g, struct err *err) {
    return fake_scheduler_put(&at, g, err);
}

/* The engine takes a millisecond for a prompt row and 4 for a decode. */
static void teach(void) {
    at.scheduler->cost.known = at.scheduler->cost.prefill.known = true;
    at.scheduler->cost.prefill.per_row = 1 * MS;
    for (int i = 1; i <= MAX_COST_ROWS; i++) at.scheduler->cost.ns[i] = 4 * MS;
    inbox_publish(at.scheduler);
}

static const struct event *end_of(int k) {
    for (int i = 0; i < at.n_seen; i++)
        if (at.seen[i].generation == &at.client[k].generation && at.seen[i].finish)
            return &at.seen[i];
    return NULL;
}

static int tokens_of(int k) {
    int n = 0;
    for (int i = 0; i < at.n_seen; i++)
        n += at.seen[i].generation == &at.client[k].generation && at.seen[i].kind == EVENT_TOKEN;
    return n;
}

static void run_all(void) {
    while (scheduler_step(at.scheduler)) scheduler_check(at.scheduler);
}

START_TEST(a_queue_that_takes_too_long_refuses_at_once) {
    struct err err = {0};
    begin();
    teach();
    ck_assert_int_eq(put(ask(0, 50, 1, 0), &err), STATUS_OK);
    ck_assert_int_eq(put(ask(1, 40, 1, 0), &err), STATUS_OK);
    ck_assert_int_eq(put(ask(2, 10, 1, 90), &err), STATUS_OVERLOADED); /* 94 ms at least */
    ck_assert_str_eq(err.code, "deadline_unreachable");
    ck_assert_str_eq(err.param, "deadline_ms");
    ck_assert(strstr(err.message, " after 94 ms"));
    ck_assert_int_eq(err.retry_after_s, 1);
    ck_assert_int_eq(put(ask(2, 10, 1, 5000), &err), STATUS_OK);
    ck_assert_int_eq(put(ask(3, 10, 1, 0), &err), STATUS_OK);
    run_all();
    for (int k = 0; k < 4; k++) ck_assert_int_eq(end_of(k)->finish, FINISH_LENGTH);
    end();
}
END_TEST

START_TEST(only_requests_that_go_before_it_count) {
    struct err err = {0};
    begin();
    teach();
    ck_assert_int_eq(put(ask(0, 50, 1, 0), &err), STATUS_OK);
    struct generation *urgent = ask(1, 10, 1, 30), *other = ask(2, 10, 1, 30);
    urgent->priority = -1; /* it goes before the queue */
    ck_assert_int_eq(put(urgent, &err), STATUS_OK);
    other->share = 1; /* nothing of its share waits */
    ck_assert_int_eq(put(other, &err), STATUS_OK);
    ck_assert_int_eq(put(ask(3, 10, 1, 30), &err), STATUS_OVERLOADED);
    run_all();
    ck_assert_int_eq(put(ask(3, 10, 1, 30), &err), STATUS_OK); /* the queue is empty */
    run_all();
    end();
}
END_TEST

START_TEST(the_own_prompt_counts_without_a_prefix_cache) {
    struct err err = {0};
    for (int caching = 0; caching <= 1; caching++) {
        begin_with(caching);
        teach();
        ck_assert_int_eq(put(ask(0, 90, 1, 40), &err), caching ? STATUS_OK : STATUS_OVERLOADED);
        run_all();
        end();
    }
}
END_TEST

START_TEST(tokens_that_were_cached_so_far_do_not_count) {
    struct err err = {0};
    begin();
    at.scheduler->stats.prefix_queries = 100;
    at.scheduler->stats.prefix_hits = 75;
    teach();
    ck_assert_int_eq(put(ask(0, 80, 1, 0), &err), STATUS_OK);
    ck_assert_int_eq(put(ask(1, 10, 1, 20), &err), STATUS_OVERLOADED); /* 80 / 4 + 4 ms */
    ck_assert(strstr(err.message, " after 24 ms"));
    ck_assert_int_eq(put(ask(1, 10, 1, 5000), &err), STATUS_OK);
    run_all();
    end();
}
END_TEST

START_TEST(a_full_batch_leaves_at_its_measured_pace) {
    struct err err = {0};
    begin();
    for (int k = 0; k < 2; k++) {
        struct generation *g = ask(k, 4, 90, 0);
        g->share = k;
        ck_assert_int_eq(put(g, &err), STATUS_OK);
    }
    for (int i = 0; i < 3; i++) scheduler_step(at.scheduler);
    at.scheduler->stats.queue_pace.interval_ns = 2000.0 * MS;
    inbox_publish(at.scheduler);
    ck_assert_int_eq(put(ask(2, 4, 1, 500), &err), STATUS_OVERLOADED);
    ck_assert_int_eq(err.retry_after_s, 2);
    ck_assert_int_eq(put(ask(2, 4, 1, 0), &err), STATUS_OK);
    ck_assert_int_eq(put(ask(3, 4, 1, 3000), &err), STATUS_OVERLOADED); /* two places */
    run_all();
    end();
}
END_TEST

/* A share that has its part of the batch waits for its own sequences, another one does not. */
START_TEST(the_part_of_a_share_leaves_at_the_same_pace) {
    struct err err = {0};
    begin();
    ck_assert_int_eq(put(ask(0, 4, 90, 0), &err), STATUS_OK);
    for (int i = 0; i < 3; i++) scheduler_step(at.scheduler);
    at.scheduler->stats.queue_pace.interval_ns = 2000.0 * MS;
    inbox_publish(at.scheduler);
    ck_assert_int_eq(put(ask(1, 4, 1, 500), &err), STATUS_OVERLOADED);
    struct generation *other = ask(2, 4, 1, 500);
    other->share = 1;
    ck_assert_int_eq(put(other, &err), STATUS_OK);
    run_all();
    end();
}
END_TEST

START_TEST(a_deadline_in_the_past_is_refused) {
    struct err err = {0};
    begin();
    struct generation *g = ask(0, 4, 4, 1);
    g->deadline_ns = now_ns() - 1;
    ck_assert_int_eq(put(g, &err), STATUS_OVERLOADED);
    ck_assert_str_eq(err.code, "deadline_unreachable");
    g->is_admitted = true; /* a part of a request that was admitted in time */
    ck_assert_int_eq(put(g, &err), STATUS_OK);
    run_all();
    ck_assert_int_eq(end_of(0)->finish, FINISH_TIMEOUT);
    end();
}
END_TEST

/* One runs, one waits; the third waits longer, the fourth for ever. */
START_TEST(a_deadline_that_passes_ends_the_request_and_no_other) {
    struct err err = {0};
    begin();
    ck_assert_int_eq(put(ask(0, 8, 60, 1000000), &err), STATUS_OK);
    ck_assert_int_eq(put(ask(1, 8, 60, 0), &err), STATUS_OK);
    ck_assert_int_eq(put(ask(2, 8, 60, 1000000), &err), STATUS_OK);
    ck_assert_int_eq(put(ask(3, 8, 20, 2000000), &err), STATUS_OK);
    for (int i = 0; i < 6; i++) ck_assert(scheduler_step(at.scheduler));
    int before = tokens_of(0);
    ck_assert(before > 0 && tokens_of(2) == 0);
    ck_assert_uint_eq(at.scheduler->next_deadline_ns, at.client[0].generation.deadline_ns);
    deadline_end_late(at.scheduler, at.client[2].generation.deadline_ns);
    scheduler_check(at.scheduler);
    events_deliver(at.scheduler);
    ck_assert(end_of(0)->finish == FINISH_TIMEOUT && end_of(0)->last);
    ck_assert(end_of(2)->finish == FINISH_TIMEOUT && end_of(2)->kind == EVENT_END);
    ck_assert_uint_eq(at.scheduler->next_deadline_ns, at.client[3].generation.deadline_ns);
    run_all();
    ck_assert_int_eq(tokens_of(0), before);
    ck_assert_int_eq(tokens_of(2), 0);
    ck_assert(end_of(1)->finish == FINISH_LENGTH && tokens_of(1) == 60);
    ck_assert(end_of(3)->finish == FINISH_LENGTH && tokens_of(3) == 20);
    end();
}
END_TEST

START_TEST(all_choices_and_searches_end) {
    struct err err = {0};
    begin();
    struct generation *many = ask(0, 8, 60, 1000000), *search = ask(1, 8, 60, 1000000);
    many->n = 2;
    ck_assert_int_eq(put(many, &err), STATUS_OK);
    search->beams.width = 2;
    search->n = 2;
    for (int i = 0; i < 4; i++) scheduler_step(at.scheduler);
    ck_assert_int_eq(put(search, &err), STATUS_OK);
    scheduler_step(at.scheduler);
    deadline_end_late(at.scheduler, search->deadline_ns);
    run_all();
    int late = 0;
    for (int i = 0; i < at.n_seen; i++) late += at.seen[i].finish == FINISH_TIMEOUT;
    ck_assert_int_eq(late, 4);
    ck_assert_uint_eq(at.scheduler->next_deadline_ns, UINT64_MAX);
    end();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler_deadlines");
    TCase *core = tcase_create("core");
    tcase_add_test(core, a_queue_that_takes_too_long_refuses_at_once);
    tcase_add_test(core, only_requests_that_go_before_it_count);
    tcase_add_test(core, the_own_prompt_counts_without_a_prefix_cache);
    tcase_add_test(core, tokens_that_were_cached_so_far_do_not_count);
    tcase_add_test(core, a_full_batch_leaves_at_its_measured_pace);
    tcase_add_test(core, the_part_of_a_share_leaves_at_the_same_pace);
    tcase_add_test(core, a_deadline_in_the_past_is_refused);
    tcase_add_test(core, a_deadline_that_passes_ends_the_request_and_no_other);
    tcase_add_test(core, all_choices_and_searches_end);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
