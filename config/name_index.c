#include "config/name_index.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

uint64_t name_hash(const char *name, size_t length) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)name[i]) * 0x100000001b3u;
    return hash;
}

void name_index_init(struct name_index *index, size_t n_names) {
    assert(n_names <= SIZE_MAX / 4);
    size_t places = 16;
    while (places < 2 * n_names) places *= 2;
    index->entry = mem_calloc(places, sizeof *index->entry);
    index->mask = places - 1;
}

void name_index_free(struct name_index *index) {
    mem_free(index->entry);
    *index = (struct name_index){0};
}

/* Returns the entry of `name`, or the free entry to insert it. One always exists, because at most
 * half of the entries are used. */
static struct name_entry *place_of(const struct name_index *index, const char *name,
                                   size_t length) {
    uint64_t hash = name_hash(name, length);
    size_t i = (hash ^ hash >> 32) & index->mask;
    for (;; i = (i + 1) & index->mask) {
        struct name_entry *entry = &index->entry[i];
        if (!entry->name) return entry;
        if (entry->length == length && memcmp(entry->name, name, length) == 0) return entry;
    }
}

bool name_index_add(struct name_index *index, const char *name, size_t length, int number) {
    assert(number >= 0 && (size_t)number <= index->mask / 2);
    struct name_entry *entry = place_of(index, name, length);
    if (entry->name) return false;
    *entry = (struct name_entry){.name = name, .length = length, .number = number};
    return true;
}

int name_index_find(const struct name_index *index, const char *name, size_t length) {
    if (!index->entry) return -1;
    const struct name_entry *entry = place_of(index, name, length);
    return entry->name ? entry->number : -1;
}
