#include "tests/cuda/nccl_stand_in.h"

#include <condition_variable>
#include <mutex>
#include <string.h>

#include "kernels/cuda/runtime/nccl.cuh"
#include "tests/cuda/support.h"

enum { SUCCESS = 0, UNHANDLED_ERROR = 1, UINT8 = 1 };

/* One rank's end of the communication. */
struct ncclComm {
    int rank;
};

static enum nccl_state now;
static int ranks, n_open, meetings;
static const void *sent[MAX_RANKS];
static size_t sent_bytes[MAX_RANKS];
static std::mutex mutex;
static std::condition_variable all_here;
static int here;
static unsigned generation;

static void meet() {
    std::unique_lock<std::mutex> lock(mutex);
    const unsigned seen = generation;
    if (++here < ranks) {
        all_here.wait(lock, [&] { return generation != seen; });
        return;
    }
    here = 0;
    generation++;
    all_here.notify_all();
}

static int init_all(struct ncclComm **comms, int n, const int *devices) {
    if (now == NCCL_IS_BROKEN) return UNHANDLED_ERROR;
    ranks = n;
    for (int r = 0; r < n; r++) {
        ck_assert_int_eq(devices[r], r);
        comms[r] = new ncclComm{r};
        n_open++;
    }
    return SUCCESS;
}

static int destroy(struct ncclComm *comm) {
    delete comm;
    n_open--;
    return SUCCESS;
}

static int all_gather(const void *send, void *received, size_t count, int type,
                      struct ncclComm *comm, cudaStream_t stream) {
    int device;
    if (now == NCCL_FAILS) return UNHANDLED_ERROR;
    ck_assert(type == UINT8 && cudaGetDevice(&device) == cudaSuccess && device == comm->rank);
    CUDA_OK(cudaStreamSynchronize(stream));
    sent[comm->rank] = send;
    sent_bytes[comm->rank] = count;
    meet();
    for (int r = 0; r < ranks; r++) {
        ck_assert_uint_eq(sent_bytes[r], count);
        CUDA_OK(cudaMemcpyAsync((char *)received + (size_t)r * count, sent[r], count,
                                cudaMemcpyDeviceToDevice, stream));
    }
    CUDA_OK(cudaStreamSynchronize(stream));
    meetings += comm->rank == 0;
    meet();
    return SUCCESS;
}

static const char *error_text(int) {
    return "out of luck";
}

static void *find(const char *name) {
    if (now == NCCL_IS_MISSING) return nullptr;
    if (!strcmp(name, "ncclCommInitAll")) return reinterpret_cast<void *>(init_all);
    if (!strcmp(name, "ncclCommDestroy")) return reinterpret_cast<void *>(destroy);
    if (!strcmp(name, "ncclGetErrorString")) return reinterpret_cast<void *>(error_text);
    if (!strcmp(name, "ncclAllGather") && now != NCCL_LACKS_A_FUNCTION)
        return reinterpret_cast<void *>(all_gather);
    return nullptr;
}

void nccl_stand_in(enum nccl_state state) {
    now = state;
    meetings = 0;
    nccl_find_with(find);
}

int nccl_stand_in_meetings() {
    return meetings;
}

int nccl_stand_in_open() {
    return n_open;
}
