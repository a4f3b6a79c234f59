/* DESIGN: the life of a promise in this process.
 *
 *   promised_new    a request is prepared: its record, with seeds, is made
 *   promised_begin  its record goes to the journal; the scheduler computes meanwhile
 *   promised_add    bytes of the answer are appended to `log`. No reader gets one before the
 *                   journal has the record (is_durable)
 *   promised_end    the answer goes to the journal, readers get the rest at once: if the process
 *                   ends before the answer is on the disk, the next one computes the same bytes
 *   promised_free   after its last write and its last reader
 *
 * A promise of an earlier process begins with is_restored: it waits until there is room, and its
 * record is read by the worker that prepares it. Its readers wait for it.
 *
 * If the record cannot be written, the computation stops and all readers get the error. If the
 * answer cannot be written, the promise stays unfinished in the journal; the next process computes
 * it again.
 */
#include "server/app/promised/promised.h"

#include <assert.h>
#include <string.h>
#include <time.h>

#include "server/apis/apis.h"

enum { MAX_LISTED = JOURNAL_MAX_PROMISES, LEAST_STARTED = 4 };

/* A write, and the request that waits for it. */
struct promises_ticket {
    struct promises *promises;
    struct promised *promised; /* or NULL */
    struct async_request *waiter;
    enum record_kind kind;
    struct journal_write *write;
};

/* ---- memory --------------------------------------------------------------------------------- */

void promised_free(struct promised *promised) {
    assert(promised->readers.n == 0 && promised->n_writes == 0 && !promised->runner);
    list_detach(&promised->node);
    list_detach(&promised->waiting_node);
    answer_release(&promised->promises->app->answers, &promised->share);
    buf_free(&promised->text);
    buf_free(&promised->log);
    buf_free(&promised->document);
    mem_free(promised);
}

/* Frees a promise after its last use. */
static void settle(struct promised *promised) {
    bool is_over = promised->has_ended || promised->is_dropped;
    if (is_over && promised->n_writes == 0 && promised->readers.n == 0 && !promised->runner)
        promised_free(promised);
}

static struct promised *add_live(struct promises *promises) {
    struct promised *promised = mem_calloc(1, sizeof *promised);
    promised->promises = promises;
    list_init(&promised->readers);
    list_append(&promises->live, &promised->node);
    return promised;
}

struct promised *promised_new(struct promises *promises, struct record *record) {
    struct promised *promised = add_live(promises);
    record->kind = RECORD_PROMISE;
    record->promise = promised->entry.number = journal_number(promises->journal);
    record_write(&promised->text, record);
    size_t size = record_read(&promised->record, promised->text.data, promised->text.length);
    assert(size == promised->text.length);
    (void)size;
    return promised;
}

/* ---- writes --------------------------------------------------------------------------------- */

struct promises_ticket *promises_ticket_new(struct promises *promises, struct promised *promised,
                                            const struct record *record) {
    struct promises_ticket *ticket = mem_calloc(1, sizeof *ticket);
    *ticket = (struct promises_ticket){promises, promised, NULL, record->kind, NULL};
    ticket->write = journal_write_new(record, ticket);
    return ticket;
}

void promises_push(struct promises_ticket *ticket, struct async_request *waiter) {
    if (ticket->promised) ticket->promised->n_writes++;
    if (waiter) async_ref(waiter);
    ticket->waiter = waiter;
    journal_push(ticket->promises->journal, ticket->write);
}

/* The arguments of a write that may lack memory. */
struct write_try {
    struct promised *promised;
    const struct record *record;
};

static void try_write(void *arg) {
    const struct write_try *try = arg;
    promises_push(promises_ticket_new(try->promised->promises, try->promised, try->record), NULL);
}

static bool write_record(struct promised *promised, const struct record *record) {
    struct write_try try = {promised, record};
    return mem_run(try_write, NULL, &try);
}

/* Stops the computation, if any, and tells the readers why. */
static void drop(struct promised *promised, const struct err *err) {
    promised->is_dropped = true;
    if (promised->runner) promised->promises->calls->stop(promised);
    promised->runner = NULL;
    readers_end(promised, err);
}

static void promise_written(struct promised *promised, const struct err *err) {
    if (err->status) {
        promised->promises->app->metrics.refused_overload++;
        drop(promised, err);
        return;
    }
    promised->is_durable = true;
    readers_flush(promised);
}

/* A waiter is answered: its promise was removed. */
static void answer_waiter(struct async_request *waiter, const struct err *err) {
    if (waiter->http && err->status) respond_error(waiter->app, waiter->http, err, NULL);
    if (waiter->http && !err->status) waiter->kind->done(waiter);
    async_release_http(waiter);
    async_unref(waiter);
}

static void after_write(struct promises_ticket *owner, const struct err *err) {
    struct promised *promised = owner->promised;
    if (owner->waiter) answer_waiter(owner->waiter, err);
    if (!promised) return;
    assert(promised->n_writes > 0);
    promised->n_writes--;
    if (owner->kind == RECORD_PROMISE) promise_written(promised, err);
    if (owner->kind == RECORD_ANSWER && err->status)
        log_line(LOG_WARNING, "an answer is not kept, the next start computes it: %s",
                 err->message);
    settle(promised);
}

static void on_wake(uv_async_t *wake) {
    struct promises *promises = wake->data;
    struct journal_write *write;
    while ((write = journal_take(promises->journal))) {
        struct promises_ticket *owner = write->owner;
        after_write(owner, &write->err);
        mem_free(owner);
        journal_write_free(write);
    }
    http_flush(promises->app->http);
}

static void on_done(void *arg) {
    uv_async_send(&((struct promises *)arg)->wake);
}

/* ---- from the beginning to the end ---------------------------------------------------------- */

void promised_begin(struct promised *promised) {
    assert(!promised->is_durable && promised->n_writes == 0);
    promises_push(promises_ticket_new(promised->promises, promised, &promised->record), NULL);
}

bool promised_add(struct promised *promised, const struct buf *bytes) {
    assert(!promised->has_ended);
    if (bytes->length > 0 && !buf_try_add(&promised->log, bytes->data, bytes->length)) return false;
    readers_flush(promised);
    return true;
}

/* The record of the answer. Streams are kept as events, other answers as a body. */
static struct record answer_of(const struct promised *promised, int http_status) {
    struct record answer = promised->record;
    const struct buf *document = &promised->document, *log = &promised->log;
    bool has_body = document->length > 0 || !(answer.flags & RECORD_STREAM);
    const struct buf *body = document->length > 0 ? document : log;
    answer.kind = RECORD_ANSWER;
    answer.finished_s = (int64_t)time(NULL);
    answer.http_status = http_status;
    if (has_body) record_set(&answer, RECORD_ANSWER_BODY, body->data, body->length);
    if (body != log || !has_body) record_set(&answer, RECORD_EVENTS, log->data, log->length);
    return answer;
}

static void leave_started(struct promised *promised) {
    if (promised->is_restored && promised->runner) promised->promises->n_started--;
    promised->runner = NULL;
}

void promised_end(struct promised *promised, int http_status, struct buf *document) {
    struct promises *promises = promised->promises;
    assert(!promised->has_ended);
    promised->document = *document;
    *document = (struct buf){0};
    promised->has_ended = true;
    leave_started(promised);
    struct record answer = answer_of(promised, http_status);
    if (!write_record(promised, &answer))
        log_line(LOG_WARNING,
                 "an answer is not kept for lack of memory; the next start computes it");
    readers_flush(promised);
    settle(promised);
    promises_start(promises);
}

/* A failure's document, or the body of its error. */
struct failure {
    struct promised *promised;
    const struct err *err;
    struct buf document;
};

static void write_failure(void *arg) {
    struct failure *failure = arg;
    const struct api *api = failure->promised->api;
    const struct record_bytes *head = &failure->promised->record.field[RECORD_HEAD];
    if (api && api->write_broken)
        api->write_broken(&failure->document, head->data ? head->data : "", head->length,
                          failure->err);
    else if (api)
        api->write_error(&failure->document, failure->err, "");
    else
        api_write_error(&failure->document, failure->err);
}

static void undo_failure(void *arg) {
    buf_free(&((struct failure *)arg)->document);
}

void promised_fail(struct promised *promised, const struct err *err, bool is_kept) {
    struct failure failure = {promised, err, {0}};
    bool has_document = promised->api && promised->api->write_broken;
    promised->err = *err;
    leave_started(promised);
    bool has_record = promised->record.kind != 0;
    if (has_record && (is_kept || has_document) && mem_run(write_failure, undo_failure, &failure)) {
        promised_end(promised, has_document ? 200 : api_http(promised->api, err->status),
                     &failure.document);
        return;
    }
    promised_remove(promised);
}

void promised_abandon(struct promised *promised, const struct err *err) {
    promised->is_dropped = true;
    leave_started(promised);
    readers_end(promised, err);
    settle(promised);
}

void promised_remove(struct promised *promised) {
    const struct record removed = {.kind = RECORD_REMOVED, .promise = promised->entry.number};
    write_record(promised, &removed); /* without memory it is computed once more after a restart */
    promised_forget(promised);
}

void promised_forget(struct promised *promised) {
    struct promises *promises = promised->promises;
    struct err gone = promised->err;
    if (!gone.status)
        err_set(&gone, STATUS_NOT_FOUND, NULL, "The response was deleted before it was finished.");
    list_detach(&promised->waiting_node);
    if (promised->is_restored && promised->runner) promises->n_started--;
    drop(promised, &gone);
    settle(promised);
    promises_start(promises);
}

struct promised *promised_find(const struct promises *promises, uint64_t number) {
    list_each(node, &promises->live) {
        struct promised *promised = list_entry(node, struct promised, node);
        if (promised->entry.number == number && !promised->is_dropped) return promised;
    }
    return NULL;
}

struct promised *promised_find_idempotent(const struct promises *promises, const uint8_t *key,
                                          const char *text) {
    list_each(node, &promises->live) {
        struct promised *promised = list_entry(node, struct promised, node);
        if (!promised->record.kind || promised->is_dropped) continue;
        if (record_is(&promised->record, RECORD_KEY, key, key ? RECORD_KEY_BYTES : 0) &&
            record_is(&promised->record, RECORD_IDEMPOTENCY, text, strlen(text)))
            return promised;
    }
    return NULL;
}

/* ---- after a start -------------------------------------------------------------------------- */

static void start(void *promised) {
    ((struct promised *)promised)->promises->calls->start(promised);
}

void promises_start(struct promises *promises) {
    const struct app *app = promises->app;
    int most = max_int(LEAST_STARTED, app->options->engine.max_num_seqs);
    while (promises->waiting.n > 0 && promises->n_started < most && !app->draining &&
           !app->failure.status) {
        struct list_node *first = list_first(&promises->waiting);
        struct promised *promised = list_entry(first, struct promised, waiting_node);
        if (!mem_run(start, NULL, promised)) return; /* the end of another one tries again */
        assert(promised->runner);
        list_remove(&promises->waiting, first);
        promises->n_started++;
    }
}

static void list_running(struct promises *promises) {
    struct promise_entry *entries = mem_calloc(MAX_LISTED, sizeof *entries);
    int n = journal_running(promises->journal, entries, MAX_LISTED);
    for (int i = 0; i < n; i++) {
        struct promised *promised = add_live(promises);
        promised->entry = entries[i];
        promised->is_durable = promised->is_restored = true;
        list_append(&promises->waiting, &promised->waiting_node);
    }
    mem_free(entries);
    if (n > 0) log_line(LOG_INFO, "%d unfinished requests of --state-dir are computed again", n);
}

/* ---- opening and closing -------------------------------------------------------------------- */

static enum status check_options(const struct options *options, struct err *err) {
    if (!options->engine.allow_batch_variant_gemm) return STATUS_OK;
    return err_set(err, STATUS_USAGE, "state-dir",
                   "--state-dir needs answers that do not depend on the batch: leave out "
                   "--no-deterministic.");
}

enum status promises_open(struct app *app, const struct promise_runner *calls, struct err *err) {
    const struct options *options = app->options;
    if (!options->state.folder) return STATUS_OK;
    if (check_options(options, err)) return err->status;
    struct promises *promises = mem_calloc(1, sizeof *promises);
    promises->app = app;
    promises->calls = calls;
    list_init(&promises->live);
    list_init(&promises->waiting);
    list_init(&promises->preparing);
    struct journal_config config = {.folder = options->state.folder,
                                    .size = options->state.size,
                                    .on_done = on_done,
                                    .arg = promises};
    if (journal_open(&promises->journal, &config, err)) {
        mem_free(promises);
        return err->status;
    }
    uv_async_init(&app->loop, &promises->wake, on_wake);
    promises->wake.data = promises;
    app->promises = promises;
    list_running(promises);
    return STATUS_OK;
}

static void free_promises(uv_handle_t *handle) {
    mem_free(handle->data);
}

/* All requests have ended, so no promise has a runner or a reader. */
void promises_close(struct app *app) {
    struct promises *promises = app->promises;
    struct journal_write *write;
    if (!promises) return;
    journal_finish(promises->journal);
    while ((write = journal_take(promises->journal))) {
        struct promises_ticket *owner = write->owner;
        if (owner->promised) owner->promised->n_writes--;
        mem_free(owner);
        journal_write_free(write);
    }
    while (list_first(&promises->live))
        promised_free(list_entry(list_first(&promises->live), struct promised, node));
    journal_close(promises->journal);
    app->promises = NULL;
    uv_close((uv_handle_t *)&promises->wake, free_promises);
}
