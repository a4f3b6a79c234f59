/* Matrices for the tests of products: of every kind of source, on the host and packed on the
 * device. */
#ifndef PENSTOCK_TESTS_CUDA_GEMM_DATA_H
#define PENSTOCK_TESTS_CUDA_GEMM_DATA_H

#include "kernels/cuda/gemm/gemm.cuh"
#include "tests/cuda/support.h"

/* A kind of source. fp8 has a scale a row, or one for 3 rows by 64 or 128 columns. */
struct kind {
    const char *name;
    enum dtype type;
    int scale_columns; /* fp8: 0 is a scale a row */
    bool fp8;
    int columns;       /* K is a multiple of it */
    bool e4m3 = false; /* fp8: rows of x become e4m3, too */
};
/* The first N_FORMATS have all formats of packed weights among them. */
enum { N_KINDS = 24, N_FORMATS = 19 };
extern const kind kinds[N_KINDS];
extern const enum dtype short_types[2];

/* Rows of one kind on the host, and the weights that they mean. */
struct rows {
    int N, K;
    std::vector<uint8_t> bytes;
    floats scales;
    floats weights; /* [N][K] */
};
rows make_rows(const kind &k, int N, int K, uint64_t seed);

/* The scales of a row of fp8, and the rows that share them. */
int across(const kind &k, int K);
int scale_rows(const kind &k);

/* Whether the packed weights are rounded to the type of activations. */
bool packed_as_act(const kind &k);

/* The next K that is whole blocks. */
int whole(const kind &k, int K);

/* Rows on the device, packed. */
struct matrix_on_device {
    struct gemm_weights w;
    buffer memory;
    static size_t plan(struct gemm_weights *w, const kind &k, enum dtype act, int N, int K);
    matrix_on_device(const kind &k, enum dtype act, int N, int K);
    matrix_on_device(const kind &k, enum dtype act, const rows &all);
    /* Packs rows as first.. of the matrix. */
    void pack(const kind &k, int first, const rows &a);
};

/* Random activations. */
floats make_x(enum dtype act, int M, int K);

/* The bytes of y[M][N] after products of x, perhaps of a pair and with a norm. */
std::vector<uint8_t> multiplied(const struct gemm_job *job, const buffer &x,
                                const struct norm *norm, int M);

#endif
