/* server/app/promised: promises in this process, and the clients that read them (--state-dir).
 *
 *   struct promises   the journal and all live promises of a serving process; NULL: no --state-dir
 *   struct promised   a live promise: it is computed, waits for that, or is on its way to the disk
 *   reader            a client that waits for a promise's answer, or follows its stream
 *
 * A finished promise is not live: its answer is read from the journal (fetch.c). Everything belongs
 * to the loop thread, except functions marked otherwise. server/generation computes promises; it
 * is called by the functions of `struct promise_runner`. */
#ifndef PENSTOCK_SERVER_PROMISED_H
#define PENSTOCK_SERVER_PROMISED_H

#include "server/app/app.h"
#include "server/promises/promises.h"

struct promised;

/* The room above, which computes. */
struct promise_runner {
    /* Computes the promise of an earlier process. promised->runner is set until its end. */
    void (*start)(struct promised *promised);
    /* Ends the computation without an answer: it was cancelled, or cannot be kept. */
    void (*stop)(struct promised *promised);
    /* Ends the computation with a document that says so. Returns false if it has not begun. */
    bool (*cancel)(struct promised *promised);
    /* Writes the document of the running answer; false: there is none yet, or no memory. */
    bool (*document)(const struct promised *promised, const char *status, struct buf *out);
};

struct promises {
    struct app *app;
    struct journal *journal;
    const struct promise_runner *calls;
    struct list live;      /* struct promised: node */
    struct list waiting;   /* of an earlier process, not started yet: waiting_node */
    struct list preparing; /* struct idempotent_request: node */
    int n_started;         /* of an earlier process, that run */
    uv_async_t wake;       /* the journal's thread has done writes */
};

/* A request with an Idempotency-Key that is not a promise yet. */
struct idempotent_request {
    struct list_node node;
    char text[RECORD_MAX_IDEMPOTENCY + 1]; /* "": the header is missing */
    uint8_t hash[RECORD_HASH_BYTES];
    uint8_t key[RECORD_KEY_BYTES]; /* zeros: the server runs without keys */
};

struct promised {
    struct promises *promises;
    struct list_node node, waiting_node;
    struct promise_entry entry; /* entry.number names it; the rest is set if it waits */
    const struct api *api;      /* NULL: its record is not read yet */
    struct buf text;            /* the memory of `record` */
    struct record record;       /* kind 0: not read yet */
    bool is_durable;            /* its record is on the disk: bytes may go to clients */
    bool has_ended;             /* its answer is complete */
    bool is_restored;           /* it began in an earlier process */
    bool is_dropped;            /* it ends without an answer: nothing more is written */
    struct buf log;             /* the bytes of its stream so far, or its whole answer */
    struct buf document;        /* the answer of an API with documents, after the end */
    struct err err;             /* the error that ended it */
    struct answer_share share;  /* of `text` */
    struct list readers;
    void *runner; /* the computation's, or NULL */
    int n_writes; /* that the journal has */
    int prompt_tokens, output_tokens;
};

/* ---- promised.c: their life ----------------------------------------------------------------- */

/* Open the journal of --state-dir and list the promises to compute again. Does nothing without the
 * option. Fails as journal_open does. */
enum status promises_open(struct app *app, const struct promise_runner *calls, struct err *err);
void promises_close(struct app *app);

/* Starts promises of an earlier process, as many as may run at once. */
void promises_start(struct promises *promises);

/* Makes a live promise from a record, which is copied and gets its number. Lack of memory is
 * handled as in mem_alloc; promised_free is its undo. */
struct promised *promised_new(struct promises *promises, struct record *record);
void promised_free(struct promised *promised);

/* Sends its record to the journal. */
void promised_begin(struct promised *promised);

/* Appends bytes of the stream, or of the whole answer, and sends them to readers. Returns false if
 * memory is short. */
bool promised_add(struct promised *promised, const struct buf *bytes);

/* The answer is complete. Takes `document`, which is empty if the API has none. */
void promised_end(struct promised *promised, int http_status, struct buf *document);

/* It ends with an error. If the API has documents, one with the error is kept. Else nothing is
 * kept, so that the client may try again; `is_kept` keeps the error instead. */
void promised_fail(struct promised *promised, const struct err *err, bool is_kept);

/* The process ends: the next one computes it. Its readers are told, or their streams cut. */
void promised_abandon(struct promised *promised, const struct err *err);

/* Forgets it: the computation stops, and its readers are told. */
void promised_remove(struct promised *promised);

/* Returns the live promise of a number, or NULL. */
struct promised *promised_find(const struct promises *promises, uint64_t number);

/* Returns the live promise with an Idempotency-Key, or NULL; also one that is not in the index. */
struct promised *promised_find_idempotent(const struct promises *promises, const uint8_t *key,
                                          const char *text);

/* The same without a record, which the caller writes. */
void promised_forget(struct promised *promised);

/* A record on its way, of a live promise or of none (NULL). The first function may lack memory, as
 * in mem_alloc. The second one sends it; `waiter`, if any, is answered by its kind's `done` when it
 * is written, or with an error. */
struct promises_ticket;
struct promises_ticket *promises_ticket_new(struct promises *promises, struct promised *promised,
                                            const struct record *record);
void promises_push(struct promises_ticket *ticket, struct async_request *waiter);

/* ---- readers.c ------------------------------------------------------------------------------ */

enum reader_form {
    READER_WHOLE,  /* gets the whole answer at its end */
    READER_STREAM, /* gets the events */
    READER_HEAD,   /* gets the answer before its first token */
    READER_NOW,    /* gets the document as it is */
    READER_SAME,   /* as the first request with this Idempotency-Key */
};

struct reader_wish {
    enum reader_form form;
    int64_t after;       /* the number of the last event that the client has; -1: none */
    const uint8_t *hash; /* of a READER_SAME's request, RECORD_HASH_BYTES */
};

/* Answers an HTTP request from a live promise. `from` is the request that has it now, or NULL. Lack
 * of memory is handled as in mem_alloc; nothing has changed then. */
void reader_start(struct promised *promised, struct http_request *http, struct async_request *from,
                  const struct reader_wish *wish);

/* Fails because an Idempotency-Key was used with another request. */
enum status idempotency_reused(struct err *err);

/* Sends to all readers what they may have. */
void readers_flush(struct promised *promised);

/* Ends all readers: whole answers get the error, streams end without a further event. */
void readers_end(struct promised *promised, const struct err *err);

/* The events of a stream, which are numbered from 0. */
struct event_cursor {
    size_t at;      /* offset in the log */
    int64_t number; /* of the event there */
};

/* Appends the complete events from the cursor on, without those up to `after`. Events of SSE get a
 * line with their number. */
void events_write(struct buf *out, const struct buf *log, bool has_numbers, int64_t after,
                  struct event_cursor *cursor);

/* The number of the last event that a client has, from `starting_after` or Last-Event-ID; -1: none.
 * Fails with a 400. */
enum status reader_after(const struct http_request *http, int64_t *after, struct err *err);

/* ---- fetch.c: promises in the journal ------------------------------------------------------- */

/* A request for the answer or the input of a promise in the journal. */
struct fetch_wish {
    const char *id;      /* the promise's, or NULL; */
    const char *text;    /* its Idempotency-Key, or NULL */
    const uint8_t *hash; /* of the request with that key, RECORD_HASH_BYTES; or NULL */
    bool is_stream;      /* for an id: the events; else as the first request asked */
    int64_t after;
    const struct api_item_page *page; /* for an id: these items of the request; else NULL */
};

/* Answers from the journal, on a worker. A page of items is also answered of a promise that runs.
 * Lack of memory is handled as in mem_alloc. */
void fetch_start(struct app *app, struct http_request *http, const struct promise_entry *entry,
                 const struct fetch_wish *wish);

/* ---- previous.c ----------------------------------------------------------------------------- */

/* A request that may continue a stored answer. */
struct continuation {
    struct app *app;
    const struct api *api;
    const struct api_key *key; /* of its client, or NULL */
};

/* If a body continues a stored answer of the same key, replaces it by one with the whole
 * conversation, and appends that body to `text`. Fails with a 400. Lack of memory is handled as in
 * mem_alloc. Any thread may call it. */
enum status promise_continue(const struct continuation *to, struct json **body, struct buf *text,
                             struct err *err);

/* Fails because a promise is neither live nor finished. */
enum status promise_lost(struct err *err);

/* ---- repeat.c: requests with an Idempotency-Key --------------------------------------------- */

/* Checks the key of a request, if it has one, and fills `out`. Answers the request if it is
 * refused, or if an earlier one had the same key. Returns false if it is a new one. */
bool repeat_answer(struct app *app, struct http_request *http, const struct api *api,
                   struct idempotent_request *out);

/* Returns the digest of the client's key for the journal, or NULL. */
const uint8_t *promise_key(const struct app *app, const struct http_request *http);

#endif
