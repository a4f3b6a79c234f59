/* DESIGN: four queues of work, each with separate threads.
 *
 * Turns define the order of a queue. New work gets the turn after the lane's current one, or after
 * the last turn in which its client has waiting work, whichever is later:
 *
 *     turn        7 (running)   8        9        10
 *     client A    a1            a2       a3       a4
 *     client B                  b1                        <- a client that has just arrived
 *
 * So a client waits for at most one work of each other client, and a client that sends one request
 * after another does not overtake waiting ones. Resumed work keeps its earlier turn, so it runs
 * first.
 *
 * One mutex guards all queues; it is not held while work runs. Finished work is added to a list,
 * and the loop is woken. Dropped work ends through the same list, so `done` is called in one place
 * only.
 *
 * Compilations and loads of adapters yield the CPU to the engine's compute threads: Linux has a
 * niceness per thread. A lane's niceness is added to the server's own.
 */
#include "server/app/lanes.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "config/config.h"
#include "config/pace.h"

enum { MAX_THREADS = 4 };

static const struct lane_setup {
    int n_threads, niceness;
} setups[N_LANES] = {
    [LANE_PREPARE] = {.n_threads = 4},
    [LANE_GRAMMAR] = {.n_threads = 2, .niceness = 5},
    [LANE_TEXT] = {.n_threads = 2},
    [LANE_ADAPTER] = {.n_threads = 1, .niceness = 15},
};

struct queue {
    struct lanes *lanes;
    const struct lane_setup *setup;
    pthread_t threads[MAX_THREADS];
    pthread_cond_t arrived;
    struct list waiting; /* by turn */
    struct list parked;
    int n_running;
    uint64_t turn; /* turn of the last started work */
    int max_waiting;
    struct pace pace; /* of works that end */
};

struct lanes {
    enum lane_verdict (*run)(struct lane_work *work);
    void (*done)(struct lane_work *work);
    uv_async_t wake;
    pthread_mutex_t mutex; /* guards the fields below, and those of works */
    struct queue queues[N_LANES];
    struct list ended;
    bool is_closing;
};

/* ---- order of a queue ----------------------------------------------------------------------- */

static struct lane_work *work_of(struct list_node *node) {
    return list_entry(node, struct lane_work, node);
}

static int count_of(const struct list *list, uint64_t owner) {
    int n = 0;
    list_each(node, list) n += work_of(node)->owner == owner;
    return n;
}

/* Returns the turn of a client's new work. */
static uint64_t next_turn(const struct queue *queue, uint64_t owner) {
    uint64_t last = queue->turn;
    list_each(node, &queue->waiting) {
        const struct lane_work *work = work_of(node);
        if (work->owner == owner && work->turn > last) last = work->turn;
    }
    return last + 1;
}

static void enqueue(struct queue *queue, struct lane_work *work) {
    struct list_node *place = queue->waiting.head.prev;
    while (place != &queue->waiting.head && work_of(place)->turn > work->turn) place = place->prev;
    list_insert_after(&queue->waiting, place, &work->node);
    pthread_cond_signal(&queue->arrived);
}

/* May the client queue one more work? */
static bool has_room(const struct queue *queue, uint64_t owner) {
    int n = queue->waiting.n + queue->parked.n;
    int own = count_of(&queue->waiting, owner) + count_of(&queue->parked, owner);
    return queue->max_waiting == 0 || own < queue->max_waiting - n;
}

/* ---- threads -------------------------------------------------------------------------------- */

static void end_work(struct lanes *lanes, struct lane_work *work) {
    assert(!work->node.list && !work->is_running);
    list_append(&lanes->ended, &work->node);
    uv_async_send(&lanes->wake);
}

static void settle(struct queue *queue, struct lane_work *work, enum lane_verdict verdict) {
    assert(work->is_running && queue->n_running > 0);
    bool was_resumed = work->is_resumed;
    work->is_running = work->is_resumed = false;
    queue->n_running--;
    if (verdict == LANE_ENDED || work->is_dropped) {
        pace_note(&queue->pace, now_ns());
        end_work(queue->lanes, work);
    } else if (was_resumed) {
        enqueue(queue, work);
    } else {
        list_append(&queue->parked, &work->node);
    }
}

static void work_once(struct queue *queue) {
    struct lanes *lanes = queue->lanes;
    struct lane_work *work = work_of(list_first(&queue->waiting));
    list_remove(&queue->waiting, &work->node);
    if (work->turn > queue->turn) queue->turn = work->turn;
    work->is_running = true;
    queue->n_running++;
    pthread_mutex_unlock(&lanes->mutex);
    enum lane_verdict verdict = lanes->run(work);
    pthread_mutex_lock(&lanes->mutex);
    settle(queue, work, verdict);
}

static void *serve(void *arg) {
    struct queue *queue = arg;
    struct lanes *lanes = queue->lanes;
    /* of this thread; the server may run under nice */
    const int own = getpriority(PRIO_PROCESS, 0);
    if (queue->setup->niceness) setpriority(PRIO_PROCESS, 0, own + queue->setup->niceness);
    pthread_mutex_lock(&lanes->mutex);
    while (!lanes->is_closing) {
        if (queue->waiting.n > 0)
            work_once(queue);
        else
            pthread_cond_wait(&queue->arrived, &lanes->mutex);
    }
    pthread_mutex_unlock(&lanes->mutex);
    return NULL;
}

/* ---- loop thread ---------------------------------------------------------------------------- */

static void on_wake(uv_async_t *wake) {
    struct lanes *lanes = wake->data;
    pthread_mutex_lock(&lanes->mutex);
    for (struct list_node *node; (node = list_first(&lanes->ended));) {
        list_remove(&lanes->ended, node);
        pthread_mutex_unlock(&lanes->mutex);
        lanes->done(work_of(node));
        pthread_mutex_lock(&lanes->mutex);
    }
    pthread_mutex_unlock(&lanes->mutex);
}

bool lanes_push(struct lanes *lanes, struct lane_work *work, enum lane lane, uint64_t owner) {
    struct queue *queue = &lanes->queues[lane];
    assert(!work->node.list && !work->is_running);
    pthread_mutex_lock(&lanes->mutex);
    bool fits = has_room(queue, owner);
    bool is_idle = queue->waiting.n + queue->parked.n + queue->n_running == 0;
    if (is_idle) pace_begin(&queue->pace, now_ns());
    if (fits) {
        *work = (struct lane_work){.lane = lane, .owner = owner, .turn = next_turn(queue, owner)};
        enqueue(queue, work);
    }
    pthread_mutex_unlock(&lanes->mutex);
    return fits;
}

int lanes_retry_s(struct lanes *lanes, enum lane lane) {
    pthread_mutex_lock(&lanes->mutex);
    int seconds = pace_seconds(&lanes->queues[lane].pace, now_ns(), 1);
    pthread_mutex_unlock(&lanes->mutex);
    return seconds;
}

void lanes_resume(struct lanes *lanes, struct lane_work *work) {
    struct queue *queue = &lanes->queues[work->lane];
    pthread_mutex_lock(&lanes->mutex);
    if (work->is_running) {
        work->is_resumed = true;
    } else if (work->node.list == &queue->parked) {
        list_remove(&queue->parked, &work->node);
        enqueue(queue, work);
    }
    pthread_mutex_unlock(&lanes->mutex);
}

void lanes_drop(struct lanes *lanes, struct lane_work *work) {
    struct queue *queue = &lanes->queues[work->lane];
    pthread_mutex_lock(&lanes->mutex);
    work->is_dropped = true;
    bool is_idle = work->node.list == &queue->waiting || work->node.list == &queue->parked;
    if (is_idle) {
        list_detach(&work->node);
        end_work(lanes, work);
    }
    assert(is_idle || work->is_running || work->node.list == &lanes->ended);
    pthread_mutex_unlock(&lanes->mutex);
}

void lanes_set_limit(struct lanes *lanes, enum lane lane, int max_waiting) {
    assert(max_waiting >= 0);
    pthread_mutex_lock(&lanes->mutex);
    lanes->queues[lane].max_waiting = max_waiting;
    pthread_mutex_unlock(&lanes->mutex);
}

struct lane_stats lanes_stats(struct lanes *lanes, enum lane lane) {
    assert(lane < N_LANES);
    const struct queue *queue = &lanes->queues[lane];
    pthread_mutex_lock(&lanes->mutex);
    struct lane_stats stats = {queue->waiting.n, queue->n_running, queue->parked.n};
    pthread_mutex_unlock(&lanes->mutex);
    return stats;
}

/* ---- opening and closing -------------------------------------------------------------------- */

static void start_queue(struct lanes *lanes, enum lane lane) {
    assert(lane < N_LANES);
    struct queue *queue = &lanes->queues[lane];
    *queue = (struct queue){.lanes = lanes, .setup = &setups[lane]};
    list_init(&queue->waiting);
    list_init(&queue->parked);
    pthread_cond_init(&queue->arrived, NULL);
    for (int i = 0; i < queue->setup->n_threads; i++) {
        if (pthread_create(&queue->threads[i], NULL, serve, queue) == 0) continue;
        log_line(LOG_ERROR, "A thread for requests could not be started.");
        exit(1);
    }
}

/* Blocks signals on the threads: the loop thread handles them. */
struct lanes *lanes_new(uv_loop_t *loop, enum lane_verdict (*run)(struct lane_work *work),
                        void (*done)(struct lane_work *work)) {
    assert(run && done);
    struct lanes *lanes = mem_calloc(1, sizeof *lanes);
    sigset_t all, before;
    lanes->run = run;
    lanes->done = done;
    pthread_mutex_init(&lanes->mutex, NULL);
    list_init(&lanes->ended);
    uv_async_init(loop, &lanes->wake, on_wake);
    lanes->wake.data = lanes;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = 0; i < N_LANES; i++) start_queue(lanes, (enum lane)i);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return lanes;
}

static void on_closed(uv_handle_t *handle) {
    mem_free(handle->data);
}

void lanes_free(struct lanes *lanes) {
    if (!lanes) return;
    pthread_mutex_lock(&lanes->mutex);
    lanes->is_closing = true;
    for (int i = 0; i < N_LANES; i++) pthread_cond_broadcast(&lanes->queues[i].arrived);
    pthread_mutex_unlock(&lanes->mutex);
    for (int i = 0; i < N_LANES; i++) {
        struct queue *queue = &lanes->queues[i];
        for (int k = 0; k < queue->setup->n_threads; k++) pthread_join(queue->threads[k], NULL);
        assert(queue->waiting.n == 0 && queue->parked.n == 0 && queue->n_running == 0);
        pthread_cond_destroy(&queue->arrived);
    }
    assert(lanes->ended.n == 0);
    pthread_mutex_destroy(&lanes->mutex);
    uv_close((uv_handle_t *)&lanes->wake, on_closed);
}
