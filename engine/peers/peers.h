/* engine/peers: the processes that one mpirun started, and messages between them. It knows MPI and
 * nothing of models.
 *
 * A `struct peers` belongs to the caller of peers_open. One thread at a time sends, receives and
 * gathers: the main thread while a server starts and ends, the engine thread while it serves. A
 * thread of this room watches the other processes. In a build without MPI (PENSTOCK_MPI) only
 * peers_open does something: it refuses to be one of several processes.
 *
 * A peer is lost if its process ends, or if nothing arrives from it for the timeout. All functions
 * that wait then return false, and so do all later calls. */
#ifndef PENSTOCK_ENGINE_PEERS_H
#define PENSTOCK_ENGINE_PEERS_H

#include "config/config.h"

struct peers;

enum { MAX_PEERS = 64, PEERS_END_MS = 5000 };

/* Joins the other processes and begins to watch them. If a call of MPI does not return after a
 * loss, so that peers_close is not called within PEERS_END_MS, the process ends with `loss_code`.
 * Sets *out to NULL if this process is alone. Fails with STATUS_USAGE if mpirun started several
 * processes and this build lacks MPI, or if there are more than MAX_PEERS. Call it once, on the
 * main thread. */
enum status peers_open(struct peers **out, int timeout_s, int loss_code, struct err *err);

/* Leaves. Rank 0 first sends its exit code to the others, whose peers_receive then fails. Waits for
 * all processes to leave, unless one is lost. NULL does nothing. */
void peers_close(struct peers *peers, int code);

/* Did mpirun start this process as one of several? Any thread. */
bool peers_started(void);

/* The number of this process; how many processes there are; how many are on this machine; how many
 * on this machine have lower numbers. Any thread. */
int peers_rank(const struct peers *peers);
int peers_count(const struct peers *peers);
int peers_local(const struct peers *peers);
int peers_place(const struct peers *peers);

/* Is a peer lost? If so, `err` (unless NULL) says which and why, with the code "rank_lost". Any
 * thread. */
bool peers_lost(struct peers *peers, struct err *err);

/* Declares this process lost, because it cannot go on. `why` is a sentence. The others find it lost
 * when it ends, which its caller sees to. Any thread. */
void peers_fail(struct peers *peers, const char *why);

/* Has rank 0 ended? If so, sets *code to its exit code. */
bool peers_ended(const struct peers *peers, int *code);

/* Calls fn(arg) when a peer is lost, mostly on the watching thread; at once if one was lost before.
 * At most MAX_LOSS_CALLS functions, in their order. After peers_off_loss, fn does not run. Any
 * thread. */
enum { MAX_LOSS_CALLS = 2 };
void peers_on_loss(struct peers *peers, void (*fn)(void *arg), void *arg);
void peers_off_loss(struct peers *peers, void (*fn)(void *arg));

/* Rank 0: sends a message to all others. `data` may be changed after the return. At most
 * PEERS_MESSAGE_BYTES. */
#define PEERS_MESSAGE_BYTES ((size_t)1 << 30)
bool peers_send_all(struct peers *peers, const void *data, size_t bytes);
/* Sends a message to one peer. */
bool peers_send(struct peers *peers, int to, const void *data, size_t bytes);

/* Waits for the next message of a peer, of at most `capacity` bytes, and sets *bytes. It sleeps
 * longer the longer it waits. Returns false if a peer is lost or rank 0 has ended. */
bool peers_receive(struct peers *peers, int from, void *data, size_t capacity, size_t *bytes);

/* Calls fn(arg) again and again while peers_receive waits, on its thread; NULL: nothing. */
void peers_meanwhile(struct peers *peers, void (*fn)(void *arg), void *arg);

/* Sends mine[n] to each peer, and sets rows[r] to the n numbers of rank r, for all ranks; rows of
 * the own rank are `mine`. They are valid until the next call. n is at most PEERS_ROWS. All
 * processes call it with the same n. */
enum { PEERS_ROWS = 1 << 18 };
bool peers_gather(struct peers *peers, const float *mine, int n, const float *rows[]);

#endif
