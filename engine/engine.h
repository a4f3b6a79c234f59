/* engine: a model that is ready to run. Weights from a file, the forward pass, the KV cache's
 * memory, sampling.
 *
 * A `struct engine` owns the mapped file, the weights, the tokenizer, the chat template, the KV
 * cache and the backend. After engine_open it is used by one thread (the scheduler's), except for
 * what is marked "any thread". It knows nothing of requests: it gets a `struct step` and
 * `struct sample`s (kernels.h), and returns the tokens. Which block holds what is the scheduler's.
 */
#ifndef PENSTOCK_ENGINE_H
#define PENSTOCK_ENGINE_H

#include <stdio.h>

#include "engine/model_config.h"
#include "engine/text/text.h"
#include "kernels/kernels.h"

/* ---- opening -------------------------------------------------------------------------------- */

#define MAX_BLOCK_SIZE 256 /* slots of a KV block */

struct engine;

struct engine_config {
    /* path of a .gguf file, or of a folder; with `dummy` it may be a config.json */
    const char *model;
    /* folder for the matrices as a CPU lays them out, which the next start maps; NULL: none */
    const char *weight_cache;
    const char *chat_template;      /* path of a template that replaces the model's; NULL: none */
    int threads;                    /* of all ranks; 0: as many as suit */
    const char *cpu_affinity;       /* see backend_config; NULL: threads are not bound */
    int ranks;                      /* that share the model, 1..MAX_RANKS; 0: 1 */
    enum compute_dtype dtype;       /* the 16-bit types are CUDA's */
    enum quantization quantization; /* of float weights; fp8: of the layers', on CUDA */
    /* CUDA: cuBLAS may multiply, so that a request's bytes depend on the batch */
    bool allow_batch_variant_gemm;
    bool wgmma;               /* CUDA: products, attention of many rows by what sm_90a has */
    bool persistent_step;     /* CUDA: decode steps of small models are one cooperative grid */
    bool dummy;               /* random weights of the file's shapes, the same ones every time */
    bool stand_in_vocabulary; /* a folder's own tokenizer is not read, for tests */
    enum kv_dtype kv_dtype;
    int max_model_len; /* 0: the model's own */
    int max_num_seqs;
    int max_num_batched_tokens; /* the largest M */
    int max_logit_rows;         /* the largest R; 0: max_num_seqs */
    int in_flight;              /* steps in flight, 1..MAX_IN_FLIGHT; 0: as suits the backend */
    int block_size;             /* 1..MAX_BLOCK_SIZE */
    int64_t kv_memory;          /* bytes for KV blocks; 0: chosen from the machine's memory */
    /* layers with windows have blocks of their own, and steps have tables of them
     * (struct step). -1: as many as suit, where that saves any; 0: none; or so many, for tests */
    int window_blocks;
    /* of a GPU's memory, what all may take that is not the host's; 0: nine tenths */
    double gpu_memory_utilization;
    int64_t swap_space; /* the host's bytes for preempted sequences; 0: none; -1: as is worth it */
    enum device device;
    const char *cpu_path; /* NULL: the best; or a path's name, for tests */
    bool host_samples;    /* the device is not to sample, for tests */
    bool enforce_eager;   /* CUDA: no step runs as a graph */
    int max_graphs;       /* CUDA: that are kept, for tests; 0: as many as suit */
    bool warm_up;         /* engine_open touches the cache; CUDA: runs usual steps once */
    /* NULL; or the engine that this one is to draft for (scheduler/draft/model.c), on the same
     * device: it needs the same vocabulary and keeps to sequences of that one's length. On the CPU
     * it leaves the memory that was planned there and is not taken yet; on a GPU it has what was
     * kept for it there */
    const struct engine *drafts_for;
    /* NULL; or what the engine that is to draft for this one will be opened with: room on the GPU
     * is kept for it */
    const struct engine_config *drafter;
    /* called with 0..1 while something takes long; may be NULL */
    void (*progress)(void *arg, const char *what, double part);
    void *progress_arg;
};

/* How a model's makers want tokens to be chosen, where a request does not say it. Below 0: they do
 * not say it either. */
struct sampling_defaults {
    double temperature, top_p, min_p, repetition_penalty;
    int top_k;
};
#define NO_SAMPLING_DEFAULTS                                                                       \
    { -1, -1, -1, -1, -1 }

/* Reads the model and plans all memory. Fails with STATUS_BAD_FILE (what is wrong with the file, by
 * key or tensor) or STATUS_USAGE (settings that cannot work, with what would). */
enum status engine_open(struct engine **out, const struct engine_config *config, struct err *err);
void engine_close(struct engine *engine);

/* Reads only the tokenizer of a model file; the caller frees it. */
enum status engine_open_tokenizer(struct tokenizer **out, const char *path, struct err *err);

/* Writes the model `in` to the GGUF file `out` with its float matrices quantised. Of a GGUF file,
 * keys and the order of tensors are kept; of a folder, all that a GGUF file needs is made: shape,
 * tokenizer, templates. The output has its name only when it is whole. Fails with STATUS_USAGE
 * where `out` is there already, `in` has nothing to quantise, or is a folder that no GGUF file can
 * say; with STATUS_BAD_FILE where a file cannot be read or written. */
struct quantise_job {
    const char *in, *out;
    enum quantization type;
    int threads;                                                /* 0: as many as suit */
    void (*progress)(void *arg, const char *what, double part); /* or NULL */
    void *progress_arg;
    int64_t bytes_in, bytes_out; /* of the files; set */
};
enum status engine_quantise(struct quantise_job *job, struct err *err);

/* The name of the model at `path`, for people and for the API: the folder's or file's own, without
 * ".gguf"; of the hub's cache that of the repository ("org/name"). Any thread. */
enum { MODEL_NAME_BYTES = 128 };
void model_path_name(char out[MODEL_NAME_BYTES], const char *path);

/* Memory by purpose, in bytes, and what it can hold. */
struct engine_memory {
    int64_t weights, kv_cache, scratch;
    int64_t kv_bytes_per_token; /* in blocks; in window blocks: */
    int64_t window_bytes_per_token;
    int n_blocks, block_size;
    int n_window_blocks; /* 0: blocks are every layer's; else those of layers with windows... */
    int window;          /* ...of which this is the longest, in positions */
    int max_model_len;   /* tokens of one sequence, prompt and output */
    /* On a GPU, and 0 on the CPU: */
    struct device_memory device; /* as it was before anything was taken */
    double share;                /* of it, that may be taken in all */
    int64_t sampling;            /* of max_logit_rows rows (sampling_slot_bytes), and results */
    int64_t steps; /* a step's arrays, and what attention works in: it grows with the cache */
    int64_t kept;  /* of the share, kept free for graphs and for what grows in service */
    /* kept for an engine that drafts: its weights and scratch, and its part of each block */
    int64_t draft, draft_block;
    int64_t given;    /* of an engine that drafts: what was kept for it; 0: no such engine */
    int given_blocks; /* and the other's n_blocks */
    int64_t swap;     /* the host's, for preempted sequences */
};

/* Sequences of full length that the cache holds together. */
double engine_memory_sequences(const struct engine_memory *memory);

/* The next seven: any thread; what they return lives as long as the engine. */
const struct model_config *engine_model(const struct engine *engine);
const struct engine_memory *engine_memory(const struct engine *engine);
const struct tokenizer *engine_tokenizer(const struct engine *engine);
/* Some models have another template for requests with tools. NULL: the model has none */
const struct chat_template *engine_chat_template(const struct engine *engine, bool with_tools);
const struct sampling_defaults *engine_sampling_defaults(const struct engine *engine);
/* "cpu avx512vnni, 2 threads"; with "auto", why it is that one */
const char *engine_backend_name(const struct engine *engine);
/* Compute threads that engine_parallel runs on, the caller's included: those of rank 0. */
int engine_threads(const struct engine *engine);

/* Milliseconds that it took to read the weights into the backend's layout. Any thread. */
double engine_weights_ms(const struct engine *engine);

/* Ids that end a generation, from the model's metadata and its end-of-turn tokens. Any thread. */
const int32_t *engine_end_ids(const struct engine *engine, int *n);

/* ---- running -------------------------------------------------------------------------------- */

/* Do passes run on the host's own processor? Any thread. */
bool engine_on_host(const struct engine *engine);

/* How many passes may be submitted before the first one is waited for: 1..MAX_IN_FLIGHT, and 1
 * where the host samples. Any thread. */
int engine_in_flight(const struct engine *engine);

/* Rows that products compute at once: a pass of fewer takes about as long. Any thread. */
int engine_row_quantum(const struct engine *engine);

/* Rows of a pass, and rows of it that want logits, at most. Any thread. */
int engine_max_rows(const struct engine *engine);
int engine_max_logit_rows(const struct engine *engine);

/* Submits a forward pass after those in flight; passes run in their order, so that what one writes
 * to the cache the next one reads. `step` and its arrays are read before this returns; its
 * `sampled` and `sampler` are the engine's to fill in. On the host the pass has run by then. */
void engine_submit(struct engine *engine, const struct step *step);

/* Submits the sampling of the newest pass: samples[n], n at most R + MAX_SHARED_SAMPLES; those of
 * one logit row stand together, and the first gives the row's pending token. Called once for each
 * pass before the next is submitted; n may be 0. What it depends on may be found out between the
 * two calls, unless the step named its samples: then these are the same. The samples and what they
 * point to are read before this returns; on the host they have been computed by then. */
void engine_sample(struct engine *engine, const struct sample *samples, int n);

/* Waits for the oldest pass in flight and returns the results of its samples, in their order: valid
 * until the next engine_sample. NULL if the device has failed. */
const struct sampled *engine_wait(struct engine *engine);

/* In place of engine_sample and engine_wait, for tools and tests: waits for the only pass in flight
 * and returns the logits [R][V] of its logit rows: host memory of the engine's that the caller may
 * change, valid until the next engine_submit. NULL if the device has failed. */
float *engine_read_logits(struct engine *engine);

/* Has the device failed? Then `err`, unless it is NULL, gets a sentence that says which call did,
 * with the code "device_failed". Nothing comes of any pass from then on: it may be submitted, and
 * has to be waited for, but does nothing. For the thread that submits. */
bool engine_failed(const struct engine *engine, struct err *err);

/* ---- swapping ------------------------------------------------------------------------------- */

/* Host memory for preempted blocks of the cache: host block i has room for one. The functions are
 * those of struct swap_ops (kernels/memory.h): copies are queued in the order of the calls and of
 * the passes that were submitted. For the thread that submits. */

/* How many host blocks there are; with `window`, of those that are for window blocks, if the cache
 * has such. 0 blocks: nothing is swapped, and the others may not be called. */
int engine_host_blocks(const struct engine *engine, bool window);
/* Takes memory for host blocks 0..n-1; false if the host has none. */
bool engine_swap_reserve(struct engine *engine, bool window, int n);
/* Queues the copy of block[i] to host_block[i]; passes that are submitted later may write the
 * blocks. */
void engine_swap_out(struct engine *engine, bool window, const int32_t *block,
                     const int32_t *host_block, int n);
/* Queues the copy of host_block[i] to block[i], which no pass may touch until engine_swap_arrive:
 * those that are submitted after it find the copies there. */
void engine_swap_in(struct engine *engine, bool window, const int32_t *host_block,
                    const int32_t *block, int n);
void engine_swap_arrive(struct engine *engine);

/* ---- looking on ----------------------------------------------------------------------------- */

/* From now on the ops of every pass add their times to `times`, which is the caller's; NULL ends
 * that. For the thread that submits, while no pass is in flight. */
void engine_time_ops(struct engine *engine, struct op_times *times);

/* How many passes a GPU was given as one cooperative grid (persistent_step). For the same
 * thread. */
uint64_t engine_one_grid_steps(const struct engine *engine);

/* What the device can do at most, measured now: zeros where the host computes. For the same
 * thread. */
void engine_limits(struct engine *engine, struct device_limits *out);

/* Bytes of weights that a pass over so many rows reads: those of the layers, of experts the part
 * that rows that choose at random are expected to choose, and those of the head where rows want
 * logits. Any thread. */
void engine_weights_read(const struct engine *engine, int rows, int64_t *layers, int64_t *head);

/* Runs fn(arg, i) for i in [0, n) on the compute threads; for `penstock bench`. */
void engine_parallel(struct engine *engine, void (*fn)(void *arg, int i), void *arg, int n);

/* ---- inspection ----------------------------------------------------------------------------- */

/* Prints what a model file holds: a summary of the model, its tokenizer and the memory that serving
 * it will take with `config`'s settings (config->model names the file); then the key-values and, if
 * `tensors`, each tensor. */
enum status engine_inspect(const struct engine_config *config, bool tensors, FILE *out,
                           struct err *err);

#endif
