/* Products by wgmma compared with those by mma.sync, to the last bit: both cut the same sums alike
 * (fused_sum.h). */
#include <math.h>
#include <string.h>

#include "kernels/cuda/wgmma/launch.cuh"
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

/* ---- shares of ranges ----------------------------------------------------------------------- */

using bf16 = __nv_bfloat16;

/* The plan of a launch with this much memory for parts. */
template <class S>
static WideWork<bf16> plan_with(const struct gemm_job *jobs, int n, int M, size_t bytes) {
    struct gemm_scratch scratch = {};
    scratch.bytes = bytes;
    return wide_work<S, bf16>(jobs, n, nullptr, M, &scratch);
}

/* Llama-3.1-8B's q has 8 ranges, k and v have 16. With two shares, q's pieces leave 5 parts each,
 * the others 9, so 128 rows use 96 multiprocessors instead of 48. */
START_TEST(parts_are_counted_for_each_product) {
    struct gemm_weights q, k;
    matrix_on_device::plan(&q, kinds[2], DTYPE_BF16, 4096, 4096);
    matrix_on_device::plan(&k, kinds[2], DTYPE_BF16, 1024, 4096);
    ck_assert(q.ranges == 8 && k.ranges == 16);
    const struct gemm_job jobs[] = {{&q, nullptr}, {&k, nullptr}, {&k, nullptr}};
    const size_t parts = 32 * 5 + 8 * 9 + 8 * 9, narrow = parts * 128 * 128 * 4,
                 broad = parts * 192 * 128 * 4;
    const WideWork<bf16> work = plan_with<WideNarrow>(jobs, 3, 128, narrow);
    ck_assert(work.pieces == 48 && work.all.share.blocks == 2 && work.shares() == 96);
    const int want[] = {0, 32 * 5, 32 * 5 + 8 * 9, (int)parts};
    for (int i = 0; i < 4; i++) ck_assert_int_eq(work.all.share.first[i], want[i]);
    ck_assert_int_eq(plan_with<WideNarrow>(jobs, 3, 128, narrow - 1).all.share.blocks, 1);
    ck_assert_int_eq(plan_with<WideBroad>(jobs, 3, 192, broad).all.share.blocks, 2);
    ck_assert_uint_ge(gemm_scratch_bytes(DTYPE_BF16, 192, 14336), broad);
}
END_TEST

/* 192 rows have 48 broad pieces or 96 narrow ones. Two shares of a broad piece take less time than
 * a narrow piece, which takes less time than a broad piece without shares. */
START_TEST(blocks_are_broad_if_their_ranges_are_shared) {
    struct gemm_weights q, k;
    matrix_on_device::plan(&q, kinds[2], DTYPE_BF16, 4096, 4096);
    matrix_on_device::plan(&k, kinds[2], DTYPE_BF16, 1024, 4096);
    const struct gemm_job jobs[] = {{&q, nullptr}, {&k, nullptr}, {&k, nullptr}};
    for (size_t bytes : {(size_t)32 << 20, (size_t)0}) {
        const WideWork<bf16> narrow = plan_with<WideNarrow>(jobs, 3, 192, bytes);
        const WideWork<bf16> broad = plan_with<WideBroad>(jobs, 3, 192, bytes);
        ck_assert(narrow.shares() == 96 && broad.shares() == (bytes > 0 ? 96 : 48));
        ck_assert_int_eq(is_broad_better(narrow, broad), bytes > 0);
    }
}
END_TEST

/* A pair with 8 ranges, then a larger matrix with 16, with exactly the memory for their parts. With
 * 16 shares, some shares of the pair have no range. Less memory means fewer shares. */
START_TEST(shares_of_other_ranges_keep_the_bits) {
    const int shares[] = {16, 8, 4, 2}, wanted = shares[_i], M = 70, K = 1000;
    const kind &k = plain_kind(DTYPE_BF16);
    matrix_on_device gate(k, DTYPE_BF16, make_rows(k, 70, K, 1)),
        up(k, DTYPE_BF16, make_rows(k, 70, K, 2)), w(k, DTYPE_BF16, make_rows(k, 300, K, 3));
    buffer x(packed(DTYPE_BF16, make_x(DTYPE_BF16, M, K)));
    buffer y[] = {buffer((size_t)M * 70 * 2), buffer((size_t)M * 300 * 2)};
    const struct gemm_job jobs[] = {{&gate.w, y[0].data, nullptr, &up.w}, {&w.w, y[1].data}};
    WideWork<bf16> work = plan_with<WideNarrow>(jobs, 2, M, 0);
    ck_assert(work.all.of[0].w.ranges == 8 && work.all.of[1].w.ranges == 16);
    const size_t bytes = place_parts<WideNarrow>(&work, 2, wanted);
    ck_assert_int_eq(plan_with<WideNarrow>(jobs, 2, M, bytes).all.share.blocks, wanted);
    wide_memory memory(DTYPE_BF16, M, K, false);
    buffer parts(bytes);
    memory.scratch.parts = parts.as<float>();
    memory.scratch.bytes = bytes;
    gemm_many(jobs, 2, x.data, nullptr, M, test_stream(), &memory.scratch);
    for (int i = 0; i < 2; i++)
        ck_assert_msg(y[i].read<uint8_t>() == multiplied(&jobs[i], x, nullptr, M),
                      "product %d, %d shares", i, wanted);
    memory.check();
}
END_TEST

/* ---- several pieces, and none --------------------------------------------------------------- */

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
    tcase_add_test(bits, parts_are_counted_for_each_product);
    tcase_add_test(bits, blocks_are_broad_if_their_ranges_are_shared);
    tcase_add_loop_test(bits, shares_of_other_ranges_keep_the_bits, 0, 4);
    tcase_add_test(bits, blocks_take_several_pieces);
    tcase_add_test(bits, others_are_left_alone);
    tcase_set_timeout(bits, 300);
    suite_add_tcase(suite, bits);
    return suite_main(suite);
}
