/* Matrix products y[M][N] = x[M][K] times w[N][K]^T. docs/cuda/kernels.md, "Products", has the
 * plan.
 *
 * A row of y has the same bits whatever M is and wherever the row stands: K is summed in one order,
 * cut at the same places, by the same instructions, in the kernel for few rows and in the one for
 * many.
 *
 * Weights lie on the device in tiles of 16 rows and slabs of 64 columns, shuffled so that each lane
 * of a warp reads its share of a slab in pieces of 16 bytes, directly as operands of an mma.
 * Activations are float32, float16 or bfloat16:
 *   F16, BF16   products of that type, summed in float32 by tensor cores. Quantised weights and fp8
 *               enter as their codes, which are exact in both types; their scales are applied in
 *               float32. Weights of other types are rounded to the activations' type when packed.
 *               With GEMM_E4M3 rows of x become e4m3, too, each with a scale (wgmma/quantise.cuh),
 *               and all rows, few or many, are multiplied by wgmma.
 *   F32         fused multiply-adds in the order of K: the bits of the CPU's oracle mode.
 */
#ifndef PENSTOCK_CUDA_GEMM_CUH
#define PENSTOCK_CUDA_GEMM_CUH

#include "kernels/cuda/runtime/device.cuh"

/* Layouts of weights on the device. */
enum gemm_format {
    GEMM_FLOAT, /* float32 rows, for float32 activations */
    GEMM_ROWS,  /* whole rows of the activations' type: for cuBLAS, and our kernel for few rows */
    GEMM_16,    /* the activations' own type */
    GEMM_FP8,   /* e4m3 with a float32 scale a row, or a block of columns of a row */
    GEMM_E4M3,  /* the same with a scale a row, for x that becomes e4m3 too: sm_90a alone */
    GEMM_Q8_0,
    GEMM_INT8,
    GEMM_Q4_0,
    GEMM_Q4_1,
    GEMM_INT4,
    GEMM_Q4_K,
    GEMM_Q5_0,
    GEMM_Q5_1,
    GEMM_Q5_K,
    GEMM_Q6_K,
    GEMM_Q2_K,
    GEMM_IQ4_XS,
    GEMM_MXFP4,
};

/* A matrix on the device. */
struct gemm_weights {
    enum gemm_format format;
    enum dtype act;  /* of x and y */
    int N, K;        /* columns of y; columns of x */
    int tiles;       /* of 16 rows */
    int slabs;       /* of 64 columns in a tile */
    int ranges;      /* that a tile's slabs are cut into, for partial sums */
    int scale_slabs; /* slabs that share a scale; above 1 for fp8 only */
    uint8_t *codes;  /* [tiles][slabs][...], or rows: [16 * tiles][K] */
    uint8_t *scales; /* [tiles][slabs / scale_slabs][...], of a block of 16, 32 or more columns */
    uint8_t *supers; /* [tiles][slabs / 4][...], of 256 columns */
};

/* Rows as a file has them, in device memory. */
struct gemm_source {
    enum dtype type;
    bool fp8; /* the rows are e4m3, whatever `type` says. NaN is read as 480. */
    const void *rows;
    /* fp8: [rows / scale_rows][K / scale_columns], both rounded up; scale_columns is a multiple of
     * 64, or at least K */
    const float *scales;
    int scale_rows, scale_columns;
    /* Let cuBLAS compute products of many rows, if it can be loaded and rows are whole slabs. Then
     * the residual must be y, and a row's bits depend on the batch. */
    bool cublas;
    /* Let x become e4m3 (GEMM_E4M3) in products of fp8 rows, if they have a scale a row and K is a
     * multiple of 8. */
    bool e4m3;
};

/* Plans the layout of a matrix: fills in all but the pointers and returns the bytes that it needs.
 * Ignores the pointers of `source`. */
size_t gemm_plan(struct gemm_weights *w, enum dtype act, const struct gemm_source *source, int N,
                 int K);

/* Puts a planned matrix into device memory, aligned to 256 bytes. */
void gemm_place(struct gemm_weights *w, void *memory);

/* Packs `count` rows as rows first .. first + count of the matrix. `first` is a multiple of 16, and
 * so is `count` unless these are the last. So several matrices of
 * the same K may become one, and a large one may arrive in parts. */
void gemm_pack(const struct gemm_weights *w, const struct gemm_source *source, int first, int count,
               cudaStream_t stream);

/* What is done to a product, in this order, before it is rounded and stored. */
struct gemm_epilogue {
    const float *bias = nullptr;    /* [N], added to the sums; or NULL */
    const void *residual = nullptr; /* [M][N] of act, added at the end; may be y; or NULL */
    bool float_out = false;         /* y is float32 whatever act is, as logits are */
    const float *up_bias = nullptr; /* the bias of a pair's `up`; or NULL */
    bool activate = false;          /* y = activation(sum); a pair's gate has one in any case */
    enum activation activation = ACTIVATION_SILU;
    float scale = 1; /* y is multiplied by it; before the residual, as the cap is */
    float cap = 0;   /* y becomes cap * tanh(y / cap); 0: it stays */
};

/* Device memory through which blocks of one launch share out K, if there are more than
 * GEMM_SKINNY_ROWS rows and too few blocks to fill the device. Bits do not depend on it. */
struct gemm_scratch {
    int32_t *counters; /* [GEMM_SCRATCH_COUNTERS], zero between launches */
    float *parts;
    size_t bytes; /* of the parts; with fewer than a launch needs, its blocks share nothing */
    void *wide;   /* for rows that wgmma multiplies, or NULL: only GEMM_E4M3 needs it */
    size_t wide_bytes;
};
/* Blocks that fill an H200: two on each of its 132 multiprocessors. */
enum { GEMM_FULL_BLOCKS = 264, GEMM_SCRATCH_COUNTERS = GEMM_FULL_BLOCKS / 2 };

/* Weights of GEMM_16 can be multiplied by wgmma from so many rows on. */
enum { GEMM_WIDE_ROWS = 65 };
/* The bytes that wgmma needs to multiply M rows of at most K inputs: sm_90a alone has it. */
size_t gemm_wide_bytes(enum dtype act, int M, int K);
/* Whether the current device is of sm_100's family, and the program has its kernel for them. */
bool gemm_has_tcgen05(void);

/* The bytes of `wide` that GEMM_E4M3 needs for M rows of K inputs, few rows too. */
size_t gemm_e4m3_bytes(int M, int K);

/* The most bytes of parts that products of M rows and K inputs or outputs want. */
size_t gemm_scratch_bytes(enum dtype act, int M, int K);

/* y[M][N] = x[M][K] times w^T. x is aligned to 16 bytes; epilogue and, but for GEMM_E4M3, scratch
 * may be NULL. */
void gemm(const struct gemm_weights *w, void *y, const void *x, int M,
          const struct gemm_epilogue *epilogue, cudaStream_t stream,
          const struct gemm_scratch *scratch = nullptr);

/* One of several products of the same x. With `up` it multiplies a pair, a gate and its up
 * projection: y = activation(x times w^T) * (x times up^T), rounded once at the end. */
struct gemm_job {
    const struct gemm_weights *w;
    void *y;
    const struct gemm_epilogue *epilogue = nullptr; /* or NULL */
    const struct gemm_weights *up = nullptr;        /* or NULL */
};

/* Whether two matrices can be a pair in a product of M rows: they have one shape and one format,
 * and neither GEMM_FLOAT's kernel nor cuBLAS is used. */
bool gemm_is_pair(const struct gemm_weights *gate, const struct gemm_weights *up, int M);

/* Whether a product of M rows with this matrix can norm its rows itself: it must be an RMSNorm, and
 * but for GEMM_E4M3 of few numbers, as every block of the kernel for few rows does it anew. */
bool gemm_takes_norm(const struct gemm_weights *w, const struct norm *norm, int M);

/* n products of the same x, for matrices of the same K and `act`. Those of one format share a
 * launch, up to GEMM_MAX_JOBS; the bits are those of gemm(). With a norm (or NULL), which
 * gemm_takes_norm must allow for all matrices, x is normed first, with the bits of rows_norm; its
 * gain is aligned to 16 bytes. */
void gemm_many(const struct gemm_job *jobs, int n, const void *x, const struct norm *norm, int M,
               cudaStream_t stream, const struct gemm_scratch *scratch = nullptr);

/* What a launch for more than GEMM_SKINNY_ROWS rows of n matrices has under way: its blocks, and
 * the bytes of weights that each has asked for before it needs the first. */
struct gemm_flight {
    int blocks, bytes;
};
struct gemm_flight gemm_flight(const struct gemm_job *jobs, int n, int M,
                               const struct gemm_scratch *scratch);

enum { GEMM_MAX_JOBS = 3 };

/* The most rows of the kernel for few rows. */
enum { GEMM_SKINNY_ROWS = 16 };

/* The most shared memory for x in a product with a norm. */
enum { GEMM_NORM_BYTES = 64 << 10 };

#endif
