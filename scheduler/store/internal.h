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
    int32_t segment; /* -1: free */
    int32_t record;  /* -1: it turned out to be bad */
    bool is_known;   /* to the pool */
};

struct prefix_store {
    char *folder;
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
    int n_refusals;     /* reads that would have been slow, since the last read */
    bool *evicted;      /* [n_slots] the pool has evicted the block of this slot meanwhile */
    /* queue: [n_slots] records; slots tail..head-1 are filled */
    uint8_t *queue;
    uint64_t n_slots;
    _Atomic uint64_t head, tail;
    _Atomic size_t reading_bytes; /* of all restored_blocks */
    sem_t filled;
    /* writer thread only: */
    int writing; /* index of its segment, or -1 */
    int64_t write_at;
    uint64_t failed_ns; /* when the last write failed; 0: it worked */
    pthread_t thread;
    _Atomic bool stopping;
};

/* ---- index.c: callers hold the mutex --------------------------------------------------------- */

/* Allocates an index for n blocks. */
void index_init(struct prefix_store *store, size_t n);

/* Returns the entry of a stored block, or NULL. */
struct stored_block *store_index_find(struct prefix_store *store, struct block_hash hash);

/* Adds a block, or moves it to another record. Does nothing if the index is full. */
void index_add(struct prefix_store *store, struct block_hash hash, int segment, int record,
               bool is_known);

/* Removes all blocks of a segment. */
void index_drop_segment(struct prefix_store *store, int segment);

/* ---- segments.c ------------------------------------------------------------------------------ */

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

/* The parts of a record. */
int32_t *record_tokens(uint8_t *record);
uint8_t *record_content(const struct prefix_store *store, uint8_t *record);

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

/* ---- writer.c -------------------------------------------------------------------------------- */

/* The thread that writes the queue. */
void *writer_thread(void *store);

#endif
