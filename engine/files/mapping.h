/* mapping: a file as bytes in memory, mapped once and read-only; and what readers of files share
 * about paths.
 *
 * Folder-internal; any thread may read the bytes. If another program cuts a file short while it is
 * mapped, the first thread that reads a page that is gone ends the process with exit code 1 and a
 * line of the log that names the file: the first mapping_open has SIGBUS do that. */
#ifndef PENSTOCK_ENGINE_MAPPING_H
#define PENSTOCK_ENGINE_MAPPING_H

#include "config/config.h"

struct mapping {
    const uint8_t *data; /* [size]; NULL: nothing is mapped */
    size_t size;
    int fd; /* of the file, open as long as it is mapped; below 0: it is not */
};

/* Maps a regular file that is not empty. Fails with STATUS_BAD_FILE and a sentence that begins with
 * the path. */
enum status mapping_open(struct mapping *out, const char *path, struct err *err);
void mapping_close(struct mapping *mapping);

/* Fails with STATUS_BAD_FILE if the file was written to since it was mapped: the bytes that were
 * read may be of two files. A file that another one has replaced is as it was. */
enum status mapping_check(const struct mapping *mapping, struct err *err);

/* The path of a file in a folder; the caller frees it. */
char *path_in(const char *folder, const char *name);

/* Does the folder have something of that name? */
bool is_in_folder(const char *folder, const char *name);

/* Puts a file's path before the sentence about what is wrong in it; returns the status. */
enum status blame_file(struct err *err, enum status status, const char *path);

#endif
