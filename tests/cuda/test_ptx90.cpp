/* The instructions of ptx90.cuh compared with the PTX manual: a warpgroup's product with a matrix
 * that a bulk copy has written to shared memory, in each of the four layouts. Under emulation this
 * tests their emulated versions, on a device of sm_90 the functions themselves. */
#include <algorithm>
#include <math.h>

#include "tests/cuda/probes90.cuh"

#include "tests/cuda/fused_sum.h"
#include "tests/cuda/support.h"

constexpr int THREADS = 128, DEPTH = 16, ROWS = PROBE_ROWS;
constexpr int BYTES_DEPTH = 32; /* for e4m3 */

/* "Shared memory matrix layout", K-major: the offset of 8 adjacent k of a column. Lines of a column
 * follow one another, and the swizzle permutes their pieces of 16 bytes. Without a swizzle, 8
 * pieces of adjacent columns follow one another. */
struct layout {
    const char *name;
    uint64_t mode;
    int line, leading, stride;
    int step;  /* which 16 adjacent k of the line */
    bool rows; /* "MN-major": a line holds 64 adjacent columns of one k */
};
static const layout layouts[] = {
    {"no swizzle", 0, 16, 128, 256, 0},    {"swizzle of 128", 1, 128, 16, 1024, 0},
    {"step 3 of 4", 1, 128, 16, 1024, 3},  {"swizzle of 64", 2, 64, 16, 512, 0},
    {"step 1 of 2", 2, 64, 16, 512, 1},    {"swizzle of 32", 3, 32, 16, 256, 0},
    {"rows", 1, 128, 1024, 2048, 0, true}, {"rows, turned", 1, 128, 2048, 1024, 0, true},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };
static int place_of(const layout &l, int column, int half) {
    const int group = column / 8, in_group = column % 8, piece = 2 * l.step + half;
    if (l.mode == 0) return group * 256 + half * 128 + in_group * 16;
    const int flips = l.line == 128 ? in_group : l.line == 64 ? in_group / 2 : in_group / 4;
    return group * l.stride + in_group * l.line + (piece ^ flips) * 16;
}

static floats whole_numbers(uint64_t *state, size_t n) {
    floats values(n);
    for (float &value : values) value = (float)(random_below(state, 17) - 8);
    return values;
}

/* The same offset for one element of a matrix whose lines are rows. */
static size_t place_in_rows(const layout &l, int column, int k) {
    return (size_t)(column / 64 * l.leading + k / 8 * l.stride + k % 8 * l.line +
                    (column % 64 / 8 ^ k % 8) * 16 + column % 8 * 2);
}

/* The matrix [column][32 bytes of k] in its layout. */
static std::vector<uint8_t> image_of(const layout &l, const std::vector<uint8_t> &elements) {
    std::vector<uint8_t> image(PROBE_BYTES, 0xff);
    const int columns = (int)elements.size() / 32;
    for (int column = 0; l.rows && column < columns; column++)
        for (int k = 0; k < DEPTH; k++)
            std::copy_n(&elements[(size_t)(column * DEPTH + k) * 2], 2,
                        &image[place_in_rows(l, column, k)]);
    for (int column = 0; !l.rows && column < columns; column++)
        for (int half = 0; half < 2; half++)
            std::copy_n(&elements[(size_t)(column * 32 + half * 16)], 16,
                        &image[(size_t)place_of(l, column, half)]);
    return image;
}
static struct probe_matrix matrix_of(const layout &l, const buffer &bytes) {
    return {bytes.data,
            (uint64_t)(l.leading / 16) << 16 | (uint64_t)(l.stride / 16) << 32 | l.mode << 62,
            l.step * 32, l.rows};
}

/* The row of a thread's elements, and of its sums. */
static int row_of(int thread, int which) {
    return thread / 32 * 16 + thread % 32 / 4 + which % 2 * 8;
}

/* a[row][k] times b[column][k], added to `start` [thread][sum], compared with the rule of the
 * device's sums to the last bit. */
static void check_product(const layout &l, enum dtype type, const floats &a, const floats &b,
                          const floats &start) {
    const struct fused_rule rule = wgmma_rule(type);
    const int columns = (int)b.size() / DEPTH, sums = columns / 2;
    floats left(THREADS * 8), want((size_t)(THREADS * sums));
    for (int t = 0; t < THREADS; t++) {
        for (int i = 0; i < 8; i++)
            left[(size_t)(8 * t + i)] =
                a[(size_t)(row_of(t, i / 2) * DEPTH + t % 4 * 2 + i % 2 + i / 4 * 8)];
        for (int i = 0; i < sums; i++)
            want[(size_t)(sums * t + i)] =
                fused_sum(start[(size_t)(sums * t + i)], &a[(size_t)(row_of(t, i / 2) * DEPTH)],
                          &b[(size_t)((i / 4 * 8 + t % 4 * 2 + i % 2) * DEPTH)], DEPTH, rule);
    }
    buffer x(packed(type, left)), bytes(image_of(l, packed(type, b))), out(start);
    const struct probe_matrix matrix = matrix_of(l, bytes);
    probe_wgmma(type, columns, out.as<float>(), x.as<uint32_t>(), &matrix, test_stream());
    check_close(out.read<float>(), want, 0, 0, l.name);
}

START_TEST(products_of_warpgroups_are_right) {
    const layout &l = layouts[_i / 2];
    for (int columns = l.rows ? 128 : 32; columns <= PROBE_COLUMNS; columns *= 2) {
        uint64_t state = 9;
        const floats a = whole_numbers(&state, ROWS * DEPTH),
                     b = whole_numbers(&state, (size_t)(columns * DEPTH));
        check_product(l, _i % 2 ? DTYPE_BF16 : DTYPE_F16, a, b,
                      whole_numbers(&state, (size_t)(THREADS * columns / 2)));
    }
}
END_TEST

/* Terms far apart, so that most lose bits: the sums of mma.sync (test_ptx.cpp). */
START_TEST(sums_of_warpgroups_are_cut_as_on_a_device) {
    const enum dtype type = _i % 2 ? DTYPE_BF16 : DTYPE_F16;
    for (int columns = 32; columns <= PROBE_COLUMNS; columns *= 2) {
        uint64_t state = 90 + (uint64_t)_i;
        const floats a = rounded(type, scattered_numbers(&state, ROWS * DEPTH, _i)),
                     b = rounded(type, scattered_numbers(&state, (size_t)(columns * DEPTH), _i));
        check_product(layouts[0], type, a, b,
                      scattered_numbers(&state, (size_t)(THREADS * columns / 2), 2 * _i));
    }
}
END_TEST

/* The code of a whole number from -8 to 8: 3 bits of mantissa, exponents from 2^-6. */
static uint8_t e4m3_code(float value) {
    const int size = (int)fabsf(value), exponent = size > 0 ? ilogbf((float)size) : 0;
    const int code = size == 0 ? 0 : (exponent + 7) * 8 + (size << 3 >> exponent) - 8;
    return (uint8_t)(code | (value < 0 ? 128 : 0));
}
static std::vector<uint8_t> e4m3_codes(const floats &values) {
    std::vector<uint8_t> codes;
    for (float value : values) codes.push_back(e4m3_code(value));
    return codes;
}

static float e4m3_value(uint8_t code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const float size =
        exponent ? ldexpf((float)(8 + mantissa), exponent - 10) : ldexpf((float)mantissa, -9);
    return code & 128 ? -size : size;
}
static floats e4m3_values(const std::vector<uint8_t> &codes) {
    floats values;
    for (uint8_t code : codes) values.push_back(e4m3_value(code));
    return values;
}

/* The same for codes of e4m3, whose sums have 13 bits after the first. */
static void check_e4m3(const layout &l, int columns, bool adds, const std::vector<uint8_t> &a,
                       const std::vector<uint8_t> &b, const floats &start) {
    const int sums = columns / 2;
    const floats left_values = e4m3_values(a), right_values = e4m3_values(b);
    std::vector<uint8_t> left(THREADS * 16);
    floats want((size_t)(THREADS * sums));
    for (int t = 0; t < THREADS; t++) {
        for (int i = 0; i < 16; i++)
            left[(size_t)(16 * t + i)] =
                a[(size_t)(row_of(t, i / 4) * BYTES_DEPTH + t % 4 * 4 + i % 4 + i / 8 * 16)];
        for (int i = 0; i < sums; i++) {
            const int column = i / 4 * 8 + t % 4 * 2 + i % 2;
            want[(size_t)(sums * t + i)] =
                fused_sum(adds ? start[(size_t)(sums * t + i)] : 0,
                          &left_values[(size_t)(row_of(t, i / 2) * BYTES_DEPTH)],
                          &right_values[(size_t)(column * BYTES_DEPTH)], BYTES_DEPTH, E4M3_RULE);
        }
    }
    buffer x(left), bytes(image_of(l, b)), out(start);
    const struct probe_matrix matrix = matrix_of(l, bytes);
    probe_wgmma_e4m3(columns, adds, out.as<float>(), x.as<uint32_t>(), &matrix, test_stream());
    check_close(out.read<float>(), want, 0, 0, l.name);
}

/* For each width, with and without an old sum. */
START_TEST(products_of_e4m3_are_right) {
    const int columns = _i / 2 % 3 == 0 ? 16 : _i / 2 % 3 == 1 ? 64 : 128;
    uint64_t state = 11;
    const floats a = whole_numbers(&state, ROWS * BYTES_DEPTH),
                 b = whole_numbers(&state, (size_t)columns * BYTES_DEPTH);
    check_e4m3(layouts[_i / 6], columns, _i % 2 == 0, e4m3_codes(a), e4m3_codes(b),
               whole_numbers(&state, (size_t)(THREADS * columns / 2)));
}
END_TEST

/* All codes except NaN. */
static std::vector<uint8_t> any_codes(uint64_t *state, size_t n) {
    std::vector<uint8_t> codes(n);
    for (uint8_t &code : codes)
        code = (uint8_t)(random_below(state, 127) + 128 * random_below(state, 2));
    return codes;
}
START_TEST(sums_of_e4m3_are_cut_as_on_a_device) {
    uint64_t state = 12 + (uint64_t)_i;
    const std::vector<uint8_t> a = any_codes(&state, ROWS * BYTES_DEPTH),
                               b = any_codes(&state, 64 * BYTES_DEPTH);
    check_e4m3(layouts[0], 64, _i > 0, a, b, scattered_numbers(&state, THREADS * 32, 5 * _i));
}
END_TEST

int main() {
    Suite *suite = suite_create("cuda_ptx90");
    TCase *core = tcase_create("core");
    tcase_add_loop_test(core, products_of_warpgroups_are_right, 0, 2 * LAYOUTS);
    tcase_add_loop_test(core, products_of_e4m3_are_right, 0, 36);
    tcase_add_loop_test(core, sums_of_warpgroups_are_cut_as_on_a_device, 0, 12);
    tcase_add_loop_test(core, sums_of_e4m3_are_cut_as_on_a_device, 0, 4);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
