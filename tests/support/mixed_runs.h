/* The same bytes on a device, whatever the company: a few model files in different types. The
 * requests of each are learnt alone. Then they run together, some several times, with a new one
 * every few steps, in each of a suite's settings. */
#ifndef PENSTOCK_TESTS_MIXED_RUNS_H
#define PENSTOCK_TESTS_MIXED_RUNS_H

#include "support/same_bytes.h"

enum { MIXED_LENGTH = 64 }; /* of the longest sequence */

/* A model file with its types, and what its requests are. */
struct mixed_variety {
    const char *file;
    enum compute_dtype compute;
    enum kv_dtype kv;
    enum quantization quantization;
    int asked;         /* number of requests */
    bool searches;     /* some of them are beam searches */
    uint64_t seed;     /* of the requests: they are the same on all devices */
    const char *eagle; /* the folder of a head that guesses ahead, or NULL */
};

/* Learns the requests of a variety, alone, on a device. request_set_drop frees the set. */
struct request_set *mixed_learn(const struct mixed_variety *variety, enum device device);

/* Returns the blocks of `block_size` slots that the largest request takes. */
int mixed_blocks(const struct request_set *set, int block_size);

/* Runs all requests in one setting, fails the test if any byte differs, and adds the run's numbers
 * to *tally. */
void mixed_run(const struct request_set *set, const struct setting *setting, struct tally *tally);

/* Runs one variety's settings, `i` being its number. */
typedef void (*mixed_settings)(const struct request_set *set, int i, struct tally *tally);

/* Learns each variety on CUDA, or only the last one with `last_alone`, and runs its settings. The
 * tokens of a float32 variety must be those of the CPU. */
void mixed_run_all(const struct mixed_variety *varieties, int n, bool last_alone,
                   mixed_settings settings, struct tally *tally);

#endif
