/* Attention compared with double precision: all types of caches, sizes of heads and groups; lengths
 * on and around the bounds of tiles, blocks and splits; chunks and decode rows in one step. */
#include <algorithm>
#include <math.h>

#include "tests/cuda/attention_world.h"

/* Head sizes that fill their kernel's size and head sizes that do not. Groups that fill a product's
 * rows, groups that do not, and groups that are cut into unequal parts. Blocks of one position, of
 * powers of two, and of other sizes. */
static const attention_shape shapes[] = {
    {4, 4, 64, 16, KV_BF16, DTYPE_BF16, 0, 0},
    {6, 2, 64, 16, KV_F16, DTYPE_F16, 0, 0},
    {8, 2, 32, 7, KV_F16, DTYPE_BF16, 0, 0},
    {7, 1, 80, 32, KV_BF16, DTYPE_F16, 0, 0},
    {16, 2, 16, 1, KV_F16, DTYPE_F16, 0, 0},
    {3, 3, 96, 24, KV_F16, DTYPE_F16, 0, 0},
    {8, 2, 128, 16, KV_BF16, DTYPE_BF16, 0, 0},
    {2, 1, 256, 16, KV_F16, DTYPE_F16, 0, 0},
    {4, 2, 160, 5, KV_BF16, DTYPE_BF16, 0, 0},
    {4, 2, 128, 12, KV_F16, DTYPE_F16, 0, 0},
    {2, 1, 64, 7, KV_BF16, DTYPE_BF16, 90, 0},
    {2, 1, 64, 24, KV_BF16, DTYPE_BF16, 0, 3},
    {2, 2, 192, 8, KV_F16, DTYPE_BF16, 0, 0},
    {8, 2, 64, 16, KV_E4M3, DTYPE_BF16, 0, 0},
    {3, 1, 80, 5, KV_E4M3, DTYPE_F16, 0, 0},
    {2, 2, 32, 32, KV_E4M3, DTYPE_BF16, 0, 0},
    {20, 1, 32, 16, KV_F16, DTYPE_F16, 0, 0},
    {67, 1, 16, 16, KV_F16, DTYPE_F16, 0, 0},
    {34, 2, 64, 16, KV_BF16, DTYPE_BF16, 0, 0},
    {33, 1, 128, 16, KV_F16, DTYPE_BF16, 300, 5},
    {4, 2, 64, 16, KV_F16, DTYPE_F16, 48, 0},
    {4, 2, 32, 16, KV_F16, DTYPE_F16, 300, 5},
    {4, 1, 64, 16, KV_E4M3, DTYPE_BF16, 257, 0},
    {2, 1, 64, 16, KV_F16, DTYPE_F16, 1, 0},
    {2, 1, 64, 16, KV_F16, DTYPE_F16, 0, 4},
    {8, 2, 64, 16, KV_F16, DTYPE_F16, 0, 0, true},
    {6, 1, 32, 16, KV_BF16, DTYPE_BF16, 300, 0, true},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

/* The error from rounding the weights and the output. */
static double tolerance_of(const attention_shape &s) {
    const double weights = rounding_of(s.cache == KV_F16 ? DTYPE_F16 : DTYPE_BF16);
    if (s.act == DTYPE_F32) return s.D > ATTENTION_MAX_D ? 2e-5 : 4e-6; /* scores are long sums */
    return weights + rounding_of(s.act);
}

static void check_step(attention_world *world, const step_parts &parts) {
    const floats got = unpacked(world->shape.act, world->run(parts));
    check_close(got, world->reference(parts), tolerance_of(world->shape), 1,
                shape_text(world->shape));
}

/* Decode rows on both sides of a block's end, with one to four splits, and with one, two and four
 * spans. */
START_TEST(decode_rows_are_right) {
    attention_world world(shapes[_i], {1100, 260, 40}, 5 + (uint64_t)_i, 1);
    check_step(&world, {{0, 1099, 1100},
                        {0, 1023, 1024},
                        {0, 512, 513},
                        {0, 511, 512},
                        {0, 299, 300},
                        {1, 256, 257},
                        {1, 255, 256},
                        {1, 150, 151},
                        {1, 128, 129},
                        {1, 127, 128},
                        {1, 64, 65},
                        {1, 63, 64},
                        {2, 33, 34},
                        {2, 32, 33},
                        {2, 31, 32},
                        {2, 0, 1}});
}
END_TEST

/* Chunks and decode rows together, and a sequence without rows. */
START_TEST(mixed_steps_are_right) {
    attention_world world(shapes[_i], {320, 90, 40}, 50 + (uint64_t)_i, 2);
    check_step(&world, {{0, 230, 300}, {1, 0, 0}, {1, 88, 89}, {2, 0, 34}, {0, 255, 258}});
}
END_TEST

/* Heads of 512 numbers, as in Gemma 4, and of 272, so that some threads have one number only.
 * Several chunks of 256 positions. */
START_TEST(heads_that_are_too_wide_for_tiles_are_right) {
    static const attention_shape wide[] = {{2, 1, 512, 16, KV_BF16, DTYPE_BF16, 0, 0, true},
                                           {2, 2, 272, 16, KV_E4M3, DTYPE_F16, 270, 5},
                                           {2, 1, 512, 16, KV_F32, DTYPE_F32, 0, 0}};
    attention_world world(wide[_i], {530, 40}, 70 + (uint64_t)_i, 2);
    check_step(&world, {{0, 529, 530}, {0, 255, 258}, {1, 0, 4}});
}
END_TEST

/* A few rows of a long context, which are split. */
START_TEST(few_rows_of_a_long_context_are_right) {
    attention_world world({4, 1, 32, 16, KV_F16, DTYPE_F16, 0, 0}, {1300}, 9, 3);
    check_step(&world, {{0, 1275, 1285}});
    attention_world narrow({4, 1, 32, 16, KV_F16, DTYPE_F16, 30, 0}, {1300}, 9, 3);
    check_step(&narrow, {{0, 1275, 1285}});
    attention_world wide({4, 1, 32, 16, KV_F16, DTYPE_F16, 1100, 0}, {2600}, 9, 3);
    check_step(&wide, {{0, 2555, 2565}});
}
END_TEST

/* Decode rows of two sequences with more than 1,024 positions. With two key-value heads, each pair
 * of row and head has separate parts and a separate counter. The test runs twice to check that the
 * counters return to zero. */
START_TEST(long_rows_side_by_side_are_right) {
    attention_world world({4, 2, 32, 16, KV_F16, DTYPE_F16, 0, 0}, {1290, 1100}, 31, 5);
    for (int again = 0; again < 2; again++) check_step(&world, {{0, 1289, 1290}, {1, 1099, 1100}});
}
END_TEST

/* Equal scores share the weight. Scores far apart give it all to one position. */
START_TEST(ties_and_extremes_are_right) {
    attention_world world({4, 2, 32, 16, KV_F16, DTYPE_F16, 0, 0}, {600}, 21, 4);
    world.scale = 0.0f;
    check_step(&world, {{0, 599, 600}, {0, 0, 40}});
    world.scale = 30.0f;
    check_step(&world, {{0, 599, 600}, {0, 250, 290}});
}
END_TEST

START_TEST(no_rows_are_no_work) {
    struct attention_plan plan;
    int32_t row_start[2] = {0, 0};
    struct step step = {};
    step.S = 1;
    step.row_start = row_start;
    const struct attention_sight sight = {};
    attention_make_plan(&plan, nullptr, &step, 4, 2, &sight, 0);
    ck_assert_int_eq(plan.n_items, 0);
    struct attention_args args = {};
    args.kv = {KV_F16, 2, 32, 16, nullptr, nullptr, nullptr, nullptr};
    args.H = 4;
    attention_run(DTYPE_F16, &args, &plan, test_stream());
    finish();
}
END_TEST

/* Random steps, planned with random amounts of memory. Each row is in a whole item, or in the items
 * of all its splits, and no bound is exceeded. */
START_TEST(plans_stay_within_their_bounds) {
    uint64_t state = 17;
    for (int round = 0; round < 400; round++) {
        const int G = 1 << random_below(&state, 3), H = G * (1 + random_below(&state, 72));
        const int S = 1 + random_below(&state, 9), context = 1 + random_below(&state, 9000);
        std::vector<int32_t> row_start = {0}, position;
        for (int s = 0; s < S; s++) {
            const int end = 1 + random_below(&state, context);
            const int rows = std::min(end, random_below(&state, 3) ? 1 : random_below(&state, 90));
            for (int p = end - rows; p < end; p++) position.push_back(p);
            row_start.push_back((int32_t)position.size());
        }
        struct step step = {};
        step.M = (int)position.size(), step.S = S;
        step.row_start = row_start.data(), step.position = position.data();
        const int64_t max_parts = random_below(&state, 2) ? random_below(&state, 3000) : INT32_MAX;
        const int most = attention_max_items(step.M, S, context, H, G, max_parts);
        std::vector<attention_item> items((size_t)most);
        struct attention_plan plan;
        const struct attention_sight sight = {};
        attention_make_plan(&plan, items.data(), &step, H, G, &sight, max_parts);
        ck_assert_int_le(plan.n_items, most);
        ck_assert(plan.n_parts <= max_parts);
        ck_assert_int_le(plan.n_counters, attention_max_counters(step.M, S));
        /* number of splits of each row that were found */
        std::vector<int> splits(position.size(), 0);
        for (int i = 0; i < plan.n_items; i++) {
            const attention_item &item = items[(size_t)i];
            const int first = std::max(item.first_split, item.span * SPAN_SPLITS);
            const int last =
                std::min(item.first_split + item.n_splits, (item.span + 1) * SPAN_SPLITS);
            const int n = item.span < 0 ? item.n_splits : last - first;
            for (int r = 0; r < item.rows; r++) splits[(size_t)(item.row + r)] += n;
        }
        for (size_t r = 0; r < splits.size(); r++) /* the rows of an item share its splits */
            ck_assert_int_ge(splits[r], position[r] / SPLIT + 1);
    }
}
END_TEST

/* The groups of Llama-3.1-8B, Falcon 180B and Falcon 7B: those of more than 16 query heads are cut
 * into parts whose rows can be split. A decode row of 1,024 positions has an item for each span,
 * and parts for all query heads. */
START_TEST(rows_of_large_groups_are_split) {
    const struct {
        int H, G, heads, head_parts;
    } groups[] = {{32, 8, 4, 1}, {232, 8, 15, 2}, {71, 1, 15, 5}};
    const int32_t row_start[] = {0, 1}, position = 1023;
    struct step step = {};
    step.M = step.S = 1;
    step.row_start = row_start;
    step.position = &position;
    for (const auto &of : groups) {
        attention_item items[5];
        struct attention_plan plan;
        const struct attention_sight sight = {};
        ck_assert_int_le(attention_max_items(1, 1, 1024, of.H, of.G, INT32_MAX), 5);
        attention_make_plan(&plan, items, &step, of.H, of.G, &sight, 4 * of.heads);
        ck_assert(plan.heads == of.heads && plan.head_parts == of.head_parts);
        ck_assert(plan.heads * plan.head_parts >= of.H / of.G);
        ck_assert(plan.n_items == 4 && plan.n_whole == 0 && plan.n_parts == 4 * of.heads);
        for (int i = 0; i < 4; i++) ck_assert_int_eq(items[i].span, i);
    }
}
END_TEST

int main() {
    Suite *suite = suite_create("cuda_attention");
    add_attention_case(suite, "decode", decode_rows_are_right, N_SHAPES);
    add_attention_case(suite, "mixed", mixed_steps_are_right, N_SHAPES);
    add_attention_case(suite, "wide", heads_that_are_too_wide_for_tiles_are_right, 3);
    add_attention_case(suite, "long", few_rows_of_a_long_context_are_right, 1);
    add_attention_case(suite, "long", long_rows_side_by_side_are_right, 1);
    add_attention_case(suite, "ties", ties_and_extremes_are_right, 1);
    add_attention_case(suite, "empty", no_rows_are_no_work, 1);
    add_attention_case(suite, "plans", plans_stay_within_their_bounds, 1);
    add_attention_case(suite, "plans", rows_of_large_groups_are_split, 1);
    return suite_main(suite);
}
