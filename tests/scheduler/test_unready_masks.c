/* Masks that are not ready: only their sequences skip the step, and drafts without masks are
 * dropped. The client of the fake engine asserts that the tokens are the same; test_simulation.c
 * and test_same_bytes.c check it at random. */
#include <check.h>
#include <malloc.h>
#include <string.h>

#include "scheduler/internal.h"
#include "support/constrained.h"
#include "support/lettered.h"
#include "support/replay_drafter.h"
#include "support/suite_main.h"

enum { MOST = 3, TOKENS = 20, DRAFTS = 3, LETTERS = 20 };

static struct {
    struct constrained on;
    struct replay replay;
    struct drafter drafter;
    struct fake_client client[MOST];
    int n_tokens[MOST], n_ended;
    uint64_t ended_after[MOST]; /* in steps */
} w;

static void on_events(void *arg, const struct event *events, int n) {
    (void)arg;
    for (int i = 0; i < n; i++) {
        struct fake_client *client = events[i].generation->owner;
        fake_client_take(client, &events[i]);
        w.n_tokens[client - w.client] += events[i].kind == EVENT_TOKEN;
        if (!events[i].last) continue;
        w.ended_after[client - w.client] = w.on.engine->n_steps;
        w.n_ended++;
    }
}

/* Texts of many forms over the letters a to d: a mask takes several steps with little work each. */
static const char words[] = "([ab][cd]|[ac]b|d[a-c]){60}";

/* Texts of many forms: each letter of a token needs more work than one step allows. */
static const char more_words[] = "([a-d]|a[a-d]{2}|b[a-d]{3}|c[a-d]{4}|d[a-d]{5}){1,400}";

/* Tokens of many letters; the last two have no text. */
static struct vocabulary *long_vocabulary(void) {
    static char text[FAKE_V][LETTERS + 1];
    const char *bytes[FAKE_V];
    int lengths[FAKE_V];
    uint64_t seed = 3;
    for (int id = 0; id < FAKE_V; id++) {
        for (int i = 0; i < LETTERS; i++) text[id][i] = (char)fake_between(&seed, 'a', 'd');
        bytes[id] = text[id];
        lengths[id] = id < FAKE_V - 2 ? LETTERS : 0;
    }
    return vocabulary_new(bytes, lengths, FAKE_V);
}

static void open_world_of(const char *regex, int in_flight, int max_mask_work) {
    struct scheduler_config config = {.samples_forced = true,
                                      .drafter = &w.drafter,
                                      .speculation.max_tokens = DRAFTS,
                                      .fixed_drafts = true,
                                      .max_mask_work = max_mask_work,
                                      .on_events = on_events};
    memset(&w, 0, sizeof w);
    w.replay = (struct replay){.foresee = fake_foresee, .V = FAKE_V, .random = 1};
    w.drafter = replay_drafter(&w.replay);
    struct vocabulary *vocabulary =
        regex == words ? lettered_vocabulary(FAKE_V) : long_vocabulary();
    constrained_open(&w.on, &config, regex, vocabulary, in_flight);
}

static void open_world(int in_flight, int max_mask_work) {
    open_world_of(words, in_flight, max_mask_work);
}

static void close_world(void) {
    constrained_close(&w.on);
}

static struct generation *ask(int k, bool constrained) {
    struct generation *g = &w.client[k].generation;
    constrained_ask(&w.on, &w.client[k], 5, k, TOKENS);
    g->sampling.seed = (uint64_t)k;
    if (!constrained) g->grammar = NULL, g->vocabulary = NULL;
    return g;
}

/* Returns the number of masks that were not ready. */
static uint64_t run(int n) {
    for (int k = 0; k < n; k++) fake_client_submit(&w.client[k], w.on.scheduler, CONSTRAINED_LEN);
    while (scheduler_step(w.on.scheduler)) scheduler_check(w.on.scheduler);
    ck_assert_int_eq(w.n_ended, n);
    return w.on.scheduler->stats.unready_masks;
}

/* The sequence without a grammar ends after as many steps as if all masks were ready. */
START_TEST(only_its_own_sequence_sits_out) {
    uint64_t steps[2];
    for (int late = 0; late < 2; late++) {
        open_world(_i, late ? 8 : 1000000);
        ask(0, false);
        ask(1, true), ask(2, true);
        ck_assert_int_eq(run(3) > 0, late);
        for (int k = 0; k < 3; k++) ck_assert_int_eq(w.n_tokens[k], TOKENS);
        ck_assert(!late || w.ended_after[1] > w.ended_after[0] + 1);
        steps[late] = w.ended_after[0];
        close_world();
    }
    ck_assert_uint_ge(steps[1], steps[0]); /* one more step may be in flight when it ends */
    ck_assert_uint_lt(steps[1], steps[0] + (uint64_t)_i);
}
END_TEST

/* A sequence does not skip a step if no other sequence would continue. */
START_TEST(a_sequence_alone_never_skips_a_step) {
    open_world(_i, 1);
    ask(0, true);
    ck_assert_uint_eq(run(1), 0);
    ck_assert_int_eq(w.n_tokens[0], TOKENS);
    close_world();
}
END_TEST

/* A known mask needs no work: the second of two equal requests does not wait. */
START_TEST(known_masks_are_in_time) {
    open_world(_i, 8);
    ask(0, false), ask(1, true);
    ck_assert_uint_gt(run(2), 0);
    uint64_t before = w.on.scheduler->stats.unready_masks;
    memset(w.n_tokens, 0, sizeof w.n_tokens);
    w.n_ended = 0;
    ask(0, false), ask(1, true);
    ck_assert_uint_eq(run(2), before);
    close_world();
}
END_TEST

/* All choices share the row of the last prompt token, so its mask is made with any work it
 * needs. */
START_TEST(choices_begin_together) {
    open_world(_i, 8);
    ask(0, false), ask(1, true)->n = 3;
    run(2);
    ck_assert_int_eq(w.n_tokens[1], 3 * TOKENS);
    close_world();
}
END_TEST

/* Runs a sequence whose drafts are all right, together with one without a grammar. Returns the
 * number of steps after which the first ended. */
static uint64_t run_with_drafts(int in_flight, int max_mask_work, int max_drafts) {
    open_world(in_flight, max_mask_work);
    ask(0, false)->max_tokens = 4 * TOKENS;
    ask(1, true)->max_drafts = max_drafts;
    run(2);
    ck_assert_int_eq(w.n_tokens[1], TOKENS);
    return w.ended_after[1];
}

/* A draft whose mask is not ready delays no token: it is dropped, with the later ones. */
START_TEST(drafts_do_not_wait) {
    uint64_t without = run_with_drafts(_i, 40, 0);
    ck_assert_uint_gt(w.on.scheduler->stats.unready_masks, 0);
    close_world();
    uint64_t with = run_with_drafts(_i, 40, DRAFTS);
    const struct scheduler_stats *stats = &w.on.scheduler->stats;
    ck_assert_uint_gt(stats->unready_masks, 0);
    ck_assert_uint_gt(stats->draft_tokens, 0);
    ck_assert_uint_eq(stats->accepted_tokens, stats->draft_tokens);
    ck_assert_msg(with <= without, "%d, without drafts %d steps", (int)with, (int)without);
    close_world();
}
END_TEST

/* With one step in flight, each step yields a token for each sequence that does not wait for its
 * mask. */
START_TEST(a_sequence_with_a_mask_continues) {
    open_world(1, 40);
    ask(0, false)->max_tokens = 4 * TOKENS;
    ask(1, true)->max_drafts = DRAFTS;
    for (int k = 0; k < 2; k++) fake_client_submit(&w.client[k], w.on.scheduler, CONSTRAINED_LEN);
    for (int before = 0; scheduler_step(w.on.scheduler); before = w.n_tokens[1]) {
        list_each(node, &w.on.scheduler->running) {
            const struct sequence *sequence = sequence_of(node);
            if (!sequence->request->generation->grammar || before == 0) continue;
            ck_assert(w.n_tokens[1] > before || sequence->constraint.n_unready > 0);
        }
    }
    ck_assert_uint_gt(w.on.scheduler->stats.draft_tokens, 0);
    close_world();
}
END_TEST

/* Returns the maximum number of consecutive steps that a sequence skips. */
static int run_with_little_work(const char *regex, int in_flight) {
    int most = 0;
    open_world_of(regex, in_flight, 1);
    ask(0, false)->max_tokens = 8 * TOKENS, ask(1, true);
    for (int k = 0; k < 2; k++) fake_client_submit(&w.client[k], w.on.scheduler, CONSTRAINED_LEN);
    while (scheduler_step(w.on.scheduler)) {
        scheduler_check(w.on.scheduler);
        list_each(node, &w.on.scheduler->running) {
            most = max_int(most, sequence_of(node)->constraint.n_unready);
        }
    }
    ck_assert_int_eq(w.n_tokens[1], TOKENS);
    ck_assert_uint_lt(w.ended_after[1], w.ended_after[0]);
    return most;
}

/* If the mask is not ready again, the allowed work is twice, then four times as much, and finally
 * unlimited. This starts again for each token. */
START_TEST(no_sequence_skips_steps_forever) {
    int most = run_with_little_work(words, _i);
    ck_assert(most > 0 && most < 6);
    close_world();
    ck_assert_int_eq(run_with_little_work(more_words, _i), 64);
    /* with one step in flight the client computes each mask before the scheduler, to check the
     * token */
    ck_assert_uint_ge(w.on.scheduler->stats.unready_masks, _i == 1 ? 64 : 65);
    close_world();
}
END_TEST

/* Returns the bytes of the heap that are in use. */
static size_t heap_bytes(void) {
    return mallinfo2().uordblks + mallinfo2().hblkhd;
}

/* Sequences that are cancelled while they wait for a mask leak no memory. */
START_TEST(a_waiting_sequence_may_be_cancelled) {
    size_t before = 0;
    int n_waited = 0;
    open_world(_i, 2);
    for (int round = 0; round < 200; round++) {
        ask(0, false), ask(1, true)->sampling.seed = (uint64_t)round;
        w.n_ended = 0;
        for (int k = 0; k < 2; k++)
            fake_client_submit(&w.client[k], w.on.scheduler, CONSTRAINED_LEN);
        for (int i = 0; i < 3 + round % 9; i++) scheduler_step(w.on.scheduler);
        list_each(node, &w.on.scheduler->running) n_waited +=
            sequence_of(node)->constraint.n_unready > 0;
        for (int k = 0; k < 2; k++) scheduler_cancel(w.on.scheduler, &w.client[k].generation);
        while (scheduler_step(w.on.scheduler)) scheduler_check(w.on.scheduler);
        ck_assert_int_eq(w.n_ended, 2);
        if (round == 99) before = heap_bytes();
    }
    ck_assert_int_gt(n_waited, 0);
    ck_assert_uint_le(heap_bytes(), before + 4096);
    close_world();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler/unready_masks");
    TCase *core = tcase_create("core");
    tcase_add_loop_test(core, only_its_own_sequence_sits_out, 1, MAX_IN_FLIGHT + 1);
    tcase_add_loop_test(core, a_sequence_alone_never_skips_a_step, 1, MAX_IN_FLIGHT + 1);
    tcase_add_loop_test(core, known_masks_are_in_time, 1, MAX_IN_FLIGHT + 1);
    tcase_add_loop_test(core, choices_begin_together, 1, MAX_IN_FLIGHT + 1);
    tcase_add_loop_test(core, drafts_do_not_wait, 1, MAX_IN_FLIGHT + 1);
    tcase_add_test(core, a_sequence_with_a_mask_continues);
    tcase_add_loop_test(core, no_sequence_skips_steps_forever, 1, MAX_IN_FLIGHT + 1);
    tcase_add_loop_test(core, a_waiting_sequence_may_be_cancelled, 1, MAX_IN_FLIGHT + 1);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
