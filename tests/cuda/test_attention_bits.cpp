/* A row's attention has the same bytes in every composition of its step: alone, in a batch, in any
 * chunk, split or whole, with its blocks anywhere. In float32 they are the CPU's bytes. */
#include <algorithm>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/attention_world.h"

using bytes = std::vector<uint8_t>;

/* The bytes of rows from..to-1, counted from the step's first row. */
static bytes rows_of(const attention_world &world, const bytes &y, int from, int to) {
    const size_t row =
        (size_t)(world.shape.H * world.shape.D) * (world.shape.act == DTYPE_F32 ? 4 : 2);
    return bytes(y.begin() + (ptrdiff_t)(row * (size_t)from),
                 y.begin() + (ptrdiff_t)(row * (size_t)to));
}

static void check_same(const attention_world &world, const bytes &got, const bytes &want,
                       const char *how) {
    ck_assert_uint_eq(got.size(), want.size());
    for (size_t i = 0; i < got.size(); i++)
        if (got[i] != want[i])
            ck_abort_msg("%s: %s: byte %zu of %zu differs", shape_text(world.shape).c_str(), how, i,
                         got.size());
}

/* ---- compositions of a step ----------------------------------------------------------------- */

static const attention_shape shapes[] = {
    {8, 2, 64, 16, KV_BF16, DTYPE_BF16, 0, 0}, {3, 1, 80, 7, KV_F16, DTYPE_F16, 0, 0},
    {7, 1, 32, 16, KV_E4M3, DTYPE_BF16, 0, 0}, {4, 2, 32, 32, KV_F16, DTYPE_F16, 100, 6},
    {2, 2, 160, 16, KV_BF16, DTYPE_F16, 0, 0}, {6, 2, 32, 16, KV_F32, DTYPE_F32, 0, 0},
    {34, 2, 32, 16, KV_F16, DTYPE_F16, 0, 0},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

/* The compared rows are around the ends of tiles and splits. */
static const int looked_at[][2] = {{0, 3}, {62, 67}, {254, 259}, {510, 515}};
enum { LENGTH = 515 };

static void check_alone(attention_world *world, const bytes &whole, int at, int from, int to) {
    for (int p = from; p < to; p++) {
        const bytes want = rows_of(*world, whole, at + p - from, at + p - from + 1);
        check_same(*world, world->run({{0, p, p + 1}}), want, "alone");
        if (p % 2 == 0) continue;
        check_same(*world, world->run({{0, p, p + 1}}, 0), want, "alone, whole");
    }
}

START_TEST(compositions_give_the_same_bytes) {
    attention_world world(shapes[_i], {LENGTH, 60}, 31, 0);
    attention_world moved(shapes[_i], {LENGTH, 60}, 31, 9);
    const step_parts all = {{0, 0, 3}, {0, 62, 67}, {0, 254, 259}, {0, 510, 515}};
    const bytes want = world.run(all);
    check_same(moved, moved.run(all), want, "other blocks");
    check_same(world, world.run(all, 0), want, "whole items");
    int at = 0;
    for (const auto &range : looked_at) {
        check_alone(&world, want, at, range[0], range[1]);
        at += range[1] - range[0];
    }
    /* a long chunk that holds some of the rows, in one step with another sequence's row */
    const bytes chunk = world.run({{1, 59, 60}, {0, 225, 259}});
    check_same(world, rows_of(world, chunk, 1 + 29, 1 + 34), rows_of(world, want, 8, 13), "chunk");
    const bytes later = world.run({{0, 496, 515}, {1, 0, 9}});
    check_same(world, rows_of(world, later, 14, 19), rows_of(world, want, 13, 18), "last chunk");
}
END_TEST

/* ---- the CPU -------------------------------------------------------------------------------- */

/* The result of the CPU's plain path for the same numbers. */
static floats cpu_attention(const attention_world &world, enum dtype cache_type) {
    const attention_shape &s = world.shape;
    const int M = world.lengths[0], n_blocks = (M + s.B - 1) / s.B;
    struct backend *cpu = open_backend("plain", 1, M, s.D);
    struct kv_config config = {1, s.G, s.D, n_blocks, s.B, cache_type};
    struct kv_cache *cache = nullptr;
    struct err err = {};
    ck_assert_int_eq(cpu->cache->kv_new(cpu, &cache, &config, &err), STATUS_OK);
    std::vector<int32_t> position, table;
    for (int p = 0; p < M; p++) position.push_back(p);
    for (int b = 0; b < n_blocks; b++) table.push_back(b);
    const int32_t row_start[2] = {0, M};
    struct step step = {};
    step.M = M;
    step.position = step.slot = position.data();
    step.S = 1;
    step.row_start = row_start;
    step.table = table.data();
    step.table_stride = n_blocks;
    cpu->compute->step_begin(cpu, &step, cache);
    struct heads heads = {};
    struct attention attention = {};
    heads.H = attention.H = s.H;
    attention.scale = world.scale;
    attention.cap = s.cap;
    attention.window = s.window;
    attention.both_ways = s.both_ways;
    floats sinks, slopes;
    for (int h = 0; h < s.H; h++) sinks.push_back(sink_of(h)), slopes.push_back(slope_of(h));
    if (s.has_sinks) attention.sinks = sinks.data();
    if (s.has_slopes) attention.slopes = slopes.data();
    floats q = world.q[0], k = world.k[0], y(q.size());
    floats v = world.v[0];
    cpu->compute->rope_write(cpu, cache, 0, &heads, q.data(), k.data(), v.data());
    cpu->compute->attention(cpu, y.data(), q.data(), cache, 0, &attention);
    cpu->cache->kv_free(cpu, cache);
    backend_close(cpu);
    return y;
}

START_TEST(float32_gives_the_bytes_of_the_cpu) {
    const attention_shape ours[] = {
        {6, 2, 64, 16, KV_F32, DTYPE_F32, 0, 0},  {4, 4, 20, 5, KV_F16, DTYPE_F32, 0, 0},
        {4, 2, 16, 16, KV_F32, DTYPE_F32, 0, 0},  {2, 1, 8, 16, KV_F32, DTYPE_F32, 257, 4},
        {2, 2, 24, 16, KV_F16, DTYPE_F32, 40, 0}, {6, 2, 16, 16, KV_F32, DTYPE_F32, 0, 0, true}};
    const int lengths[] = {262, 262, 520, 520, 300, 520};
    for (int i = 0; i < 6; i++) {
        attention_world world(ours[i], {lengths[i]}, 41, 3);
        const floats cpu = cpu_attention(world, ours[i].cache == KV_F32 ? DTYPE_F32 : DTYPE_F16);
        for (int from : {0, 30, 254, lengths[i] - 8}) {
            const bytes got = world.run({{0, from, from + 8}});
            const size_t row = (size_t)(ours[i].H * ours[i].D) * sizeof(float);
            bytes want(row * 8);
            memcpy(want.data(), (const char *)cpu.data() + row * (size_t)from, want.size());
            check_same(world, got, want, "the CPU");
        }
    }
}
END_TEST

/* A whole sequence with more than a chunk of 256 positions. */
START_TEST(float32_sees_both_ways_like_the_cpu) {
    const attention_shape ours[] = {{2, 1, 8, 16, KV_F32, DTYPE_F32, 0, 0, false, true},
                                    {2, 2, 12, 16, KV_F16, DTYPE_F32, 20, 0, false, true},
                                    {3, 1, 8, 5, KV_F32, DTYPE_F32, 0, 0, false, true, true},
                                    {4, 4, 8, 16, KV_F32, DTYPE_F32, 258, 5, true, true, true}};
    for (const attention_shape &shape : ours) {
        attention_world world(shape, {270}, 47, 3);
        const floats cpu = cpu_attention(world, shape.cache == KV_F32 ? DTYPE_F32 : DTYPE_F16);
        bytes want(cpu.size() * sizeof(float));
        memcpy(want.data(), cpu.data(), want.size());
        check_same(world, world.run({{0, 0, 270}}), want, "the CPU");
    }
}
END_TEST

/* Cache types that the CPU lacks, and windows and caps. */
START_TEST(float32_is_right_beyond_the_cpu) {
    const attention_shape ours[] = {{4, 2, 32, 16, KV_BF16, DTYPE_F32, 0, 0},
                                    {3, 1, 48, 7, KV_E4M3, DTYPE_F32, 0, 0},
                                    {2, 2, 256, 16, KV_F32, DTYPE_F32, 40, 0},
                                    {2, 1, 8, 16, KV_F32, DTYPE_F32, 257, 4}};
    for (const attention_shape &shape : ours) {
        attention_world world(shape, {515, 9}, 43, 3);
        const step_parts parts = {{1, 0, 2}, {0, 254, 259}, {1, 8, 9}, {0, 513, 515}};
        check_close(unpacked(DTYPE_F32, world.run(parts)), world.reference(parts), 1e-5, 1,
                    shape_text(shape));
    }
}
END_TEST

int main() {
    Suite *suite = suite_create("cuda_attention_bits");
    TCase *cases = tcase_create("bits");
    tcase_set_timeout(cases, 300);
    tcase_add_loop_test(cases, compositions_give_the_same_bytes, 0, N_SHAPES);
    tcase_add_test(cases, float32_gives_the_bytes_of_the_cpu);
    tcase_add_test(cases, float32_sees_both_ways_like_the_cpu);
    tcase_add_test(cases, float32_is_right_beyond_the_cpu);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
