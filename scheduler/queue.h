/* queue: an intrusive doubly linked list. What is queued holds a struct queue_node and is in one
 * queue at a time; joining and leaving cost nothing and take no memory. The head is a node that
 * closes the
 * ring. */
#ifndef PENSTOCK_QUEUE_H
#define PENSTOCK_QUEUE_H

#include <assert.h>
#include <stddef.h>

struct queue_node {
    struct queue_node *prev, *next; /* NULL while in no queue */
};

struct queue {
    struct queue_node head;
    int n; /* nodes in the queue */
};

/* The struct of `type` whose `member` is `node`. */
#define queue_entry(node, type, member) ((type *)((char *)(node)-offsetof(type, member)))

/* Walks a queue from its front; the queue must not change meanwhile. */
#define queue_each(node, queue)                                                                    \
    for (struct queue_node *node = (queue)->head.next; node != &(queue)->head; node = node->next)

/* The same where the body may remove `node`, and only that. */
#define queue_each_removable(node, queue)                                                          \
    for (struct queue_node *node = (queue)->head.next, *node##_next = node->next;                  \
         node != &(queue)->head; node = node##_next, node##_next = node->next)

static inline void queue_init(struct queue *queue) {
    queue->head.prev = queue->head.next = &queue->head;
    queue->n = 0;
}

static inline struct queue_node *queue_front(const struct queue *queue) {
    return queue->n > 0 ? queue->head.next : NULL;
}

static inline void queue_insert_after(struct queue *queue, struct queue_node *place,
                                      struct queue_node *node) {
    assert(!node->prev && !node->next);
    node->prev = place;
    node->next = place->next;
    place->next->prev = node;
    place->next = node;
    queue->n++;
}

static inline void queue_push(struct queue *queue, struct queue_node *node) {
    queue_insert_after(queue, queue->head.prev, node);
}

static inline void queue_remove(struct queue *queue, struct queue_node *node) {
    assert(node->prev && node->next && queue->n > 0);
    node->prev->next = node->next;
    node->next->prev = node->prev;
    node->prev = node->next = NULL;
    queue->n--;
}

#endif
