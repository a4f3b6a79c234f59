/* scheduler/store: blocks of the prefix cache in files, so that a restarted server has its
 * prefixes.
 *
 * DESIGN. A folder has segments: files of records of one size, each a block with its key. The index
 * is in memory and is built from the records' heads at the start.
 *
 *     engine thread   a block is known: copied to a slot -> queue -> writer thread: record, index
 *     worker          a prompt's blocks: index -> records, checked -> restored_blocks
 *     engine thread   restored_blocks -> blocks of the pool that are known and cached
 *
 * The engine thread never waits for a file: if the queue is full, the block is not written. A
 * record is used only if the checksum of all its bytes, its key and its tokens agree; otherwise it
 * is a miss and leaves the index. The key is the hash of all tokens up to the block's end. The
 * folder's name for equal bytes is `identity`, a hash of build, model, arithmetic and block size:
 * segments with another one are not read. Prefixes with a salt are private and are not written.
 *
 * Processes may share a folder: each writes segments of its own, and reads those that it found at
 * its start. If the segments exceed the limit, the oldest one is removed, whoever wrote it. A
 * killed process leaves whole records and at most one part of a record, which is not read.
 *
 * One mutex guards the index and the list of segments. It is never held during input or output.
 */
#ifndef PENSTOCK_PREFIX_STORE_H
#define PENSTOCK_PREFIX_STORE_H

#include "scheduler/kv/prefix_cache.h"

struct prefix_store;

struct prefix_store_config {
    const char *folder; /* made if it is missing */
    int64_t max_bytes;  /* of all segments in it */
    uint64_t identity[2];
    int block_size;
    size_t block_bytes; /* content of a block */
};

/* Counters of a store; they never decrease, except n_blocks and n_bytes. */
struct prefix_store_stats {
    uint64_t n_written, n_read, n_skipped; /* blocks; n_skipped: the queue was full */
    uint64_t n_bad;                        /* records that were not what they should be */
    int n_blocks;                          /* in the index */
    int64_t n_bytes;                       /* of all segments */
};

/* Blocks first..first+n-1 of a prompt, read from a store. */
struct restored_blocks {
    struct prefix_store *store;
    int first, n;
    size_t block_bytes;
    uint8_t *data; /* [n][block_bytes] */
};

/* Opens the folder, reads its index and starts the writer. Fails with STATUS_SYSTEM if the folder
 * cannot be used, and with STATUS_USAGE if max_bytes has no room for two blocks. */
enum status prefix_store_open(struct prefix_store **store, const struct prefix_store_config *config,
                              struct err *err);

/* Writes the queued blocks, and frees the store. NULL is allowed. All restored_blocks must be
 * free. */
void prefix_store_close(struct prefix_store *store);

void prefix_store_stats(struct prefix_store *store,
                        struct prefix_store_stats *out); /* any thread */

/* Returns the bytes of memory of the queue. */
size_t prefix_store_memory(const struct prefix_store *store);

/* ---- engine thread -------------------------------------------------------------------------- */

/* Notes that the pool knows the block from now on, or no longer. */
void prefix_store_note(struct prefix_store *store, struct block_hash hash, bool is_known);

/* Returns memory for the content of a block that shall be written, [block_bytes], or NULL if the
 * store has it or the queue is full. The caller fills it and calls prefix_store_put. */
void *prefix_store_reserve(struct prefix_store *store, struct block_hash hash,
                           struct block_hash parent, const int32_t *tokens);
void prefix_store_put(struct prefix_store *store);

/* ---- workers -------------------------------------------------------------------------------- */

/* Reads the stored blocks of a prompt that the pool does not know, up to the first that is not
 * stored. Returns NULL if there are none, if memory is short, or if computing them takes less time
 * than reading: `ns_per_token` is the measured time of a computed token, 0 if not known. Waits for
 * the files. */
struct restored_blocks *prefix_store_read(struct prefix_store *store, const int32_t *tokens,
                                          int n_tokens, double ns_per_token);

/* Frees blocks that were read; NULL is allowed. Any thread. */
void restored_blocks_free(struct restored_blocks *blocks);

#endif
