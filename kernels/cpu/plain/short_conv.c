/* The short convolution, one channel and one row at a time. */
#include <math.h>

#include "kernels/cpu/cpu.h"

/* Returns the convolution's sum for a channel; u has its last numbers, the oldest first. */
static float sum_of(const struct short_conv *conv, const float *u, int channel) {
    float sum = conv->bias ? conv->bias[channel] : 0;
    const float *w = conv->w + channel;
    for (int t = 0; t < conv->taps; t++) sum = fmaf(w[t * short_conv_channels(conv)], u[t], sum);
    return sum;
}

static void one_channel(const struct channels *c, int channel) {
    const int N = c->conv->N, C = short_conv_channels(c->conv), last = c->conv->taps - 1;
    float *state = c->state + c->conv->first + channel, u[MAX_TAPS];
    for (int t = 0; t < last; t++) u[t] = c->begins ? 0 : state[t * C];
    for (int r = 0; r < c->rows; r++) {
        const size_t at = (size_t)r * (size_t)N + (size_t)channel;
        u[last] = c->in ? c->in[at] * c->x[at] : c->x[at];
        float sum = sum_of(c->conv, u, c->conv->first + channel);
        c->y[at] = c->out ? c->out[at] * sum : plain_activation(sum, ACTIVATION_SILU);
        for (int t = 0; t < last; t++) u[t] = u[t + 1];
    }
    for (int t = 0; t < last; t++) state[t * C] = u[t];
}

void plain_short_conv(const struct channels *c) {
    assert(c->n > 0 && c->first >= 0 && c->first + c->n <= c->conv->N);
    assert(c->conv->taps >= 2 && c->conv->taps <= MAX_TAPS && !c->in == !c->out);
    for (int i = 0; i < c->n; i++) one_channel(c, c->first + i);
}
