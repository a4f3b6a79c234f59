/* Sums over ranks: every element is the sum in the order of the ranks, on all of them, whatever the
 * timing of their threads. */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "support/suite_main.h"

enum { TESTED_RANKS = 5, MAX_ROWS = 40, K = 333, ROUNDS = 60, MOST = MAX_ROWS * K };

/* The data that all ranks of a test share. */
struct world {
    struct rank_group *group;
    int ranks, threads;
};

struct rank {
    struct world *world;
    int number, differences;
    pthread_t thread;
};

/* Returns numbers of many magnitudes, so that another order gives other bits. The same arguments
 * give the same number. */
static float number_at(int round, int rank, size_t i) {
    uint64_t x = ((uint64_t)round << 40) + ((uint64_t)rank << 32) + i;
    x = (x ^ (x >> 31)) * 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9u;
    float value = (float)(int32_t)(x >> 32) * 0x1p-31f;
    return (x & 3) == 0 ? value * 1e5f : value;
}

static int rows_of(int round) {
    return round % 4 == 0 ? 1 : round * 7 % MAX_ROWS + 1;
}

static float sum_at(int round, int ranks, size_t i) {
    float sum = number_at(round, 0, i);
    for (int r = 1; r < ranks; r++) sum += number_at(round, r, i);
    return sum;
}

/* Runs one round. Each rank starts with a different delay. */
static void run_round(struct rank *rank, struct backend *b, float *x, float *part, int round) {
    int M = rows_of(round), ranks = rank->world->ranks;
    size_t n = (size_t)M * K;
    float *mine = rank->number == 0 ? x : part;
    for (size_t i = 0; i < n; i++) mine[i] = number_at(round, rank->number, i);
    if (round % 9 == 8) usleep((useconds_t)((rank->number + round) % ranks * 200));
    b->compute->all_reduce(b, x, part, M, K);
    for (size_t i = 0; i < n; i++) {
        float sum = sum_at(round, ranks, i);
        rank->differences += memcmp(&sum, &x[i], sizeof sum) != 0;
        rank->differences += rank->number > 0 && part[i] != 0;
    }
}

static void *run_rank(void *arg) {
    struct rank *rank = arg;
    struct backend_config config = {.threads = rank->world->threads,
                                    .max_rows = MAX_ROWS,
                                    .max_k = K,
                                    .group = rank->world->group,
                                    .rank = rank->number};
    struct backend *b;
    struct err err;
    if (backend_cpu_open(&b, &config, &err)) abort();
    float *x = b->memory->buffer_new(b, MOST * sizeof *x);
    float *part = rank->number ? b->memory->buffer_new(b, MOST * sizeof *part) : NULL;
    for (int round = 0; round < ROUNDS; round++) run_round(rank, b, x, part, round);
    b->memory->buffer_free(b, x, MOST * sizeof *x);
    if (part) b->memory->buffer_free(b, part, MOST * sizeof *part);
    backend_close(b);
    return NULL;
}

static void check(int ranks, int threads) {
    struct world world = {.group = rank_group_cpu_new(ranks), .ranks = ranks, .threads = threads};
    struct rank rank[TESTED_RANKS];
    for (int r = 0; r < ranks; r++) {
        rank[r] = (struct rank){&world, r, 0, 0};
        ck_assert_int_eq(pthread_create(&rank[r].thread, NULL, run_rank, &rank[r]), 0);
    }
    for (int r = 0; r < ranks; r++) pthread_join(rank[r].thread, NULL);
    for (int r = 0; r < ranks; r++) ck_assert_int_eq(rank[r].differences, 0);
    rank_group_close(world.group);
}

START_TEST(ranks_add_up_in_their_order) {
    check(_i, 1);
}
END_TEST

START_TEST(threads_of_a_rank_share_its_part) {
    check(2, 2);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels_group");
    TCase *cases = tcase_create("all_reduce");
    tcase_set_timeout(cases, 120);
    tcase_add_loop_test(cases, ranks_add_up_in_their_order, 1, TESTED_RANKS + 1);
    tcase_add_test(cases, threads_of_a_rank_share_its_part);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
