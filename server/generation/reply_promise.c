/* DESIGN: a generation request whose answer is kept (--state-dir).
 *
 *   reply_keep_body      worker  a new request keeps its body
 *   reply_run_restored   worker  a promise of an earlier process reads its record, checks the
 *                                fingerprint, and prepares the same request: id, time and seeds
 *   reply_promise        loop    makes the promise; the client becomes one of its readers
 *   reply_begin_promise  loop    the record goes to the journal while the scheduler computes
 *   reply_keep_answer    loop    the answer is complete
 *
 * The promise owns the bytes that clients read. The reply only computes: it lives from the
 * preparation to the scheduler's last event, and has no client of its own (async: is_alone).
 */
#include <assert.h>
#include <string.h>

#include "server/apis/apis.h"
#include "server/generation/reply.h"

/* ---- new promises --------------------------------------------------------------------------- */

static bool is_wanted(const struct reply *reply) {
    const struct generation_job *job = &reply->job;
    if (!job->app->promises || !job->request || job->err.status || reply->is_restored) return false;
    return reply->idempotent.text[0] || job->request->stores;
}

void reply_keep_body(struct reply *reply) {
    const struct http_request *http = reply->async.http;
    struct buf *body = &reply->job.body;
    if (is_wanted(reply) && body->length == 0 && http->body_length > 0)
        buf_add(body, http->body, http->body_length);
}

/* The seeds of all prompts, 8 bytes each. */
static void write_seeds(struct buf *out, const struct generation_job *job) {
    for (int i = 0; i < job->n_prompts; i++) {
        uint64_t seed = job->prompts[i].generation.sampling.seed;
        for (int k = 0; k < 8; k++) buf_add(out, (char[]){(char)(seed >> (8 * k))}, 1);
    }
}

static void set_text(struct record *record, enum record_field field, const char *text) {
    record_set(record, field, text, strlen(text));
}

static void describe(const struct reply *reply, struct record *record) {
    const struct generation_job *job = &reply->job;
    const struct api_request *request = job->request;
    *record = (struct record){.created_s = request->created};
    if (request->background) record->flags |= RECORD_BACKGROUND;
    if (request->stores) record->flags |= RECORD_STORED;
    if (request->stream) record->flags |= RECORD_STREAM;
    set_text(record, RECORD_ID, request->id);
    set_text(record, RECORD_PATH, job->api->path);
    set_text(record, RECORD_PREVIOUS, request->previous ? request->previous : "");
    record_set(record, RECORD_BODY, job->body.data, job->body.length);
    if (job->key) record_set(record, RECORD_KEY, job->key->digest, RECORD_KEY_BYTES);
    if (!reply->idempotent.text[0]) return;
    set_text(record, RECORD_IDEMPOTENCY, reply->idempotent.text);
    record_set(record, RECORD_HASH, reply->idempotent.hash, RECORD_HASH_BYTES);
}

static struct reader_wish wish_of(const struct api_request *request) {
    bool waits = request->stream || !request->background;
    return (struct reader_wish){.form = !waits            ? READER_HEAD
                                        : request->stream ? READER_STREAM
                                                          : READER_WHOLE,
                                .after = -1};
}

/* The parts of a promise while it is made. */
struct promise_parts {
    struct reply *reply;
    struct buf seeds, head, fingerprint;
};

static void free_parts(struct promise_parts *parts) {
    buf_free(&parts->seeds);
    buf_free(&parts->head);
    buf_free(&parts->fingerprint);
}

/* The server's and the adapter's. */
static void write_fingerprint(struct buf *out, const struct generation_job *job) {
    struct fingerprint fingerprint = job->app->fingerprint;
    if (job->adapter) memcpy(fingerprint.adapter, job->adapter->hash, sizeof job->adapter->hash);
    fingerprint_write(out, &fingerprint, FINGERPRINT_PROMISE);
}

static void make_promise(void *arg) {
    struct promise_parts *parts = arg;
    struct reply *reply = parts->reply;
    struct generation_job *job = &reply->job;
    struct record record;
    struct api_answer answer = job_answer(job);
    const struct reader_wish wish = wish_of(job->request);
    describe(reply, &record);
    write_seeds(&parts->seeds, job);
    record_set(&record, RECORD_SEEDS, parts->seeds.data, parts->seeds.length);
    if (job->api->write_document)
        job->api->write_document(&parts->head, &answer, "queued", NULL, NULL);
    record_set(&record, RECORD_HEAD, parts->head.data, parts->head.length);
    write_fingerprint(&parts->fingerprint, job);
    record_set(&record, RECORD_FINGERPRINT, parts->fingerprint.data, parts->fingerprint.length);
    reply->promised = promised_new(job->app->promises, &record);
    reply->promised->api = job->api;
    reader_start(reply->promised, reply->async.http, &reply->async, &wish);
}

static void undo_promise(void *arg) {
    struct promise_parts *parts = arg;
    if (parts->reply->promised) promised_free(parts->reply->promised);
    parts->reply->promised = NULL;
    free_parts(parts);
}

void reply_promise(struct reply *reply) {
    struct generation_job *job = &reply->job;
    struct promise_parts parts = {.reply = reply};
    job->is_promised = is_wanted(reply) || reply->is_restored;
    if (is_wanted(reply) && job_has_deadline(job)) {
        err_set(&job->err, STATUS_INVALID_REQUEST, "deadline_ms",
                "An answer that is kept must not depend on time: leave out the deadline, or the "
                "header Idempotency-Key, or set 'store' to false.");
        return;
    }
    if (is_wanted(reply)) {
        size_t bytes = job->body.length;
        struct answer_share share = {0};
        if (answer_reserve(&job->app->answers, &share, bytes, NULL, &job->err)) return;
        if (!mem_run(make_promise, undo_promise, &parts)) {
            answer_release(&job->app->answers, &share);
            err_out_of_memory(&job->err);
            return;
        }
        reply->promised->share = share;
        reply->promised->runner = reply;
        free_parts(&parts);
        buf_free(&job->body); /* the promise has it */
    }
    if (reply->promised && job->api->write_document) job->request->stream = true;
}

static void begin_promise(void *promised) {
    promised_begin(promised);
}

void reply_begin_promise(struct reply *reply) {
    if (reply->is_restored || mem_run(begin_promise, NULL, reply->promised)) return;
    struct promised *promised = reply->promised;
    struct err err;
    job_cancel(&reply->job);
    err_out_of_memory(&err);
    reply->promised = NULL;
    reply->answered = true;
    promised->runner = NULL;
    promised_abandon(promised, &err);
}

/* ---- promises of an earlier process --------------------------------------------------------- */

static enum status check_fingerprint(struct reply *reply, struct err *err) {
    const struct record_bytes *bytes = &reply->record.field[RECORD_FINGERPRINT];
    struct fingerprint now = reply->job.app->fingerprint, then;
    struct fingerprint_difference other = {.words = "the version"}; /* of records */
    bool is_read = fingerprint_parse(&then, bytes->data ? bytes->data : "", bytes->length,
                                     FINGERPRINT_PROMISE);
    memcpy(now.adapter, then.adapter, sizeof now.adapter); /* it is compared when it is known */
    memcpy(reply->past.adapter, then.adapter, sizeof then.adapter);
    if (is_read && !fingerprint_differs(&then, &now, FINGERPRINT_PROMISE, &other)) return STATUS_OK;
    err_set(err, STATUS_SERVER_ERROR, NULL,
            "The server was started again and %s differs, so the answer cannot be completed: send "
            "the request again, with a new Idempotency-Key if it has one.",
            other.words);
    snprintf(err->code, sizeof err->code, "server_changed");
    return err->status;
}

static enum status find_key(struct reply *reply, struct err *err) {
    const struct record_bytes *digest = &reply->record.field[RECORD_KEY];
    struct generation_job *job = &reply->job;
    if (digest->length == 0 && !auth_has_keys(job->app)) return STATUS_OK;
    if (digest->length > 0) job->key = auth_key_of(job->app, digest->data);
    if (job->key) {
        auth_key_salt(job->app, job->key, job->key_salt);
        return STATUS_OK;
    }
    return err_set(err, STATUS_SERVER_ERROR, NULL,
                   "The server was started again without the API key of this request.");
}

static enum status read_record(struct reply *reply, struct err *err) {
    struct generation_job *job = &reply->job;
    struct record *record = &reply->record;
    char path[ROUTE_PATH];
    if (journal_read(job->app->promises->journal, &reply->entry, &reply->text, record, err))
        return err->status;
    const struct record_bytes *at = &record->field[RECORD_PATH],
                              *seeds = &record->field[RECORD_SEEDS];
    snprintf(path, sizeof path, "%.*s", (int)at->length, at->data);
    job->api = api_find(path);
    if (!job->api)
        return err_set(err, STATUS_SERVER_ERROR, NULL, "This version does not serve %s.", path);
    reply->past = (struct job_past){
        .created = record->created_s, .seeds = seeds->data, .n_seeds = (int)(seeds->length / 8)};
    snprintf(reply->past.id, sizeof reply->past.id, "%.*s", (int)record->field[RECORD_ID].length,
             record->field[RECORD_ID].data);
    job->past = &reply->past;
    reply->has_record = true;
    return check_fingerprint(reply, err) ? err->status : find_key(reply, err);
}

enum async_next reply_run_restored(struct reply *reply) {
    struct generation_job *job = &reply->job;
    if (!job->request && read_record(reply, &job->err)) return ASYNC_ANSWER;
    const struct record_bytes *body = &reply->record.field[RECORD_BODY];
    return job_run(job, body->data ? body->data : "", body->length);
}

bool reply_adopt(struct reply *reply) {
    struct promised *promised = reply->promised;
    struct generation_job *job = &reply->job;
    if (!reply->is_restored) return true;
    if (!promised) return false;
    reply->counts_key = job->key != NULL;
    if (job->key) key_begin(job->key, now_ns());
    if (!reply->has_record) return true; /* job->err says why */
    assert(!promised->record.kind && promised->text.length == 0);
    promised->api = job->api;
    promised->text = reply->text;
    promised->record = reply->record;
    reply->text = (struct buf){0};
    readers_flush(promised); /* they know now what they wait for */
    return true;
}

/* ---- the end -------------------------------------------------------------------------------- */

/* The arguments of writing a document, which may lack memory. */
struct document_try {
    const struct reply *reply;
    const char *status;
    bool has_usage;
    struct buf out;
};

static void write_document(void *arg) {
    struct document_try *try = arg;
    const struct generation_job *job = &try->reply->job;
    struct api_answer answer = job_answer(job);
    struct api_usage usage = job_usage(job);
    bool is_failed = try->status && strcmp(try->status, "failed") == 0;
    job->api->write_document(&try->out, &answer, try->status, try->has_usage ? &usage : NULL,
                             is_failed ? &job->err : NULL);
    if (!try->status) job_join_receipt(job, &try->out);
}

static void undo_document(void *arg) {
    buf_free(&((struct document_try *)arg)->out);
}

/* Returns false if memory is short. Without an API with documents, `out` is empty. */
static bool make_document(const struct reply *reply, const char *status, bool has_usage,
                          struct buf *out) {
    struct document_try try = {.reply = reply, .status = status, .has_usage = has_usage};
    *out = (struct buf){0};
    if (!reply->job.api->write_document) return true;
    if (!mem_run(write_document, undo_document, &try)) return false;
    *out = try.out;
    return true;
}

/* The promise goes on without this reply. */
static struct promised *let_go(struct reply *reply) {
    struct promised *promised = reply->promised;
    promised->prompt_tokens = reply->job.prompt_tokens;
    promised->output_tokens = reply->job.completion_tokens;
    reply->promised = NULL;
    reply->answered = true;
    return promised;
}

bool reply_keep_answer(struct reply *reply) {
    struct buf document;
    bool ok = make_document(reply, NULL, true, &document);
    ok = ok && promised_add(reply->promised, &reply->out);
    buf_clear(&reply->out);
    if (!ok) {
        buf_free(&document);
        return false;
    }
    promised_end(let_go(reply), 200, &document);
    return true;
}

/* Keeps a failed document after the event of the error. Returns false if memory is short. */
static bool keep_failure(struct reply *reply) {
    struct buf document;
    if (!promised_add(reply->promised, &reply->out)) return false;
    if (!make_document(reply, "failed", false, &document)) return false;
    reply->promised->err = reply->job.err;
    promised_end(let_go(reply), 200, &document);
    return true;
}

void reply_keep_error(struct reply *reply, void (*write)(void *text), void (*undo)(void *text)) {
    struct generation_job *job = &reply->job;
    struct promised *promised = reply->promised;
    const struct app *app = job->app;
    bool has_begun = promised->is_durable || promised->n_writes > 0;
    if (app->aborted || app->failure.status || !has_begun) {
        promised_abandon(let_go(reply), &job->err);
        return;
    }
    struct reply_text text = {.reply = reply};
    bool has_event = job->request && job->request->stream && mem_run(write, undo, &text);
    if (has_event && job->api->write_document && keep_failure(reply)) return;
    if (has_event && !job->api->write_document) promised_add(promised, &reply->out);
    promised_fail(let_go(reply), &job->err, reply->is_restored);
}

/* ---- calls from server/app ------------------------------------------------------------------ */

static void stop(struct promised *promised) {
    struct reply *reply = promised->runner;
    assert(reply->promised == promised);
    reply->promised = NULL;
    reply->answered = true;
    if (reply->async.running)
        atomic_store(&reply->async.cancelled, true);
    else
        job_cancel(&reply->job);
}

static bool document(const struct promised *promised, const char *status, struct buf *out) {
    const struct reply *reply = promised->runner;
    if (!reply || reply->async.running || !reply->job.request || !reply->job.api->write_document)
        return false;
    return make_document(reply, status, false, out);
}

static bool cancel(struct promised *promised) {
    struct reply *reply = promised->runner;
    struct buf out;
    if (!reply || reply->async.running || !reply->job.request) return false;
    if (!make_document(reply, "cancelled", true, &out)) return false;
    job_cancel(&reply->job);
    promised_end(let_go(reply), 200, &out);
    return true;
}

const struct promise_runner reply_promises = {
    .start = reply_restore, .stop = stop, .cancel = cancel, .document = document};
