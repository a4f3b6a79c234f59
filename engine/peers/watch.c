/* DESIGN: watches the other processes.
 *
 * Purpose   MPI waits forever for a process that has ended. So a thread of each process finds lost
 *           peers, and the functions that wait look at its flag.
 * Signs     A process on the same machine is held by a pidfd: the thread sleeps in poll and wakes
 *           when one ends. In each period the thread also sends a beat to every peer and takes the
 *           beats that arrived. A peer without a beat for the timeout is lost: its machine or the
 *           network is gone, or the process is stopped. A process that computes still sends beats.
 * Threads   The thread alone uses the communicator `beats` and the array `peer`. `lost` is an
 *           atomic flag; the reason and the callback are under the mutex.
 * End       Open MPI may not return after a loss: over TCP it sends a message to mpirun and waits
 *           for an answer, which does not arrive if mpirun ends all processes (its default). So
 *           this thread waits for the process to end, and ends it if that takes too long.
 * Late      After a pause of this process itself, the beats wait in its sockets. So a late period
 *           counts as a sign of life of all peers. */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/peers/internal.h"

enum { BEAT_TAG = 1, PERIODS_A_TIMEOUT = 5, MOST_PERIOD_MS = 1000 };

void peers_lose(struct peers *peers, int rank, const char *why) {
    assert(rank >= 0 && rank < peers->n);
    pthread_mutex_lock(&peers->mutex);
    if (!atomic_load(&peers->lost)) {
        const bool is_sentence = *why && why[strlen(why) - 1] == '.';
        err_set(&peers->why, STATUS_SERVER_ERROR, NULL, "Rank %d of %d is lost: %s%s", rank,
                peers->n, why, is_sentence ? "" : ".");
        snprintf(peers->why.code, sizeof peers->why.code, "rank_lost");
        atomic_store(&peers->lost, true);
        for (int i = 0; i < peers->n_on_loss; i++) peers->on_loss[i].fn(peers->on_loss[i].arg);
    }
    pthread_mutex_unlock(&peers->mutex);
}

void peers_fail(struct peers *peers, const char *why) {
    peers_lose(peers, peers->rank, why);
}

bool peers_lost(struct peers *peers, struct err *err) {
    if (!atomic_load(&peers->lost)) return false;
    pthread_mutex_lock(&peers->mutex);
    if (err) *err = peers->why;
    pthread_mutex_unlock(&peers->mutex);
    return true;
}

void peers_on_loss(struct peers *peers, void (*fn)(void *arg), void *arg) {
    pthread_mutex_lock(&peers->mutex);
    assert(fn && peers->n_on_loss < MAX_LOSS_CALLS);
    peers->on_loss[peers->n_on_loss++] = (struct peers_call){fn, arg};
    if (atomic_load(&peers->lost)) fn(arg);
    pthread_mutex_unlock(&peers->mutex);
}

void peers_off_loss(struct peers *peers, void (*fn)(void *arg)) {
    int left = 0;
    pthread_mutex_lock(&peers->mutex);
    for (int i = 0; i < peers->n_on_loss; i++)
        if (peers->on_loss[i].fn != fn) peers->on_loss[left++] = peers->on_loss[i];
    peers->n_on_loss = left;
    pthread_mutex_unlock(&peers->mutex);
}

/* ---- one period ----------------------------------------------------------------------------- */

static void expect_beat(struct peers *peers, int r) {
    struct watched *peer = &peers->peer[r];
    MPI_Irecv(&peer->beat_in, 1, MPI_INT32_T, r, BEAT_TAG, peers->beats, &peer->in);
}

/* Takes the beats of a peer that have arrived. */
static void take_beats(struct peers *peers, int r, uint64_t now) {
    struct watched *peer = &peers->peer[r];
    for (int arrived = 1; arrived;) {
        if (MPI_Test(&peer->in, &arrived, MPI_STATUS_IGNORE) != MPI_SUCCESS) return;
        if (!arrived) return;
        peer->seen_ns = now;
        expect_beat(peers, r);
    }
}

/* Sends a beat, unless the last one is still being sent. */
static void send_beat(struct peers *peers, int r) {
    struct watched *peer = &peers->peer[r];
    int left = 0;
    if (MPI_Test(&peer->out, &left, MPI_STATUS_IGNORE) != MPI_SUCCESS || !left) return;
    peer->beat_out++;
    MPI_Isend(&peer->beat_out, 1, MPI_INT32_T, r, BEAT_TAG, peers->beats, &peer->out);
}

static void watch_once(struct peers *peers, uint64_t now, bool is_late) {
    char why[80];
    for (int r = 0; r < peers->n; r++) {
        struct watched *peer = &peers->peer[r];
        if (r == peers->rank) continue;
        take_beats(peers, r, now);
        if (is_late) peer->seen_ns = now;
        if (now - peer->seen_ns > peers->timeout_ns) {
            snprintf(why, sizeof why, "it gave no sign of life for %.1f s",
                     (double)(now - peer->seen_ns) * 1e-9);
            peers_lose(peers, r, why);
            return;
        }
        send_beat(peers, r);
    }
}

/* ---- the thread ----------------------------------------------------------------------------- */

static int period_ms(const struct peers *peers) {
    int ms = (int)(peers->timeout_ns / 1000000 / PERIODS_A_TIMEOUT);
    return ms < MOST_PERIOD_MS ? ms : MOST_PERIOD_MS;
}

/* Sleeps for a period, or until a process on this machine ends. Returns false if the thread shall
 * stop. */
static bool sleep_watching(struct peers *peers) {
    struct pollfd files[MAX_PEERS + 1];
    int ranks[MAX_PEERS + 1], n = 1;
    files[0] = (struct pollfd){.fd = peers->stop, .events = POLLIN};
    for (int r = 0; r < peers->n; r++) {
        if (peers->peer[r].pidfd < 0) continue;
        ranks[n] = r;
        files[n++] = (struct pollfd){.fd = peers->peer[r].pidfd, .events = POLLIN};
    }
    if (poll(files, (nfds_t)n, period_ms(peers)) <= 0) return true;
    if (files[0].revents) return false;
    for (int i = 1; i < n; i++)
        if (files[i].revents) peers_lose(peers, ranks[i], "its process has ended");
    return true;
}

/* After a loss, MPI may not return to the thread that called it. So the process gets some time to
 * tell its clients, and ends if it is still there after that. */
static void end_after_loss(struct peers *peers) {
    struct pollfd stop = {.fd = peers->stop, .events = POLLIN};
    if (!atomic_load(&peers->lost) || poll(&stop, 1, PEERS_END_MS) != 0) return;
    log_line(LOG_ERROR, "MPI does not return after the loss of a rank, so the process ends.");
    _exit(peers->loss_code);
}

static void *watch_main(void *arg) {
    struct peers *peers = arg;
    uint64_t last = now_ns();
    const uint64_t late = 3 * (uint64_t)period_ms(peers) * 1000000;
    while (sleep_watching(peers) && !atomic_load(&peers->lost)) {
        const uint64_t now = now_ns();
        watch_once(peers, now, now - last > late);
        last = now;
    }
    end_after_loss(peers);
    return NULL;
}

/* ---- start and stop ------------------------------------------------------------------------- */

/* Where a process runs: a pid names it only in the same pid namespace of the same machine. */
struct place {
    int32_t machine; /* the lowest rank of the machine */
    int32_t pid;
    uint64_t pid_namespace;
};

static struct place own_place(struct peers *peers) {
    MPI_Comm machine;
    struct place place = {.machine = peers->rank, .pid = (int32_t)getpid()};
    struct stat names;
    int32_t least = peers->rank;
    MPI_Comm_split_type(peers->words, MPI_COMM_TYPE_SHARED, peers->rank, MPI_INFO_NULL, &machine);
    MPI_Comm_size(machine, &peers->n_local);
    MPI_Comm_rank(machine, &peers->place);
    MPI_Allreduce(&least, &place.machine, 1, MPI_INT32_T, MPI_MIN, machine);
    MPI_Comm_free(&machine);
    if (stat("/proc/self/ns/pid", &names) == 0) place.pid_namespace = names.st_ino;
    return place;
}

/* Opens the pidfds of the processes on this machine. All live: they are in the last barrier. */
static void find_processes(struct peers *peers) {
    struct place all[MAX_PEERS], own = own_place(peers);
    MPI_Allgather(&own, sizeof own, MPI_BYTE, all, sizeof own, MPI_BYTE, peers->words);
    for (int r = 0; r < peers->n; r++) {
        bool is_near = r != peers->rank && all[r].machine == own.machine &&
                       all[r].pid_namespace == own.pid_namespace;
        peers->peer[r].pidfd = is_near ? (int)syscall(SYS_pidfd_open, all[r].pid, 0) : -1;
    }
    MPI_Barrier(peers->words);
}

enum status watch_start(struct peers *peers, struct err *err) {
    peers->stop = eventfd(0, EFD_CLOEXEC);
    if (peers->stop < 0)
        return err_set(err, STATUS_SYSTEM, NULL, "eventfd failed: %s", strerror(errno));
    find_processes(peers);
    for (int r = 0; r < peers->n; r++) {
        struct watched *peer = &peers->peer[r];
        peer->in = peer->out = MPI_REQUEST_NULL;
        peer->seen_ns = now_ns();
        if (r != peers->rank) expect_beat(peers, r);
    }
    peers->watches = pthread_create(&peers->thread, NULL, watch_main, peers) == 0;
    if (peers->watches) return STATUS_OK;
    return err_set(err, STATUS_SYSTEM, NULL, "the system cannot start a thread for the ranks");
}

/* Withdraws the expected beat: the peers have stopped to send any. */
static void end_beats(struct watched *peer) {
    if (peer->in != MPI_REQUEST_NULL) {
        MPI_Cancel(&peer->in);
        MPI_Wait(&peer->in, MPI_STATUS_IGNORE);
    }
    if (peer->out != MPI_REQUEST_NULL) MPI_Request_free(&peer->out);
}

void watch_stop(struct peers *peers) {
    const uint64_t one = 1;
    if (peers->watches && write(peers->stop, &one, sizeof one) == sizeof one)
        pthread_join(peers->thread, NULL);
    peers->watches = false;
    for (int r = 0; r < peers->n && !atomic_load(&peers->lost); r++)
        if (r != peers->rank) end_beats(&peers->peer[r]);
    for (int r = 0; r < peers->n; r++)
        if (peers->peer[r].pidfd >= 0) close(peers->peer[r].pidfd);
    if (peers->stop >= 0) close(peers->stop);
    peers->stop = -1;
}
