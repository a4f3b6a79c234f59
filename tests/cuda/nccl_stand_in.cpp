/* DESIGN: a stand-in for NCCL.
 *
 * Memory    A group is one piece of shared memory. Each rank has a slot for PIECE bytes, and counts
 *           the pieces that it has sent and the pieces that it has taken from all slots.
 * Order     A rank puts its next piece when all ranks have taken the one before, and takes a piece
 *           when all ranks have sent theirs. Both are work that may be blocked (enqueue_when).
 * Close     As in NCCL, a communicator of a process is destroyed when all ranks destroy theirs.
 * Abort     Work of an aborted communicator is not blocked any more and copies nothing. */
#include "tests/cuda/nccl_stand_in.h"

#include <algorithm>
#include <atomic>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/cuda/runtime/nccl.cuh"
extern "C" {
#include "kernels/gpu_group.h"
}
#include "tests/cuda_emu/internal.h"

enum { SUCCESS = 0, UNHANDLED_ERROR = 1, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, UINT8 = 1 };
enum { PIECE = 128 << 10, PAUSE_US = 200 };

/* One rank's part of a group, in shared memory. */
struct slot {
    std::atomic<int> device;
    std::atomic<uint64_t> sent, taken; /* pieces */
    std::atomic<uint64_t> bytes;       /* of the last piece */
    char data[PIECE];
};
struct meeting_place {
    std::atomic<int> joined, left;
    struct slot slot[MAX_RANKS];
};

/* One rank's end of the communication. */
struct ncclComm {
    struct meeting_place *place;
    int rank, ranks, device;
    std::atomic<bool> aborted;
    bool of_process;
};

static std::atomic<enum nccl_state> now;
static std::atomic<int> n_open, meetings, n_ids;

/* ---- opening -------------------------------------------------------------------------------- */

static int make_id(struct gpu_group_id *id) {
    if (now == NCCL_IS_BROKEN) return UNHANDLED_ERROR;
    *id = {};
    snprintf(id->bytes, sizeof id->bytes, "/penstock-nccl-%d-%d", (int)getpid(), n_ids++);
    const int file = shm_open(id->bytes, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file < 0) return UNHANDLED_ERROR;
    const bool is_made = ftruncate(file, sizeof(struct meeting_place)) == 0;
    close(file);
    return is_made ? SUCCESS : UNHANDLED_ERROR;
}

static struct ncclComm *open_comm(const struct gpu_group_id *id, int n, int rank, int device) {
    const int file = shm_open(id->bytes, O_RDWR, 0600);
    if (file < 0) return nullptr;
    void *place =
        mmap(nullptr, sizeof(struct meeting_place), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (place == MAP_FAILED) return nullptr;
    auto *comm = new ncclComm{(struct meeting_place *)place, rank, n, device, {false}, false};
    comm->place->slot[rank].device = device;
    comm->place->joined++;
    n_open++;
    return comm;
}

static int close_comm(struct ncclComm *comm) {
    munmap(comm->place, sizeof *comm->place);
    delete comm;
    n_open--;
    return SUCCESS;
}

static int init_all(struct ncclComm **comms, int n, const int *devices) {
    struct gpu_group_id id;
    if (make_id(&id) != SUCCESS) return UNHANDLED_ERROR;
    int result = SUCCESS;
    for (int r = 0; r < n; r++) {
        comms[r] = open_comm(&id, n, r, devices[r]);
        if (!comms[r] || devices[r] != r) result = INVALID_ARGUMENT;
    }
    shm_unlink(id.bytes);
    return result;
}

static int init_rank(struct ncclComm **comm, int n, struct gpu_group_id id, int rank) {
    int device;
    if (now == NCCL_IS_BROKEN || cudaGetDevice(&device) != cudaSuccess) return UNHANDLED_ERROR;
    *comm = open_comm(&id, n, rank, device);
    if (!*comm) return UNHANDLED_ERROR;
    (*comm)->of_process = true;
    while ((*comm)->place->joined < n) usleep(PAUSE_US);
    if (rank == 0) shm_unlink(id.bytes);
    for (int r = 0; r < n; r++)
        if (r != rank && (*comm)->place->slot[r].device == device) {
            close_comm(*comm);
            return INVALID_USAGE; /* as NCCL: "Duplicate GPU detected" */
        }
    return SUCCESS;
}

/* ---- closing -------------------------------------------------------------------------------- */

static int destroy(struct ncclComm *comm) {
    comm->place->left++;
    while (comm->of_process && comm->place->left < comm->ranks) usleep(PAUSE_US);
    return close_comm(comm);
}

/* Queued work may still refer to the communicator, so it is not freed. */
static int abort_comm(struct ncclComm *comm) {
    comm->aborted = true;
    n_open--;
    return SUCCESS;
}

/* ---- gathering ------------------------------------------------------------------------------ */

static bool all_have(const struct ncclComm *comm, std::atomic<uint64_t> slot::*count,
                     uint64_t least) {
    for (int r = 0; r < comm->ranks; r++)
        if (comm->place->slot[r].*count < least) return false;
    return true;
}

static bool may_put(const struct ncclComm *comm) {
    const struct slot *own = &comm->place->slot[comm->rank];
    return comm->aborted || all_have(comm, &slot::taken, own->sent);
}

static bool may_take(const struct ncclComm *comm) {
    const struct slot *own = &comm->place->slot[comm->rank];
    return comm->aborted || all_have(comm, &slot::sent, own->taken + 1);
}

static void put(struct ncclComm *comm, const char *from, size_t bytes) {
    struct slot *own = &comm->place->slot[comm->rank];
    if (comm->aborted) return;
    emu::device_copy(own->data, from, bytes);
    own->bytes = bytes;
    own->sent++;
}

static void take(struct ncclComm *comm, char *to, size_t stride, size_t bytes) {
    if (comm->aborted) return;
    for (int r = 0; r < comm->ranks; r++) {
        struct slot *slot = &comm->place->slot[r];
        if (slot->bytes != bytes)
            emu::report("NCCL", "rank %d sends %zu bytes, rank %d expects %zu", r,
                        (size_t)slot->bytes, comm->rank, bytes);
        emu::device_copy(to + (size_t)r * stride, slot->data, bytes);
    }
    comm->place->slot[comm->rank].taken++;
}

static int all_gather(const void *send, void *received, size_t count, int type,
                      struct ncclComm *comm, cudaStream_t stream) {
    int device;
    if (now == NCCL_FAILS || (now == NCCL_FAILS_AT_1 && comm->rank == 1)) return UNHANDLED_ERROR;
    if (type != UINT8 || cudaGetDevice(&device) != cudaSuccess || device != comm->device)
        return INVALID_ARGUMENT;
    const char *from = static_cast<const char *>(send);
    char *to = static_cast<char *>(received);
    for (size_t at = 0; at < count; at += PIECE) {
        const size_t bytes = std::min<size_t>(PIECE, count - at);
        const bool is_last = at + bytes == count;
        emu::enqueue_when(
            stream, [=] { return may_put(comm); }, [=] { put(comm, from + at, bytes); });
        emu::enqueue_when(
            stream, [=] { return may_take(comm); },
            [=] {
                take(comm, to + at, count, bytes);
                meetings += is_last && comm->rank == 0;
            });
    }
    return SUCCESS;
}

static const char *error_text(int result) {
    return result == INVALID_ARGUMENT ? "invalid argument"
           : result == INVALID_USAGE  ? "invalid usage"
                                      : "out of luck";
}

/* ---- the library ---------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void *function;
} functions[] = {
    {"ncclCommInitAll", reinterpret_cast<void *>(init_all)},
    {"ncclCommInitRank", reinterpret_cast<void *>(init_rank)},
    {"ncclGetUniqueId", reinterpret_cast<void *>(make_id)},
    {"ncclCommDestroy", reinterpret_cast<void *>(destroy)},
    {"ncclCommAbort", reinterpret_cast<void *>(abort_comm)},
    {"ncclGetErrorString", reinterpret_cast<void *>(error_text)},
    {"ncclAllGather", reinterpret_cast<void *>(all_gather)},
};

static void *find(const char *name) {
    if (now == NCCL_IS_MISSING) return nullptr;
    if (now == NCCL_LACKS_A_FUNCTION && !strcmp(name, "ncclAllGather")) return nullptr;
    for (const auto &one : functions)
        if (!strcmp(one.name, name)) return one.function;
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
