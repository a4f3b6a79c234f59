/* The plain path's products of adapters, in the order of order.md. */
#include <math.h>

#include "kernels/cpu/cpu.h"

static float inner_product(const float *x, const float *a, int K) {
    float s[LANES] = {0};
    for (int k = 0; k < K; k++) s[k % LANES] = fmaf(x[k], a[k], s[k % LANES]);
    return tree_sum(s);
}

void plain_low_rank_inner(float *const *inner, const float *const *x, int rows, const float *a,
                          int rank, int K) {
    assert(rows > 0 && rows <= LOW_RANK_ROWS && rank > 0 && K > 0);
    for (int row = 0; row < rows; row++)
        for (int r = 0; r < rank; r++)
            inner[row][r] = inner_product(x[row], a + (size_t)r * (size_t)K, K);
}

void plain_low_rank_add(float *const *y, const float *const *inner, int rows, const float *b,
                        int rank, int n, float scale) {
    assert(rows > 0 && rows <= LOW_RANK_ROWS && rank > 0 && n > 0 && n <= LANES);
    for (int row = 0; row < rows; row++)
        for (int i = 0; i < n; i++) {
            float sum = 0;
            for (int r = 0; r < rank; r++) sum = fmaf(inner[row][r], b[r * LANES + i], sum);
            y[row][i] = fmaf(sum, scale, y[row][i]);
        }
}
