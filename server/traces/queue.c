/* DESIGN: the spans of requests, between the loop thread and the thread that sends them.
 *
 *     free --loop: take--> a request --loop: end--> ended --thread: wait--> a batch --> free
 *
 * All spans are allocated at the start, so their memory is bounded and a request allocates none. If
 * the thread is slow, `ended` grows until `free` is empty; then requests lack a span, which is
 * counted. Each thread holds the mutex only to move nodes, never while it waits for the network.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <time.h>

#include "server/traces/internal.h"

void queue_init(struct span_queue *queue) {
    pthread_condattr_t attributes;
    pthread_mutex_init(&queue->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&queue->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    queue->spans = mem_calloc(TRACE_SPANS, sizeof *queue->spans);
    list_init(&queue->free);
    list_init(&queue->ended);
    for (int i = 0; i < TRACE_SPANS; i++) list_append(&queue->free, &queue->spans[i].node);
}

void queue_free(struct span_queue *queue) {
    if (!queue->spans) return;
    assert(queue->free.n == TRACE_SPANS && queue->ended.n == 0);
    pthread_cond_destroy(&queue->changed);
    pthread_mutex_destroy(&queue->mutex);
    mem_free(queue->spans);
    queue->spans = NULL;
}

struct trace_span *queue_take(struct span_queue *queue) {
    pthread_mutex_lock(&queue->mutex);
    struct list_node *node = list_first(&queue->free);
    if (node) list_remove(&queue->free, node);
    pthread_mutex_unlock(&queue->mutex);
    if (!node) return NULL;
    struct trace_span *span = list_entry(node, struct trace_span, node);
    *span = (struct trace_span){.generation.n = 1};
    return span;
}

void queue_end(struct span_queue *queue, struct trace_span *span) {
    assert(!span->node.list && span->end_ns >= span->start_ns);
    pthread_mutex_lock(&queue->mutex);
    assert(!queue->stops);
    list_append(&queue->ended, &span->node);
    int n = queue->ended.n;
    if (n == 1) queue->oldest_ns = span->end_ns;
    pthread_mutex_unlock(&queue->mutex);
    if (n == 1 || n == TRACE_BATCH) pthread_cond_signal(&queue->changed);
}

/* Waits for a signal, or until that time. The caller holds the mutex. Returns false after it. */
static bool wait_until(struct span_queue *queue, uint64_t time_ns) {
    const struct timespec at = {.tv_sec = (time_t)(time_ns / 1000000000),
                                .tv_nsec = (long)(time_ns % 1000000000)};
    return pthread_cond_timedwait(&queue->changed, &queue->mutex, &at) != ETIMEDOUT;
}

static void wait_for_batch(struct span_queue *queue, int delay_ms) {
    while (!queue->stops && queue->ended.n == 0) pthread_cond_wait(&queue->changed, &queue->mutex);
    uint64_t due_ns = queue->oldest_ns + (uint64_t)delay_ms * 1000000;
    while (!queue->stops && queue->ended.n < TRACE_BATCH)
        if (!wait_until(queue, due_ns)) return;
}

bool queue_wait(struct span_queue *queue, int delay_ms, struct list *batch) {
    assert(batch->n == 0);
    pthread_mutex_lock(&queue->mutex);
    wait_for_batch(queue, delay_ms);
    while (batch->n < TRACE_BATCH && queue->ended.n > 0) {
        struct list_node *node = list_first(&queue->ended);
        list_remove(&queue->ended, node);
        list_append(batch, node);
    }
    if (queue->ended.n > 0) queue->oldest_ns = 0; /* they wait already: the next batch is due */
    pthread_mutex_unlock(&queue->mutex);
    return batch->n > 0;
}

void queue_sleep(struct span_queue *queue, int64_t ms) {
    uint64_t end_ns = now_ns() + (uint64_t)ms * 1000000;
    assert(ms >= 0);
    pthread_mutex_lock(&queue->mutex);
    while (!queue->stops && wait_until(queue, end_ns)) continue;
    pthread_mutex_unlock(&queue->mutex);
}

void queue_return(struct span_queue *queue, struct list *batch) {
    pthread_mutex_lock(&queue->mutex);
    while (batch->n > 0) {
        struct list_node *node = list_first(batch);
        list_remove(batch, node);
        list_append(&queue->free, node);
    }
    assert(queue->free.n + queue->ended.n <= TRACE_SPANS);
    pthread_mutex_unlock(&queue->mutex);
}

void queue_stop(struct span_queue *queue) {
    pthread_mutex_lock(&queue->mutex);
    queue->stops = true;
    pthread_mutex_unlock(&queue->mutex);
    pthread_cond_signal(&queue->changed);
}

bool queue_has_stopped(struct span_queue *queue) {
    pthread_mutex_lock(&queue->mutex);
    bool stops = queue->stops;
    pthread_mutex_unlock(&queue->mutex);
    return stops;
}
