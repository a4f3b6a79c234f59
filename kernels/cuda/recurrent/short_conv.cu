/* The short convolution. A thread takes a channel through the rows of a sequence, with its last
 * numbers in registers. It reads some rows ahead, so that a long prompt does not wait for each
 * row's load. */
#include "kernels/cuda/recurrent/recurrent.cuh"

#include "kernels/cuda/runtime/ordered.cuh"
#include "kernels/cuda/runtime/ptx.cuh"

enum { CONV_THREADS = 128, CONV_AHEAD = 4 };

template <class T> struct conv_args {
    T *y; /* may be x */
    const T *in, *out, *x;
    const float *w, *bias;
    int N, taps;
    int C, first; /* the layer's channels, and the first of these */
    struct state_rows rows;
};

/* The last MAX_TAPS numbers of a channel and their weights, the newest last: those before `skipped`
 * are not used. */
struct conv_window {
    float u[MAX_TAPS], w[MAX_TAPS], bias;
    int skipped;

    template <class T>
    __device__ __forceinline__ void load(const conv_args<T> &a, int channel, const float *state,
                                         bool begins) {
        skipped = MAX_TAPS - a.taps;
        channel += a.first;
        bias = a.bias ? a.bias[channel] : 0.0f;
#pragma unroll
        for (int t = 0; t < MAX_TAPS; t++) {
            const int at = (t - skipped) * a.C + channel;
            w[t] = t >= skipped ? a.w[at] : 0.0f;
            u[t] = t >= skipped && t < MAX_TAPS - 1 && !begins ? state[at] : 0.0f;
        }
    }
    /* Appends a number and returns the sum. */
    __device__ __forceinline__ float sum(float number) {
        float total = bias;
        u[MAX_TAPS - 1] = number;
#pragma unroll
        for (int t = 0; t < MAX_TAPS; t++)
            if (t >= skipped) total = fmaf(w[t], u[t], total);
#pragma unroll
        for (int t = 0; t < MAX_TAPS - 1; t++) u[t] = u[t + 1];
        return total;
    }
    template <class T>
    __device__ __forceinline__ void store(const conv_args<T> &a, float *state, int channel) const {
#pragma unroll
        for (int t = 0; t < MAX_TAPS - 1; t++)
            if (t >= skipped) state[(t - skipped) * a.C + a.first + channel] = u[t];
    }
};

template <class T>
__device__ __forceinline__ void conv_row(const conv_args<T> &a, conv_window *window, float number,
                                         int row, int channel) {
    const size_t at = (size_t)row * a.N + channel;
    const float sum = window->sum(number);
    a.y[at] = from_float<T>(a.out ? to_float(a.out[at]) * sum : ordered_silu(sum));
    const int after = a.rows.after[row];
    if (after >= 0) window->store(a, a.rows.states + after * a.rows.stride, channel);
}

template <class T>
__global__ void __launch_bounds__(CONV_THREADS) conv_kernel(const conv_args<T> a) {
    grid_begin();
    const int channel = blockIdx.x * CONV_THREADS + threadIdx.x, s = blockIdx.y;
    const int from = a.rows.row_start[s], end = a.rows.row_start[s + 1];
    if (channel >= a.N || from == end) return;
    float *state = a.rows.states + a.rows.state[s] * a.rows.stride;
    conv_window window;
    window.load(a, channel, state, a.rows.position[from] == 0);
    for (int row = from; row < end; row += CONV_AHEAD) {
        float number[CONV_AHEAD];
#pragma unroll
        for (int i = 0; i < CONV_AHEAD; i++) {
            const size_t at = (size_t)min(row + i, end - 1) * a.N + channel;
            number[i] = to_float(a.x[at]);
            if (a.in) number[i] = to_float(a.in[at]) * number[i];
        }
#pragma unroll
        for (int i = 0; i < CONV_AHEAD; i++)
            if (row + i < end) conv_row(a, &window, number[i], row + i, channel);
    }
    window.store(a, state, channel);
}

void recurrent_conv(enum dtype act, void *y, const void *in, const void *out, const void *x,
                    const struct state_rows *rows, const struct short_conv *conv,
                    cudaStream_t stream) {
    assert(conv->taps >= 2 && conv->taps <= MAX_TAPS && conv->N > 0 && !in == !out);
    const int C = short_conv_channels(conv);
    assert(conv->first >= 0 && conv->first + conv->N <= C);
    assert((size_t)short_conv_state(conv) <= rows->stride);
    const dim3 grid((unsigned)((conv->N + CONV_THREADS - 1) / CONV_THREADS), (unsigned)rows->S);
    for_activation(act, [&](auto zero) {
        using T = decltype(zero);
        const conv_args<T> args = {(T *)y,  (const T *)in, (const T *)out, (const T *)x,
                                   conv->w, conv->bias,    conv->N,        conv->taps,
                                   C,       conv->first,   *rows};
        launch(conv_kernel<T>, grid, dim3(CONV_THREADS), 0, stream, args);
    });
}
