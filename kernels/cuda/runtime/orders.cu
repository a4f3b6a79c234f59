/* Lists of orders, built by ops. */
#include "kernels/cuda/runtime/orders.cuh"

#include <string.h>

static thread_local struct order_list *making;

void orders_begin(struct order_list *list, struct order *orders, int room) {
    assert(!making);
    *list = {};
    list->orders = orders;
    list->room = room;
    list->act = DTYPE_F32;
    making = list;
}

void orders_end() {
    assert(making);
    making = nullptr;
}

bool orders_refuse(const char *misfit) {
    if (making && !making->misfit) making->misfit = misfit;
    return making != nullptr;
}

bool orders_refuse_launch() {
    return orders_refuse("it has ops that one grid cannot do");
}

/* Angles do not depend on the preceding product, and the product does not read them. */
static bool must_wait(const struct order_list *list, enum order_kind kind) {
    const bool product = list->last == ORDER_PRODUCT || list->last == ORDER_NORMED_PRODUCT;
    return list->n > 0 && (kind != ORDER_ANGLES || !product);
}

/* Can the list's kernel execute an order with this head? */
static bool suits(const struct order_list *list, const struct order_head *head) {
    const bool any_act = list->act == DTYPE_F32 || head->act == DTYPE_F32;
    return (any_act || list->act == head->act) &&
           (!list->groups || !head->groups || list->groups == head->groups);
}

bool orders_add(const struct order_head &head, const void *args, size_t bytes) {
    struct order_list *list = making;
    if (!list) return false;
    assert(bytes <= ORDER_BYTES && head.items > 0);
    if (!suits(list, &head)) orders_refuse("its products are of several kinds");
    if (head.act != DTYPE_F32) list->act = head.act;
    if (head.groups) list->groups = head.groups;
    if (head.smem > list->smem) list->smem = head.smem;
    const bool waits = must_wait(list, head.kind);
    if (list->n > 0 && list->n <= list->room) list->orders[list->n - 1].meets = waits;
    list->last = head.kind;
    if (list->n++ >= list->room) return true;
    struct order *order = &list->orders[list->n - 1];
    *order = {};
    order->kind = head.kind;
    order->type = head.type;
    order->items = head.items;
    order->across = head.across;
    order->waits = waits;
    memcpy(order->args, args, bytes);
    return true;
}
