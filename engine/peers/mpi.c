/* DESIGN: messages between the processes of one mpirun.
 *
 * Purpose   Rank 0 sends actions to the other ranks, and all ranks gather their rows: by messages
 *           here, or in shared memory (near.c).
 * Waiting   MPI's own waits use a whole core. Every wait here posts its requests and tests them:
 *           first without a pause, because most answers take microseconds, and then with sleeps
 *           of at most an eighth of the time waited so far. Between steps they are at most
 *           MOST_SLEEP_NS, so an idle rank uses less than a hundredth of a core, and the first step
 *           after a pause begins half a sleep later on average. Within a step they are at most
 *           MOST_STEP_SLEEP_NS.
 * Threads   One thread at a time uses `words`. The watching thread (watch.c) uses `beats`, so MPI
 *           is opened for several threads.
 * Failure   A wait ends without a result if a peer is lost. Its requests are then left alone: MPI
 *           is not called again, and the process ends soon. So buffers of requests may be freed.
 * End       Rank 0 sends its exit code with a tag of its own, which every wait of the others looks
 *           for. They then leave, and all meet in MPI_Finalize. After a loss no process waits for
 *           another. */
#include <assert.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "engine/peers/internal.h"

enum { WORD_TAG = 1, ROW_TAG = 2, END_TAG = 3 };

/* Times of a wait in nanoseconds: without a pause, with sched_yield, and the sleeps after that. */
enum { SPIN_NS = 100000, YIELD_NS = 20000000, CROWDED_YIELD_NS = 200000 };
enum { LEAST_SLEEP_NS = 50000, MOST_SLEEP_NS = 10000000, SLEEP_SHARE = 8 };
enum { MOST_STEP_SLEEP_NS = 200000 }; /* while a step runs: the others compute */
enum { PAUSES_A_LOOK = 8 };           /* the end of rank 0 may be noticed later than a message */

/* ---- waiting -------------------------------------------------------------------------------- */

struct wait wait_begin(bool in_step) {
    return (struct wait){now_ns(), in_step ? MOST_STEP_SLEEP_NS : MOST_SLEEP_NS, 0};
}

/* Returns false in the first moments, in which the caller only looks. */
static bool pause_longer(const struct peers *peers, struct wait *wait) {
    const uint64_t yield_ns = peers->crowded ? CROWDED_YIELD_NS : YIELD_NS;
    const uint64_t waited = now_ns() - wait->began_ns;
    if (waited < SPIN_NS && !peers->crowded) return false;
    wait->n_pauses++;
    if (waited < yield_ns) {
        sched_yield();
        return true;
    }
    uint64_t sleep_ns = waited / SLEEP_SHARE;
    if (sleep_ns < LEAST_SLEEP_NS) sleep_ns = LEAST_SLEEP_NS;
    if (sleep_ns > wait->most_sleep_ns) sleep_ns = wait->most_sleep_ns;
    nanosleep(&(struct timespec){.tv_nsec = (long)sleep_ns}, NULL);
    return true;
}

/* Has rank 0 sent its exit code? */
static bool has_ended(struct peers *peers) {
    int arrived = 0;
    if (peers->rank == 0 || peers->ended) return peers->ended;
    if (MPI_Test(&peers->end, &arrived, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    peers->ended = arrived;
    return peers->ended;
}

static bool is_time_to_look(const struct wait *wait) {
    return wait->n_pauses % PAUSES_A_LOOK == 0;
}

bool wait_pause(struct peers *peers, struct wait *wait) {
    return pause_longer(peers, wait) && is_time_to_look(wait) && has_ended(peers);
}

/* Waits until all requests are complete. Without `in_step` the wait may be long, and calls
 * peers->meanwhile in its pauses. Returns false if a peer is lost or rank 0 has ended. */
static bool wait_all(struct peers *peers, MPI_Request *requests, int n, MPI_Status *statuses,
                     bool in_step) {
    const struct peers_call *call = &peers->meanwhile;
    struct wait wait = wait_begin(in_step);
    while (!atomic_load(&peers->lost)) {
        int done = 0;
        if (MPI_Testall(n, requests, &done, statuses) != MPI_SUCCESS) {
            peers_lose(peers, peers->rank == 0 ? 1 : 0, "MPI reports an error");
            return false;
        }
        if (done) return true;
        const bool has_paused = pause_longer(peers, &wait);
        if (has_paused && !in_step && call->fn) call->fn(call->arg);
        if (has_paused && is_time_to_look(&wait) && has_ended(peers)) return false;
    }
    return false;
}

/* ---- messages ------------------------------------------------------------------------------- */

static bool send_tagged(struct peers *peers, int first, int last, const void *data, size_t bytes,
                        int tag) {
    MPI_Request requests[MAX_PEERS];
    int n = 0;
    assert(bytes > 0 && bytes <= PEERS_MESSAGE_BYTES && first >= 0 && last < peers->n);
    if (atomic_load(&peers->lost)) return false;
    for (int r = first; r <= last; r++)
        MPI_Isend(data, (int)bytes, MPI_BYTE, r, tag, peers->words, &requests[n++]);
    return wait_all(peers, requests, n, MPI_STATUSES_IGNORE, true);
}

bool peers_send_all(struct peers *peers, const void *data, size_t bytes) {
    assert(peers->rank == 0);
    return send_tagged(peers, 1, peers->n - 1, data, bytes, WORD_TAG);
}

bool peers_send(struct peers *peers, int to, const void *data, size_t bytes) {
    assert(to != peers->rank);
    return send_tagged(peers, to, to, data, bytes, WORD_TAG);
}

bool peers_receive(struct peers *peers, int from, void *data, size_t capacity, size_t *bytes) {
    MPI_Request request;
    MPI_Status status;
    int n = 0;
    assert(from != peers->rank && capacity > 0);
    if (atomic_load(&peers->lost) || peers->ended) return false;
    if (capacity > PEERS_MESSAGE_BYTES) capacity = PEERS_MESSAGE_BYTES;
    MPI_Irecv(data, (int)capacity, MPI_BYTE, from, WORD_TAG, peers->words, &request);
    if (!wait_all(peers, &request, 1, &status, false)) return false;
    MPI_Get_count(&status, MPI_BYTE, &n);
    assert(n > 0 && (size_t)n <= capacity);
    *bytes = (size_t)n;
    return true;
}

bool peers_ended(const struct peers *peers, int *code) {
    if (peers->ended) *code = peers->code;
    return peers->ended;
}

/* Receives are posted first, so that arriving rows have a place. */
static bool far_gather(struct peers *peers, const float *mine, int n) {
    MPI_Request requests[2 * MAX_PEERS];
    int k = 0;
    for (int r = 0; r < peers->n; r++) {
        if (r == peers->rank) continue;
        if (!peers->rows[r]) peers->rows[r] = mem_large(PEERS_ROWS * sizeof(float));
        MPI_Irecv(peers->rows[r], n, MPI_FLOAT, r, ROW_TAG, peers->words, &requests[k++]);
    }
    for (int r = 0; r < peers->n; r++)
        if (r != peers->rank)
            MPI_Isend(mine, n, MPI_FLOAT, r, ROW_TAG, peers->words, &requests[k++]);
    assert(k == 2 * (peers->n - 1));
    return wait_all(peers, requests, k, MPI_STATUSES_IGNORE, true);
}

bool peers_gather(struct peers *peers, const float *mine, int n, const float *rows[]) {
    assert(n > 0 && n <= PEERS_ROWS);
    if (atomic_load(&peers->lost)) return false;
    if (peers->window != MPI_WIN_NULL) return near_gather(peers, mine, n, rows);
    if (!far_gather(peers, mine, n)) return false;
    for (int r = 0; r < peers->n; r++) rows[r] = r == peers->rank ? mine : peers->rows[r];
    return true;
}

/* ---- open and close ------------------------------------------------------------------------- */

int peers_rank(const struct peers *peers) {
    return peers->rank;
}

int peers_count(const struct peers *peers) {
    return peers->n;
}

int peers_local(const struct peers *peers) {
    return peers->n_local;
}

int peers_place(const struct peers *peers) {
    return peers->place;
}

void peers_meanwhile(struct peers *peers, void (*fn)(void *arg), void *arg) {
    peers->meanwhile = (struct peers_call){fn, arg};
}

bool peers_started(void) {
    const char *n = getenv("OMPI_COMM_WORLD_SIZE");
    return n && atoi(n) > 1;
}

/* Opens MPI for several threads. It ends the process itself if it cannot start. */
static enum status start_mpi(struct err *err) {
    int provided = 0;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    if (provided >= MPI_THREAD_MULTIPLE) return STATUS_OK;
    MPI_Finalize();
    return err_set(err, STATUS_USAGE, NULL,
                   "this MPI does not support several threads (MPI_THREAD_MULTIPLE), which ranks "
                   "in several processes need: use Open MPI 4 or later");
}

enum status peers_open(struct peers **out, int timeout_s, int loss_code, struct err *err) {
    int n = 0;
    *out = NULL;
    assert(timeout_s > 0);
    if (!peers_started()) return STATUS_OK;
    enum status status = start_mpi(err);
    if (status) return status;
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    if (n > MAX_PEERS) {
        MPI_Finalize();
        return err_set(err, STATUS_USAGE, "tensor-parallel-size",
                       "mpirun started %d processes, and a model has at most %d ranks", n,
                       MAX_PEERS);
    }
    struct peers *peers = mem_calloc(1, sizeof *peers);
    *peers = (struct peers){.n = n,
                            .timeout_ns = (uint64_t)timeout_s * 1000000000u,
                            .loss_code = loss_code,
                            .stop = -1};
    MPI_Comm_rank(MPI_COMM_WORLD, &peers->rank);
    MPI_Comm_dup(MPI_COMM_WORLD, &peers->words);
    MPI_Comm_dup(MPI_COMM_WORLD, &peers->beats);
    MPI_Comm_set_errhandler(peers->words, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(peers->beats, MPI_ERRORS_RETURN);
    pthread_mutex_init(&peers->mutex, NULL);
    peers->end = MPI_REQUEST_NULL;
    if (peers->rank > 0) MPI_Irecv(&peers->code, 1, MPI_INT, 0, END_TAG, peers->words, &peers->end);
    *out = peers;
    status = watch_start(peers, err);
    near_open(peers);
    peers->crowded = peers->n_local > sysconf(_SC_NPROCESSORS_ONLN);
    assert(peers->n_local >= 1 && peers->n_local <= n);
    return status;
}

void peers_close(struct peers *peers, int code) {
    if (!peers) return;
    if (peers->rank == 0) send_tagged(peers, 1, peers->n - 1, &code, sizeof code, END_TAG);
    watch_stop(peers);
    if (!atomic_load(&peers->lost)) {
        near_close(peers);
        MPI_Finalize();
    }
    for (int r = 0; r < peers->n; r++)
        if (peers->rows[r]) mem_large_free(peers->rows[r], PEERS_ROWS * sizeof(float));
    pthread_mutex_destroy(&peers->mutex);
    mem_free(peers);
}
