/* mapping: a file as bytes in memory, mapped once and read-only; and path functions for readers of
 * files.
 *
 * Any thread may read the bytes. If another program truncates a file while it is
 * mapped, the first thread that reads a lost page ends the process with exit code 1 and a log line
 * that names the file. The first mapping_open installs the SIGBUS handler for this. */
#ifndef PENSTOCK_ENGINE_MAPPING_H
#define PENSTOCK_ENGINE_MAPPING_H

#include "config/config.h"

struct mapping {
    const uint8_t *data; /* [size]; NULL: nothing is mapped */
    size_t size;
    int fd; /* open file descriptor, or below 0 if it was closed after mapping */
};

/* Maps a regular file that is not empty. Fails with STATUS_BAD_FILE and a sentence that begins with
 * the path. */
enum status mapping_open(struct mapping *out, const char *path, struct err *err);
void mapping_close(struct mapping *mapping);

/* Fails with STATUS_BAD_FILE if the file was written to after it was mapped: the bytes read may
 * then mix two versions. A file that was replaced by another one of its name still has its old
 * bytes. */
enum status mapping_check(const struct mapping *mapping, struct err *err);

/* Does the folder contain something with that name? */
bool is_in_folder(const char *folder, const char *name);

/* Puts a file's path before the message about an error in it; returns the status. */
enum status blame_file(struct err *err, enum status status, const char *path);

#endif
