/* kernels/gpu_group: GPUs that compute one model together, each in a process of its own. The
 * functions are kernels/cuda/runtime's; without the CUDA toolkit they fail as backend_cuda_open
 * does. gpu_group_abort is also for the ranks of one process (rank_group_cuda_new). */
#ifndef PENSTOCK_KERNELS_GPU_GROUP_H
#define PENSTOCK_KERNELS_GPU_GROUP_H

#include "kernels/backend.h"

/* Selects the GPU of the calling thread, for the process `place` (0, 1, ..) of the processes of one
 * model on this machine: the GPU with that number, or the only one that this process sees. Returns
 * its number. backend_cuda_find then finds that one, or reports that it does not exist. */
int gpu_select(int place);

/* The name of a group: bytes of NCCL. */
struct gpu_group_id {
    char bytes[128];
};

/* A process that joins a group. */
struct gpu_join {
    struct gpu_group_id id;
    int ranks, rank;
    int gpu; /* the number of its GPU */
    /* Called if this process cannot meet the others any more: its GPU or NCCL has failed. `why` is
     * a sentence. Called at most once, on the thread of its backend. */
    void (*lose)(void *arg, const char *why);
    void *arg;
};

/* Makes a group's name, in one process for all. Fails with STATUS_USAGE if NCCL cannot be loaded,
 * and so does gpu_group_check, which every process calls before it joins. */
enum status gpu_group_id(struct gpu_group_id *id, struct err *err);
enum status gpu_group_check(struct err *err);

/* Joins, and waits until all processes have joined. Fails with STATUS_USAGE. The backend of the
 * group opens the GPU that joined. Close the group in all processes at the same time
 * (rank_group_close): closing waits for the others, too. */
enum status gpu_group_join(struct rank_group **out, const struct gpu_join *join, struct err *err);

/* Ends the work on this process's GPUs that waits for a lost rank. Later passes give undefined
 * numbers. Any thread. */
void gpu_group_abort(struct rank_group *group);

/* Returns true if all work that a CUDA backend has queued is done, without waiting for it. If the
 * device has failed at it, `failed` returns true from then on. */
bool gpu_is_idle(struct backend *b);

#endif
