/* The bytes of HTTP requests: the results are the same in one piece and byte by byte, and each
 * refusal has a message. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "server/http/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *bytes = (const char *)data;
    struct wire all = {.max_head_bytes = 2048}, one = all;
    struct err err = {0}, one_err = {0};
    size_t whole, last_whole = 0, one_whole = 0, right = 0;
    size_t all_right = wire_check(&all, bytes, size, &whole, &err);
    while (right < size && wire_check(&one, bytes + right, 1, &one_whole, &one_err) == 1) {
        right++;
        if (one_whole) last_whole = right;
    }
    assert(right == all_right && last_whole == whole && whole <= right && right <= size);
    assert(memcmp(&all, &one, sizeof all) == 0);
    if (right == size) return 0;
    assert(err.status && err.message[0] && strcmp(err.message, one_err.message) == 0);
    assert(err.status == STATUS_INVALID_REQUEST || err.status == STATUS_TOO_LARGE ||
           err.status == STATUS_HEADERS_TOO_LARGE || err.status == STATUS_URI_TOO_LONG ||
           err.status == STATUS_HTTP_VERSION);
    return 0;
}
