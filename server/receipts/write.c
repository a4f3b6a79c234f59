/* Writes receipts. The payload is written in canonical order, so it needs no second pass. */
#include <assert.h>
#include <inttypes.h>
#include <sodium.h>
#include <string.h>

#include "server/json/json.h"
#include "server/receipts/internal.h"

void receipt_hash_ids(char hex[HASH_DIGITS + 1], const int32_t *ids, int n) {
    crypto_hash_sha256_state state;
    unsigned char digest[crypto_hash_sha256_BYTES];
    crypto_hash_sha256_init(&state);
    for (int i = 0; i < n; i++) {
        uint32_t id = (uint32_t)ids[i];
        unsigned char bytes[4] = {(unsigned char)id, (unsigned char)(id >> 8),
                                  (unsigned char)(id >> 16), (unsigned char)(id >> 24)};
        crypto_hash_sha256_update(&state, bytes, sizeof bytes);
    }
    crypto_hash_sha256_final(&state, digest);
    sodium_bin2hex(hex, HASH_DIGITS + 1, digest, sizeof digest);
}

static void write_output(struct buf *out, const struct receipt_output *output) {
    char hex[HASH_DIGITS + 1];
    buf_printf(out, "{\"choice\":%d,\"finish_reason\":", output->choice);
    if (output->finish_reason)
        json_write_string(out, output->finish_reason, strlen(output->finish_reason));
    else
        buf_puts(out, "null");
    buf_puts(out, ",\"ids\":");
    json_write_ints(out, output->ids, output->n_ids);
    receipt_hash_ids(hex, output->ids, output->n_ids);
    buf_printf(out, ",\"prompt\":%d,\"sha256\":\"%s\"}", output->prompt, hex);
}

/* A seed is a string, because many readers of JSON keep only 53 bits of a number. */
static void write_prompt(struct buf *out, const struct receipt_prompt *prompt) {
    buf_puts(out, "{\"ids\":");
    json_write_ints(out, prompt->ids, prompt->n_ids);
    buf_printf(out, ",\"max_tokens\":%d,\"seed\":\"%" PRIu64 "\"}", prompt->max_tokens,
               prompt->seed);
}

static void write_payload(struct buf *out, const struct receipt *receipt) {
    buf_puts(out, "{\"body\":");
    json_write_string(out, receipt->body->data, receipt->body->length);
    buf_puts(out, ",\"created\":");
    json_write_int(out, receipt->created);
    buf_puts(out, ",\"fingerprint\":");
    fingerprint_write(out, receipt->fingerprint, FINGERPRINT_RECEIPT);
    buf_puts(out, ",\"outputs\":[");
    for (int i = 0; i < receipt->n_outputs; i++) {
        if (i > 0) buf_puts(out, ",");
        write_output(out, &receipt->outputs[i]);
    }
    buf_puts(out, "],\"path\":");
    json_write_string(out, receipt->path, strlen(receipt->path));
    buf_puts(out, ",\"prompts\":[");
    for (int i = 0; i < receipt->n_prompts; i++) {
        if (i > 0) buf_puts(out, ",");
        write_prompt(out, &receipt->prompts[i]);
    }
    buf_puts(out, "],\"sampling\":");
    buf_add(out, receipt->sampling->data, receipt->sampling->length);
    buf_printf(out, ",\"version\":%d}", RECEIPT_VERSION);
}

static void write_signature(struct buf *out, const char *payload, size_t length,
                            const struct receipt_key *key) {
    unsigned char signature[RECEIPT_SIGNATURE_BYTES];
    crypto_sign_detached(signature, NULL, (const unsigned char *)payload, length, key->secret);
    buf_puts(out, ",\"public_key\":\"");
    receipt_write_base64(out, key->public, sizeof key->public);
    buf_puts(out, "\",\"signature\":\"");
    receipt_write_base64(out, signature, sizeof signature);
    buf_puts(out, "\"");
}

void receipt_write(struct buf *out, const struct receipt *receipt, const struct receipt_key *key) {
    struct buf payload = {0};
    char hex[HASH_DIGITS + 1];
    assert(receipt->body->length > 0 && receipt->fingerprint->model[0]);
    write_payload(&payload, receipt);
    hash_text(hex, payload.data, payload.length);
    buf_add(out, payload.data, payload.length - 1);
    buf_printf(out, ",\"digest\":\"%s\"", hex);
    if (key) write_signature(out, payload.data, payload.length, key);
    buf_puts(out, "}");
    buf_free(&payload);
}

void receipt_join(struct buf *out, const struct buf *receipt) {
    size_t end = out->length;
    while (end > 0 && out->data[end - 1] == '\n') end--;
    size_t n_breaks = out->length - end;
    assert(end > 1 && out->data[end - 1] == '}');
    out->length = end - 1;
    buf_puts(out, ",\"receipt\":");
    buf_add(out, receipt->data, receipt->length);
    buf_puts(out, "}");
    for (size_t i = 0; i < n_breaks; i++) buf_puts(out, "\n");
}
