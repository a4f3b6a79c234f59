/* The file of API keys: any bytes either give keys or are refused with a message. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "scheduler/scheduler.h"
#include "server/keys/keys.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_key(const struct api_key *key) {
    assert(key->weight >= 1 && key->weight <= MAX_SHARE_WEIGHT);
    assert(key->max_requests >= 0 && key->tokens_per_minute >= 0);
    assert(memchr(key->name, 0, sizeof key->name));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct keys keys = {0};
    struct err err = {0};
    char *text = mem_alloc(size + 1);
    memcpy(text, data, size);
    text[size] = 0;
    enum status status = keys_parse(&keys, "fuzz", text, size, &err);
    assert((status == STATUS_OK) == (err.status == STATUS_OK));
    assert(status == STATUS_OK ? keys.n > 0 : *err.message != 0);
    for (int i = 0; i < keys.n && status == STATUS_OK; i++) check_key(&keys.key[i]);
    keys_free(&keys);
    mem_free(text);
    return 0;
}
