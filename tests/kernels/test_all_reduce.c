/* Sums over ranks: every element is the sum in the order of the ranks, on all of them, whatever the
 * timing of their threads. */
#include <assert.h>
#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "support/suite_main.h"

enum { TESTED_RANKS = 5, MAX_ROWS = 40, WIDTH = 333, ROUNDS = 60 };
enum { LARGE_WIDTH = 8192, LARGE_ROUNDS = 3 }; /* more numbers than one call of gather takes */
enum { LANES_OF_TEST = 32 };
static_assert(MAX_ROWS * LARGE_WIDTH > MOST_GATHERED, "a sum takes several calls");

/* The data that all ranks of a test share. */
struct world {
    struct rank_group *group; /* NULL: the ranks gather rows */
    int ranks, threads, K, rounds;
    pthread_barrier_t meeting;
    const float *mine[TESTED_RANKS];
};

/* A group of ranks as if they were processes: each has its own, and copies of the others' rows. */
struct far_group {
    struct rank_group head;
    struct world *world;
    int rank;
    float *rows[TESTED_RANKS];
};

static bool gather(struct rank_group *head, const float *mine, int n, const float *rows[]) {
    struct far_group *group = (struct far_group *)head;
    struct world *world = group->world;
    ck_assert_int_le(n, MOST_GATHERED);
    world->mine[group->rank] = mine;
    pthread_barrier_wait(&world->meeting);
    for (int r = 0; r < world->ranks; r++) {
        if (r != group->rank) memcpy(group->rows[r], world->mine[r], (size_t)n * sizeof *mine);
        rows[r] = r == group->rank ? mine : group->rows[r];
    }
    pthread_barrier_wait(&world->meeting);
    return true;
}

static void far_group_open(struct far_group *group, struct world *world, int rank) {
    *group = (struct far_group){{world->ranks, NULL, gather}, world, rank, {NULL}};
    for (int r = 0; r < world->ranks; r++)
        group->rows[r] = mem_alloc(MOST_GATHERED * sizeof(float));
}

static void far_group_close(struct far_group *group) {
    for (int r = 0; r < group->world->ranks; r++) mem_free(group->rows[r]);
}

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
    int M = rows_of(round), ranks = rank->world->ranks, K = rank->world->K;
    size_t n = (size_t)M * (size_t)K;
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
    struct world *world = rank->world;
    struct far_group far;
    if (!world->group) far_group_open(&far, world, rank->number);
    struct backend_config config = {.threads = world->threads,
                                    .max_rows = MAX_ROWS,
                                    .max_k = world->K,
                                    .group = world->group ? world->group : &far.head,
                                    .rank = rank->number};
    const size_t most = (size_t)MAX_ROWS * (size_t)world->K;
    struct backend *b;
    struct err err;
    if (backend_cpu_open(&b, &config, &err)) abort();
    float *x = b->memory->buffer_new(b, most * sizeof *x);
    float *part = rank->number ? b->memory->buffer_new(b, most * sizeof *part) : NULL;
    for (int round = 0; round < world->rounds; round++) run_round(rank, b, x, part, round);
    b->memory->buffer_free(b, x, most * sizeof *x);
    if (part) b->memory->buffer_free(b, part, most * sizeof *part);
    backend_close(b);
    if (!world->group) far_group_close(&far);
    return NULL;
}

static void check(struct world world) {
    const int ranks = world.ranks;
    struct rank rank[TESTED_RANKS];
    pthread_barrier_init(&world.meeting, NULL, (unsigned)ranks);
    for (int r = 0; r < ranks; r++) {
        rank[r] = (struct rank){&world, r, 0, 0};
        ck_assert_int_eq(pthread_create(&rank[r].thread, NULL, run_rank, &rank[r]), 0);
    }
    for (int r = 0; r < ranks; r++) pthread_join(rank[r].thread, NULL);
    for (int r = 0; r < ranks; r++) ck_assert_int_eq(rank[r].differences, 0);
    pthread_barrier_destroy(&world.meeting);
    rank_group_close(world.group);
}

static void check_near(int ranks, int threads) {
    check((struct world){.group = rank_group_cpu_new(ranks),
                         .ranks = ranks,
                         .threads = threads,
                         .K = WIDTH,
                         .rounds = ROUNDS});
}

START_TEST(ranks_add_up_in_their_order) {
    check_near(_i, 1);
}
END_TEST

START_TEST(threads_of_a_rank_share_its_part) {
    check_near(2, 2);
}
END_TEST

START_TEST(ranks_that_gather_rows_add_up_in_their_order) {
    check((struct world){.ranks = _i, .threads = 1 + _i % 2, .K = WIDTH, .rounds = ROUNDS});
}
END_TEST

START_TEST(more_rows_than_are_gathered_at_once_add_up_too) {
    check((struct world){.ranks = 3, .threads = 1, .K = LARGE_WIDTH, .rounds = LARGE_ROUNDS});
}
END_TEST

/* A group that has lost a rank: the op returns, and nothing is written. */
static bool gather_nothing(struct rank_group *group, const float *mine, int n,
                           const float *rows[]) {
    (void)group, (void)mine, (void)n, (void)rows;
    return false;
}

START_TEST(a_broken_group_leaves_the_rows) {
    struct rank_group group = {2, NULL, gather_nothing};
    struct backend_config config = {
        .threads = 1, .max_rows = 1, .max_k = LANES_OF_TEST, .group = &group, .rank = 0};
    float x[LANES_OF_TEST];
    struct backend *b;
    struct err err;
    for (int i = 0; i < LANES_OF_TEST; i++) x[i] = (float)i;
    ck_assert_int_eq(backend_cpu_open(&b, &config, &err), STATUS_OK);
    b->compute->all_reduce(b, x, NULL, 1, LANES_OF_TEST);
    for (int i = 0; i < LANES_OF_TEST; i++) ck_assert(x[i] == (float)i);
    backend_close(b);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels_group");
    TCase *cases = tcase_create("all_reduce");
    tcase_set_timeout(cases, 120);
    tcase_add_loop_test(cases, ranks_add_up_in_their_order, 1, TESTED_RANKS + 1);
    tcase_add_test(cases, threads_of_a_rank_share_its_part);
    tcase_add_loop_test(cases, ranks_that_gather_rows_add_up_in_their_order, 2, TESTED_RANKS + 1);
    tcase_add_test(cases, more_rows_than_are_gathered_at_once_add_up_too);
    tcase_add_test(cases, a_broken_group_leaves_the_rows);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
