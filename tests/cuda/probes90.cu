#include "tests/cuda/probes90.cuh"

#include "kernels/cuda/runtime/ptx90.cuh"

/* The operands of a kernel: 16-bit numbers, or e4m3. */
template <class T, bool ROWS, int COLUMNS = PROBE_COLUMNS> struct Plain {
    static constexpr int SUMS = COLUMNS / 2;
    __device__ static void multiply(float (&d)[SUMS], const uint32_t (&a)[4], uint64_t b) {
        if constexpr (ROWS)
            wgmma_m64k16_rows<T>(d, a, b);
        else
            wgmma_m64k16<T>(d, a, b);
    }
};
template <int COLUMNS, bool ADDS> struct Bytes {
    static constexpr int SUMS = COLUMNS / 2;
    __device__ static void multiply(float (&d)[SUMS], const uint32_t (&a)[4], uint64_t b) {
        wgmma_e4m3<ADDS>(d, a, b);
    }
};

template <class W>
__global__ void wgmma_probe(float *d, const uint32_t *a, const struct probe_matrix b) {
    grid_begin();
    __shared__ uint64_t arrived;
    uint8_t *all = dyn_smem<uint8_t>(), *bytes = all + (1024 - shared_address(all) % 1024) % 1024;
    float sum[W::SUMS];
    uint32_t left[4];
    if (threadIdx.x == 0) {
        mbarrier_init(&arrived, 1);
        fence_proxy_async();
        mbarrier_arrive_expect(&arrived, PROBE_BYTES);
        bulk_copy(bytes, b.bytes, PROBE_BYTES, &arrived);
    }
    __syncthreads();
    mbarrier_wait(&arrived, 0);
    for (int i = 0; i < W::SUMS; i++) sum[i] = d[W::SUMS * threadIdx.x + i];
    for (int i = 0; i < 4; i++) left[i] = a[4 * threadIdx.x + i];
    wgmma_fence();
    W::multiply(sum, left, b.layout | (uint64_t)(shared_address(bytes + b.at) / 16));
    wgmma_commit();
    wgmma_wait<0>(sum);
    for (int i = 0; i < W::SUMS; i++) d[W::SUMS * threadIdx.x + i] = sum[i];
}

template <class T> static auto plain_probe(bool rows, int columns) {
    return rows            ? wgmma_probe<Plain<T, true>>
           : columns == 32 ? wgmma_probe<Plain<T, false, 32>>
           : columns == 64 ? wgmma_probe<Plain<T, false, 64>>
                           : wgmma_probe<Plain<T, false>>;
}
void probe_wgmma(enum dtype type, int columns, float *d, const uint32_t *a,
                 const struct probe_matrix *b, cudaStream_t stream) {
    auto kernel = type == DTYPE_F16 ? plain_probe<__half>(b->rows, columns)
                                    : plain_probe<__nv_bfloat16>(b->rows, columns);
    launch(kernel, dim3(1), dim3(128), PROBE_BYTES + 1024, stream, d, a, *b);
}

template <bool ADDS> static auto e4m3_probe(int columns) {
    return columns == 16   ? wgmma_probe<Bytes<16, ADDS>>
           : columns == 64 ? wgmma_probe<Bytes<64, ADDS>>
                           : wgmma_probe<Bytes<128, ADDS>>;
}
void probe_wgmma_e4m3(int columns, bool adds, float *d, const uint32_t *a,
                      const struct probe_matrix *b, cudaStream_t stream) {
    auto kernel = adds ? e4m3_probe<true>(columns) : e4m3_probe<false>(columns);
    launch(kernel, dim3(1), dim3(128), PROBE_BYTES + 1024, stream, d, a, *b);
}
