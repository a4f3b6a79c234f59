/* server/fingerprint: everything beside a request that decides the bytes of its answer.
 *
 * A `struct fingerprint` describes a server, or a server and an adapter: plain data, made once from
 * the options and the open engine. One table (fingerprint.c) has all its members. A *view* is a set
 * of members:
 *
 *   FINGERPRINT_RECEIPT  equal on all machines that give the same bytes, so it has the hash of the
 *                        model's content. Prompts and settings are in a receipt, so templates and
 *                        defaults are not in the view. The build is told, and no difference
 *   FINGERPRINT_PROMISE  compares a server with its own past on one machine. It has the size and
 *                        the time of the model's files, because the hash may take minutes
 *   FINGERPRINT_BLOCKS   decides the bytes of a block of the KV cache with given tokens
 *   FINGERPRINT_SYSTEM   `system_fingerprint` of answers: known at the start, and equal on machines
 *                        with equal files and options
 *
 * Settings that change no answer are left out: threads, the CPU path, the size of the cache, the
 * queue. Any thread may call the functions. hash.h has the hashes of files.
 */
#ifndef PENSTOCK_SERVER_FINGERPRINT_H
#define PENSTOCK_SERVER_FINGERPRINT_H

#include "config/json.h"
#include "server/fingerprint/hash.h"

struct engine;
struct options;

/* The version of the arithmetic: builds of one version give the same bytes on the same kind of
 * device. Raise it with each change to the recorded answers of tests/vectors/answers.jsonl that is
 * not a change of their form, or to kernels/cpu/order.md. */
#define ARITHMETIC_VERSION 1

/* The version of the words that server/decisions adds to questions, and of its labels. Raise it
 * with each change of them: probabilities change. */
#define QUESTIONS_VERSION 2

enum { FINGERPRINT_TEXT = 256, FINGERPRINT_SYSTEM_BYTES = 48 };

/* Texts are NUL-terminated. */
struct fingerprint {
    char model[HASH_DIGITS + 1];    /* of the model's files (model_hash); "": not known */
    char adapter[HASH_DIGITS + 1];  /* of the adapter's files (adapter_hash); "": none */
    char build[64];                 /* "0.1.0 6438910 Release" */
    int arithmetic;                 /* ARITHMETIC_VERSION */
    char device[16];                /* "cpu" or "cuda" */
    char kernels[FINGERPRINT_TEXT]; /* a GPU's generation and its paths; "": the CPU's paths give
                                     * equal bytes */
    char weights[32];               /* the model's own type: "Q4_K_M" */
    char quantization[16];          /* of --quantization: "none" */
    char dtype[16];                 /* of --dtype: "auto" */
    char kv_cache[16];              /* of the KV cache: "float16" */
    int block_size;                 /* of the KV cache, in tokens */
    int ranks;
    int pooling;                     /* of --pooling */
    char shape[FINGERPRINT_TEXT];    /* architecture, numbers and bytes of the model */
    char stamp[32];                  /* size and time of the model's files */
    int length;                      /* tokens of a sequence */
    char template[FINGERPRINT_TEXT]; /* chat templates, words of questions, parsers of answers */
    char defaults[FINGERPRINT_TEXT]; /* of sampling */
    char name[FINGERPRINT_TEXT];     /* of the model, as answers show it */
};

enum fingerprint_view {
    FINGERPRINT_RECEIPT = 1,
    FINGERPRINT_PROMISE = 2,
    FINGERPRINT_BLOCKS = 4,
    FINGERPRINT_SYSTEM = 8,
};

/* ---- making (make.c) ------------------------------------------------------------------------ */

/* Makes the fingerprint of a server: its options, its open engine, the name that answers show. The
 * hashes of model and adapter are left empty. */
void fingerprint_make(struct fingerprint *out, const struct options *options,
                      const struct engine *engine, const char *model_name);

/* ---- members (fingerprint.c) ---------------------------------------------------------------- */

/* Appends the members of a view as canonical JSON: equal views give equal bytes. */
void fingerprint_write(struct buf *out, const struct fingerprint *fingerprint,
                       enum fingerprint_view view);

/* Reads the JSON of fingerprint_write. Returns false if a member is missing, too long or of another
 * type, or if there is one more. The members of other views are empty. */
bool fingerprint_read(struct fingerprint *out, const struct json *json, enum fingerprint_view view);

/* The same for a text. */
bool fingerprint_parse(struct fingerprint *out, const char *text, size_t length,
                       enum fingerprint_view view);

/* A member that differs. */
struct fingerprint_difference {
    const char *name;                            /* "kv_cache" */
    const char *words;                           /* for people: "the type of the KV cache" */
    char a[HASH_DIGITS + 1], b[HASH_DIGITS + 1]; /* both values as text, which may be cut */
};

/* Do the fingerprints differ in a member of the view? Describes the first one. In a receipt another
 * build is no difference. */
bool fingerprint_differs(const struct fingerprint *x, const struct fingerprint *y,
                         enum fingerprint_view view, struct fingerprint_difference *out);

/* Writes the `system_fingerprint` of answers: the version and a hash of its view. */
void fingerprint_write_system(char out[FINGERPRINT_SYSTEM_BYTES],
                              const struct fingerprint *fingerprint);

#endif
