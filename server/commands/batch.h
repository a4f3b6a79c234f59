/* server/batch: the output file of `penstock batch`. Internal to server/.
 *
 * Every line that is in the file was written whole, or it is the last one and is cut off when the
 * file is opened again: so what is in it need not be computed again.
 */
#ifndef PENSTOCK_SERVER_BATCH_H
#define PENSTOCK_SERVER_BATCH_H

#include <stdio.h>

#include "config/config.h"

/* What a set knows a line by: the hash of its key. */
struct batch_key {
    uint64_t hash[2]; /* both zero: this place is empty */
    bool from_file;   /* its answer was in the file already */
};

struct batch_output {
    const char *path;
    FILE *file;
    int64_t n_found;        /* answers that were in the file */
    struct batch_key *keys; /* [capacity], open addressing; capacity is a power of two */
    size_t n_keys, capacity;
};

/* Opens or makes the file, for this process alone, and reads which lines it answers. A file that
 * holds anything else is refused and left as it is. */
enum status batch_output_open(struct batch_output *output, const char *path, struct err *err);
void batch_output_close(struct batch_output *output);

/* Appends a line. Fails where the disk is full, say. */
enum status batch_output_write(struct batch_output *output, const struct buf *line,
                               struct err *err);

enum batch_known { BATCH_NEW, BATCH_ANSWERED, BATCH_REPEATED };

/* Notes the key of an input line, and says whether the file has answered it, or another line of
 * this run has the same. */
enum batch_known batch_output_note(struct batch_output *output, const struct buf *key);

#endif
