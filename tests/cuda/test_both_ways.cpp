/* Attention that sees both ways: prompts of encoders, all of whose positions are rows of one step.
 * Compared with double precision, for all kinds of kernels, with windows and slopes. A sequence's
 * bytes are the same alone, beside others and in any order, by mma and by wgmma. */
#include <algorithm>
#include <string.h>

#include "kernels/cuda/wgmma/wgmma.cuh"
#include "tests/cuda/attention_world.h"

using bytes = std::vector<uint8_t>;

/* The kernels with fixed heads and others, groups of one and of many heads. Windows within a tile,
 * a split and a span. Slopes alone, and with windows and caps. */
static const attention_shape shapes[] = {
    {4, 2, 64, 16, KV_BF16, DTYPE_BF16, 0, 0, false, true},
    {4, 4, 8, 16, KV_F16, DTYPE_F16, 0, 0, false, true},
    {3, 1, 64, 16, KV_F16, DTYPE_F16, 20, 0, false, true, true},
    {6, 6, 64, 16, KV_BF16, DTYPE_BF16, 0, 0, false, true, true},
    {2, 1, 128, 16, KV_F16, DTYPE_BF16, 129, 0, false, true},
    {2, 1, 128, 32, KV_BF16, DTYPE_BF16, 70, 6, true, true, true},
    {20, 1, 32, 7, KV_F16, DTYPE_F16, 3, 0, false, true},
    {2, 1, 32, 16, KV_E4M3, DTYPE_BF16, 40, 0, false, true, true},
    {2, 2, 16, 16, KV_F32, DTYPE_F32, 30, 5, false, true, true},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

/* One row, fewer and more rows than a product, a split and a span have. */
static const std::vector<int> lengths = {1, 3, 17, 64, 130, 260};

static double tolerance_of(const attention_shape &s) {
    if (s.act == DTYPE_F32) return 4e-6;
    return rounding_of(s.cache == KV_F16 ? DTYPE_F16 : DTYPE_BF16) + rounding_of(s.act);
}

static size_t row_bytes(const attention_shape &s) {
    return (size_t)(s.H * s.D) * (s.act == DTYPE_F32 ? 4 : 2);
}

/* The whole sequences in an order, and the bytes of each in the order of their numbers. */
static std::vector<bytes> run(attention_world *world, const std::vector<int> &order, bool chunks) {
    step_parts parts;
    for (int s : order) parts.push_back({s, 0, world->lengths[(size_t)s]});
    const bytes all = world->run(parts, INT32_MAX, chunks);
    std::vector<bytes> each(world->lengths.size());
    size_t at = 0;
    for (int s : order) {
        const size_t n = (size_t)world->lengths[(size_t)s] * row_bytes(world->shape);
        each[(size_t)s] = bytes(all.begin() + (ptrdiff_t)at, all.begin() + (ptrdiff_t)(at + n));
        at += n;
    }
    return each;
}

START_TEST(rows_see_both_ways) {
    attention_world world(shapes[_i], lengths, 80 + (uint64_t)_i, 2);
    const attention_shape &s = world.shape;
    std::vector<int> order;
    step_parts parts;
    for (int i = 0; i < (int)lengths.size(); i++) {
        order.push_back(i);
        parts.push_back({i, 0, lengths[(size_t)i]});
    }
    const std::vector<bytes> together = run(&world, order, false);
    floats got;
    for (const bytes &one : together) {
        const floats mine = unpacked(s.act, one);
        got.insert(got.end(), mine.begin(), mine.end());
    }
    check_close(got, world.reference(parts), tolerance_of(s), 1, shape_text(s));
    for (size_t i = 0; i < lengths.size(); i++)
        ck_assert_msg(run(&world, {(int)i}, false)[i] == together[i], "%s: %d rows alone",
                      shape_text(s).c_str(), lengths[i]);
    std::reverse(order.begin(), order.end());
    ck_assert_msg(run(&world, order, false) == together, "%s: in another order",
                  shape_text(s).c_str());
    const struct kv_view kv = {s.cache, s.G, s.D, s.B};
    if (!wgmma_chunks.serves(&kv)) return;
    ck_assert_msg(run(&world, order, true) == together, "%s: by wgmma", shape_text(s).c_str());
    ck_assert_int_gt(world.planned.n_chunks, 0);
}
END_TEST

/* The splits of each row are in an item, and no bound is exceeded. */
START_TEST(plans_hold_what_rows_see) {
    uint64_t state = 29;
    for (int round = 0; round < 200; round++) {
        const int G = 1 << random_below(&state, 3), H = G * (1 + random_below(&state, 20));
        const int S = 1 + random_below(&state, 9), context = 1 + random_below(&state, 900);
        const struct attention_sight sight = {
            random_below(&state, 2) ? 1 + random_below(&state, 200) : 0, true};
        std::vector<int32_t> row_start = {0}, position, end;
        for (int s = 0; s < S; s++) {
            const int n = random_below(&state, context + 1);
            for (int p = 0; p < n; p++) position.push_back(p), end.push_back(n - 1);
            row_start.push_back((int32_t)position.size());
        }
        struct step step = {};
        step.M = (int)position.size(), step.S = S;
        step.row_start = row_start.data(), step.position = position.data();
        const int64_t max_parts = random_below(&state, 2) ? random_below(&state, 300) : INT32_MAX;
        const bool chunks = random_below(&state, 2);
        std::vector<attention_item> items(
            (size_t)attention_max_items(step.M, S, context, H, G, max_parts));
        struct attention_plan plan;
        attention_make_plan(&plan, items.data(), &step, H, G, &sight, max_parts, chunks);
        ck_assert_uint_le((size_t)plan.n_items, items.size());
        ck_assert(plan.n_parts <= max_parts);
        std::vector<int> found(position.size(), 0);
        for (int i = 0; i < plan.n_items; i++) {
            const attention_item &item = items[(size_t)i];
            for (int r = item.row; r < item.row + item.rows; r++) {
                const int p = position[(size_t)r], W = sight.window;
                const int first = W ? std::max(p - W + 1, 0) : 0;
                const int last = W ? std::min(p + W - 1, (int)end[(size_t)r]) : end[(size_t)r];
                ck_assert_int_le(item.first_split, first / SPLIT);
                ck_assert_int_gt(item.first_split + item.n_splits, last / SPLIT);
                found[(size_t)r] = 1;
            }
        }
        ck_assert_int_eq(std::count(found.begin(), found.end(), 0), 0);
    }
}
END_TEST

int main() {
    Suite *suite = suite_create("cuda_both_ways");
    add_attention_case(suite, "rows", rows_see_both_ways, N_SHAPES);
    add_attention_case(suite, "plans", plans_hold_what_rows_see, 1);
    return suite_main(suite);
}
