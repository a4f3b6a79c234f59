/* server/receipts/origin: a receipt's description of the server that made an answer.
 *
 * server/fingerprint compares a server with its own past on one machine: it has the time of files
 * and the names of options. An origin must be equal on any machine that gives the same bytes, so it
 * has the hash of the model's content. Settings that change the request itself, such as templates
 * and sampling defaults, are not in it: prompts and settings are in the receipt.
 *
 * A `struct origin` is plain data. A `struct model_hash` computes the hash of a model's files in a
 * thread of its own, so it never delays a start; any thread may ask for it.
 */
#ifndef PENSTOCK_SERVER_ORIGIN_H
#define PENSTOCK_SERVER_ORIGIN_H

#include "config/json.h"
#include "config/list.h"

/* The version of the arithmetic: builds of one version give the same bytes on the same kind of
 * device. Raise it with each change to the recorded answers of tests/vectors/answers.jsonl that is
 * not a change of their form, or to kernels/cpu/order.md. */
#define ARITHMETIC_VERSION 1

#define HASH_DIGITS 64 /* of a SHA-256 as hexadecimal text */

struct origin {
    char model[HASH_DIGITS + 1];   /* of the model's files (model_hash); "": not known */
    char adapter[HASH_DIGITS + 1]; /* of the adapter; "": none */
    char build[64];                /* "0.1.0 6438910 Release"; may differ for the same bytes */
    int arithmetic;                /* ARITHMETIC_VERSION */
    char device[16];               /* "cpu" or "cuda" */
    char weights[32];              /* the model's own type: "Q4_K_M" */
    char quantization[16];         /* of --quantization: "none" */
    char dtype[16];                /* of --dtype: "auto" */
    char kv_cache[16];             /* of the KV cache: "float16" */
    int ranks;
};

/* Appends it as canonical JSON. */
void origin_write(struct buf *out, const struct origin *origin);

/* Reads the JSON of origin_write. Returns false if a member is missing, too long or of another
 * type. */
bool origin_read(struct origin *out, const struct json *json);

/* Returns the name of the first member that differs and affects bytes, or NULL: the build does not
 * count. Writes both values to a and b as text. */
const char *origin_difference(const struct origin *x, const struct origin *y,
                              char a[HASH_DIGITS + 1], char b[HASH_DIGITS + 1]);

/* ---- the hash of a model's files (model_hash.c) --------------------------------------------- */

/* One file: its SHA-256. A model in parts, or a folder: the SHA-256 of the lines that `sha256sum`
 * prints for its files, sorted by name; of a folder the files .safetensors, .json, .model, .jinja
 * and .txt count. */
struct model_hash;

/* A request that waits for the hash without occupying a thread. */
struct hash_waiter {
    struct list_node node;
    bool has_left;
    void (*resume)(struct hash_waiter *waiter); /* on the hash's thread; must not call this room */
};

/* Prepares the hash of the model at `path`, which must outlive it. Reads nothing yet. */
struct model_hash *model_hash_new(const char *path);

/* Stops the computation and frees the hash; NULL is allowed. Call it after the last
 * request has ended. */
void model_hash_free(struct model_hash *hash);

/* Begins the computation, unless it has begun. */
void model_hash_start(struct model_hash *hash);

/* Returns true if the hash, or the reason for its absence, is known, or if the waiter has left.
 * Otherwise the waiter's `resume` is called once it is known, unless it leaves before. */
bool model_hash_await(struct model_hash *hash, struct hash_waiter *waiter);

/* Ensures that a waiter is not resumed, and does not wait again. */
void model_hash_leave(struct model_hash *hash, struct hash_waiter *waiter);

/* Waits for the hash and copies it. Fails with STATUS_SERVER_ERROR and the name of a file that
 * cannot be read. */
enum status model_hash_get(struct model_hash *hash, char out[HASH_DIGITS + 1], struct err *err);

#endif
