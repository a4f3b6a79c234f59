/* Persistent steps: turns a list of orders into a cooperative launch. */
#include "kernels/cuda/persistent/persistent.cuh"

#include <stdlib.h>

#include "kernels/cuda/runtime/runtime.cuh"

/* The maximum dynamic shared memory of a block. The smallest device allows 99 KiB; the kernel's own
 * variables, including two orders, take up to 2 KiB. */
constexpr size_t STEP_SMEM = 97 << 10;

/* ---- open and close ------------------------------------------------------------------------- */

enum status persistent_open(struct persistent *all, bool wanted, const cudaDeviceProp *prop,
                            struct err *err) {
    static const struct alloc_hint hint = {"the barrier of persistent steps", NULL,
                                           "leave {persistent-step} out"};
    int device = 0, cooperates = 0;
    *all = {};
    if (!wanted) return STATUS_OK;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&cooperates, cudaDevAttrCooperativeLaunch, device) != cudaSuccess)
        cooperates = 0;
    if (!cooperates)
        return err_set(
            err, STATUS_USAGE, "persistent-step",
            "{persistent-step}: %s cannot launch cooperative grids; leave the option out",
            prop->name);
    void *word = nullptr;
    const enum status status = device_calloc(&word, sizeof *all->word, &hint, err);
    all->multiprocessors = prop->multiProcessorCount;
    all->word = (unsigned *)word;
    return status;
}

void persistent_close(struct persistent *all) {
    cuda_check(cudaFree(all->word), "freeing a barrier");
    cuda_check(cudaFree(all->device), "freeing orders");
    cuda_check(cudaFreeHost(all->host), "freeing orders");
    free(all->steps);
    *all = {};
}

/* ---- start-up ------------------------------------------------------------------------------- */

static step_kernel_type *kernel_of(const struct order_list *list) {
    return list->act == DTYPE_F16 ? step_kernel_f16(list->groups) : step_kernel_bf16(list->groups);
}

static const char *misfit_of(const struct order_list *list) {
    if (list->misfit) return list->misfit;
    if (list->n == 0 || list->groups == 0) return "it has no products";
    return list->smem > STEP_SMEM ? "its rows do not fit a block's shared memory" : nullptr;
}

/* Returns the number of resident blocks of the kernel, each with the maximum of shared memory,
 * which it is allowed from here on; 0 if the device refuses. */
static int blocks_at_once(const struct persistent *all, step_kernel_type *kernel) {
    const void *function = reinterpret_cast<const void *>(kernel);
    int each = 0;
    cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)STEP_SMEM);
    if (error == cudaSuccess)
        error =
            cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, function, STEP_THREADS, STEP_SMEM);
    if (error == cudaSuccess) return each * all->multiprocessors;
    cudaGetLastError(); /* the error is handled here */
    return 0;
}

bool persistent_consider(struct persistent *all, int rows, void (*queue)(void *arg), void *arg) {
    struct order_list list;
    assert(all->word && rows > all->max_rows && rows <= STEP_ROWS && !all->misfit);
    orders_begin(&list, nullptr, 0);
    queue(arg);
    orders_end();
    all->misfit = misfit_of(&list);
    if (all->misfit) return false;
    const int blocks = blocks_at_once(all, kernel_of(&list));
    if (blocks == 0) {
        all->misfit = "the device does not support a block with 97 KiB of shared memory";
        return false;
    }
    all->blocks = all->max_rows ? min_int(all->blocks, blocks) : blocks;
    all->n_orders = max_int(all->n_orders, list.n);
    all->max_rows = rows;
    return true;
}

static void say_decision(const struct persistent *all) {
    const char *why = all->misfit ? all->misfit : "no step was considered";
    if (all->max_rows == 0)
        log_line(LOG_WARNING,
                 "persistent-step: no decode step is one grid of this model, because %s", why);
    else
        log_line(LOG_INFO,
                 "persistent-step: decode steps of up to %d rows are one grid of %d blocks, of "
                 "%d orders; larger ones are not%s%s",
                 all->max_rows, all->blocks, all->n_orders, all->misfit ? ", because " : "",
                 all->misfit ? all->misfit : "");
}

enum status persistent_plan(struct persistent *all, int n_steps, struct err *err) {
    static const struct alloc_hint hint = {"the orders of persistent steps", NULL,
                                           "leave {persistent-step} out"};
    assert(n_steps >= 0 && !all->steps && !all->host && !all->device);
    const size_t n = (size_t)n_steps * (size_t)all->n_orders, bytes = n * sizeof(struct order);
    void *host = nullptr, *device = nullptr;
    enum status status = pinned_alloc(&host, bytes, &hint, err);
    all->host = (struct order *)host;
    if (!status) status = device_alloc(&device, bytes, &hint, err);
    all->device = (struct order *)device;
    if (status) return status;
    all->n_steps = n_steps;
    all->steps = (struct persistent_step *)mem_calloc((size_t)n_steps, sizeof *all->steps);
    for (int i = 0; i < n_steps; i++)
        all->steps[i].orders = all->device + (size_t)i * (size_t)all->n_orders;
    say_decision(all);
    return STATUS_OK;
}

/* ---- recording ------------------------------------------------------------------------------ */

static void refuse(struct persistent *all, const char *why) {
    if (!all->said_why_not)
        log_line(LOG_WARNING, "persistent-step: a step is launched as a graph, because %s", why);
    all->said_why_not = true;
}

static struct persistent_step *free_step(struct persistent *all) {
    int i = 0;
    while (i < all->n_steps && all->steps[i].taken) i++;
    assert(i < all->n_steps); /* there are at most as many as graphs */
    return &all->steps[i];
}

struct persistent_step *persistent_record(struct persistent *all, cudaStream_t stream,
                                          void (*queue)(void *arg), void *arg) {
    struct order_list list;
    struct persistent_step *step = free_step(all);
    struct order *host = all->host + (step->orders - all->device);
    orders_begin(&list, host, all->n_orders);
    queue(arg);
    orders_end();
    const char *misfit = misfit_of(&list);
    if (!misfit && list.n > list.room) misfit = "it has too many orders";
    if (misfit) {
        refuse(all, misfit);
        return nullptr;
    }
    step->taken = true;
    step->n = list.n;
    step->smem = list.smem;
    step->kernel = kernel_of(&list);
    cuda_check(cudaMemcpyAsync(step->orders, host, (size_t)list.n * sizeof *host,
                               cudaMemcpyHostToDevice, stream),
               "copying orders");
    return step;
}

void persistent_free(struct persistent_step *step) {
    if (step) step->taken = false;
}

/* ---- launching ------------------------------------------------------------------------------ */

bool persistent_launch(struct persistent *all, const struct persistent_step *step,
                       cudaStream_t stream) {
    assert(step->taken && step->n > 0 && all->blocks > 0);
    if (cuda_failed()) return true;
    cudaLaunchAttribute together = {};
    together.id = cudaLaunchAttributeCooperative;
    together.val.cooperative = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)all->blocks);
    config.blockDim = dim3(STEP_THREADS);
    config.dynamicSmemBytes = step->smem;
    config.stream = stream;
    config.attrs = &together;
    config.numAttrs = 1;
    const struct order *orders = step->orders;
    const cudaError_t error = cudaLaunchKernelEx(&config, step->kernel, orders, step->n, all->word);
    if (error != cudaErrorMemoryAllocation && error != cudaErrorCooperativeLaunchTooLarge) {
        cuda_check(error, "a persistent step's launch");
        all->launched += error == cudaSuccess;
        return true;
    }
    cudaGetLastError(); /* the error is handled here */
    refuse(all, error == cudaErrorMemoryAllocation ? "memory is lacking" : "the grid is too large");
    all->max_rows = 0;
    return false;
}
