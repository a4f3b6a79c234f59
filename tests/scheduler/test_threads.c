/* The scheduler with a running engine thread: several threads submit, cancel and read the
 * statistics. Its main purpose is the tsan preset. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "counted/work.h"
#include "support/fake_client.h"
#include "support/suite_main.h"

#define N_THREADS 4
#define N_REQUESTS 300 /* per thread */
#define N_AT_ONCE 8

/* A client for which another thread waits. */
struct order {
    struct fake_client client;
    _Atomic bool done;
};

struct world {
    struct fake_engine *engine;
    struct scheduler *scheduler;
    pthread_mutex_t mutex;
    pthread_cond_t ended;
    _Atomic int n_ended, n_cancelled_ends, n_submitted;
    _Atomic int n_failures; /* number of reported failures */
};

static void on_events(void *arg, const struct event *events, int n) {
    struct world *world = arg;
    for (int i = 0; i < n; i++) {
        struct order *order = events[i].generation->owner;
        if (events[i].finish == FINISH_ERROR) /* the failure was reported first */
            ck_assert_int_eq(atomic_load(&world->n_failures), 1);
        else
            fake_client_check(&order->client, &events[i]);
        if (events[i].finish == FINISH_CANCELLED) atomic_fetch_add(&world->n_cancelled_ends, 1);
        if (!events[i].last) continue;
        pthread_mutex_lock(&world->mutex);
        atomic_fetch_add(&world->n_ended, 1);
        atomic_store(&order->done, true);
        pthread_cond_broadcast(&world->ended);
        pthread_mutex_unlock(&world->mutex);
    }
}

static void on_failure(void *arg, const struct err *err) {
    struct world *world = arg;
    ck_assert_int_eq(err->status, STATUS_SERVER_ERROR);
    atomic_fetch_add(&world->n_failures, 1);
}

static void world_begin(struct world *world, int max_queued, int in_flight) {
    *world = (struct world){0};
    struct scheduler_config config = {.max_num_seqs = 8,
                                      .max_num_batched_tokens = 32,
                                      .max_model_len = 64,
                                      .max_queued_requests = max_queued,
                                      .max_queued_tokens = max_queued * 32,
                                      .n_blocks = 40,
                                      .block_size = 4,
                                      .max_logit_rows = 16,
                                      .prefix_caching = true,
                                      .on_events = on_events,
                                      .on_failure = on_failure,
                                      .arg = world};
    pthread_mutex_init(&world->mutex, NULL);
    pthread_cond_init(&world->ended, NULL);
    world->engine = fake_engine_new(&config);
    world->engine->in_flight = in_flight;
    struct engine_port port = fake_engine_port(world->engine);
    world->scheduler = scheduler_new_on(&config, &port);
}

static void world_end(struct world *world) {
    scheduler_free(world->scheduler);
    fake_engine_free(world->engine);
    pthread_mutex_destroy(&world->mutex);
    pthread_cond_destroy(&world->ended);
}

static struct order *draw_order(uint64_t *random) {
    struct order *order = mem_calloc(1, sizeof *order);
    struct generation *g = &order->client.generation;
    g->n_prompt = fake_between(random, 1, 40);
    for (int i = 0; i < g->n_prompt; i++) order->client.prompt[i] = i % 9;
    order->client.prompt[g->n_prompt - 1] = fake_between(random, 0, 5);
    g->n = fake_between(random, 1, 4) == 1 ? 3 : 1;
    g->max_tokens = fake_between(random, 0, 20);
    g->sampling.seed = fake_random(random);
    g->prompt_logprobs = fake_between(random, 1, 8) == 1 ? 2 : -1;
    fake_client_ready(&order->client, 64);
    g->owner = order;
    return order;
}

static void wait_for(struct world *world, struct order *order) {
    pthread_mutex_lock(&world->mutex);
    while (!atomic_load(&order->done)) pthread_cond_wait(&world->ended, &world->mutex);
    pthread_mutex_unlock(&world->mutex);
}

/* Submits, and tries again while the queue is full. */
static void submit(struct world *world, struct order *order) {
    struct err err;
    for (;;) {
        enum status status = scheduler_submit(world->scheduler, &order->client.generation, &err);
        if (status == STATUS_OK) break;
        ck_assert_int_eq(status, STATUS_OVERLOADED);
        usleep(100);
    }
    atomic_fetch_add(&world->n_submitted, 1);
}

static void cancel(struct world *world, struct order *order, uint64_t *random) {
    struct generation *g = &order->client.generation;
    if (fake_between(random, 0, 1)) {
        atomic_store(&g->cancelled, true);
    } else {
        atomic_fetch_or(&g->cancelled_choices[0], (uint64_t)1 << fake_between(random, 0, g->n - 1));
    }
    scheduler_cancel(world->scheduler, g);
}

struct submitter {
    struct world *world;
    uint64_t random;
};

static void *submit_many(void *arg) {
    struct submitter *self = arg;
    struct order *orders[N_AT_ONCE] = {NULL};
    for (int i = 0; i < N_REQUESTS; i++) {
        struct order **place = &orders[i % N_AT_ONCE];
        if (*place) wait_for(self->world, *place);
        free(*place);
        *place = draw_order(&self->random);
        submit(self->world, *place);
        int k = fake_between(&self->random, 0, 3 * N_AT_ONCE);
        if (k < N_AT_ONCE && orders[k]) cancel(self->world, orders[k], &self->random);
        struct scheduler_stats stats;
        scheduler_stats(self->world->scheduler, &stats);
        ck_assert_int_le(stats.blocks_used + stats.blocks_cached, stats.blocks_total);
    }
    for (int i = 0; i < N_AT_ONCE; i++) {
        wait_for(self->world, orders[i]);
        free(orders[i]);
    }
    return NULL;
}

START_TEST(threads_get_their_own_answers) {
    struct world world;
    struct submitter submitters[N_THREADS];
    pthread_t threads[N_THREADS];
    world_begin(&world, 10, _i);
    scheduler_start(world.scheduler);
    for (int i = 0; i < N_THREADS; i++) {
        submitters[i] = (struct submitter){&world, (uint64_t)i + 1};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, submit_many, &submitters[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) pthread_join(threads[i], NULL);
    ck_assert_int_eq(atomic_load(&world.n_ended), N_THREADS * N_REQUESTS);
    ck_assert_int_gt(atomic_load(&world.n_cancelled_ends), 0);
    ck_assert(scheduler_has_room(world.scheduler, 10, 320));
    world_end(&world);
}
END_TEST

/* Its thread executes nothing: after the last step the work stays the same. */
START_TEST(an_idle_scheduler_sleeps) {
    struct world world;
    uint64_t random = 5;
    world_begin(&world, 10, 2);
    scheduler_start(world.scheduler);
    struct order *order = draw_order(&random);
    submit(&world, order);
    wait_for(&world, order);
    uint64_t before, tries = 0;
    do {
        ck_assert_msg(tries++ < 200, "the engine thread never rests");
        before = work_done();
        usleep(50000);
    } while (work_done() != before);
    world_end(&world);
    free(order);
}
END_TEST

START_TEST(stopping_ends_all_that_lives) {
    for (int round = 0; round < 20; round++) {
        struct world world;
        struct order *orders[10];
        uint64_t random = (uint64_t)round;
        world_begin(&world, 10, 1 + round % 3 % 2);
        if (round % 4) scheduler_start(world.scheduler);
        int n = 0;
        for (int i = 0; i < 10; i++) {
            struct order *order = draw_order(&random);
            order->client.generation.max_tokens = 24;
            struct err err;
            if (scheduler_submit(world.scheduler, &order->client.generation, &err) == STATUS_OK) {
                orders[n++] = order;
            } else {
                free(order);
            }
        }
        usleep((unsigned)(round % 3) * 50);
        /* The end may precede any step: then the checker expects it because of this flag. */
        for (int i = 0; i < n; i++) atomic_store(&orders[i]->client.generation.cancelled, true);
        world_end(&world);
        ck_assert_int_eq(atomic_load(&world.n_ended), n);
        for (int i = 0; i < n; i++) {
            ck_assert(atomic_load(&orders[i]->done));
            free(orders[i]);
        }
    }
}
END_TEST

enum { MOST_ACCEPTED = 400 };

/* Submits until a request is refused. All accepted ones end. */
static void *submit_until_refused(void *arg) {
    struct submitter *self = arg;
    struct order *orders[MOST_ACCEPTED];
    int n = 0;
    enum status status = STATUS_OK;
    while (status != STATUS_UNAVAILABLE) {
        ck_assert_int_lt(n, MOST_ACCEPTED);
        struct order *order = draw_order(&self->random);
        struct err err;
        while ((status = scheduler_submit(self->world->scheduler, &order->client.generation,
                                          &err)) == STATUS_OVERLOADED)
            usleep(100);
        if (status == STATUS_OK)
            orders[n++] = order;
        else
            free(order);
    }
    for (int i = 0; i < n; i++) {
        wait_for(self->world, orders[i]);
        free(orders[i]);
    }
    atomic_fetch_add(&self->world->n_submitted, n);
    return NULL;
}

START_TEST(a_device_that_fails_ends_all) {
    for (int round = 0; round < 12; round++) {
        struct world world;
        struct submitter submitters[2];
        pthread_t threads[2];
        world_begin(&world, 10, 1 + round % 2);
        world.engine->fails_at = 1 + round * round;
        scheduler_start(world.scheduler);
        for (int i = 0; i < 2; i++) {
            submitters[i] = (struct submitter){&world, (uint64_t)(2 * round + i)};
            ck_assert_int_eq(
                pthread_create(&threads[i], NULL, submit_until_refused, &submitters[i]), 0);
        }
        for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
        ck_assert_int_eq(atomic_load(&world.n_failures), 1);
        ck_assert_int_eq(atomic_load(&world.n_ended), atomic_load(&world.n_submitted));
        world_end(&world);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scheduler_threads");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 120);
    tcase_add_loop_test(core, threads_get_their_own_answers, 1, MAX_IN_FLIGHT + 1);
    tcase_add_test(core, an_idle_scheduler_sleeps);
    tcase_add_test(core, stopping_ends_all_that_lives);
    tcase_add_test(core, a_device_that_fails_ends_all);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
