/* load: sends requests to a scheduler in this process and records the time of each token. Prompts
 * are random ids from a seed, and a request ends only at its maximum length. */
#ifndef PENSTOCK_BENCH_GPU_LOAD_H
#define PENSTOCK_BENCH_GPU_LOAD_H

#include <pthread.h>

#include "scheduler/scheduler.h"

/* A model's shape, with the letters of kernels.h. */
struct shape {
    const char *name;
    int K, F, L, H, G, D, V, context;
    bool tied;
};

/* Settings of an engine. NULL and 0 have the meaning of struct engine_config. */
struct setup {
    const struct shape *shape;
    enum device device;
    enum compute_dtype dtype;
    enum quantization quantization;
    enum kv_dtype kv_dtype;
    const char *cpu_path;
    int max_seqs, max_rows, max_len;
    bool persistent_step, wgmma;
};

/* Opens an engine with random weights. The size of its cache is planned from the device's free
 * memory. Fails as engine_open does. */
enum status open_random(struct engine **out, const struct setup *setup, struct err *err);

struct load_request {
    struct generation generation;
    int32_t *prompt;
    uint64_t submitted_ns;
    int n;              /* number of tokens received */
    int32_t *token;     /* [max_tokens] */
    uint64_t *token_ns; /* [max_tokens] */
    bool failed;        /* it did not end at its maximum length */
};

struct load {
    struct engine *engine;
    struct scheduler *scheduler;
    int n, capacity;
    struct load_request *request; /* [n] */
    uint64_t begin_ns, end_ns;    /* first submission, last end */
    bool cut_short;               /* out of time: unfinished requests were cancelled */
    int n_live;
    pthread_mutex_t mutex; /* guards n_live, end_ns */
    pthread_cond_t ended;
};

/* Prepares up to `most` requests, in steps of up to max_rows rows and max_seqs sequences, for which
 * the engine must have capacity. The prefix cache is off. */
void load_open(struct load *load, struct engine *engine, int most, int max_seqs, int max_rows);
void load_close(struct load *load);

/* Adds a request with random tokens from a seed. */
struct load_request *load_add(struct load *load, int n_prompt, int n_output,
                              const struct sampling *sampling, uint64_t seed);
/* Submits a request after load_start. Fails as scheduler_submit does. */
bool load_submit(struct load *load, struct load_request *request);
void load_start(struct load *load);
/* Waits until all requests have ended, at most max_s seconds; then cancels the rest. */
void load_wait(struct load *load, double max_s);
/* Submits all requests, starts, and waits. Returns false if a request was refused or failed. */
bool load_run(struct load *load, double max_s);

/* Tokens received by all requests, and seconds from the first submission to the last end. */
double load_tokens(const struct load *load);
double load_seconds(const struct load *load);

#endif
