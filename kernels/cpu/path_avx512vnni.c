/* The path of processors with AVX-512 VNNI (Ice Lake, Cascade Lake, Zen 4 and later). */
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/lanes.h"

#include "kernels/cpu/fast_attention.inc"
#include "kernels/cpu/fast_float.inc"
#include "kernels/cpu/fast_rows.inc"

static void product(const struct matrix *w, int panel, const struct activations *a, int tile,
                    int rows, float *y, size_t stride) {
    if (w->n_blocks)
        avx512vnni_product(w, panel, a, tile, rows, y, stride);
    else
        float_product(w, panel, a, tile, rows, y, stride);
}

const struct path path_avx512vnni = {
    .name = "avx512vnni",
    .rmsnorm = rmsnorm,
    .rope = rope,
    .silu_gate = silu_gate,
    .add = add,
    .to_halves = to_halves,
    .quantise = quantise,
    .product = product,
    .attend = attend,
    .merge = merge,
    .finish = finish,
};
