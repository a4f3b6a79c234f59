/* scheduler/store: prefixes of the prefix cache outside the process, so that a restarted server and
 * other machines have them.
 *
 * DESIGN. A record is a part of a block with its key: the block, its window block, or the state of
 * the recurrent layers after it (enum cache_part). Records are in files (files.c) or in a server
 * that speaks Redis's protocol (redis.c); struct store_backend is the common interface.
 *
 *     blocks          [b0][b1][b2][b3][b4][b5]   a sequence that starts after b5 needs all of them,
 *     window blocks    -   -   -  [w3][w4][w5]   the window blocks that its first row sees,
 *     state                              [s5]    and the state there, as far as the model has these
 *
 *     engine thread   a part is known: copied to a slot -> queue -> writer thread: record, index
 *     worker          a prompt's parts: index or server -> records, checked -> restored_prefix
 *     engine thread   restored_prefix -> blocks of the pool and checkpoints, known and cached
 *
 * A worker chooses the longest beginning of the prompt all of whose parts are known or stored
 * (want.c), and reads the parts that are not known.
 *
 * The engine thread never waits for a file or a server: if the queue is full, the block is not
 * written. A record is used only if the checksum of all its bytes, its key and its tokens agree;
 * otherwise it is a miss. The key is the hash of all tokens up to the block's end. `identity` is a
 * hash of build, model, arithmetic and block size: records with another one are not read. Prefixes
 * with a salt are private and are not written.
 *
 * Files: a folder has segments. A segment has the records of one part, which have one size. The
 * index has all records and is built from their heads at the start. Processes may share a folder:
 * each writes segments of its own, and reads those that it found at its start. If the segments
 * exceed the limit, the oldest one of any process is removed. A killed process leaves whole records
 * and at most one that is cut, which is not read. Records of 64 KiB or more are written by direct
 * I/O, because copies to the page cache would slow down the computing threads. If more than four
 * records wait, they go through the page cache.
 *
 * Redis: each record is a value. The index has the parts that the pool knows and those that this
 * process has written or read; the server is asked for the others. The writer thread makes all
 * connections. A worker uses one until its deadline, and without one it reads nothing. After an
 * error nothing is sent for a time that grows with each further error.
 *
 * One mutex guards the index, the list of segments and that of the connections. It is never held
 * during input or output.
 */
#ifndef PENSTOCK_PREFIX_STORE_H
#define PENSTOCK_PREFIX_STORE_H

#include "scheduler/kv/prefix_cache.h"

struct prefix_store;

struct prefix_store_config {
    const char *place; /* a folder, made if it is missing; or redis://[[USER]:PASSWORD@]HOST:PORT */
    int64_t max_bytes; /* of all segments in the folder; a server has a limit of its own */
    uint64_t identity[2];
    int n_blocks; /* of the pool */
    int block_size;
    int window; /* positions that a row sees in layers with window blocks */
    /* content of each part; 0 for a window block or a state: the model has no such parts */
    size_t part_bytes[N_CACHE_PARTS];
};

/* Why a record was not written, or not used. */
enum store_drop {
    DROP_QUEUE_FULL,  /* the writer is slower than the engine */
    DROP_UNAVAILABLE, /* disk or server refuse records, or have failed a short time ago */
    DROP_DAMAGED,     /* it was not what it should be when it was read */
    N_STORE_DROPS
};

/* Counters of a store; they never decrease, except the last three. */
struct prefix_store_stats {
    uint64_t n_hits, n_misses; /* blocks of prompts that were read, and that were not */
    uint64_t n_written;        /* records */
    uint64_t bytes_read, bytes_written;
    uint64_t dropped[N_STORE_DROPS]; /* records */
    uint64_t n_errors;               /* failed operations of disk or server */
    int n_records;                   /* that are known to be stored */
    int64_t n_bytes;                 /* of all segments; 0 with Redis */
    bool is_up;                      /* the last operation did not fail */
};

/* A part that was read from a store. */
struct restored_part {
    enum cache_part part;
    int block;              /* of the prompt */
    const uint8_t *content; /* [part_bytes[part]] */
};

/* The parts that the pool lacks for the first n_blocks blocks of a prompt: first the blocks in
 * order, then the window blocks in order, then the state. */
struct restored_prefix {
    struct prefix_store *store;
    int n_blocks, n_parts;
    struct restored_part *part; /* [n_parts] */
    size_t bytes, filled;       /* of the content: planned, and read */
    uint8_t *data;              /* [bytes] */
};

/* Opens the folder or connects to the server, and starts the writer. Fails with STATUS_SYSTEM if
 * the folder cannot be used, and with STATUS_USAGE if two blocks exceed max_bytes or the address is
 * wrong. A server that does not answer is only a warning. */
enum status prefix_store_open(struct prefix_store **store, const struct prefix_store_config *config,
                              struct err *err);

/* Writes the queued blocks, to Redis for two seconds at most, and frees the store. NULL is allowed.
 * All restored_prefix must be free. */
void prefix_store_close(struct prefix_store *store);

void prefix_store_stats(struct prefix_store *store,
                        struct prefix_store_stats *out); /* any thread */

/* Returns the bytes of memory of the queue. */
size_t prefix_store_memory(const struct prefix_store *store);

/* Returns the place without a password, for messages. */
const char *prefix_store_name(const struct prefix_store *store);

/* ---- engine thread -------------------------------------------------------------------------- */

/* Notes that the pool has the part of a block from now on, or no longer. */
void prefix_store_note(struct prefix_store *store, enum cache_part part, struct block_hash hash,
                       bool is_known);

/* Returns memory for the content of a part that shall be written, [part_bytes[part]], or NULL if
 * the store has it or the queue is full. `tokens` and `parent` are those of its block. The caller
 * fills it and calls prefix_store_put. */
void *prefix_store_reserve(struct prefix_store *store, enum cache_part part, struct block_hash hash,
                           struct block_hash parent, const int32_t *tokens);
void prefix_store_put(struct prefix_store *store, enum cache_part part);

/* ---- workers -------------------------------------------------------------------------------- */

/* Reads the stored parts of a prompt that the pool does not know, for the longest beginning after
 * which a sequence can start. Returns NULL if the pool can start after as many blocks, if memory is
 * short, or if computing takes less time than reading: `ns_per_token` is the measured time of a
 * computed token, 0 if not known. Waits for the files, or for the server up to a deadline. */
struct restored_prefix *prefix_store_read(struct prefix_store *store, const int32_t *tokens,
                                          int n_tokens, double ns_per_token);

/* Frees the parts that were read; NULL is allowed. Any thread. */
void restored_prefix_free(struct restored_prefix *prefix);

#endif
