/* Records of the journal. All numbers are little endian.
 *
 *   0   "PJR" and the kind
 *   4   length of the fields in bytes
 *   8   checksum of the fields (XXH3)
 *   16  checksum of the first 16 bytes
 *   24  fields, each: 1 byte its number in enum record_field, 4 bytes its length, its bytes
 *       zeros up to a multiple of 8 bytes
 *
 * Fields are in the order of their numbers, each at most once; the first holds the numbers. The
 * header has a checksum of its own, so that a flipped bit in the fields costs only this record.
 */
#include <assert.h>
#include <string.h>
#include <xxhash.h>

#include "server/promises/internal.h"

enum { HEAD_BYTES = 24, CHECKED_BYTES = 16, FIELD_HEAD_BYTES = 5, NUMBERS_BYTES = 32 };

/* ---- numbers -------------------------------------------------------------------------------- */

static void put(char *out, uint64_t value, int n_bytes) {
    for (int i = 0; i < n_bytes; i++) out[i] = (char)(value >> (8 * i));
}

static uint64_t get(const char *data, int n_bytes) {
    uint64_t value = 0;
    for (int i = 0; i < n_bytes; i++) value |= (uint64_t)(unsigned char)data[i] << (8 * i);
    return value;
}

static size_t padded(size_t bytes) {
    return (bytes + 7) & ~(size_t)7;
}

/* ---- fields --------------------------------------------------------------------------------- */

void record_set(struct record *record, enum record_field field, const void *data, size_t length) {
    assert(field > RECORD_NUMBERS && field < N_RECORD_FIELDS);
    record->field[field] = (struct record_bytes){data, length};
}

bool record_is(const struct record *record, enum record_field field, const void *data,
               size_t length) {
    const struct record_bytes *bytes = &record->field[field];
    return bytes->length == length && (length == 0 || memcmp(bytes->data, data, length) == 0);
}

/* ---- writing -------------------------------------------------------------------------------- */

static void write_field(struct buf *out, enum record_field field, const void *data, size_t length) {
    char head[FIELD_HEAD_BYTES];
    assert(length <= UINT32_MAX);
    put(head, field, 1);
    put(head + 1, length, 4);
    buf_add(out, head, sizeof head);
    buf_add(out, data, length);
}

static void write_numbers(struct buf *out, const struct record *record) {
    char numbers[NUMBERS_BYTES];
    put(numbers, record->promise, 8);
    put(numbers + 8, (uint64_t)record->created_s, 8);
    put(numbers + 16, (uint64_t)record->finished_s, 8);
    put(numbers + 24, record->flags, 4);
    put(numbers + 28, (uint64_t)record->http_status, 4);
    write_field(out, RECORD_NUMBERS, numbers, sizeof numbers);
}

void record_write(struct buf *out, const struct record *record) {
    static const char zeros[8];
    char head[HEAD_BYTES] = {'P', 'J', 'R', (char)record->kind};
    size_t start = out->length;
    buf_add(out, head, sizeof head);
    write_numbers(out, record);
    for (int i = RECORD_NUMBERS + 1; i < N_RECORD_FIELDS; i++)
        if (record->field[i].length > 0)
            write_field(out, i, record->field[i].data, record->field[i].length);
    size_t length = out->length - start - sizeof head;
    assert(length <= UINT32_MAX);
    buf_add(out, zeros, padded(length) - length);
    char *at = out->data + start;
    put(at + 4, length, 4);
    put(at + 8, XXH3_64bits(at + sizeof head, length), 8);
    put(at + 16, XXH3_64bits(at, CHECKED_BYTES), 8);
}

/* ---- reading -------------------------------------------------------------------------------- */

static bool read_numbers(struct record *out, const struct record_bytes *bytes) {
    if (bytes->length != NUMBERS_BYTES) return false;
    out->promise = get(bytes->data, 8);
    out->created_s = (int64_t)get(bytes->data + 8, 8);
    out->finished_s = (int64_t)get(bytes->data + 16, 8);
    out->flags = (uint32_t)get(bytes->data + 24, 4);
    uint64_t status = get(bytes->data + 28, 4);
    out->http_status = status < 1000 ? (int)status : 0;
    return out->promise > 0;
}

/* Are the fields as the other functions of the program expect them? */
static bool has_valid_fields(const struct record *record) {
    const struct record_bytes *f = record->field;
    size_t key = f[RECORD_KEY].length, hash = f[RECORD_HASH].length;
    if (record->kind == RECORD_REMOVED) return true;
    return f[RECORD_ID].length >= 1 && f[RECORD_ID].length <= RECORD_MAX_ID &&
           (key == 0 || key == RECORD_KEY_BYTES) && (hash == 0 || hash == RECORD_HASH_BYTES) &&
           f[RECORD_IDEMPOTENCY].length <= RECORD_MAX_IDEMPOTENCY && f[RECORD_PATH].length > 0 &&
           f[RECORD_SEEDS].length % 8 == 0 && f[RECORD_PREVIOUS].length <= RECORD_MAX_ID;
}

static bool read_fields(struct record *out, const char *data, size_t length) {
    size_t at = 0;
    int next = RECORD_NUMBERS;
    while (at < length) {
        if (length - at < FIELD_HEAD_BYTES) return false;
        int field = (unsigned char)data[at];
        size_t n = (size_t)get(data + at + 1, 4);
        at += FIELD_HEAD_BYTES;
        if (field < next || field >= N_RECORD_FIELDS || n > length - at) return false;
        out->field[field] = (struct record_bytes){data + at, n};
        next = field + 1;
        at += n;
    }
    return read_numbers(out, &out->field[RECORD_NUMBERS]) && has_valid_fields(out);
}

size_t record_read(struct record *out, const char *data, size_t length) {
    *out = (struct record){.kind = RECORD_PROMISE};
    if (length < HEAD_BYTES || memcmp(data, "PJR", 3) != 0) return 0;
    if (get(data + 16, 8) != XXH3_64bits(data, CHECKED_BYTES)) return 0;
    int kind = (unsigned char)data[3];
    size_t n = (size_t)get(data + 4, 4);
    bool fits = n <= length - HEAD_BYTES && padded(n) <= length - HEAD_BYTES;
    if (kind < RECORD_PROMISE || kind > RECORD_REMOVED || !fits) return 0;
    if (get(data + 8, 8) != XXH3_64bits(data + HEAD_BYTES, n)) return 0;
    out->kind = (enum record_kind)kind;
    return read_fields(out, data + HEAD_BYTES, n) ? HEAD_BYTES + padded(n) : 0;
}
