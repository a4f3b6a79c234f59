/* Types: GGUF blocks are read and compared with the vectors that tests/vectors/make_dequantise.py
 * made with the gguf package; all values of half precision are checked. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/gguf_sample.h"
#include "support/kernel_data.h"
#include "support/quantise.h"
#include "support/suite_main.h"

#define ONE_MORE(...) +1
enum { N_LOOKUP = 0 LOOKUP_TYPES(ONE_MORE) };

START_TEST(names_and_sizes) {
    ck_assert_str_eq(dtype_name(DTYPE_Q4_1), "q4_1");
    ck_assert_str_eq(dtype_name(DTYPE_BF16), "bf16");
    ck_assert_int_eq(dtype_block_elements(DTYPE_Q6_K), 256);
    ck_assert_int_eq(dtype_block_bytes(DTYPE_Q6_K), 210);
    ck_assert_uint_eq(dtype_bytes(DTYPE_Q4_0, 64), 36);
    ck_assert_uint_eq(dtype_bytes(DTYPE_F16, 3), 6);
    static const int unknown[] = {-1, 4, 5, 9, 15, 24, 31, 36, 43, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        ck_assert_ptr_null(dtype_name(unknown[i]));
        ck_assert_int_eq(dtype_block_elements(unknown[i]), 0);
        ck_assert_int_eq(dtype_block_bytes(unknown[i]), 0);
    }
}
END_TEST

/* Checks one type of the file of vectors. Returns false at its end. */
static bool check_vector(FILE *file) {
    int32_t head[3];
    if (fread(head, sizeof head, 1, file) != 1) return false;
    size_t n = (size_t)head[1], bytes = (size_t)head[2];
    ck_assert_uint_eq(dtype_bytes((enum dtype)head[0], n), bytes);
    uint8_t *data = mem_alloc(bytes);
    float *right = mem_alloc(n * sizeof *right), *got = mem_alloc(n * sizeof *got);
    ck_assert_uint_eq(fread(data, 1, bytes, file), bytes);
    ck_assert_uint_eq(fread(right, sizeof *right, n, file), n);
    dequantise((enum dtype)head[0], data, got, n);
    /* equal as numbers: the format does not define the sign of a zero */
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(got[i] == right[i], "%s: weight %zu is %a, not %a", dtype_name(head[0]), i,
                      (double)got[i], (double)right[i]);
    free(data), free(right), free(got);
    return true;
}

START_TEST(every_type_is_read_as_gguf_reads_it) {
    FILE *file = fopen("tests/vectors/dequantise.bin", "rb");
    ck_assert_ptr_nonnull(file);
    int types = 0;
    while (check_vector(file)) types++;
    ck_assert_int_eq(types, N_TYPES - 3 + N_LOOKUP); /* INT4, INT4H and INT8 are not in GGUF */
    fclose(file);
}
END_TEST

/* Enough blocks to use each entry of a grid, checked by a checksum of the weights that the gguf
 * package reads from them:
 *   s = 1; for each byte: s = (s * 1664525 + 1013904223) % 2**32; byte = s >> 24
 *   data[:, :2] = 0, 0x3c; zlib.crc32(dequantize(data.ravel(), kind).astype("<f4").tobytes()) */
START_TEST(every_entry_of_a_grid_is_the_format_s) {
    enum { BLOCKS = 1200 };
    static const struct {
        enum dtype type;
        uint32_t crc;
    } sums[] = {{DTYPE_IQ2_XXS, 0xf4c5aa48}, {DTYPE_IQ2_XS, 0xc21326bc}, {DTYPE_IQ2_S, 0x2730b33d},
                {DTYPE_IQ3_XXS, 0xc3fa7fb4}, {DTYPE_IQ3_S, 0x30876e46},  {DTYPE_IQ1_S, 0xfca5d575}};
    uint32_t state = 1;
    size_t bytes = dtype_bytes(sums[_i].type, BLOCKS * 256), each = bytes / BLOCKS;
    uint8_t *data = mem_alloc(bytes);
    float *weights = mem_alloc(BLOCKS * 256 * sizeof *weights);
    for (size_t i = 0; i < bytes; i++) data[i] = (state = state * 1664525 + 1013904223) >> 24;
    for (size_t i = 0; i < bytes; i += each) data[i] = 0, data[i + 1] = 0x3c;
    dequantise(sums[_i].type, data, weights, BLOCKS * 256);
    ck_assert_uint_eq(gguf_sample_crc32((uint8_t *)weights, BLOCKS * 256 * sizeof *weights),
                      sums[_i].crc);
    free(data), free(weights);
}
END_TEST

/* The INT8 blocks have the same weights, bit for bit. */
START_TEST(types_that_are_looked_up_are_kept_exactly) {
    static const enum dtype types[] = {DTYPE_IQ1_S, DTYPE_IQ2_XXS, DTYPE_IQ3_XXS, DTYPE_IQ3_S};
    uint8_t data[4 * 110], kept[4 * 8 * 36];
    float right[1024], got[1024], x[1024];
    for (int i = 0; i < 1024; i++) x[i] = (float)i;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        quantise(types[i], x, data, 1024);
        ck_assert_int_eq(dtype_kept(types[i]), DTYPE_INT8);
        keep_blocks(types[i], data, kept, 1024);
        dequantise(DTYPE_INT8, kept, got, 1024);
        dequantise(types[i], data, right, 1024);
        ck_assert_mem_eq(got, right, sizeof right);
    }
    ck_assert_int_eq(dtype_kept(DTYPE_IQ2_XS), DTYPE_F32);
    ck_assert_int_eq(dtype_kept(DTYPE_Q4_K), DTYPE_Q4_K);
}
END_TEST

/* Each weight is exactly (code - zero point) * scale. */
START_TEST(codes_of_folders_are_read) {
    uint8_t four[21] = {0}, half[19] = {0}, eight[36] = {0};
    float scale = -0x1.9p-7f, got[32];
    memcpy(four, &scale, 4), memcpy(eight, &scale, 4);
    memcpy(half, &(uint16_t){float_to_half(scale)}, 2);
    for (int zero = 0; zero <= 16; zero++) {
        four[4] = (uint8_t)zero;
        for (int i = 0; i < 16; i++) four[5 + i] = (uint8_t)(i | (15 - i) << 4);
        dequantise(DTYPE_INT4, four, got, 32);
        for (int i = 0; i < 16; i++) {
            ck_assert(got[i] == scale * (float)(i - zero));
            ck_assert(got[i + 16] == scale * (float)(15 - i - zero));
        }
        float same[32];
        memcpy(half + 2, four + 4, 17);
        dequantise(DTYPE_INT4H, half, same, 32);
        ck_assert_mem_eq(same, got, sizeof got);
    }
    for (int i = 0; i < 32; i++) eight[4 + i] = (uint8_t)(i * 8 - 128);
    dequantise(DTYPE_INT8, eight, got, 32);
    for (int i = 0; i < 32; i++) ck_assert(got[i] == scale * (float)(i * 8 - 128));
}
END_TEST

/* Returns the value of a half, by its definition. */
static double half_value(int half) {
    int exponent = half >> 10 & 31, fraction = half & 1023;
    double value = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return half & 0x8000 ? -value : value;
}

START_TEST(every_half_is_read_and_written_back) {
    for (int half = 0; half < 65536; half++) {
        float value = half_to_float((uint16_t)half);
        int exponent = half >> 10 & 31, fraction = half & 1023;
        float of_row[8]; /* several halves are read together */
        dequantise(DTYPE_F16, (uint16_t[8]){[5] = (uint16_t)half}, of_row, 8);
        ck_assert_mem_eq(&of_row[5], &value, sizeof value);
        if (exponent == 31 && fraction) {
            ck_assert(isnan(value));
            ck_assert_int_eq(float_to_half(value), half | 0x200); /* the NaN becomes quiet */
        } else {
            if (exponent == 31)
                ck_assert(isinf(value) && !signbit(value) == !(half >> 15));
            else
                ck_assert(value == (float)half_value(half) && !signbit(value) == !(half >> 15));
            ck_assert_int_eq(float_to_half(value), half);
        }
    }
}
END_TEST

/* For each pair of neighbours: a value just below the middle is rounded down, just above it up, and
 * the middle to the even one. */
START_TEST(floats_are_rounded_to_the_nearest_half) {
    for (int half = 0; half < 0x7c00; half++) {
        double low = half_value(half), high = half == 0x7bff ? 65536 : half_value(half + 1);
        float middle = (float)((low + high) / 2);
        ck_assert_int_eq(float_to_half(middle), half + (half & 1));
        ck_assert_int_eq(float_to_half(nextafterf(middle, 0)), half);
        ck_assert_int_eq(float_to_half(nextafterf(middle, INFINITY)), half + 1);
        ck_assert_int_eq(float_to_half(-middle), 0x8000 | (half + (half & 1)));
    }
    ck_assert_int_eq(float_to_half(1e30f), 0x7c00);
    ck_assert_int_eq(float_to_half(-INFINITY), 0xfc00);
    ck_assert_int_eq(float_to_half(0x1p-149f), 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels_dtype");
    TCase *core = tcase_create("types");
    tcase_add_test(core, names_and_sizes);
    tcase_add_test(core, every_type_is_read_as_gguf_reads_it);
    tcase_add_loop_test(core, every_entry_of_a_grid_is_the_format_s, 0, 6);
    tcase_add_test(core, types_that_are_looked_up_are_kept_exactly);
    tcase_add_test(core, codes_of_folders_are_read);
    tcase_add_test(core, every_half_is_read_and_written_back);
    tcase_add_test(core, floats_are_rounded_to_the_nearest_half);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
