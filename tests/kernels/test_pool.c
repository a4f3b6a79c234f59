/* The compute threads: every piece runs once, whatever the timing of the threads; idle threads
 * sleep. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "kernels/cpu/cpu.h"
#include "support/suite_main.h"

enum { MAX_PIECES = 300, TESTED_THREADS = 8, CROWD = 40 };

struct count {
    _Atomic int runs[MAX_PIECES];
    int on_thread[TESTED_THREADS]
                 [16]; /* not atomic: two pieces of a thread never run at the same time; padded */
    int spin;
};

static void count_piece(void *arg, int i, int thread) {
    struct count *count = arg;
    atomic_fetch_add_explicit(&count->runs[i], 1, memory_order_relaxed);
    count->on_thread[thread][0]++;
    for (volatile int j = 0; j < count->spin * (i % 7); j++) {
    }
}

static void run_piece(void *arg, int i, int thread) {
    _Atomic int *runs = arg;
    ck_assert(thread >= 0 && thread < CROWD);
    atomic_fetch_add_explicit(&runs[i], 1, memory_order_relaxed);
}

static void run_and_check(struct pool *pool, struct count *count, int n) {
    for (int i = 0; i < n; i++) count->runs[i] = 0;
    for (int i = 0; i < TESTED_THREADS; i++) count->on_thread[i][0] = 0;
    pool_run(pool, count_piece, count, n);
    int sum = 0;
    for (int i = 0; i < n; i++) ck_assert_int_eq(count->runs[i], 1);
    for (int i = 0; i < TESTED_THREADS; i++) sum += count->on_thread[i][0];
    ck_assert_int_eq(sum, n);
}

START_TEST(every_piece_runs_once) {
    struct pool *pool = pool_new(_i, NULL);
    struct count count = {0};
    ck_assert_int_eq(pool_threads(pool), _i);
    for (int round = 0; round < 400; round++) {
        count.spin = round % 3 * 20;
        run_and_check(pool, &count, round * 7 % (MAX_PIECES + 1));
    }
    pool_free(pool);
}
END_TEST

/* The pauses are longer than the threads spin, so they sleep and must be woken. */
START_TEST(sleepers_are_woken) {
    struct pool *pool = pool_new(4, NULL);
    struct count count = {.spin = 10};
    for (int round = 0; round < 60; round++) {
        usleep((useconds_t)(round % 4 * 150));
        run_and_check(pool, &count, 16);
    }
    pool_free(pool);
}
END_TEST

/* A plain variable that every piece reads and the caller writes between jobs: all threads see the
 * value, without a race. */
struct chain {
    int input;
    int output[MAX_PIECES];
};

static void copy_piece(void *arg, int i, int thread) {
    (void)thread;
    struct chain *chain = arg;
    chain->output[i] = chain->input + i;
}

START_TEST(jobs_see_earlier_writes) {
    struct pool *pool = pool_new(3, NULL);
    struct chain chain;
    for (int round = 0; round < 700; round++) {
        chain.input = round;
        pool_run(pool, copy_piece, &chain, 20);
        for (int i = 0; i < 20; i++) ck_assert_int_eq(chain.output[i], round + i);
    }
    pool_free(pool);
}
END_TEST

/* The pieces in the order in which each thread ran them. */
struct order {
    int piece[TESTED_THREADS][MAX_PIECES], n[TESTED_THREADS];
    bool late; /* the caller's first piece takes until all other pieces are done */
    _Atomic int done;
    int pieces;
};

static void note_piece(void *arg, int i, int thread) {
    struct order *order = arg;
    order->piece[thread][order->n[thread]++] = i;
    while (order->late && thread == 0 && atomic_load(&order->done) < order->pieces - 1) {
    }
    atomic_fetch_add(&order->done, 1);
}

static bool is_within(int piece, int from, int to) {
    return piece >= from && piece < to;
}

/* A pause after which the next job wakes the sleepers again. */
enum { LONG_AGO_US = 3000 };

/* A thread first runs its own pieces, which are neighbours, in rising order; then pieces that
 * others have not begun. If the caller is slow, the others run all pieces except the one that it
 * has begun. */
START_TEST(threads_run_neighbouring_pieces) {
    enum { THREADS = 3, PIECES = 61 };
    struct pool *pool = pool_new(THREADS, NULL);
    for (int round = 0; round < 40; round++) {
        struct order order = {.late = round % 4 == 3, .pieces = PIECES};
        if (order.late) usleep(LONG_AGO_US);
        pool_run(pool, note_piece, &order, PIECES);
        for (int t = 0; t < THREADS; t++) {
            const int from = PIECES * t / THREADS, to = PIECES * (t + 1) / THREADS;
            const int *piece = order.piece[t];
            int own = 0;
            for (; own < order.n[t] && is_within(piece[own], from, to); own++)
                ck_assert(own == 0 || piece[own] > piece[own - 1]);
            for (int i = own; i < order.n[t]; i++) ck_assert(!is_within(piece[i], from, to));
        }
        if (order.late) ck_assert_int_le(order.n[0], 1);
    }
    pool_free(pool);
}
END_TEST

/* If a job begins when its workers have just been woken and sleep again, they are woken while it
 * runs, so the caller does not run it alone. */
static void long_piece(void *arg, int i, int thread) {
    struct order *order = arg;
    (void)i;
    if (thread > 0) atomic_store(&order->done, 1);
    if (thread == 0 && !atomic_load(&order->done)) usleep(200);
}

START_TEST(sleepers_are_woken_while_a_job_runs) {
    struct pool *pool = pool_new(3, NULL);
    struct count count = {0};
    for (int round = 0; round < 20; round++) {
        struct order order = {0};
        run_and_check(pool, &count, 9);
        usleep(300); /* they sleep; perhaps they were just woken */
        run_and_check(pool, &count, 9);
        usleep(300);
        pool_run(pool, long_piece, &order, 10000); /* two seconds if the caller ran alone */
        ck_assert_int_eq(atomic_load(&order.done), 1);
    }
    pool_free(pool);
}
END_TEST

/* Many more threads than cores, in several groups: each piece runs once, and consecutive jobs do
 * not wait for a turn of each thread. */
START_TEST(crowds_run_every_piece_once) {
    struct pool *pool = pool_new(CROWD, NULL);
    _Atomic int runs[MAX_PIECES];
    for (int round = 0; round < 150; round++) {
        int n = round * 11 % (MAX_PIECES + 1);
        for (int i = 0; i < n; i++) runs[i] = 0;
        if (round % 40 == 39) usleep(LONG_AGO_US);
        pool_run(pool, run_piece, runs, n);
        for (int i = 0; i < n; i++) ck_assert_int_eq(runs[i], 1);
    }
    pool_free(pool);
}
END_TEST

static void *burn(void *arg) {
    _Atomic int *stop = arg;
    while (!atomic_load_explicit(stop, memory_order_relaxed)) {
    }
    return NULL;
}

/* If other threads occupy the cores, jobs still end: a slow thread delays only its own piece. */
START_TEST(taken_cores_do_not_stop_it) {
    _Atomic int stop = 0;
    pthread_t burner[2];
    for (int i = 0; i < 2; i++) pthread_create(&burner[i], NULL, burn, &stop);
    struct pool *pool = pool_new(4, NULL);
    struct count count = {.spin = 50};
    for (int round = 0; round < 60; round++) run_and_check(pool, &count, 24);
    pool_free(pool);
    stop = 1;
    for (int i = 0; i < 2; i++) pthread_join(burner[i], NULL);
}
END_TEST

START_TEST(idle_threads_take_no_time) {
    struct pool *pool = pool_new(4, NULL);
    struct count count = {0};
    run_and_check(pool, &count, 50);
    usleep(20000);
    clock_t before = clock();
    usleep(200000);
    ck_assert_double_lt((double)(clock() - before) / CLOCKS_PER_SEC, 0.02);
    pool_free(pool);
}
END_TEST

START_TEST(opening_and_closing) {
    for (int i = 0; i < 50; i++) {
        struct pool *pool = pool_new(1 + i % TESTED_THREADS, NULL);
        struct count count = {0};
        if (i % 3) run_and_check(pool, &count, i);
        pool_free(pool);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels_pool");
    TCase *core = tcase_create("threads");
    tcase_set_timeout(core, 120);
    tcase_add_loop_test(core, every_piece_runs_once, 1, TESTED_THREADS + 1);
    tcase_add_test(core, sleepers_are_woken);
    tcase_add_test(core, jobs_see_earlier_writes);
    tcase_add_test(core, threads_run_neighbouring_pieces);
    tcase_add_test(core, sleepers_are_woken_while_a_job_runs);
    tcase_add_test(core, crowds_run_every_piece_once);
    tcase_add_test(core, taken_cores_do_not_stop_it);
    tcase_add_test(core, idle_threads_take_no_time);
    tcase_add_test(core, opening_and_closing);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
