/* kernels/cpu/order: the constants of the order of operations (order.md). All paths share them. */
#ifndef PENSTOCK_KERNELS_CPU_ORDER_H
#define PENSTOCK_KERNELS_CPU_ORDER_H

#include <stddef.h>

enum {
    LANES = 16,   /* partial sums of a reduction; outputs of a panel; rows of a tile */
    BLOCK = 32,   /* inputs that share one scale */
    CHUNK = 256,  /* positions of a context that share one pass of the softmax */
    QUERIES = 24, /* query vectors that one attention task processes together */
};

/* The exponential for sampling, for x <= 0: the same range reduction in products and sums without
 * fma, then Taylor's polynomial of degree 7. ln 2 is split so that n times its first part is exact.
 */
#define WEIGHT_LOW (-87.0f)
#define WEIGHT_LOG2E 1.44269504f
#define WEIGHT_LN2_HIGH 0.693359375f
#define WEIGHT_LN2_LOW 2.12194440e-4f /* the excess of the first part */
#define WEIGHT_P7 1.98412698e-4f
#define WEIGHT_P6 1.38888889e-3f
#define WEIGHT_P5 8.33333333e-3f
#define WEIGHT_P4 4.16666667e-2f
#define WEIGHT_P3 1.66666667e-1f
#define WEIGHT_P2 0.5f

/* exp(x) = 2^n * (1 + r + r^2 * q(r)). n is the integer nearest to x / ln 2 (by adding 1.5 * 2^23),
 * r = x - n * ln 2 with ln 2 in two floats, and q is a polynomial of degree 4 fitted by weighted
 * least squares. Below EXP_LOW the result is 0; above EXP_HIGH it is the value at EXP_HIGH. */
#define EXP_LOW (-0x1.5d589ep+6f) /* -87.3365: the smallest normal result */
#define EXP_HIGH 0x1.618p+6f      /* 88.375 */
#define EXP_LOG2E 0x1.715476p+0f
#define EXP_ROUND 0x1.8p+23f
#define EXP_LN2_HIGH 0x1.62e43p-1f
#define EXP_LN2_LOW (-0x1.05c61p-29f)
#define EXP_Q0 0x1.fffffcp-2f
#define EXP_Q1 0x1.55549p-3f
#define EXP_Q2 0x1.5558f4p-5f
#define EXP_Q3 0x1.123a6cp-7f
#define EXP_Q4 0x1.6a2352p-10f

/* erfc(a / sqrt(2)) = exp(-a * g(a)) for a >= 0. g is a polynomial of degree 9, fitted by weighted
 * least squares over 0..6; it grows beyond 6. */
#define GELU_G0 0x1.988454p-1f
#define GELU_G1 0x1.45f2d6p-2f
#define GELU_G2 0x1.29b016p-5f
#define GELU_G3 (-0x1.39ccp-8f)
#define GELU_G4 (-0x1.190954p-15f)
#define GELU_G5 0x1.c607d2p-13f
#define GELU_G6 (-0x1.02de62p-14f)
#define GELU_G7 0x1.3ec2fep-17f
#define GELU_G8 (-0x1.b3911cp-21f)
#define GELU_G9 0x1.0134bap-25f

/* The tanh form of GELU, 2 * sqrt(2 / pi) * (x + 0.044715 * x^3) = x * (T1 + T3 * x^2). */
#define GELU_T1 1.59576912f
#define GELU_T3 0.0713548163f

/* An activation block whose largest magnitude is below this is treated as zeros, so that the
 * inverse of its scale is finite. */
#define TINY 0x1p-100f

static inline size_t round_up(size_t n, size_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
}

#endif
