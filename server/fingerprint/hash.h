/* server/fingerprint/hash: the SHA-256 of the files of models and adapters.
 *
 * One file: its SHA-256. Several files: the SHA-256 of the lines that `sha256sum` prints for them,
 * sorted by name. A `struct model_hash` computes the hash of a model's files in a thread of its
 * own, so it never delays a start; any thread may ask for it.
 */
#ifndef PENSTOCK_SERVER_HASH_H
#define PENSTOCK_SERVER_HASH_H

#include <stdatomic.h>

#include "config/config.h"
#include "config/list.h"

#define HASH_DIGITS 64 /* of a SHA-256 as hexadecimal text */

/* Writes the SHA-256 of a text in hexadecimal. */
void hash_text(char hex[HASH_DIGITS + 1], const void *text, size_t length);

/* ---- files (files_hash.c) ------------------------------------------------------------------- */

/* Hashes a model: a file, the first of several parts, or a folder, of which the files .safetensors,
 * .json, .model, .jinja and .txt count. Fails with STATUS_SERVER_ERROR and the name of a file that
 * cannot be read, and with STATUS_UNAVAILABLE after `stops` is set. */
enum status files_hash(char hex[HASH_DIGITS + 1], const char *path, const atomic_bool *stops,
                       struct err *err);

/* Hashes an adapter: a GGUF file, or of a folder of PEFT the files adapter_config.json and
 * adapter_model.safetensors, which alone decide its numbers. Fails as files_hash. */
enum status adapter_hash(char hex[HASH_DIGITS + 1], const char *path, struct err *err);

/* ---- the hash of a model's files (model_hash.c) --------------------------------------------- */

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
