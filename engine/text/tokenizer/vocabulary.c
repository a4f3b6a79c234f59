/* The tokens of a model, and the tokenizer's two kinds of hash table.
 *
 * Both tables use open addressing with linear probing. They are filled once and at most half full,
 * so a look-up touches about one cache line. */
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

/* Returns the size minus one of a table that n entries fill at most by half. */
static size_t table_mask(size_t n) {
    size_t size = 16;
    while (size < 2 * n) size *= 2;
    return size - 1;
}

void string_table_init(struct string_table *table, const struct strings *strings, int capacity) {
    assert(capacity >= 0);
    table->strings = strings;
    table->mask = table_mask((size_t)capacity);
    table->slot = mem_alloc((table->mask + 1) * sizeof *table->slot);
    memset(table->slot, -1, (table->mask + 1) * sizeof *table->slot);
}

/* Returns the slot of the string, or the empty slot for it. */
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
    assert(id >= 0);
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

/* Moves all pairs to a table of twice the size. */
static void grow(struct pair_table *table) {
    struct pair_table larger;
    pair_table_init(&larger, table->mask + 1);
    for (size_t i = 0; i <= table->mask; i++) {
        const struct pair_entry *pair = &table->pair[i];
        if (pair->key == UINT64_MAX) continue;
        *pair_slot(&larger, (uint32_t)(pair->key >> 32), (uint32_t)pair->key) = *pair;
        larger.n++;
    }
    assert(larger.n == table->n && larger.mask > table->mask);
    mem_free(table->pair);
    *table = larger;
}

void pair_table_put(struct pair_table *table, uint32_t left, uint32_t right, uint32_t rank,
                    int32_t value) {
    if (2 * table->n > table->mask) grow(table);
    struct pair_entry *pair = pair_slot(table, left, right);
    if (pair->key == UINT64_MAX) table->n++;
    *pair = (struct pair_entry){(uint64_t)left << 32 | right, rank, value};
}

const struct pair_entry *pair_table_find(const struct pair_table *table, uint32_t left,
                                         uint32_t right) {
    const struct pair_entry *pair = pair_slot(table, left, right);
    return pair->key == UINT64_MAX ? NULL : pair;
}

/* ---- the tokens ----------------------------------------------------------------------------- */

static enum status types_init(struct token_vocabulary *vocabulary,
                              const struct tokenizer_spec *spec, struct err *err) {
    const struct tokenizer_keys *keys = spec->keys;
    for (int i = 0; i < spec->n_tokens; i++) {
        int32_t type = spec->type ? spec->type[i] : TOKEN_NORMAL;
        if (type < TOKEN_NORMAL || type > TOKEN_BYTE) {
            return err_set(err, STATUS_BAD_FILE, keys->types,
                           "token %d has the type %d; a type is between %d and %d", i, (int)type,
                           TOKEN_NORMAL, TOKEN_BYTE);
        }
        if (type == TOKEN_BYTE && alphabet_byte_token(spec->token[i], spec->token_length[i]) < 0) {
            return err_set(err, STATUS_BAD_FILE, keys->tokens,
                           "token %d is a byte token, but its name does not have the form <0x0A>",
                           i);
        }
        vocabulary->type[i] = (uint8_t)type;
        vocabulary->added[i] = spec->added ? spec->added[i] : 0;
    }
    return STATUS_OK;
}

/* Appends string i of a list, and a NUL. */
static void put_string(struct strings *strings, struct buf *data, size_t i, const char *text,
                       size_t length) {
    buf_add(data, text, length);
    buf_add(data, "", 1);
    strings->start[i + 1] = strings->start[i] + length + 1;
    assert(strings->start[i + 1] == data->length);
}

/* Tries and grammars count bytes of one token in 16 bits, and of all tokens in 31 bits. */
enum { MOST_TOKEN_BYTES = UINT16_MAX, MOST_BYTES = 1 << 29 };

/* A normalizer or a decoder may make a token longer than its spelling in the file. */
static enum status check_length(const struct tokenizer_spec *spec, size_t id, size_t length,
                                size_t all, struct err *err) {
    if (length > MOST_TOKEN_BYTES)
        return err_set(err, STATUS_BAD_FILE, spec->keys->tokens,
                       "key %s: expected tokens of at most %d bytes, found %zu in token %zu",
                       spec->keys->tokens, MOST_TOKEN_BYTES, length, id);
    if (all <= MOST_BYTES) return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, spec->keys->tokens,
                   "key %s: expected at most %d MiB of tokens, found more", spec->keys->tokens,
                   MOST_BYTES >> 20);
}

/* Fills the names and the bytes. Each string ends with a NUL that is not counted. The bytes of an
 * added token that is found in normalized text are normalized, too. */
static enum status strings_init(struct token_vocabulary *vocabulary,
                                const struct tokenizer_spec *spec,
                                const struct normalizer *normalizer, struct err *err) {
    struct strings *name = &vocabulary->name, *raw = &vocabulary->raw;
    struct buf names = {0}, raws = {0}, room[2] = {{0}}, normal[2] = {{0}};
    size_t n = (size_t)spec->n_tokens, all = 0;
    enum status status = STATUS_OK;
    name->start = mem_calloc(n + 1, sizeof *name->start);
    raw->start = mem_calloc(n + 1, sizeof *raw->start);
    for (size_t i = 0; i < n && !status; i++) {
        size_t length = spec->token_length[i];
        const char *bytes = spec->token[i];
        put_string(name, &names, i, bytes, length);
        if (vocabulary->added[i] & ADDED_NORMALIZED)
            normalizer_apply(normalizer, normal, &bytes, &length);
        status = check_length(spec, i, length, all += length, err);
        if (spec->has_steps) {
            vocabulary->is_byte[i] = decoding_apply(spec, bytes, length, room, &bytes, &length);
        } else {
            buf_clear(&room[0]);
            buf_add(&room[0], spec->token[i], length);
            length = alphabet_decode(spec->kind, vocabulary->type[i], spec->token[i], length,
                                     room[0].data);
            bytes = room[0].data;
        }
        put_string(raw, &raws, i, bytes, length);
        if (!status) status = check_length(spec, i, length, raws.length, err);
    }
    name->data = names.data;
    raw->data = raws.data;
    for (int i = 0; i < 2; i++) {
        buf_free(&room[i]);
        buf_free(&normal[i]);
    }
    return status;
}

/* Indexes the names. Tokens without a name are gaps in the numbering. */
static enum status names_init(struct token_vocabulary *vocabulary,
                              const struct tokenizer_spec *spec, struct err *err) {
    string_table_init(&vocabulary->by_name, &vocabulary->name, vocabulary->n);
    for (int32_t i = 0; i < vocabulary->n; i++) {
        if (vocabulary->type[i] == TOKEN_UNUSED && spec->token_length[i] == 0) continue;
        int32_t other = string_table_add(&vocabulary->by_name, i);
        if (other >= 0) {
            size_t length;
            return err_set(err, STATUS_BAD_FILE, spec->keys->tokens,
                           "tokens %d and %d are both spelt '%s'", (int)other, (int)i,
                           strings_get(&vocabulary->name, i, &length));
        }
    }
    return STATUS_OK;
}

/* May plain text become this token? Control tokens, unused tokens and tokens outside the model's
 * vocabulary are excluded. */
static bool is_plain(const struct token_vocabulary *vocabulary, const struct tokenizer_spec *spec,
                     int32_t id) {
    int type = vocabulary->type[id];
    if (vocabulary->added[id] & ADDED_ONLY) return false;
    bool has_byte_bpe = spec->kind == TOKENIZER_BYTE_BPE || spec->kind == TOKENIZER_RANK_BPE;
    return type == TOKEN_NORMAL || (!has_byte_bpe && type == TOKEN_USER_DEFINED);
}

static void texts_init(struct token_vocabulary *vocabulary, const struct tokenizer_spec *spec) {
    bool sees_names =
        spec->has_steps && (spec->kind == TOKENIZER_CHARACTER_BPE ||
                            spec->kind == TOKENIZER_UNIGRAM || spec->kind == TOKENIZER_WORDPIECE);
    /* Such a model sees the spelling of a text instead of its bytes. */
    const struct strings *texts = sees_names ? &vocabulary->name : &vocabulary->raw;
    bool from_bytes = spec->kind == TOKENIZER_BYTE_BPE || spec->kind == TOKENIZER_RANK_BPE;
    memset(vocabulary->byte_id, -1, sizeof vocabulary->byte_id);
    string_table_init(&vocabulary->by_text, texts, vocabulary->n);
    for (int32_t i = 0; i < vocabulary->n; i++) {
        size_t length, name_length;
        const char *text = strings_get(texts, i, &length);
        const char *name = strings_get(&vocabulary->name, i, &name_length);
        /* a byte's token of the model may be an added token too */
        bool may_be_byte = !from_bytes && !(vocabulary->added[i] & ADDED_ONLY);
        int byte = may_be_byte ? alphabet_byte_token(name, name_length) : -1;
        bool is_byte = spec->has_steps ? spec->byte_fallback : vocabulary->type[i] == TOKEN_BYTE;
        if (byte >= 0 && is_byte) vocabulary->byte_id[byte] = i;
        if (from_bytes && length == 1 && vocabulary->type[i] == TOKEN_NORMAL)
            vocabulary->byte_id[(uint8_t)text[0]] = i;
        if (length == 0 || !is_plain(vocabulary, spec, i)) continue;
        string_table_add(&vocabulary->by_text, i);
        if (length > vocabulary->longest) vocabulary->longest = length;
    }
}

enum status vocabulary_init(struct token_vocabulary *vocabulary, const struct tokenizer_spec *spec,
                            const struct normalizer *normalizer, struct err *err) {
    size_t n = (size_t)spec->n_tokens;
    vocabulary->n = spec->n_tokens;
    vocabulary->finds_names = spec->has_steps;
    vocabulary->type = mem_alloc(n);
    vocabulary->added = mem_alloc(n);
    vocabulary->is_byte = mem_calloc(n, sizeof *vocabulary->is_byte);
    enum status status = types_init(vocabulary, spec, err);
    if (status != STATUS_OK) return status;
    status = strings_init(vocabulary, spec, normalizer, err);
    if (status != STATUS_OK) return status;
    texts_init(vocabulary, spec);
    return names_init(vocabulary, spec, err);
}

void vocabulary_clear(struct token_vocabulary *vocabulary) {
    mem_free(vocabulary->type);
    mem_free(vocabulary->added);
    mem_free(vocabulary->is_byte);
    mem_free(vocabulary->name.data);
    mem_free(vocabulary->name.start);
    mem_free(vocabulary->raw.data);
    mem_free(vocabulary->raw.start);
    mem_free(vocabulary->by_name.slot);
    mem_free(vocabulary->by_text.slot);
}
