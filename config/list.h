/* list: an intrusive doubly linked list. A struct has one list_node for each list that it can be
 * in. Appending and removing take constant time and do not allocate. The head closes the ring. A
 * node points to its list.
 *
 *     head <-> node <-> node <-> head
 *
 * For one thread at a time, or under the owner's lock. A zeroed node is in no list. */
#ifndef PENSTOCK_LIST_H
#define PENSTOCK_LIST_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>

struct list_node {
    struct list_node *prev, *next;
    struct list *list; /* NULL: in no list */
};

struct list {
    struct list_node head;
    int n; /* number of nodes */
};

/* The struct of `type` whose `member` is `node`. */
#define list_entry(node, type, member) ((type *)((char *)(node)-offsetof(type, member)))

/* Iterates over a list from its front; the list must not change. */
#define list_each(node, list)                                                                      \
    for (struct list_node *node = (list)->head.next; node != &(list)->head; node = node->next)

/* The same, but the body may remove `node`, and only that node. */
#define list_each_removable(node, list)                                                            \
    for (struct list_node *node = (list)->head.next, *node##_next = node->next;                    \
         node != &(list)->head; node = node##_next, node##_next = node->next)

/* Initialises an empty list. */
static inline void list_init(struct list *list) {
    list->head = (struct list_node){&list->head, &list->head, list};
    list->n = 0;
}

/* Returns the first node, or NULL. */
static inline struct list_node *list_first(const struct list *list) {
    return list->n > 0 ? list->head.next : NULL;
}

/* Inserts a node that is in no list after `place`, a node of the list or its head. */
static inline void list_insert_after(struct list *list, struct list_node *place,
                                     struct list_node *node) {
    assert(!node->list && place->list == list);
    *node = (struct list_node){place, place->next, list};
    place->next->prev = node;
    place->next = node;
    list->n++;
}

/* Appends a node. */
static inline void list_append(struct list *list, struct list_node *node) {
    list_insert_after(list, list->head.prev, node);
}

/* Removes a node of this list. */
static inline void list_remove(struct list *list, struct list_node *node) {
    assert(node->list == list && node != &list->head && list->n > 0);
    node->prev->next = node->next;
    node->next->prev = node->prev;
    *node = (struct list_node){NULL, NULL, NULL};
    list->n--;
}

/* Removes a node from its list, if any. */
static inline void list_detach(struct list_node *node) {
    if (node->list) list_remove(node->list, node);
}

/* Moves a node from its list, if any, to the back of `list`. */
static inline void list_move(struct list *list, struct list_node *node) {
    list_detach(node);
    list_append(list, node);
}

#endif
