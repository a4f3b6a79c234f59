/* NCCL by dlopen, without its header: the functions and constants in use are declared below as
 * documented (docs.nvidia.com/deeplearning/nccl, "NCCL API"). */
#include "kernels/cuda/runtime/nccl.cuh"

#include <dlfcn.h>
#include <stdlib.h>

enum { NCCL_SUCCESS = 0, NCCL_UINT8 = 1 }; /* ncclSuccess, ncclUint8 */

static struct {
    int (*init_all)(struct ncclComm **comms, int n, const int *devices);
    int (*all_gather)(const void *send, void *received, size_t count, int type,
                      struct ncclComm *comm, cudaStream_t stream);
    int (*destroy)(struct ncclComm *comm);
    const char *(*error_text)(int result);
} library;

static void *find_in_library(const char *name) {
    static void *handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    return handle ? dlsym(handle, name) : nullptr;
}
static void *(*find_function)(const char *name) = find_in_library;

void nccl_find_with(void *(*find)(const char *name)) {
    find_function = find ? find : find_in_library;
}

template <class Function> static void resolve(Function **function, const char *name) {
    *function = reinterpret_cast<Function *>(find_function(name));
}

/* If a rank leaves a collective, the others wait forever. So the process ends if NCCL fails or if
 * any CUDA call has failed. */
[[noreturn]] static void end_process(int rank, const char *why) {
    log_line(LOG_ERROR, "%s The other ranks wait for rank %d, so the process ends at once.", why,
             rank);
    abort();
}

void nccl_gather(const struct cuda_group *group, int rank, const void *send, void *received,
                 size_t bytes, cudaStream_t stream) {
    struct err err;
    if (cuda_failure(&err)) end_process(rank, err.message);
    const int result =
        library.all_gather(send, received, bytes, NCCL_UINT8, group->comm[rank], stream);
    if (result == NCCL_SUCCESS) return;
    err_set(&err, STATUS_SERVER_ERROR, NULL, "NCCL has failed: gathering the ranks' rows: %s.",
            library.error_text(result));
    end_process(rank, err.message);
}

/* ---- the group of ranks --------------------------------------------------------------------- */

static void close_group(struct rank_group *head) {
    struct cuda_group *group = (struct cuda_group *)head;
    /* all collectives are complete */
    for (int r = 0; r < head->ranks; r++) library.destroy(group->comm[r]);
    free(group);
}

static enum status check_devices(int ranks, struct err *err) {
    int count = 0; /* not written without a driver */
    if (cudaGetDeviceCount(&count) != cudaSuccess) {
        cudaGetLastError(); /* the error is handled here */
        count = 0;
    }
    if (ranks <= count) return STATUS_OK;
    return err_set(
        err, STATUS_USAGE, "tensor-parallel-size",
        "{tensor-parallel-size} %d: this machine has %d GPU%s that can be used, and every "
        "rank needs one",
        ranks, count, count == 1 ? "" : "s");
}

enum status rank_group_cuda_new(struct rank_group **out, int ranks, struct err *err) {
    int devices[MAX_RANKS];
    assert(ranks >= 1 && ranks <= MAX_RANKS);
    *out = NULL;
    enum status status = check_devices(ranks, err);
    if (status) return status;
    resolve(&library.init_all, "ncclCommInitAll");
    resolve(&library.all_gather, "ncclAllGather");
    resolve(&library.destroy, "ncclCommDestroy");
    resolve(&library.error_text, "ncclGetErrorString");
    if (!library.init_all || !library.all_gather || !library.destroy || !library.error_text)
        return err_set(err, STATUS_USAGE, "tensor-parallel-size",
                       "{tensor-parallel-size} %d: several GPUs need NCCL, and libnccl.so.2 cannot "
                       "be loaded; install it, or give {tensor-parallel-size} 1",
                       ranks);
    struct cuda_group *group = (struct cuda_group *)mem_calloc(1, sizeof *group);
    group->head = {ranks, close_group};
    for (int r = 0; r < ranks; r++) devices[r] = r;
    const int result = library.init_all(group->comm, ranks, devices);
    if (result != NCCL_SUCCESS) {
        free(group);
        return err_set(err, STATUS_USAGE, "tensor-parallel-size",
                       "{tensor-parallel-size} %d: NCCL cannot join the GPUs: %s", ranks,
                       library.error_text(result));
    }
    *out = &group->head;
    return STATUS_OK;
}
