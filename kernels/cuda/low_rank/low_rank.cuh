/* low_rank: the products of adapters (struct low_rank), for steps whose rows have different ones.
 *
 * A step lists its rows by adapter, in tiles of rows with the same one. A kernel's grid covers as
 * many tiles as any step of that many rows can have, and its blocks read from device memory which
 * rows and which adapter are theirs. So a captured launch serves every step, and matrices of an
 * adapter are read once per tile.
 *
 * Each number is computed by the operations of kernels/cpu/order.md, in their order: the bytes of a
 * row depend neither on its tile nor on the other rows. Rows without an adapter have the bytes of a
 * step without adapters. With float32 activations all bytes are the CPU's. With 16 bits the inputs
 * of a product with matrix A are rounded, as those of every product are.
 *
 *     low_rank_inner      inner[row][i][rank] = a of the row's adapter times x[row]
 *     then, by the use of the projection's outputs, one of
 *     low_rank_change     y[row] = y + change
 *     low_rank_sum        sum[row] = sum + (from + change)
 *     low_rank_activate   y[row] = activation(from + change) * (from + change of `up`)
 *
 * with change = (inner times b) * scale. `from` are a product's outputs in float32, so that an
 * output is rounded once.
 */
#ifndef PENSTOCK_CUDA_LOW_RANK_CUH
#define PENSTOCK_CUDA_LOW_RANK_CUH

#include "kernels/cuda/runtime/device.cuh"

enum { LOW_RANK_JOBS = 4 }; /* the most adapted projections with one input */

/* ---- the tiles of a step: tiles.cu ---------------------------------------------------------- */

/* Returns the most tiles of `rows` rows with adapters 0..max_adapters. */
int adapter_tiles_most(int rows, int max_adapters);

/* Fills tile[adapter_tiles_most(rows, max_adapters)] in host memory. Row r has adapter[row[r]], or
 * adapter[r] if `row` is NULL, for r < n; rows n..rows - 1 are padding of the base model.
 * `open` is work memory for max_adapters + 1 numbers. */
void adapter_tiles_fill(struct adapter_tile *tile, const int32_t *adapter, const int32_t *row,
                        int n, int rows, int max_adapters, int32_t *open);

/* ---- products: low_rank.cu ------------------------------------------------------------------ */

/* Memory for the products of one op. Ops follow one another in the stream. */
struct low_rank_workspace {
    enum dtype act;
    cudaStream_t stream;
    int max_rank;      /* 0: adapters are off, nothing is allocated */
    float *inner;      /* [max_rows][LOW_RANK_JOBS][max_rank] */
    float *outputs[2]; /* [max_rows][max_k] each: room for `from` of a caller */
    /* [2] of the step that is being queued, as in struct device_step; NULL: no adapters */
    const struct adapter_tiles *tiles;
};

/* Fails with STATUS_USAGE if the device is out of memory. low_rank_close may follow even then. */
enum status low_rank_open(struct low_rank_workspace *work, enum dtype act, int max_rank,
                          int max_rows, int max_k, cudaStream_t stream, struct err *err);
void low_rank_close(struct low_rank_workspace *work);

/* One of the projections of an op. */
struct low_rank_job {
    const struct low_rank *of; /* struct low_ranks; NULL: the projection is not adapted */
    void *y;                   /* [M][N] of act, for low_rank_change */
    const float *from;         /* [M][N], for the others */
    int N;
    float scale; /* of the projection */
};

/* Multiplies x[M][K] by the matrices A of n projections. The other functions read the results until
 * the next call. */
void low_rank_inner(const struct low_rank_workspace *work, const struct adapter_tiles *tiles,
                    const struct low_rank_job *jobs, int n, const void *x, int M, int K);
/* Adds the changes of n projections to their y. */
void low_rank_change(const struct low_rank_workspace *work, const struct adapter_tiles *tiles,
                     const struct low_rank_job *jobs, int n);
/* sum[M][N] = sum + (from + change). */
void low_rank_sum(const struct low_rank_workspace *work, const struct adapter_tiles *tiles,
                  const struct low_rank_job *job, void *sum);
/* y[M][N] = activation(from + change), with two jobs multiplied by (from + change) of the second
 * one. */
void low_rank_activate(const struct low_rank_workspace *work, const struct adapter_tiles *tiles,
                       const struct low_rank_job *jobs, int n, enum activation activation, void *y);

#endif
