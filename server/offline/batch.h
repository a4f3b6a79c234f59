/* server/commands: the output file of `penstock batch`. Internal to this folder.
 *
 * Each line is appended whole. If a run is interrupted, only the last line can be incomplete; it is
 * truncated when the file is opened again. So the lines in the file need not be recomputed.
 */
#ifndef PENSTOCK_SERVER_BATCH_H
#define PENSTOCK_SERVER_BATCH_H

#include <stdio.h>

#include "config/config.h"

/* An entry of the set of keys: the hash of a line's key. */
struct batch_key {
    uint64_t hash[2]; /* both zero: an empty slot */
    bool from_file;   /* the file already had its answer */
};

struct batch_output {
    const char *path;
    FILE *file;
    int64_t n_found;        /* answers found in the file */
    struct batch_key *keys; /* [capacity], open addressing; capacity is a power of two */
    size_t n_keys, capacity;
};

/* Opens or creates the file, locks it for this process, and reads which lines it answers. Fails,
 * and leaves the file unchanged, if it holds anything else. */
enum status batch_output_open(struct batch_output *output, const char *path, struct err *err);
void batch_output_close(struct batch_output *output);

/* Appends a line. Fails if, for example, the disk is full. */
enum status batch_output_write(struct batch_output *output, const struct buf *line,
                               struct err *err);

enum batch_known { BATCH_NEW, BATCH_ANSWERED, BATCH_REPEATED };

/* Adds the key of an input line. Returns whether it is new, answered in the file, or repeated in
 * this run. */
enum batch_known batch_output_note(struct batch_output *output, const struct buf *key);

#endif
