/* Internal to scheduler/store. */
#ifndef PENSTOCK_STORE_INTERNAL_H
#define PENSTOCK_STORE_INTERNAL_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "scheduler/store/prefix_store.h"

enum { MAX_SEGMENTS = 256, SEGMENT_NAME = 48 };

/* ---- format ---------------------------------------------------------------------------------- */

#define SEGMENT_MAGIC 0x314745536b6e6550u /* "PenkSEG1" */
#define RECORD_MAGIC 0x314345526b6e6550u  /* "PenkREC1" */
enum { SEGMENT_HEAD = 4096 };             /* bytes before the first record */

/* At the start of a segment. All numbers are little-endian. */
struct segment_head {
    uint64_t magic, identity[2];
    uint64_t block_size, block_bytes, record_bytes;
    uint64_t sum; /* XXH3_64 of the fields before it */
};

/* At the start of a record; tokens[block_size] and the content follow. */
struct record_head {
    uint64_t magic;
    uint64_t sum[2];   /* XXH3_128 of all bytes of the record after this field */
    uint64_t head_sum; /* XXH3_64 of the fields after it and of the tokens */
    struct block_hash hash, parent;
};

/* ---- state ----------------------------------------------------------------------------------- */

struct segment {
    char name[SEGMENT_NAME];
    int fd;        /* -1: its identity is another, or it is gone */
    int readers;   /* that use fd */
    bool removed;  /* its fd is closed after the last reader */
    bool unlinked; /* its file is removed, too */
    int64_t bytes; /* of the file */
    int64_t order; /* lower values are removed first */
};

/* An entry of the index. */
struct stored_block {
    struct block_hash hash;
    int32_t segment; /* -1: free; with Redis 0 */
    int32_t record;  /* -1: it is not stored, or turned out to be bad */
    bool is_known;   /* to the pool */
};

/* Where the records are. */
struct store_backend {
    enum status (*open)(struct prefix_store *store, struct err *err);
    void (*close)(struct prefix_store *store); /* also after a failed open */
    /* Writes the record of a slot. Writer thread. */
    void (*write)(struct prefix_store *store, uint64_t slot);
    /* Called by the writer thread before each record and each time that it is woken; may be NULL */
    void (*tend)(struct prefix_store *store);
    /* Reads blocks of a prompt. May return NULL. Workers. */
    struct restored_blocks *(*read)(struct prefix_store *store, const int32_t *tokens, int n_blocks,
                                    double ns_per_token);
    bool has_known; /* the index has all blocks that the pool knows, stored or not */
};

struct prefix_store {
    const struct store_backend *backend;
    char *place;               /* for messages */
    struct redis_store *redis; /* of redis.c */
    struct prefix_store_config config;
    size_t record_bytes;
    int64_t segment_bytes; /* a segment is full if another record would exceed this */
    pthread_mutex_t mutex; /* guards the fields up to `queue` */
    struct segment segment[MAX_SEGMENTS];
    int n_segments; /* entries in use, the removed ones included */
    int64_t bytes;
    struct stored_block *index; /* [capacity] open addressing */
    struct stored_block *spare; /* [capacity] for index_drop_segment */
    size_t capacity;            /* a power of two */
    int n_indexed;
    struct prefix_store_stats stats;
    double ns_per_byte; /* of reads; 0: not measured */
    double ask_ns;      /* to ask which blocks are stored; 0: not measured, or no question */
    int n_refusals;     /* reads that would have been slow, since the last read */
    bool *evicted;      /* [n_slots] the pool has evicted the block of this slot meanwhile */
    /* queue: [n_slots] records; slots tail..head-1 are filled */
    uint8_t *queue;
    uint64_t n_slots;
    _Atomic uint64_t head, tail;
    _Atomic size_t reading_bytes; /* of all restored_blocks */
    sem_t filled;
    pthread_t thread;
    _Atomic bool stopping;
    /* writer thread only, for files: */
    int writing; /* index of its segment, or -1 */
    int64_t write_at;
    uint64_t failed_ns; /* when the last write failed; 0: it worked */
};

/* ---- index.c: callers hold the mutex --------------------------------------------------------- */

/* Allocates an index for n blocks. */
void index_init(struct prefix_store *store, size_t n);

/* Returns the entry of a stored block, or NULL. */
struct stored_block *store_index_find(struct prefix_store *store, struct block_hash hash);

/* Adds a block, or moves it to another record. Does nothing if the index is full. */
void index_add(struct prefix_store *store, struct block_hash hash, int segment, int record,
               bool is_known);

/* Notes that the pool knows a block, or no longer, whether or not it is stored. For backends with
 * has_known. */
void index_note(struct prefix_store *store, struct block_hash hash, bool is_known);
bool index_is_known(struct prefix_store *store, struct block_hash hash);

/* Notes that a block is stored, or not. For backends with has_known. */
void index_set_stored(struct prefix_store *store, struct block_hash hash, bool is_stored);

/* Removes all blocks of a segment. */
void index_drop_segment(struct prefix_store *store, int segment);

/* ---- store.c --------------------------------------------------------------------------------- */

/* Is reading n blocks expected to take longer than computing them? Sometimes the answer is
 * false in any case, so that the rate is measured again. */
bool store_is_slow(struct prefix_store *store, int n, double ns_per_token);

/* Count blocks that were not read, a lost record, an error, a record that was written, and n blocks
 * that were read in a time. */
void store_count_misses(struct prefix_store *store, int n);
void store_count_drop(struct prefix_store *store, enum store_drop reason);
void store_count_error(struct prefix_store *store);
void store_count_written(struct prefix_store *store); /* the caller holds the mutex */
void store_count_read(struct prefix_store *store, int n, uint64_t ns);

/* Returns memory for n blocks, or NULL if it is short or too much is in use. */
struct restored_blocks *restored_blocks_new(struct prefix_store *store, int first, int n);

/* Appends the content of a record. */
void restored_blocks_add(struct restored_blocks *blocks, const uint8_t *record);

/* Ends the reading of n blocks after blocks->n were read: the memory of the others is not counted.
 * Returns NULL if none was read. */
struct restored_blocks *restored_blocks_end(struct restored_blocks *blocks, int n);

/* ---- backends -------------------------------------------------------------------------------- */

extern const struct store_backend store_in_files, store_in_redis;

/* Is the place an address of Redis? */
bool store_is_redis(const char *place);

/* ---- segments.c ------------------------------------------------------------------------------ */

/* Makes the head of this store's segments. */
struct segment_head store_segment_head(const struct prefix_store *store);

/* Reads the heads of all segments of the folder. Fails with STATUS_SYSTEM. */
enum status segments_scan(struct prefix_store *store, struct err *err);

/* Takes the oldest segments out of use until `more` bytes fit. The caller holds the mutex. Returns
 * false if they cannot fit. Then segments_unlink removes their files, without the mutex. For the
 * writer thread. */
bool segments_make_room(struct prefix_store *store, int64_t more);
void segments_unlink(struct prefix_store *store);

/* Creates a segment and returns its index, or -1 with errno. */
int store_segment_create(struct prefix_store *store);

/* Begin and end the use of a segment's file; segment_use returns -1 if it is gone. */
int segment_use(struct prefix_store *store, int segment);
void segment_unuse(struct prefix_store *store, int segment);

/* Closes all files. */
void segments_close(struct prefix_store *store);

/* ---- record.c -------------------------------------------------------------------------------- */

size_t record_size(int block_size, size_t block_bytes);

/* The parts of a record. The content begins at an offset. */
int32_t *record_tokens(uint8_t *record);
size_t record_content_at(const struct prefix_store *store);

/* Sets the checksums of a record whose other fields are set. */
void record_seal(const struct prefix_store *store, uint8_t *record);

/* Are head and tokens whole? For the index. */
bool record_head_is_whole(const struct prefix_store *store, const uint8_t *record);

/* Is it the whole record of this block? */
bool stored_record_is(const struct prefix_store *store, const uint8_t *record,
                      struct block_hash hash, struct block_hash parent, const int32_t *tokens);

/* The head of the record in a slot of the queue. */
static inline const struct record_head *slot_head(const struct prefix_store *store, uint64_t slot) {
    return (const struct record_head *)(const void *)(store->queue + slot * store->record_bytes);
}

#endif
