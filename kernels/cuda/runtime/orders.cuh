/* DESIGN: a step as a list of orders, for one grid that executes all of them
 * (kernels/cuda/persistent).
 *
 * An order describes a launch: its kind, its arguments, its grid. While a thread builds a list, its
 * ops append orders instead of launching kernels, and nothing runs. A launch without a kind, or one
 * that needs another kernel than the preceding orders, is a misfit: the list is then invalid, and
 * the step is launched as usual.
 *
 * An order may read all results of earlier orders, unless its `waits` is false.
 */
#ifndef PENSTOCK_CUDA_ORDERS_CUH
#define PENSTOCK_CUDA_ORDERS_CUH

#include "kernels/cuda/runtime/device.cuh"

enum order_kind {
    ORDER_EMBED,          /* EmbedArgs; an item is a row */
    ORDER_ANGLES,         /* angles_args; an item is an angle */
    ORDER_PRODUCT,        /* Products; an item is a block of the skinny kernel */
    ORDER_NORMED_PRODUCT, /* the same, with a norm of the input rows first */
    ORDER_HEADS,          /* heads_args; an item is a row; type: the cache's elements */
    ORDER_ATTENTION,      /* attention_work; an item of the plan for one y of `across` */
    ORDER_GATHER,         /* gather_args; an item is a row */
};

/* The maximum size of an order's arguments in bytes. */
constexpr int ORDER_BYTES = 736;

struct order {
    enum order_kind kind;
    enum dtype type;
    int items, across;
    bool waits; /* for all earlier orders */
    bool meets; /* the next order waits for this one */
    alignas(16) unsigned char args[ORDER_BYTES];
};
static_assert(sizeof(struct order) % 16 == 0, "blocks copy it in pieces of 16 bytes");

struct order_list {
    struct order *orders; /* [room], owned by the caller */
    int room, n;          /* if n is greater than room, only `room` orders are stored */
    /* why the step cannot run as one grid, as words after "because"; NULL if it can */
    const char *misfit;
    enum order_kind last;
    enum dtype act; /* type of all orders' activations, which selects the kernel, ... */
    int groups;     /* ... as do the products' groups of 8 rows; 0: no products */
    size_t smem;    /* dynamic shared memory: the maximum over the launches */
};

/* From here to orders_end, the ops of the calling thread append their launches to orders[room].
 * Orders that exceed the room are only counted, so a list with room 0 measures its length. */
void orders_begin(struct order_list *list, struct order *orders, int room);
void orders_end();

/* If a list is being built, marks it invalid because of `misfit`, a string that is never freed. The
 * first reason is kept. Returns whether a list is being built. */
bool orders_refuse(const char *misfit);
constexpr const char *MISFIT_WEIGHTS = "its weights are not of 16 bits";

/* An order without its arguments. */
struct order_head {
    enum order_kind kind;
    int items, across;
    enum dtype type; /* see the kinds */
    enum dtype act;  /* type of its activations; DTYPE_F32: it does not use them */
    int groups;      /* groups of 8 rows of a product; else 0 */
    size_t smem;
};

/* Adds an order. Returns false if no list is being built; the caller then launches. */
bool orders_add(const struct order_head &head, const void *args, size_t bytes);

/* Adds an order, or launches the equivalent kernel. */
template <class A>
void launch_or_order(const struct order_head &head, void (*kernel)(A), dim3 grid, dim3 block,
                     cudaStream_t stream, const A &args) {
    if (!orders_add(head, &args, sizeof args)) launch(kernel, grid, block, head.smem, stream, args);
}

#endif
