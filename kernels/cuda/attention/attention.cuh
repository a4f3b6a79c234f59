/* Attention over the paged cache, for steps that mix decode rows and chunks of prompts.
 *
 * A context is cut into splits of SPLIT positions and spans of four splits, from position 0. One
 * warp computes the softmax of a split; the splits of a span are merged in order, and so are the
 * spans. The plan chooses the warps, which does not change the bits:
 *
 * A whole item is up to 64 query vectors; each of the block's four warps takes 16 of them through
 * all splits and merges them one by one.
 *
 * A chunk is a whole item of up to CHUNK_VECTORS query vectors for sm_90a (kernels/cuda/wgmma/).
 *
 * A split item is up to 16 query vectors and one span: each of the block's warps takes a split, and
 * the block merges them. If the rows see more than one span, the parts go to memory, and the last
 * of the rows' blocks merges them.
 *
 * A query vector is one row's vector of one head; those of the heads that share a key-value head
 * are packed: vector i of an item is row i / heads of its rows, head i % heads. */
#ifndef PENSTOCK_CUDA_ATTENTION_CUH
#define PENSTOCK_CUDA_ATTENTION_CUH

#include "kernels/cuda/attention/kv_layout.cuh"

constexpr int SPLIT = 64, SPAN_SPLITS = 4, SPAN = SPAN_SPLITS * SPLIT;
constexpr int WHOLE_VECTORS = 64, CHUNK_VECTORS = 128, SPLIT_VECTORS = 16,
              ATTENTION_WARPS = SPAN_SPLITS;
constexpr int ATTENTION_MAX_D = 256, ATTENTION_MAX_HEADS = WHOLE_VECTORS;
constexpr int ATTENTION_WIDEST = 512; /* numbers of a head that attention_float takes */

/* The work of one block for one key-value head (and one part of its query heads). A captured launch
 * has a fixed number of items; spare ones are zeros. */
struct attention_item {
    int32_t row, rows;             /* of one sequence, by position; 0 rows: no work */
    int32_t sequence;              /* line of the table */
    int32_t first_split, n_splits; /* that the rows see */
    int32_t span;                  /* of a split item; -1: a whole item */
    int32_t part;                  /* first vector of the rows' parts; -1: there are none */
    int32_t counter;               /* shared by the items of these rows, */
    int32_t n_neighbours;          /* and their number */
};

/* The work of a step, the same in all layers with one window. */
struct attention_plan {
    int n_items, n_counters;
    int n_whole;           /* of the items: for several rows, or for lack of parts */
    int n_chunks;          /* of the items: all of those, the last ones, or none */
    int64_t n_parts;       /* in vectors, for each key-value head's part */
    int heads, head_parts; /* query heads of a block, and blocks for a key-value head */
};

/* Query heads of a block, and the number of blocks for the query heads of a key-value head. */
int attention_heads(int H, int G);
int attention_head_parts(int H, int G);
/* The most items and counters of a step of at most M rows and S sequences, with contexts up to
 * `context` and at most max_parts parts. */
int attention_max_items(int M, int S, int context, int H, int G, int64_t max_parts);
int attention_max_counters(int M, int S);
/* Bytes of parts and of counters. */
size_t attention_parts_bytes(const struct attention_plan *plan, int G, int D);
size_t attention_counters_bytes(const struct attention_plan *plan, int G);

/* Lists the work of a step into items: host memory, room for attention_max_items. The longest
 * items of a sequence come first. A row sees positions max(0, p - window + 1)..p, or all up to p
 * if window is 0. At most max_parts parts are planned; rows that would need more become whole
 * items, which are chunks if these are wanted. */
void attention_make_plan(struct attention_plan *plan, struct attention_item *items,
                         const struct step *step, int H, int G, int window, int64_t max_parts,
                         bool chunks = false);

/* Pointers are device memory. */
struct attention_args {
    void *y;       /* [M][H][D] of `act` */
    const void *q; /* the same */
    struct kv_view kv;
    const int32_t *position; /* [M] */
    const int32_t *table;    /* [S][table_stride] */
    int table_stride, H;
    float scale;                        /* of the products */
    float cap;                          /* scores become cap * tanh(score / cap); 0: they stay */
    int window;                         /* as planned */
    const float *sinks;                 /* [H]; NULL: none */
    const struct attention_item *items; /* as planned */
    float *parts;                       /* attention_parts_bytes */
    int32_t *counters;                  /* zero before and after a launch */
};

/* y = softmax(scale * q . keys) . values for each row and head; head h reads key-value head h * G /
 * H. act is DTYPE_F16 or DTYPE_BF16, keys and values are of 16 or 8 bits; D is even and at most
 * ATTENTION_MAX_D, and a key is a whole number of 16-byte pieces. */
void attention_run(enum dtype act, const struct attention_args *args,
                   const struct attention_plan *plan, cudaStream_t stream);
/* A step's chunks can go through wgmma from so many rows on, if it has some: rows that want no
 * logits. */
constexpr int CHUNK_STEP_ROWS = 65;
/* Whether there are kernels for chunks over such a cache: sm_90a alone has them. */
bool attention_chunks_serve(const struct kv_view *kv);
/* Whether attention_run takes these, or attention_float where D is above ATTENTION_MAX_D. */
bool attention_fits(enum dtype act, const struct kv_view *kv);

/* The same in float32 arithmetic, for any cache and activations: every operation in the order of
 * kernels/cpu/order.md, so that with activations in float32 the bits are the CPU's. D is at most
 * ATTENTION_WIDEST. It needs no plan, but each row's line of the table: sequence[M]. */
void attention_float(enum dtype act, const struct attention_args *args, const int32_t *sequence,
                     int M, cudaStream_t stream);

#endif
