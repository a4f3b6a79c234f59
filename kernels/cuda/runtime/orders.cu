/* Lists of orders, as ops make them. */
#include "kernels/cuda/runtime/orders.cuh"

#include <stdlib.h>
#include <string.h>

static thread_local struct order_list *making;

void orders_begin(struct order_list *list) {
    assert(!making);
    *list = {};
    list->act = DTYPE_F32;
    making = list;
}

void orders_end() {
    assert(making);
    making = nullptr;
}

void orders_free(struct order_list *list) {
    free(list->orders);
    *list = {};
}

bool orders_refuse_launch() {
    if (making) making->useless = true;
    return making != nullptr;
}

/* Room for one more. */
static struct order *append(struct order_list *list) {
    enum { FIRST = 64 };
    if (list->n == list->capacity) {
        list->capacity = list->n ? 2 * list->n : FIRST;
        list->orders = (struct order *)mem_realloc(list->orders,
                                                   (size_t)list->capacity * sizeof(struct order));
    }
    return &list->orders[list->n++];
}

/* Angles need nothing of the product before them, nor does it read them. */
static bool must_wait(const struct order_list *list, enum order_kind kind) {
    if (list->n == 0) return false;
    const enum order_kind before = list->orders[list->n - 1].kind;
    return kind != ORDER_ANGLES || (before != ORDER_PRODUCT && before != ORDER_NORMED_PRODUCT);
}

/* Whether the list's kernel can do an order of such a kind. */
static bool suits(const struct order_list *list, const struct order_head *head) {
    const bool any_act = list->act == DTYPE_F32 || head->act == DTYPE_F32;
    return (any_act || list->act == head->act) &&
           (!list->groups || !head->groups || list->groups == head->groups);
}

bool orders_add(const struct order_head &head, const void *args, size_t bytes) {
    struct order_list *list = making;
    if (!list) return false;
    assert(bytes <= ORDER_BYTES && head.items > 0);
    list->useless = list->useless || !suits(list, &head);
    if (head.act != DTYPE_F32) list->act = head.act;
    if (head.groups) list->groups = head.groups;
    if (head.smem > list->smem) list->smem = head.smem;
    const bool waits = must_wait(list, head.kind);
    if (list->n > 0) list->orders[list->n - 1].meets = waits;
    struct order *order = append(list);
    *order = {};
    order->kind = head.kind;
    order->type = head.type;
    order->items = head.items;
    order->across = head.across;
    order->waits = waits;
    memcpy(order->args, args, bytes);
    return true;
}
