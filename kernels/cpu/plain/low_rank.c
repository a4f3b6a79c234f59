/* The plain path's products of adapters, in the order of order.md. */
#include <math.h>

#include "kernels/cpu/cpu.h"

void plain_low_rank_inner(float *inner, const float *x, const float *a, int rank, int K) {
    assert(rank > 0 && K > 0);
    for (int r = 0; r < rank; r++, a += K) {
        float s[LANES] = {0};
        for (int k = 0; k < K; k++) s[k % LANES] = fmaf(x[k], a[k], s[k % LANES]);
        inner[r] = tree_sum(s);
    }
}

void plain_low_rank_add(float *y, const float *inner, const float *b, size_t stride, int rank,
                        int n, float scale) {
    assert(rank > 0 && n > 0 && n <= LANES);
    for (int i = 0; i < n; i++) {
        float sum = 0;
        for (int r = 0; r < rank; r++) sum = fmaf(inner[r], b[(size_t)r * stride + (size_t)i], sum);
        y[i] = fmaf(sum, scale, y[i]);
    }
}
