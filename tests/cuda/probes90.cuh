/* As probes.cuh, of the instructions of ptx90.cuh: kernels of one warpgroup, for sm_90a alone. */
#ifndef PENSTOCK_TESTS_CUDA_PROBES90_CUH
#define PENSTOCK_TESTS_CUDA_PROBES90_CUH

#include "kernels/cuda/runtime/device.cuh"

/* A matrix of 16 by 128 elements (e4m3: 32 by 16, 64 or 128) as it lies in shared memory. */
struct probe_matrix {
    const void *bytes; /* [PROBE_BYTES], copied to a multiple of 1,024 */
    uint64_t layout;   /* the descriptor, but for the place of the bytes */
    int at;            /* where in them the matrix begins */
    bool rows;         /* lines are rows: wgmma_m64k16_rows */
};
enum { PROBE_BYTES = 16 << 10, PROBE_COLUMNS = 128, PROBE_ROWS = 64 };

/* d[128 threads][64] += fragments a[128][4] times the matrix, of DTYPE_F16 or DTYPE_BF16. The
 * matrix arrives by a bulk copy. */
void probe_wgmma(enum dtype type, float *d, const uint32_t *a, const struct probe_matrix *b,
                 cudaStream_t stream);
/* The same of e4m3 and so many columns, d[128 threads][columns / 2]; without `adds` d becomes the
 * product alone. */
void probe_wgmma_e4m3(int columns, bool adds, float *d, const uint32_t *a,
                      const struct probe_matrix *b, cudaStream_t stream);

#endif
