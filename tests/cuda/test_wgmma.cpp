/* Products by wgmma compared with those by mma.sync, to the last bit: both cut the same sums alike
 * (fused_sum.h). */
#include <math.h>
#include <string.h>

#include "kernels/cuda/rows/rows.cuh"
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
    void check_used() {
        ck_assert_msg(rows.read<uint32_t>()[0] != UINT32_MAX, "wgmma has multiplied");
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
    memory.check_used();
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
} shapes[] = {{17, 130, 840, false}, {31, 33, 584, true},   {32, 128, 1096, true},
              {33, 130, 712, false}, {48, 16, 8, true},     {63, 40, 328, true},
              {64, 257, 584, true},  {65, 130, 840, false}, {70, 16, 8, true},
              {128, 15, 72, true},   {129, 40, 328, true},  {137, 33, 584, true},
              {192, 128, 64, false}, {193, 20, 136, true}};

START_TEST(bits_are_those_of_mma) {
    const auto &s = shapes[_i];
    for (enum dtype act : short_types) check_bits(act, s.M, s.N, s.K, s.shares);
}
END_TEST

/* A matrix with all parts of an epilogue and a pair with both biases, added to a residual; y and
 * the residual are the same memory, as in a layer. */
START_TEST(epilogues_are_those_of_mma) {
    const int Ms[] = {17, 32, 50, 64}, M = Ms[_i], N = 70, K = 200;
    for (enum dtype act : short_types) {
        const kind &k = plain_kind(act);
        matrix_on_device w(k, act, make_rows(k, N, K, 1)), up(k, act, make_rows(k, N, K, 2));
        const std::vector<uint8_t> sums = packed(act, make_x(act, M, N));
        buffer x(packed(act, make_x(act, M, K))), bias(make_x(DTYPE_F32, 1, N)),
            up_bias(make_x(DTYPE_F32, 3, N));
        struct gemm_epilogue end = {bias.as<float>()};
        end.activate = true;
        end.activation = ACTIVATION_GELU_TANH;
        end.scale = 1.5f;
        end.cap = 3.0f;
        struct gemm_epilogue pair_end = {bias.as<float>(), nullptr, false, up_bias.as<float>()};
        const struct gemm_job jobs[] = {{&w.w, nullptr, &end}, {&w.w, nullptr, &pair_end, &up.w}};
        for (const struct gemm_job &job : jobs) {
            buffer by_mma(sums), by_wgmma(sums);
            wide_memory memory(act, M, K, true);
            struct gemm_epilogue both = *job.epilogue;
            struct gemm_job one = {job.w, by_mma.data, &both, job.up};
            both.residual = by_mma.data;
            gemm_many(&one, 1, x.data, nullptr, M, test_stream());
            one.y = by_wgmma.data;
            both.residual = by_wgmma.data;
            gemm_many(&one, 1, x.data, nullptr, M, test_stream(), &memory.scratch);
            memory.check_used();
            ck_assert(by_mma.read<uint8_t>() != sums);
            ck_assert(by_wgmma.read<uint8_t>() == by_mma.read<uint8_t>());
        }
    }
}
END_TEST

/* A norm has the bits of its own kernel before mma.sync: rows of less than one vector per thread,
 * of more, and with several halves of lines per thread. */
START_TEST(a_norm_has_the_bits_of_its_own_kernel) {
    const int Ms[] = {17, 32, 41, 64, 65, 130}, Ks[] = {72, 2312, 8264}, M = Ms[_i], K = Ks[_i % 3];
    const enum dtype act = short_types[_i / 3];
    const kind &k = plain_kind(act);
    matrix_on_device w(k, act, make_rows(k, 21, K, 1)), larger(k, act, make_rows(k, 150, K, 2));
    uint64_t state = 9;
    buffer gain(random_vector(&state, (size_t)K)), x(packed(act, make_x(act, M, K))),
        normed((size_t)M * (size_t)K * 2), y((size_t)M * 21 * 2), larger_y((size_t)M * 150 * 2);
    wide_memory memory(act, M, K, true);
    const struct norm norm = {NORM_RMS, gain.as<float>(), nullptr, 1e-3f},
                      layer = {NORM_LAYER, gain.as<float>(), nullptr, 1e-3f};
    ck_assert(gemm_takes_norm(&w.w, &norm, M, &memory.scratch));
    ck_assert(!gemm_takes_norm(&w.w, &layer, M, &memory.scratch));
    ck_assert(!gemm_takes_norm(&w.w, &norm, M));
    rows_norm(act, normed.data, x.data, &norm, M, K, test_stream());
    const struct gemm_job jobs[] = {{&w.w, y.data}, {&larger.w, larger_y.data}};
    gemm_many(jobs, 2, x.data, &norm, M, test_stream(), &memory.scratch);
    ck_assert(y.read<uint8_t>() == multiplied(&jobs[0], normed, nullptr, M));
    ck_assert(larger_y.read<uint8_t>() == multiplied(&jobs[1], normed, nullptr, M));
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
template <class S> static void check_shares(int M, int wanted) {
    const int K = 1000;
    const kind &k = plain_kind(DTYPE_BF16);
    matrix_on_device gate(k, DTYPE_BF16, make_rows(k, 70, K, 1)),
        up(k, DTYPE_BF16, make_rows(k, 70, K, 2)), w(k, DTYPE_BF16, make_rows(k, 300, K, 3));
    buffer x(packed(DTYPE_BF16, make_x(DTYPE_BF16, M, K)));
    buffer y[] = {buffer((size_t)M * 70 * 2), buffer((size_t)M * 300 * 2)};
    const struct gemm_job jobs[] = {{&gate.w, y[0].data, nullptr, &up.w}, {&w.w, y[1].data}};
    WideWork<bf16> work = plan_with<S>(jobs, 2, M, 0);
    ck_assert(work.all.of[0].w.ranges == 8 && work.all.of[1].w.ranges == 16);
    const size_t bytes = place_parts<S>(&work, 2, wanted);
    ck_assert_int_eq(plan_with<S>(jobs, 2, M, bytes).all.share.blocks, wanted);
    wide_memory memory(DTYPE_BF16, M, K, false);
    buffer parts(bytes);
    memory.scratch.parts = parts.as<float>();
    memory.scratch.bytes = bytes;
    gemm_many(jobs, 2, x.data, nullptr, M, test_stream(), &memory.scratch);
    for (int i = 0; i < 2; i++)
        ck_assert_msg(y[i].read<uint8_t>() == multiplied(&jobs[i], x, nullptr, M),
                      "product %d, %d rows, %d shares", i, M, wanted);
    memory.check_used();
    memory.check();
}

START_TEST(shares_of_other_ranges_keep_the_bits) {
    const int shares[] = {16, 8, 4, 2};
    check_shares<WideFew>(29, shares[_i]);
    check_shares<WideSome>(51, shares[_i]);
    check_shares<WideNarrow>(70, shares[_i]);
}
END_TEST

/* The launches of a layer of Llama-3.1-8B at 17 to 64 rows: q, k and v; the output; gate and up;
 * down. Each has a block on 96 multiprocessors or more. */
START_TEST(few_rows_fill_the_device) {
    struct gemm_weights q, k, gate, down;
    matrix_on_device::plan(&q, kinds[2], DTYPE_BF16, 4096, 4096);
    matrix_on_device::plan(&k, kinds[2], DTYPE_BF16, 1024, 4096);
    matrix_on_device::plan(&gate, kinds[2], DTYPE_BF16, 14336, 4096);
    matrix_on_device::plan(&down, kinds[2], DTYPE_BF16, 4096, 14336);
    const struct gemm_job qkv[] = {{&q, nullptr}, {&k, nullptr}, {&k, nullptr}};
    const struct gemm_job pair = {&gate, nullptr, nullptr, &gate}, last = {&down, nullptr};
    const size_t bytes = gemm_scratch_bytes(DTYPE_BF16, 64, 14336);
    ck_assert_int_eq(plan_with<WideFew>(qkv, 3, 32, bytes).shares(), 96);
    ck_assert_int_eq(plan_with<WideFew>(qkv, 1, 32, bytes).shares(), 128);
    ck_assert_int_eq(plan_with<WideFew>(&pair, 1, 32, bytes).shares(), 224);
    ck_assert_int_eq(plan_with<WideFew>(&last, 1, 32, bytes).shares(), 128);
    ck_assert_int_eq(plan_with<WideSome>(qkv, 3, 64, bytes).shares(), 96);
    ck_assert_int_eq(plan_with<WideSome>(&last, 1, 64, bytes).shares(), 128);
    /* bytes of weights under way on a multiprocessor */
    ck_assert_int_ge((WideFew::STAGES - 1) * WideFew::NB * WideFew::TILE_BYTES, 96 << 10);
    ck_assert_int_ge((WideSome::STAGES - 1) * WideSome::NB * WideSome::TILE_BYTES, 96 << 10);
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

/* The same for few rows, many outputs, and more slabs than the ring has stages. The second product
 * has two pieces more than the first. */
START_TEST(blocks_take_several_pieces_of_few_rows) {
    const int Ms[] = {20, 40}, M = Ms[_i], K = 520, first = 66 * 128, second = 67 * 128 + 1;
    const kind &k = kinds[2];
    matrix_on_device w(k, DTYPE_BF16, make_rows(k, first, K, 1)),
        larger(k, DTYPE_BF16, make_rows(k, second, K, 2));
    buffer x(packed(DTYPE_BF16, make_x(DTYPE_BF16, M, K))), y((size_t)(M * first * 2)),
        larger_y((size_t)(M * second * 2));
    wide_memory memory(DTYPE_BF16, M, K, false);
    const struct gemm_job jobs[] = {{&w.w, y.data}, {&larger.w, larger_y.data}};
    gemm_many(jobs, 2, x.data, nullptr, M, test_stream(), &memory.scratch);
    memory.check_used();
    ck_assert(y.read<uint8_t>() == multiplied(&jobs[0], x, nullptr, M));
    ck_assert(larger_y.read<uint8_t>() == multiplied(&jobs[1], x, nullptr, M));
}
END_TEST

/* Products that wgmma does not support use the other kernels: few rows, odd rows, other formats,
 * too little memory. */
START_TEST(others_are_left_alone) {
    const struct {
        int kind, M, K;
        size_t less;
    } cases[] = {{2, 16, 64, 0}, {2, 17, 71, 0}, {3, 17, 64, 0}, {2, 17, 64, 1},
                 {2, 64, 64, 1}, {2, 65, 71, 0}, {3, 65, 64, 0}, {2, 65, 64, 1}};
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
    ck_assert_uint_eq(wide_bytes(DTYPE_F16, 16, 64), 0);
    ck_assert_uint_eq(wide_bytes(DTYPE_F16, 17, 64), 32 * 128);
    ck_assert_uint_eq(wide_bytes(DTYPE_BF16, 33, 65), 2 * 64 * 128);
}
END_TEST

int main() {
    Suite *suite = suite_create("cuda_wgmma");
    TCase *bits = tcase_create("bits");
    tcase_add_loop_test(bits, bits_are_those_of_mma, 0, sizeof shapes / sizeof *shapes);
    tcase_add_loop_test(bits, epilogues_are_those_of_mma, 0, 4);
    tcase_add_loop_test(bits, a_norm_has_the_bits_of_its_own_kernel, 0, 6);
    tcase_add_test(bits, parts_are_counted_for_each_product);
    tcase_add_test(bits, blocks_are_broad_if_their_ranges_are_shared);
    tcase_add_loop_test(bits, shares_of_other_ranges_keep_the_bits, 0, 4);
    tcase_add_test(bits, few_rows_fill_the_device);
    tcase_add_test(bits, blocks_take_several_pieces);
    tcase_add_loop_test(bits, blocks_take_several_pieces_of_few_rows, 0, 2);
    tcase_add_test(bits, others_are_left_alone);
    tcase_set_timeout(bits, 300);
    suite_add_tcase(suite, bits);
    return suite_main(suite);
}
