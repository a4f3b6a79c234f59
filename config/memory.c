/* DESIGN. Lack of memory ends a request, not the process.
 *
 * Every allocation of the program uses this file. Inside a scope, an allocation that fails jumps to
 * the beginning of the scope, so code that builds trees and tables need not check each step. The
 * scope records each block that was allocated inside it and not yet freed:
 *
 *     mem_scope_run   run(arg): alloc A, alloc B, free A, alloc C fails --> false; the scope has B
 *     mem_scope_free  undo(arg) frees its structs' blocks; the scope frees the remaining blocks
 *
 * If a scope succeeds, its record is dropped, and the blocks belong to their owners. Scopes nest;
 * each thread has separate scopes. A nested scope makes an object that outlives the outer scope (an
 * automaton that requests share), so its blocks do not belong to the outer scope.
 *
 * The record is a hash table of addresses. A slot is reserved before each allocation, so every
 * block can be recorded. Outside of scopes, blocks are not recorded, and lack of memory ends the
 * process: during start-up, and in commands that run once.
 */
#include <assert.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "config/config.h"

bool (*mem_fault)(size_t bytes);

static _Thread_local struct mem_scope *current; /* the innermost scope of the thread */

void mem_fail(size_t bytes) {
    assert(!current || current->jump); /* undo must not allocate */
    if (current) longjmp(*(jmp_buf *)current->jump, 1);
    fprintf(stderr, "penstock: out of memory: cannot allocate %zu bytes\n", bytes);
    exit(1);
}

static bool is_refused(size_t bytes) {
    return mem_fault && mem_fault(bytes);
}

/* ---- blocks of a scope ---------------------------------------------------------------------- */

static size_t slot_of(const struct mem_scope *scope, uintptr_t block) {
    uint64_t hash = (uint64_t)block * 0x9E3779B97F4A7C15u;
    return (size_t)(hash >> 32) & (scope->capacity - 1);
}

static void remember(struct mem_scope *scope, uintptr_t block) {
    assert(block && scope->n < scope->capacity / 2);
    size_t at = slot_of(scope, block);
    while (scope->blocks[at]) at = (at + 1) & (scope->capacity - 1);
    scope->blocks[at] = block;
    scope->n++;
}

/* Ensures a slot for one more block; at most half of the slots are used. */
static bool reserve(struct mem_scope *scope) {
    struct mem_scope grown = {.capacity = scope->capacity ? 2 * scope->capacity : 64};
    if (scope->n + 1 <= scope->capacity / 2) return true;
    grown.blocks = calloc(grown.capacity, sizeof *grown.blocks);
    if (!grown.blocks) return false;
    for (size_t i = 0; i < scope->capacity; i++)
        if (scope->blocks[i]) remember(&grown, scope->blocks[i]);
    free(scope->blocks);
    scope->blocks = grown.blocks;
    scope->capacity = grown.capacity;
    return true;
}

/* Returns the slot of a block, or `capacity` if the scope does not have it. */
static size_t find(const struct mem_scope *scope, uintptr_t block) {
    if (scope->n == 0) return scope->capacity;
    size_t at = slot_of(scope, block);
    while (scope->blocks[at] && scope->blocks[at] != block) at = (at + 1) & (scope->capacity - 1);
    return scope->blocks[at] ? at : scope->capacity;
}

/* Removes the block at a slot and closes the gap, so that all other blocks can still be found. */
static void forget(struct mem_scope *scope, size_t gap) {
    const size_t mask = scope->capacity - 1;
    for (size_t at = (gap + 1) & mask; scope->blocks[at]; at = (at + 1) & mask) {
        size_t home = slot_of(scope, scope->blocks[at]);
        if (((at - home) & mask) < ((at - gap) & mask)) continue;
        scope->blocks[gap] = scope->blocks[at];
        gap = at;
    }
    scope->blocks[gap] = 0;
    scope->n--;
}

/* Returns the scope that has a block, and its slot; NULL: no scope has it. */
static struct mem_scope *owner_of(uintptr_t block, size_t *slot) {
    for (struct mem_scope *scope = current; scope; scope = scope->outer) {
        *slot = find(scope, block);
        if (*slot < scope->capacity) return scope;
    }
    return NULL;
}

/* ---- scopes --------------------------------------------------------------------------------- */

bool mem_scope_run(struct mem_scope *scope, void (*run)(void *arg), void *arg) {
    jmp_buf jump;
    *scope = (struct mem_scope){.outer = current, .jump = &jump};
    current = scope;
    bool is_done = _setjmp(jump) == 0;
    if (is_done) run(arg);
    assert(current == scope);
    current = scope->outer;
    scope->outer = NULL;
    scope->jump = NULL;
    if (!is_done) return false;
    free(scope->blocks);
    *scope = (struct mem_scope){0};
    return true;
}

void mem_scope_free(struct mem_scope *scope, void (*undo)(void *arg), void *arg) {
    assert(!scope->outer && !scope->jump);
    scope->outer = current;
    current = scope;
    if (undo) undo(arg);
    assert(current == scope);
    current = scope->outer;
    for (size_t i = 0; i < scope->capacity; i++) free((void *)scope->blocks[i]);
    free(scope->blocks);
    *scope = (struct mem_scope){0};
}

bool mem_run(void (*run)(void *arg), void (*undo)(void *arg), void *arg) {
    struct mem_scope scope;
    if (mem_scope_run(&scope, run, arg)) return true;
    mem_scope_free(&scope, undo, arg);
    return false;
}

/* ---- blocks --------------------------------------------------------------------------------- */

void *mem_try_alloc(size_t bytes) {
    return is_refused(bytes) ? NULL : malloc(bytes ? bytes : 1);
}

void *mem_try_calloc(size_t count, size_t bytes) {
    return is_refused(bytes) ? NULL : calloc(count ? count : 1, bytes ? bytes : 1);
}

void *mem_try_realloc(void *memory, size_t bytes) {
    size_t slot = 0;
    struct mem_scope *owner = memory ? owner_of((uintptr_t)memory, &slot) : NULL;
    if (is_refused(bytes)) return NULL;
    void *after = realloc(memory, bytes ? bytes : 1);
    if (!after || !owner) return after;
    forget(owner, slot);
    remember(owner, (uintptr_t)after);
    return after;
}

/* Adds a new block to the current scope; fails if `memory` is NULL. */
static void *own(void *memory, size_t bytes) {
    if (!memory) mem_fail(bytes);
    if (current) remember(current, (uintptr_t)memory);
    return memory;
}

void *mem_alloc(size_t bytes) {
    if (current && !reserve(current)) mem_fail(bytes);
    return own(mem_try_alloc(bytes), bytes);
}

void *mem_calloc(size_t count, size_t bytes) {
    size_t total = count && bytes > SIZE_MAX / count ? SIZE_MAX : count * bytes;
    if (current && !reserve(current)) mem_fail(total);
    return own(mem_try_calloc(count, bytes), total);
}

void *mem_realloc(void *memory, size_t bytes) {
    if (!memory) return mem_alloc(bytes);
    void *after = mem_try_realloc(memory, bytes);
    if (!after) mem_fail(bytes);
    return after;
}

char *mem_strdup(const char *text) {
    size_t n = strlen(text) + 1;
    return memcpy(mem_alloc(n), text, n);
}

void mem_free(void *memory) {
    size_t slot;
    struct mem_scope *owner = memory ? owner_of((uintptr_t)memory, &slot) : NULL;
    if (owner) forget(owner, slot);
    free(memory);
}

/* ---- large tables --------------------------------------------------------------------------- */

#define PAGE ((size_t)4096)
#define HUGE_PAGE ((size_t)2 << 20)

/* Large tables are made only during start-up, so they do not belong to a scope. */
static void *checked(void *memory, size_t bytes) {
    assert(!current);
    if (!memory) mem_fail(bytes);
    return memory;
}

/* Returns the bytes that mem_large maps: whole pages, or whole huge pages for a large table. */
static size_t large_size(size_t bytes) {
    size_t unit = bytes >= 2 * HUGE_PAGE ? HUGE_PAGE : PAGE;
    if (bytes > SIZE_MAX / 2) mem_fail(bytes);
    return ((bytes ? bytes : 1) + unit - 1) & ~(unit - 1);
}

/* Maps memory aligned to huge pages. The kernel aligns only to small pages, so this maps one more
 * huge page and unmaps the parts around the aligned one. */
static void *map_aligned(size_t size) {
    size_t whole = size + HUGE_PAGE;
    char *memory = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    size_t before = (HUGE_PAGE - (uintptr_t)memory % HUGE_PAGE) % HUGE_PAGE;
    if (before) munmap(memory, before);
    if (HUGE_PAGE - before) munmap(memory + before + size, HUGE_PAGE - before);
    madvise(memory + before, size, MADV_HUGEPAGE); /* on failure the table is only slower */
    return memory + before;
}

void mem_prefer_huge(void *memory, size_t bytes) {
    const uintptr_t from = ((uintptr_t)memory + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
    const uintptr_t end = ((uintptr_t)memory + bytes) & ~(HUGE_PAGE - 1);
    assert(memory && bytes > 0);
    if (from < end) madvise((void *)from, end - from, MADV_HUGEPAGE);
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
