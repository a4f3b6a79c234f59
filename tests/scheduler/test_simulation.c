/* The policy of the scheduler in simulation: without model, clock or threads. Each scenario is a
 * seed. It draws the limits of a scheduler and a load of requests, and runs steps until all have
 * ended. After each step it checks every invariant, compares every token with that of the request
 * running alone, and checks that no request waits longer than the work before it.
 *
 *     SCHEDULER_SEED=123   replays one scenario
 *     SCHEDULER_STEPS=n    number of steps, by default a million (fewer under sanitizers)
 */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/simulation.h"

#if defined(__SANITIZE_THREAD__)
#define STEPS 30000
#elif defined(__SANITIZE_ADDRESS__)
#define STEPS 100000
#else
#define STEPS 1000000
#endif

static uint64_t current_seed; /* printed if an assert fails */

static void tell_seed(int signal) {
    (void)signal;
    fprintf(stderr, "the scenario that failed: SCHEDULER_SEED=%llu\n",
            (unsigned long long)current_seed);
}

static uint64_t number_from(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static void add_counts(struct simulation *sum, const struct simulation *sim) {
    sum->n_requests += sim->n_requests;
    sum->n_cancelled += sim->n_cancelled;
    sum->n_refused += sim->n_refused;
    sum->n_hits += sim->n_hits;
    sum->n_preemptions += sim->n_preemptions;
    sum->n_copies += sim->n_copies;
    sum->n_state_copies += sim->n_state_copies;
    sum->n_state_hits += sim->n_state_hits;
    sum->n_state_drafts += sim->n_state_drafts;
    sum->n_pending += sim->n_pending;
    sum->n_dropped += sim->n_dropped;
    sum->n_out += sim->n_out;
    sum->n_in += sim->n_in;
    sum->n_drafts += sim->n_drafts;
    sum->n_accepted += sim->n_accepted;
    sum->n_passes += sim->n_passes;
    sum->n_rows += sim->n_rows;
    sum->n_searches += sim->n_searches;
    sum->n_complete += sim->n_complete;
    sum->n_stuck += sim->n_stuck;
    sum->n_forced += sim->n_forced;
    sum->n_unready += sim->n_unready;
    sum->n_failed += sim->failed;
    sum->n_stored += sim->n_stored;
    sum->n_removed += sim->n_removed;
    sum->n_cleared += sim->n_cleared;
}

START_TEST(each_request_gives_its_answer_alone) {
    uint64_t steps = number_from("SCHEDULER_STEPS", STEPS), done = 0, seed = 0;
    uint64_t only = number_from("SCHEDULER_SEED", 0);
    struct simulation *sum = mem_calloc(1, sizeof *sum), *sim = mem_calloc(1, sizeof *sim);
    uint64_t began = now_ns();
    struct vocabulary *vocabulary = lettered_vocabulary(FAKE_V);
    for (seed = only ? only : 1; done < steps; seed++) {
        current_seed = seed;
        simulation_begin(sim, seed, vocabulary);
        simulation_run(sim);
        simulation_end(sim);
        done += sim->engine_steps;
        add_counts(sum, sim);
        if (only) break;
    }
    printf("%llu scenarios, %llu steps of %.1f rows, %.1f us a step: %llu requests, %llu refused, "
           "%llu cancels, "
           "%llu prefix tokens hit, %llu preemptions, %llu copies, %llu rows planned ahead, %llu "
           "samples thrown away, %llu blocks swapped out and %llu in, %llu of %llu drafts held, "
           "%llu passes of draft models, "
           "%llu searches, %llu choices complete and %llu stuck, %llu tokens forced, "
           "%llu masks unready, %llu blocks stored, %llu removed and %llu times all cleared\n",
           (unsigned long long)(only ? 1 : seed - 1), (unsigned long long)done,
           (double)sum->n_rows / (double)done, (double)(now_ns() - began) * 1e-3 / (double)done,
           (unsigned long long)sum->n_requests, (unsigned long long)sum->n_refused,
           (unsigned long long)sum->n_cancelled, (unsigned long long)sum->n_hits,
           (unsigned long long)sum->n_preemptions, (unsigned long long)sum->n_copies,
           (unsigned long long)sum->n_pending, (unsigned long long)sum->n_dropped,
           (unsigned long long)sum->n_out, (unsigned long long)sum->n_in,
           (unsigned long long)sum->n_accepted, (unsigned long long)sum->n_drafts,
           (unsigned long long)sum->n_passes, (unsigned long long)sum->n_searches,
           (unsigned long long)sum->n_complete, (unsigned long long)sum->n_stuck,
           (unsigned long long)sum->n_forced, (unsigned long long)sum->n_unready,
           (unsigned long long)sum->n_stored, (unsigned long long)sum->n_removed,
           (unsigned long long)sum->n_cleared);
    printf("with states: %llu copies, %llu prefix tokens hit, %llu drafts held\n",
           (unsigned long long)sum->n_state_copies, (unsigned long long)sum->n_state_hits,
           (unsigned long long)sum->n_state_drafts);
    ck_assert(only || (sum->n_searches > 0 && sum->n_state_copies > 0));
    ck_assert(only || (sum->n_state_hits > 0 && sum->n_state_drafts > 0));
    ck_assert(only || (sum->n_complete > 0 && sum->n_stuck > 0 && sum->n_forced > 0));
    ck_assert(only || (sum->n_unready > 0 && sum->n_failed > 0));
    ck_assert(only || (sum->n_accepted > 0 && sum->n_drafts > sum->n_accepted));
    ck_assert(only || sum->n_passes > 0);
    ck_assert(only || (sum->n_stored > 0 && sum->n_removed > 0 && sum->n_cleared > 0));
    ck_assert(only || (sum->n_out > sum->n_in && sum->n_in > 0));
    ck_assert(only || (sum->n_hits > 0 && sum->n_preemptions > 0 && sum->n_copies > 0));
    ck_assert(only || (sum->n_pending > 0 && sum->n_dropped > 0));
    vocabulary_free(vocabulary);
    free(sum);
    free(sim);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler_simulation");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 300);
    tcase_add_test(core, each_request_gives_its_answer_alone);
    suite_add_tcase(suite, core);
    SRunner *runner = srunner_create(suite);
    signal(SIGABRT, tell_seed);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
