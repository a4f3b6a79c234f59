/* Internal to server/promises. */
#ifndef PENSTOCK_SERVER_PROMISES_INTERNAL_H
#define PENSTOCK_SERVER_PROMISES_INTERNAL_H

#include "server/promises/promises.h"

/* ---- index.c -------------------------------------------------------------------------------- */

/* The chains of the index. */
enum promise_chain { BY_NUMBER, BY_ID, BY_IDEMPOTENCY, N_CHAINS };

/* The hash of a client's key and a text; zero: the promise is not in this chain. */
struct promise_name {
    uint64_t half[2];
};

/* A promise in memory. */
struct promise {
    struct promise_entry entry;
    struct promise_name name[N_CHAINS];
    struct promise *next[N_CHAINS];
    struct list_node node; /* in running or finished, in the order of their newest records */
    enum record_kind kind; /* of the record that made it; RECORD_REMOVED: only its number is set */
};

struct promise_index {
    struct promise **bucket[N_CHAINS]; /* [n_buckets] */
    size_t n_buckets;                  /* a power of two */
    struct list running, finished;
};

void index_open(struct promise_index *index);
void index_close(struct promise_index *index);

/* Returns the name of an id or an Idempotency-Key of a client. */
struct promise_name index_name(const void *key, size_t key_length, const char *text, size_t length);

/* Makes the entry of a record. */
struct promise *promise_new(const struct record *record);

/* Applies a record: adds its promise, replaces the older entry, or removes it. Takes ownership. */
void index_apply(struct promise_index *index, struct promise *promise);

/* Returns the promise of a name, or NULL. */
struct promise *index_find(const struct promise_index *index, enum promise_chain chain,
                           struct promise_name name);

/* Removes a promise and frees it. */
void index_remove(struct promise_index *index, struct promise *promise);

/* ---- segment.c ------------------------------------------------------------------------------ */

enum { SEGMENT_NAME_BYTES = 32, SEGMENT_HEAD_BYTES = 24 };

/* A file of records. */
struct journal_segment {
    uint64_t number; /* its name; higher numbers are newer */
    uint64_t bytes;  /* its size */
};

/* Writes the name of a segment's file. */
void segment_name(char out[SEGMENT_NAME_BYTES], uint64_t number);

/* Returns true and sets *number if it is the name of a segment's file. */
bool segment_is_name(const char *name, uint64_t *number);

/* Creates a segment with its header and syncs the folder. Returns its file, or -1 with errno. */
int segment_create(int folder, uint64_t number);

/* Writes all bytes at an offset. Returns false with errno. */
bool segment_write(int fd, const void *data, size_t length, uint64_t offset);

/* A scan of a segment's bytes. */
struct segment_scan {
    const char *data; /* [length], the whole file */
    size_t length;
    size_t at;       /* where the next record is expected */
    size_t good;     /* the end of the last intact record */
    uint64_t damage; /* places without an intact record before `good` */
};

/* Begins a scan. Returns false if the header is missing or of another format. */
bool segment_scan_begin(struct segment_scan *scan, const char *data, size_t length);

/* Finds the next intact record, also after damaged bytes. Returns false at the end. */
bool segment_scan_next(struct segment_scan *scan, struct record *record, size_t *offset,
                       size_t *size);

/* ---- folder.c: the files of a journal ------------------------------------------------------- */

enum { MAX_SEGMENTS = 256, SEGMENTS_IN_SIZE = 16 };

/* The folder, its lock and its segments. It belongs to the thread that opens it, then to the
 * journal's thread. */
struct journal_folder {
    const char *path;
    int fd;   /* the folder */
    int lock; /* the locked file */
    int file; /* the newest segment */
    struct journal_segment segment[MAX_SEGMENTS];
    int n_segments;
    uint64_t bytes, max_bytes; /* of all segments */
};

/* Opens or creates the folder and locks it. Fails as journal_open does. */
enum status folder_open(struct journal_folder *folder, const struct journal_config *config,
                        struct err *err);
void folder_close(struct journal_folder *folder);

/* Reads all segments into the index, cuts the tail of the newest, and opens it for writing. Sets
 * *last_number to the highest number of a promise, and *damaged to the damaged places. */
enum status folder_read(struct journal_folder *folder, struct promise_index *index,
                        uint64_t *last_number, uint64_t *damaged, struct err *err);

/* Begins a new segment if `length` more bytes do not belong into the newest one. Returns false with
 * errno. */
bool folder_rotate(struct journal_folder *folder, size_t length);

/* Appends bytes to the newest segment, and sets their place. If that fails, the file is as before;
 * returns false with errno. */
bool folder_append(struct journal_folder *folder, const void *data, size_t length,
                   struct promise_entry *place);

/* Appends the bytes of a promise's record again, and sets their new place. */
bool folder_move(struct journal_folder *folder, const struct promise_entry *from,
                 struct promise_entry *place);

/* Deletes the oldest segment, which must not be the newest. */
void folder_drop(struct journal_folder *folder);

#endif
