/* Internal to scheduler/store. */
#ifndef PENSTOCK_STORE_INTERNAL_H
#define PENSTOCK_STORE_INTERNAL_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "scheduler/store/prefix_store.h"

enum { MAX_SEGMENTS = 256, SEGMENT_NAME = 48 };

/* ---- format ---------------------------------------------------------------------------------- */

#define SEGMENT_MAGIC 0x324745536b6e6550u /* "PenkSEG2" */
#define RECORD_MAGIC 0x324345526b6e6550u  /* "PenkREC2" */
enum { SEGMENT_HEAD = 4096 };             /* bytes before the first record */

/* The size of a record is a multiple of a unit. Large records are written by direct I/O, whose
 * addresses and sizes are multiples of a page. */
enum { LARGE_RECORD = 64 << 10, SMALL_UNIT = 64, DIRECT_UNIT = 4096 };

/* At the start of a segment. All numbers are little-endian. */
struct segment_head {
    uint64_t magic, identity[2];
    uint64_t part; /* enum cache_part: that of all its records */
    uint64_t block_size, part_bytes, record_bytes;
    uint64_t sum; /* XXH3_64 of the fields before it */
};

/* At the start of a record; tokens[block_size] and the content follow. */
struct record_head {
    uint64_t magic;
    uint64_t sum[2];                /* XXH3_128 of all bytes of the record after this field */
    uint64_t head_sum;              /* XXH3_64 of the fields after it and of the tokens */
    uint64_t part;                  /* enum cache_part */
    struct block_hash hash, parent; /* of the block */
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
struct stored_part {
    struct block_hash hash;
    int32_t segment; /* -1: the entry is free; with Redis 0 */
    int32_t record;  /* -1: it is not stored, or turned out to be bad */
    uint8_t part;    /* enum cache_part */
    bool is_known;   /* to the pool */
};

/* State of the parts of a block: bit i is for part i. */
struct part_flags {
    uint8_t known, stored;
};

/* The reading of a prompt by a worker. */
struct prefix_read {
    const int32_t *tokens;    /* [n_blocks][block_size] */
    int n_blocks;             /* full blocks of the prompt */
    struct block_hash *hash;  /* [n_blocks + 1] hash[i + 1] is that of block i, hash[0] the salt */
    struct part_flags *flags; /* [n_blocks] */
    int known_end;            /* a sequence can start after as many blocks without the store, */
    int end;                  /* and with it */
    int n_wanted;
    struct wanted_part {
        enum cache_part part;
        int block;
    } * wanted; /* [n_wanted] to be read, in the order of struct restored_prefix */
    double ns_per_token;
    struct redis_link *link; /* of redis.c */
    uint64_t deadline_ns;
    bool failed; /* the link */
};

/* Where the records are. */
struct store_backend {
    enum status (*open)(struct prefix_store *store, struct err *err);
    void (*close)(struct prefix_store *store); /* also after a failed open */
    /* Writes the record of a slot of the part's queue. Writer thread. */
    void (*write)(struct prefix_store *store, enum cache_part part, uint64_t slot);
    /* Called by the writer thread before each record and each time that it is woken; may be NULL */
    void (*tend)(struct prefix_store *store);
    /* Sets read->flags[].stored. Returns false if nothing can be read. Workers. */
    bool (*find)(struct prefix_store *store, struct prefix_read *read);
    /* Appends the wanted parts to `prefix`, up to the first that is not usable. Workers. */
    void (*get)(struct prefix_store *store, struct prefix_read *read,
                struct restored_prefix *prefix);
    /* Ends a read after `find` has returned true; may be NULL. Workers. */
    void (*end)(struct prefix_store *store, struct prefix_read *read);
    bool forgets; /* the index may lose entries of stored records: the store asks again */
};

/* The records of a part. */
struct part_store {
    bool is_used; /* the model has such parts */
    size_t record_bytes;
    int64_t segment_bytes; /* a segment is full if another record would exceed this */
    uint8_t *queue; /* [n_slots][record_bytes]; slots tail..head-1 (modulo n_slots) are filled */
    uint64_t n_slots;
    _Atomic uint64_t head, tail;
    /* writer thread only, for files: */
    int writing; /* index of its segment, or -1 */
    int64_t write_at;
    int direct_fd; /* of that segment, for direct I/O; -1: records are written by its own fd */
};

struct prefix_store {
    const struct store_backend *backend;
    char *place;               /* for messages */
    struct redis_store *redis; /* of redis.c */
    struct prefix_store_config config;
    struct part_store part[N_CACHE_PARTS];
    pthread_mutex_t mutex; /* guards the fields up to `reading_bytes` */
    struct segment segment[MAX_SEGMENTS];
    int n_segments; /* entries in use, the removed ones included */
    int64_t bytes;
    struct stored_part *index; /* [capacity] open addressing */
    struct stored_part *spare; /* [capacity] for index_drop_segment */
    size_t capacity;           /* a power of two */
    size_t n_indexed;          /* entries in use */
    int n_stored;              /* entries with a record */
    struct prefix_store_stats stats;
    double ns_per_byte; /* of reads; 0: not measured */
    double ask_ns;      /* to ask which parts are stored; 0: not measured, or no question */
    int n_refusals;     /* reads that would have been slow, since the last read */
    _Atomic size_t reading_bytes; /* of all restored_prefix */
    sem_t filled;                 /* a record is queued, or the writer thread is woken */
    pthread_t thread;
    _Atomic bool stopping;
    uint64_t failed_ns; /* writer thread, for files: when the last write failed; 0: it worked */
};

/* ---- index.c: callers hold the mutex --------------------------------------------------------- */

/* Allocates an index for n records and the parts that the pool knows. */
void index_init(struct prefix_store *store, size_t n);

/* Returns the entry of a stored part, or NULL. */
struct stored_part *store_index_find(struct prefix_store *store, enum cache_part part,
                                     struct block_hash hash);

/* Notes that the pool has a part, or no longer, whether or not it is stored. */
void index_note(struct prefix_store *store, enum cache_part part, struct block_hash hash,
                bool is_known);
bool index_is_known(struct prefix_store *store, enum cache_part part, struct block_hash hash);

/* Notes the record of a part; record -1: it is not stored. Does nothing if records that may not be
 * forgotten fill the index. */
void index_set_stored(struct prefix_store *store, enum cache_part part, struct block_hash hash,
                      int segment, int record);

/* Forgets all records of a segment. */
void index_drop_segment(struct prefix_store *store, int segment);

/* ---- store.c --------------------------------------------------------------------------------- */

/* Count a lost record, an error, a record that was written, and the time in which `bytes` of
 * records were read. */
void store_count_drop(struct prefix_store *store, enum store_drop reason);
void store_count_error(struct prefix_store *store);
/* the caller holds the mutex */
void store_count_written(struct prefix_store *store, enum cache_part part);
void store_count_read(struct prefix_store *store, size_t bytes, uint64_t ns);

/* Is the part flag set? */
static inline bool part_is_in(uint8_t flags, enum cache_part part) {
    return flags >> part & 1;
}

/* ---- want.c: workers ------------------------------------------------------------------------- */

/* Returns the largest number of blocks after which a sequence can start, with the parts that the
 * pool knows and, if with_stored, those that are stored. */
int want_end(const struct prefix_store *store, const struct prefix_read *read, bool with_stored);

/* Sets read->end from the flags, and read->wanted to the parts that are read for it: none if the
 * pool can start there. */
void want_parts(const struct prefix_store *store, struct prefix_read *read);

/* Returns the bytes of the records that a sequence after all blocks needs, without those that the
 * pool knows. */
size_t want_most_bytes(const struct prefix_store *store, const struct prefix_read *read);

/* Returns memory for the wanted parts, or NULL if it is short or too much is in use. */
struct restored_prefix *restored_prefix_new(struct prefix_store *store,
                                            const struct prefix_read *read);

/* Appends the content of the next wanted part's record. */
void restored_prefix_add(struct restored_prefix *prefix, const struct prefix_read *read,
                         const uint8_t *record);

/* Ends a read. If not all wanted parts were read, fewer blocks may be usable. Returns NULL, and
 * frees the prefix, if these are not more than the pool can start after. */
struct restored_prefix *restored_prefix_end(struct restored_prefix *prefix,
                                            struct prefix_read *read);

/* ---- backends -------------------------------------------------------------------------------- */

extern const struct store_backend store_in_files, store_in_redis;

/* Is the place an address of Redis? */
bool store_is_redis(const char *place);

/* ---- segments.c ------------------------------------------------------------------------------ */

/* Makes the head of this store's segments of a part. */
struct segment_head store_segment_head(const struct prefix_store *store, enum cache_part part);

/* Reads the heads of all segments of the folder. Fails with STATUS_SYSTEM. */
enum status segments_scan(struct prefix_store *store, struct err *err);

/* Takes the oldest segments out of use until `more` bytes fit. The caller holds the mutex. Returns
 * false if they cannot fit. Then segments_unlink removes their files, without the mutex. For the
 * writer thread. */
bool segments_make_room(struct prefix_store *store, int64_t more);
void segments_unlink(struct prefix_store *store);

/* Creates a segment of a part and returns its index, or -1 with errno. */
int store_segment_create(struct prefix_store *store, enum cache_part part);

/* Opens a segment again for direct I/O. Returns the descriptor, or -1: its records are not of whole
 * pages, or the file system lacks direct I/O. */
int store_segment_open_direct(const struct prefix_store *store, enum cache_part part, int segment);

/* Begin and end the use of a segment's file; segment_use returns -1 if it is gone. */
int segment_use(struct prefix_store *store, int segment);
void segment_unuse(struct prefix_store *store, int segment);

/* Closes all files. */
void segments_close(struct prefix_store *store);

/* ---- record.c -------------------------------------------------------------------------------- */

size_t record_size(int block_size, size_t part_bytes);

/* The tokens of a record, and the offset of its content. */
int32_t *record_tokens(uint8_t *record);
size_t record_content_at(const struct prefix_store *store);

/* Sets the checksums of a record whose other fields are set. */
void record_seal(const struct prefix_store *store, uint8_t *record);

/* Are head and tokens those of a whole record of the part? For the index. */
bool record_head_is_whole(const struct prefix_store *store, enum cache_part part,
                          const uint8_t *record);

/* Returns whether `record`, of record_bytes of wanted part `i`, is its whole record. */
bool stored_record_is(const struct prefix_store *store, const struct prefix_read *read, int i,
                      const uint8_t *record);

/* The head of the record in a slot of a part's queue. */
static inline const struct record_head *slot_head(const struct part_store *of, uint64_t slot) {
    return (const struct record_head *)(const void *)(of->queue + slot * of->record_bytes);
}

#endif
