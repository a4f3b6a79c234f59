/* name_index: from a name to a number. Names are counted bytes that live elsewhere. One thread
 * fills an index, then any number of threads may look. */
#ifndef PENSTOCK_NAME_INDEX_H
#define PENSTOCK_NAME_INDEX_H

#include "config/config.h"

struct name_entry {
    const char *name; /* NULL: the place is free */
    size_t length;    /* bytes */
    int number;
};

struct name_index {
    struct name_entry *entry; /* [mask + 1], open addressing, at most half full */
    size_t mask;
};

/* FNV-1a of 64 bits (Fowler, Noll, Vo): the same on every machine. */
uint64_t name_hash(const char *name, size_t length);

/* Makes an empty index with room for n_names. Free it with name_index_free. */
void name_index_init(struct name_index *index, size_t n_names);

/* Frees what name_index_init made; not the names. */
void name_index_free(struct name_index *index);

/* Enters `name` (not copied: it must outlive the index) with its number. False, and nothing
 * changes, when the name is there already. */
bool name_index_add(struct name_index *index, const char *name, size_t length, int number);

/* The number of `name`, or -1. */
int name_index_find(const struct name_index *index, const char *name, size_t length);

#endif
