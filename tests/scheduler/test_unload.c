/* An idle scheduler gives its engine's memory back and loads it again. The test runs the steps
 * itself, except where it says that the thread does. The fake engine's memory is overwritten when
 * it is unloaded, so a block that is still known gives other tokens. */
#include <check.h>
#include <string.h>
#include <unistd.h>

#include "support/fake_client.h"
#include "support/suite_main.h"

enum { MS = 1000000, N_BLOCKS = 64 };

static struct fake_engine *engine;
static struct scheduler *scheduler;
static struct fake_client client[8];
static enum finish finish_of[8];
static int n_ended, n_unloads, n_loads;
static int n_refused;                     /* the next loads that fail */
static void (*during_load)(void);         /* runs between two parts of a load; or NULL */
static _Atomic int n_states;              /* calls of on_model */
static _Atomic enum model_state reported; /* in the last one */

static void on_events(void *arg, const struct event *events, int n) {
    (void)arg;
    for (int i = 0; i < n; i++) {
        struct fake_client *its = (struct fake_client *)events[i].generation;
        enum finish finish = events[i].finish;
        if (finish == FINISH_NONE || finish == FINISH_LENGTH) fake_client_check(its, &events[i]);
        if (!events[i].last) continue;
        finish_of[its - client] = finish;
        n_ended++;
    }
}

static void on_model(void *arg, enum model_state state, const struct err *err) {
    (void)arg;
    ck_assert(!err || (state == MODEL_UNLOADED && err->status == STATUS_UNAVAILABLE));
    atomic_store(&reported, state);
    atomic_fetch_add(&n_states, 1);
}

static void fake_unload(void *self) {
    struct fake_engine *fake = self;
    memset(fake->word, 0x5a,
           (size_t)fake->n_blocks * (size_t)fake->block_size * sizeof *fake->word);
    n_unloads++;
}

static enum status fake_load(void *self, const struct engine_load_watch *watch, struct err *err) {
    (void)self;
    for (int i = 0; i < 3; i++) {
        watch->progress(watch->arg, "weights", i / 3.0);
        if (during_load) during_load();
    }
    if (n_refused-- > 0) return err_set(err, STATUS_UNAVAILABLE, NULL, "the disk is gone");
    n_loads++;
    return STATUS_OK;
}

static void begin(uint64_t unload_after_ns) {
    struct scheduler_config config = {.max_num_seqs = 4,
                                      .max_num_batched_tokens = 16,
                                      .max_model_len = 100,
                                      .max_queued_requests = 8,
                                      .max_queued_tokens = 500,
                                      .n_blocks = N_BLOCKS,
                                      .block_size = 4,
                                      .max_logit_rows = 8,
                                      .prefix_caching = true,
                                      .unload_after_ns = unload_after_ns,
                                      .on_model = on_model,
                                      .on_events = on_events};
    engine = fake_engine_new(&config);
    struct engine_port port = fake_engine_port(engine);
    port.unload = fake_unload;
    port.load = fake_load;
    scheduler = scheduler_new_on(&config, &port);
    memset(client, 0, sizeof client);
    n_ended = n_unloads = n_loads = n_refused = 0;
    during_load = NULL;
    atomic_store(&n_states, 0);
}

static void end(void) {
    scheduler_free(scheduler);
    fake_engine_free(engine);
}

/* Submits a request whose deadline is in `ms`; 0: without one. Requests of the same k have the same
 * prompt. */
static enum status ask(int k, int64_t ms, struct err *err) {
    struct generation *g = &client[k].generation;
    memset(&client[k], 0, sizeof client[k]);
    g->n_prompt = 12;
    g->max_tokens = 4;
    g->n = 1;
    g->prompt_logprobs = -1;
    g->deadline_ns = ms ? now_ns() + (uint64_t)ms * MS : 0;
    for (int i = 0; i < g->n_prompt; i++) client[k].prompt[i] = (i + k) % FAKE_V;
    fake_client_ready(&client[k], 100);
    finish_of[k] = FINISH_NONE;
    return scheduler_submit(scheduler, g, err);
}

static struct scheduler_stats stats(void) {
    struct scheduler_stats now;
    scheduler_stats(scheduler, &now);
    return now;
}

static void unload(void) {
    scheduler->unload_due = true;
    fake_step(scheduler);
}

START_TEST(the_prefix_cache_is_lost_with_the_memory) {
    begin(1);
    ck_assert(!ask(0, 0, NULL));
    fake_run(scheduler);
    ck_assert_int_gt(stats().blocks_cached, 0);
    ck_assert_int_eq(stats().model, MODEL_LOADED);
    unload();
    ck_assert_int_eq(n_unloads, 1);
    ck_assert_int_eq(stats().model, MODEL_UNLOADED);
    ck_assert_int_eq(stats().blocks_cached, 0);
    ck_assert_int_eq(stats().blocks_used, 0);
    uint64_t hits = stats().cached_tokens;
    ck_assert(!ask(0, 0, NULL));
    fake_run(scheduler);
    ck_assert_int_eq(finish_of[0], FINISH_LENGTH);
    ck_assert_uint_eq(stats().cached_tokens, hits);
    ck_assert_int_eq(stats().model, MODEL_LOADED);
    end();
}
END_TEST

START_TEST(requests_at_once_load_once) {
    begin(1);
    unload();
    for (int k = 0; k < 4; k++) ck_assert(!ask(k, 0, NULL));
    fake_run(scheduler);
    ck_assert_int_eq(n_loads, 1);
    ck_assert_uint_eq(stats().loads, 1);
    ck_assert_uint_eq(stats().unloads, 1);
    for (int k = 0; k < 4; k++) ck_assert_int_eq(finish_of[k], FINISH_LENGTH);
    end();
}
END_TEST

START_TEST(work_is_never_unloaded) {
    begin(1);
    ck_assert(!ask(0, 0, NULL));
    for (bool left = true; left;) {
        scheduler->unload_due = true;
        left = fake_step(scheduler);
        ck_assert_int_eq(n_unloads, 0);
    }
    ck_assert_int_eq(finish_of[0], FINISH_LENGTH);
    ck_assert(unload_in_ns(scheduler, now_ns() + MS) == 0);
    end();
}
END_TEST

START_TEST(a_failed_load_ends_all_that_wait_and_is_tried_again) {
    struct err err = {0};
    begin(1);
    unload();
    n_refused = 1;
    ck_assert(!ask(0, 0, NULL));
    ck_assert(!ask(1, 0, NULL));
    fake_run(scheduler);
    ck_assert_int_eq(finish_of[0], FINISH_UNLOADED);
    ck_assert_int_eq(finish_of[1], FINISH_UNLOADED);
    ck_assert_int_eq(stats().model, MODEL_UNLOADED);
    ck_assert_uint_eq(stats().failed_loads, 1);
    scheduler_load_error(scheduler, &err);
    ck_assert_int_eq(err.status, STATUS_UNAVAILABLE);
    ck_assert_str_eq(err.code, "model_not_loaded");
    ck_assert_str_eq(err.message, "the disk is gone");
    ck_assert_int_gt(err.retry_after_s, 0);
    ck_assert(!ask(0, 0, NULL));
    fake_run(scheduler);
    ck_assert_int_eq(finish_of[0], FINISH_LENGTH);
    ck_assert_int_eq(n_loads, 1);
    end();
}
END_TEST

static void cancel_one(void) {
    if (n_ended > 0) return;
    atomic_store(&client[1].generation.cancelled, true);
    scheduler_cancel(scheduler, &client[1].generation);
    client[0].generation.deadline_ns = 1; /* it has passed */
    scheduler->next_deadline_ns = 1;
}

START_TEST(a_load_keeps_deadlines_and_cancels) {
    begin(1);
    unload();
    for (int k = 0; k < 3; k++) ck_assert(!ask(k, k == 0 ? 3600000 : 0, NULL));
    during_load = cancel_one;
    fake_run(scheduler);
    ck_assert_int_eq(finish_of[0], FINISH_TIMEOUT);
    ck_assert_int_eq(finish_of[1], FINISH_CANCELLED);
    ck_assert_int_eq(finish_of[2], FINISH_LENGTH);
    end();
}
END_TEST

static void arrive(void) {
    if (n_ended > 0 || client[1].generation.n > 0) return;
    ck_assert_int_eq(stats().model, MODEL_LOADING);
    ck_assert(!ask(1, 0, NULL));
}

START_TEST(a_request_that_arrives_during_a_load_waits_for_it) {
    begin(1);
    unload();
    ck_assert(!ask(0, 0, NULL));
    during_load = arrive;
    fake_run(scheduler);
    ck_assert_int_eq(n_loads, 1);
    ck_assert_int_eq(finish_of[1], FINISH_LENGTH);
    end();
}
END_TEST

START_TEST(a_deadline_before_the_end_of_a_load_is_refused) {
    struct err err = {0};
    begin(1);
    unload();
    ck_assert(!ask(0, 50, &err)); /* nothing is known of loads yet */
    fake_run(scheduler);
    unload();
    scheduler->inbox.least_load_ns = 2000 * (uint64_t)MS;
    ck_assert_int_eq(ask(0, 1000, &err), STATUS_OVERLOADED);
    ck_assert_str_eq(err.code, "deadline_unreachable");
    ck_assert(!ask(0, 60000, &err));
    fake_run(scheduler);
    ck_assert(!ask(0, 1000, &err)); /* it is loaded */
    fake_run(scheduler);
    end();
}
END_TEST

START_TEST(without_the_setting_nothing_is_unloaded) {
    begin(0);
    ck_assert(unload_in_ns(scheduler, UINT64_MAX) == UINT64_MAX);
    end();
}
END_TEST

/* The thread unloads after the time, once. */
START_TEST(the_thread_unloads_by_itself) {
    begin(20 * MS);
    scheduler_start(scheduler);
    for (int round = 1; round <= 3; round++) {
        while (atomic_load(&reported) != MODEL_UNLOADED || atomic_load(&n_states) < 3 * round - 2)
            usleep(1000);
        ck_assert_uint_eq(stats().unloads, (uint64_t)round);
        ck_assert(!ask(0, 0, NULL));
        while (atomic_load(&n_states) < 3 * round) usleep(1000);
        ck_assert_uint_eq(stats().loads, (uint64_t)round);
    }
    end();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler_unload");
    TCase *core = tcase_create("core");
    tcase_add_test(core, the_prefix_cache_is_lost_with_the_memory);
    tcase_add_test(core, requests_at_once_load_once);
    tcase_add_test(core, work_is_never_unloaded);
    tcase_add_test(core, a_failed_load_ends_all_that_wait_and_is_tried_again);
    tcase_add_test(core, a_load_keeps_deadlines_and_cancels);
    tcase_add_test(core, a_request_that_arrives_during_a_load_waits_for_it);
    tcase_add_test(core, a_deadline_before_the_end_of_a_load_is_refused);
    tcase_add_test(core, without_the_setting_nothing_is_unloaded);
    tcase_add_test(core, the_thread_unloads_by_itself);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
