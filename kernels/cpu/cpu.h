/* kernels/cpu: the CPU backend's inside. order.md says in which order every float is computed; a
 * path is one set of functions that follow it: `plain` is scalar C and the oracle, the others use
 * the vector units.
 *
 *   backend.c   open, close, the op table        pool.c        the compute threads
 *   features.c  what the processor has           sharing.c     who takes which piece
 *   paths.c     which path that makes possible   threads.c     how many of them
 *   all_reduce.c  sums over ranks                topology.c    where they run
 *
 *   order.h     the written order's constants    activations.h the inputs of products
 *   weights.h   blocks and panels of weights     kv.h          the key-value cache
 *   mixture.h   rows by expert
 *
 *   weights/    types, reading GGUF blocks, packing weights into panels
 *   ops/        what the op table calls: splits the work over the compute threads
 *   plain/      the plain path: the readable oracle
 *   simd/       the vector paths: path_SET.c compiles the .inc files for one instruction set,
 *               matmul_SET.c is its product of quantised weights. A file's name ends in the set
 *               that it may use.
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

/* What outputs of a product go through before they are stored: + bias, * scale, then the cap. */
struct epilogue {
    const float *bias; /* [lanes]; NULL: none */
    float scale;       /* 1: none */
    float cap;         /* y becomes cap * tanh(y / cap); 0: it stays */
};

/* The functions that differ from one instruction set to another; all give the same bits. */
struct path {
    const char *name;
    /* y[K] = x[K] through a norm; y may be x. A layernorm's bias may be NULL. */
    void (*rmsnorm)(float *y, const float *x, const float *gain, int K, float epsilon);
    void (*layernorm)(float *y, const float *x, const float *gain, const float *bias, int K,
                      float epsilon);
    /* Turns heads of one row by the angles whose cosines and sines [D_rope/2] are given. */
    void (*rope)(float *x, int heads, int D, int D_rope, const float *cosine, const float *sine,
                 enum rope_layout layout);
    /* x[n] = activation(x) * times, or activation(x) if times is NULL; n is a multiple of LANES.
     * ACTIVATION_CLAMPED is of both. */
    void (*activate)(float *x, const float *times, size_t n, enum activation activation);
    /* Block i of rows [0, rows) of a tile of `a` becomes x[rows][BLOCK], of which n columns count,
     * in the forms that `a` asks for. */
    void (*put_block)(struct activations *a, int tile, int i, int rows, const float *x, int n);
    /* y[r * stride + lane] through an epilogue, for `rows` rows and n lanes. */
    void (*epilogue)(float *y, size_t stride, int rows, int n, const struct epilogue *e);
    /* y[r * stride + lane] += x[r][LANES] for `rows` rows and n lanes. */
    void (*add_panel)(float *y, size_t stride, const float *x, int rows, int n);
    void (*to_halves)(uint16_t *out, const float *x, size_t n);
    /* Codes of at most max_code and a scale for each SCALED numbers. */
    void (*to_codes)(int16_t *codes, float *scales, const float *x, int n, int max_code);
    /* Quantises row `row` of `a` from x[K]. */
    void (*quantise)(struct activations *a, int row, const float *x);
    /* The same to 16 bits, for two-byte weights. */
    void (*quantise_half)(struct activations *a, int row, const float *x);
    /* Panel times tile: y[r * stride + lane] for `rows` rows of the tile and the panel's
     * outputs. */
    void (*product)(const struct matrix *w, int panel, const struct activations *a, int tile,
                    int rows, float *y, size_t stride);
    /* Panel times tiles from..to-1, which y begins at. False: nothing was done, and `product` is to
     * do it. NULL where a path has no such thing. */
    bool (*group)(const struct matrix *w, int panel, const struct activations *a, int from, int to,
                  float *y, size_t stride);
    void (*attend)(const struct attend *a);
    const struct peak_loops *peaks; /* NULL: no vectors */
    /* Merges the part of a later chunk into what came before; n values. */
    void (*merge)(float *into, const float *part, int n);
    /* y[n] = values of a part over its sum. */
    void (*finish)(float *y, const float *part, int n);
    /* Reductions over rows of logits; the host that samples has them from backend_cpu_logit_ops. */
    const struct logit_ops *logits;
    /* Float weights become blocks; others have them from backend_cpu_weight_ops. */
    const struct weight_ops *weights;
    /* Quantises 16 rows of floats into their panel, whole; the bytes are those of
     * weights->quantise and pack_panel. False: nothing was done, and these are to do it. NULL where
     * a path has no such thing. */
    bool (*quantise_panel)(struct matrix *w, int panel, enum dtype from, const uint8_t *rows);
};

extern const struct peak_loops avx2_peaks, avxvnni_peaks, avx512vnni_peaks, amx_peaks;

extern const struct path path_plain, path_avx2, path_avxvnni, path_avx512vnni, path_amx;

/* Products of quantised weights. */
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

/* x[K] through whichever norm it is. */
static inline void path_norm(const struct path *path, float *y, const float *x,
                             const struct norm *norm, int K) {
    if (norm->kind == NORM_LAYER) {
        path->layernorm(y, x, norm->gain, norm->bias, K, norm->epsilon);
    } else {
        assert(norm->kind == NORM_RMS && !norm->bias);
        path->rmsnorm(y, x, norm->gain, K, norm->epsilon);
    }
}

/* The plain path's functions, and those of one number that all paths compute. */
float plain_exp(float x);
/* The sum of LANES partial sums, halves onto halves; they are changed. */
float tree_sum(float *s);
float plain_tanh(float x);
float plain_activation(float x, enum activation activation);
void plain_rmsnorm(float *y, const float *x, const float *gain, int K, float epsilon);
void plain_layernorm(float *y, const float *x, const float *gain, const float *bias, int K,
                     float epsilon);
void plain_rope(float *x, int heads, int D, int D_rope, const float *cosine, const float *sine,
                enum rope_layout layout);
void plain_activate(float *x, const float *times, size_t n, enum activation activation);
void plain_put_block(struct activations *a, int tile, int i, int rows, const float *x, int n);
void plain_epilogue(float *y, size_t stride, int rows, int n, const struct epilogue *e);
void plain_add_panel(float *y, size_t stride, const float *x, int rows, int n);
void plain_to_halves(uint16_t *out, const float *x, size_t n);
void plain_to_codes(int16_t *codes, float *scales, const float *x, int n, int max_code);
void plain_quantise(struct activations *a, int row, const float *x);
void plain_quantise_half(struct activations *a, int row, const float *x);
void plain_product(const struct matrix *w, int panel, const struct activations *a, int tile,
                   int rows, float *y, size_t stride);
void plain_attend(const struct attend *a);
void plain_merge(float *into, const float *part, int n);
void plain_finish(float *y, const float *part, int n);
extern const struct logit_ops plain_logits;
extern const struct weight_ops plain_weights;

/* exp(x) for x <= 0 as sampling takes it, relative error below 2e-7; 0 below -87 and for a NaN. */
float plain_weight(float x);

/* ---- the threads ---------------------------------------------------------------------------- */

struct pool;
/* Starts n_threads - 1 workers; fewer when the system refuses. With a placement, which the pool
 * then owns, they are bound as it says, and so is any caller but the thread that opened the pool;
 * NULL: they run where the system puts them. */
struct pool *pool_new(int n_threads, struct placement *placement);
void pool_free(struct pool *pool);
/* Threads that could be started, the caller's included; their nodes, 1 without a placement. */
int pool_threads(const struct pool *pool);
int pool_nodes(const struct pool *pool);
/* Where the pieces of nodes begin and end that have the same share of n as of the threads:
 * border[nodes + 1]. */
void pool_borders(const struct pool *pool, int n, int *border);
/* Asks for memory on that node, whoever touches it first (placement_move). */
void pool_place(const struct pool *pool, const void *memory, size_t bytes, int node);
/* Runs fn(arg, i, thread) for i in [0, n) and returns when all have ended; thread 0 is the caller,
 * and no two pieces with the same thread run at once. One caller at a time. */
void pool_run(struct pool *pool, void (*fn)(void *arg, int i, int thread), void *arg, int n);
/* The same, where node k is to run border[k]..border[k + 1] - 1, but for what others take when they
 * have nothing left. */
void pool_run_nodes(struct pool *pool, void (*fn)(void *arg, int i, int thread), void *arg,
                    const int *border);

/* How many threads suit a process that may run on `cores` cores, by the control groups that the
 * folders `proc` and `cgroup` show. A quota is rounded to the nearest whole number of cores: a
 * thread that has less than half a core would stop all the others for most of each period. */
int threads_for(int cores, const char *proc, const char *cgroup);
/* The same by this machine's folders; cores that the process's affinity mask has. */
int threads_of_cores(int cores);
int cores_allowed(void);

/* ---- the backend ---------------------------------------------------------------------------- */

enum { ROPE_TABLES = 4, MAX_THREADS = 1024 };

/* Cosines and sines of a step's rows for one list of frequencies, times its scale. */
struct rope_table {
    const float *inv_freq; /* NULL: not made in this step */
    int pairs;
    float scale;
    float *cosine, *sine; /* [max_rows][D/2] */
};

enum { TILE_GROUP = 16 }; /* tiles that pass by a panel together: 256 rows */

/* What a thread works in. */
struct thread_scratch {
    struct activations own; /* a tile of inputs, where every thread makes its own */
    uint64_t made_for;      /* the number of the product that they are of */
    float *row;             /* [max_k] a row after its norm */
    float *outputs;         /* [2][TILE_GROUP * LANES][BLOCK] that are not finished */
};

struct cpu {
    struct backend head;
    struct cpu_group *group; /* NULL: alone */
    int rank;
    const struct path *path;
    struct pool *pool;
    int max_rows, max_k;
    const struct step *step; /* since step_begin */
    struct slab *slabs;      /* memory of the matrices, the newest first */
    uint8_t *packing;        /* scratch of making them */
    size_t packing_bytes;
    struct activations act, hidden; /* inputs of a product; of an MLP's second one */
    struct mixture *mixture;        /* NULL: no experts */
    struct thread_scratch *threads; /* [n_threads] */
    uint64_t n_products;            /* so far */
    /* planned when the cache is made, for the largest D seen */
    int max_d;
    struct rope_table rope[ROPE_TABLES];
    int n_rope;        /* tables made so far: the next one to replace */
    size_t rope_bytes; /* of one table's memory */
    float *attention;  /* scratch of the threads, then of the split context */
    size_t attention_bytes;
    void *memory; /* of all inputs and the threads' scratch */
    size_t memory_bytes;
};

static inline struct cpu *cpu_of(struct backend *b) {
    return (struct cpu *)b;
}

/* Plans scratch that depends on the size of a head. */
void cpu_plan_heads(struct cpu *cpu, int D);
void cpu_free_heads(struct cpu *cpu);

/* A panel of `linear` times tiles from..end-1 of `a`, + its bias, times its scale. y[r * stride +
 * lane] begins with the first row of these tiles. */
void panel_times_tiles(const struct cpu *cpu, const struct linear *linear, int panel,
                       const struct activations *a, int from, int end, float *y, size_t stride);
/* Of so many units of work, each of so many multiply-adds, how many make a piece: enough pieces for
 * every thread, and none that takes long; all when that is little. */
int piece_units(const struct cpu *cpu, int64_t products, int units);

/* The ops, by file. */
void op_embed(struct backend *b, float *y, const struct embedding *embedding);
void op_rope_write(struct backend *b, struct kv_cache *cache, int layer, const struct heads *heads,
                   float *q, float *k, float *v);
void op_gather(struct backend *b, float *y, const float *x, int K);
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
void op_step_begin(struct backend *b, const struct step *step, struct kv_cache *cache);
void op_attention(struct backend *b, float *y, const float *q, const struct kv_cache *cache,
                  int layer, const struct attention *attention);

#endif
