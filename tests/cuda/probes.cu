#include "tests/cuda/probes.cuh"

#include "kernels/cuda/attention/kv_layout.cuh"
#include "kernels/cuda/runtime/ptx.cuh"

template <class T> __global__ void mma_probe(float *d, const uint32_t *a, const uint32_t *b) {
    grid_begin();
    const int lane = threadIdx.x;
    float sum[4];
    uint32_t left[4], right[2];
    for (int i = 0; i < 4; i++) sum[i] = d[4 * lane + i], left[i] = a[4 * lane + i];
    for (int i = 0; i < 2; i++) right[i] = b[2 * lane + i];
    mma_m16n8k16<T>(sum, left, right);
    for (int i = 0; i < 4; i++) d[4 * lane + i] = sum[i];
}

void probe_mma(enum dtype type, float *d, const uint32_t *a, const uint32_t *b,
               cudaStream_t stream) {
    auto kernel = type == DTYPE_F16 ? mma_probe<__half> : mma_probe<__nv_bfloat16>;
    launch(kernel, dim3(1), dim3(WARP), 0, stream, d, a, b);
}

__global__ void ldmatrix_probe(enum probe_load how, uint32_t *out, const uint16_t *tile) {
    grid_begin();
    uint16_t *s = dyn_smem<uint16_t>();
    const int lane = threadIdx.x;
    for (int i = lane; i < 256; i += WARP) s[i] = tile[i];
    __syncwarp();
    const uint16_t *row = s + lane % 16 * 16 + lane / 16 * 8;
    uint32_t four[4] = {};
    if (how == LOAD_X4)
        ldmatrix_x4(four, row);
    else
        ldmatrix_x4_trans(four, row);
    for (int i = 0; i < 4; i++) out[4 * lane + i] = four[i];
}

void probe_ldmatrix(enum probe_load how, uint32_t *out, const uint16_t *tile, cudaStream_t stream) {
    launch(ldmatrix_probe, dim3(1), dim3(WARP), 512, stream, how, out, tile);
}

__global__ void cp_async_probe(float *out, const float *in, int bytes) {
    grid_begin();
    float *s = dyn_smem<float>();
    const int lane = threadIdx.x;
    cp_async16(s + 4 * lane, in + 4 * lane, bytes);
    cp_async_commit();
    cp_async_wait<0>();
    __syncwarp();
    store16(out + 4 * lane, load16(s + 4 * lane));
}

void probe_cp_async(float *out, const float *in, int bytes, cudaStream_t stream) {
    launch(cp_async_probe, dim3(1), dim3(WARP), 512, stream, out, in, bytes);
}

__global__ void e4m3_probe(float *out) {
    grid_begin();
    out[threadIdx.x] = e4m3_moved((uint8_t)threadIdx.x);
}

void probe_e4m3(float *out, cudaStream_t stream) {
    launch(e4m3_probe, dim3(1), dim3(256), 0, stream, out);
}
