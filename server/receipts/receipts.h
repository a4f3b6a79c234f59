/* server/receipts: receipts, which state how an answer was made so that any machine can make it
 * again; and canonical JSON, over which they are hashed and signed. Pure functions over documents:
 * no sockets, no threads, no model.
 *
 * A receipt is a JSON object (docs/api.md has its members). Its *payload* is the object without
 * "digest", "public_key" and "signature", as canonical JSON. The digest is its SHA-256, the
 * signature is Ed25519 over the payload. So a receipt may be stored with other white space or
 * another order of members.
 */
#ifndef PENSTOCK_SERVER_RECEIPTS_H
#define PENSTOCK_SERVER_RECEIPTS_H

#include "server/fingerprint/fingerprint.h"

/* ---- canonical JSON (canonical.c) ----------------------------------------------------------- */

/* Appends a value as canonical JSON: no white space, members sorted by the bytes of their names,
 * strings and numbers as json_write_value writes them. Equal values give equal bytes. */
void canonical_write(struct buf *out, const struct json *value);

/* The same for an object without the members of this name list, which ends with NULL. */
void canonical_write_without(struct buf *out, const struct json *object,
                             const char *const *left_out);

/* Appends the body of a request without the same fields as canonical_request, its members in their
 * own order: the order of a schema's or tool's members may change an answer. */
void request_write(struct buf *out, const struct json *body);

/* Appends the body of a request without the fields that change neither its tokens nor the form of
 * its answer: user, metadata, priority and the like. Any body other than an object is written
 * whole. */
void canonical_request(struct buf *out, const struct json *body);

/* Finds the first difference between two documents, in the order of canonical JSON. Appends its
 * place, such as "messages[2].content", to `place`. Returns false if they are equal. *x and *y are
 * set to the two values; NULL: one document lacks it. */
bool json_difference(const struct json *a, const struct json *b, struct buf *place,
                     const struct json **x, const struct json **y);

/* Counts the values that differ: strings, numbers and the like; a missing value counts with all
 * that it holds. */
int json_distance(const struct json *a, const struct json *b);

/* ---- keys (keys.c) -------------------------------------------------------------------------- */

enum { RECEIPT_PUBLIC_BYTES = 32, RECEIPT_SECRET_BYTES = 64, RECEIPT_SIGNATURE_BYTES = 64 };

/* A pair of Ed25519 keys. */
struct receipt_key {
    unsigned char secret[RECEIPT_SECRET_BYTES], public[RECEIPT_PUBLIC_BYTES];
};

/* Read a private or a public key from a PEM file, as `openssl genpkey -algorithm ed25519` and
 * `openssl pkey -pubout` write them. Fail with STATUS_BAD_FILE. `path` names the file in errors. */
enum status receipt_key_parse(struct receipt_key *out, const char *path, const char *text,
                              size_t length, struct err *err);
enum status receipt_public_parse(unsigned char out[RECEIPT_PUBLIC_BYTES], const char *path,
                                 const char *text, size_t length, struct err *err);

/* Reads the private key in a file. The caller frees it with receipt_key_free. */
enum status receipt_key_read(struct receipt_key **out, const char *path, struct err *err);
void receipt_key_free(struct receipt_key *key); /* erases it; NULL is allowed */

/* Reads the public key in a file. */
enum status receipt_public_read(unsigned char out[RECEIPT_PUBLIC_BYTES], const char *path,
                                struct err *err);

/* Appends a key or a signature in base64. */
void receipt_write_base64(struct buf *out, const unsigned char *bytes, size_t n);

/* ---- writing (write.c) ---------------------------------------------------------------------- */

struct receipt_prompt {
    const int32_t *ids; /* [n_ids] */
    int n_ids;
    int max_tokens;
    uint64_t seed;
};

struct receipt_output {
    int prompt, choice;        /* indices */
    const char *finish_reason; /* NULL: unknown */
    const int32_t *ids;        /* [n_ids] with the end token */
    int n_ids;
};

/* The values of a receipt, which it borrows. */
struct receipt {
    const struct fingerprint *fingerprint;
    const char *path;           /* of the API */
    int64_t created;            /* seconds since 1970: templates may show it */
    const struct buf *body;     /* of the request (request_write) */
    const struct buf *sampling; /* canonical JSON: all settings, defaults written out */
    int n_prompts, n_outputs;
    const struct receipt_prompt *prompts;
    const struct receipt_output *outputs;
};

/* Appends a receipt, signed with `key` unless it is NULL. */
void receipt_write(struct buf *out, const struct receipt *receipt, const struct receipt_key *key);

/* Adds the member "receipt" to a JSON object, or an event of a stream, at the end of `out`. */
void receipt_join(struct buf *out, const struct buf *receipt);

/* ---- reading (read.c) ----------------------------------------------------------------------- */

enum receipt_verdict {
    RECEIPT_SAME,
    RECEIPT_OTHER_TOKENS,      /* recomputing gives another token */
    RECEIPT_OTHER_FINGERPRINT, /* another model, arithmetic or option */
    RECEIPT_BROKEN, /* its digest, a hash or its signature is wrong, or it is not a receipt */
};

/* Finds the receipt in a document: the document itself, or its member "receipt", or that of its
 * member "response". Returns NULL if there is none. */
const struct json *receipt_find(const struct json *document);

/* Checks everything that can be checked without a model: members and their types, the digest, the
 * hashes of the outputs, the signature. `public_key` is the key that must have signed it, or NULL:
 * then a signature is checked against the receipt's own key. Returns RECEIPT_SAME, or
 * RECEIPT_BROKEN with the reason in err. */
enum receipt_verdict receipt_check(const struct json *receipt, const unsigned char *public_key,
                                   struct err *err);

/* Members of a checked receipt. */
void receipt_fingerprint(const struct json *receipt, struct fingerprint *out);
uint64_t receipt_seed(const struct json *prompt); /* of an element of "prompts" */

/* Compares the ids of a checked receipt, an element of "prompts" or "outputs", with others. Returns
 * the position of the first difference, or -1. A missing id differs. */
int receipt_compare_ids(const struct json *element, const int32_t *ids, int n);

/* Returns the id at a position of such an element, or -1 after its end. */
int32_t receipt_id_at(const struct json *element, int position);

#endif
