/* Ownership of a generation: after the delivery of its last event the client owns it and frees it.
 * The clients here poison their generations, and the fake engine checks everything that its samples
 * point to. Events are delivered in the middle of a step if their array is full, and a step whose
 * samples wait for masks is sampled after that. */
#include <check.h>
#include <string.h>

#include "scheduler/internal.h"
#include "support/constrained.h"
#include "support/lettered.h"
#include "support/suite_main.h"

enum { WAITS, SEARCHES, STOPS, N_CLIENTS = CONSTRAINED_MOST };

static struct {
    struct constrained on;
    struct fake_client client[N_CLIENTS];
    int n_ended;
    bool fails;  /* the clients expect no text */
    int n_early; /* last events of STOPS before the newest step is sampled */
} w;

static void on_events(void *arg, const struct event *events, int n) {
    const struct inflight *newest = inflight_newest(w.on.scheduler);
    (void)arg;
    for (int i = 0; i < n; i++) {
        struct fake_client *client = events[i].generation->owner;
        bool last = events[i].last;
        if (!w.fails)
            fake_client_take(client, &events[i]);
        else if (last)
            fake_client_poison(client);
        w.n_early += last && client == &w.client[STOPS] && newest && !newest->is_sampled;
        w.n_ended += last;
    }
}

static void open_world(void) {
    struct scheduler_config config = {.samples_forced = true, .on_events = on_events};
    memset(&w, 0, sizeof w);
    constrained_open(&w.on, &config, "[a-d]*", lettered_vocabulary(FAKE_V), 2);
}

/* Submits a request with a grammar, whose samples wait for their masks in each step. */
static void ask_waiting(int max_tokens) {
    constrained_ask(&w.on, &w.client[WAITS], 5, 0, max_tokens);
}

static struct generation *ask_free(int k, int max_tokens) {
    struct generation *g = &w.client[k].generation;
    constrained_ask(&w.on, &w.client[k], 5, k, max_tokens);
    g->grammar = NULL, g->vocabulary = NULL;
    return g;
}

/* Submits a search with more events than the array holds. */
static void ask_search(void) {
    enum { WIDTH = 5, LENGTH = 60 };
    struct generation *g = ask_free(SEARCHES, LENGTH);
    g->n = g->beams.width = WIDTH;
    g->beams.stopping = BEAMS_NEVER_STOP_EARLY;
    ck_assert_int_gt(WIDTH * LENGTH, w.on.scheduler->max_events);
}

/* Submits a request that stops at nearly every token after min_tokens. */
static void ask_stop(int min_tokens) {
    struct generation *g = ask_free(STOPS, min_tokens + 20);
    g->min_tokens = min_tokens;
    g->n_stop_ids = FAKE_V - 1;
    for (int i = 0; i < g->n_stop_ids; i++) g->stop_ids[i] = i;
}

static void run(int n) {
    for (int k = 0; k < n; k++) fake_client_submit(&w.client[k], w.on.scheduler, CONSTRAINED_LEN);
    fake_run(w.on.scheduler);
    ck_assert_int_eq(w.n_ended, n);
}

/* Two requests end in one step. The search is the last, and its events fill the array, so the
 * events of the other are delivered while the next step, with a row of it, waits for a mask. The
 * end of the search is not known in advance, so from run to run the other request ends one token
 * later. */
START_TEST(no_sample_of_a_returned_generation_reaches_the_engine) {
    int n_early = 0;
    for (int tokens = 110; tokens < 130; tokens++) {
        open_world();
        ask_waiting(190);
        ask_search();
        ask_stop(tokens);
        run(3);
        n_early += w.n_early;
        constrained_close(&w.on);
    }
    ck_assert_int_gt(n_early, 0);
}
END_TEST

/* A failed device ends all requests together: more choices than the event array holds. */
START_TEST(no_sample_is_left_when_a_device_has_failed) {
    open_world();
    w.fails = true;
    w.on.engine->fails_at = 10;
    ask_waiting(190);
    for (int k = 1; k < N_CLIENTS; k++) ask_free(k, 40)->n = MAX_CHOICES;
    ck_assert_int_gt((N_CLIENTS - 1) * MAX_CHOICES, w.on.scheduler->max_events);
    run(N_CLIENTS);
    ck_assert_int_eq(w.on.engine->n_waits, 11);
    struct scheduler_stats stats;
    scheduler_stats(w.on.scheduler, &stats);
    ck_assert(stats.running == 0 && stats.waiting == 0 && stats.queued_tokens == 0);
    ck_assert(stats.blocks_used == 0);
    constrained_close(&w.on);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler_ownership");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 120);
    tcase_add_test(core, no_sample_of_a_returned_generation_reaches_the_engine);
    tcase_add_test(core, no_sample_is_left_when_a_device_has_failed);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
