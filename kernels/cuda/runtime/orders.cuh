/* DESIGN: a step as a list of orders, for one grid that does all of them (kernels/cuda/persistent).
 *
 * An order is what a launch would be: which of the kinds below, its arguments, its grid. While a
 * thread makes a list, its ops add orders where they would launch kernels, and nothing runs. A
 * launch that has no kind, or that another kernel would have to do than the orders before it, is a
 * misfit: then the list is useless, and its step is launched as ever.
 *
 * The order that is done next may read all that those before it wrote, unless it says that it does
 * not wait.
 */
#ifndef PENSTOCK_CUDA_ORDERS_CUH
#define PENSTOCK_CUDA_ORDERS_CUH

#include "kernels/cuda/runtime/device.cuh"

enum order_kind {
    ORDER_EMBED,          /* EmbedArgs; an item is a row */
    ORDER_ANGLES,         /* angles_args; an item is an angle */
    ORDER_PRODUCT,        /* Products; an item is a block of the skinny kernel */
    ORDER_NORMED_PRODUCT, /* the same, and their rows are normed first */
    ORDER_HEADS,          /* heads_args; an item is a row; type: the cache's elements */
    ORDER_ATTENTION,      /* attention_work; an item is one of the plan, for one y of `across` */
    ORDER_GATHER,         /* gather_args; an item is a row */
};

/* The most bytes of an order's arguments. */
constexpr int ORDER_BYTES = 736;

struct order {
    enum order_kind kind;
    enum dtype type;
    int items, across;
    bool waits; /* for all orders before it */
    bool meets; /* the next one waits */
    alignas(16) unsigned char args[ORDER_BYTES];
};
static_assert(sizeof(struct order) % 16 == 0, "blocks copy it in pieces of 16 bytes");

struct order_list {
    struct order *orders; /* [room], the caller's */
    int room, n;          /* where n is greater, only `room` orders are there */
    /* what of the step is no order, as words after "because"; NULL: nothing */
    const char *misfit;
    enum order_kind last;
    enum dtype act; /* of all orders' activations: what the kernel is compiled for, ... */
    int groups;     /* ... as groups of 8 rows are, of the products; 0: there are none */
    size_t smem;    /* dynamic shared memory: the most that a launch would have had */
};

/* Lists what the calling thread's ops would launch, from here to orders_end, in orders[room]. More
 * of them are counted: with room 0 a list tells how long it is. */
void orders_begin(struct order_list *list, struct order *orders, int room);
void orders_end();

/* If a list is being made, what it is made for cannot be orders, because of `misfit`, which must
 * never be freed. The first one that is said is kept. Returns whether a list is being made. */
bool orders_refuse(const char *misfit);
constexpr const char *MISFIT_WEIGHTS = "its weights are not of 16 bits";

/* What an order is beside its arguments. */
struct order_head {
    enum order_kind kind;
    int items, across;
    enum dtype type; /* see the kinds */
    enum dtype act;  /* of its activations; DTYPE_F32: it has none */
    int groups;      /* of 8 rows, of products; else 0 */
    size_t smem;
};

/* Adds an order; false where no list is being made, and the caller launches. */
bool orders_add(const struct order_head &head, const void *args, size_t bytes);

/* Adds an order, or launches what does the same. */
template <class A>
void launch_or_order(const struct order_head &head, void (*kernel)(A), dim3 grid, dim3 block,
                     cudaStream_t stream, const A &args) {
    if (!orders_add(head, &args, sizeof args)) launch(kernel, grid, block, head.smem, stream, args);
}

#endif
