/* DESIGN: the journal's thread, and the data that it shares.
 *
 *   any thread      journal_push    appends a write to `queue` and wakes the thread
 *   the journal's   takes the whole queue, appends its records, syncs once (group commit), applies
 *                   them to the index, moves the writes to `done` and calls on_done
 *   the loop        journal_take    gets them back, in the order of the pushes
 *   a worker        journal_settle  waits until the writes that were pushed before are done
 *
 * `mutex` guards the index, the queue, the list of done writes and the counts. It is never held
 * during a read or write of a file. The folder belongs to the journal's thread, which allocates
 * nothing: a write brings its bytes and the entry for the index.
 *
 * A write that does not fit on the disk fails alone, and later ones are tried again. If a sync
 * fails, the kernel may have dropped pages that it calls clean: nothing more is written until the
 * process starts again.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/promises/internal.h"

struct journal {
    struct journal_config config;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake, settled;
    struct list queue, done;
    uint64_t n_pushed, n_done; /* writes since the start */
    bool closes;
    struct promise_index index;
    struct journal_folder folder; /* the thread's */
    int folder_fd;                /* for readers */
    struct err broken;            /* the thread's: a sync failed */
    uint64_t n_syncs;             /* the thread's */
    struct journal_stats counts;  /* without the numbers of promises */
    _Atomic uint64_t last_number;
};

/* ---- room ----------------------------------------------------------------------------------- */

static enum status cannot_write(struct journal *journal, struct journal_write *write) {
    return err_set(&write->err, STATUS_UNAVAILABLE, NULL,
                   "The request cannot be kept in --state-dir %s: %s. Without 'store', "
                   "'background' and Idempotency-Key it is served.",
                   journal->config.folder, strerror(errno));
}

/* Evicts the finished promises of a segment; with the mutex. */
static void evict_segment(struct journal *journal, uint64_t segment) {
    list_each_removable(node, &journal->index.finished) {
        struct promise *promise = list_entry(node, struct promise, node);
        if (promise->entry.segment != segment) continue;
        index_remove(&journal->index, promise);
        journal->counts.evicted++;
    }
}

/* Finds a running promise of a segment; with the mutex. */
static struct promise *running_in(const struct journal *journal, uint64_t segment) {
    list_each(node, &journal->index.running) {
        struct promise *promise = list_entry(node, struct promise, node);
        if (promise->entry.segment == segment) return promise;
    }
    return NULL;
}

/* Appends the records of running promises of the oldest segment again. Only this thread changes
 * entries, so they stay valid without the mutex. */
static bool move_running(struct journal *journal, uint64_t segment) {
    for (;;) {
        struct promise_entry from, place;
        pthread_mutex_lock(&journal->mutex);
        struct promise *promise = running_in(journal, segment);
        pthread_mutex_unlock(&journal->mutex);
        if (!promise) return true;
        from = promise->entry;
        if (!folder_rotate(&journal->folder, from.length) ||
            !folder_move(&journal->folder, &from, &place))
            return false;
        pthread_mutex_lock(&journal->mutex);
        promise->entry = place;
        pthread_mutex_unlock(&journal->mutex);
    }
}

/* Deletes the oldest segment. Returns false with errno if its running promises have no room. */
static bool drop_oldest(struct journal *journal) {
    struct journal_folder *folder = &journal->folder;
    uint64_t segment = folder->segment[0].number;
    if (folder->n_segments == 1) {
        errno = ENOSPC;
        return false;
    }
    if (!move_running(journal, segment)) return false;
    if (fdatasync(folder->file) != 0) return false; /* before the older copies go */
    journal->n_syncs++;
    pthread_mutex_lock(&journal->mutex);
    evict_segment(journal, segment);
    pthread_mutex_unlock(&journal->mutex);
    folder_drop(folder);
    return true;
}

/* Is there no place in the index for one more promise? Only this thread changes the lists. */
static bool is_index_full(const struct journal *journal, const struct journal_write *write) {
    return write->entry->kind == RECORD_PROMISE && journal->index.running.n >= JOURNAL_MAX_PROMISES;
}

/* Makes room for a record. Each segment is dropped at most once, because running promises move to
 * the newest one. */
static enum status make_room(struct journal *journal, struct journal_write *write) {
    struct journal_folder *folder = &journal->folder;
    size_t length = write->bytes.length;
    if (is_index_full(journal, write)) {
        write->refusal = JOURNAL_REFUSES_NUMBER;
        return err_set(&write->err, STATUS_UNAVAILABLE, NULL,
                       "%d kept requests run already; try again later, or without 'store', "
                       "'background' and Idempotency-Key.",
                       JOURNAL_MAX_PROMISES);
    }
    if (length > folder->max_bytes / 4) {
        write->refusal = JOURNAL_REFUSES_SIZE;
        return err_set(&write->err, STATUS_UNAVAILABLE, NULL,
                       "The request and its answer take %zu bytes, more than a quarter of "
                       "--state-size: ask for less, or without 'store' and Idempotency-Key.",
                       length);
    }
    if (!folder_rotate(folder, length)) return cannot_write(journal, write);
    for (int n = folder->n_segments; folder->bytes + length > folder->max_bytes; n--) {
        if (n > 0 && drop_oldest(journal)) continue;
        write->refusal = JOURNAL_REFUSES_SIZE;
        return err_set(&write->err, STATUS_UNAVAILABLE, NULL,
                       "--state-size is full of requests that still run: try again later, or "
                       "without 'store', 'background' and Idempotency-Key.");
    }
    return folder_rotate(folder, length) ? STATUS_OK : cannot_write(journal, write);
}

/* ---- the thread ----------------------------------------------------------------------------- */

static void append(struct journal *journal, struct journal_write *write) {
    write->err = journal->broken;
    if (write->err.status || make_room(journal, write)) return;
    if (!folder_append(&journal->folder, write->bytes.data, write->bytes.length,
                       &write->entry->entry))
        cannot_write(journal, write);
}

/* Syncs the newest segment; older ones were synced when it began. */
static void commit(struct journal *journal, struct list *batch) {
    if (journal->broken.status || journal->folder.file < 0) return;
    journal->n_syncs++;
    if (fdatasync(journal->folder.file) == 0) return;
    err_set(&journal->broken, STATUS_UNAVAILABLE, NULL,
            "The disk of --state-dir %s has failed (%s): nothing is kept until the server starts "
            "again.",
            journal->config.folder, strerror(errno));
    log_line(LOG_ERROR, "%s", journal->broken.message);
    list_each(node, batch) {
        struct journal_write *write = list_entry(node, struct journal_write, node);
        if (!write->err.status) write->err = journal->broken;
    }
}

static void count_failure(struct journal_stats *counts, const struct journal_write *write) {
    assert(write->err.status && write->refusal < N_JOURNAL_REFUSALS);
    if (write->entry->kind == RECORD_PROMISE) counts->refused[write->refusal]++;
    if (write->entry->kind == RECORD_ANSWER) counts->lost_answers++;
}

/* With the mutex. The number of promises is bounded: the oldest finished one goes. */
static void apply(struct journal *journal, struct journal_write *write) {
    struct promise_index *index = &journal->index;
    if (write->err.status) {
        count_failure(&journal->counts, write);
    } else {
        index_apply(index, write->entry);
        write->entry = NULL;
    }
    while (index->running.n + index->finished.n > JOURNAL_MAX_PROMISES && index->finished.n > 0) {
        index_remove(index, list_entry(list_first(&index->finished), struct promise, node));
        journal->counts.evicted++;
    }
}

static void finish(struct journal *journal, struct list *batch) {
    pthread_mutex_lock(&journal->mutex);
    while (list_first(batch)) {
        struct journal_write *write = list_entry(list_first(batch), struct journal_write, node);
        apply(journal, write);
        buf_free(&write->bytes);
        list_move(&journal->done, &write->node);
        journal->n_done++;
    }
    assert(journal->n_done <= journal->n_pushed);
    pthread_cond_broadcast(&journal->settled);
    journal->counts.bytes = journal->folder.bytes;
    journal->counts.syncs = journal->n_syncs;
    pthread_mutex_unlock(&journal->mutex);
    journal->config.on_done(journal->config.arg);
}

/* Waits for writes and takes them all. Returns false if the journal closes and the queue is
 * empty. */
static bool take_queue(struct journal *journal, struct list *batch) {
    pthread_mutex_lock(&journal->mutex);
    while (journal->queue.n == 0 && !journal->closes)
        pthread_cond_wait(&journal->wake, &journal->mutex);
    while (list_first(&journal->queue)) list_move(batch, list_first(&journal->queue));
    pthread_mutex_unlock(&journal->mutex);
    return batch->n > 0;
}

static void *run(void *arg) {
    struct journal *journal = arg;
    struct list batch;
    list_init(&batch);
    while (take_queue(journal, &batch)) {
        list_each(node, &batch) append(journal, list_entry(node, struct journal_write, node));
        commit(journal, &batch);
        finish(journal, &batch);
    }
    return NULL;
}

/* ---- opening and closing -------------------------------------------------------------------- */

static void free_journal(struct journal *journal) {
    folder_close(&journal->folder);
    index_close(&journal->index);
    pthread_mutex_destroy(&journal->mutex);
    pthread_cond_destroy(&journal->wake);
    pthread_cond_destroy(&journal->settled);
    mem_free(journal);
}

static enum status read_folder(struct journal *journal, struct err *err) {
    uint64_t last = 0;
    if (folder_open(&journal->folder, &journal->config, err) ||
        folder_read(&journal->folder, &journal->index, &last, &journal->counts.damaged, err))
        return err->status;
    journal->last_number = last;
    journal->counts.recovered = (uint64_t)journal->index.running.n;
    journal->folder_fd = journal->folder.fd;
    journal->counts.bytes = journal->folder.bytes;
    if (journal->counts.damaged > 0)
        log_line(LOG_WARNING, "--state-dir %s: damage at %llu places; the promises there are lost",
                 journal->config.folder, (unsigned long long)journal->counts.damaged);
    return STATUS_OK;
}

enum status journal_open(struct journal **out, const struct journal_config *config,
                         struct err *err) {
    struct journal *journal = mem_calloc(1, sizeof *journal);
    sigset_t all, before;
    *out = NULL;
    journal->config = *config;
    pthread_mutex_init(&journal->mutex, NULL);
    pthread_cond_init(&journal->wake, NULL);
    pthread_cond_init(&journal->settled, NULL);
    list_init(&journal->queue);
    list_init(&journal->done);
    index_open(&journal->index);
    signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is an error like a full disk */
    if (read_folder(journal, err)) {
        free_journal(journal);
        return err->status;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int failed = pthread_create(&journal->thread, NULL, run, journal);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        free_journal(journal);
        return err_set(err, STATUS_SYSTEM, NULL, "The journal's thread cannot start: %s.",
                       strerror(failed));
    }
    *out = journal;
    return STATUS_OK;
}

void journal_finish(struct journal *journal) {
    assert(!journal->closes);
    pthread_mutex_lock(&journal->mutex);
    journal->closes = true;
    pthread_cond_signal(&journal->wake);
    pthread_mutex_unlock(&journal->mutex);
    pthread_join(journal->thread, NULL);
}

void journal_close(struct journal *journal) {
    struct journal_write *write;
    if (!journal) return;
    if (!journal->closes) journal_finish(journal);
    while ((write = journal_take(journal))) journal_write_free(write);
    free_journal(journal);
}

uint64_t journal_number(struct journal *journal) {
    return ++journal->last_number;
}

/* ---- writes --------------------------------------------------------------------------------- */

struct journal_write *journal_write_new(const struct record *record, void *owner) {
    struct journal_write *write = mem_calloc(1, sizeof *write);
    write->owner = owner;
    record_write(&write->bytes, record);
    write->entry = promise_new(record);
    return write;
}

void journal_write_free(struct journal_write *write) {
    buf_free(&write->bytes);
    mem_free(write->entry);
    mem_free(write);
}

void journal_push(struct journal *journal, struct journal_write *write) {
    pthread_mutex_lock(&journal->mutex);
    assert(!journal->closes);
    list_append(&journal->queue, &write->node);
    journal->n_pushed++;
    pthread_cond_signal(&journal->wake);
    pthread_mutex_unlock(&journal->mutex);
}

void journal_settle(struct journal *journal) {
    pthread_mutex_lock(&journal->mutex);
    const uint64_t last = journal->n_pushed;
    while (journal->n_done < last) pthread_cond_wait(&journal->settled, &journal->mutex);
    pthread_mutex_unlock(&journal->mutex);
}

struct journal_write *journal_take(struct journal *journal) {
    pthread_mutex_lock(&journal->mutex);
    struct list_node *first = list_first(&journal->done);
    if (first) list_remove(&journal->done, first);
    pthread_mutex_unlock(&journal->mutex);
    return first ? list_entry(first, struct journal_write, node) : NULL;
}

/* ---- questions ------------------------------------------------------------------------------ */

static bool find(struct journal *journal, enum promise_chain chain, const uint8_t *key,
                 const char *text, struct promise_entry *out) {
    size_t key_length = key ? RECORD_KEY_BYTES : 0;
    struct promise_name name = index_name(key, key_length, text, strlen(text));
    pthread_mutex_lock(&journal->mutex);
    const struct promise *promise = index_find(&journal->index, chain, name);
    if (promise) *out = promise->entry;
    pthread_mutex_unlock(&journal->mutex);
    return promise != NULL;
}

bool journal_find_id(struct journal *journal, const uint8_t *key, const char *id,
                     struct promise_entry *out) {
    return find(journal, BY_ID, key, id, out);
}

bool journal_find_idempotent(struct journal *journal, const uint8_t *key, const char *text,
                             struct promise_entry *out) {
    return find(journal, BY_IDEMPOTENCY, key, text, out);
}

int journal_running(struct journal *journal, struct promise_entry *out, int max) {
    int n = 0;
    pthread_mutex_lock(&journal->mutex);
    list_each(node, &journal->index.running) {
        if (n == max) break;
        out[n++] = list_entry(node, struct promise, node)->entry;
    }
    pthread_mutex_unlock(&journal->mutex);
    return n;
}

static bool read_bytes(const struct journal *journal, const struct promise_entry *entry,
                       char *data) {
    char name[SEGMENT_NAME_BYTES];
    segment_name(name, entry->segment);
    int fd = openat(journal->folder_fd, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    size_t at = 0;
    while (at < entry->length) {
        ssize_t n = pread(fd, data + at, entry->length - at, (off_t)(entry->offset + at));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        at += (size_t)n;
    }
    close(fd);
    return at == entry->length;
}

enum status journal_read(struct journal *journal, const struct promise_entry *entry,
                         struct buf *bytes, struct record *out, struct err *err) {
    buf_free(bytes);
    bytes->data = mem_alloc(entry->length);
    bytes->length = bytes->capacity = entry->length;
    if (read_bytes(journal, entry, bytes->data) &&
        record_read(out, bytes->data, bytes->length) > 0 && out->promise == entry->number)
        return STATUS_OK;
    return err_set(err, STATUS_NOT_FOUND, NULL,
                   "The response was evicted to make room (--state-size), or its record is "
                   "damaged.");
}

void journal_stats(struct journal *journal, struct journal_stats *out) {
    pthread_mutex_lock(&journal->mutex);
    *out = journal->counts;
    out->running = journal->index.running.n;
    out->finished = journal->index.finished.n;
    pthread_mutex_unlock(&journal->mutex);
}
