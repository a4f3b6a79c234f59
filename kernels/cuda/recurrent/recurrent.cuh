/* recurrent: the ops of layers that keep a state per sequence. Each op computes a row by the
 * operations of kernels/cpu/order.md, in their order, token by token. So a row's bits depend only
 * on its sequence, and with float32 activations they are the CPU's. Activations of 16 bits are
 * rounded where an op stores them: after the convolution, after the sums of a matrix, at the end.
 * States are float32.
 *
 * Rows have type `act`; gains, taps, decays and biases are float32. Rows at position -1 are padding
 * and belong to no sequence; their outputs are undefined.
 */
#ifndef PENSTOCK_CUDA_RECURRENT_CUH
#define PENSTOCK_CUDA_RECURRENT_CUH

#include "kernels/cuda/recurrent/states.cuh"

/* y[M][N] = the convolution of x[M][N], gated by in and out, or by neither (struct short_conv). y
 * may be x. */
void recurrent_conv(enum dtype act, void *y, const void *in, const void *out, const void *x,
                    const struct state_rows *rows, const struct short_conv *conv,
                    cudaStream_t stream);

/* y[M][Hv][dv] = the gated delta rule of M rows (struct delta_rule). */
void recurrent_delta(enum dtype act, void *y, const struct delta_rows *of,
                     const struct state_rows *rows, const struct delta_rule *rule, int M,
                     cudaStream_t stream);

/* y[M][Hv][dv] = the state space of M rows (struct state_space). */
void recurrent_space(enum dtype act, void *y, const struct space_rows *of,
                     const struct state_rows *rows, const struct state_space *space, int M,
                     cudaStream_t stream);

/* y[n] = y * sigmoid(gate[n]): the gates of attention's outputs. */
void recurrent_gate(enum dtype act, void *y, const void *gate, size_t n, cudaStream_t stream);

/* The last part of an op with matrices, over `groups` groups of `each` numbers per row: y = SiLU(z)
 * * norm(y), with by_sigmoid norm(y) * sigmoid(z), or with gates_first norm(SiLU(z) * y). The norm
 * is an RMSNorm of each group. */
struct recurrent_ending {
    int groups, each;
    const float *gain; /* [each], or with gain_per_group [groups * each]; NULL: no norm */
    bool gain_per_group, gates_first;
    float epsilon;
    bool by_sigmoid; /* not with gates_first */
};
void recurrent_finish(enum dtype act, void *y, const void *z, const struct recurrent_ending *how,
                      int M, cudaStream_t stream);

#endif
