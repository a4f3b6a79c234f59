/* Products by wgmma compared with those by mma.sync, to the last bit: both cut the same sums alike
 * (fused_sum.h). */
#include <math.h>
#include <string.h>

#include "kernels/cuda/wgmma/wgmma.cuh"
#include "tests/cuda/gemm_data.h"

static const kind &plain_kind(enum dtype act) {
    return kinds[act == DTYPE_F16 ? 1 : 2];
}

/* Exactly the memory that a launch needs for the rows that wgmma multiplies, and memory for sharing
 * if asked. The check fails unless the counters are zero again. */
struct wide_memory {
    buffer rows, counters, parts;
    struct gemm_scratch scratch;
    wide_memory(enum dtype act, int M, int K, bool shares)
        : rows(wide_bytes(act, M, K)), counters(std::vector<int32_t>(GEMM_SCRATCH_COUNTERS)),
          parts(shares ? 8 << 20 : 16), scratch() {
        scratch = {counters.as<int32_t>(), parts.as<float>(), parts.bytes, rows.data, rows.bytes,
                   &wgmma_products};
    }
    void check() {
        for (int32_t counter : counters.read<int32_t>()) ck_assert_int_eq(counter, 0);
    }
};

/* A matrix of N outputs, a pair of half as many, and a matrix of 3 outputs in one launch. */
static void check_bits(enum dtype act, int M, int N, int K, bool shares) {
    const kind &k = plain_kind(act);
    const int half = (N + 1) / 2;
    matrix_on_device w(k, act, make_rows(k, N, K, 1)), gate(k, act, make_rows(k, half, K, 2)),
        up(k, act, make_rows(k, half, K, 3)), few(k, act, make_rows(k, 3, K, 4));
    buffer x(packed(act, make_x(act, M, K))), bias(floats((size_t)N, 0.5f));
    const struct gemm_epilogue end = {bias.as<float>(), nullptr, true};
    wide_memory memory(act, M, K, shares);
    buffer y[] = {buffer((size_t)(M * N * 4)), buffer((size_t)(M * half * 2)),
                  buffer((size_t)(M * 3 * 2))};
    const struct gemm_job jobs[] = {
        {&w.w, y[0].data, &end}, {&gate.w, y[1].data, nullptr, &up.w}, {&few.w, y[2].data}};
    gemm_many(jobs, 3, x.data, nullptr, M, test_stream(), &memory.scratch);
    ck_assert_msg(memory.rows.read<uint32_t>()[0] != UINT32_MAX, "wgmma has multiplied");
    for (int i = 0; i < 3; i++)
        ck_assert_msg(y[i].read<uint8_t>() == multiplied(&jobs[i], x, nullptr, M),
                      "product %d, activations %d, %d rows, %d x %d", i, act, M, N, K);
    memory.check();
}

/* On and around the sizes of blocks of rows, tiles, slabs, ranges and the ring. Few pieces are
 * divided among blocks; with many pieces some blocks process several. */
static const struct {
    int M, N, K;
    bool shares;
} shapes[] = {{65, 130, 840, false}, {70, 16, 8, true},    {128, 15, 72, true},
              {129, 40, 328, true},  {137, 33, 584, true}, {192, 128, 64, false},
              {193, 20, 136, true}};

START_TEST(bits_are_those_of_mma) {
    const auto &s = shapes[_i];
    check_bits(short_types[_i % 2], s.M, s.N, s.K, s.shares);
}
END_TEST

/* More pieces than an H200 has multiprocessors, each of one slab, so blocks process several pieces.
 */
START_TEST(blocks_take_several_pieces) {
    const int M = 132 * 192 + 1, K = 8;
    matrix_on_device w(kinds[2], DTYPE_BF16, make_rows(kinds[2], 2, K, 1));
    const floats rows = make_x(DTYPE_BF16, M, K);
    buffer x(packed(DTYPE_BF16, rows)), y((size_t)(M * 2 * 2));
    wide_memory memory(DTYPE_BF16, M, K, false);
    const struct gemm_job job = {&w.w, y.data};
    gemm_many(&job, 1, x.data, nullptr, M, test_stream(), &memory.scratch);
    const std::vector<uint8_t> got = y.read<uint8_t>();
    for (int first = 0; first < M; first += 44 * 192) { /* in the first piece up to the last one */
        const floats one(rows.begin() + first * K, rows.begin() + (first + 1) * K);
        const auto want = multiplied(&job, buffer(packed(DTYPE_BF16, one)), nullptr, 1);
        ck_assert_msg(memcmp(&got[(size_t)first * 4], want.data(), 4) == 0, "row %d", first);
    }
}
END_TEST

/* Products that wgmma does not support use the other kernels: few rows, odd rows, other formats,
 * too little memory. */
START_TEST(others_are_left_alone) {
    const struct {
        int kind, M, K;
        size_t less;
    } cases[] = {{2, 64, 64, 0}, {2, 65, 71, 0}, {3, 65, 64, 0}, {2, 65, 64, 1}};
    for (const auto &c : cases) {
        matrix_on_device w(kinds[c.kind], DTYPE_BF16, make_rows(kinds[c.kind], 20, c.K, 1));
        buffer x(packed(DTYPE_BF16, make_x(DTYPE_BF16, c.M, c.K))), y((size_t)(c.M * 20 * 2));
        wide_memory memory(DTYPE_BF16, 80, 128, true);
        const struct gemm_job job = {&w.w, y.data};
        if (c.less) memory.scratch.wide_bytes = wide_bytes(DTYPE_BF16, c.M, c.K) - 1;
        gemm_many(&job, 1, x.data, nullptr, c.M, test_stream(), &memory.scratch);
        ck_assert(y.read<uint8_t>() == multiplied(&job, x, nullptr, c.M));
        for (uint32_t word : memory.rows.read<uint32_t>()) ck_assert_uint_eq(word, UINT32_MAX);
    }
    ck_assert_uint_eq(wide_bytes(DTYPE_F32, 100, 64), 0);
    ck_assert_uint_eq(wide_bytes(DTYPE_F16, 64, 64), 0);
}
END_TEST

int main() {
    Suite *suite = suite_create("cuda_wgmma");
    TCase *bits = tcase_create("bits");
    tcase_add_loop_test(bits, bits_are_those_of_mma, 0, 7);
    tcase_add_test(bits, blocks_take_several_pieces);
    tcase_add_test(bits, others_are_left_alone);
    tcase_set_timeout(bits, 300);
    suite_add_tcase(suite, bits);
    return suite_main(suite);
}
