/* Receipts and public keys: any bytes are a receipt or are refused with a message, and a receipt
 * stays one in canonical form. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "server/receipts/receipts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_values(const struct json *receipt) {
    struct fingerprint fingerprint;
    receipt_fingerprint(receipt, &fingerprint);
    json_each(prompt, json_member(receipt, "prompts")) {
        receipt_seed(prompt);
        assert(receipt_compare_ids(prompt, NULL, 0) <= 0);
    }
}

static void check_receipt(const struct json *receipt) {
    struct err err = {0};
    enum receipt_verdict verdict = receipt_check(receipt, NULL, &err);
    assert((verdict == RECEIPT_BROKEN) == (*err.message != 0));
    if (verdict == RECEIPT_SAME) read_values(receipt);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    unsigned char public_key[RECEIPT_PUBLIC_BYTES];
    struct receipt_key key;
    struct json *json;
    struct err err = {0};
    const char *text = (const char *)data;
    receipt_public_parse(public_key, "fuzz", text, size, &err);
    receipt_key_parse(&key, "fuzz", text, size, &err);
    if (json_parse(&json, "It", text, size, &err)) return 0;
    struct buf canonical = {0}, again = {0};
    canonical_write(&canonical, json);
    const struct json *receipt = receipt_find(json);
    if (receipt) check_receipt(receipt);
    json_free(json);
    enum status status = json_parse(&json, "It", canonical.data, canonical.length, &err);
    assert(!status);
    (void)status;
    canonical_write(&again, json);
    assert(strcmp(canonical.data, again.data) == 0);
    if (!json_refuse_doubled(json, "It", &err)) assert(json_distance(json, json) == 0);
    json_free(json);
    buf_free(&canonical);
    buf_free(&again);
    return 0;
}
