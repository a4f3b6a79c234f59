/* DESIGN: NCCL by dlopen, without its header: the functions and constants in use are declared below
 * as documented (docs.nvidia.com/deeplearning/nccl, "NCCL API").
 *
 * Groups    The ranks are threads of one process (rank_group_cuda_new), or each is a process and
 *           has only its own communicator (gpu_group_join).
 * Threads   A rank's thread queues its gatherings. Any thread may abort the group, while a rank's
 *           thread waits on the device for a lost one. A rank's `mutex` keeps its gathering's call
 *           and the abort apart. A call that waits for a lost rank itself is aborted anyway, after
 *           ABORT_S.
 * Failure   If a rank leaves a collective, the others wait forever. If the ranks are threads, the
 *           rank whose NCCL or GPU has failed records that for the process (cuda_fail) and aborts
 *           the group; the engine then finds the failure and ends the server. If they are
 *           processes, it tells its owner (gpu_join.lose), which ends it; the others then find it
 *           lost and abort. */
#include "kernels/cuda/runtime/nccl.cuh"

#include <atomic>
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/cuda/runtime/runtime.cuh"
extern "C" {
#include "kernels/gpu_group.h"
}

enum { NCCL_SUCCESS = 0, NCCL_UINT8 = 1 }; /* ncclSuccess, ncclUint8 */
enum { ABORT_S = 1 };

static struct {
    int (*init_all)(struct ncclComm **comms, int n, const int *devices);
    int (*all_gather)(const void *send, void *received, size_t count, int type,
                      struct ncclComm *comm, cudaStream_t stream);
    int (*destroy)(struct ncclComm *comm);
    const char *(*error_text)(int result);
    int (*make_id)(struct gpu_group_id *id);
    int (*init_rank)(struct ncclComm **comm, int n, struct gpu_group_id id, int rank);
    int (*abort)(struct ncclComm *comm);
} library;

static void *find_in_library(const char *name) {
    static void *handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    return handle ? dlsym(handle, name) : nullptr;
}
static void *(*find_function)(const char *name) = find_in_library;

void nccl_find_with(void *(*find)(const char *name)) {
    find_function = find ? find : find_in_library;
}

template <class Function> static bool resolve(Function **function, const char *name) {
    *function = reinterpret_cast<Function *>(find_function(name));
    return *function != nullptr;
}

static bool library_open() {
    bool ok = resolve(&library.init_all, "ncclCommInitAll");
    ok &= resolve(&library.all_gather, "ncclAllGather");
    ok &= resolve(&library.destroy, "ncclCommDestroy");
    ok &= resolve(&library.error_text, "ncclGetErrorString");
    ok &= resolve(&library.make_id, "ncclGetUniqueId");
    ok &= resolve(&library.init_rank, "ncclCommInitRank");
    ok &= resolve(&library.abort, "ncclCommAbort");
    return ok;
}

/* ---- the group of ranks --------------------------------------------------------------------- */

/* A communicator per rank. Rank r of a group of threads uses device r. */
struct cuda_group {
    struct rank_group head;
    struct ncclComm *comm[MAX_RANKS]; /* of processes: NULL for the others */
    /* Of processes: */
    int gpu;
    void (*lose)(void *arg, const char *why); /* NULL: the ranks are threads */
    void *arg;
    std::atomic<bool> aborted;        /* the communicators must not be used any more */
    std::atomic<bool> told;           /* `lose` was called */
    pthread_mutex_t mutex[MAX_RANKS]; /* guards the calls with a rank's communicator */
};

static void close_group(struct rank_group *head) {
    struct cuda_group *group = (struct cuda_group *)head;
    /* all collectives are complete */
    for (int r = 0; r < head->ranks; r++)
        if (group->comm[r] && !group->aborted) library.destroy(group->comm[r]);
    for (pthread_mutex_t &mutex : group->mutex) pthread_mutex_destroy(&mutex);
    free(group);
}

static struct cuda_group *new_group(int ranks) {
    struct cuda_group *group = (struct cuda_group *)mem_calloc(1, sizeof *group);
    group->head.ranks = ranks;
    group->head.close = close_group;
    for (pthread_mutex_t &mutex : group->mutex) pthread_mutex_init(&mutex, NULL);
    return group;
}

int cuda_group_ranks(const struct cuda_group *group) {
    return group->head.ranks;
}

int nccl_gpu(const struct rank_group *head, int rank) {
    const struct cuda_group *group = (const struct cuda_group *)head;
    assert(rank >= 0 && rank < head->ranks);
    return group->lose ? group->gpu : rank;
}

/* After this no gathering begins, and one that waits on the device ends. */
void gpu_group_abort(struct rank_group *head) {
    struct cuda_group *group = (struct cuda_group *)head;
    struct timespec until;
    if (group->aborted.exchange(true)) return;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ABORT_S;
    for (int r = 0; r < head->ranks; r++) {
        if (!group->comm[r]) continue;
        const bool is_free = pthread_mutex_timedlock(&group->mutex[r], &until) == 0;
        library.abort(group->comm[r]);
        if (is_free) pthread_mutex_unlock(&group->mutex[r]);
    }
}

/* ---- gathering ------------------------------------------------------------------------------ */

static void lose(struct cuda_group *group, int rank, const char *why) {
    struct err lost;
    if (group->told.exchange(true)) return;
    if (group->lose) return group->lose(group->arg, why);
    err_set(&lost, STATUS_SERVER_ERROR, NULL, "Rank %d of %d is lost: %s", rank, group->head.ranks,
            why);
    cuda_fail(&lost);
    gpu_group_abort(&group->head);
}

static int gather(struct cuda_group *group, int rank, const void *send, void *received,
                  size_t bytes, cudaStream_t stream) {
    int result = NCCL_SUCCESS;
    pthread_mutex_lock(&group->mutex[rank]);
    if (!group->aborted)
        result = library.all_gather(send, received, bytes, NCCL_UINT8, group->comm[rank], stream);
    pthread_mutex_unlock(&group->mutex[rank]);
    return group->aborted ? (int)NCCL_SUCCESS : result;
}

void nccl_gather(struct cuda_group *group, int rank, const void *send, void *received, size_t bytes,
                 cudaStream_t stream) {
    struct err err;
    assert(rank >= 0 && rank < group->head.ranks && bytes > 0);
    if (cuda_failure(&err)) return lose(group, rank, err.message);
    assert(group->comm[rank]);
    const int result = gather(group, rank, send, received, bytes, stream);
    if (result == NCCL_SUCCESS) return;
    err_set(&err, STATUS_SERVER_ERROR, NULL, "NCCL has failed: gathering the ranks' rows: %s.",
            library.error_text(result));
    lose(group, rank, err.message);
}

/* ---- ranks that are threads ----------------------------------------------------------------- */

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

enum status gpu_group_check(struct err *err) {
    if (library_open()) return STATUS_OK;
    return err_set(err, STATUS_USAGE, "tensor-parallel-size",
                   "{tensor-parallel-size}: several GPUs need NCCL, and libnccl.so.2 cannot be "
                   "loaded; install it, or give {tensor-parallel-size} 1");
}

static enum status refuse_join(int result, int ranks, struct err *err) {
    return err_set(err, STATUS_USAGE, "tensor-parallel-size",
                   "{tensor-parallel-size} %d: NCCL cannot join the GPUs: %s. Each rank needs a "
                   "GPU of its own.",
                   ranks, library.error_text(result));
}

enum status rank_group_cuda_new(struct rank_group **out, int ranks, struct err *err) {
    int devices[MAX_RANKS];
    assert(ranks >= 1 && ranks <= MAX_RANKS);
    *out = NULL;
    enum status status = check_devices(ranks, err);
    if (!status) status = gpu_group_check(err);
    if (status) return status;
    struct cuda_group *group = new_group(ranks);
    for (int r = 0; r < ranks; r++) devices[r] = r;
    const int result = library.init_all(group->comm, ranks, devices);
    if (result != NCCL_SUCCESS) {
        group->aborted = true; /* there is nothing to destroy */
        close_group(&group->head);
        return refuse_join(result, ranks, err);
    }
    *out = &group->head;
    return STATUS_OK;
}

/* ---- ranks that are processes --------------------------------------------------------------- */

enum status gpu_group_id(struct gpu_group_id *id, struct err *err) {
    enum status status = gpu_group_check(err);
    if (status) return status;
    const int result = library.make_id(id);
    if (result == NCCL_SUCCESS) return STATUS_OK;
    return err_set(err, STATUS_USAGE, "tensor-parallel-size",
                   "{tensor-parallel-size}: NCCL cannot listen for the other GPUs: %s",
                   library.error_text(result));
}

enum status gpu_group_join(struct rank_group **out, const struct gpu_join *join, struct err *err) {
    assert(join->rank >= 0 && join->rank < join->ranks && join->ranks <= MAX_RANKS && join->lose);
    *out = NULL;
    enum status status = gpu_group_check(err);
    if (status) return status;
    const cudaError_t chosen = cudaSetDevice(join->gpu);
    if (chosen != cudaSuccess) {
        cudaGetLastError(); /* the error is handled here */
        return err_set(err, STATUS_USAGE, "device", "{device} cuda: GPU %d cannot be used: %s",
                       join->gpu, cudaGetErrorString(chosen));
    }
    struct cuda_group *group = new_group(join->ranks);
    group->gpu = join->gpu;
    group->lose = join->lose;
    group->arg = join->arg;
    const int result =
        library.init_rank(&group->comm[join->rank], join->ranks, join->id, join->rank);
    if (result != NCCL_SUCCESS) {
        group->aborted = true; /* there is nothing to destroy */
        close_group(&group->head);
        return refuse_join(result, join->ranks, err);
    }
    *out = &group->head;
    return STATUS_OK;
}
