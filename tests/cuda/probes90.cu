#include "tests/cuda/probes90.cuh"

#include "kernels/cuda/runtime/ptx90.cuh"

template <class T>
__global__ void wgmma_probe(float *d, const uint32_t *a, const struct probe_matrix b) {
    grid_begin();
    __shared__ uint64_t arrived;
    uint8_t *all = dyn_smem<uint8_t>(), *bytes = all + (1024 - shared_address(all) % 1024) % 1024;
    float sum[PROBE_COLUMNS / 2];
    uint32_t left[4];
    if (threadIdx.x == 0) {
        mbarrier_init(&arrived, 1);
        fence_proxy_async();
        mbarrier_arrive_expect(&arrived, PROBE_BYTES);
        bulk_copy(bytes, b.bytes, PROBE_BYTES, &arrived);
    }
    __syncthreads();
    mbarrier_wait(&arrived, 0);
    for (int i = 0; i < PROBE_COLUMNS / 2; i++) sum[i] = d[PROBE_COLUMNS / 2 * threadIdx.x + i];
    for (int i = 0; i < 4; i++) left[i] = a[4 * threadIdx.x + i];
    wgmma_fence();
    wgmma_m64k16<T>(sum, left, b.layout | (uint64_t)(shared_address(bytes + b.at) / 16));
    wgmma_commit();
    wgmma_wait<0>(sum);
    for (int i = 0; i < PROBE_COLUMNS / 2; i++) d[PROBE_COLUMNS / 2 * threadIdx.x + i] = sum[i];
}

void probe_wgmma(enum dtype type, float *d, const uint32_t *a, const struct probe_matrix *b,
                 cudaStream_t stream) {
    auto kernel = type == DTYPE_F16 ? wgmma_probe<__half> : wgmma_probe<__nv_bfloat16>;
    launch(kernel, dim3(1), dim3(128), PROBE_BYTES + 1024, stream, d, a, *b);
}
