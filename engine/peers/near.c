/* DESIGN: rows of processes on one machine.
 *
 * Purpose   Processes that share a machine gather rows in memory that all of them map, without
 *           messages: MPI copies a message twice, and large ones wait for the receiver.
 * Memory    A window of MPI: each process has a segment with two buffers of PEERS_ROWS numbers and
 *           a counter. A page takes memory after it was written.
 *
 *               rank 0   [sent][ buffer 0 | buffer 1 ]     gathering k uses buffer k % 2
 *               rank 1   [sent][ buffer 0 | buffer 1 ]     and ends when all have sent k
 *
 * Order     A process writes its rows, and then k into `sent`, which publishes them. It may write
 *           buffer k % 2 again at k + 2: the others have then sent k + 1, so they have added k.
 * Absent    If a process is on another machine, or MPI cannot make such windows (--mca osc ^sm),
 *           all processes send messages instead (mpi.c). */
#include <assert.h>
#include <string.h>

#include "engine/peers/internal.h"

struct near_segment {
    _Alignas(64) _Atomic uint64_t sent;
    _Alignas(64) float rows[2][PEERS_ROWS];
};

void near_open(struct peers *peers) {
    struct near_segment *own = NULL;
    int has_window = 0, all_have = 0;
    peers->window = MPI_WIN_NULL;
    if (peers->n_local == peers->n)
        has_window = MPI_Win_allocate_shared(sizeof *own, 1, MPI_INFO_NULL, peers->words, &own,
                                             &peers->window) == MPI_SUCCESS;
    MPI_Allreduce(&has_window, &all_have, 1, MPI_INT, MPI_MIN, peers->words);
    if (!all_have) {
        if (has_window) MPI_Win_free(&peers->window);
        peers->window = MPI_WIN_NULL;
        return;
    }
    atomic_init(&own->sent, 0);
    for (int r = 0; r < peers->n; r++) {
        MPI_Aint bytes;
        int unit;
        MPI_Win_shared_query(peers->window, r, &bytes, &unit, &peers->segment[r]);
        assert((size_t)bytes >= sizeof *own);
    }
    MPI_Barrier(peers->words);
}

void near_close(struct peers *peers) {
    if (peers->window != MPI_WIN_NULL) MPI_Win_free(&peers->window);
    peers->window = MPI_WIN_NULL;
}

/* Waits until a process has sent its rows of gathering k. */
static bool near_wait(struct peers *peers, const struct near_segment *other, uint64_t k) {
    enum { LOOKS_A_PAUSE = 64 }; /* a look at the clock takes as long as some looks at memory */
    struct wait wait = wait_begin(true);
    while (atomic_load_explicit(&other->sent, memory_order_acquire) < k) {
        if (atomic_load(&peers->lost)) return false;
        for (int i = 0; i < LOOKS_A_PAUSE; i++) {
            if (atomic_load_explicit(&other->sent, memory_order_acquire) >= k) return true;
            __builtin_ia32_pause();
        }
        if (wait_pause(peers, &wait)) return false;
    }
    return true;
}

bool near_gather(struct peers *peers, const float *mine, int n, const float *rows[]) {
    struct near_segment *own = peers->segment[peers->rank];
    const uint64_t k = atomic_load(&own->sent) + 1;
    assert(n > 0 && n <= PEERS_ROWS && peers->window != MPI_WIN_NULL);
    memcpy(own->rows[k % 2], mine, (size_t)n * sizeof *mine);
    atomic_store_explicit(&own->sent, k, memory_order_release);
    for (int r = 0; r < peers->n; r++) {
        const struct near_segment *other = peers->segment[r];
        if (r != peers->rank && !near_wait(peers, other, k)) return false;
        rows[r] = r == peers->rank ? mine : other->rows[k % 2];
    }
    return true;
}
