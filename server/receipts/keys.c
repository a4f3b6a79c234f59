/* Ed25519 keys in PEM files (RFC 8410): base64 of a fixed DER head and 32 bytes. */
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "server/receipts/receipts.h"

static_assert(RECEIPT_PUBLIC_BYTES == crypto_sign_PUBLICKEYBYTES, "Ed25519");
static_assert(RECEIPT_SECRET_BYTES == crypto_sign_SECRETKEYBYTES, "Ed25519");
static_assert(RECEIPT_SIGNATURE_BYTES == crypto_sign_BYTES, "Ed25519");

enum { SEED_BYTES = 32, MAX_FILE_BYTES = 4096 };

/* The two kinds of files. */
struct pem_kind {
    const char *label;
    const unsigned char *head;
    size_t head_bytes;
    const char *make; /* the command that makes one */
};

static const unsigned char secret_head[] = {0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06,
                                            0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20};
static const unsigned char public_head[] = {0x30, 0x2a, 0x30, 0x05, 0x06, 0x03,
                                            0x2b, 0x65, 0x70, 0x03, 0x21, 0x00};
static const struct pem_kind secret_kind = {"PRIVATE KEY", secret_head, sizeof secret_head,
                                            "openssl genpkey -algorithm ed25519 -out FILE"};
static const struct pem_kind public_kind = {"PUBLIC KEY", public_head, sizeof public_head,
                                            "openssl pkey -in KEY -pubout -out FILE"};

static enum status parse(unsigned char key[32], const struct pem_kind *kind, const char *path,
                         const char *text, size_t length, struct err *err) {
    char begin[64], end[64];
    unsigned char der[64];
    size_t n = 0;
    snprintf(begin, sizeof begin, "-----BEGIN %s-----", kind->label);
    snprintf(end, sizeof end, "-----END %s-----", kind->label);
    const char *from = memmem(text, length, begin, strlen(begin)), *to = NULL;
    if (from) from += strlen(begin);
    if (from) to = memmem(from, length - (size_t)(from - text), end, strlen(end));
    bool decoded = to && sodium_base642bin(der, sizeof der, from, (size_t)(to - from), "\r\n \t",
                                           &n, NULL, sodium_base64_VARIANT_ORIGINAL) == 0;
    bool fits =
        decoded && n == kind->head_bytes + 32 && memcmp(der, kind->head, kind->head_bytes) == 0;
    if (fits) memcpy(key, der + kind->head_bytes, 32);
    sodium_memzero(der, sizeof der);
    if (fits) return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, NULL,
                   "%s has no Ed25519 key in PEM form (%s); `%s` makes one", path, kind->label,
                   kind->make);
}

enum status receipt_key_parse(struct receipt_key *out, const char *path, const char *text,
                              size_t length, struct err *err) {
    unsigned char seed[SEED_BYTES];
    if (parse(seed, &secret_kind, path, text, length, err)) return STATUS_BAD_FILE;
    crypto_sign_seed_keypair(out->public, out->secret, seed);
    sodium_memzero(seed, sizeof seed);
    return STATUS_OK;
}

enum status receipt_public_parse(unsigned char out[RECEIPT_PUBLIC_BYTES], const char *path,
                                 const char *text, size_t length, struct err *err) {
    return parse(out, &public_kind, path, text, length, err);
}

/* Reads a small file. Returns its length. */
static enum status read_file(char text[MAX_FILE_BYTES], size_t *length, const char *path,
                             struct err *err) {
    FILE *file = fopen(path, "re");
    errno = file ? 0 : errno;
    *length = file ? fread(text, 1, MAX_FILE_BYTES, file) : 0;
    bool failed = !file || ferror(file);
    int error = errno;
    if (file) fclose(file);
    if (!failed) return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, NULL, "%s: %s", path, strerror(error));
}

enum status receipt_key_read(struct receipt_key **out, const char *path, struct err *err) {
    char text[MAX_FILE_BYTES];
    size_t length;
    struct receipt_key key;
    *out = NULL;
    enum status status = read_file(text, &length, path, err);
    if (!status) status = receipt_key_parse(&key, path, text, length, err);
    sodium_memzero(text, sizeof text);
    if (status) return status;
    *out = mem_alloc(sizeof **out);
    **out = key;
    sodium_memzero(&key, sizeof key);
    return STATUS_OK;
}

void receipt_key_free(struct receipt_key *key) {
    if (key) sodium_memzero(key, sizeof *key);
    mem_free(key);
}

enum status receipt_public_read(unsigned char out[RECEIPT_PUBLIC_BYTES], const char *path,
                                struct err *err) {
    char text[MAX_FILE_BYTES];
    size_t length;
    enum status status = read_file(text, &length, path, err);
    return status ? status : receipt_public_parse(out, path, text, length, err);
}

void receipt_write_base64(struct buf *out, const unsigned char *bytes, size_t n) {
    char text[sodium_base64_ENCODED_LEN(RECEIPT_SIGNATURE_BYTES, sodium_base64_VARIANT_ORIGINAL)];
    assert(n <= RECEIPT_SIGNATURE_BYTES);
    sodium_bin2base64(text, sizeof text, bytes, n, sodium_base64_VARIANT_ORIGINAL);
    buf_puts(out, text);
}
