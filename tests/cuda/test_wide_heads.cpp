/* Attention of wide heads and latent attention on the tensor cores, compared with double precision.
 * A row's bytes are the same alone, in a batch, in any chunk, split or whole, for blocks of any
 * number of vectors, and with its cache blocks anywhere. */
#include <algorithm>
#include <math.h>
#include <string.h>

#include "kernels/cuda/wide_heads/wide_heads.cuh"
#include "tests/cuda/attention_world.h"

using bytes = std::vector<uint8_t>;

/* Groups that fill a block's vectors, groups that do not, and groups that are cut into parts.
 * Blocks of tiles, and of 5 and 7 positions, which have none. Activations of another type than the
 * cache. */
static const attention_shape shapes[] = {
    {20, 1, 576, 16, KV_BF16, DTYPE_BF16, 0, 0, false, false, false, 512},
    {6, 2, 512, 16, KV_F16, DTYPE_BF16, 0, 0, true},
    {66, 1, 320, 8, KV_F16, DTYPE_F16, 0, 0, false, false, false, 256},
    {4, 2, 512, 7, KV_BF16, DTYPE_F16, 40, 5},
    {3, 1, 320, 5, KV_F16, DTYPE_F16, 270, 0, false, false, true, 256},
    {2, 1, 512, 16, KV_BF16, DTYPE_BF16, 0, 0, false, true},
    {8, 2, 512, 16, KV_BF16, DTYPE_F16, 270, 0, false, false, true},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes, LENGTH = 290 };
enum { POSITIONS = 32 }; /* of a unit of the kernel */

/* Compares with double precision that rounds weights as the kernel does. So the limit is the
 * rounding of the output. Rounding the weights may change a number by more than that: in bfloat16
 * by up to 1 / 256 of the distance of two values, if few positions have all the weight. */
static bytes check_step(attention_world *world, const step_parts &parts,
                        int64_t max_parts = INT32_MAX) {
    const std::string what = shape_text(world->shape);
    const bytes packed = world->run(parts, max_parts);
    const floats got = unpacked(world->shape.act, packed);
    floats doubt;
    const floats want = world->rounded_reference(parts, POSITIONS, &doubt);
    ck_assert_uint_eq(got.size(), want.size());
    for (size_t i = 0; i < got.size(); i++) {
        const double off = fabs((double)got[i] - (double)want[i]);
        const double most =
            rounding_of(world->shape.act) * fabs((double)want[i]) + (double)doubt[i] + 2e-6;
        ck_assert_msg(off <= most, "%s: number %zu of %zu is %.9g, not %.9g", what.c_str(), i,
                      got.size(), (double)got[i], (double)want[i]);
    }
    return packed;
}

/* Decode rows around the ends of units, blocks and spans, and chunks of prompts; the second time
 * with blocks of other sizes, without memory for parts, and with the cache blocks elsewhere. */
START_TEST(steps_are_right_with_blocks_of_any_size) {
    attention_world world(shapes[_i], {LENGTH, 40, 3}, 5 + (uint64_t)_i, 1);
    const int heads = shapes[_i].H / shapes[_i].G;
    /* more vectors than a split item takes */
    const int end = 254 + std::max(2, (SPLIT_VECTORS + heads) / heads);
    step_parts parts = {{0, 289, 290}, {1, 31, 33}, {0, 254, end}, {2, 0, 1}, {2, 0, 0}};
    if (shapes[_i].both_ways) parts = {{1, 0, 40}, {2, 0, 3}};
    world.tiles = 4;
    const bytes want = check_step(&world, parts);
    ck_assert(world.planned.n_whole > 0);
    for (int tiles : {1, 2}) {
        world.tiles = tiles;
        ck_assert_msg(world.run(parts) == want, "%s: %d tiles", shape_text(shapes[_i]).c_str(),
                      tiles);
    }
    ck_assert_msg(world.run(parts, 0) == want, "%s: whole items", shape_text(shapes[_i]).c_str());
    attention_world moved(shapes[_i], {LENGTH, 40, 3}, 5 + (uint64_t)_i, 9);
    moved.tiles = 4;
    ck_assert_msg(moved.run(parts, 0) == want, "%s: other blocks", shape_text(shapes[_i]).c_str());
}
END_TEST

static bytes rows_of(const attention_world &world, const bytes &y, int from, int to) {
    const ptrdiff_t row = (ptrdiff_t)world.shape.H * world.shape.value_size() * 2;
    return bytes(y.begin() + row * from, y.begin() + row * to);
}

/* The rows of a chunk, which also sees later positions than some of its rows, equal rows alone. */
START_TEST(rows_alone_have_the_bytes_of_a_chunk) {
    const attention_shape two[] = {shapes[0], shapes[3]};
    for (const attention_shape &shape : two) {
        attention_world world(shape, {262}, 31, 0);
        world.tiles = 4;
        const bytes chunk = world.run({{0, 250, 262}});
        for (int p : {250, 255, 256, 261}) {
            world.tiles = p % 2 ? 4 : 1;
            ck_assert_msg(world.run({{0, p, p + 1}}) == rows_of(world, chunk, p - 250, p - 249),
                          "%s: row %d", shape_text(shape).c_str(), p);
        }
    }
}
END_TEST

/* All kinds of items in windows of few positions. The checked form of this one is quick. */
START_TEST(short_windows_are_right) {
    const attention_shape both[] = {
        {4, 2, 512, 7, KV_BF16, DTYPE_F16, 40, 5},
        {9, 1, 320, 8, KV_F16, DTYPE_F16, 40, 0, true, false, true, 256}};
    for (const attention_shape &shape : both) {
        attention_world world(shape, {270}, 77, 3);
        world.tiles = 2;
        const bytes want = check_step(&world, {{0, 269, 270}, {0, 252, 261}});
        ck_assert(world.planned.n_whole > 0 && world.planned.n_parts > 0);
        world.tiles = 1;
        ck_assert(world.run({{0, 269, 270}, {0, 252, 261}}) == want);
    }
}
END_TEST

/* Equal scores share the weight. Scores far apart give it all to one position. */
START_TEST(ties_and_extremes_are_right) {
    attention_world world({4, 1, 320, 16, KV_F16, DTYPE_F16, 0, 0, false, false, false, 256}, {300},
                          21, 4);
    world.tiles = 2;
    for (float scale : {0.0f, 30.0f}) {
        world.scale = scale;
        check_step(&world, {{0, 299, 300}, {0, 250, 254}});
    }
}
END_TEST

/* Latent attention of many heads: a block has all of up to 64 heads, and a row's spans are split
 * among blocks. With 128 heads there are two blocks for each span. */
START_TEST(blocks_have_up_to_64_heads) {
    const struct {
        int H, most, heads, head_parts, split_vectors;
    } groups[] = {{16, 64, 16, 1, 16},  {20, 64, 20, 1, 32},  {64, 64, 64, 1, 64},
                  {128, 64, 64, 2, 64}, {128, 32, 32, 4, 32}, {128, 16, 16, 8, 16}};
    const int32_t row_start[] = {0, 1}, position = 1023;
    struct step step = {};
    step.M = step.S = 1;
    step.row_start = row_start;
    step.position = &position;
    for (const auto &of : groups) {
        attention_item items[5];
        struct attention_plan plan;
        const struct attention_sight sight = {};
        ck_assert_int_le(attention_max_items(1, 1, 1024, of.H, 1, INT32_MAX, of.most), 5);
        attention_make_plan(&plan, items, &step, of.H, 1, &sight, INT32_MAX, false, of.most);
        ck_assert(plan.heads == of.heads && plan.head_parts == of.head_parts);
        ck_assert_int_eq(plan.split_vectors, of.split_vectors);
        ck_assert(plan.n_items == 4 && plan.n_whole == 0 && plan.n_parts == 4 * of.heads);
    }
}
END_TEST

/* Random steps of latent attention. Each row is in a whole item or in the items of all its spans,
 * and no bound is exceeded. */
START_TEST(plans_stay_within_their_bounds) {
    uint64_t state = 19;
    for (int round = 0; round < 300; round++) {
        const int H = 1 + random_below(&state, 150), most_heads = 16 << random_below(&state, 3);
        const int S = 1 + random_below(&state, 5), context = 1 + random_below(&state, 9000);
        std::vector<int32_t> row_start = {0}, position;
        for (int s = 0; s < S; s++) {
            const int end = 1 + random_below(&state, context);
            const int rows = std::min(end, 1 + random_below(&state, 9));
            for (int p = end - rows; p < end; p++) position.push_back(p);
            row_start.push_back((int32_t)position.size());
        }
        struct step step = {};
        step.M = (int)position.size(), step.S = S;
        step.row_start = row_start.data(), step.position = position.data();
        const int64_t max_parts = random_below(&state, 2) ? random_below(&state, 3000) : INT32_MAX;
        const int most = attention_max_items(step.M, S, context, H, 1, max_parts, most_heads);
        std::vector<attention_item> items((size_t)most);
        struct attention_plan plan;
        const struct attention_sight sight = {};
        attention_make_plan(&plan, items.data(), &step, H, 1, &sight, max_parts, false, most_heads);
        ck_assert(plan.n_items <= most && plan.n_parts <= max_parts);
        ck_assert_int_le(plan.n_counters, attention_max_counters(step.M, S));
        std::vector<int> spans(position.size(), 0);
        for (int i = 0; i < plan.n_items; i++) {
            const attention_item &item = items[(size_t)i];
            const int limit = item.span < 0 ? WHOLE_VECTORS : plan.split_vectors;
            ck_assert_int_le(item.rows * plan.heads, limit);
            for (int r = 0; r < item.rows; r++)
                spans[(size_t)(item.row + r)] += item.span < 0 ? 99 : 1;
        }
        for (size_t r = 0; r < spans.size(); r++)
            ck_assert(spans[r] == 99 || spans[r] >= position[r] / SPAN + 1);
    }
}
END_TEST

/* The rule of attention.cuh: which heads and caches have a kernel, and the vectors of a block on
 * devices of 99, 163 and 227 KiB. */
START_TEST(the_rule_names_heads_caches_and_devices) {
    const struct {
        enum dtype act;
        enum kv_type cache;
        int D, D_value, tiles[3];
    } rules[] = {
        {DTYPE_BF16, KV_BF16, 576, 512, {1, 2, 4}}, {DTYPE_F16, KV_BF16, 512, 512, {1, 4, 4}},
        {DTYPE_F16, KV_F16, 320, 256, {2, 4, 4}},   {DTYPE_F32, KV_BF16, 576, 512, {0, 0, 0}},
        {DTYPE_BF16, KV_E4M3, 512, 512, {0, 0, 0}}, {DTYPE_BF16, KV_F32, 512, 512, {0, 0, 0}},
        {DTYPE_BF16, KV_BF16, 576, 576, {0, 0, 0}}, {DTYPE_BF16, KV_BF16, 272, 272, {0, 0, 0}}};
    const size_t block_bytes[] = {99 << 10, 163 << 10, 227 << 10};
    for (const auto &rule : rules)
        for (int i = 0; i < 3; i++) {
            const struct kv_view kv = {rule.cache, 1, rule.D, 16};
            ck_assert_msg(wide_heads.tiles(rule.act, &kv, rule.D_value, block_bytes[i]) ==
                              rule.tiles[i],
                          "D %d, values of %d, device %d", rule.D, rule.D_value, i);
        }
}
END_TEST

int main() {
    Suite *suite = suite_create("cuda_wide_heads");
    add_attention_case(suite, "steps", steps_are_right_with_blocks_of_any_size, N_SHAPES);
    add_attention_case(suite, "alone", rows_alone_have_the_bytes_of_a_chunk, 1);
    add_attention_case(suite, "short", short_windows_are_right, 1);
    add_attention_case(suite, "ties", ties_and_extremes_are_right, 1);
    add_attention_case(suite, "plans", blocks_have_up_to_64_heads, 1);
    add_attention_case(suite, "plans", plans_stay_within_their_bounds, 1);
    add_attention_case(suite, "rule", the_rule_names_heads_caches_and_devices, 1);
    return suite_main(suite);
}
