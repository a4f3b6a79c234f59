/* The instructions of ptx90.cuh against the PTX manual's words: a product of a warpgroup by a
 * matrix that a bulk copy has brought to shared memory, in each of the four layouts. Under
 * emulation this tests the twins, on a device of sm_90 the functions themselves. */
#include <algorithm>

#include "tests/cuda/probes90.cuh"
#include "tests/cuda/support.h"

constexpr int THREADS = 128, DEPTH = 16, SUMS = PROBE_COLUMNS / 2, ROWS = PROBE_ROWS;

/* "Shared memory matrix layout", K-major: where 8 neighbours of k of a column begin. Lines of a
 * column follow one another, and their pieces of 16 bytes change places; without a swizzle 8 pieces
 * of neighbouring columns do. */
struct layout {
    const char *name;
    uint64_t mode;
    int line, leading, stride;
    int step; /* which 16 neighbours of k of the line */
};
static const layout layouts[] = {
    {"no swizzle", 0, 16, 128, 256, 0},   {"swizzle of 128", 1, 128, 16, 1024, 0},
    {"step 3 of 4", 1, 128, 16, 1024, 3}, {"swizzle of 64", 2, 64, 16, 512, 0},
    {"step 1 of 2", 2, 64, 16, 512, 1},   {"swizzle of 32", 3, 32, 16, 256, 0},
};
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

/* The matrix [column][k] in its layout. */
static std::vector<uint8_t> image_of(const layout &l, enum dtype type, const floats &b) {
    const std::vector<uint8_t> elements = packed(type, b);
    std::vector<uint8_t> image(PROBE_BYTES, 0xff);
    for (int column = 0; column < PROBE_COLUMNS; column++)
        for (int half = 0; half < 2; half++)
            std::copy_n(&elements[(size_t)(column * DEPTH + half * 8) * 2], 16,
                        &image[(size_t)place_of(l, column, half)]);
    return image;
}

/* Row of a thread's elements, and of its sums. */
static int row_of(int thread, int which) {
    return thread / 32 * 16 + thread % 32 / 4 + which % 2 * 8;
}

START_TEST(products_of_warpgroups_are_right) {
    const layout &l = layouts[_i / 2];
    const enum dtype type = _i % 2 ? DTYPE_BF16 : DTYPE_F16;
    uint64_t state = 9;
    floats a = whole_numbers(&state, ROWS * DEPTH),
           b = whole_numbers(&state, 2 * SUMS * DEPTH);
    floats left(THREADS * 8), d(THREADS * SUMS), want(THREADS * SUMS);
    for (int t = 0; t < THREADS; t++) {
        for (int i = 0; i < 8; i++)
            left[(size_t)(8 * t + i)] =
                a[(size_t)(row_of(t, i / 2) * DEPTH + t % 4 * 2 + i % 2 + i / 4 * 8)];
        for (int i = 0; i < SUMS; i++) {
            const int column = i / 4 * 8 + t % 4 * 2 + i % 2;
            float sum = d[(size_t)(SUMS * t + i)] = (float)i;
            for (int k = 0; k < DEPTH; k++)
                sum += a[(size_t)(row_of(t, i / 2) * DEPTH + k)] * b[(size_t)(column * DEPTH + k)];
            want[(size_t)(SUMS * t + i)] = sum;
        }
    }
    buffer x(packed(type, left)), bytes(image_of(l, type, b)), out(d);
    const struct probe_matrix matrix = {bytes.data,
                                        (uint64_t)(l.leading / 16) << 16 |
                                            (uint64_t)(l.stride / 16) << 32 | l.mode << 62,
                                        l.step * 32};
    probe_wgmma(type, out.as<float>(), x.as<uint32_t>(), &matrix, test_stream());
    check_close(out.read<float>(), want, 0, 0, l.name);
}
END_TEST

int main() {
    Suite *suite = suite_create("cuda_ptx90");
    TCase *core = tcase_create("core");
    tcase_add_loop_test(core, products_of_warpgroups_are_right, 0, 12);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
