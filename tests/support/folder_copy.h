/* folder_copy: a copy of a model's folder that a test may break. Failures end the test (Check). */
#ifndef PENSTOCK_TESTS_FOLDER_COPY_H
#define PENSTOCK_TESTS_FOLDER_COPY_H

#include "config/config.h"

enum { FOLDER_PATH_BYTES = 512 };

/* Copies the folder to a new one below /tmp. Returns its path, valid until the next call. */
const char *folder_copy(const char *from);
void folder_copy_remove(void);

/* Returns the path of a file of the copy, valid until the next call. */
const char *folder_copy_path(const char *file);

void folder_copy_read(struct buf *out, const char *file);
void folder_copy_write(const char *file, const void *bytes, size_t n);

/* Replaces the first `from` with `to` in a file that may hold any bytes. */
void folder_copy_replace(const char *file, const char *from, const char *to);

#endif
