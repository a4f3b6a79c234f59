/* Cassettes: any bytes are records or are refused with a line, each record answers its own request,
 * and any other request is explained. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "server/cassette/cassette.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_record(struct cassette *cassette, const struct recorded *recorded) {
    const struct recorded *found = cassette_find(cassette, recorded->path, recorded->request);
    struct err err = {0};
    assert(found && strcmp(found->path, recorded->path) == 0);
    assert(recorded->is_stream || json_count(recorded->pieces) == 1);
    cassette_explain(cassette, recorded->path, recorded->pieces, &err);
    assert(err.status == STATUS_NOT_FOUND && *err.message);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct cassette *cassette;
    struct err err = {0};
    enum status status = cassette_parse(&cassette, "fuzz", (const char *)data, size, &err);
    assert((status == STATUS_OK) == (cassette != NULL));
    assert(status == STATUS_OK || *err.message);
    for (int i = 0; cassette && i < cassette_count(cassette) && i < 8; i++)
        check_record(cassette, cassette_at(cassette, i));
    cassette_free(cassette);
    return 0;
}
