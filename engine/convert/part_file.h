/* part_file: a file that gets its name only when it is complete. Folder-internal. */
#ifndef PENSTOCK_ENGINE_PART_FILE_H
#define PENSTOCK_ENGINE_PART_FILE_H

#include "config/config.h"

/* A file in progress. It has no name or, if the file system does not support that, a name with the
 * suffix ".part": if the process ends early, the final name does not exist. One thread writes it
 * from beginning to end. */
struct part_file {
    const char *path;
    char *part; /* NULL: it is unnamed */
    int fd;
    int64_t bytes;
};

/* Begins a file for `path`, which must outlive it. Fails with STATUS_USAGE if the path exists, and
 * with STATUS_BAD_FILE if the file cannot be created. */
enum status part_file_open(struct part_file *file, const char *path, struct err *err);

/* Appends bytes. Fails with STATUS_BAD_FILE, usually because the disk is full. */
enum status part_file_write(struct part_file *file, const void *data, size_t bytes,
                            struct err *err);

/* Appends zeros up to a multiple of `alignment`. */
enum status part_file_pad(struct part_file *file, size_t alignment, struct err *err);

/* Names the file after its bytes are on the disk; with `is_whole` false, removes it. */
enum status part_file_close(struct part_file *file, bool is_whole, struct err *err);

#endif
