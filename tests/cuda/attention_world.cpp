#include "tests/cuda/attention_world.h"

#include <algorithm>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/wgmma/wgmma.cuh"

/* Returns the sink of a head: some outweigh all positions, some add nothing. */
float sink_of(int head) {
    return (float)(head % 5) * 3.0f - 5.0f;
}

/* Returns the slope of a head: scores halve within some positions, or hardly fall. */
float slope_of(int head) {
    return ldexpf(0.75f, -1 - 2 * (head % 4));
}

std::string shape_text(const attention_shape &s) {
    return text("H %d, G %d, D %d, B %d, cache %d, type %d, window %d, cap %g, sinks %d, "
                "both ways %d, slopes %d",
                s.H, s.G, s.D, s.B, s.cache, s.act, s.window, (double)s.cap, s.has_sinks,
                s.both_ways, s.has_slopes);
}

/* ---- the cache ------------------------------------------------------------------------------ */

static size_t element_bytes(enum kv_type type) {
    return type == KV_F32 ? 4 : type == KV_E4M3 ? 1 : 2;
}

/* Writes a number as the cache stores it. Returns the value that is read back. */
static float stored(enum kv_type type, float number, float scale, uint8_t *to) {
    if (type == KV_E4M3) {
        const __nv_fp8_e4m3 small(number / scale);
        memcpy(to, &small, 1);
        return (float)small * scale;
    }
    enum dtype dtype = type == KV_F32 ? DTYPE_F32 : type == KV_F16 ? DTYPE_F16 : DTYPE_BF16;
    const std::vector<uint8_t> bytes = packed(dtype, {number});
    memcpy(to, bytes.data(), bytes.size());
    return unpacked(dtype, bytes)[0];
}

/* Draws the keys or values of a sequence and writes them to its blocks. */
void attention_world::place(uint64_t *state, floats *numbers, std::vector<uint8_t> *cache,
                            const floats &scales, int sequence) {
    const attention_shape &s = shape;
    const size_t bytes = element_bytes(s.cache);
    for (int p = 0; p < lengths[(size_t)sequence]; p++)
        for (int g = 0; g < s.G; g++) {
            const int block = blocks[(size_t)sequence][(size_t)(p / s.B)];
            const size_t head = (size_t)(block * s.G + g);
            const size_t vector = head * (size_t)s.B + (size_t)(p % s.B);
            for (int d = 0; d < s.D; d++) {
                const size_t at = kv_element(kv_has_tiles(bytes, s.D, s.B), vector, d, s.D);
                numbers->push_back(
                    stored(s.cache, random_float(state), scales[head], &(*cache)[at * bytes]));
            }
        }
}

/* Powers of two, so that a kernel that uses another block's scale is found. */
static floats random_scales(size_t n) {
    uint64_t state = 77;
    floats scales(n);
    for (float &scale : scales) scale = ldexpf(1.0f, random_below(&state, 4) - 6);
    return scales;
}

attention_world::attention_world(const attention_shape &shape_, std::vector<int> lengths_,
                                 uint64_t seed, int placement)
    : shape(shape_), lengths(lengths_), n_blocks(2), planned() {
    /* Scores spread over a few units: neither flat nor dominated by one position. */
    scale = shape.cap != 0.0f ? 8.0f / sqrtf((float)shape.D) : 3.0f / sqrtf((float)shape.D);
    for (int length : lengths) n_blocks += (length + shape.B - 1) / shape.B;
    std::vector<int> order;
    for (int i = 0; i < n_blocks; i++) order.push_back(i);
    uint64_t shuffle = 1000 + (uint64_t)placement;
    for (int i = n_blocks - 1; i > 0; i--)
        std::swap(order[(size_t)i], order[(size_t)random_below(&shuffle, i + 1)]);
    for (int length : lengths) {
        const int n = (length + shape.B - 1) / shape.B;
        blocks.emplace_back(order.end() - n, order.end());
        order.resize(order.size() - (size_t)n);
    }
    const size_t heads = (size_t)(n_blocks * shape.G);
    keys.assign(heads * (size_t)(shape.B * shape.D) * element_bytes(shape.cache), 0xff);
    values = keys;
    /* scales go with blocks: the place of the blocks must not change the numbers */
    key_scale = value_scale = floats(heads, NAN);
    for (const std::vector<int> &mine : blocks) {
        const floats drawn = random_scales(2 * mine.size() * (size_t)shape.G);
        size_t next = 0;
        for (int block : mine)
            for (size_t g = 0; g < (size_t)shape.G; g++) {
                key_scale[(size_t)(block * shape.G) + g] = drawn[next++];
                value_scale[(size_t)(block * shape.G) + g] = drawn[next++];
            }
    }
    uint64_t state = seed;
    q.resize(lengths.size()), k.resize(lengths.size()), v.resize(lengths.size());
    for (size_t s = 0; s < lengths.size(); s++) {
        q[s] = rounded(shape.act, random_vector(&state, (size_t)(lengths[s] * shape.H * shape.D)));
        place(&state, &k[s], &keys, key_scale, (int)s);
        place(&state, &v[s], &values, value_scale, (int)s);
    }
}

/* ---- steps ---------------------------------------------------------------------------------- */

/* A step's arrays. */
struct world_step {
    std::vector<int32_t> position, sequence, row_start, table;
    std::vector<struct attention_range> seen;
    struct step step;
};

static int first_seen_by(const attention_shape &shape, int position) {
    return shape.window ? std::max(position - shape.window + 1, 0) : 0;
}

/* The last position that a row of a sequence of `length` positions sees. */
static int last_seen_by(const attention_shape &shape, int position, int length) {
    if (!shape.both_ways) return position;
    return shape.window ? std::min(position + shape.window, length) - 1 : length - 1;
}

static world_step make_step(const attention_world &world, const step_parts &parts) {
    const int B = world.shape.B;
    world_step a;
    size_t stride = 1;
    for (const std::vector<int> &mine : world.blocks) stride = std::max(stride, mine.size());
    a.table.assign(parts.size() * stride, INT32_MIN);
    a.row_start.push_back(0);
    for (size_t i = 0; i < parts.size(); i++) {
        const part_of_step &part = parts[i];
        for (int p = part.from; p < part.to; p++) {
            a.position.push_back(p);
            a.seen.push_back(
                {first_seen_by(world.shape, p), last_seen_by(world.shape, p, part.to)});
            a.sequence.push_back((int32_t)i);
        }
        ck_assert(!world.shape.both_ways || part.from == part.to ||
                  (part.from == 0 && part.to == world.lengths[(size_t)part.sequence]));
        a.row_start.push_back((int32_t)a.position.size());
        const int first = first_seen_by(world.shape, part.from);
        for (int b = first / B; b <= (part.to - 1) / B && part.to > part.from; b++)
            a.table[i * stride + (size_t)b] = world.blocks[(size_t)part.sequence][(size_t)b];
    }
    a.step = {};
    a.step.M = (int)a.position.size();
    a.step.position = a.position.data();
    a.step.S = (int)parts.size();
    a.step.row_start = a.row_start.data();
    a.step.table = a.table.data();
    a.step.table_stride = (int)stride;
    return a;
}

static floats queries_of(const attention_world &world, const step_parts &parts) {
    const size_t size = (size_t)(world.shape.H * world.shape.D);
    floats all;
    for (const part_of_step &part : parts) {
        const floats &q = world.q[(size_t)part.sequence];
        all.insert(all.end(), q.begin() + (ptrdiff_t)(size * (size_t)part.from),
                   q.begin() + (ptrdiff_t)(size * (size_t)part.to));
    }
    return all;
}

static size_t some(size_t bytes) {
    return std::max(bytes, (size_t)16);
}

/* Plans the step and runs it twice. In float32 the float kernel runs instead. */
static std::vector<uint8_t> run_planned(attention_args *args, const attention_shape &shape,
                                        const world_step &a, attention_plan *planned,
                                        int64_t max_parts, bool chunks, buffer *y) {
    std::vector<attention_item> items((size_t)attention_max_items(
        a.step.M, a.step.S, a.step.table_stride * shape.B, shape.H, shape.G, max_parts));
    attention_plan &plan = *planned;
    const struct attention_sight sight = {shape.window, shape.both_ways};
    attention_make_plan(&plan, items.data(), &a.step, shape.H, shape.G, &sight, max_parts, chunks);
    ck_assert_uint_le((size_t)plan.n_items, items.size());
    ck_assert(plan.n_parts <= max_parts);
    if (!chunks) { /* one item without rows, as in a captured launch */
        items.resize((size_t)++plan.n_items);
        items.back() = {};
    }
    buffer item_buffer(items), sequence(a.sequence);
    buffer parts(some(attention_parts_bytes(&plan, shape.G, shape.D)));
    std::vector<int32_t> zeros(some(attention_counters_bytes(&plan, shape.G)) / 4, 0);
    buffer counters(zeros);
    args->items = item_buffer.as<attention_item>();
    args->parts = parts.as<float>();
    args->counters = counters.as<int32_t>();
    std::vector<uint8_t> before;
    for (int launch = 0; launch < 2; launch++) {
        y->poison(), parts.poison();
        if (shape.act == DTYPE_F32 || shape.D > ATTENTION_MAX_D)
            attention_float(shape.act, args, shape.D, sequence.as<int32_t>(), a.step.M,
                            test_stream());
        else
            attention_run(shape.act, args, &plan, test_stream(), &wgmma_chunks);
        std::vector<uint8_t> now = y->read<uint8_t>();
        if (launch)
            ck_assert_msg(now == before, "%s: not the same twice", shape_text(shape).c_str());
        before = now;
    }
    ck_assert(counters.read<int32_t>() == zeros);
    return before;
}

std::vector<uint8_t> attention_world::run(const step_parts &parts, int64_t max_parts, bool chunks) {
    const world_step a = make_step(*this, parts);
    buffer q_buffer(packed(shape.act, queries_of(*this, parts))), y(q_buffer.bytes);
    buffer k_buffer(keys), v_buffer(values), k_scale(key_scale), v_scale(value_scale);
    buffer position(a.position), seen(a.seen), table(a.table);
    attention_args args = {};
    args.y = y.data;
    args.q = q_buffer.data;
    args.kv = {shape.cache,
               shape.G,
               shape.D,
               shape.B,
               k_buffer.data,
               v_buffer.data,
               k_scale.as<float>(),
               v_scale.as<float>()};
    args.position = position.as<int32_t>();
    args.seen = seen.as<struct attention_range>();
    args.table = table.as<int32_t>();
    args.table_stride = a.step.table_stride;
    args.H = shape.H;
    args.scale = scale;
    args.cap = shape.cap;
    floats sinks, slopes;
    for (int h = 0; h < shape.H; h++) {
        sinks.push_back(sink_of(h));
        slopes.push_back(slope_of(h));
    }
    buffer sink_buffer(sinks), slope_buffer(slopes);
    if (shape.has_sinks) args.sinks = sink_buffer.as<float>();
    if (shape.has_slopes) args.slopes = slope_buffer.as<float>();
    return run_planned(&args, shape, a, &planned, max_parts, chunks, &y);
}

/* ---- double precision ----------------------------------------------------------------------- */

/* Queries as the products read them: in the cache's 16-bit type, or bfloat16. */
static floats operands(const attention_shape &shape, const floats &q) {
    if (shape.act == DTYPE_F32) return q;
    return rounded(shape.cache == KV_F16 ? DTYPE_F16 : DTYPE_BF16, q);
}

static void reference_vector(const attention_world &world, int h, const float *q, const float *k,
                             const float *v, int position, int length, float *y) {
    const attention_shape &s = world.shape;
    const int first = first_seen_by(s, position), last = last_seen_by(s, position, length);
    std::vector<double> e, o((size_t)s.D, 0);
    double most = -INFINITY, sum = 0;
    for (int p = first; p <= last; p++) {
        double dot = 0;
        for (int d = 0; d < s.D; d++) dot += (double)q[d] * (double)k[p * s.G * s.D + d];
        dot *= (double)world.scale;
        if (s.has_slopes) dot -= (double)slope_of(h) * abs(p - position);
        if (s.cap != 0.0f) dot = (double)s.cap * tanh(dot / (double)s.cap);
        e.push_back(dot);
        most = std::max(most, dot);
    }
    if (s.has_sinks)
        most = std::max(most, (double)sink_of(h)), sum = exp((double)sink_of(h) - most);
    for (int p = first; p <= last; p++) {
        const double weight = exp(e[(size_t)(p - first)] - most);
        sum += weight;
        for (int d = 0; d < s.D; d++) o[(size_t)d] += weight * (double)v[p * s.G * s.D + d];
    }
    for (int d = 0; d < s.D; d++) y[d] = (float)(o[(size_t)d] / sum);
}

floats attention_world::reference(const step_parts &parts) const {
    floats y;
    for (const part_of_step &part : parts) {
        const size_t s = (size_t)part.sequence;
        const floats mine = operands(shape, q[s]);
        for (int p = part.from; p < part.to; p++)
            for (int h = 0; h < shape.H; h++) {
                const int g = (int)((long)h * shape.G / shape.H);
                y.resize(y.size() + (size_t)shape.D);
                reference_vector(*this, h, &mine[(size_t)((p * shape.H + h) * shape.D)],
                                 &k[s][(size_t)(g * shape.D)], &v[s][(size_t)(g * shape.D)], p,
                                 part.to, &y[y.size() - (size_t)shape.D]);
            }
    }
    return y;
}

void add_attention_case(Suite *suite, const char *name, const TTest *test, int n) {
    TCase *cases = tcase_create(name);
    tcase_set_timeout(cases, 300);
    tcase_add_loop_test(cases, test, 0, n);
    suite_add_tcase(suite, cases);
}
