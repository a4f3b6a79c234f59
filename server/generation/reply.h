/* A generation request and its answer: over HTTP (reply.c), or as a promise (reply_promise.c). Only
 * these two files use it. */
#ifndef PENSTOCK_SERVER_REPLY_H
#define PENSTOCK_SERVER_REPLY_H

#include "server/app/promised/promised.h"
#include "server/generation/job.h"

struct reply {
    struct async_request async; /* must be first: http_request.app points here */
    struct generation_job job;
    struct buf out;                     /* bytes to send to the client */
    bool answered;                      /* the full response was queued */
    bool streaming;                     /* the stream's headers were sent */
    bool counts_key;                    /* key_begin was called for its key */
    uint64_t complete_ns, submitted_ns; /* now_ns() of the end of the body, and of begin */
    /* with --state-dir: */
    struct promised *promised;            /* gets the bytes instead of a client; or NULL */
    struct idempotent_request idempotent; /* in promises->preparing until it is prepared */
    bool is_restored;                     /* a promise of an earlier process: */
    struct promise_entry entry;           /* its record, which the worker reads into */
    bool has_record;
    struct buf text; /* this */
    struct record record;
    struct job_past past;
};

/* Arguments for writing text to reply->out. */
struct reply_text {
    struct reply *reply;
    const struct prompt_run *run; /* for a chunk */
    struct choice *choice;
};

/* ---- reply.c -------------------------------------------------------------------------------- */

/* Computes a promise of an earlier process. */
void reply_restore(struct promised *promised);

/* ---- reply_promise.c ------------------------------------------------------------------------ */

/* On a worker: the first run of a restored promise, and later ones. */
enum async_next reply_run_restored(struct reply *reply);

/* On a worker: keeps the body of a request that will be a promise. */
void reply_keep_body(struct reply *reply);

/* Gives a restored promise its record, after the worker has read it. Returns false if the promise
 * was dropped meanwhile. Does nothing for other requests. */
bool reply_adopt(struct reply *reply);

/* Makes a prepared request a promise, if it is to be one. Its client becomes a reader. Sets
 * job->err for lack of memory. */
void reply_promise(struct reply *reply);

/* Sends the record of a new promise to the journal, after the scheduler has taken the request. */
void reply_begin_promise(struct reply *reply);

/* Ends the promise with the bytes of reply->out. Returns false if memory is short. */
bool reply_keep_answer(struct reply *reply);

/* Ends the promise with job->err. The functions write the event of the error into reply->out. */
void reply_keep_error(struct reply *reply, void (*write)(void *text), void (*undo)(void *text));

#endif
