/* A segment of the journal: any bytes either hold records or not, and no scan leaves the file. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "server/promises/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A record that was read is written again as the same bytes. */
static void check_record(const struct record *record, const char *data, size_t size) {
    struct buf again = {0};
    struct record read;
    assert(record->promise > 0 && record->kind >= RECORD_PROMISE);
    record_write(&again, record);
    assert(record_read(&read, again.data, again.length) == again.length);
    assert(again.length <= size + 8 * N_RECORD_FIELDS && size >= 24 && data);
    buf_free(&again);
}

/* The checksums of a random input are wrong, so one record is also read with correct ones. */
static void check_fields(const uint8_t *data, size_t size) {
    struct buf out = {0};
    struct record record = {.kind = RECORD_PROMISE, .promise = 1};
    record_set(&record, RECORD_PATH, "/", 1);
    for (int i = 1; i < N_RECORD_FIELDS && size > 0; i++) {
        size_t n = data[0] < size ? data[0] : size;
        if (n > 0) record_set(&record, (enum record_field)i, data, n);
        data += n;
        size -= n;
    }
    record_write(&out, &record);
    record_read(&record, out.data, out.length);
    buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct segment_scan scan;
    struct record record;
    size_t offset, n;
    char *text = mem_alloc(size + 1);
    memcpy(text, data, size);
    if (!segment_scan_begin(&scan, text, size)) scan.at = scan.good = 0;
    while (segment_scan_next(&scan, &record, &offset, &n)) {
        assert(offset + n <= size && n % 8 == 0);
        check_record(&record, text + offset, n);
    }
    assert(scan.good <= size || size < SEGMENT_HEAD_BYTES);
    check_fields(data, size);
    mem_free(text);
    return 0;
}
