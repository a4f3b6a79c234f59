/* kernels/cpu: internals of the CPU backend. order.md defines the order of all float operations. A
 * path is a set of functions that follow it: `plain` is scalar C and the oracle, the others use
 * vector instructions.
 *
 *   backend.c     open, close, the op table      pool.c         the compute threads
 *   features.c    features of the processor      sharing.c      work sharing between threads
 *   paths.c       choice of a path               threads.c      the number of threads
 *   all_reduce.c  sums over ranks                topology.c     processors and nodes
 *
 *   order.h       constants of the order         activations.h  the inputs of products
 *   weights.h     blocks and panels of weights   kv.h           the KV cache
 *   mixture.h     rows by expert
 *
 *   weights/    types, reading of GGUF blocks, packing of weights into panels
 *   ops/        the functions of the op table: divide the work among the compute threads
 *   plain/      the plain path: the readable oracle
 *   simd/       the vector paths: path_SET.c compiles the .inc files for one instruction set,
 *               matmul_SET.c is its product of quantised weights. The name of a file ends in the
 *               instruction set that it may use.
 */
#ifndef PENSTOCK_KERNELS_CPU_H
#define PENSTOCK_KERNELS_CPU_H

#include <assert.h>
#include <pthread.h>

#include "kernels/cpu/activations.h"
#include "kernels/cpu/kv.h"
#include "kernels/cpu/mixture.h"
#include "kernels/cpu/topology.h"
#include "kernels/cpu/weights.h"
#include "kernels/kernels.h"

/* ---- a path --------------------------------------------------------------------------------- */

/* The end of a product: + bias, * scale, then the cap. */
struct epilogue {
    const float *bias; /* [lanes]; NULL: zero */
    float scale;       /* 1: no scale */
    float cap;         /* y becomes cap * tanh(y / cap); 0: no cap */
};

/* The channels [first, first + n) of a short convolution, n at most LANES, in adjacent rows of one
 * sequence. in, out, x and y are the first of these rows; in and out may be NULL. */
struct channels {
    const struct short_conv *conv;
    int first, n, rows;
    bool begins; /* the first row has position 0: the state is not read */
    const float *in, *out, *x;
    float *y;
    float *state; /* [taps - 1][C], of all channels of the layer */
};

/* One row of a head that keeps a matrix S, which is read and replaced:
 *     d = (v - decay * S^T k) * beta, or v * beta;  S = decay * S + k d^T;  y = S^T q + skip * v
 * With decays, row i of S is first multiplied by decays[i], and decay is 1 in d. */
struct state_row {
    int dk, dv;
    float *S;               /* [dk][dv] */
    const float *q, *k, *v; /* [dk], [dk], [dv] */
    float decay, beta;
    const float *decays; /* [dk], only if it corrects; NULL: all rows have `decay` */
    bool corrects;       /* the gated delta rule: the first form of d, without `skip` */
    float skip;
    int first, n; /* the columns [first, first + n) of S, v and y, multiples of LANES */
    float *y;     /* [dv] */
};

/* The functions that depend on the instruction set. All paths give the same bits. */
struct path {
    const char *name;
    /* y[K] = norm of x[K]; y may be x. A layernorm's bias may be NULL. */
    void (*rmsnorm)(float *y, const float *x, const float *gain, int K, float epsilon);
    void (*layernorm)(float *y, const float *x, const float *gain, const float *bias, int K,
                      float epsilon);
    /* Rotates the heads of one row by angles with the given cosines and sines [D_rope/2]. */
    void (*rope)(float *x, int heads, int D, int D_rope, const float *cosine, const float *sine,
                 enum rope_layout layout);
    /* x[n] = activation(x) * times, or activation(x) if times is NULL; n is a multiple of LANES.
     * ACTIVATION_CLAMPED takes both. */
    void (*activate)(float *x, const float *times, size_t n, enum activation activation);
    /* x[n] = xielu(x); n is a multiple of LANES. */
    void (*xielu)(float *x, size_t n, const struct xielu *numbers);
    /* Writes the first n columns of x[rows][BLOCK] to block i of rows [0, rows) of a tile of `a`,
     * in the forms that `a` needs. */
    void (*put_block)(struct activations *a, int tile, int i, int rows, const float *x, int n);
    /* Applies an epilogue to y[r * stride + lane] for `rows` rows and n lanes. */
    void (*epilogue)(float *y, size_t stride, int rows, int n, const struct epilogue *e);
    /* y[r * stride + lane] += x[r][LANES] for `rows` rows and n lanes. */
    void (*add_panel)(float *y, size_t stride, const float *x, int rows, int n);
    /* Writes rows of keys and values to the cache. Both positions of a pair of values belong to one
     * call, or the other position is not written at the same time. */
    void (*write_kv)(const struct kv_rows *rows);
    /* Quantises x[K] into row `row` of `a`. */
    void (*quantise)(struct activations *a, int row, const float *x);
    /* The same with 16-bit codes, for two-byte weights. */
    void (*quantise_half)(struct activations *a, int row, const float *x);
    /* Normalises x[n][K] with rmsnorm and quantises it to 8 bits, in one pass, into the n rows from
     * `first` on; n is 1 or NORM_ROWS. NULL if the path does not implement it. */
    void (*norm_quantise)(struct activations *a, int first, int n, const float *x,
                          const struct norm *norm);
    /* y[r * stride + lane] = panel times tile, for `rows` rows of the tile and the panel's
     * outputs. */
    void (*product)(const struct matrix *w, int panel, const struct activations *a, int tile,
                    int rows, float *y, size_t stride);
    /* The product of a panel with the tiles from..to-1; y is the output of the first tile. Returns
     * false if it did nothing; the caller then uses `product`. NULL if the path does not implement
     * it. */
    bool (*group)(const struct matrix *w, int panel, const struct activations *a, int from, int to,
                  float *y, size_t stride);
    /* inner[row][r] = x[row][K] times row first + r of `a`, for r < n and at most LOW_RANK_ROWS
     * rows. */
    void (*low_rank_inner)(float *const *inner, const float *const *x, int rows,
                           const struct low_rank *change, int first, int n, int K);
    /* y[row][i] += (inner[row][rank] times column i of a panel of b) * scale for n outputs, at most
     * LANES, of at most LOW_RANK_ROWS rows. */
    void (*low_rank_add)(float *const *y, const float *const *inner, int rows,
                         const struct low_rank *change, int panel, int n, float scale);
    /* Converts the queries of a task, before its first chunk. NULL: there is nothing to convert. */
    void (*attend_begin)(const struct attend *a);
    void (*attend)(const struct attend *a);
    /* One sequence's rows of a short convolution; see struct channels. */
    void (*short_conv)(const struct channels *channels);
    /* One row in some columns of a head that keeps a matrix. */
    void (*state_row)(const struct state_row *row);
    /* y[n] = y / (1 + exp(-gate[n])) */
    void (*gate)(float *y, const float *gate, size_t n);
    const struct peak_loops *peaks; /* NULL: the path does not use vectors */
    /* Merges a later chunk's part into the part of all earlier chunks; n values. */
    void (*merge)(float *into, const float *part, int n);
    /* y[n] = the values of a part divided by its sum. */
    void (*finish)(float *y, const float *part, int n);
    /* Functions on rows of logits; the host's sampler gets them from backend_cpu_logit_ops. */
    const struct logit_ops *logits;
    /* Conversion of float weights to blocks; other folders get it from backend_cpu_weight_ops. */
    const struct weight_ops *weights;
    /* Quantises 16 rows of floats into a whole panel. The bytes are those of weights->quantise and
     * pack_panel. Returns false if it did nothing; the caller then uses these two. NULL if the path
     * does not implement it. */
    bool (*quantise_panel)(struct matrix *w, int panel, enum dtype from, const uint8_t *rows);
};

extern const struct peak_loops avx2_peaks, avxvnni_peaks, avx512vnni_peaks, amx_peaks;

extern const struct path path_plain, path_avx2, path_avxvnni, path_avx512vnni, path_amx;

/* Products of quantised weights, by instruction set. */
void avx2_product(const struct matrix *w, int panel, const struct activations *a, int tile,
                  int rows, float *y, size_t stride);
void avxvnni_product(const struct matrix *w, int panel, const struct activations *a, int tile,
                     int rows, float *y, size_t stride);
void avx512vnni_product(const struct matrix *w, int panel, const struct activations *a, int tile,
                        int rows, float *y, size_t stride);
void amx_product(const struct matrix *w, int panel, const struct activations *a, int tile, int rows,
                 float *y, size_t stride);
bool amx_group(const struct matrix *w, int panel, const struct activations *a, int from, int to,
               float *y, size_t stride);

/* y[K] = norm of x[K], of either kind. */
static inline void path_norm(const struct path *path, float *y, const float *x,
                             const struct norm *norm, int K) {
    if (norm->kind == NORM_LAYER) {
        path->layernorm(y, x, norm->gain, norm->bias, K, norm->epsilon);
    } else {
        assert(norm->kind == NORM_RMS && !norm->bias);
        path->rmsnorm(y, x, norm->gain, K, norm->epsilon);
    }
}

/* The plain path's functions, and the functions of one number that all paths share. */
float plain_exp(float x);
/* The sum of LANES partial sums: repeatedly adds the upper half to the lower half. Changes s. */
float tree_sum(float *s);
float plain_tanh(float x);
float plain_activation(float x, enum activation activation);
void plain_rmsnorm(float *y, const float *x, const float *gain, int K, float epsilon);
void plain_layernorm(float *y, const float *x, const float *gain, const float *bias, int K,
                     float epsilon);
void plain_rope(float *x, int heads, int D, int D_rope, const float *cosine, const float *sine,
                enum rope_layout layout);
void plain_activate(float *x, const float *times, size_t n, enum activation activation);
void plain_xielu(float *x, size_t n, const struct xielu *numbers);
void plain_put_block(struct activations *a, int tile, int i, int rows, const float *x, int n);
void plain_epilogue(float *y, size_t stride, int rows, int n, const struct epilogue *e);
void plain_add_panel(float *y, size_t stride, const float *x, int rows, int n);
void plain_write_kv(const struct kv_rows *rows);
/* Converts n numbers to codes of at most max_code, with one scale per SCALED numbers. */
void plain_to_codes(int16_t *codes, float *scales, const float *x, int n, int max_code);
void plain_quantise(struct activations *a, int row, const float *x);
void plain_quantise_half(struct activations *a, int row, const float *x);
void plain_product(const struct matrix *w, int panel, const struct activations *a, int tile,
                   int rows, float *y, size_t stride);
void plain_low_rank_inner(float *const *inner, const float *const *x, int rows,
                          const struct low_rank *change, int first, int n, int K);
void plain_low_rank_add(float *const *y, const float *const *inner, int rows,
                        const struct low_rank *change, int panel, int n, float scale);
void plain_attend(const struct attend *a);
void plain_short_conv(const struct channels *c);
void plain_state_row(const struct state_row *row);
void plain_gate(float *y, const float *gate, size_t n);
void plain_merge(float *into, const float *part, int n);
void plain_finish(float *y, const float *part, int n);
extern const struct logit_ops plain_logits;
extern const struct weight_ops plain_weights;

/* exp(x) for x <= 0, for sampling. The relative error is below 2e-7; the result is 0 below -87 and
 * for a NaN. */
float plain_weight(float x);

/* ---- the threads ---------------------------------------------------------------------------- */

struct pool;
/* Starts n_threads - 1 workers, or fewer if the system refuses. With a placement, which the pool
 * then owns, workers and every caller except the thread that opened the pool are bound. NULL:
 * threads are not bound. */
struct pool *pool_new(int n_threads, struct placement *placement);
void pool_free(struct pool *pool);
/* The number of threads that were started, the caller included; the number of their nodes, 1
 * without a placement. */
int pool_threads(const struct pool *pool);
int pool_nodes(const struct pool *pool);
/* Divides n pieces among the nodes in proportion to their threads: border[nodes + 1]. */
void pool_borders(const struct pool *pool, int n, int *border);
/* Requests memory on that node, whichever thread touches it first (placement_move). */
void pool_place(const struct pool *pool, const void *memory, size_t bytes, int node);
/* Runs fn(arg, i, thread) for i in [0, n) and returns when all calls are done. Thread 0 is the
 * caller. Two calls with the same thread never run at once. The pool serves one caller at a
 * time. */
void pool_run(struct pool *pool, void (*fn)(void *arg, int i, int thread), void *arg, int n);
/* The same, but node k prefers the pieces border[k]..border[k + 1] - 1. Threads without work left
 * take pieces of other nodes. */
void pool_run_nodes(struct pool *pool, void (*fn)(void *arg, int i, int thread), void *arg,
                    const int *border);

/* Returns the number of threads for a process that may use `cores` cores, given the control groups
 * in the folders `proc` and `cgroup`. A quota is rounded to the nearest whole number of cores,
 * because a thread with less than half a core would delay all others for most of each period. */
int threads_for(int cores, const char *proc, const char *cgroup);
/* The same for this machine's folders; the number of cores in the process's affinity mask. */
int threads_of_cores(int cores);
int cores_allowed(void);

/* ---- the backend ---------------------------------------------------------------------------- */

enum { ROPE_TABLES = 4, MAX_THREADS = 1024 };

/* Cosines and sines of a step's rows for one list of frequencies, multiplied by its scale. */
struct rope_table {
    const float *inv_freq; /* NULL: unused in this step */
    int pairs;
    float scale;
    float *cosine, *sine; /* [max_rows][D/2] */
};

enum { TILE_GROUP = 16 }; /* tiles that share one pass over a panel: 256 rows */

/* Scratch memory of a thread. */
struct thread_scratch {
    struct activations own; /* a tile of inputs, if each thread computes its own */
    uint64_t made_for;      /* the number of the product of `own` */
    float *row;             /* [max_k] a row after its norm */
    float *outputs;         /* [2][TILE_GROUP * LANES][BLOCK] partial outputs */
};

enum {
    MAX_FUSED = 4,      /* the most projections with one input that may have adapters */
    LOW_RANK_ROWS = 16, /* the most rows of a struct low_rank_part */
};

/* Rows of an op that have the same adapter, in rising order and of the same group of tiles. */
struct low_rank_part {
    int32_t adapter;
    int n;
    int row[LOW_RANK_ROWS]; /* [n] */
};

/* Memory for the products of adapters. NULL: there are no adapters. */
struct low_rank_rows {
    int max_rank;
    float *inner; /* [max_rows][MAX_FUSED][max_rank] the rows' products with `a` */
    /* [max_rows][K] the rows of an op after its norm, then the inputs of an MLP's second product */
    float *hidden;
    struct low_rank_part *part; /* [max_rows] of the running op, group after group of tiles */
    int *group_parts;           /* [groups of tiles + 1] the first part of each group */
};

struct cpu {
    struct backend head;
    struct rank_group *group; /* NULL: a single rank */
    int rank;
    const struct path *path;
    struct pool *pool;
    int max_rows, max_k;
    const struct step *step; /* set by step_begin */
    struct slab *slabs;      /* memory of the matrices, newest first */
    uint8_t *packing;        /* scratch for packing matrices */
    size_t packing_bytes;
    struct activations act, hidden; /* inputs of a product; inputs of an MLP's second product */
    struct mixture *mixture;        /* NULL: the model is not a mixture of experts */
    struct low_rank_rows low;
    struct thread_scratch *threads; /* [n_threads] */
    uint64_t n_products;            /* number of products so far */
    /* planned when the cache is made, for its largest heads */
    int max_d;
    size_t staged_floats; /* per thread, for values that are a part of keys */
    struct rope_table rope[ROPE_TABLES];
    int n_rope;        /* number of tables computed; selects the next one to replace */
    size_t rope_bytes; /* size of one table */
    float *attention;  /* scratch of the threads, followed by the parts of split contexts */
    size_t attention_bytes;
    void *memory; /* all inputs and the threads' scratch */
    size_t memory_bytes;
};

static inline struct cpu *cpu_of(struct backend *b) {
    return (struct cpu *)b;
}

/* Plans the scratch memory that depends on the heads of a kind of layers. */
void cpu_plan_heads(struct cpu *cpu, const struct kv_kind *kv);
void cpu_free_heads(struct cpu *cpu);

/* The product of a panel of `linear` with tiles from..end-1 of `a`, + its bias, times its scale.
 * y[r * stride + lane] starts with the first row of these tiles. */
void panel_times_tiles(const struct cpu *cpu, const struct linear *linear, int panel,
                       const struct activations *a, int from, int end, float *y, size_t stride);
/* ops/low_rank.c: memory for adapters of at most that rank; 0: for none. */
void cpu_plan_low_rank(struct cpu *cpu, int max_rank);
void cpu_free_low_rank(struct cpu *cpu);
/* Does a row's adapter change the projection? */
bool low_rank_changes(const struct linear *linear, int row);
/* Computes the inner products of all rows of x[M][K] after the norm, for n projections. Returns
 * false if no adapter changes any of them; then low_rank_add need not be called. x may be
 * low.hidden if `norm` is NULL. */
bool low_rank_begin(struct cpu *cpu, const float *x, const struct norm *norm,
                    const struct linear *linear, int n, int M);
/* Requests the numbers that low_rank_add reads, before it is called. */
void low_rank_fetch(const struct cpu *cpu, const struct linear *linear, int panel, int group);
/* Adds the changes of a group of tiles in projection i of low_rank_begin to a panel's outputs
 * y[r * stride + lane], which begin at the group's first row. */
void low_rank_add(const struct cpu *cpu, const struct linear *linear, int i, int panel, int group,
                  float *y, size_t stride);

/* Returns the number of units per piece for `units` units of `products` multiply-adds each: enough
 * pieces for all threads, and no piece that takes long. If the work is small, one piece has all
 * units. */
int piece_units(const struct cpu *cpu, int64_t products, int units);

/* The ops, grouped by file. */
void op_embed(struct backend *b, float *y, const struct embedding *embedding);
void op_rope_write(struct backend *b, struct kv_cache *cache, int layer, const struct heads *heads,
                   float *q, float *k, float *v);
void op_short_conv(struct backend *b, float *y, const float *in, const float *out, const float *x,
                   struct kv_cache *cache, int layer, const struct short_conv *conv);
void op_delta_rule(struct backend *b, float *y, const struct delta_rows *rows,
                   struct kv_cache *cache, int layer, const struct delta_rule *rule);
void op_state_space(struct backend *b, float *y, const struct space_rows *rows,
                    struct kv_cache *cache, int layer, const struct state_space *space);
void op_matmul_heads(struct backend *b, float *y, const float *x, const struct head_linear *linear,
                     int M);
void op_latent_write(struct backend *b, struct kv_cache *cache, int layer,
                     const struct latent *latent, float *q, const float *from, float *k);
void op_gather(struct backend *b, float *y, const float *x, int K);
void op_recall(struct backend *b, float *y, const float *x, int M, int K);
void op_spread(struct backend *b, float *y, const float *x, const struct spread *spread, int R,
               int K);
void op_norm(struct backend *b, float *y, const float *x, const struct norm *norm, int M, int K);
void op_join(struct backend *b, float *y, const float *a, const float *other,
             const struct join *join, int M, int K);
void op_hidden(struct backend *b, float *y, const float *x, const struct norm *norm, int from,
               int R, int K);
void op_matmul(struct backend *b, float *const *y, const float *x, const struct norm *norm,
               const struct linear *linear, int n, int M);
void op_logits(struct backend *b, float *y, const float *x, const struct norm *norm,
               const struct lm_head *head, int R);
void op_matmul_add(struct backend *b, float *sum, const float *x, const struct linear *linear,
                   int M);
void op_mlp(struct backend *b, float *sum, const float *x, const struct norm *norm,
            const struct mlp *mlp, int M);
void op_experts(struct backend *b, float *sum, const float *x, const struct norm *norm,
                const struct experts *experts, int M);
void op_norm_add(struct backend *b, float *x, float *y, const struct norm *norm, int M, int K);
void op_all_reduce(struct backend *b, float *x, float *part, int M, int K);
enum status op_kv_new(struct backend *b, struct kv_cache **out, const struct kv_config *config,
                      struct err *err);
void op_kv_free(struct backend *b, struct kv_cache *cache);
void op_kv_touch(struct backend *b, struct kv_cache *cache);
size_t op_kv_part_bytes(const struct kv_cache *cache, enum cache_part part);
void op_kv_part_get(const struct kv_cache *cache, enum cache_part part, int i, void *out);
void op_kv_part_put(struct kv_cache *cache, enum cache_part part, int i, const void *in);
void op_step_begin(struct backend *b, const struct step *step, struct kv_cache *cache);
void op_attention(struct backend *b, float *y, const float *q, const struct kv_cache *cache,
                  int layer, const struct attention *attention);

#endif
