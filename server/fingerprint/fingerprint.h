/* server/fingerprint: everything beside a request that decides the bytes of its answer.
 *
 * A `struct fingerprint` has a text for each part: build, model, arithmetic, templates, defaults.
 * Two servers with equal fingerprints give equal answers to a request with a seed. Parts that do
 * not change answers are left out: threads, the CPU path, the size of the cache, the queue. Plain
 * data; any thread may call the functions.
 */
#ifndef PENSTOCK_SERVER_FINGERPRINT_H
#define PENSTOCK_SERVER_FINGERPRINT_H

#include "server/options/options.h"

/* The parts, with the names of their JSON members and their words for people. */
#define FINGERPRINT_MAP(X)                                                                         \
    X(BUILD, build, "the build")                /* version, commit, kind of build */               \
    X(MODEL, model, "the model")                /* its shape, and size and time of its files */    \
    X(ARITHMETIC, arithmetic, "the arithmetic") /* device, types, ranks, blocks of the cache */    \
    X(LENGTH, length, "--max-model-len")        /* tokens of a sequence */                         \
    X(TEMPLATE, template, "the chat template or the parsers of answers")                           \
    X(DEFAULTS, defaults, "the sampling defaults")                                                 \
    X(NAMES, names, "--served-model-name") /* the first name: it is shown in answers */

enum fingerprint_part {
#define FINGERPRINT_ENUM(code, member, words) FINGERPRINT_##code,
    FINGERPRINT_MAP(FINGERPRINT_ENUM)
#undef FINGERPRINT_ENUM
        N_FINGERPRINT_PARTS
};

enum { FINGERPRINT_BYTES = 256 };

struct fingerprint {
    char part[N_FINGERPRINT_PARTS][FINGERPRINT_BYTES]; /* printable ASCII, NUL-terminated */
};

/* Makes the fingerprint of a server: its options, its open engine, the name that answers show. */
void fingerprint_make(struct fingerprint *out, const struct options *options,
                      const struct engine *engine, const char *model_name);

/* Appends it as a JSON object, always the same bytes for equal fingerprints. */
void fingerprint_write(struct buf *out, const struct fingerprint *fingerprint);

/* Reads such an object. Fails with STATUS_INVALID_REQUEST if a part is missing or too long. */
enum status fingerprint_read(struct fingerprint *out, const char *text, size_t length,
                             struct err *err);

/* Returns the words for the first part that differs, "the build"; NULL: both are equal. If `part`
 * is set, it gets the part. */
const char *fingerprint_difference(const struct fingerprint *a, const struct fingerprint *b,
                                   enum fingerprint_part *part);

#endif
