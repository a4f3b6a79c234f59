/* Attention over the paged cache, for steps that mix decode rows and chunks of prompts.
 *
 * A context is divided into splits of SPLIT positions and spans of four splits, starting at
 * position 0. One warp computes the softmax of a split. The splits of a span are merged in order,
 * and then the spans. The plan assigns warps; this does not change the bits. There are three kinds
 * of items:
 *
 * A whole item has up to 64 query vectors. Each of the block's four warps takes 16 of them through
 * all splits and merges these one by one.
 *
 * A chunk is a whole item of up to CHUNK_VECTORS query vectors for sm_90a (kernels/cuda/wgmma/).
 *
 * A split item has up to 16 query vectors and one span. Each of the block's warps takes a split,
 * and the block merges them. If the rows see more than one span, the parts are written to memory,
 * and the last block of these rows merges them.
 *
 * Heads of more than 256 numbers, and latent attention, have the same items and their own tree
 * (kernels/cuda/wide_heads/). In latent attention items have up to 64 query vectors.
 *
 * A query vector is one row's vector of one head. Vectors of the heads that share a key-value head
 * are packed: vector i of an item is row i / heads of its rows, head i % heads. */
#ifndef PENSTOCK_CUDA_ATTENTION_CUH
#define PENSTOCK_CUDA_ATTENTION_CUH

#include "kernels/cuda/attention/kv_layout.cuh"

constexpr int SPLIT = 64, SPAN_SPLITS = 4, SPAN = SPAN_SPLITS * SPLIT;
constexpr int WHOLE_VECTORS = 64, CHUNK_VECTORS = 128, SPLIT_VECTORS = 16,
              ATTENTION_WARPS = SPAN_SPLITS;
constexpr int ATTENTION_MAX_D = 256;
constexpr int ATTENTION_MAX_HEADS = SPLIT_VECTORS; /* query heads per block: rows can be split */
constexpr int ATTENTION_MOST_HEADS = 64;           /* the same in latent attention */
constexpr int ATTENTION_WIDEST = 576;              /* the largest key of attention_float, */
constexpr int ATTENTION_WIDEST_VALUE = 512;        /* and its largest value */

/* The work of one block for one key-value head (and one part of its query heads). A captured launch
 * has a fixed number of items; unused ones are zeros. */
struct attention_item {
    int32_t row, rows;             /* adjacent rows of one sequence, by position; rows 0: no work */
    int32_t sequence;              /* index of its line in the table */
    int32_t first_split, n_splits; /* the splits that the rows see */
    int32_t span;                  /* the span of a split item; -1: a whole item */
    int32_t part;                  /* first vector of the rows' parts; -1: parts are not used */
    int32_t counter;               /* counter shared by the items of these rows, */
    int32_t n_neighbours;          /* and the number of these items */
};

/* The work of a step; all layers with the same window share it. */
struct attention_plan {
    int n_items, n_counters;
    int n_whole;           /* whole items: for several rows, or if parts do not fit */
    int n_chunks;          /* chunks: all whole items (they are last), or 0 */
    int64_t n_parts;       /* in vectors, per part of a key-value head's query heads */
    int heads, head_parts; /* query heads per block, and blocks per key-value head */
    int split_vectors;     /* vectors of a split item, at most: 16, 32 or 64 */
    bool is_fixed;         /* of a graph: later steps have the same number of items */
};

/* Returns the query heads per block, and the number of blocks for the query heads of a key-value
 * head. A block has at most most_heads (16, 32 or 64). */
int attention_heads(int H, int G, int most_heads = ATTENTION_MAX_HEADS);
int attention_head_parts(int H, int G, int most_heads = ATTENTION_MAX_HEADS);
/* Returns the maximum number of items and counters of a step with at most M rows and S sequences,
 * contexts up to `context`, and at most max_parts parts. */
int attention_max_items(int M, int S, int context, int H, int G, int64_t max_parts,
                        int most_heads = ATTENTION_MAX_HEADS);
int attention_max_counters(int M, int S);
/* Return the bytes of parts (values of D numbers) and of counters. */
size_t attention_parts_bytes(const struct attention_plan *plan, int G, int D);
size_t attention_counters_bytes(const struct attention_plan *plan, int G);

/* The positions that the rows of a step see: max(0, p - window + 1)..p, or all up to p if window is
 * 0. With both_ways also those after it up to the last one of its sequence's rows, with a window at
 * most up to p + window - 1. */
struct attention_sight {
    int window;
    bool both_ways;
};

/* The positions that a row sees; none if last is less than first. */
struct attention_range {
    int32_t first, last;
};

/* Returns the positions that a row of sequence s sees. Both ends grow with the row. */
struct attention_range attention_seen(const struct step *step, int s, int row,
                                      const struct attention_sight *sight);

/* Writes the work of a step to `items`: host memory for attention_max_items. The longest items of a
 * sequence are first. At most max_parts parts are planned; rows that need more become whole items,
 * or chunks if these are requested. */
void attention_make_plan(struct attention_plan *plan, struct attention_item *items,
                         const struct step *step, int H, int G, const struct attention_sight *sight,
                         int64_t max_parts, bool chunks = false,
                         int most_heads = ATTENTION_MAX_HEADS);

/* Pointers are device memory. */
struct attention_args {
    void *y;       /* [M][H][D] of `act` */
    const void *q; /* the same */
    struct kv_view kv;
    const int32_t *position;            /* [M] */
    const struct attention_range *seen; /* [M] attention_seen of each row */
    const int32_t *table;               /* [S][table_stride] */
    int table_stride, H;
    float scale;                        /* of the scores */
    float cap;                          /* scores become cap * tanh(score / cap); 0: no cap */
    const float *sinks;                 /* [H]; NULL: off */
    const float *slopes;                /* [H] of ALiBi; NULL: off */
    const struct attention_item *items; /* as planned */
    float *parts;                       /* attention_parts_bytes */
    int32_t *counters;                  /* zero before and after a launch */
};

struct attention_chunks;

/* y = softmax(scale * q . keys) . values for each row and head; head h reads key-value head h * G /
 * H. act is DTYPE_F16 or DTYPE_BF16. Keys and values have 16 or 8 bits. D is even and at most
 * ATTENTION_MAX_D, and a key is a whole number of 16-byte pieces. If the plan has chunks, `chunks`
 * runs them. */
void attention_run(enum dtype act, const struct attention_args *args,
                   const struct attention_plan *plan, cudaStream_t stream,
                   const struct attention_chunks *chunks = nullptr);

/* A step with chunks (rows without logits) has chunk items from this number of rows on. */
constexpr int CHUNK_STEP_ROWS = 65;

struct attention_launch;

/* Attention for chunks by the instructions of one GPU generation (kernels/cuda/generation.cuh). */
struct attention_chunks {
    /* Are there kernels for chunks over this cache? */
    bool (*serves)(const struct kv_view *kv);
    void (*run)(const attention_args &args, const attention_launch &how, int n_items,
                cudaStream_t stream);
};

/* Attention of wide heads (kernels/cuda/wide_heads/), whose keys have kv.D numbers and whose values
 * have D_value: other vectors, or if D_value is less than kv.D the first numbers of the keys. */
struct attention_wide {
    /* Returns the largest number of tiles of 16 query vectors that block_bytes of shared memory can
     * hold: 4, 2 or 1. 0: such heads have no kernel, and attention_float serves them. */
    int (*tiles)(enum dtype act, const struct kv_view *kv, int D_value, size_t block_bytes);
    /* y [M][H][D_value] of the plan's rows, if `tiles` is not 0; most_tiles is at most its result.
     * The plan has no chunks and at most 16 times that many heads per block. The bytes do not
     * depend on the tiles. */
    void (*run)(enum dtype act, const struct attention_args *args,
                const struct attention_plan *plan, int most_tiles, cudaStream_t stream);
};

/* Does attention_run support these, or attention_float for D above ATTENTION_MAX_D? */
bool attention_fits(enum dtype act, const struct kv_view *kv);

/* The same in float32 arithmetic, for any cache and activations: all operations in the order of
 * kernels/cpu/order.md, so with float32 activations the bits equal the CPU's. A value is the first
 * D_value numbers of kv.values' vectors, and y is [M][H][D_value]. D is at most ATTENTION_WIDEST,
 * D_value at most ATTENTION_WIDEST_VALUE. It uses the line of each row in the table, sequence[M],
 * instead of a plan. */
void attention_float(enum dtype act, const struct attention_args *args, int D_value,
                     const int32_t *sequence, int M, cudaStream_t stream);

#endif
