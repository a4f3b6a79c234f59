/* DESIGN: the groups of ranks that are processes.
 *
 * CPUs      A gathering is one message to and from each other rank, or a meeting in shared memory
 *           (engine/peers).
 * GPUs      NCCL carries the rows (kernels/cuda/runtime/nccl.cu); MPI carries only its id.
 * Threads   The thread that runs a rank's passes gathers. If a peer is lost, the watching thread
 *           aborts a group of GPUs, because the rank's own thread may wait for the device. */
#include <assert.h>

#include "engine/ranks/internal.h"

/* ---- CPUs ----------------------------------------------------------------------------------- */

struct process_group {
    struct rank_group head;
    struct peers *peers;
};
static_assert((int)MOST_GATHERED <= (int)PEERS_ROWS,
              "the peers have room for the rows of a gathering");

static bool gather(struct rank_group *head, const float *mine, int n, const float *rows[]) {
    struct process_group *group = (struct process_group *)head;
    return peers_gather(group->peers, mine, n, rows);
}

static void close_group(struct rank_group *head) {
    mem_free(head);
}

struct rank_group *process_group_cpu(struct peers *peers) {
    struct process_group *group = mem_calloc(1, sizeof *group);
    group->head =
        (struct rank_group){.ranks = peers_count(peers), .close = close_group, .gather = gather};
    group->peers = peers;
    return &group->head;
}

/* ---- GPUs ----------------------------------------------------------------------------------- */

static void lose_self(void *arg, const char *why) {
    peers_fail(arg, why);
}

static void abort_work(void *arg) {
    gpu_group_abort(arg);
}

enum status process_group_cuda(struct rank_group **out, struct peers *peers,
                               const struct gpu_group_id *id, int gpu, struct err *err) {
    const struct gpu_join join = {.id = *id,
                                  .ranks = peers_count(peers),
                                  .rank = peers_rank(peers),
                                  .gpu = gpu,
                                  .lose = lose_self,
                                  .arg = peers};
    assert(gpu >= 0);
    enum status status = gpu_group_join(out, &join, err);
    if (!status) peers_on_loss(peers, abort_work, *out);
    return status;
}

void process_group_close(struct rank_group *group, struct peers *peers) {
    peers_off_loss(peers, abort_work);
    rank_group_close(group);
}
