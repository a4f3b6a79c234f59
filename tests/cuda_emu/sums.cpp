/* The sums of tensor cores, as MMA-Sim (Xie et al. 2025, arXiv 2511.10909) found them by comparing
 * devices with models on random operands. The start and the products of a step are one sum:
 *
 *   1. e is the largest exponent of all terms; that of a product is the sum of its factors'.
 *   2. Each term is cut to a multiple of 2^(e - bits), toward zero.
 *   3. The integers are added exactly. The result is cut to the bits of the output, toward zero.
 *
 *   | products                | products of a sum | bits of a term | of the output |
 *   | 16 bits, sm_80 to sm_89 | 8, then 8         | 24             | 23            |
 *   | 16 bits, sm_90 on       | 16                | 25             | 23            |
 *   | e4m3 by wgmma, sm_90    | 32                | 13             | 13            |
 *
 * DESIGN: products of elements are exact as doubles, so a term is one product, one scaling and one
 * conversion to an integer, which cuts toward zero. Eight columns are computed together, so the
 * compiler can make vectors of the loops. Sums of integers below 2^53 are exact as doubles. */
#include <algorithm>
#include <math.h>
#include <string.h>

#include "include/emu_ptx90.h"
#include "internal.h"

namespace emu {

enum { ZERO_EXPONENT = -126, EIGHT = 8 };
#define CLONES                                                                                     \
    __attribute__((target_clones("default", "avx2"))) /* wider vectors, if there are any */

sum_rule rule_of_mma() {
    return architecture() < 90 ? sum_rule{8, 24, 23} : sum_rule{16, 25, 23};
}
sum_rule rule_of_wgmma(int width) {
    return width == 1 ? sum_rule{32, 13, 13} : sum_rule{16, 25, 23};
}

/* The exponent of the smallest normal element. */
static int least_exponent(element_function element) {
    return element == half_element ? -14 : element == e4m3_element ? -6 : -126;
}

static inline int exponent_of(float x, int least) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, x) & 0x7fffffff;
    const int exponent = std::max((int)(bits >> 23) - 127, least);
    return bits ? exponent : ZERO_EXPONENT;
}

CLONES void row_factors::measure(int depth, element_function element) {
    const int least = least_exponent(element);
    int most = least;
    for (int k = 0; k < depth; k++) {
        const int mine = exponent_of(value[k], least);
        exponent[k] = (int16_t)mine;
        most = std::max(most, mine);
    }
    special = most == 128;
}

CLONES void column_factors::measure(int depth, int columns, element_function element) {
    const int least = least_exponent(element);
    memset(special, 0, sizeof special);
    for (int k = 0; k < depth; k++)
        for (int c = 0; c < columns; c++) {
            const int mine = exponent_of(value[k][c], least);
            exponent[k][c] = (int16_t)mine;
            special[c] |= mine == 128;
        }
}

/* Returns 2^n for exponents of normal doubles. */
static double power_of_two(int n) {
    return __builtin_bit_cast(double, (uint64_t)(n + 1023) << 52);
}

/* Returns the float next to x toward zero, with `bits` bits after the first. */
static float cut(double x, int bits) {
    const float nearest = (float)x;
    uint32_t word = __builtin_bit_cast(uint32_t, nearest);
    if (fabs(x) < 0x1p128 && fabs((double)nearest) > fabs(x)) word--;
    return __builtin_bit_cast(float, word & ~0u << (23 - bits));
}

/* A sum with an infinity or a NaN is that of its terms in any order. */
static float special_sum(float sum, const float *a, const column_factors &b, int first, int column,
                         int terms) {
    double all = sum;
    for (int k = 0; k < terms; k++) all += (double)a[k] * (double)b.value[first + k][column];
    return isnan(all) ? __builtin_bit_cast(float, 0x7fffffff) : (float)all;
}

/* One sum of `terms` products, from number `first`, for each of 8 columns. */
CLONES static void add_fused(float *sums, const float *a, const int16_t *exponents,
                             const column_factors &b, int first, int column, const sum_rule &rule) {
    int16_t most[EIGHT];
    double scale[EIGHT], total[EIGHT];
    for (int c = 0; c < EIGHT; c++) most[c] = (int16_t)exponent_of(sums[c], -126);
    for (int k = 0; k < rule.terms; k++)
        for (int c = 0; c < EIGHT; c++)
            most[c] =
                std::max(most[c], (int16_t)(exponents[k] + b.exponent[first + k][column + c]));
    for (int c = 0; c < EIGHT; c++) {
        scale[c] = power_of_two(rule.bits - most[c]);
        total[c] = (double)(int32_t)((double)sums[c] * scale[c]);
    }
    for (int k = 0; k < rule.terms; k++)
        for (int c = 0; c < EIGHT; c++)
            total[c] +=
                (double)(int32_t)((double)a[k] * (double)b.value[first + k][column + c] * scale[c]);
    for (int c = 0; c < EIGHT; c++)
        sums[c] = cut(total[c] * power_of_two(most[c] - rule.bits), rule.output);
}

/* The same, also for infinities and NaN. */
static void add_step(float *sums, const row_factors &a, const column_factors &b, int first,
                     int column, const sum_rule &rule) {
    float before[EIGHT];
    memcpy(before, sums, sizeof before);
    if (!a.special) add_fused(sums, a.value + first, a.exponent + first, b, first, column, rule);
    for (int c = 0; c < EIGHT; c++)
        if (a.special || b.special[column + c] || !isfinite(before[c]))
            sums[c] = special_sum(before[c], a.value + first, b, first, column + c, rule.terms);
}

void add_products(float *sums, const row_factors &a, const column_factors &b, int columns,
                  int depth, const sum_rule &rule) {
    for (int first = 0; first < depth; first += rule.terms)
        for (int column = 0; column < columns; column += EIGHT)
            add_step(sums + column, a, b, first, column, rule);
}

} // namespace emu
