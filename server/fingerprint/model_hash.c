/* DESIGN: the hash of a model's files, computed in the background.
 *
 * A model may be larger than memory, so reading it takes minutes. The thread begins at the first
 * need, with the lowest priority, and compares a flag after each piece, so that a server can end
 * meanwhile. `mutex` guards the state and the list of waiters, and is held while they are resumed,
 * so a waiter that has left is never resumed. The result never changes.
 */
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "server/fingerprint/hash.h"

enum hash_state { HASH_IDLE, HASH_RUNS, HASH_ENDED };

struct model_hash {
    const char *path;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    enum hash_state state;
    atomic_bool stops;
    struct list waiters;
    struct err err; /* STATUS_OK: `hex` is the hash */
    char hex[HASH_DIGITS + 1];
};

/* ---- the thread ----------------------------------------------------------------------------- */

static void resume_all(struct model_hash *hash) {
    for (struct list_node *node; (node = list_first(&hash->waiters));) {
        struct hash_waiter *waiter = list_entry(node, struct hash_waiter, node);
        list_remove(&hash->waiters, node);
        waiter->resume(waiter);
    }
}

static void *run(void *arg) {
    struct model_hash *hash = arg;
    setpriority(PRIO_PROCESS, (id_t)gettid(), 19); /* of this thread */
    files_hash(hash->hex, hash->path, &hash->stops, &hash->err);
    pthread_mutex_lock(&hash->mutex);
    assert(hash->state == HASH_RUNS);
    hash->state = HASH_ENDED;
    pthread_cond_broadcast(&hash->changed);
    resume_all(hash);
    pthread_mutex_unlock(&hash->mutex);
    return NULL;
}

struct model_hash *model_hash_new(const char *path) {
    struct model_hash *hash = mem_calloc(1, sizeof *hash);
    hash->path = path;
    pthread_mutex_init(&hash->mutex, NULL);
    pthread_cond_init(&hash->changed, NULL);
    list_init(&hash->waiters);
    return hash;
}

void model_hash_free(struct model_hash *hash) {
    if (!hash) return;
    assert(hash->waiters.n == 0);
    atomic_store(&hash->stops, true);
    if (hash->state != HASH_IDLE) pthread_join(hash->thread, NULL);
    pthread_mutex_destroy(&hash->mutex);
    pthread_cond_destroy(&hash->changed);
    mem_free(hash);
}

/* Begins, under the mutex. If the thread cannot start, hashing fails. */
static void begin(struct model_hash *hash) {
    if (hash->state != HASH_IDLE) return;
    hash->state = HASH_RUNS;
    hash->err = (struct err){0};
    int error = pthread_create(&hash->thread, NULL, run, hash);
    if (error == 0) return;
    hash->state = HASH_IDLE; /* the next request tries again */
    err_set(&hash->err, STATUS_UNAVAILABLE, NULL,
            "The model's hash is not known: no thread can be started (%s).", strerror(error));
}

void model_hash_start(struct model_hash *hash) {
    pthread_mutex_lock(&hash->mutex);
    begin(hash);
    pthread_mutex_unlock(&hash->mutex);
}

bool model_hash_await(struct model_hash *hash, struct hash_waiter *waiter) {
    pthread_mutex_lock(&hash->mutex);
    begin(hash);
    assert(!waiter->node.list && waiter->resume);
    bool waits = hash->state == HASH_RUNS && !waiter->has_left;
    if (waits) list_append(&hash->waiters, &waiter->node);
    pthread_mutex_unlock(&hash->mutex);
    return !waits;
}

void model_hash_leave(struct model_hash *hash, struct hash_waiter *waiter) {
    pthread_mutex_lock(&hash->mutex);
    waiter->has_left = true;
    if (waiter->node.list) list_remove(&hash->waiters, &waiter->node);
    pthread_mutex_unlock(&hash->mutex);
}

enum status model_hash_get(struct model_hash *hash, char out[HASH_DIGITS + 1], struct err *err) {
    pthread_mutex_lock(&hash->mutex);
    begin(hash);
    while (hash->state == HASH_RUNS) pthread_cond_wait(&hash->changed, &hash->mutex);
    enum status status = hash->err.status;
    if (status && err) *err = hash->err;
    if (!status) memcpy(out, hash->hex, sizeof hash->hex);
    pthread_mutex_unlock(&hash->mutex);
    return status;
}
