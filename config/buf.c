/* Growing memory: arenas and byte buffers. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "config/config.h"

/* ---- arena: a list of chunks, the newest first ---------------------------------------------- */

struct buf_chunk {
    struct buf_chunk *next;
    size_t used, size;
    _Alignas(16) char data[];
};

struct arena {
    struct buf_chunk *chunks;
    size_t used, limit; /* bytes allocated, and their maximum */
};

struct arena *arena_new(size_t limit) {
    struct arena *arena = mem_calloc(1, sizeof *arena);
    arena->limit = limit;
    return arena;
}

void *arena_alloc(struct arena *arena, size_t bytes) {
    assert(arena->used <= arena->limit);
    if (bytes > arena->limit - arena->used || bytes > SIZE_MAX / 2) return NULL;
    size_t rounded = (bytes + 15) & ~(size_t)15;
    struct buf_chunk *chunk = arena->chunks;
    if (!chunk || chunk->size - chunk->used < rounded) {
        size_t size = rounded > 4096 ? rounded : 4096;
        chunk = mem_alloc(sizeof *chunk + size);
        *chunk = (struct buf_chunk){.next = arena->chunks, .size = size};
        arena->chunks = chunk;
    }
    void *memory = chunk->data + chunk->used;
    chunk->used += rounded;
    arena->used += bytes;
    return memory;
}

char *arena_strndup(struct arena *arena, const char *text, size_t length) {
    assert(text || length == 0);
    char *copy = length < SIZE_MAX ? arena_alloc(arena, length + 1) : NULL;
    if (!copy) return NULL;
    memcpy(copy, text, length);
    copy[length] = 0;
    return copy;
}

void arena_free(struct arena *arena) {
    if (!arena) return;
    for (struct buf_chunk *chunk = arena->chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        mem_free(chunk);
    }
    mem_free(arena);
}

/* ---- growing buffer ------------------------------------------------------------------------- */

/* Returns the capacity for `more` bytes and the NUL, or 0 if it would overflow. */
static size_t capacity_for(const struct buf *buf, size_t more) {
    assert(buf->data ? buf->length < buf->capacity : buf->capacity == 0 && buf->length == 0);
    size_t capacity = buf->capacity ? buf->capacity : 64;
    if (more > SIZE_MAX / 4 - buf->length) return 0;
    while (capacity - buf->length <= more) capacity *= 2;
    return capacity;
}

/* Ensures capacity for `more` bytes and the NUL. */
static void buf_reserve(struct buf *buf, size_t more) {
    size_t capacity = capacity_for(buf, more);
    if (!capacity) mem_fail(more);
    if (capacity == buf->capacity) return;
    buf->data = mem_realloc(buf->data, capacity);
    buf->capacity = capacity;
}

static void append(struct buf *buf, const void *data, size_t length) {
    if (length) memcpy(buf->data + buf->length, data, length);
    buf->length += length;
    buf->data[buf->length] = 0;
}

void buf_add(struct buf *buf, const void *data, size_t length) {
    buf_reserve(buf, length);
    append(buf, data, length);
}

bool buf_try_add(struct buf *buf, const void *data, size_t length) {
    size_t capacity = capacity_for(buf, length);
    if (!capacity) return false;
    if (capacity > buf->capacity) {
        char *grown = mem_try_realloc(buf->data, capacity);
        if (!grown) return false;
        buf->data = grown;
        buf->capacity = capacity;
    }
    append(buf, data, length);
    return true;
}

void buf_puts(struct buf *buf, const char *text) {
    buf_add(buf, text, strlen(text));
}

void buf_printf(struct buf *buf, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n > 0) {
        buf_reserve(buf, (size_t)n);
        vsnprintf(buf->data + buf->length, (size_t)n + 1, format, again);
        buf->length += (size_t)n;
    }
    va_end(again);
}

char *path_in(const char *folder, const char *name) {
    struct buf path = {0};
    size_t length = strlen(folder);
    buf_printf(&path, "%s%s%s", folder, length && folder[length - 1] == '/' ? "" : "/", name);
    return path.data;
}

void buf_clear(struct buf *buf) {
    buf->length = 0;
    if (buf->data) buf->data[0] = 0;
}

void buf_free(struct buf *buf) {
    mem_free(buf->data);
    *buf = (struct buf){0};
}
