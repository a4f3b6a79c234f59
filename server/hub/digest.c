/* The hashes by which the hub names files. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "server/hub/internal.h"
#include "server/hub/library.h"

void hub_digest_begin(struct hub_digest *digest, const struct hub_file *file) {
    *digest =
        (struct hub_digest){.is_sha1 = strlen(file->hash) == SHA1_DIGITS, .bytes = file->bytes};
    digest->context = hub_library.p_EVP_MD_CTX_new();
    if (!digest->context) mem_fail(1);
    hub_digest_restart(digest);
}

void hub_digest_restart(struct hub_digest *digest) {
    const EVP_MD *kind = digest->is_sha1 ? hub_library.p_EVP_sha1() : hub_library.p_EVP_sha256();
    hub_library.p_EVP_DigestInit_ex(digest->context, kind, NULL);
    if (!digest->is_sha1) return;
    char head[40]; /* git hashes an object: its type, its size and its bytes */
    int n = snprintf(head, sizeof head, "blob %" PRId64, digest->bytes);
    hub_digest_add(digest, head, (size_t)n + 1);
}

void hub_digest_add(struct hub_digest *digest, const void *data, size_t length) {
    assert(digest->context);
    hub_library.p_EVP_DigestUpdate(digest->context, data, length);
}

void hub_digest_end(struct hub_digest *digest, char hex[SHA256_DIGITS + 1]) {
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    hub_library.p_EVP_DigestFinal_ex(digest->context, bytes, &n);
    hex[0] = 0;
    for (unsigned i = 0; i < n && i < SHA256_DIGITS / 2; i++)
        sprintf(hex + 2 * i, "%02x", bytes[i]);
}

void hub_digest_free(struct hub_digest *digest) {
    if (digest->context) hub_library.p_EVP_MD_CTX_free(digest->context);
    *digest = (struct hub_digest){0};
}
