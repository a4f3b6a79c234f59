/* list: an intrusive doubly linked list. A member holds a struct list_node for each list it can be
 * in; appending and removing cost nothing and allocate nothing. The head closes the ring, and a
 * node knows its list, so that it can be asked whether it is in one.
 *
 *     head <-> node <-> node <-> head
 *
 * One thread at a time, or under the owner's lock. A zeroed node is in no list. */
#ifndef PENSTOCK_LIST_H
#define PENSTOCK_LIST_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>

struct list_node {
    struct list_node *prev, *next;
    struct list *list; /* NULL while in none */
};

struct list {
    struct list_node head;
    int n; /* nodes in the list */
};

/* The struct of `type` whose `member` is `node`. */
#define list_entry(node, type, member) ((type *)((char *)(node)-offsetof(type, member)))

/* Walks a list from its front; the list must not change meanwhile. */
#define list_each(node, list)                                                                      \
    for (struct list_node *node = (list)->head.next; node != &(list)->head; node = node->next)

/* The same where the body may remove `node`, and only that. */
#define list_each_removable(node, list)                                                            \
    for (struct list_node *node = (list)->head.next, *node##_next = node->next;                    \
         node != &(list)->head; node = node##_next, node##_next = node->next)

/* Makes a list empty. */
static inline void list_init(struct list *list) {
    list->head = (struct list_node){&list->head, &list->head, list};
    list->n = 0;
}

/* The first node, or NULL. */
static inline struct list_node *list_first(const struct list *list) {
    return list->n > 0 ? list->head.next : NULL;
}

/* Adds a node that is in no list, after `place`: a node of the list, or its head. */
static inline void list_insert_after(struct list *list, struct list_node *place,
                                     struct list_node *node) {
    assert(!node->list && place->list == list);
    *node = (struct list_node){place, place->next, list};
    place->next->prev = node;
    place->next = node;
    list->n++;
}

/* Adds a node at the back. */
static inline void list_append(struct list *list, struct list_node *node) {
    list_insert_after(list, list->head.prev, node);
}

/* Removes a node that is in the list. */
static inline void list_remove(struct list *list, struct list_node *node) {
    assert(node->list == list && node != &list->head && list->n > 0);
    node->prev->next = node->next;
    node->next->prev = node->prev;
    *node = (struct list_node){NULL, NULL, NULL};
    list->n--;
}

/* Removes a node from the list that it is in, if any. */
static inline void list_detach(struct list_node *node) {
    if (node->list) list_remove(node->list, node);
}

/* Moves a node, from whichever list it is in, to the back of `list`. */
static inline void list_move(struct list *list, struct list_node *node) {
    list_detach(node);
    list_append(list, node);
}

#endif
