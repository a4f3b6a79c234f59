/* part_file: a file that has its name only when it is whole. Folder-internal. */
#ifndef PENSTOCK_ENGINE_PART_FILE_H
#define PENSTOCK_ENGINE_PART_FILE_H

#include "config/config.h"

/* A file under way. It has no name, or where the file system cannot have that, the name with
 * ".part" behind it: a process that ends here leaves nothing under the name itself. One
 * thread writes it, from its beginning to its end. */
struct part_file {
    const char *path;
    char *part; /* NULL: it has no name */
    int fd;
    int64_t bytes;
};

/* Begins a file that is to be at `path`, which must outlive it. Fails with STATUS_USAGE where
 * something is there already, and with STATUS_BAD_FILE where no file can be made. */
enum status part_file_open(struct part_file *file, const char *path, struct err *err);

/* Appends bytes; a full disk is the usual failure, with STATUS_BAD_FILE. */
enum status part_file_write(struct part_file *file, const void *data, size_t bytes,
                            struct err *err);

/* Zeros up to a multiple of `alignment`. */
enum status part_file_pad(struct part_file *file, size_t alignment, struct err *err);

/* Gives the file its name once its bytes are on the disk, or with `is_whole` false removes it. */
enum status part_file_close(struct part_file *file, bool is_whole, struct err *err);

#endif
