/* kernels: the arithmetic of a forward pass, over one op table with a backend behind it.
 *
 * A `struct backend` is one device: its threads or streams, its scratch, its functions. A `struct
 * matrix` is a weight in the layout that the backend likes; a `struct kv_cache` is the paged
 * key-value memory in the backend's layout. The model's forward pass is written once over `struct
 * backend_ops`; the plain C functions are the oracle of the fast ones. One thread (the engine's)
 * calls the ops of a backend, in order; a backend spreads the work.
 *
 * The same bytes. Each output row is computed by the same operations in the same order whatever M,
 * the split over threads, or the instruction set is: the file is built with -ffp-contract=off, fma
 * is written where it is meant, and kernels/cpu/order.md holds the one written order. So a token's
 * logits do not depend on what else is in the batch. The CUDA backend promises the same of its own
 * bits, unless it is opened with `free_order`; docs/cuda.md says how.
 *
 * Letters for shapes, here and in all code above:
 *   M rows of a step (tokens)     K inputs of a matrix           N outputs of a matrix
 *   H query heads                 G key-value heads (H % G == 0) D size of a head
 *   V vocabulary                  F hidden size of the MLP       L layers
 *   S sequences of a step         R rows that want logits        B slots of a KV block
 */
#ifndef PENSTOCK_KERNELS_H
#define PENSTOCK_KERNELS_H

#include <string.h>

#include "config/config.h"

/* ---- types ---------------------------------------------------------------------------------- */

/* The numbers are GGUF's tensor type numbers, so that a file's type needs no translation. */
enum dtype {
    DTYPE_F32 = 0,
    DTYPE_F16 = 1,
    DTYPE_Q4_0 = 2,
    DTYPE_Q4_1 = 3,
    DTYPE_Q5_0 = 6,
    DTYPE_Q5_1 = 7,
    DTYPE_Q8_0 = 8,
    DTYPE_Q4_K = 12,
    DTYPE_Q5_K = 13,
    DTYPE_Q6_K = 14,
    DTYPE_I16 = 25, /* only in a key-value cache */
    DTYPE_BF16 = 30,
    DTYPE_E4M3 = 1024, /* only in a key-value cache; no number of GGUF's */
};

/* A type's name ("q4_1"), or NULL for a number that is no type of ours. */
const char *dtype_name(int dtype);

/* Elements in one block of a type (1, 32 or 256), and bytes of that block; 0 for an unknown
 * number. */
int dtype_block_elements(int dtype);
int dtype_block_bytes(int dtype);

/* Bytes of `n` elements (a whole number of blocks) in a type. */
size_t dtype_bytes(enum dtype dtype, size_t n);

/* Turns n elements (a whole number of blocks) of GGUF data into float32. The reading of each format
 * is here and nowhere else; the layouts follow the GGUF specification. */
void dequantise(enum dtype dtype, const void *data, float *out, size_t n);

/* IEEE half precision to float32 and back (round to nearest even), exact on every machine. */
float half_to_float(uint16_t half);
uint16_t float_to_half(float value);

/* ---- random weights ------------------------------------------------------------------------- */

/* How the rows of a matrix are made of nothing, the same on every device and thread: pieces of 8
 * weights, or in a type with blocks of 8 bytes, each from the seed and its number. */
struct random_weights {
    enum dtype type;
    uint64_t seed;
    int piece_bytes;
    float unit;           /* a float weight is -127..127 times this power of two */
    int block_bytes;      /* of a type with blocks: its bytes are random, but for */
    int scale_at, min_at; /* where a block has its scale and minimum; -1: none */
    uint16_t scale, min;  /* which are these, in half precision */
};

/* Plans rows of K weights of a type: they have such a size that products of activations of size 1
 * have about size 1. */
void random_weights_plan(struct random_weights *out, enum dtype type, int K, uint64_t seed);

/* Makes bytes from .. to of the matrix that begins at `data`; `from` is a multiple of
 * piece_bytes. */
void random_weights_fill(const struct random_weights *w, void *data, size_t from, size_t to);

/* ---- one step's rows ------------------------------------------------------------------------ */

/* What one forward pass works on. All arrays but `sampled` are host memory of the caller's. On the
 * CPU they stay unchanged until the pass has ended, elsewhere until step_begin has returned. Rows
 * of one sequence stand together, in the order of their positions.
 *
 * A row's token may be one that the step before samples, and that the host does not know yet: then
 * its id is late_token(r), and the device finds it at sampled[r]. */
struct step {
    int M;                /* rows */
    const int32_t *token; /* [M] token ids, or late ones */
    int n_late;           /* rows whose token is late */
    /* device memory: what logit row r of the step before came to; NULL where none is late */
    const int32_t *sampled;
    /* [M] position in its sequence, from 0; the row attends to 0..position */
    const int32_t *position;
    const int32_t *slot;      /* [M] where its key and value go: block * B + offset */
    int S;                    /* sequences */
    const int32_t *row_start; /* [S + 1] first row of each sequence; row_start[S] == M */
    /* [S][table_stride] block table: table[i] holds positions i*B .. i*B+B-1 */
    const int32_t *table;
    int table_stride;
    int R;                    /* rows that want logits */
    const int32_t *logit_row; /* [R] their numbers, ascending */
    int n_copies;             /* KV blocks to copy before anything else (copy on write) */
    const int32_t *copy_from; /* [n_copies] */
    const int32_t *copy_to;   /* [n_copies] */
};

/* The id of a row whose token logit row r of the step before gives; it is below 0. Applied to such
 * an id it gives r. */
static inline int32_t late_token(int32_t r) {
    return -1 - r;
}

/* ---- the backend ---------------------------------------------------------------------------- */

struct matrix;
struct kv_cache;
struct kv_swap;
struct device_sampler;
struct sample;
struct sampled;
struct backend;
struct device_limits;

/* What a backend keeps a matrix in. */
enum matrix_form {
    MATRIX_AS_FILED, /* the file's type, or the nearest that the backend multiplies */
    MATRIX_FLOAT32,  /* the oracle mode */
    /* F32, F16 and BF16 quantised to e4m3 with a scale a row, other types as filed; CUDA only */
    MATRIX_FP8,
};

/* How the two numbers of a pair that RoPE turns are laid out in a head. */
enum rope_layout {
    /* (0,1), (2,3), ... : GGUF's llama files, whose query and key rows were permuted for it */
    ROPE_ADJACENT,
    ROPE_HALVES, /* (0,D/2), (1,D/2+1), ... : GPT-NeoX order: qwen2, gemma, ... */
};

/* How heads are turned by their positions (Su et al. 2021): a pair by position * inv_freq[pair]. */
struct rope {
    int D_rope;            /* leading numbers of a head that are turned; even; 0: none */
    const float *inv_freq; /* [D_rope / 2] */
    enum rope_layout layout;
};

/* What rows go through on their way into a product: x / sqrt(mean(x^2) + epsilon) * gain[K] (Zhang
 * and Sennrich 2019). Where an op takes NULL for it, nothing. */
struct norm {
    const float *gain; /* device memory */
    float epsilon;
};

struct kv_config {
    int L, G, D;      /* layers, key-value heads, size of a head */
    int n_blocks;     /* blocks of every layer */
    int block_size;   /* B; even for DTYPE_I16 and DTYPE_Q8_0 */
    enum dtype dtype; /* F32, F16, and on the CPU I16 or Q8_0, on CUDA BF16 or E4M3 */
};

/* I16 and Q8_0 keep integer codes of 16 or 8 bits and a scale for each 64 numbers of a head, so
 * that attention multiplies integers: at the size of float16, and of half of it, and faster.
 * E4M3 keeps floats of 8 bits and a scale for the keys, and one for the values, of each head in a
 * block. */

/* Bytes that the keys and values of one token take in all layers of such a cache, rounded up; 0 for
 * a type that no cache has or a size beyond memory. On CUDA floats may take less. */
size_t kv_token_bytes(const struct kv_config *config);

/* Memory of a device, in bytes. */
struct device_memory {
    size_t total, free;
};

/* Says in one sentence that the device has no room for `bytes` of `what`, and what would help
 * (`way_out`: "lower --max-num-seqs"). Returns STATUS_USAGE. */
enum status no_room(struct err *err, const char *param, const char *what, size_t bytes,
                    const struct device_memory *memory, const char *way_out);

/* The ops. Pointers x, y, q, k, v are device memory from buffer_new, row-major, without padding, of
 * the backend's type of activations: float32 on the CPU, and no wider than that elsewhere. Gains,
 * frequencies and logits are float32 everywhere. All ops of a CPU backend have ended when they
 * return; those of a CUDA backend are queued, and download waits for them. None of them reports a
 * failure: what can be wrong is checked when a matrix or a cache is made, and that a device breaks
 * is found by asking (`failed`). y may not overlap x unless said. */
struct backend_ops {
    /* What the device has; NULL where buffers are the host's memory. */
    void (*memory)(struct backend *b, struct device_memory *out);
    /* Buffers of the device, 64-byte aligned, zeroed. NULL when a device has no room; on the CPU
     * that ends the process. */
    void *(*buffer_new)(struct backend *b, size_t bytes);
    void (*buffer_free)(struct backend *b, void *buffer, size_t bytes);

    /* Takes a matrix of N rows of K (GGUF rows of `type`, at `rows`, unchanged after the call) into
     * the backend's layout, in the form asked for. K must be a whole number of blocks. Fails with
     * STATUS_BAD_FILE or, for a form that the backend has not or no room, STATUS_USAGE. */
    enum status (*matrix_new)(struct backend *b, struct matrix **out, enum dtype type, int N, int K,
                              const void *rows, enum matrix_form form, struct err *err);
    /* As matrix_new, of random weights in place of a file's, made where the matrix is to lie: those
     * that random_weights_plan describes. */
    enum status (*matrix_random)(struct backend *b, struct matrix **out, enum dtype type, int N,
                                 int K, uint64_t seed, enum matrix_form form, struct err *err);
    void (*matrix_free)(struct backend *b, struct matrix *matrix);
    size_t (*matrix_bytes)(const struct matrix *matrix);

    /* Bytes of the device that kv_new takes, all that steps over such a cache work in included; it
     * grows with n_blocks. NULL on the CPU. */
    size_t (*kv_bytes)(struct backend *b, const struct kv_config *config);
    enum status (*kv_new)(struct backend *b, struct kv_cache **out, const struct kv_config *config,
                          struct err *err);
    void (*kv_free)(struct backend *b, struct kv_cache *cache);

    /* Bytes of the device that swap_new takes, at most. */
    size_t (*swap_bytes)(struct backend *b, const struct kv_config *config);
    /* A place in the host's memory for blocks of a cache, which give way to others and come back;
     * these are NULL on the CPU. It has slots for as many blocks as `bytes` hold, at least one, and
     * takes their memory when they are wanted. Copies run beside the steps; all is in the order of
     * the calls, as if each had ended before the next. Fails with STATUS_USAGE where there is no
     * room for what copies pass through. */
    enum status (*swap_new)(struct backend *b, struct kv_swap **out, struct kv_cache *cache,
                            int64_t bytes, int *n_slots, struct err *err);
    void (*swap_free)(struct backend *b, struct kv_swap *swap); /* before its cache */
    /* Has memory for slots 0..n-1; false when there is none. */
    bool (*swap_reserve)(struct backend *b, struct kv_swap *swap, int n);
    /* Queues the copy of block[i] to slot[i], for n of them, as the steps that were begun leave
     * them. Later ones may write the blocks at once. The lists are read before this returns. */
    void (*swap_out)(struct backend *b, struct kv_swap *swap, const int32_t *block,
                     const int32_t *slot, int n);
    /* Queues the copy of slot[i] to block[i], which no step may touch until swap_arrive; the slots
     * may be given to others at once. */
    void (*swap_in)(struct backend *b, struct kv_swap *swap, const int32_t *slot,
                    const int32_t *block, int n);
    /* Steps that are begun from now on see what swap_in has brought. */
    void (*swap_arrive)(struct backend *b, struct kv_swap *swap);
    /* Does what forward(arg, step) does, which calls step_begin and the ops of one pass; NULL where
     * that would be all. A device may queue the same work without calling it, from what it has
     * recorded, or may call it with a copy of the step that has more rows, of M, S and R alike,
     * than the step's arrays have: those rows' results belong to nobody. So which ops `forward`
     * calls, and with what, must depend on nothing but M, S, R and the step's pointers. */
    void (*run)(struct backend *b, const struct step *step, struct kv_cache *cache,
                void (*forward)(void *arg, const struct step *step), void *arg);
    /* Declares the step that the following calls belong to, and does its block copies in
     * `cache`. */
    void (*step_begin)(struct backend *b, const struct step *step, struct kv_cache *cache);

    /* y[M][K] = rows token[0..M) of the embedding matrix [V][K], dequantised; late tokens are read
     * from the step's `sampled`. */
    void (*embed)(struct backend *b, float *y, const struct matrix *embedding);
    /* y[i][M][N_i] = norm(x[M][K]) times w[i]^T for n matrices of the same K. */
    void (*matmul)(struct backend *b, float *const *y, const float *x, const struct norm *norm,
                   struct matrix *const *w, int n, int M);
    /* sum[M][N] += x[M][K] times w^T. */
    void (*matmul_add)(struct backend *b, float *sum, const float *x, struct matrix *w, int M);
    /* sum[M][K] += (silu(n times gate^T) * (n times up^T)) times down^T, where n = norm(x[M][K]),
     * gate and up are [F][K] and down is [K][F] (Shazeer 2020). sum may be x. */
    void (*gated_mlp)(struct backend *b, float *sum, const float *x, const struct norm *norm,
                      struct matrix *gate, struct matrix *up, struct matrix *down, int M);
    /* Of a backend in a group: x[M][K] of every rank = that of rank 0, + part[M][K] of rank 1, +
     * that of rank 2 and so on, in this order whatever M is; part, which is not looked at on rank
     * 0, is zero afterwards. All ranks call it with the same M and K, each on its thread. */
    void (*all_reduce)(struct backend *b, float *x, float *part, int M, int K);
    /* y[R][N] = norm(x[R][K]) times head^T, in float32: the logits. */
    void (*logits)(struct backend *b, float *y, const float *x, const struct norm *norm,
                   struct matrix *head, int R);
    /* Turns q[M][H][D] in place and k[M][G][D], and puts k and v[M][G][D] into the step's slots of
     * one layer. k is left turned or as it was. */
    void (*rope_write)(struct backend *b, struct kv_cache *cache, int layer,
                       const struct rope *rope, int H, float *q, float *k, const float *v);
    /* y[M][H][D] = softmax(scale * q . keys) . values for each row over positions 0..position of
     * its sequence in one layer (grouped queries: head h reads key-value head h * G / H). */
    void (*attention)(struct backend *b, float *y, const float *q, const struct kv_cache *cache,
                      int layer, int H, float scale);
    /* y[R][K] = rows logit_row[0..R) of x[M][K]. */
    void (*gather)(struct backend *b, float *y, const float *x, int K);
    /* What the device samples rows of V logits with: these three are NULL on the CPU, where the
     * host samples. It has memory for the tokens of `sequences` sequences that have penalties, and
     * for `most` samples at once; NULL when there is no room. */
    struct device_sampler *(*sampler_new)(struct backend *b, int V, int sequences, int most);
    void (*sampler_free)(struct backend *b, struct device_sampler *sampler);
    /* results[n] = what comes of samples[n], from logits[R][V], which are as before when it has
     * ended; ids[r] = the token of the first sample of row r. Samples of one row stand together.
     * The samples, and what they point to, are read before this returns. */
    void (*sample)(struct backend *b, struct device_sampler *sampler, float *logits,
                   const struct sample *samples, int n, int32_t *ids, struct sampled *results);
    /* Device memory from host memory; has ended when it returns. */
    void (*upload)(struct backend *b, void *device, const void *host, size_t bytes);
    /* Host memory from device memory; waits for what was asked before. */
    void (*download)(struct backend *b, void *host, const void *device, size_t bytes);
    /* Host memory that copies run from and to without the host's help. NULL when a device's driver
     * cannot have it; on the CPU that ends the process. */
    void *(*host_new)(struct backend *b, size_t bytes);
    void (*host_free)(struct backend *b, void *host, size_t bytes);
    /* Queues a copy to memory from host_new, and behind it a mark: 0..MAX_IN_FLIGHT-1. Without
     * bytes only the mark. */
    void (*fetch)(struct backend *b, int mark, void *host, const void *device, size_t bytes);
    /* Waits until all that was queued before the mark was set last has ended, and no longer. */
    void (*await)(struct backend *b, int mark);
    /* Has the device failed? Then it says in `err`, unless that is NULL, which call did, and from
     * that call on ops have done nothing: what they were to fill is as it was. Ask after `await`.
     * It stays so. NULL on the CPU. */
    bool (*failed)(struct backend *b, struct err *err);
    /* Runs fn(arg, i) for i in [0, n) on the backend's threads and returns when all are done; for
     * the host's own row work such as sampling. fn may run on any thread, in any order. */
    void (*parallel)(struct backend *b, void (*fn)(void *arg, int i), void *arg, int n);
    void (*close)(struct backend *b); /* what backend_close does */
    /* The next three are NULL where ops have ended when they return, and the host's clock will do.
     * Sets stamp i, 0..N_STAMPS-1, which passes when all that was queued before it has ended. */
    void (*stamp)(struct backend *b, int i);
    /* Nanoseconds from one stamp to another: waits until that has passed. */
    uint64_t (*stamped_ns)(struct backend *b, int from, int to);
    /* Measures what the device can do at most, in some 100 ms. */
    void (*limits)(struct backend *b, struct device_limits *out);
};

enum { N_STAMPS = 2048 };
struct device_limits {
    double bytes_per_s; /* of a copy within the device's memory, read and written; 0: not known */
    double flops_per_s; /* of a large product in bfloat16 by the vendor's library; 0: not known */
};

/* How a profiler is told what runs: ranges that lie within one another, of one thread. */
struct range_ops {
    void (*push)(const char *name);
    void (*pop)(void);
};

enum { MAX_IN_FLIGHT = 2 }; /* the most steps that have been submitted and not been waited for */

/* The head of every backend; a backend's own struct begins with it. */
struct backend {
    const struct backend_ops *ops;
    const char *name; /* "cpu", "cuda" */
    const char *path; /* instruction set in use: "plain", "avx2", "avx512vnni", "sm_90", ... */
    int n_threads;    /* compute threads, the caller's included; of this rank alone */
    bool host_memory; /* buffers are the host's own memory: what is in them needs no download */
    int in_flight;    /* steps that it is good to have in flight: 1 where they run on the host */
    const struct range_ops *ranges;  /* NULL: no profiler looks */
    const struct backend_ops *timed; /* while ops are watched: the backend's own table */
    struct op_times *times;          /* where the times go, or NULL: only ranges are made */
};

struct backend_config {
    int threads; /* 0: as many as the process's affinity mask and cgroup quota allow */
    /* NULL: the best of this machine, or what PENSTOCK_CPU says; or a name to force */
    const char *path;
    int max_rows;           /* the largest M of any call: scratch is planned for it */
    int max_k;              /* the largest K of any matrix */
    enum dtype activations; /* CUDA: DTYPE_F32 (the oracle mode), DTYPE_F16 or DTYPE_BF16 */
    /* CUDA: what the memory for steps and the plan of attention are made for */
    int max_seqs;    /* the largest S */
    int max_context; /* positions of a sequence are below this */
    int heads;       /* H of all calls of attention */
    /* Steps of at most so many rows, one for each sequence, run as CUDA graphs; 0: none. At most
     * the other limits, and the rows that activations and logits have room for. */
    int graph_rows;
    int graphs;               /* that are kept; 0: as many as suit */
    struct rank_group *group; /* NULL: the backend computes alone */
    int rank;                 /* in the group; on CUDA the number of its device too */
    /* CUDA: products of float weights may be a library's, which sums in an order of its own */
    bool free_order;
};

/* Backends that compute one model together (tensor parallelism: Shoeybi et al. 2019): each rank has
 * a shard of the model, and a thread that calls its backend. The head of what a kind of backend has
 * for that. */
struct rank_group {
    int ranks;
    void (*close)(struct rank_group *group);
};

enum { MAX_RANKS = 64 };

/* A group of so many backends of the CPU, or of as many GPUs. The latter fails with STATUS_USAGE
 * where there are fewer, or no NCCL to load, and says so. */
struct rank_group *rank_group_cpu_new(int ranks);
enum status rank_group_cuda_new(struct rank_group **out, int ranks, struct err *err);
/* After its backends were closed; NULL does nothing. */
void rank_group_close(struct rank_group *group);

/* Opens the CPU backend and starts its threads. Fails with STATUS_USAGE when a forced path is
 * unknown or this machine lacks it. The caller's thread is one of the compute threads. Close it on
 * the thread that opened it, after its matrices and caches were freed; closing NULL does
 * nothing. */
enum status backend_cpu_open(struct backend **out, const struct backend_config *config,
                             struct err *err);
void backend_close(struct backend *b);

/* Opens the CUDA backend on the device of config->rank; `threads` are for the host's own work, and
 * `path` is not looked at. Fails with STATUS_USAGE where there is no device that it can use, or
 * where the program was built without the CUDA toolkit, and says so. */
enum status backend_cuda_open(struct backend **out, const struct backend_config *config,
                              struct err *err);

/* Is there a GPU that the CUDA backend can use? Its memory goes to *memory, its name to
 * name[size]. Fails as backend_cuda_open does. */
enum status backend_cuda_find(struct device_memory *memory, char *name, size_t size,
                              struct err *err);

/* Names of the CPU paths that this machine can run, best first, NULL-terminated; "plain" is always
 * the last. */
const char *const *backend_cpu_paths(void);

/* ---- sampling ------------------------------------------------------------------------------- */

#define MAX_TOP_LOGPROBS 20
#define MAX_STOP_IDS 64
#define MAX_LOGIT_BIAS 1024
#define MAX_SHARED_SAMPLES 127 /* of a step, beyond one for each logit row */

struct logit_bias {
    int32_t id;
    float bias;
};

/* How one sequence's next token is chosen. The order of operations is documented in
 * engine/sampling.c. */
struct sampling {
    float temperature;                         /* 0: greedy */
    float top_p, min_p;                        /* 1 and 0: off */
    int top_k;                                 /* 0: off */
    float presence_penalty, frequency_penalty; /* over generated tokens; 0: off */
    float repetition_penalty;                  /* over prompt and generated tokens; 1: off */
    uint64_t seed;
    /* -1: none; 0..MAX_TOP_LOGPROBS: the chosen token's and that many best */
    int n_logprobs;
    int n_bias;
    const struct logit_bias *bias; /* [n_bias], the request's */
    int n_banned;                  /* ids that may not be chosen (end tokens before min_tokens) */
    const int32_t *banned;
};

static inline bool sampling_has_penalties(const struct sampling *s) {
    return s->presence_penalty != 0 || s->frequency_penalty != 0 || s->repetition_penalty != 1;
}

struct token_logprob {
    int32_t id;
    float logprob;
};

struct sampled {
    int32_t id;
    /* of the chosen token in the model's own distribution (before temperature) */
    float logprob;
    /* of the chosen token, 1 is the best; 0 when logprobs were not asked for */
    int rank;
    int n_top;
    struct token_logprob top[MAX_TOP_LOGPROBS]; /* best first, ties by lower id */
};

/* One token to be chosen on the device, or one to be scored, from a row of logits.
 *
 * Penalties want to know the tokens before it. The device counts those that it chooses, so where it
 * chose the last one, that need not be known to the host. It counts for a sequence as long as each
 * of its samples is the next one; whenever it is not, `history` is read whole. */
struct sample {
    int row;                         /* of the logits */
    const struct sampling *sampling; /* NULL: `scored` gets a logprob, with the n_top best */
    int32_t scored;
    int n_top;
    int position, choice;   /* Philox's counter */
    const int32_t *history; /* [n_prompt + n_output] */
    int n_prompt, n_output;
    uint64_t sequence; /* a number that no other one has; it may choose from one row at a time */
    bool shared;       /* other samples may read the row: the token is not counted */
    /* the last token of the history is not known: it was counted on the device */
    bool late;
};

/* ---- rows of logits ------------------------------------------------------------------------- */

/* What sampling reads a row of logits with, on the calling thread. All CPU paths give the same
 * bits. A NaN is never the largest, above a bound, or collected. */
struct logit_ops {
    /* Returns the largest of x[n], -inf when there is none, and in maxima[logit_maxima(n)] that of
     * each of 16 columns in each block of 256: maxima[16 * b + i] is the largest of x[256 * b + i],
     * x[256 * b + 16 + i], ... */
    float (*maxima)(float *maxima, const float *x, int n);
    /* How many of x[n] are above the bound. */
    int (*count_above)(const float *x, int n, float bound);
    /* The first of x[n] that are at least the bound, at most `most` of them, in the order of their
     * ids; returns how many. `maxima` are those of x. */
    int (*collect)(float *value, int32_t *id, int most, const float *x, int n, const float *maxima,
                   float bound);
    /* weight[n] = exp((x - max) * inverse), where no x is above max; returns the sum of their
     * shares. weight may be x. */
    uint64_t (*weights)(float *weight, const float *x, int n, float max, float inverse);
    /* sum[16] = the sums of the shares of 16 runs of 256 weights, one run behind the other. */
    void (*run_sums)(uint64_t *sum, const float *weight);
};

enum { LOGIT_BLOCK = 256, LOGIT_RUNS = 16, MAX_VOCABULARY = 1 << 19 };

/* A weight, at most 1, as a number of units of 2^-44, rounded to nearest, ties to even. Sums of
 * shares are integers: exact, so the same in whatever order a device takes them, and below 2^64
 * for a whole vocabulary. (The last bit of a double between 256 and 512 is 2^-44.) */
#define SHARE_UNIT 0x1p-44
#define SHARE_ROUND 0x1p8
#define SHARE_ROUND_BITS 0x4070000000000000u
static inline uint64_t weight_share(float weight) {
    double rounded = (double)weight + SHARE_ROUND;
    uint64_t bits;
    memcpy(&bits, &rounded, sizeof bits);
    return bits - SHARE_ROUND_BITS;
}

/* How many maxima a row of n has: 16 a block. */
static inline size_t logit_maxima(int n) {
    return ((size_t)n + LOGIT_BLOCK - 1) / LOGIT_BLOCK * 16;
}

/* Those of the path `name`. NULL: of the best of this machine, or of what PENSTOCK_CPU says. A path
 * that it cannot run: of the plain one. */
const struct logit_ops *backend_cpu_logit_ops(const char *name);

/* ---- where the time goes -------------------------------------------------------------------- */

enum op {
    OP_EMBED,
    OP_MATMUL,
    OP_ROPE_WRITE,
    OP_ATTENTION,
    OP_MATMUL_ADD,
    OP_GATED_MLP,
    OP_ALL_REDUCE,
    OP_GATHER,
    OP_LOGITS,
    OP_SAMPLE, /* on the device */
    OP_DOWNLOAD,
    OP_STEP_BEGIN, /* a step's arrays go over, and its blocks are copied */
    OP_BETWEEN,    /* nothing was queued: from a step's end to the next one's begin */
    OP_STEP,       /* all of a step: where only steps are timed */
    N_OPS,
};

/* "matmul" and so on. */
const char *op_name(enum op op);

/* Summed over the calls since timing began. Begins as zeros, but for only_steps.
 *
 * Where ops only queue work, stamps are set behind them, and what passes between two stamps is the
 * time of the op between them; they are read when there is no room for more, or at the end. So the
 * host waits for nothing that it would not wait for. With only_steps a step has two stamps, and
 * runs as it does untimed: OP_STEP and OP_BETWEEN are all that is counted. */
struct op_times {
    bool only_steps;
    uint64_t ns[N_OPS], calls[N_OPS];
    uint64_t first, next;     /* stamps that were not yet read, by number: 0 is the first one */
    uint8_t before[N_STAMPS]; /* enum op: what ended with the stamp */
};

/* From now on every op of a step adds its time to `times`, and makes a range where a profiler
 * looks; `times` may be NULL. `table` is the caller's and in use until backend_stop_watching. For
 * the thread that calls the ops, between two steps. */
void backend_watch_ops(struct backend *b, struct backend_ops *table, struct op_times *times);
/* All times are in the table when it returns. */
void backend_stop_watching(struct backend *b);

/* ---- the machine ---------------------------------------------------------------------------- */

/* A loop of multiply-adds out of registers: what a CPU path's instructions can do at most. */
struct peak_loop {
    const char *instruction; /* "vpdpbusd, 512 bits" */
    double multiply_adds;    /* of one call of run, which is for ops->parallel */
    void (*run)(void *arg, int i);
};
struct peak_loops {
    struct peak_loop int8, float32;
};

/* Those of the path `name`, chosen as for backend_cpu_logit_ops; NULL for plain C. */
const struct peak_loops *backend_cpu_peaks(const char *name);

/* How many compute threads suit this process: its affinity mask and cgroup CPU quota, rounded to
 * whole cores, at least 1. */
int backend_cpu_threads(void);

#endif
