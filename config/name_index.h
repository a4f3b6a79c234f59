/* name_index: maps names to numbers. A name is bytes with a length; the caller owns them. After one
 * thread has filled an index, any number of threads may search it.
 *
 * It is only for names from model files and from this program. The hash has no secret seed: a
 * client could choose names with equal hashes, and each lookup would compare all of them. Names
 * from clients are sorted instead (json_names.c, engine/grammar/schema/index.c), or the time limit
 * of their grammar bounds the comparisons (engine/grammar/read/gbnf.c). */
#ifndef PENSTOCK_NAME_INDEX_H
#define PENSTOCK_NAME_INDEX_H

#include "config/config.h"

struct name_entry {
    const char *name; /* NULL: free */
    size_t length;    /* bytes */
    int number;
};

struct name_index {
    struct name_entry *entry; /* [mask + 1], open addressing, at most half full */
    size_t mask;
};

/* Returns the 64-bit FNV-1a hash (Fowler, Noll, Vo), equal on every machine. Collisions are easy to
 * choose. */
uint64_t name_hash(const char *name, size_t length);

/* Makes an empty index for up to n_names names. Free it with name_index_free. */
void name_index_init(struct name_index *index, size_t n_names);

/* Frees the memory of name_index_init, but not the names. */
void name_index_free(struct name_index *index);

/* Adds `name`, which is not copied and must outlive the index, with its number. Returns false,
 * without a change, if the name exists. */
bool name_index_add(struct name_index *index, const char *name, size_t length, int number);

/* Returns the number of `name`, or -1. */
int name_index_find(const struct name_index *index, const char *name, size_t length);

#endif
