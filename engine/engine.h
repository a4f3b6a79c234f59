/* engine: a model that is ready to run. Weights from a file, the forward pass, the KV cache's
 * memory, sampling.
 *
 * A `struct engine` owns the mapped file, the weights, the tokenizer, the chat template, the KV
 * cache and the backend. After engine_open it is used by one thread (the scheduler's), except for
 * what is marked "any thread". It knows nothing of requests: it gets a `struct step` (kernels.h)
 * and gives logits. Which block holds what is the scheduler's.
 */
#ifndef PENSTOCK_ENGINE_H
#define PENSTOCK_ENGINE_H

#include <stdio.h>

#include "engine/text/text.h"
#include "kernels/kernels.h"

/* ---- opening -------------------------------------------------------------------------------- */

#define MAX_BLOCK_SIZE 256 /* slots of a KV block */

struct engine_config {
    const char *model; /* path of a .gguf file, or with `dummy` of a config.json */
    int threads;       /* of all ranks; 0: as many as suit */
    int ranks;         /* that share the model, 1..MAX_RANKS; 0: 1 */
    bool float32;      /* oracle mode: weights and KV in float32 */
    const char *dtype; /* NULL, "auto"; CUDA: "bfloat16", "float16" of activations */
    /* NULL, "none"; CUDA: "fp8", to which the layers' float weights are quantised */
    const char *quantization;
    bool dummy; /* random weights of the file's shapes, the same ones every time */
    /* "auto", "int16", "q8_0", "float16", "float32", and for CUDA "bfloat16", "fp8", "fp8_e4m3" */
    const char *kv_dtype;
    int max_model_len; /* 0: the model's own */
    int max_num_seqs;
    int max_num_batched_tokens; /* the largest M */
    int max_logit_rows;         /* the largest R; 0: max_num_seqs */
    int in_flight;              /* steps in flight, 1..MAX_IN_FLIGHT; 0: as suits the backend */
    int block_size;             /* 1..MAX_BLOCK_SIZE */
    int64_t kv_memory;          /* bytes for KV blocks; 0: chosen from the machine's memory */
    /* of a GPU's memory, what all may take that is not the host's; 0: nine tenths */
    double gpu_memory_utilization;
    int64_t swap_space; /* the host's bytes for preempted sequences; 0: none; -1: as is worth it */
    const char *device; /* NULL or "cpu"; "cuda"; "auto": a GPU that can be used, or the CPU */
    const char *cpu_path; /* NULL: the best; or a path's name, for tests */
    bool host_samples;    /* the device is not to sample, for tests */
    bool enforce_eager;   /* CUDA: no step runs as a graph */
    int max_graphs;       /* CUDA: that are kept, for tests; 0: as many as suit */
    /* called with 0..1 while something takes long; may be NULL */
    void (*progress)(void *arg, const char *what, double part);
    void *progress_arg;
};

struct engine;

/* Reads the model and plans all memory. Fails with STATUS_BAD_FILE (what is wrong with the file, by
 * key or tensor) or STATUS_USAGE (settings that cannot work, with what would). */
enum status engine_open(struct engine **out, const struct engine_config *config, struct err *err);
void engine_close(struct engine *engine);

/* Reads only the tokenizer of a model file; the caller frees it. */
enum status engine_open_tokenizer(struct tokenizer **out, const char *path, struct err *err);

/* What a model is, as read from its file. */
struct model_info {
    char name[128];          /* general.name or the file's name */
    char architecture[32];   /* "llama" */
    char quantisation[32];   /* the most frequent weight type, e.g. "q4_1" */
    int V, K, F, L, H, G, D; /* letters of kernels.h; K is the width of the residual stream */
    int D_rope;              /* leading dimensions of a head that RoPE turns */
    int context_length;      /* tokens the model was trained for */
    float rope_base, rms_epsilon;
    int64_t n_parameters;
    int64_t file_bytes; /* size of the file */
};

/* Memory by purpose, in bytes, and what it can hold. */
struct engine_memory {
    int64_t weights, kv_cache, scratch;
    int64_t kv_bytes_per_token;
    int n_blocks, block_size;
    int max_model_len; /* tokens of one sequence, prompt and output */
    /* On a GPU, and 0 on the CPU: */
    struct device_memory device; /* as it was before anything was taken */
    double share;                /* of it, that may be taken in all */
    int64_t sampling;            /* counts of tokens, [max_num_seqs][V], and results */
    int64_t steps; /* a step's arrays, and what attention works in: it grows with the cache */
    int64_t kept;  /* of the share, kept free for graphs and for what grows in service */
    int64_t swap;  /* the host's, for preempted sequences */
};

/* The next six: any thread; what they return lives as long as the engine. */
const struct model_info *engine_model(const struct engine *engine);
const struct engine_memory *engine_memory(const struct engine *engine);
const struct tokenizer *engine_tokenizer(const struct engine *engine);
/* NULL: the model has none */
const struct chat_template *engine_chat_template(const struct engine *engine);
/* "cpu avx512vnni, 2 threads"; with "auto", why it is that one */
const char *engine_backend_name(const struct engine *engine);
/* Compute threads that engine_parallel runs on, the caller's included: those of rank 0. */
int engine_threads(const struct engine *engine);

/* Milliseconds that it took to read the weights into the backend's layout. Any thread. */
double engine_weights_ms(const struct engine *engine);

/* Ids that end a generation, from the model's metadata and its end-of-turn tokens. Any thread. */
const int32_t *engine_end_ids(const struct engine *engine, int *n);

/* ---- running -------------------------------------------------------------------------------- */

/* Are passes computed by the host's own processor? Any thread. */
bool engine_on_host(const struct engine *engine);

/* How many passes may be submitted before the first one is waited for: 1..MAX_IN_FLIGHT. Any
 * thread. */
int engine_in_flight(const struct engine *engine);

/* Submits a forward pass, behind those that are in flight; passes run in their order, so that what
 * one writes to the cache the next one reads. It is launched at once where nothing hinders it;
 * otherwise, because its late tokens are not known or an earlier one's results are where its own
 * would go, by the engine_sampled that follows the earlier one's engine_wait. `step` and its arrays
 * are read when it is launched, and by then alone; `sampled` is the engine's to fill in. */
void engine_submit(struct engine *engine, const struct step *step);

/* Does the device sample? Then steps can be submitted with what is to be sampled from them, and
 * neither logits nor ids come to the host before the next step runs. Any thread. */
bool engine_samples(const struct engine *engine);

/* As engine_submit, with samples[n] behind the pass, n at most R + MAX_SHARED_SAMPLES; those of one
 * logit row stand together, and the first gives its late token. Such a pass is launched at once,
 * and `samples` is read by then. Those in flight are all of this kind or all of the other. */
void engine_submit_samples(struct engine *engine, const struct step *step,
                           const struct sample *samples, int n);

/* Waits for the oldest pass in flight and returns what came of its samples, [n]: valid until the
 * next but one is submitted. NULL where the device has failed. */
const struct sampled *engine_wait_samples(struct engine *engine);

/* Waits for the oldest pass in flight and returns the logits [R][V] of its logit rows: host memory
 * of the engine's that the caller may change, valid until the next engine_submit or
 * engine_sampled. NULL where the device has failed. */
float *engine_wait(struct engine *engine);

/* Says what was sampled from the logits that engine_wait has returned last, id[R], and launches the
 * pass behind it. Rows of which no late token is may have any id. Only needed where another pass
 * may be in flight. */
void engine_sampled(struct engine *engine, const int32_t *id);

/* Has the device failed? Then `err`, unless it is NULL, gets a sentence that says which call did,
 * with the code "device_failed". Nothing comes of any pass from then on: it may be submitted, and
 * has to be waited for, but does nothing. For the thread that submits. */
bool engine_failed(const struct engine *engine, struct err *err);

/* ---- swapping ------------------------------------------------------------------------------- */

/* The host's memory for blocks of the cache that give way to others: slots of a block each. For the
 * thread that submits; NULL where nothing is swapped. The functions are the swap ops of kernels.h:
 * all is in the order of the calls and of the passes that were launched. */
struct engine_swap;
struct engine_swap *engine_swap(struct engine *engine);

/* How many there are. */
int engine_swap_slots(const struct engine_swap *swap);
/* Has memory for slots 0..n-1; false when there is none. */
bool engine_swap_reserve(struct engine_swap *swap, int n);
/* Queues the copies of block[i] to slot[i]; passes that are launched later may write the blocks. */
void engine_swap_out(struct engine_swap *swap, const int32_t *block, const int32_t *slot, int n);
/* Queues the copies of slot[i] to block[i], which no pass may touch before engine_swap_arrive:
 * those that are launched after it find them there. */
void engine_swap_in(struct engine_swap *swap, const int32_t *slot, const int32_t *block, int n);
void engine_swap_arrive(struct engine_swap *swap);

/* ---- looking on ----------------------------------------------------------------------------- */

/* From now on the ops of every pass add their times to `times`, which is the caller's; NULL ends
 * that. For the thread that submits, while no pass is in flight. */
void engine_time_ops(struct engine *engine, struct op_times *times);

/* What the device can do at most, measured now: zeros where the host computes. For the same
 * thread. */
void engine_limits(struct engine *engine, struct device_limits *out);

/* Bytes of weights that a pass reads: those of the layers, and those of the head where rows want
 * logits. Any thread. */
void engine_weights_read(const struct engine *engine, int64_t *layers, int64_t *head);

/* Runs fn(arg, i) for i in [0, n) on the compute threads; for sampling many rows. */
void engine_parallel(struct engine *engine, void (*fn)(void *arg, int i), void *arg, int n);

/* ---- sampling ------------------------------------------------------------------------------- */

/* What is asked for and what comes out: struct sampling and struct sampled of kernels.h. The order
 * of operations is documented in sampling.c. */

/* Scratch of one sampling thread: tables of the vocabulary's size. `path` is the CPU path whose
 * vector units it uses (kernels.h), NULL for the best; no result depends on it. */
struct sampler;
struct sampler *sampler_new(int V, const char *path);
void sampler_free(struct sampler *sampler);

/* Chooses the token at absolute position `position` of a sequence from logits[V], which it may
 * change. history[n_prompt + n_output] are the tokens before it. The same inputs give the same
 * token and bits on every machine and thread. Draws come from Philox 4x32-10 (Salmon et al. 2011)
 * keyed by seed, at counter (position, choice). */
void sampler_sample(struct sampler *sampler, const struct sampling *sampling, float *logits,
                    const int32_t *history, int n_prompt, int n_output, int position, int choice,
                    struct sampled *out);

/* Logprobs of `id` and of the n best in logits[V], without choosing: prompt logprobs. */
void sampler_score(struct sampler *sampler, const float *logits, int32_t id, int n_top,
                   struct sampled *out);

/* ---- inspection ----------------------------------------------------------------------------- */

/* Prints what a model file holds: key-values, tensors, tokenizer, and the memory that serving it
 * will take with `config`'s settings (config->model names the file). */
enum status engine_inspect(const struct engine_config *config, FILE *out, struct err *err);

#endif
