/* The plain path's products of adapters, in the order of order.md. */
#include <math.h>

#include "kernels/cpu/cpu.h"

/* Widens n <= LANES numbers, from number `at` on. */
static void widen(float *out, const void *numbers, enum dtype type, size_t at, int n) {
    assert(n > 0 && n <= LANES);
    dequantise(type, (const uint8_t *)numbers + dtype_bytes(type, at), out, (size_t)n);
}

static float inner_product(const float *x, const struct low_rank *change, int row, int K) {
    float s[LANES] = {0}, a[LANES];
    for (int k = 0; k < K; k += LANES) {
        const int n = K - k < LANES ? K - k : LANES;
        widen(a, change->a, change->type, (size_t)row * (size_t)K + (size_t)k, n);
        for (int i = 0; i < n; i++) s[i] = fmaf(x[k + i], a[i], s[i]);
    }
    return tree_sum(s);
}

void plain_low_rank_inner(float *const *inner, const float *const *x, int rows,
                          const struct low_rank *change, int first, int n, int K) {
    assert(rows > 0 && rows <= LOW_RANK_ROWS && n > 0 && first + n <= change->rank && K > 0);
    for (int row = 0; row < rows; row++)
        for (int r = 0; r < n; r++) inner[row][r] = inner_product(x[row], change, first + r, K);
}

void plain_low_rank_add(float *const *y, const float *const *inner, int rows,
                        const struct low_rank *change, int panel, int n, float scale) {
    const int rank = change->rank;
    assert(rows > 0 && rows <= LOW_RANK_ROWS && rank > 0 && n > 0 && n <= LANES);
    for (int row = 0; row < rows; row++) {
        float sum[LANES] = {0}, b[LANES];
        for (int r = 0; r < rank; r++) {
            widen(b, change->b_panels, change->type, low_rank_at(rank, panel * LANES, r), LANES);
            for (int i = 0; i < LANES; i++) sum[i] = fmaf(inner[row][r], b[i], sum[i]);
        }
        for (int i = 0; i < n; i++) y[row][i] = fmaf(sum[i], scale, y[row][i]);
    }
}
