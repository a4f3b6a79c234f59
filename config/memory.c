#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "config/config.h"

/* The one place where running out of memory is fatal: this memory was planned, and there is no
 * fallback. */
static void *checked(void *memory, size_t bytes) {
    if (memory) return memory;
    fprintf(stderr, "penstock: out of memory: cannot allocate %zu bytes\n", bytes);
    exit(1);
}

void *mem_alloc(size_t bytes) {
    return checked(malloc(bytes ? bytes : 1), bytes);
}

void *mem_calloc(size_t count, size_t bytes) {
    size_t total = count && bytes > SIZE_MAX / count ? SIZE_MAX : count * bytes;
    return checked(calloc(count ? count : 1, bytes ? bytes : 1), total);
}

void *mem_realloc(void *memory, size_t bytes) {
    return checked(realloc(memory, bytes ? bytes : 1), bytes);
}

char *mem_strdup(const char *text) {
    size_t n = strlen(text) + 1;
    return memcpy(mem_alloc(n), text, n);
}

void mem_free(void *memory) {
    free(memory);
}

#define PAGE ((size_t)4096)
#define HUGE_PAGE ((size_t)2 << 20)

/* Bytes that mem_large maps for `bytes`: whole pages, or whole huge pages for a large table. */
static size_t large_size(size_t bytes) {
    size_t unit = bytes >= 2 * HUGE_PAGE ? HUGE_PAGE : PAGE;
    if (bytes > SIZE_MAX / 2) checked(NULL, bytes);
    return ((bytes ? bytes : 1) + unit - 1) & ~(unit - 1);
}

/* The kernel aligns to small pages only: one huge page more is mapped, and what lies around the
 * aligned part is unmapped. */
static void *map_aligned(size_t size) {
    size_t whole = size + HUGE_PAGE;
    char *memory = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    size_t before = (HUGE_PAGE - (uintptr_t)memory % HUGE_PAGE) % HUGE_PAGE;
    if (before) munmap(memory, before);
    if (HUGE_PAGE - before) munmap(memory + before + size, HUGE_PAGE - before);
    madvise(memory + before, size, MADV_HUGEPAGE); /* if it fails, the table is only slower */
    return memory + before;
}

void *mem_large(size_t bytes) {
    size_t size = large_size(bytes);
    if (size >= 2 * HUGE_PAGE) return checked(map_aligned(size), size);
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return checked(memory == MAP_FAILED ? NULL : memory, size);
}

void mem_large_free(void *memory, size_t bytes) {
    if (memory) munmap(memory, large_size(bytes));
}

/* ---- arena: a chain of chunks, the newest first --------------------------------------------- */

struct chunk {
    struct chunk *next;
    size_t used, size;
    _Alignas(16) char data[];
};

struct arena {
    struct chunk *chunks;
    size_t used, limit; /* bytes allocated, and how many may be */
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
    struct chunk *chunk = arena->chunks;
    if (!chunk || chunk->size - chunk->used < rounded) {
        size_t size = rounded > 4096 ? rounded : 4096;
        chunk = malloc(sizeof *chunk + size);
        if (!chunk) return NULL;
        *chunk = (struct chunk){.next = arena->chunks, .size = size};
        arena->chunks = chunk;
    }
    void *memory = chunk->data + chunk->used;
    chunk->used += rounded;
    arena->used += bytes;
    return memory;
}

char *arena_strndup(struct arena *arena, const char *text, size_t length) {
    char *copy = length < SIZE_MAX ? arena_alloc(arena, length + 1) : NULL;
    if (!copy) return NULL;
    memcpy(copy, text, length);
    copy[length] = 0;
    return copy;
}

void arena_free(struct arena *arena) {
    if (!arena) return;
    for (struct chunk *chunk = arena->chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
    free(arena);
}

/* ---- growing buffer ------------------------------------------------------------------------- */

/* Makes place for `more` bytes and the NUL. */
static void buf_reserve(struct buf *buf, size_t more) {
    assert(buf->data ? buf->length < buf->capacity : buf->capacity == 0 && buf->length == 0);
    if (buf->capacity - buf->length > more) return;
    if (more > SIZE_MAX / 4 - buf->length) checked(NULL, more);
    size_t capacity = buf->capacity ? buf->capacity : 64;
    while (capacity - buf->length <= more) capacity *= 2;
    buf->data = mem_realloc(buf->data, capacity);
    buf->capacity = capacity;
}

void buf_add(struct buf *buf, const void *data, size_t length) {
    buf_reserve(buf, length);
    if (length) memcpy(buf->data + buf->length, data, length);
    buf->length += length;
    buf->data[buf->length] = 0;
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

void buf_clear(struct buf *buf) {
    buf->length = 0;
    if (buf->data) buf->data[0] = 0;
}

void buf_free(struct buf *buf) {
    free(buf->data);
    *buf = (struct buf){0};
}
