/* folder_copy: a copy of a model's folder that a test may break. Failures end the test (Check). */
#ifndef PENSTOCK_TESTS_FOLDER_COPY_H
#define PENSTOCK_TESTS_FOLDER_COPY_H

#include "config/config.h"

enum { FOLDER_PATH_BYTES = 512 };

/* Copies the folder to a new one below /tmp, whose path stays until the next call. */
const char *folder_copy(const char *from);
void folder_copy_remove(void);

/* The path of the copy's file, until the next call. */
const char *folder_copy_path(const char *file);

void folder_copy_read(struct buf *out, const char *file);
void folder_copy_write(const char *file, const void *bytes, size_t n);

/* Puts `to` in the place of the first `from` in a file that may hold any bytes. */
void folder_copy_replace(const char *file, const char *from, const char *to);

#endif
