/* Matrix products y[M][N] = x[M][K] times w[N][K]^T. docs/cuda/products.md explains the
 * design.
 *
 * The bits of a row of y do not depend on M or on the row's position: the kernels for few and for
 * many rows sum K in one order, with the same splits and the same instructions.
 *
 * Weights are stored in tiles of 16 rows and slabs of 64 columns, permuted so that each lane of a
 * warp reads its share of a slab in pieces of 16 bytes, directly as operands of an mma. Activations
 * are float32, float16 or bfloat16:
 *   F16, BF16   products of that type, summed in float32 by tensor cores. Quantised weights and fp8
 *               are used as their codes, which are exact in both types; their scales are applied in
 *               float32. Weights of other types are rounded to the activations' type when packed.
 *               With GEMM_E4M3, rows of x are converted to e4m3 too, each with a scale
 *               (wgmma/quantise.cuh), and wgmma multiplies any number of rows.
 *   F32         fused multiply-adds in the order of K: the bits of the CPU's oracle mode.
 */
#ifndef PENSTOCK_CUDA_GEMM_CUH
#define PENSTOCK_CUDA_GEMM_CUH

#include "kernels/cuda/runtime/device.cuh"

/* Layouts of weights on the device. */
enum gemm_format {
    GEMM_FLOAT, /* float32 rows, for float32 activations */
    GEMM_ROWS,  /* plain rows of the activations' type: for cuBLAS, and our kernel for few rows */
    GEMM_16,    /* the activations' own type */
    GEMM_FP8,   /* e4m3 with a float32 scale per row, or per block of columns of a row */
    GEMM_E4M3,  /* the same with a scale per row, for x converted to e4m3 too: only for sm_90a */
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
    enum dtype act;  /* type of x and y */
    int N, K;        /* columns of y; columns of x */
    int tiles;       /* number of tiles of 16 rows */
    int slabs;       /* slabs of 64 columns per tile */
    int ranges;      /* ranges of a tile's slabs, for partial sums */
    int scale_slabs; /* slabs per scale; above 1 only for fp8 */
    uint8_t *codes;  /* [tiles][slabs][...], or rows: [16 * tiles][K] */
    uint8_t *scales; /* [tiles][slabs / scale_slabs][...], per block of 16, 32 or more columns */
    uint8_t *supers; /* [tiles][slabs / 4][...], per 256 columns */
};

/* Rows of a file, in device memory. */
struct gemm_source {
    enum dtype type;
    bool fp8; /* the rows are e4m3, whatever `type` is. NaN is read as 480. */
    const void *rows;
    /* fp8: [rows / scale_rows][K / scale_columns], both rounded up; scale_columns is a multiple of
     * 64, or at least K */
    const float *scales;
    int scale_rows, scale_columns;
    /* Let cuBLAS compute products of many rows, if it can be loaded and rows are whole slabs. Then
     * the residual must be y, and a row's bits depend on the batch. */
    bool cublas;
    /* Convert x to e4m3 (GEMM_E4M3) in products of fp8 rows, if they have one scale per row and K
     * is a multiple of 8. */
    bool e4m3;
};

/* Plans the layout of a matrix: sets all fields except the pointers and returns the bytes that it
 * needs. Ignores the pointers of `source`. */
size_t gemm_plan(struct gemm_weights *w, enum dtype act, const struct gemm_source *source, int N,
                 int K);

/* Places a planned matrix in device memory, aligned to 256 bytes. */
void gemm_place(struct gemm_weights *w, void *memory);

/* Packs `count` rows as rows first .. first + count of the matrix. `first` must be a multiple of
 * 16, and so must `count` unless these are the last rows. So several matrices of the same K can
 * become one, and a large one can be packed in parts. */
void gemm_pack(const struct gemm_weights *w, const struct gemm_source *source, int first, int count,
               cudaStream_t stream);

/* The operations on a product, in this order, before it is rounded and stored. */
struct gemm_epilogue {
    const float *bias = nullptr;    /* [N], added to the sums; NULL: zero */
    const void *residual = nullptr; /* [M][N] of act, added at the end; may be y; NULL: zero */
    bool float_out = false;         /* y is float32 for any act, as for logits */
    const float *up_bias = nullptr; /* the bias of a pair's `up`; NULL: zero */
    bool activate = false;          /* y = activation(sum); a pair's gate always has one */
    enum activation activation = ACTIVATION_SILU;
    float scale = 1; /* factor of y; before the residual, as is the cap */
    float cap = 0;   /* y becomes cap * tanh(y / cap); 0: no cap */
};

/* Device memory through which the blocks of one launch share K, if there are more than
 * GEMM_SKINNY_ROWS rows and too few blocks to fill the device. The bits do not depend on it. */
struct gemm_scratch {
    int32_t *counters; /* [GEMM_SCRATCH_COUNTERS], zero between launches */
    float *parts;
    size_t bytes; /* size of the parts; if a launch needs more, its blocks do not share K */
    void *wide;   /* rows for the generation's products, or NULL: only GEMM_E4M3 needs it */
    size_t wide_bytes;
    const struct gemm_generation *generation; /* with `wide`: its products */
};
/* The number of blocks that fill an H200: two on each of its 132 multiprocessors. */
enum { GEMM_FULL_BLOCKS = 264, GEMM_SCRATCH_COUNTERS = GEMM_FULL_BLOCKS / 2 };

/* The parts of a gemm_scratch that a kernel uses. */
struct gemm_shared {
    int32_t *counters;
    float *parts;
};

/* Returns the maximum bytes of parts for products of M rows and K inputs or outputs. */
size_t gemm_scratch_bytes(enum dtype act, int M, int K);

/* y[M][N] = x[M][K] times w^T. x is aligned to 16 bytes. The epilogue may be NULL, and so may
 * scratch except for GEMM_E4M3. */
void gemm(const struct gemm_weights *w, void *y, const void *x, int M,
          const struct gemm_epilogue *epilogue, cudaStream_t stream,
          const struct gemm_scratch *scratch = nullptr);

struct gemm_job;

/* Products by the instructions of one GPU generation (kernels/cuda/generation.cuh). Their sums have
 * the order of all other kernels. */
struct gemm_generation {
    /* Returns the bytes of gemm_scratch's `wide` for M rows of at most K inputs, or 0 if `multiply`
     * does not serve them. */
    size_t (*bytes)(enum dtype act, int M, int K);
    /* Can it multiply M rows by these weights, with this memory? */
    bool (*serves)(const struct gemm_weights *w, int M, const struct gemm_scratch *scratch);
    /* Multiplies more than GEMM_SKINNY_ROWS rows after an optional RMSNorm. */
    void (*multiply)(const struct gemm_job *jobs, int n, const void *x, const struct norm *norm,
                     int M, cudaStream_t stream, const struct gemm_scratch *scratch);
    /* The same for GEMM_E4M3 and any number of rows. NULL: not supported. */
    size_t (*e4m3_bytes)(int M, int K);
    void (*multiply_e4m3)(const struct gemm_job *jobs, int n, const void *x,
                          const struct norm *norm, int M, cudaStream_t stream,
                          const struct gemm_scratch *scratch);
};

/* One of several products of the same x. With `up` it multiplies a pair, a gate and its up
 * projection: y = activation(x times w^T) * (x times up^T), rounded once at the end. */
struct gemm_job {
    const struct gemm_weights *w;
    void *y;
    const struct gemm_epilogue *epilogue = nullptr; /* or NULL */
    const struct gemm_weights *up = nullptr;        /* or NULL */
};

/* Can two matrices be a pair in a product of M rows? They need equal shapes and formats, and
 * neither GEMM_FLOAT's kernel nor cuBLAS may be used. */
bool gemm_is_pair(const struct gemm_weights *gate, const struct gemm_weights *up, int M);

/* Can a product of M rows with this matrix normalise its rows itself? The norm must be an RMSNorm.
 * Products of a generation normalise rows as they arrange them. In others the rows must be few and
 * small, because every block of the kernel for few rows repeats the norm. */
bool gemm_takes_norm(const struct gemm_weights *w, const struct norm *norm, int M,
                     const struct gemm_scratch *scratch = nullptr);

/* Computes n products of the same x, for matrices of the same K and `act`. Products of one format
 * share a launch, up to GEMM_MAX_JOBS; the bits are those of gemm(). With a norm, which
 * gemm_takes_norm must allow for all matrices, x is normalised first, with the bits of rows_norm;
 * its gain is aligned to 16 bytes. */
void gemm_many(const struct gemm_job *jobs, int n, const void *x, const struct norm *norm, int M,
               cudaStream_t stream, const struct gemm_scratch *scratch = nullptr);

/* Memory traffic of a launch for more than GEMM_SKINNY_ROWS rows of n matrices: its blocks, and the
 * bytes of weights that each has requested before it needs the first. */
struct gemm_flight {
    int blocks, bytes;
};
struct gemm_flight gemm_flight(const struct gemm_job *jobs, int n, int M,
                               const struct gemm_scratch *scratch);

enum { GEMM_MAX_JOBS = 3 };

/* The maximum rows of the kernel for few rows. */
enum { GEMM_SKINNY_ROWS = 16 };

/* The maximum shared memory for x in a product with a norm. */
enum { GEMM_NORM_BYTES = 64 << 10 };

#endif
