/* Chunks on sm_90a compared with double precision, and with the bytes of the other kernel: wgmma
 * and mma.sync cut the same sums alike (fused_sum.h). */
#include <algorithm>
#include <string.h>

#include "kernels/cuda/wgmma/wgmma.cuh"
#include "tests/cuda/attention_world.h"

/* Both head sizes and types of caches, with activations of the other type. Groups whose rows are on
 * both sides of a warpgroup's end, and groups that are cut in two. Blocks of one tile, of several,
 * and of odd numbers of tiles. Windows within a tile, a split and a span. Caps and sinks. */
static const attention_shape shapes[] = {
    {8, 2, 128, 16, KV_BF16, DTYPE_BF16, 0, 0},
    {4, 2, 64, 16, KV_F16, DTYPE_F16, 0, 0},
    {2, 2, 128, 8, KV_F16, DTYPE_BF16, 0, 0},
    {3, 1, 64, 24, KV_BF16, DTYPE_F16, 0, 0},
    {20, 1, 64, 40, KV_F16, DTYPE_F16, 0, 0},
    {67, 1, 64, 16, KV_BF16, DTYPE_BF16, 0, 0},
    {4, 1, 128, 16, KV_BF16, DTYPE_BF16, 3, 0},
    {4, 1, 64, 16, KV_F16, DTYPE_F16, 48, 0},
    {2, 1, 128, 32, KV_F16, DTYPE_F16, 257, 0},
    {2, 1, 64, 16, KV_BF16, DTYPE_BF16, 300, 4},
    {4, 2, 128, 16, KV_F16, DTYPE_F16, 0, 5},
    {6, 2, 64, 16, KV_BF16, DTYPE_BF16, 0, 0, true},
    {5, 1, 128, 64, KV_BF16, DTYPE_BF16, 100, 6, true},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

/* Returns the number of chunks. */
static int check_step(attention_world *world, const step_parts &parts) {
    const std::vector<uint8_t> got = world->run(parts, INT32_MAX, true);
    const int n_chunks = world->planned.n_chunks;
    ck_assert_int_gt(n_chunks, 0);
    const attention_shape &s = world->shape;
    const double weights = rounding_of(s.cache == KV_F16 ? DTYPE_F16 : DTYPE_BF16);
    check_close(unpacked(s.act, got), world->reference(parts), weights + rounding_of(s.act), 1,
                shape_text(s));
    const std::vector<uint8_t> want = world->run(parts);
    ck_assert_int_eq(world->planned.n_chunks, 0);
    ck_assert_msg(got == want, "%s: other bytes than by mma", shape_text(s).c_str());
    return n_chunks;
}

/* Chunks with less than a warpgroup's vectors and chunks of several items, which begin and end
 * anywhere in tiles, splits and spans, in one step with decode rows; and a sequence without rows.
 */
START_TEST(chunks_are_right) {
    attention_world world(shapes[_i], {600, 90, 130}, 60 + (uint64_t)_i, 2);
    check_step(&world, {{0, 517, 600}, {1, 88, 89}, {1, 0, 0}, {2, 0, 40}, {0, 255, 256}});
    check_step(&world, {{2, 63, 130}, {0, 599, 600}});
}
END_TEST

/* One row too many for a warpgroup and for an item, and one row less than fits. */
START_TEST(chunks_end_around_a_warpgroup) {
    attention_world world({2, 1, 64, 16, KV_BF16, DTYPE_BF16, 0, 0}, {140}, 5, 1);
    for (int rows : {31, 32, 33, 63, 64, 65}) check_step(&world, {{0, 140 - rows, 140}});
    for (int end : {63, 64, 65}) check_step(&world, {{0, 0, end}});
}
END_TEST

/* Rows with very different numbers of visible positions: a decode row without memory for parts. */
START_TEST(whole_items_of_single_rows_are_right) {
    attention_world world({4, 2, 128, 16, KV_BF16, DTYPE_BF16, 0, 0}, {700, 20}, 6, 1);
    const step_parts parts = {{0, 699, 700}, {1, 3, 20}};
    const std::vector<uint8_t> got = world.run(parts, 0, true);
    ck_assert_int_eq(world.planned.n_chunks, 2);
    check_close(unpacked(DTYPE_BF16, got), world.reference(parts), 2 * rounding_of(DTYPE_BF16), 1,
                "single rows");
    ck_assert(got == world.run(parts, 0));
}
END_TEST

/* More items and heads than an H200 has multiprocessors, so a block processes several. */
START_TEST(blocks_take_several_items) {
    attention_world world({8, 8, 64, 16, KV_F16, DTYPE_F16, 0, 0}, {70, 17, 18, 33}, 7, 1);
    step_parts parts;
    for (int i = 0; i < 20; i++) parts.push_back({i % 4, 0, world.lengths[(size_t)(i % 4)]});
    ck_assert_int_gt(check_step(&world, parts) * 8, 132);
}
END_TEST

/* Equal scores, and scores far apart. */
START_TEST(ties_and_extremes_are_right) {
    attention_world world({4, 2, 64, 16, KV_F16, DTYPE_F16, 0, 0}, {300}, 8, 4);
    for (float scale : {0.0f, 30.0f}) {
        world.scale = scale;
        check_step(&world, {{0, 250, 300}});
    }
}
END_TEST

/* ---- plans ---------------------------------------------------------------------------------- */

/* Split items are first and are the same as without chunks. Chunks follow with the rows of all
 * other sequences, each row once. */
static void check_plan(const struct step &step, int H, int G, int64_t max_parts) {
    const size_t most = (size_t)attention_max_items(step.M, step.S, 5000, H, G, max_parts);
    std::vector<attention_item> items(most), others(most);
    attention_plan plan, other;
    const struct attention_sight sight = {};
    attention_make_plan(&plan, items.data(), &step, H, G, &sight, max_parts, true);
    attention_make_plan(&other, others.data(), &step, H, G, &sight, max_parts);
    ck_assert_int_le(plan.n_items, (int)most);
    ck_assert_int_eq(plan.n_chunks, plan.n_whole);
    ck_assert(plan.n_parts == other.n_parts && plan.n_counters == other.n_counters);
    const int n_split = plan.n_items - plan.n_chunks;
    ck_assert_int_eq(n_split, other.n_items - other.n_whole);
    std::vector<int> rows((size_t)step.M, 0);
    for (int i = 0, j = 0; i < n_split; i++, j++) {
        while (others[(size_t)j].span < 0) j++;
        ck_assert(memcmp(&items[(size_t)i], &others[(size_t)j], sizeof items[0]) == 0);
        for (int r = 0; r < items[(size_t)i].rows; r++)
            rows[(size_t)(items[(size_t)i].row + r)] = 1;
    }
    for (int i = n_split; i < plan.n_items; i++) {
        const attention_item &item = items[(size_t)i];
        ck_assert(item.span < 0 && item.rows > 0);
        ck_assert(item.rows == CHUNK_VECTORS / plan.heads ||
                  (item.rows < CHUNK_VECTORS / plan.heads &&
                   item.row + item.rows == step.row_start[item.sequence + 1]));
        ck_assert_int_eq(item.n_splits,
                         step.position[item.row + item.rows - 1] / SPLIT + 1 - item.first_split);
        for (int r = 0; r < item.rows; r++) rows[(size_t)(item.row + r)]++;
    }
    for (int n : rows) ck_assert_int_eq(n, 1);
}

START_TEST(plans_have_every_row_once) {
    uint64_t state = 23;
    for (int round = 0; round < 200; round++) {
        const int G = 1 << random_below(&state, 3), H = G * (1 + random_below(&state, 20));
        std::vector<int32_t> row_start = {0}, position;
        for (int s = random_below(&state, 9); s >= 0; s--) {
            const int end = 1 + random_below(&state, 4999);
            const int kind = random_below(&state, 4);
            const int rows = std::min(end, kind == 0   ? 0
                                           : kind == 1 ? 1
                                                       : random_below(&state, 300));
            for (int p = end - rows; p < end; p++) position.push_back(p);
            row_start.push_back((int32_t)position.size());
        }
        struct step step = {};
        step.M = (int)position.size(), step.S = (int)row_start.size() - 1;
        step.row_start = row_start.data(), step.position = position.data();
        check_plan(step, H, G, random_below(&state, 2) ? random_below(&state, 3000) : INT32_MAX);
    }
}
END_TEST

START_TEST(only_some_caches_are_served) {
    const struct {
        kv_view kv;
        bool serves;
    } cases[] = {{{KV_BF16, 1, 128, 16}, true}, {{KV_F16, 1, 64, 8}, true},
                 {{KV_F16, 1, 256, 16}, false}, {{KV_E4M3, 1, 128, 16}, false},
                 {{KV_F32, 1, 64, 16}, false},  {{KV_BF16, 1, 128, 12}, false},
                 {{KV_BF16, 1, 96, 16}, false}, {{KV_F16, 1, 64, 1}, false}};
    for (const auto &c : cases) ck_assert_int_eq(wgmma_chunks.serves(&c.kv), c.serves);
}
END_TEST

int main() {
    Suite *suite = suite_create("cuda_chunks");
    add_attention_case(suite, "chunks", chunks_are_right, N_SHAPES);
    add_attention_case(suite, "ends", chunks_end_around_a_warpgroup, 1);
    add_attention_case(suite, "single", whole_items_of_single_rows_are_right, 1);
    add_attention_case(suite, "several", blocks_take_several_items, 1);
    add_attention_case(suite, "ties", ties_and_extremes_are_right, 1);
    add_attention_case(suite, "plans", plans_have_every_row_once, 1);
    add_attention_case(suite, "caches", only_some_caches_are_served, 1);
    return suite_main(suite);
}
