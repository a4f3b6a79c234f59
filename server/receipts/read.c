/* Reads and checks receipts. */
#include <assert.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/json/json.h"
#include "server/receipts/internal.h"

#define MAX_PATH_BYTES 64

static bool looks_like_one(const struct json *json) {
    return json_member(json, "fingerprint") && json_member(json, "outputs");
}

const struct json *receipt_find(const struct json *document) {
    const struct json *found = json_member(document, "receipt");
    if (!found) found = json_member(json_member(document, "response"), "receipt");
    if (!found) found = document;
    return looks_like_one(found) ? found : NULL;
}

static enum status broken(struct err *err, const char *why) {
    return err_set(err, STATUS_BAD_FILE, NULL, "%s", why);
}

/* ---- members -------------------------------------------------------------------------------- */

static bool is_index(const struct json *json) {
    return json_is_integer(json) && json_integer(json) >= 0 && json_integer(json) <= INT32_MAX;
}

static bool are_ids(const struct json *ids) {
    if (!json_is(ids, JSON_ARRAY)) return false;
    json_each(id, ids) {
        if (!is_index(id)) return false;
    }
    return true;
}

/* Is it the decimal text of a 64-bit number, without leading zeros? */
static bool is_seed(const struct json *seed) {
    char text[24];
    uint64_t value = strtoull(json_text(seed), NULL, 10);
    snprintf(text, sizeof text, "%" PRIu64, value);
    return json_is_text(seed, text);
}

static bool are_prompts(const struct json *prompts) {
    if (!json_is(prompts, JSON_ARRAY) || json_count(prompts) == 0) return false;
    json_each(prompt, prompts) {
        if (!are_ids(json_member(prompt, "ids"))) return false;
        if (!is_index(json_member(prompt, "max_tokens"))) return false;
        if (!is_seed(json_member(prompt, "seed"))) return false;
    }
    return true;
}

static bool are_outputs(const struct json *outputs) {
    if (!json_is(outputs, JSON_ARRAY) || json_count(outputs) == 0) return false;
    json_each(output, outputs) {
        if (!are_ids(json_member(output, "ids"))) return false;
        if (!is_index(json_member(output, "prompt"))) return false;
        if (!is_index(json_member(output, "choice"))) return false;
        if (json_length(json_member(output, "sha256")) != HASH_DIGITS) return false;
    }
    return true;
}

static enum status check_members(const struct json *receipt, struct err *err) {
    struct fingerprint fingerprint;
    const struct json *version = json_member(receipt, "version");
    const struct json *path = json_member(receipt, "path");
    if (!json_is_integer(version)) return broken(err, "it has no 'version'");
    if (json_integer(version) != RECEIPT_VERSION)
        return broken(err, "its 'version' is not 1: a newer penstock wrote it");
    if (!fingerprint_read(&fingerprint, json_member(receipt, "fingerprint"), FINGERPRINT_RECEIPT))
        return broken(err, "its 'fingerprint' lacks a member, or one has a wrong type");
    if (!json_is(json_member(receipt, "body"), JSON_STRING))
        return broken(err, "its 'body' is not a string");
    if (json_length(path) == 0 || json_length(path) > MAX_PATH_BYTES)
        return broken(err, "its 'path' is not the path of an API");
    if (!json_is_integer(json_member(receipt, "created")))
        return broken(err, "its 'created' is not a number");
    if (!json_is(json_member(receipt, "sampling"), JSON_OBJECT))
        return broken(err, "its 'sampling' is not an object");
    if (!are_prompts(json_member(receipt, "prompts")))
        return broken(err, "its 'prompts' are not lists of ids with a seed");
    if (!are_outputs(json_member(receipt, "outputs")))
        return broken(err, "its 'outputs' are not lists of ids with a hash");
    return STATUS_OK;
}

/* ---- hashes and signature ------------------------------------------------------------------- */

static int32_t *ids_of(const struct json *element, int *n) {
    const struct json *list = json_member(element, "ids");
    int32_t *ids = mem_alloc(((size_t)json_count(list) + 1) * sizeof *ids);
    *n = 0;
    json_each(id, list) ids[(*n)++] = (int32_t)json_integer(id);
    return ids;
}

static enum status check_outputs(const struct json *receipt, struct err *err) {
    int index = 0;
    json_each(output, json_member(receipt, "outputs")) {
        char hex[HASH_DIGITS + 1];
        int n, i = index++;
        int32_t *ids = ids_of(output, &n);
        receipt_hash_ids(hex, ids, n);
        mem_free(ids);
        if (!json_is_text(json_member(output, "sha256"), hex))
            return err_set(err, STATUS_BAD_FILE, NULL,
                           "outputs[%d].sha256 is not the hash of its ids: one of them was changed",
                           i);
    }
    return STATUS_OK;
}

static bool read_base64(unsigned char *out, size_t size, const struct json *text) {
    size_t n = 0;
    return sodium_base642bin(out, size, json_text(text), json_length(text), NULL, &n, NULL,
                             sodium_base64_VARIANT_ORIGINAL) == 0 &&
           n == size;
}

static enum status check_signature(const struct json *receipt, const struct buf *payload,
                                   const unsigned char *public_key, struct err *err) {
    unsigned char own[RECEIPT_PUBLIC_BYTES], signature[RECEIPT_SIGNATURE_BYTES];
    const struct json *key = json_member(receipt, "public_key");
    const struct json *signed_by = json_member(receipt, "signature");
    if (!key && !signed_by)
        return public_key ? broken(err, "signature wrong: it is not signed") : STATUS_OK;
    if (!read_base64(own, sizeof own, key) || !read_base64(signature, sizeof signature, signed_by))
        return broken(err, "signature wrong: 'public_key' or 'signature' is not base64 of its "
                           "length");
    if (public_key && sodium_memcmp(own, public_key, sizeof own) != 0)
        return broken(err, "signature wrong: another key signed it than that of --public-key");
    if (crypto_sign_verify_detached(signature, (const unsigned char *)payload->data,
                                    payload->length, own) != 0)
        return broken(err, "signature wrong: it does not belong to this receipt");
    return STATUS_OK;
}

static enum status check_payload(const struct json *receipt, const unsigned char *public_key,
                                 struct err *err) {
    static const char *const not_payload[] = {"digest", "public_key", "signature", NULL};
    struct buf payload = {0};
    char hex[HASH_DIGITS + 1];
    canonical_write_without(&payload, receipt, not_payload);
    hash_text(hex, payload.data, payload.length);
    enum status status = STATUS_OK;
    if (!json_is_text(json_member(receipt, "digest"), hex))
        status = broken(err, "its 'digest' is not the hash of the receipt: it was changed");
    if (!status) status = check_signature(receipt, &payload, public_key, err);
    buf_free(&payload);
    return status;
}

enum receipt_verdict receipt_check(const struct json *receipt, const unsigned char *public_key,
                                   struct err *err) {
    enum status status = json_refuse_doubled(receipt, "the receipt", err);
    if (!status) status = check_members(receipt, err);
    if (!status) status = check_outputs(receipt, err);
    if (!status) status = check_payload(receipt, public_key, err);
    return status ? RECEIPT_BROKEN : RECEIPT_SAME;
}

/* ---- values --------------------------------------------------------------------------------- */

void receipt_fingerprint(const struct json *receipt, struct fingerprint *out) {
    bool read = fingerprint_read(out, json_member(receipt, "fingerprint"), FINGERPRINT_RECEIPT);
    assert(read); /* it was checked */
    (void)read;
}

uint64_t receipt_seed(const struct json *prompt) {
    return strtoull(json_text(json_member(prompt, "seed")), NULL, 10);
}

int receipt_compare_ids(const struct json *element, const int32_t *ids, int n) {
    int i = 0;
    json_each(id, json_member(element, "ids")) {
        if (i == n || json_integer(id) != ids[i]) return i;
        i++;
    }
    return i == n ? -1 : i;
}

int32_t receipt_id_at(const struct json *element, int position) {
    int i = 0;
    json_each(id, json_member(element, "ids")) {
        if (i++ == position) return (int32_t)json_integer(id);
    }
    return -1;
}
