/* Gates and norms after a recurrent layer's matrices, and the gates of attention's outputs. */
#include "kernels/cuda/recurrent/recurrent.cuh"

#include "kernels/cuda/runtime/ordered.cuh"
#include "kernels/cuda/runtime/ptx.cuh"

enum { FINISH_WARPS = 4, GATE_THREADS = 256 };

/* One warp per group of a row. Both halves of the warp compute the same sums. */
template <class T>
__global__ void __launch_bounds__(FINISH_WARPS *WARP)
    finish_kernel(T *y, const T *z, const struct recurrent_ending how, size_t n) {
    grid_begin();
    const size_t unit = (size_t)blockIdx.x * FINISH_WARPS + threadIdx.x / WARP;
    if (unit >= n) return;
    const int lane = threadIdx.x % WARP, group = (int)(unit % how.groups);
    const float *gain = how.gain_per_group ? how.gain + (size_t)group * how.each : how.gain;
    const bool gates_first = how.gates_first || !how.gain;
    y += unit * how.each, z += unit * how.each;
    auto number = [&](int i) {
        return gates_first ? ordered_silu(to_float(z[i])) * to_float(y[i]) : to_float(y[i]);
    };
    float squares = 0.0f;
    for (int i = lane % PARTIAL_SUMS; i < how.each && how.gain; i += PARTIAL_SUMS)
        squares = fmaf(number(i), number(i), squares);
    const float all = __shfl_sync(FULL_MASK, ordered_tree(squares), 0);
    const float r = 1.0f / sqrtf(all / (float)how.each + how.epsilon);
    __syncwarp(); /* all lanes have read y */
    for (int i = lane; i < how.each; i += WARP) {
        float value = number(i);
        if (how.gain) value = value * r * gain[i];
        if (how.by_sigmoid)
            value = value / (1.0f + ordered_exp(-to_float(z[i])));
        else if (!gates_first)
            value = ordered_silu(to_float(z[i])) * value;
        y[i] = from_float<T>(value);
    }
}

void recurrent_finish(enum dtype act, void *y, const void *z, const struct recurrent_ending *how,
                      int M, cudaStream_t stream) {
    const size_t n = (size_t)M * (size_t)how->groups;
    assert(how->groups > 0 && how->each > 0 && M >= 0 && y != z);
    assert(!how->by_sigmoid || (how->gain && !how->gates_first));
    for_activation(act, [&](auto zero) {
        using T = decltype(zero);
        launch(finish_kernel<T>, dim3((unsigned)((n + FINISH_WARPS - 1) / FINISH_WARPS)),
               dim3(FINISH_WARPS * WARP), 0, stream, (T *)y, (const T *)z, *how, n);
    });
}

template <class T>
__global__ void __launch_bounds__(GATE_THREADS) sigmoid_kernel(T *y, const T *gate, size_t n) {
    grid_begin();
    const size_t i = (size_t)blockIdx.x * GATE_THREADS + threadIdx.x;
    if (i >= n) return;
    y[i] = from_float<T>(to_float(y[i]) / (1.0f + ordered_exp(-to_float(gate[i]))));
}

void recurrent_gate(enum dtype act, void *y, const void *gate, size_t n, cudaStream_t stream) {
    assert(y && gate && y != gate);
    for_activation(act, [&](auto zero) {
        using T = decltype(zero);
        launch(sigmoid_kernel<T>, dim3((unsigned)((n + GATE_THREADS - 1) / GATE_THREADS)),
               dim3(GATE_THREADS), 0, stream, (T *)y, (const T *)gate, n);
    });
}
