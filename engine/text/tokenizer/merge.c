/* Merges the symbols of a piece, for pieces of any length.
 *
 * DESIGN
 *   The symbols are a linked list by index, the possible merges are a heap. A merge changes two
 *   neighbourhoods, so it adds at most two candidates: 3 n in total, and O(n log n) time. If an
 *   earlier merge made a candidate invalid, the candidate stays in the heap until it is popped. It
 *   is then recognised because the length of its two symbols has changed. */
#include <assert.h>
#include <stdlib.h>

#include "engine/text/tokenizer/internal.h"

struct symbol *merge_symbols(struct merge_memory *memory, size_t n) {
    if (n > memory->symbol_capacity) {
        size_t capacity = n < 4096 ? 4096 : n;
        memory->symbol = mem_realloc(memory->symbol, capacity * sizeof *memory->symbol);
        memory->symbol_capacity = capacity;
    }
    return memory->symbol;
}

void merge_memory_free(struct merge_memory *memory) {
    mem_free(memory->symbol);
    mem_free(memory->heap);
}

/* ---- the heap ------------------------------------------------------------------------------- */

static void heap_push(struct merge_memory *memory, struct merge_candidate candidate) {
    if (memory->n_heap == memory->heap_capacity) {
        memory->heap_capacity = memory->heap_capacity ? 2 * memory->heap_capacity : 256;
        memory->heap = mem_realloc(memory->heap, memory->heap_capacity * sizeof *memory->heap);
    }
    size_t at = memory->n_heap++;
    while (at > 0 && memory->heap[(at - 1) / 2].key > candidate.key) {
        memory->heap[at] = memory->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    memory->heap[at] = candidate;
    assert(memory->n_heap <= memory->heap_capacity);
}

static struct merge_candidate heap_pop(struct merge_memory *memory) {
    assert(memory->n_heap > 0);
    struct merge_candidate *heap = memory->heap, top = heap[0], last = heap[--memory->n_heap];
    size_t at = 0, n = memory->n_heap;
    for (size_t child = 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && heap[child + 1].key < heap[child].key) child++;
        if (heap[child].key >= last.key) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return top;
}

/* ---- pairs ---------------------------------------------------------------------------------- */

/* Finds the token into which two symbols merge. Some kinds have a list of merges; others join any
 * two symbols that together are a token, ranked by that token's score or id. Returns false if they
 * do not merge. */
static bool pair_result(const struct tokenizer *tokenizer, const char *text,
                        const struct symbol *left, const struct symbol *right, uint32_t *rank,
                        int32_t *id) {
    assert(left->length > 0 && right->length > 0);
    if (tokenizer->bpe.merges.pair) {
        const struct pair_entry *pair =
            pair_table_find(&tokenizer->bpe.merges, (uint32_t)left->id, (uint32_t)right->id);
        if (!pair) return false;
        *rank = pair->rank;
        *id = pair->value;
        return true;
    }
    size_t length = (size_t)left->length + right->length;
    if (length > tokenizer->vocabulary.longest) return false;
    *id = string_table_find(&tokenizer->vocabulary.by_text, text + left->start, length);
    if (*id < 0) return false;
    *rank = tokenizer->sentencepiece.rank ? tokenizer->sentencepiece.rank[*id] : (uint32_t)*id;
    return true;
}

/* Adds the merge of a symbol with the next one, if they merge. */
static void consider(const struct tokenizer *tokenizer, struct merge_memory *memory,
                     const char *text, int32_t left) {
    assert(left >= 0);
    const struct symbol *symbol = &memory->symbol[left];
    if (symbol->next < 0) return;
    const struct symbol *right = &memory->symbol[symbol->next];
    uint32_t rank;
    int32_t id;
    if (!pair_result(tokenizer, text, symbol, right, &rank, &id)) return;
    heap_push(memory, (struct merge_candidate){
                          .key = (uint64_t)rank << 32 | (uint32_t)left,
                          .length = symbol->length + right->length,
                          .id = id,
                      });
}

void merge_run(const struct tokenizer *tokenizer, struct merge_memory *memory, const char *text,
               size_t n) {
    assert(n <= memory->symbol_capacity);
    memory->n_heap = 0;
    for (size_t i = 0; i + 1 < n; i++) consider(tokenizer, memory, text, (int32_t)i);
    while (memory->n_heap > 0) {
        struct merge_candidate best = heap_pop(memory);
        int32_t at = (int32_t)(uint32_t)best.key;
        struct symbol *left = &memory->symbol[at];
        if (left->length == 0 || left->next < 0) continue; /* already merged, or now the last */
        struct symbol *right = &memory->symbol[left->next];
        if (left->length + right->length != best.length) continue;
        assert(right->previous == at && right->length > 0);
        left->id = best.id;
        left->length = best.length;
        left->next = right->next;
        if (right->next >= 0) memory->symbol[right->next].previous = at;
        right->length = 0;
        consider(tokenizer, memory, text, at);
        if (left->previous >= 0) consider(tokenizer, memory, text, left->previous);
    }
}
