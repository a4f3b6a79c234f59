/* Persistent steps: from a list of orders to a cooperative launch. */
#include "kernels/cuda/persistent/persistent.cuh"

#include <stdlib.h>

#include "kernels/cuda/runtime/runtime.cuh"

/* What a block may have of dynamic shared memory: the smallest of the devices has 99 KiB, of which
 * the kernel's own variables, two orders among them, are up to 2. */
constexpr size_t STEP_SMEM = 97 << 10;

struct persistent_step {
    struct order *orders; /* device memory */
    int n, blocks;
    size_t smem;
    step_kernel_type *kernel;
};

/* ---- open and close ------------------------------------------------------------------------- */

enum status persistent_open(struct persistent *all, bool wanted, const cudaDeviceProp *prop,
                            struct err *err) {
    static const struct alloc_hint hint = {"the barrier of persistent steps", NULL,
                                           "leave --persistent-step out"};
    int device = 0, cooperates = 0;
    *all = {};
    if (!wanted) return STATUS_OK;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&cooperates, cudaDevAttrCooperativeLaunch, device) != cudaSuccess)
        cooperates = 0;
    if (!cooperates)
        return err_set(
            err, STATUS_USAGE, "persistent-step",
            "--persistent-step: %s cannot launch cooperative grids; leave the option out",
            prop->name);
    void *word = nullptr;
    const enum status status = device_calloc(&word, sizeof *all->word, &hint, err);
    all->wanted = status == STATUS_OK;
    all->multiprocessors = prop->multiProcessorCount;
    all->word = (unsigned *)word;
    return status;
}

void persistent_close(struct persistent *all) {
    cuda_check(cudaFree(all->word), "freeing a barrier");
    *all = {};
}

/* ---- recording ------------------------------------------------------------------------------ */

static void refuse(struct persistent *all, const char *why) {
    if (!all->said_why_not)
        log_line(LOG_WARNING, "--persistent-step: %s; such steps are graphs", why);
    all->said_why_not = true;
}

/* The blocks that are on the device at once. */
static int blocks_at_once(const struct persistent *all, step_kernel_type *kernel, size_t smem) {
    int each = 0;
    allow_smem(kernel, STEP_SMEM);
    const cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &each, reinterpret_cast<const void *>(kernel), STEP_THREADS, smem);
    return error == cudaSuccess ? each * all->multiprocessors : 0;
}

/* Copies a list to the device. */
static bool place(struct persistent_step *step, const struct order_list *list,
                  cudaStream_t stream) {
    const size_t bytes = (size_t)list->n * sizeof *list->orders;
    void *memory = nullptr;
    if (!cuda_alloc_ok(cudaMalloc(&memory, bytes))) return false;
    step->orders = (struct order *)memory;
    step->n = list->n;
    return cuda_ok(cudaMemcpyAsync(memory, list->orders, bytes, cudaMemcpyHostToDevice, stream),
                   "copying orders") &&
           cuda_ok(cudaStreamSynchronize(stream), "waiting for orders");
}

static struct persistent_step *make(struct persistent *all, const struct order_list *list,
                                    cudaStream_t stream) {
    if (list->useless || list->n == 0 || list->groups == 0 || list->smem > STEP_SMEM) {
        refuse(all, "this model has ops that one grid cannot do");
        return nullptr;
    }
    auto *step = (struct persistent_step *)mem_calloc(1, sizeof(struct persistent_step));
    step->kernel =
        list->act == DTYPE_F16 ? step_kernel_f16(list->groups) : step_kernel_bf16(list->groups);
    step->smem = list->smem;
    step->blocks = blocks_at_once(all, step->kernel, step->smem);
    if (step->blocks > 0 && place(step, list, stream)) return step;
    refuse(all, step->blocks > 0 ? "memory is lacking" : "a block does not fit the device");
    persistent_free(step);
    return nullptr;
}

struct persistent_step *persistent_record(struct persistent *all, cudaStream_t stream,
                                          void (*queue)(void *arg), void *arg) {
    struct order_list list;
    orders_begin(&list);
    queue(arg);
    orders_end();
    struct persistent_step *step = make(all, &list, stream);
    orders_free(&list);
    return step;
}

void persistent_free(struct persistent_step *step) {
    if (!step) return;
    cuda_check(cudaFree(step->orders), "freeing orders");
    free(step);
}

/* ---- launching ------------------------------------------------------------------------------ */

bool persistent_launch(struct persistent *all, const struct persistent_step *step,
                       cudaStream_t stream) {
    if (cuda_failed()) return true;
    cudaLaunchAttribute together = {};
    together.id = cudaLaunchAttributeCooperative;
    together.val.cooperative = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)step->blocks);
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
    cudaGetLastError(); /* handled here */
    refuse(all, error == cudaErrorMemoryAllocation ? "memory is lacking" : "the grid is too large");
    all->wanted = false;
    return false;
}
