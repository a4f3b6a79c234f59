/* Matrices for the tests of products: all kinds of sources, on the host and packed on the device.
 */
#ifndef PENSTOCK_TESTS_CUDA_GEMM_DATA_H
#define PENSTOCK_TESTS_CUDA_GEMM_DATA_H

#include "kernels/cuda/gemm/gemm.cuh"
#include "tests/cuda/support.h"

/* A kind of source. An fp8 matrix has one scale per row, or one per 3 rows by 64 or 128 columns. */
struct kind {
    const char *name;
    enum dtype type;
    int scale_columns; /* fp8: 0: one scale per row */
    bool fp8;
    int columns;       /* K is a multiple of this */
    bool e4m3 = false; /* fp8: the rows of x are converted to e4m3, too */
};
/* The first N_FORMATS include all formats of packed weights. */
enum { N_KINDS = 26, N_FORMATS = 19 };
extern const kind kinds[N_KINDS];
extern const enum dtype short_types[2];

/* Rows of one kind on the host, and the weights that they represent. */
struct rows {
    int N, K;
    std::vector<uint8_t> bytes;
    floats scales;
    floats weights; /* [N][K] */
};
rows make_rows(const kind &k, int N, int K, uint64_t seed);

/* fp8: the number of scales of a row, and the number of rows that share them. */
int across(const kind &k, int K);
int scale_rows(const kind &k);

/* Are the packed weights rounded to the type of activations? */
bool packed_as_act(const kind &k);

/* Returns K rounded up to whole blocks. */
int whole(const kind &k, int K);

/* Rows on the device, packed. */
struct matrix_on_device {
    struct gemm_weights w;
    buffer memory;
    static size_t plan(struct gemm_weights *w, const kind &k, enum dtype act, int N, int K);
    matrix_on_device(const kind &k, enum dtype act, int N, int K);
    matrix_on_device(const kind &k, enum dtype act, const rows &all);
    /* Packs rows as rows `first` and later of the matrix. */
    void pack(const kind &k, int first, const rows &a);
};

/* Random activations. */
floats make_x(enum dtype act, int M, int K);

/* Returns the bytes of y[M][N] after products of x, with a pair if the job has one, and after a
 * norm if given. */
std::vector<uint8_t> multiplied(const struct gemm_job *job, const buffer &x,
                                const struct norm *norm, int M);

#endif
