/* The tokens of a model, and the two kinds of hash table that the tokenizer uses.
 *
 * Both tables have open addressing with linear probing, are filled once and at most half full, so
 * that a look-up touches about one cache line. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/tokenizer/internal.h"

/* ---- tables --------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x) {
    x ^= x >> 32;
    x *= 0x9E3779B97F4A7C15u;
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9u;
    return x ^ x >> 32;
}

static uint64_t hash_bytes(const char *text, size_t length) {
    uint64_t hash = length;
    for (; length >= 8; text += 8, length -= 8) {
        uint64_t word;
        memcpy(&word, text, 8);
        hash = mix(hash ^ word);
    }
    uint64_t rest = 0;
    memcpy(&rest, text, length);
    return mix(hash ^ rest);
}

/* The size minus one of a table that n entries fill at most by half. */
static size_t table_mask(size_t n) {
    size_t size = 16;
    while (size < 2 * n) size *= 2;
    return size - 1;
}

void string_table_init(struct string_table *table, const struct strings *strings, int capacity) {
    table->strings = strings;
    table->mask = table_mask((size_t)capacity);
    table->slot = mem_alloc((table->mask + 1) * sizeof *table->slot);
    memset(table->slot, -1, (table->mask + 1) * sizeof *table->slot);
}

/* The slot that holds the string, or the empty one where it would be. */
static struct string_slot *slot_of(const struct string_table *table, const char *text,
                                   size_t length, uint32_t *tag) {
    uint64_t hash = hash_bytes(text, length);
    *tag = (uint32_t)(hash >> 32);
    for (size_t at = hash & table->mask;; at = (at + 1) & table->mask) {
        struct string_slot *slot = &table->slot[at];
        if (slot->id < 0) return slot;
        if (slot->tag != *tag) continue;
        size_t n;
        const char *other = strings_get(table->strings, slot->id, &n);
        if (n == length && memcmp(other, text, n) == 0) return slot;
    }
}

int32_t string_table_add(struct string_table *table, int32_t id) {
    size_t length;
    uint32_t tag;
    const char *text = strings_get(table->strings, id, &length);
    struct string_slot *slot = slot_of(table, text, length, &tag);
    int32_t found = slot->id;
    if (found < 0) *slot = (struct string_slot){id, tag};
    return found;
}

int32_t string_table_find(const struct string_table *table, const char *text, size_t length) {
    uint32_t tag;
    return slot_of(table, text, length, &tag)->id;
}

void pair_table_init(struct pair_table *table, size_t capacity) {
    table->mask = table_mask(capacity);
    table->n = 0;
    table->pair = mem_alloc((table->mask + 1) * sizeof *table->pair);
    memset(table->pair, 0xFF, (table->mask + 1) * sizeof *table->pair);
}

static struct pair_entry *pair_slot(const struct pair_table *table, uint32_t left, uint32_t right) {
    uint64_t key = (uint64_t)left << 32 | right;
    size_t at = mix(key) & table->mask;
    while (table->pair[at].key != key && table->pair[at].key != UINT64_MAX) {
        at = (at + 1) & table->mask;
    }
    return &table->pair[at];
}

void pair_table_put(struct pair_table *table, uint32_t left, uint32_t right, uint32_t rank,
                    int32_t value) {
    struct pair_entry *pair = pair_slot(table, left, right);
    assert(2 * table->n <= table->mask + 1);
    if (pair->key == UINT64_MAX) table->n++;
    *pair = (struct pair_entry){(uint64_t)left << 32 | right, rank, value};
}

const struct pair_entry *pair_table_find(const struct pair_table *table, uint32_t left,
                                         uint32_t right) {
    const struct pair_entry *pair = pair_slot(table, left, right);
    return pair->key == UINT64_MAX ? NULL : pair;
}

/* ---- the tokens ----------------------------------------------------------------------------- */

static enum status types_init(struct vocabulary *vocabulary, const struct tokenizer_spec *spec,
                              struct err *err) {
    for (int i = 0; i < spec->n_tokens; i++) {
        int32_t type = spec->type ? spec->type[i] : TOKEN_NORMAL;
        if (type < TOKEN_NORMAL || type > TOKEN_BYTE) {
            return err_set(err, STATUS_BAD_FILE, "tokenizer.ggml.token_type",
                           "token %d has the type %d; a type is between %d and %d", i, (int)type,
                           TOKEN_NORMAL, TOKEN_BYTE);
        }
        if (type == TOKEN_BYTE && alphabet_byte_token(spec->token[i], spec->token_length[i]) < 0) {
            return err_set(err, STATUS_BAD_FILE, "tokenizer.ggml.tokens",
                           "token %d is a byte token, but its name does not have the form <0x0A>",
                           i);
        }
        vocabulary->type[i] = (uint8_t)type;
    }
    return STATUS_OK;
}

/* Fills the names and the bytes; each string ends in a NUL that is not counted. */
static void strings_init(struct vocabulary *vocabulary, const struct tokenizer_spec *spec) {
    struct strings *name = &vocabulary->name, *raw = &vocabulary->raw;
    size_t n = (size_t)spec->n_tokens, total = n;
    for (size_t i = 0; i < n; i++) total += spec->token_length[i];
    name->start = mem_calloc(n + 1, sizeof *name->start);
    raw->start = mem_calloc(n + 1, sizeof *raw->start);
    name->data = mem_alloc(total);
    raw->data = mem_alloc(total);
    for (size_t i = 0; i < n; i++) {
        size_t length = spec->token_length[i];
        char *spelt = name->data + name->start[i], *bytes = raw->data + raw->start[i];
        memcpy(spelt, spec->token[i], length);
        spelt[length] = 0;
        name->start[i + 1] = name->start[i] + length + 1;
        length = alphabet_decode(spec->kind, vocabulary->type[i], spelt, length, bytes);
        assert(length <= spec->token_length[i]);
        bytes[length] = 0;
        raw->start[i + 1] = raw->start[i] + length + 1;
    }
}

static enum status names_init(struct vocabulary *vocabulary, struct err *err) {
    string_table_init(&vocabulary->by_name, &vocabulary->name, vocabulary->n);
    for (int32_t i = 0; i < vocabulary->n; i++) {
        int32_t other = string_table_add(&vocabulary->by_name, i);
        if (other >= 0) {
            size_t length;
            return err_set(err, STATUS_BAD_FILE, "tokenizer.ggml.tokens",
                           "tokens %d and %d are both spelt '%s'", (int)other, (int)i,
                           strings_get(&vocabulary->name, i, &length));
        }
    }
    return STATUS_OK;
}

static void raws_init(struct vocabulary *vocabulary, enum tokenizer_kind kind) {
    memset(vocabulary->byte_id, -1, sizeof vocabulary->byte_id);
    string_table_init(&vocabulary->by_raw, &vocabulary->raw, vocabulary->n);
    for (int32_t i = 0; i < vocabulary->n; i++) {
        size_t length;
        const char *raw = strings_get(&vocabulary->raw, i, &length);
        int byte_type = kind == TOKENIZER_SENTENCEPIECE ? TOKEN_BYTE : TOKEN_NORMAL;
        if (length == 1 && vocabulary->type[i] == byte_type) {
            vocabulary->byte_id[(uint8_t)raw[0]] = i;
        }
        /* Plain text never becomes a control token, and unused tokens stand for nothing. */
        bool is_plain =
            vocabulary->type[i] == TOKEN_NORMAL ||
            (kind == TOKENIZER_SENTENCEPIECE && vocabulary->type[i] == TOKEN_USER_DEFINED);
        if (length == 0 || !is_plain) continue;
        string_table_add(&vocabulary->by_raw, i);
        if (length > vocabulary->longest) vocabulary->longest = length;
    }
}

enum status vocabulary_init(struct vocabulary *vocabulary, const struct tokenizer_spec *spec,
                            struct err *err) {
    vocabulary->n = spec->n_tokens;
    vocabulary->type = mem_alloc((size_t)spec->n_tokens);
    enum status status = types_init(vocabulary, spec, err);
    if (status != STATUS_OK) return status;
    strings_init(vocabulary, spec);
    raws_init(vocabulary, spec->kind);
    return names_init(vocabulary, err);
}

void vocabulary_free(struct vocabulary *vocabulary) {
    free(vocabulary->type);
    free(vocabulary->name.data);
    free(vocabulary->name.start);
    free(vocabulary->raw.data);
    free(vocabulary->raw.start);
    free(vocabulary->by_name.slot);
    free(vocabulary->by_raw.slot);
}
