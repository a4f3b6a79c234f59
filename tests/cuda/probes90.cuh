/* Like probes.cuh, for the instructions of ptx90.cuh: kernels of one warpgroup, only for sm_90a. */
#ifndef PENSTOCK_TESTS_CUDA_PROBES90_CUH
#define PENSTOCK_TESTS_CUDA_PROBES90_CUH

#include "kernels/cuda/runtime/device.cuh"

/* A matrix of 16 by 128 elements (e4m3: 32 by 16, 64 or 128) as stored in shared memory. */
struct probe_matrix {
    const void *bytes; /* [PROBE_BYTES], copied to an address that is a multiple of 1,024 */
    uint64_t layout;   /* the descriptor without the address */
    int at;            /* offset of the matrix in the bytes */
    bool rows;         /* lines are rows: wgmma_m64k16_rows */
};
enum { PROBE_BYTES = 16 << 10, PROBE_COLUMNS = 128, PROBE_ROWS = 64 };

/* d[128 threads][columns / 2] += fragments a[128][4] times the matrix, of DTYPE_F16 or DTYPE_BF16.
 * `columns` is 32, 64 or 128; with lines that are rows 128. A bulk copy loads the matrix. */
void probe_wgmma(enum dtype type, int columns, float *d, const uint32_t *a,
                 const struct probe_matrix *b, cudaStream_t stream);
/* The same for e4m3 and `columns` columns, d[128 threads][columns / 2]. Without `adds`, d is the
 * product without its old value. */
void probe_wgmma_e4m3(int columns, bool adds, float *d, const uint32_t *a,
                      const struct probe_matrix *b, cudaStream_t stream);

#endif
