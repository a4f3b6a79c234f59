/* load: requests to a scheduler in this process, and when each of their tokens came. Tokens are ids
 * drawn from a seed, and nothing ends a request but its length. */
#ifndef PENSTOCK_BENCH_GPU_LOAD_H
#define PENSTOCK_BENCH_GPU_LOAD_H

#include <pthread.h>

#include "scheduler/scheduler.h"

/* A model's shape, by the letters of kernels.h. */
struct shape {
    const char *name;
    int K, F, L, H, G, D, V, context;
    bool tied;
};

/* What an engine is opened with. NULL and 0 as in struct engine_config. */
struct setup {
    const struct shape *shape;
    enum device device;
    enum compute_dtype dtype;
    enum quantization quantization;
    enum kv_dtype kv_dtype;
    const char *cpu_path;
    int max_seqs, max_rows, max_len;
    int64_t kv_memory;
    bool persistent_step;
};

/* An engine of random weights; NULL, with the reason on standard error, when it cannot be. */
struct engine *open_random(const struct setup *setup);

struct load_request {
    struct generation generation;
    int32_t *prompt;
    uint64_t submitted_ns;
    int n;              /* tokens that came */
    int32_t *token;     /* [max_tokens] */
    uint64_t *token_ns; /* [max_tokens] */
    bool failed;        /* it ended otherwise than by its length */
};

struct load {
    struct engine *engine;
    struct scheduler *scheduler;
    int n, capacity;
    struct load_request *request; /* [n] */
    uint64_t begin_ns, end_ns;    /* first submitted, last ended */
    bool cut_short;               /* the time was up: what had not ended was cancelled */
    int n_live;
    pthread_mutex_t mutex; /* guards n_live, end_ns */
    pthread_cond_t ended;
};

/* Up to `most` requests, in steps of up to max_rows rows and max_seqs sequences; the engine must
 * have room for these. Cached prefixes are not used. */
void load_open(struct load *load, struct engine *engine, int most, int max_seqs, int max_rows);
void load_close(struct load *load);

/* Adds a request with random tokens of a seed. */
struct load_request *load_add(struct load *load, int n_prompt, int n_output,
                              const struct sampling *sampling, uint64_t seed);
/* Submits one, when load_start was called; it fails like scheduler_submit. */
bool load_submit(struct load *load, struct load_request *request);
void load_start(struct load *load);
/* Waits until all have ended, at most so many seconds; then what is left is cancelled. */
void load_wait(struct load *load, double max_s);
/* All three: submits all at once. Returns false when one was refused or has failed. */
bool load_run(struct load *load, double max_s);

/* Tokens of all requests that came, and seconds from the first submission to the last token. */
double load_tokens(const struct load *load);
double load_seconds(const struct load *load);

#endif
