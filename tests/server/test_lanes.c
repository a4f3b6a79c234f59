/* Lanes of work: a lane takes turns among its clients, is bounded, and does not wait for other
 * lanes; dropped or parked work ends once. The threads are real; the tests control the behaviour of
 * each work. */
#include <check.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "server/app/lanes.h"
#include "support/suite_main.h"

enum { MAX_WORKS = 64, GRAMMAR_THREADS = 2 };

struct job {
    struct lane_work work;
    sem_t *gate;            /* it runs until this is posted; NULL: it ends immediately */
    int n_parks;            /* number of times that it parks before it ends */
    bool is_resumed_inside; /* and is resumed before it has returned */
    int n_runs, n_done;
    int order;    /* of its first run, from 1 */
    int niceness; /* of its thread */
};

static uv_loop_t loop;
static struct lanes *lanes;
static struct job jobs[MAX_WORKS];
static atomic_int n_started;
static int n_done;
static sem_t gate;

static struct job *job_of(struct lane_work *work) {
    return list_entry(work, struct job, work);
}

static enum lane_verdict run(struct lane_work *work) {
    struct job *job = job_of(work);
    job->niceness = getpriority(PRIO_PROCESS, 0);
    if (job->n_runs++ == 0) job->order = 1 + atomic_fetch_add(&n_started, 1);
    if (job->gate) sem_wait(job->gate);
    if (job->n_runs > job->n_parks) return LANE_ENDED;
    if (job->is_resumed_inside) lanes_resume(lanes, work);
    return LANE_PARKED;
}

static void done(struct lane_work *work) {
    job_of(work)->n_done++;
    n_done++;
}

static void setup(void) {
    memset(jobs, 0, sizeof jobs);
    atomic_store(&n_started, 0);
    n_done = 0;
    sem_init(&gate, 0, 0);
    uv_loop_init(&loop);
    lanes = lanes_new(&loop, run, done);
}

static void turn_until_done(int n) {
    while (n_done < n) uv_run(&loop, UV_RUN_ONCE);
    ck_assert_int_eq(n_done, n);
}

static void teardown(void) {
    for (int i = 0; i < N_LANES; i++) {
        struct lane_stats stats = lanes_stats(lanes, (enum lane)i);
        ck_assert_int_eq(stats.waiting + stats.running + stats.parked, 0);
    }
    lanes_free(lanes);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    sem_destroy(&gate);
}

/* Keeps both threads of the grammar lane busy with jobs 0 and 1 of client 1. */
static void occupy(void) {
    for (int i = 0; i < GRAMMAR_THREADS; i++) {
        jobs[i].gate = &gate;
        ck_assert(lanes_push(lanes, &jobs[i].work, LANE_GRAMMAR, 1));
    }
    while (atomic_load(&n_started) < GRAMMAR_THREADS) sched_yield();
}

static void set_free(void) {
    for (int i = 0; i < GRAMMAR_THREADS; i++) sem_post(&gate);
}

/* Jobs 2 to 9 of client 1 wait when client 2 sends two, then client 3 one. Work starts one at a
 * time. A job of a client that has just arrived waits for one job of each other client. */
START_TEST(clients_take_turns) {
    static const uint64_t owners[] = {1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3};
    static const int order[] = {1, 4, 6, 7, 8, 9, 10, 11, 2, 5, 3}; /* of the waiting jobs */
    sem_t alone;
    sem_init(&alone, 0, 0);
    occupy();
    for (int i = 0; i < 11; i++) {
        jobs[2 + i].gate = &alone;
        ck_assert(lanes_push(lanes, &jobs[2 + i].work, LANE_GRAMMAR, owners[i]));
    }
    sem_post(&gate); /* one thread: the other one is occupied until the end */
    for (int i = 0; i < 11; i++) {
        while (atomic_load(&n_started) < GRAMMAR_THREADS + 1 + i) sched_yield();
        sem_post(&alone);
    }
    turn_until_done(12);
    for (int i = 0; i < 11; i++) ck_assert_int_eq(jobs[2 + i].order - GRAMMAR_THREADS, order[i]);
    sem_post(&gate);
    turn_until_done(13);
    sem_destroy(&alone);
}
END_TEST

START_TEST(a_lane_does_not_wait_for_another) {
    occupy();
    ck_assert(lanes_push(lanes, &jobs[2].work, LANE_GRAMMAR, 2));
    ck_assert(lanes_push(lanes, &jobs[3].work, LANE_PREPARE, 1));
    ck_assert(lanes_push(lanes, &jobs[4].work, LANE_TEXT, 1));
    turn_until_done(2);
    ck_assert(jobs[3].n_done == 1 && jobs[4].n_done == 1 && jobs[2].n_runs == 0);
    set_free();
    turn_until_done(5);
}
END_TEST

/* Of 8 places for waiting work one client gets 4, the next one 2, the next one 1, and yet another
 * client the last one. Parked work counts, too. */
START_TEST(no_client_fills_a_lane) {
    static const int share[] = {4, 2, 1, 1, 0};
    int n = GRAMMAR_THREADS;
    occupy();
    lanes_set_limit(lanes, LANE_GRAMMAR, 8);
    for (int client = 0; client < 5; client++) {
        for (int i = 0; i < share[client]; i++)
            ck_assert(lanes_push(lanes, &jobs[n++].work, LANE_GRAMMAR, 10 + (uint64_t)client));
        ck_assert(!lanes_push(lanes, &jobs[n].work, LANE_GRAMMAR, 10 + (uint64_t)client));
    }
    ck_assert_int_eq(lanes_stats(lanes, LANE_GRAMMAR).waiting, 8);
    set_free();
    turn_until_done(n);
    jobs[n].n_parks = 1;
    lanes_set_limit(lanes, LANE_GRAMMAR, 2);
    ck_assert(lanes_push(lanes, &jobs[n].work, LANE_GRAMMAR, 1));
    while (lanes_stats(lanes, LANE_GRAMMAR).parked == 0) sched_yield();
    ck_assert(!lanes_push(lanes, &jobs[n + 1].work, LANE_GRAMMAR, 1));
    lanes_resume(lanes, &jobs[n].work);
    turn_until_done(n + 1);
}
END_TEST

/* Parked work does not occupy a thread: more work is parked than there are threads, while other
 * work runs. */
START_TEST(parked_work_costs_no_thread) {
    for (int i = 0; i < GRAMMAR_THREADS + 1; i++) {
        jobs[i].n_parks = 1;
        ck_assert(lanes_push(lanes, &jobs[i].work, LANE_GRAMMAR, 1));
    }
    while (lanes_stats(lanes, LANE_GRAMMAR).parked < GRAMMAR_THREADS + 1) sched_yield();
    ck_assert(lanes_push(lanes, &jobs[10].work, LANE_GRAMMAR, 1));
    turn_until_done(1);
    for (int i = 0; i < GRAMMAR_THREADS + 1; i++) lanes_resume(lanes, &jobs[i].work);
    turn_until_done(GRAMMAR_THREADS + 2);
    for (int i = 0; i < GRAMMAR_THREADS + 1; i++) ck_assert_int_eq(jobs[i].n_runs, 2);
}
END_TEST

/* The thread that answers a claim may be faster than the thread that parks. */
START_TEST(work_that_is_resumed_while_it_runs_runs_again) {
    jobs[0].n_parks = 3;
    jobs[0].is_resumed_inside = true;
    ck_assert(lanes_push(lanes, &jobs[0].work, LANE_GRAMMAR, 1));
    turn_until_done(1);
    ck_assert_int_eq(jobs[0].n_runs, 4);
}
END_TEST

/* Drops one job of each kind: waiting, parked, running, and about to park. */
START_TEST(dropped_work_ends_once) {
    jobs[2].n_parks = 1;
    ck_assert(lanes_push(lanes, &jobs[2].work, LANE_GRAMMAR, 1));
    while (lanes_stats(lanes, LANE_GRAMMAR).parked == 0) sched_yield();
    atomic_store(&n_started, 0);
    jobs[1].n_parks = 1;
    occupy();
    ck_assert(lanes_push(lanes, &jobs[3].work, LANE_GRAMMAR, 1));
    for (int i = 0; i < 4; i++) lanes_drop(lanes, &jobs[i].work);
    turn_until_done(2);
    ck_assert(jobs[2].n_done == 1 && jobs[2].n_runs == 1); /* it was parked */
    ck_assert(jobs[3].n_done == 1 && jobs[3].n_runs == 0); /* it was waiting */
    lanes_resume(lanes, &jobs[2].work);                    /* too late */
    set_free();
    turn_until_done(4);
    ck_assert(jobs[0].n_done == 1 && jobs[1].n_done == 1);
    lanes_resume(lanes, &jobs[1].work);
    uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert_int_eq(n_done, 4);
}
END_TEST

static void check_niceness(void) {
    for (int i = 0; i < N_LANES; i++) ck_assert(lanes_push(lanes, &jobs[i].work, (enum lane)i, 1));
    turn_until_done(N_LANES);
    const int own = getpriority(PRIO_PROCESS, 0);
    ck_assert_int_eq(jobs[LANE_PREPARE].niceness, own);
    ck_assert_int_eq(jobs[LANE_TEXT].niceness, own);
    ck_assert_int_gt(jobs[LANE_GRAMMAR].niceness, own);
    ck_assert_int_gt(jobs[LANE_ADAPTER].niceness, own);
}

START_TEST(long_work_yields_to_compute_threads) {
    check_niceness();
}
END_TEST

/* Threads inherit the niceness of the thread that makes them. */
START_TEST(long_work_yields_in_a_server_under_nice) {
    ck_assert(!setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + 8));
    struct lanes *before = lanes;
    lanes = lanes_new(&loop, run, done);
    check_niceness();
    lanes_free(before);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("server_lanes");
    TCase *core = tcase_create("core");
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_test(core, clients_take_turns);
    tcase_add_test(core, a_lane_does_not_wait_for_another);
    tcase_add_test(core, no_client_fills_a_lane);
    tcase_add_test(core, parked_work_costs_no_thread);
    tcase_add_test(core, work_that_is_resumed_while_it_runs_runs_again);
    tcase_add_test(core, dropped_work_ends_once);
    tcase_add_test(core, long_work_yields_to_compute_threads);
    tcase_add_test(core, long_work_yields_in_a_server_under_nice);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
