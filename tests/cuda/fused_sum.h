/* The sums of tensor cores as integers, after MMA-Sim (arXiv 2511.10909), which compared its model
 * with devices on random operands. The emulation computes the same rule another way
 * (tests/cuda_emu/sums.cpp), and on a GPU these are hard tests of the device. */
#ifndef PENSTOCK_TESTS_CUDA_FUSED_SUM_H
#define PENSTOCK_TESTS_CUDA_FUSED_SUM_H

#include "tests/cuda/support.h"

/* `terms` products are added to the start at once, each cut to a multiple of 2^(e - bits), if e is
 * the largest exponent of all terms. The result keeps `output` bits after the first. A factor below
 * 2^least has this exponent. */
struct fused_rule {
    int terms, bits, output, least;
};
constexpr int LEAST_F16 = -14, LEAST_BF16 = -126;

/* The rule of mma.sync m16n8k16 on this device. */
struct fused_rule mma_rule(enum dtype type);
/* Those of wgmma m64nNk16, and m64nNk32 of e4m3. */
struct fused_rule wgmma_rule(enum dtype type);
constexpr struct fused_rule E4M3_RULE = {32, 13, 13, -6};

/* Returns start + a[0] b[0] + .. + a[n-1] b[n-1]; n is a multiple of rule.terms. A NaN
 * makes a NaN; infinities are not modelled. */
float fused_sum(float start, const float *a, const float *b, int n, const struct fused_rule &rule);

/* Random numbers of both signs, of sizes from 2^-apart to 2^apart. */
floats scattered_numbers(uint64_t *state, size_t n, int apart);

#endif
