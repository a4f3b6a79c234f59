/* kernels/cpu: the CPU backend's inside. order.md says in which order every float is computed; a
 * path is one set of functions that follow it: `plain` is scalar C and the oracle, the others use
 * the vector units.
 *
 *   dtype.c       types, half precision         pool.c       the compute threads
 *   dequantise.c  reading GGUF blocks           threads.c    how many of them
 *   matrix.c      weights in panels             features.c   what the processor has
 *   inputs.c      making products' inputs       paths.c      which path that makes possible
 *   matmul.c      the products' work lists      backend.c    open, close, the op table
 *   attention.c   the work list of attention    rows.c       ops on rows, split over the threads
 *   kv.c          the paged cache               heads.c      RoPE and the write to the cache
 *   half.c        panels of two-byte floats     fast_logits.inc  rows of logits, for sampling
 *
 *   *_plain.c     the plain path
 *   path_SET.c    the .inc files compiled for one instruction set; product_SET.c its product of
 *                 quantised weights. A file's name ends in the set that it may use.
 */
#ifndef PENSTOCK_KERNELS_CPU_H
#define PENSTOCK_KERNELS_CPU_H

#include <assert.h>
#include <pthread.h>

#include "kernels/kernels.h"

/* ---- constants of the written order --------------------------------------------------------- */

enum {
    LANES = 16,   /* partial sums of a reduction; outputs of a panel; rows of a tile */
    BLOCK = 32,   /* inputs that share one activation scale */
    CHUNK = 256,  /* positions of a context whose softmax is taken at once */
    QUERIES = 24, /* query vectors that one attention task takes through the context together */
};

/* The exponential of sampling, for x <= 0: the same reduction in products and sums without fma,
 * then Taylor's polynomial of degree 7. ln 2 is split so that n times its first part is exact. */
#define WEIGHT_LOW (-87.0f)
#define WEIGHT_LOG2E 1.44269504f
#define WEIGHT_LN2_HIGH 0.693359375f
#define WEIGHT_LN2_LOW 2.12194440e-4f /* what the first part is too large by */
#define WEIGHT_P7 1.98412698e-4f
#define WEIGHT_P6 1.38888889e-3f
#define WEIGHT_P5 8.33333333e-3f
#define WEIGHT_P4 4.16666667e-2f
#define WEIGHT_P3 1.66666667e-1f
#define WEIGHT_P2 0.5f

/* exp(x) = 2^n * (1 + r + r^2 * q(r)), n the integer nearest x / ln 2 (found by adding 1.5 *
 * 2^23), r = x - n * ln 2 with ln 2 in two floats, q of degree 4 by weighted least squares. Below
 * EXP_LOW it is 0, above EXP_HIGH its value there. */
#define EXP_LOW (-0x1.5d589ep+6f) /* -87.3365: the last normal number */
#define EXP_HIGH 0x1.618p+6f      /* 88.375 */
#define EXP_LOG2E 0x1.715476p+0f
#define EXP_ROUND 0x1.8p+23f
#define EXP_LN2_HIGH 0x1.62e43p-1f
#define EXP_LN2_LOW (-0x1.05c61p-29f)
#define EXP_Q0 0x1.fffffcp-2f
#define EXP_Q1 0x1.55549p-3f
#define EXP_Q2 0x1.5558f4p-5f
#define EXP_Q3 0x1.123a6cp-7f
#define EXP_Q4 0x1.6a2352p-10f

/* An activation block whose largest magnitude is below this is taken as zeros: its scale's inverse
 * stays finite. */
#define TINY 0x1p-100f

static inline size_t round_up(size_t n, size_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
}

struct cpu;

/* ---- weights -------------------------------------------------------------------------------- */

/* 32 consecutive weights of one row, as a file holds them: weight i is
 *   half(d) * scale[i / 16] * (code[i] - zero) + half(m) * min. */
struct block {
    uint8_t code[BLOCK];
    uint16_t d, m;
    int scale[2], min, zero;
};

/* Reads weights 32 * i .. 32 * i + 31 of a row of a quantised type. */
void block_read(struct block *block, enum dtype type, const void *row, size_t i);
/* Scale and minimum of block i of 8 out of the 12 bytes at `p` in which Q4_K and Q5_K keep them. */
void block_k_scales(const uint8_t *p, int i, uint8_t *scale, uint8_t *min);
/* The weights that a block stands for. */
void block_floats(const struct block *block, float *out);

/* 32 consecutive weights of a row of two-byte floats: weight i is code[i] * scale, where the scale
 * is a power of two. The largest weight has all of its bits, and the others as many as stand above
 * its lowest: a BF16 weight is exact down to 1/32 of the largest, an F16 weight down to 1/4. */
struct half_block {
    int16_t code[BLOCK]; /* below 2^HALF_BITS in magnitude */
    float scale;         /* infinity, with codes 0, when a weight is infinite or NaN */
};

/* A weight's code is at most 2^13 - 4 (a half has 11 bits), an input's at most HALF_TOP: 32
 * products of them are below 2^31. */
enum { HALF_BITS = 13, HALF_TOP = 8191 };

/* How a type's panels look: bits of a code, what its zero is, what its scales are. */
struct format {
    int bits; /* 4, 5, 6 or 8; 16 for two-byte floats; 0 for float32 */
    int zero; /* the code that means 0 */
    bool has_min;
    bool super; /* scales in two steps over 256 inputs (K types) */
};
const struct format *format_of(enum dtype type);

/* A weight [N][K] in panels of 16 rows, so that a vector's lane is a row (an output). Rows that
 * pad the last panel are zero. A quantised panel is the codes of all its blocks, then their
 * scales:
 *
 *   codes of a block, line = 64 bytes = 4 bytes of each of 16 rows, group g = inputs
 *   4g .. 4g+3 of the block:
 *     4, 5, 6 bits  line j < 4: low nibbles are group j, high nibbles are group j + 4
 *     5 bits        line 4: bit g of byte t of a row is bit 4 of input 4g + t
 *     6 bits        line 4 + i: bits 2f, 2f+1 of byte t of a row are bits 4, 5 of input
 *                   4 * (4i + f) + t
 *     8 bits        line g is group g, as code = weight + 128
 *   scales of a block: 16 halves d, then with a minimum 16 halves m
 *   scales of K types, for 8 blocks: 16 halves d, with a minimum 16 halves m; then for each block
 *     16 bytes scale, 16 bytes min (Q4_K, Q5_K), or 16 signed bytes scale[0] and 16 scale[1] (Q6_K)
 *
 * A panel of a two-byte float type is made alike, its last block filled with zeros where K ends:
 *
 *   codes of a block: line g is inputs 2g, 2g+1 of each of 16 rows, as int16
 *   scales of a block: 16 bytes, the exponents of the scales as float32 has them (0 for a scale of
 *     0, 255 for infinity)
 *
 * A float32 panel is [K][16] weights. */
struct matrix {
    enum dtype type; /* of the panels */
    const struct format *format;
    int N, K, n_panels;
    int n_blocks;        /* of 32 inputs; 0 for float32 */
    size_t code_bytes;   /* of one block of a panel */
    size_t scale_offset; /* of the scales in a panel */
    size_t scale_bytes;  /* of one block, or of 8 blocks for K types */
    size_t panel_bytes, bytes;
    uint8_t *panels;
    struct slab *slab; /* whose memory it is */
};

/* The op, of any backend whose matrix_new takes host memory. */
enum status matrix_random(struct backend *b, struct matrix **out, enum dtype type, int N, int K,
                          uint64_t seed, enum matrix_form form, struct err *err);

enum status matrix_make(struct matrix **out, struct cpu *cpu, enum dtype type, int N, int K,
                        const void *rows, enum matrix_form form, struct err *err);
void matrix_drop(struct cpu *cpu, struct matrix *matrix);
/* Reads one row's block back out of its panel. */
void matrix_block(const struct matrix *w, struct block *block, int row, int i);
void matrix_half_block(const struct matrix *w, struct half_block *block, int row, int i);
/* matrix_row of two-byte floats. */
void matrix_half_row(const struct matrix *w, int row, float *out);
/* Writes a row of two-byte floats into its panel, whose memory is zero. */
void matrix_write_halves(struct matrix *w, int row, const void *from);
/* Writes a row of 4- to 8-bit weights into its panel, whose memory is zero. */
void matrix_write_row(struct matrix *w, int row, const void *from);
/* Writes a panel from its 16 rows, whole, for the types that have a quick way (relay.c); the bytes
 * are those of row by row. False: nothing was done. */
bool relay_whole_panel(struct matrix *w, int panel, const uint8_t *rows, size_t row_bytes);
/* out[K] = row `row`, dequantised. */
void matrix_row(const struct matrix *w, int row, float *out);

/* Weights of float32, weights of two bytes; else of 4 to 8 bits. */
static inline bool matrix_is_float(const struct matrix *w) {
    return w->format->bits == 0;
}
static inline bool matrix_is_half(const struct matrix *w) {
    return w->format->bits == 16;
}

static inline const uint8_t *matrix_codes(const struct matrix *w, int panel, int i) {
    return w->panels + (size_t)panel * w->panel_bytes + (size_t)i * w->code_bytes;
}

/* The scales of block i, or of the 8 blocks that it belongs to. */
static inline const uint8_t *matrix_scales(const struct matrix *w, int panel, int i) {
    return w->panels + (size_t)panel * w->panel_bytes + w->scale_offset +
           (size_t)(w->format->super ? i / 8 : i) * w->scale_bytes;
}

/* ---- activations ---------------------------------------------------------------------------- */

/* The input of a product in tiles of 16 rows, or in one tile of M rows when M is less: then a
 * block's rows stand closer together (`width` of them), and a single row is one run of bytes. */
struct activations {
    int M, K, width;
    bool quantised, halves, floats; /* which of what follows the matrices ask for */
    int8_t *q;                      /* [tile][K/32][width][32] codes -127..127 */
    float *scale;                   /* [tile][K/32][width] an input is scale * q */
    float *sum;                     /* [tile][K/32][width] scale * sum of the block's q */
    int32_t *minus_sum; /* [tile][K/32][3][width] minus the sum of q: all, first 16, last 16 */
    float *x;           /* [tile][K][width] inputs unquantised, for float weights */
    /* for two-byte weights, K rounded up to blocks: */
    int16_t *half_q;   /* [tile][K/32][width][32] codes -HALF_TOP..HALF_TOP */
    float *half_scale; /* [tile][K/32][width] an input is half_scale * half_q */
};

/* Blocks of K inputs. */
static inline int blocks_of(int K) {
    return K / BLOCK + (K % BLOCK != 0);
}

/* Where block i of a row of a tile stands; times BLOCK in q. */
static inline size_t activation_at(const struct activations *a, int tile, int i, int row) {
    return ((size_t)tile * (size_t)blocks_of(a->K) + (size_t)i) * (size_t)a->width + (size_t)row;
}

/* The three sums of that block, `width` apart. */
static inline int32_t *activation_minus_sum(const struct activations *a, int tile, int i, int row) {
    return a->minus_sum + 3 * activation_at(a, tile, i, 0) + row;
}

/* ---- the key-value cache -------------------------------------------------------------------- */

/* Keys stand with their positions side by side, so that a lane is a position; values with a head's
 * numbers side by side. 64 bytes follow the keys, as a vector may read past the last position.
 * One head's part of a block:
 *
 *   float16, float32   keys [D][B], values [B][D_padded]
 *   int16, q8_0        codes in pairs, which one instruction multiplies and adds: keys
 *                      [D_padded/2][B][2] and values [B/2][D_padded][2] (a pair is two positions);
 *                      then the scales [n_scales][B], floats: a number is scale * code */
struct kv_cache {
    struct kv_config config;
    int D_padded; /* D rounded up to 16: the length of a value */
    bool coded;   /* integer codes and scales */
    int n_scales; /* of a head: one for each SCALED numbers; 0 for float types */
    size_t element_bytes;
    size_t head_key_codes, head_value_codes; /* bytes before the scales */
    size_t head_key_bytes, head_value_bytes; /* of one head's part of a block */
    size_t key_bytes, value_bytes;           /* of one block of one layer */
    size_t keys_bytes, values_bytes;
    uint8_t *keys;   /* [n_blocks / SLAB][L][SLAB][G] */
    uint8_t *values; /* the same */
};

/* Blocks whose memory lies together in all layers. The scheduler takes the lowest blocks first, so
 * the system gives memory as sequences come to need it, and a lightly used server stays small. */
enum { SLAB = 8 };

/* Codes of keys and values go up to KEPT_CODES (127 in one byte), those of queries and of weights
 * over values up to USED_CODES: a sum of SCALED products stays below 2^31. */
enum { SCALED = 64, KEPT_CODES = 8191, USED_CODES = 4095 };

static inline size_t kv_place(const struct kv_cache *cache, int layer, int block) {
    size_t slab = (size_t)(block / SLAB), L = (size_t)cache->config.L;
    return (slab * L + (size_t)layer) * SLAB + (size_t)(block % SLAB);
}

static inline uint8_t *kv_keys(const struct kv_cache *cache, int layer, int block) {
    return cache->keys + kv_place(cache, layer, block) * cache->key_bytes;
}

static inline uint8_t *kv_values(const struct kv_cache *cache, int layer, int block) {
    return cache->values + kv_place(cache, layer, block) * cache->value_bytes;
}

/* One head's part of those. */
static inline uint8_t *kv_head_keys(const struct kv_cache *cache, int layer, int block, int g) {
    return kv_keys(cache, layer, block) + (size_t)g * cache->head_key_bytes;
}

static inline uint8_t *kv_head_values(const struct kv_cache *cache, int layer, int block, int g) {
    return kv_values(cache, layer, block) + (size_t)g * cache->head_value_bytes;
}

/* Query vectors that read the same key-value head, with one chunk of the context. A query sees the
 * first `count` positions of the chunk (none: it is left alone). Out come each query's largest
 * score, the sum of its exponentials and the sum of values weighted by them. */
struct attend {
    const struct kv_cache *cache;
    int layer, head;         /* key-value head */
    const int32_t *table;    /* of the sequence */
    int start;               /* first position of the chunk, a multiple of CHUNK */
    int n;                   /* queries, at most QUERIES */
    const float *q[QUERIES]; /* [D] */
    int count[QUERIES];      /* 0..CHUNK */
    float scale;
    float *scores;        /* scratch [QUERIES][CHUNK + 2 * LANES] */
    int16_t *codes;       /* scratch [QUERIES][D_padded] */
    float *scales;        /* scratch [QUERIES][n_scales] */
    float *part[QUERIES]; /* out: [PART_VALUES + D_padded] */
};

enum { SCORE_STRIDE = CHUNK + 2 * LANES };

/* What a part holds: the largest score, the sum of exp(score - largest), and from PART_VALUES on,
 * aligned, the sum of values times those. */
enum { PART_MAX = 0, PART_SUM = 1, PART_VALUES = LANES };

/* ---- a path --------------------------------------------------------------------------------- */

/* The functions that differ from one instruction set to another; all give the same bits. */
struct path {
    const char *name;
    /* y[K] = x normalised. */
    void (*rmsnorm)(float *y, const float *x, const float *gain, int K, float epsilon);
    /* Turns heads of one row by the angles whose cosines and sines [D_rope/2] are given. */
    void (*rope)(float *x, int heads, int D, int D_rope, const float *cosine, const float *sine,
                 enum rope_layout layout);
    /* Block i of rows [0, rows) of a tile of `a` becomes silu(gate) * up, in the forms that `a`
     * asks for; gate and up are [rows][BLOCK], of which n numbers count. */
    void (*gate_block)(struct activations *a, int tile, int i, int rows, const float *gate,
                       const float *up, int n);
    /* y[r * stride + lane] += x[r][LANES] for `rows` rows and n lanes. */
    void (*add_panel)(float *y, size_t stride, const float *x, int rows, int n);
    void (*to_halves)(uint16_t *out, const float *x, size_t n);
    /* Codes of at most `most` and a scale for each SCALED numbers. */
    void (*to_codes)(int16_t *codes, float *scales, const float *x, int n, int most);
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

/* The plain path's functions, and the exponential that all paths compute. */
float plain_exp(float x);
void plain_rmsnorm(float *y, const float *x, const float *gain, int K, float epsilon);
void plain_rope(float *x, int heads, int D, int D_rope, const float *cosine, const float *sine,
                enum rope_layout layout);
void plain_gate_block(struct activations *a, int tile, int i, int rows, const float *gate,
                      const float *up, int n);
void plain_add_panel(float *y, size_t stride, const float *x, int rows, int n);
void plain_to_halves(uint16_t *out, const float *x, size_t n);
void plain_to_codes(int16_t *codes, float *scales, const float *x, int n, int most);
void plain_quantise(struct activations *a, int row, const float *x);
void plain_quantise_half(struct activations *a, int row, const float *x);
void plain_product(const struct matrix *w, int panel, const struct activations *a, int tile,
                   int rows, float *y, size_t stride);
void plain_attend(const struct attend *a);
void plain_merge(float *into, const float *part, int n);
void plain_finish(float *y, const float *part, int n);
extern const struct logit_ops plain_logits;

/* exp(x) for x <= 0 as sampling takes it, relative error below 2e-7; 0 below -87 and for a NaN. */
float plain_weight(float x);

/* ---- the threads ---------------------------------------------------------------------------- */

struct pool;
/* Starts n_threads - 1 workers; fewer when the system refuses. */
struct pool *pool_new(int n_threads);
void pool_free(struct pool *pool);
/* Threads that could be started, the caller's included. */
int pool_threads(const struct pool *pool);
/* Runs fn(arg, i, thread) for i in [0, n) and returns when all have ended; thread 0 is the caller,
 * and no two pieces with the same thread run at once. One caller at a time. */
void pool_run(struct pool *pool, void (*fn)(void *arg, int i, int thread), void *arg, int n);

/* How many threads suit a process that may run on `cores` cores, by the control groups that the
 * folders `proc` and `cgroup` show. A quota is rounded to the nearest whole number of cores: a
 * thread that has less than half a core would stop all the others for most of each period. */
int threads_for(int cores, const char *proc, const char *cgroup);

/* ---- the backend ---------------------------------------------------------------------------- */

enum { ROPE_TABLES = 4, MAX_THREADS = 1024 };

/* Cosines and sines of a step's rows for one list of frequencies. */
struct rope_table {
    const float *inv_freq; /* NULL: not made in this step */
    int pairs;
    float *cosine, *sine; /* [max_rows][D/2] */
};

enum { GROUP = 16 }; /* tiles that pass by a panel together: 256 rows */

/* What a thread works in. */
struct thread_scratch {
    struct activations own; /* a tile of inputs, where every thread makes its own */
    uint64_t made_for;      /* the number of the product that they are of */
    float *row;             /* [max_k] a row after its norm */
    float *outputs;         /* [2][GROUP * LANES][BLOCK] that are not finished */
};

struct cpu {
    struct backend head;
    const struct path *path;
    struct pool *pool;
    int max_rows, max_k;
    const struct step *step;        /* since step_begin */
    struct slab *slabs;             /* memory of the matrices, the newest first */
    struct activations act, hidden; /* inputs of a product; of an MLP's second one */
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
void cpu_drop_heads(struct cpu *cpu);

/* ---- inputs of products (inputs.c) ---------------------------------------------------------- */

void cpu_plan_inputs(struct cpu *cpu);
void cpu_drop_inputs(struct cpu *cpu);
/* `a` is to be M rows of K inputs, in the forms that n matrices ask for. */
void inputs_begin(struct activations *a, int M, int K, struct matrix *const *w, int n);
/* Makes the inputs of one tile out of rows [M][K], through the norm unless it is NULL; `row` is
 * scratch. */
void inputs_make_tile(const struct cpu *cpu, struct activations *a, int tile, const float *x,
                      const struct norm *norm, float *row);

static inline int tiles_of(int M) {
    return (M + LANES - 1) / LANES;
}
static inline int rows_of_tile(int M, int tile) {
    return M - tile * LANES < LANES ? M - tile * LANES : LANES;
}

/* The ops, by file. */
void op_embed(struct backend *b, float *y, const struct matrix *embedding);
void op_rope_write(struct backend *b, struct kv_cache *cache, int layer, const struct rope *rope,
                   int H, float *q, float *k, const float *v);
void op_gather(struct backend *b, float *y, const float *x, int K);
void op_matmul(struct backend *b, float *const *y, const float *x, const struct norm *norm,
               struct matrix *const *w, int n, int M);
void op_matmul_add(struct backend *b, float *sum, const float *x, struct matrix *w, int M);
void op_gated_mlp(struct backend *b, float *x, const struct norm *norm, struct matrix *gate,
                  struct matrix *up, struct matrix *down, int M);
enum status op_kv_new(struct backend *b, struct kv_cache **out, const struct kv_config *config,
                      struct err *err);
void op_kv_free(struct backend *b, struct kv_cache *cache);
void op_step_begin(struct backend *b, const struct step *step, struct kv_cache *cache);
void op_attention(struct backend *b, float *y, const float *q, const struct kv_cache *cache,
                  int layer, int H, float scale);

#endif
