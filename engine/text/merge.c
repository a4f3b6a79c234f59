/* Merging the symbols of a piece, for pieces of any length.
 *
 * The symbols are a linked list by index, the possible merges a heap. A merge changes two
 * neighbourhoods, so at most two candidates are added for one that is taken: 3 n candidates in all
 * and O(n log n) time. Candidates that an earlier merge made void are not searched for but
 * recognised when they come up: the two symbols then no longer have the bytes they had together.
 */
#include <assert.h>
#include <stdlib.h>

#include "engine/text/tokenizer_internal.h"

struct symbol *merge_symbols(struct merge_memory *memory, size_t n) {
    if (n > memory->symbol_capacity) {
        size_t capacity = n < 4096 ? 4096 : n;
        memory->symbol = mem_realloc(memory->symbol, capacity * sizeof *memory->symbol);
        memory->symbol_capacity = capacity;
    }
    return memory->symbol;
}

void merge_memory_free(struct merge_memory *memory) {
    free(memory->symbol);
    free(memory->heap);
}

/* ---- the heap ------------------------------------------------------------------------------- */

static void heap_push(struct merge_memory *memory, struct candidate candidate) {
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
}

static struct candidate heap_pop(struct merge_memory *memory) {
    assert(memory->n_heap > 0);
    struct candidate *heap = memory->heap, top = heap[0], last = heap[--memory->n_heap];
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

/* Byte-level BPE has a list of merges; SentencePiece merges whatever gives a token, by that token's
 * score. */
static bool pair_result(const struct tokenizer *tokenizer, const char *text,
                        const struct symbol *left, const struct symbol *right, uint32_t *rank,
                        int32_t *id) {
    if (tokenizer->kind == TOKENIZER_BYTE_BPE) {
        const struct pair *pair =
            pair_table_find(&tokenizer->bpe.merges, (uint32_t)left->id, (uint32_t)right->id);
        if (!pair) return false;
        *rank = pair->rank;
        *id = pair->value;
        return true;
    }
    size_t length = (size_t)left->length + right->length;
    if (length > tokenizer->vocabulary.longest) return false;
    *id = string_table_find(&tokenizer->vocabulary.by_raw, text + left->start, length);
    if (*id < 0) return false;
    *rank = tokenizer->sentencepiece.rank[*id];
    return true;
}

static void consider(const struct tokenizer *tokenizer, struct merge_memory *memory,
                     const char *text, int32_t left) {
    const struct symbol *symbol = &memory->symbol[left];
    if (symbol->next < 0) return;
    const struct symbol *right = &memory->symbol[symbol->next];
    uint32_t rank;
    int32_t id;
    if (!pair_result(tokenizer, text, symbol, right, &rank, &id)) return;
    heap_push(memory, (struct candidate){
                          .key = (uint64_t)rank << 32 | (uint32_t)left,
                          .length = symbol->length + right->length,
                          .id = id,
                      });
}

static void join(struct merge_memory *memory, int32_t left, int32_t id) {
    struct symbol *symbol = &memory->symbol[left], *right = &memory->symbol[symbol->next];
    symbol->id = id;
    symbol->length += right->length;
    symbol->next = right->next;
    if (right->next >= 0) memory->symbol[right->next].previous = left;
    right->length = 0;
}

static bool still_there(const struct merge_memory *memory, const struct candidate *candidate) {
    const struct symbol *left = &memory->symbol[(uint32_t)candidate->key];
    if (left->length == 0 || left->next < 0) return false;
    return left->length + memory->symbol[left->next].length == candidate->length;
}

void merge_run(const struct tokenizer *tokenizer, struct merge_memory *memory, const char *text,
               size_t n) {
    memory->n_heap = 0;
    for (size_t i = 0; i + 1 < n; i++) consider(tokenizer, memory, text, (int32_t)i);
    while (memory->n_heap > 0) {
        struct candidate best = heap_pop(memory);
        if (!still_there(memory, &best)) continue;
        int32_t left = (int32_t)(uint32_t)best.key;
        join(memory, left, best.id);
        consider(tokenizer, memory, text, left);
        int32_t previous = memory->symbol[left].previous;
        if (previous >= 0) consider(tokenizer, memory, text, previous);
    }
}
