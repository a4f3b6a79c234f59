/* server/promises: the journal of --state-dir. A promise is a request whose answer outlives the
 * process: a stored response, or a request with an Idempotency-Key.
 *
 * A `struct journal` owns the folder's files, the thread that writes them, and an index in memory
 * of all promises. The loop thread makes a `struct journal_write`, gives it to the journal, and
 * gets it back when it is on the disk, or with an error. Any thread may find and read promises.
 * This room knows neither HTTP nor models: bodies and answers are bytes.
 *
 *   PROMISE   a request: all that is needed to compute it again. Its promise runs.
 *   ANSWER    the same request with its answer. Its promise is finished.
 *   REMOVED   the promise is forgotten.
 *
 * No output of a running promise is stored. After a crash the server computes it again, with equal
 * bytes. */
#ifndef PENSTOCK_SERVER_PROMISES_H
#define PENSTOCK_SERVER_PROMISES_H

#include "config/config.h"
#include "config/list.h"

/* ---- records -------------------------------------------------------------------------------- */

enum record_kind { RECORD_PROMISE = 1, RECORD_ANSWER, RECORD_REMOVED };

/* The fields of a record, which are byte strings; an absent one is empty. The numbers are part of
 * the format. */
enum record_field {
    RECORD_NUMBERS,     /* the numbers of struct record */
    RECORD_ID,          /* of the answer: "resp_..."; at most 63 bytes */
    RECORD_KEY,         /* SHA-256 of the client's API key; empty: the server runs without keys */
    RECORD_IDEMPOTENCY, /* the client's Idempotency-Key; at most 255 bytes */
    RECORD_HASH,        /* of path and body as the client sent them, 16 bytes */
    RECORD_PATH,        /* of the request: "/v1/responses" */
    RECORD_BODY,        /* JSON, with the items of the previous response */
    RECORD_PREVIOUS,    /* the id of the previous response */
    RECORD_SEEDS,       /* 8 bytes per prompt, little endian */
    RECORD_FINGERPRINT, /* of the server, as JSON */
    RECORD_HEAD,        /* the answer before its first token: a response that is queued */
    RECORD_ANSWER_BODY, /* the whole answer, of a stream its last response, or an error */
    RECORD_EVENTS,      /* the bytes of its stream */
    N_RECORD_FIELDS
};

enum { RECORD_MAX_ID = 63, RECORD_MAX_IDEMPOTENCY = 255, RECORD_KEY_BYTES = 32 };
enum { RECORD_HASH_BYTES = 16 };

struct record_bytes {
    const char *data; /* [length] */
    size_t length;
};

/* Bits of `flags`. */
enum record_flag {
    RECORD_BACKGROUND = 1, /* the client did not wait for the answer */
    RECORD_STORED = 2,     /* the answer may be fetched by its id */
    RECORD_STREAM = 4,     /* the client asked for a stream */
};

/* A record's content. The bytes belong to the caller, or to the buffer from which it was read. */
struct record {
    enum record_kind kind;
    uint64_t promise;   /* number of the promise, from journal_number */
    int64_t created_s;  /* seconds since 1970 */
    int64_t finished_s; /* the same; 0: it runs */
    uint32_t flags;     /* of enum record_flag */
    int http_status;    /* of the answer; 0: none yet */
    struct record_bytes field[N_RECORD_FIELDS];
};

/* Sets a field; the bytes are not copied. */
void record_set(struct record *record, enum record_field field, const void *data, size_t length);

/* Is the field equal to these bytes? */
bool record_is(const struct record *record, enum record_field field, const void *data,
               size_t length);

/* Appends the bytes of a record: header, checksums, fields, padding to 8 bytes. */
void record_write(struct buf *out, const struct record *record);

/* Reads the record at the start of data[length]. Returns its size in bytes, or 0 if there is no
 * intact record. Nothing that a file contains makes it fail in another way. */
size_t record_read(struct record *out, const char *data, size_t length);

/* ---- the journal ---------------------------------------------------------------------------- */

struct journal;

struct journal_config {
    const char *folder;
    int64_t size; /* maximum bytes of its files, at least JOURNAL_MIN_SIZE */
    /* Called on the journal's thread after writes are done: journal_take returns them. */
    void (*on_done)(void *arg);
    void *arg;
};

enum { JOURNAL_MIN_SIZE = 1 << 20, JOURNAL_MAX_PROMISES = 1 << 16 };

/* Opens the folder, or creates it: locks it, reads its promises, cuts a torn tail, starts the
 * thread. Fails with STATUS_USAGE if another process uses the folder, and with STATUS_SYSTEM if it
 * cannot be read or written. */
enum status journal_open(struct journal **out, const struct journal_config *config,
                         struct err *err);

/* Writes the queue, ends the thread, unlocks the folder. NULL is allowed. */
void journal_close(struct journal *journal);

/* Waits until all pushed writes are done. Nothing may be pushed afterwards. */
void journal_finish(struct journal *journal);

/* Returns a number for a new promise. Any thread. */
uint64_t journal_number(struct journal *journal);

/* The reasons for which a promise is not kept. */
enum journal_refusal {
    JOURNAL_REFUSES_DISK,   /* the disk is full, or has failed */
    JOURNAL_REFUSES_SIZE,   /* it is too large for --state-size, or that is full of running ones */
    JOURNAL_REFUSES_NUMBER, /* JOURNAL_MAX_PROMISES run */
    N_JOURNAL_REFUSALS
};

/* A record on its way to the disk. */
struct journal_write {
    struct list_node node;
    struct err err; /* set by the journal if it could not be written, with the reason: */
    enum journal_refusal refusal;
    void *owner;           /* the caller's */
    struct buf bytes;      /* the record; the journal frees it when it is written */
    struct promise *entry; /* for the index; the journal's */
};

/* Makes the write of a record, which is copied. Lack of memory is handled as in mem_alloc. Any
 * thread. */
struct journal_write *journal_write_new(const struct record *record, void *owner);
void journal_write_free(struct journal_write *write);

/* Queues a write; the journal owns it until journal_take returns it. Any thread. */
void journal_push(struct journal *journal, struct journal_write *write);

/* Waits until all writes are done that were pushed before: for the time of one or two syncs. For a
 * worker: never on the loop, nor while the caller holds a lock. */
void journal_settle(struct journal *journal);

/* Returns a write that is done, in the order of the pushes, or NULL. The caller frees it. */
struct journal_write *journal_take(struct journal *journal);

/* ---- the index ------------------------------------------------------------------------------ */

/* A promise in the index. */
struct promise_entry {
    uint64_t number;
    uint64_t segment, offset; /* of its newest record */
    uint32_t length;
    bool is_finished;
};

/* Find a promise of a client by the answer's id, or by its Idempotency-Key. `key` is the SHA-256 of
 * the client's API key, RECORD_KEY_BYTES, or NULL if the server has no keys. Any thread. */
bool journal_find_id(struct journal *journal, const uint8_t *key, const char *id,
                     struct promise_entry *out);
bool journal_find_idempotent(struct journal *journal, const uint8_t *key, const char *text,
                             struct promise_entry *out);

/* Writes the running promises, the oldest first, at most `max`. Returns their number. */
int journal_running(struct journal *journal, struct promise_entry *out, int max);

/* Reads the newest record of a promise into `bytes`, to which `out` then points. Fails with
 * STATUS_NOT_FOUND if it was evicted or removed meanwhile, or is damaged. Any thread. */
enum status journal_read(struct journal *journal, const struct promise_entry *entry,
                         struct buf *bytes, struct record *out, struct err *err);

/* Counts since the start, except for the first ones. */
struct journal_stats {
    int running, finished; /* promises */
    uint64_t bytes;        /* of the files */
    uint64_t evicted;      /* finished promises */
    uint64_t recovered;    /* promises of an earlier process that ran at the start */
    uint64_t damaged;      /* places in the files that held no record, at the start */
    uint64_t syncs;        /* of files, for one or more records */
    uint64_t refused[N_JOURNAL_REFUSALS]; /* promises */
    uint64_t lost_answers;                /* answers that could not be written */
};
void journal_stats(struct journal *journal, struct journal_stats *out);

#endif
