/* The instructions of ptx.cuh compared with the PTX manual. Under emulation this tests their
 * emulated versions, on a device the functions themselves. */
#include <math.h>
#include <string.h>

#include "tests/cuda/probes.cuh"

#include "tests/cuda/fused_sum.h"
#include "tests/cuda/support.h"

enum { LANES = 32 };

/* ---- mma: "Matrix fragments for mma.m16n8k16 with floating point type" ---------------------- */

static int group_of(int lane) {
    return lane >> 2;
}
static int in_group(int lane) {
    return lane % 4;
}

static int a_row(int lane, int i) {
    return (0 <= i && i < 2) || (4 <= i && i < 6) ? group_of(lane) : group_of(lane) + 8;
}
static int a_column(int lane, int i) {
    return in_group(lane) * 2 + (i & 1) + (i < 4 ? 0 : 8);
}
static int b_row(int lane, int i) {
    return in_group(lane) * 2 + (i & 1) + (i < 2 ? 0 : 8);
}
static int c_row(int lane, int i) {
    return i < 2 ? group_of(lane) : group_of(lane) + 8;
}
static int c_column(int lane, int i) {
    return in_group(lane) * 2 + (i & 1);
}

/* Small whole numbers, so that sums are exact in any order. */
static floats whole_numbers(uint64_t *state, size_t n) {
    floats values(n);
    for (float &value : values) value = (float)(random_below(state, 17) - 8);
    return values;
}

/* Compares with the rule of the device's sums, to the last bit. */
static void check_tile(enum dtype type, const floats &a, const floats &b, const floats &start) {
    floats left(LANES * 8), right(LANES * 4), d(start), want(LANES * 4);
    const struct fused_rule rule = mma_rule(type);
    for (int lane = 0; lane < LANES; lane++) {
        for (int i = 0; i < 8; i++)
            left[(size_t)(8 * lane + i)] = a[(size_t)(a_row(lane, i) * 16 + a_column(lane, i))];
        for (int i = 0; i < 4; i++)
            right[(size_t)(4 * lane + i)] = b[(size_t)(b_row(lane, i) * 8 + group_of(lane))];
        for (int i = 0; i < 4; i++) {
            float column[16];
            for (int k = 0; k < 16; k++) column[k] = b[(size_t)(k * 8 + c_column(lane, i))];
            want[(size_t)(4 * lane + i)] = fused_sum(
                d[(size_t)(4 * lane + i)], &a[(size_t)(c_row(lane, i) * 16)], column, 16, rule);
        }
    }
    buffer x(packed(type, left)), y(packed(type, right)), out(d);
    probe_mma(type, out.as<float>(), x.as<uint32_t>(), y.as<uint32_t>(), test_stream());
    check_close(out.read<float>(), want, 0, 0, "a product");
}

START_TEST(products_of_tiles_are_right) {
    uint64_t state = 4;
    const floats a = whole_numbers(&state, 256), b = whole_numbers(&state, 128);
    check_tile(_i ? DTYPE_BF16 : DTYPE_F16, a, b, whole_numbers(&state, LANES * 4));
}
END_TEST

/* Terms far apart, so that most lose bits. */
START_TEST(sums_are_cut_as_on_a_device) {
    const enum dtype type = _i % 2 ? DTYPE_BF16 : DTYPE_F16;
    uint64_t state = 40 + (uint64_t)_i;
    const floats a = rounded(type, scattered_numbers(&state, 256, _i)),
                 b = rounded(type, scattered_numbers(&state, 128, _i));
    check_tile(type, a, b, scattered_numbers(&state, LANES * 4, 2 * _i));
}
END_TEST

/* ---- ldmatrix ------------------------------------------------------------------------------- */

/* Element (lane, matrix, which of two) of the expected result: by rows, row lane / 4, or
 * transposed. */
static uint16_t element(const std::vector<uint16_t> &tile, bool transposed, int lane, int matrix,
                        int which) {
    int row = lane / 4, column = lane % 4 * 2 + which;
    if (transposed) std::swap(row, column);
    return tile[(size_t)((matrix % 2 * 8 + row) * 16 + matrix / 2 * 8 + column)];
}

START_TEST(matrices_are_loaded) {
    const enum probe_load how = (enum probe_load)_i;
    const bool transposed = how == LOAD_X4_TRANS;
    std::vector<uint16_t> tile(256), want;
    for (size_t i = 0; i < tile.size(); i++) tile[i] = (uint16_t)(1000 + i);
    for (int lane = 0; lane < LANES; lane++)
        for (int i = 0; i < 8; i++) want.push_back(element(tile, transposed, lane, i / 2, i % 2));
    buffer from(tile), out(want.size() * sizeof(uint16_t));
    probe_ldmatrix(how, out.as<uint32_t>(), from.as<uint16_t>(), test_stream());
    ck_assert(out.read<uint16_t>() == want);
}
END_TEST

/* ---- cp.async ------------------------------------------------------------------------------- */

START_TEST(copies_fill_up_with_zeros) {
    uint64_t state = 6;
    floats in = random_vector(&state, 4 * LANES), want = in;
    const int bytes = 4 * _i;
    for (size_t i = 0; i < want.size(); i++)
        if ((int)(i % 4) >= _i) want[i] = 0;
    buffer from(in), out(from.bytes);
    probe_cp_async(out.as<float>(), from.as<float>(), bytes, test_stream());
    check_close(out.read<float>(), want, 0, 0, text("a copy of %d bytes", bytes));
}
END_TEST

/* ---- e4m3 ----------------------------------------------------------------------------------- */

/* The format of the Open Compute Project: 4 bits of exponent, bias 7, no infinities. */
static float e4m3_number(int code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const float size =
        exponent ? ldexpf((float)(8 + mantissa), exponent - 10) : ldexpf((float)mantissa, -9);
    return code & 128 ? -size : size;
}

START_TEST(all_codes_are_read_exactly) {
    buffer out(256 * sizeof(float));
    probe_e4m3(out.as<float>(), test_stream());
    finish();
    const floats got = out.read<float>();
    for (int code = 0; code < 256; code++) {
        const float want = e4m3_number(code), mine = got[(size_t)code];
        if (code % 128 == 127)
            ck_assert(isnan(mine));
        else
            ck_assert_msg(memcmp(&mine, &want, sizeof want) == 0, "code %d: %g, not %g", code,
                          (double)mine, (double)want);
    }
}
END_TEST

int main() {
    Suite *suite = suite_create("cuda_ptx");
    TCase *core = tcase_create("core");
    tcase_add_loop_test(core, products_of_tiles_are_right, 0, 2);
    tcase_add_loop_test(core, sums_are_cut_as_on_a_device, 0, 12);
    tcase_add_loop_test(core, matrices_are_loaded, 0, 2);
    tcase_add_loop_test(core, copies_fill_up_with_zeros, 0, 5);
    tcase_add_test(core, all_codes_are_read_exactly);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
