/* engine: a model that is ready to run: its weights, the forward pass, the memory of the KV cache,
 * sampling.
 *
 * A `struct engine` owns the mapped file, the weights, the tokenizer, the chat template, the KV
 * cache and the backend. After engine_open one thread (the engine thread) uses it, except for
 * functions marked "any thread". It does not know requests: it gets a `struct step` and `struct
 * sample`s (kernels.h) and returns the tokens. The scheduler assigns the blocks of the cache.
 */
#ifndef PENSTOCK_ENGINE_H
#define PENSTOCK_ENGINE_H

#include <stdatomic.h>
#include <stdio.h>

#include "engine/config/config.h"
#include "engine/text/text.h"
#include "kernels/kernels.h"

/* ---- opening -------------------------------------------------------------------------------- */

struct engine;

/* Reads the model and allocates all memory. Fails with STATUS_BAD_FILE (naming the key or tensor at
 * fault) or STATUS_USAGE (naming the invalid setting and a valid one). */
enum status engine_open(struct engine **out, const struct engine_config *config, struct err *err);

/* Reads the model's config, tokenizer and template and plans the memory, as engine_open does first,
 * and loads no weights. Sets *memory to the plan, whose weights and scratch are estimates. Fails
 * like engine_open. */
enum status engine_check(struct engine_memory *memory, const struct engine_config *config,
                         struct err *err);
void engine_close(struct engine *engine);

/* Takes part in a model as a rank above 0, in a process of its own (config->peers): loads its shard
 * and runs the passes of rank 0's engine until rank 0 ends. Sets *code to rank 0's exit code. An
 * invalid setting or model is reported by rank 0. Fails if rank 0 or another rank is lost. */
enum status engine_follow(const struct engine_config *config, int *code, struct err *err);

/* Frees the weights, the cache, the scratch memory and the backend with its threads. Everything
 * that functions marked "any thread" return stays, and so do adapters. A pass must not be in
 * flight, nor be submitted before engine_load succeeds. For the engine thread. */
void engine_unload(struct engine *engine);

/* How engine_load reports and ends. */
struct engine_load_watch {
    void (*progress)(void *arg, const char *what, double part); /* as in struct engine_config */
    void *arg;
    const atomic_bool *gives_up; /* set by any thread: the load fails soon; NULL: never */
};

/* Loads the freed parts again, from the same files and into memory of the same sizes, so a
 * pass gives the same bytes as before. It takes as long as engine_open. Fails with
 * STATUS_UNAVAILABLE if a file of the model was replaced or written to since engine_open, if memory
 * is short, or with `gives_up`; nothing is loaded then, and a later call may succeed. For the
 * engine thread. */
enum status engine_load(struct engine *engine, const struct engine_load_watch *watch,
                        struct err *err);

/* Reads only the tokenizer of a model file; the caller frees it. */
enum status engine_open_tokenizer(struct tokenizer **out, const char *path, struct err *err);

/* Writes the model `in` to the GGUF file `out` with quantised matrices. For a GGUF file, keys and
 * the order of tensors are kept; for a folder, shape, tokenizer and templates are converted. The
 * output gets its name only when it is complete. Fails with STATUS_USAGE if `out` exists, if `in`
 * has nothing to quantise, or if a GGUF file cannot express the folder; with STATUS_BAD_FILE if a
 * file cannot be read or written. */
struct quantise_job {
    const char *in, *out;
    enum quantization type;
    int threads;                                                /* 0: chosen automatically */
    void (*progress)(void *arg, const char *what, double part); /* or NULL */
    void *progress_arg;
    int64_t bytes_in, bytes_out; /* sizes of the files; set by the call */
};
enum status engine_quantise(struct quantise_job *job, struct err *err);

/* The next eight may be called by any thread. Their results live as long as the engine. */
const struct model_config *engine_model(const struct engine *engine);
const struct engine_memory *engine_memory(const struct engine *engine);
const struct tokenizer *engine_tokenizer(const struct engine *engine);
/* Some models have a separate template for requests with tools. NULL: the model lacks a template */
const struct chat_template *engine_chat_template(const struct engine *engine, bool with_tools);
const struct sampling_defaults *engine_sampling_defaults(const struct engine *engine);
const struct pooling *engine_pooling(const struct engine *engine);
/* NULL: the model has no head that classifies */
const struct classifier *engine_classifier(const struct engine *engine);
/* Computes a head for n inputs on the calling thread. Returns its outputs, which the caller frees
 * with mem_free. Any thread. */
double *head_run(const struct head *head, const double *in, int n);
/* The name of the type of the KV cache: "float16". Any thread. */
const char *engine_kv_dtype(const struct engine *engine);
/* "cpu avx512vnni, 2 threads"; with "auto", also the reason for the choice */
const char *engine_backend_name(const struct engine *engine);
/* The number of compute threads of engine_parallel, the caller included: those of rank 0. */
int engine_threads(const struct engine *engine);

/* Milliseconds spent on reading the weights into the backend's layout. Any thread. */
double engine_weights_ms(const struct engine *engine);

/* The ids that end a generation, from the model's metadata and its end-of-turn tokens. Any
 * thread. */
const int32_t *engine_end_ids(const struct engine *engine, int *n);

/* ---- running -------------------------------------------------------------------------------- */

/* Do passes run on the host's processor? Any thread. */
bool engine_on_host(const struct engine *engine);

/* The number of passes that may be submitted before the first one is waited for: 1..MAX_IN_FLIGHT,
 * and 1 if the host samples. Any thread. */
int engine_in_flight(const struct engine *engine);

/* The number of rows that products compute at once: a pass with fewer rows takes about as long. Any
 * thread. */
int engine_row_quantum(const struct engine *engine);

/* The maximum rows of a pass, and the maximum rows with logits. Any thread. */
int engine_max_rows(const struct engine *engine);
int engine_max_logit_rows(const struct engine *engine);

/* Submits a forward pass. Passes run in order, so each reads what earlier ones wrote to the cache.
 * `step` and its arrays are read before this returns. The engine fills in `sampled` and `sampler`.
 * On the host, the pass is complete on return. */
void engine_submit(struct engine *engine, const struct step *step);

/* Submits the sampling of the newest pass: samples[n], n at most R + MAX_SHARED_SAMPLES. The
 * samples of one logit row are adjacent, and the first gives the row's pending token. Call it once
 * per pass, before the next pass is submitted; n may be 0. If the step named its samples, these
 * must be the same; otherwise they may be determined between the two calls. The samples and the
 * data they point to are read before this returns; on the host, the results are complete then. */
void engine_sample(struct engine *engine, const struct sample *samples, int n);

/* Waits for the oldest pass in flight and returns the results of its samples in their order, valid
 * until the next engine_sample. Returns NULL if the device has failed. */
const struct sampled *engine_wait(struct engine *engine);

/* Returns the hidden vector of the i-th of the step's n_hidden last rows, [engine_hidden_size], in
 * the pass that engine_wait returned last: the output of the last norm. It is valid until the next
 * engine_submit. */
const float *engine_hidden(const struct engine *engine, int i);
/* The numbers of a hidden vector. Any thread. */
int engine_hidden_size(const struct engine *engine);

/* Replaces engine_sample and engine_wait for tools and tests. Waits for the only pass in flight and
 * returns the logits [R][V] of its logit rows: host memory of the engine, which the caller may
 * change, valid until the next engine_submit. Returns NULL if the device has failed. */
float *engine_read_logits(struct engine *engine);

/* Has the device failed? If so, `err` (unless NULL) names the failed call, with the code
 * "device_failed". Later passes do nothing: they may be submitted and must be waited for. For the
 * engine thread. */
bool engine_failed(const struct engine *engine, struct err *err);

/* ---- parts of the cache as bytes ------------------------------------------------------------- */

/* Can the parts of the cache be copied? They cannot on a device or with several ranks. Any
 * thread. */
bool engine_has_parts(const struct engine *engine);
/* The bytes of a block, a window block or a state; 0 if the cache lacks such parts. The engine must
 * have parts. Any thread. */
size_t engine_part_bytes(const struct engine *engine, enum cache_part part);
/* Copy part number `i` out of the cache and into it, engine_part_bytes. No pass that uses it may be
 * in flight. For the engine thread. */
void engine_part_get(const struct engine *engine, enum cache_part part, int i, void *out);
void engine_part_put(struct engine *engine, enum cache_part part, int i, const void *in);

/* ---- swapping ------------------------------------------------------------------------------- */

/* Host memory for preempted blocks of the cache; a host block holds one block. The functions are
 * those of struct swap_ops (kernels/memory.h): copies are queued in the order of these calls and of
 * the submitted passes. For the engine thread. */

/* The number of host blocks of one kind. If it is 0, the cache does not swap blocks of that kind,
 * and the other functions must not be called for it. */
int engine_host_blocks(const struct engine *engine, enum block_kind kind);
/* Allocates host blocks 0..n-1 of one kind. Returns false if memory is short. */
bool engine_swap_reserve(struct engine *engine, enum block_kind kind, int n);
/* Queues the copy of block[i] to host_block[i]. Passes submitted later may write the blocks. */
void engine_swap_out(struct engine *engine, enum block_kind kind, const int32_t *block,
                     const int32_t *host_block, int n);
/* Queues the copy of host_block[i] to block[i]. No pass may use these blocks until
 * engine_swap_arrive; passes submitted after it see the copies. */
void engine_swap_in(struct engine *engine, enum block_kind kind, const int32_t *host_block,
                    const int32_t *block, int n);
void engine_swap_arrive(struct engine *engine);

/* ---- adapters ------------------------------------------------------------------------------- */

/* Rows of a step may each use an adapter (struct step). Loading and unloading are for one thread at
 * a time, which may be another than the engine thread. A number belongs to an adapter from its load
 * to its unload; the caller unloads it when no sequence can use it in a step any more. */

/* The most adapters in memory at once; 0: adapters are off. Any thread. */
int engine_max_adapters(const struct engine *engine);

/* What an adapter is. */
struct adapter_facts {
    int rank;      /* the largest of its ranks */
    int n_changed; /* matrices that it changes */
    int64_t bytes; /* its memory */
};

/* Loads the adapter at `path`, a folder of PEFT or a GGUF file. Sets *number to 1..max_adapters.
 * Fails with STATUS_BAD_FILE if it is broken, was made for another model or needs an unsupported
 * feature, and with STATUS_USAGE if there is no room for it; the message names tensor, key or
 * setting. */
enum status engine_adapter_load(struct engine *engine, const char *path, int *number,
                                struct adapter_facts *facts, struct err *err);
void engine_adapter_unload(struct engine *engine, int number);

/* ---- statistics ----------------------------------------------------------------------------- */

/* Is a rank lost that is another process? Later passes give undefined results, and engine_failed
 * describes the loss. Any thread. */
bool engine_lost(const struct engine *engine);

/* Starts timing: the ops of every pass add their times to `times`, which the caller owns. NULL
 * stops timing. For the engine thread, while no pass is in flight. */
void engine_time_ops(struct engine *engine, struct op_times *times);

/* The number of passes that a GPU ran as one cooperative grid (persistent_step). For the engine
 * thread. */
uint64_t engine_one_grid_steps(const struct engine *engine);

/* Measures the device's peak rates; zeros if the host computes. For the engine thread. */
void engine_limits(struct engine *engine, struct device_limits *out);

/* The bytes of weights that a pass over `rows` rows reads: of the layers, counting the experts that
 * randomly routed rows are expected to use, and of the head if rows want logits. Any thread. */
void engine_weights_read(const struct engine *engine, int rows, int64_t *layers, int64_t *head);

/* Runs fn(arg, i) for i in [0, n) on the compute threads; for `penstock bench`. */
void engine_parallel(struct engine *engine, void (*fn)(void *arg, int i), void *arg, int n);

/* ---- inspection ----------------------------------------------------------------------------- */

/* The parts that inspection shows on request. */
struct inspected {
    bool tensors; /* each tensor */
    bool program; /* each op of the forward pass on a single rank */
};

/* Prints a model file: a summary of the model, its tokenizer and the memory for serving it with
 * `config`'s settings (config->model names the file); then the key-values. */
enum status engine_inspect(const struct engine_config *config, struct inspected shown, FILE *out,
                           struct err *err);

#endif
