#include "tests/cuda/attention_world.h"

#include <algorithm>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/wgmma/wgmma.cuh"
#include "kernels/cuda/wide_heads/wide_heads.cuh"

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
                "both ways %d, slopes %d, values of %d",
                s.H, s.G, s.D, s.B, s.cache, s.act, s.window, (double)s.cap, s.has_sinks,
                s.both_ways, s.has_slopes, s.value_size());
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
        if (!shape.D_value) place(&state, &v[s], &values, value_scale, (int)s);
        for (size_t at = 0; shape.D_value && at < k[s].size(); at += (size_t)shape.D)
            v[s].insert(v[s].end(), k[s].begin() + (ptrdiff_t)at,
                        k[s].begin() + (ptrdiff_t)at + shape.D_value);
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

void attention_world::attend(const attention_args *args, const int32_t *sequence, int M) {
    const bool is_wide = shape.D > ATTENTION_MAX_D || shape.D_value;
    if (shape.act == DTYPE_F32 || (is_wide && !tiles))
        attention_float(shape.act, args, shape.value_size(), sequence, M, test_stream());
    else if (is_wide)
        wide_heads.run(shape.act, args, &planned, tiles, test_stream());
    else
        attention_run(shape.act, args, &planned, test_stream(), &wgmma_chunks);
}

/* Plans the step and runs it twice. */
/* attention_seen returns what this file expects each row to see. */
static void check_seen(const world_step &a, const struct attention_sight &sight) {
    for (size_t m = 0; m < a.seen.size(); m++) {
        const struct attention_range got = attention_seen(&a.step, a.sequence[m], (int)m, &sight);
        ck_assert_int_eq(got.first, a.seen[m].first);
        ck_assert_int_eq(got.last, a.seen[m].last);
    }
}

std::vector<uint8_t> attention_world::run_planned(attention_args *args, const world_step &a,
                                                  int64_t max_parts, bool chunks, buffer *y) {
    const int most_heads = shape.D_value && tiles ? tiles * SPLIT_VECTORS : ATTENTION_MAX_HEADS;
    std::vector<attention_item> items(
        (size_t)attention_max_items(a.step.M, a.step.S, a.step.table_stride * shape.B, shape.H,
                                    shape.G, max_parts, most_heads));
    attention_plan &plan = planned;
    const struct attention_sight sight = {shape.window, shape.both_ways};
    check_seen(a, sight);
    attention_make_plan(&plan, items.data(), &a.step, shape.H, shape.G, &sight, max_parts, chunks,
                        most_heads);
    ck_assert_uint_le((size_t)plan.n_items, items.size());
    ck_assert(plan.n_parts <= max_parts);
    if (!chunks) { /* one item without rows, as in a captured launch */
        items.resize((size_t)++plan.n_items);
        items.back() = {};
    }
    buffer item_buffer(items), sequence(a.sequence);
    buffer parts(some(attention_parts_bytes(&plan, shape.G, shape.value_size())));
    std::vector<int32_t> zeros(some(attention_counters_bytes(&plan, shape.G)) / 4, 0);
    buffer counters(zeros);
    args->items = item_buffer.as<attention_item>();
    args->parts = parts.as<float>();
    args->counters = counters.as<int32_t>();
    std::vector<uint8_t> before;
    for (int launch = 0; launch < 2; launch++) {
        y->poison(), parts.poison();
        attend(args, sequence.as<int32_t>(), a.step.M);
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
    buffer q_buffer(packed(shape.act, queries_of(*this, parts)));
    buffer y(q_buffer.bytes / (size_t)shape.D * (size_t)shape.value_size());
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
               shape.D_value ? k_buffer.data : v_buffer.data,
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
    return run_planned(&args, a, max_parts, chunks, &y);
}

/* ---- double precision ----------------------------------------------------------------------- */

/* Queries as the products read them: in the cache's 16-bit type, or bfloat16. */
static floats operands(const attention_shape &shape, const floats &q) {
    if (shape.act == DTYPE_F32) return q;
    return rounded(shape.cache == KV_F16 ? DTYPE_F16 : DTYPE_BF16, q);
}

/* A row's vector of one head, and the keys and values that it may see. */
struct seen_vector {
    const attention_world &world;
    int h, position, first, last;
    const float *q, *k, *v;
    const float *value(int p) const {
        return v + (ptrdiff_t)p * world.shape.G * world.shape.value_size();
    }
};

/* The scores of the positions that the vector sees. */
static std::vector<double> scores_of(const seen_vector &x) {
    const attention_shape &s = x.world.shape;
    std::vector<double> scores;
    for (int p = x.first; p <= x.last; p++) {
        double dot = 0;
        for (int d = 0; d < s.D; d++) dot += (double)x.q[d] * (double)x.k[p * s.G * s.D + d];
        dot *= (double)x.world.scale;
        if (s.has_slopes) dot -= (double)slope_of(x.h) * abs(p - x.position);
        if (s.cap != 0.0f) dot = (double)s.cap * tanh(dot / (double)s.cap);
        scores.push_back(dot);
    }
    return scores;
}

/* y = the values times the weights, divided by the sum of the weights and of the sink's, which is
 * relative to the score `most`. Returns that sum. */
static double weigh_values(const seen_vector &x, const std::vector<double> &weights, double most,
                           float *y) {
    const int D_value = x.world.shape.value_size();
    std::vector<double> o((size_t)D_value, 0);
    double sum = x.world.shape.has_sinks ? exp((double)sink_of(x.h) - most) : 0;
    for (int p = x.first; p <= x.last; p++) {
        const double weight = weights[(size_t)(p - x.first)];
        sum += weight;
        for (int d = 0; d < D_value; d++) o[(size_t)d] += weight * (double)x.value(p)[d];
    }
    for (int d = 0; d < D_value; d++) y[d] = (float)(o[(size_t)d] / sum);
    return sum;
}

static void reference_vector(const seen_vector &x, float *y) {
    std::vector<double> weights = scores_of(x);
    double most = *std::max_element(weights.begin(), weights.end());
    if (x.world.shape.has_sinks) most = std::max(most, (double)sink_of(x.h));
    for (double &weight : weights) weight = exp(weight - most);
    weigh_values(x, weights, most, y);
}

/* Calls vector(x, y, at) for each vector of a step; y has room for its result, number `at` on. */
template <class F>
static void each_vector(const attention_world &world, const step_parts &parts, floats *y,
                        const F &vector) {
    const attention_shape &shape = world.shape;
    const size_t D_value = (size_t)shape.value_size();
    for (const part_of_step &part : parts) {
        const size_t s = (size_t)part.sequence;
        const floats mine = operands(shape, world.q[s]);
        for (int p = part.from; p < part.to; p++)
            for (int h = 0; h < shape.H; h++) {
                const size_t g = (size_t)h * (size_t)shape.G / (size_t)shape.H, at = y->size();
                y->resize(at + D_value);
                const seen_vector x = {world,
                                       h,
                                       p,
                                       first_seen_by(shape, p),
                                       last_seen_by(shape, p, part.to),
                                       &mine[(size_t)((p * shape.H + h) * shape.D)],
                                       &world.k[s][g * (size_t)shape.D],
                                       &world.v[s][g * D_value]};
                vector(x, &(*y)[at], at);
            }
    }
}

floats attention_world::reference(const step_parts &parts) const {
    floats y;
    each_vector(*this, parts, &y,
                [](const seen_vector &x, float *to, size_t) { reference_vector(x, to); });
    return y;
}

/* ---- double precision with rounded weights -------------------------------------------------- */

/* For each position that the vector sees, the largest score up to the end of its unit, from the
 * begin of its span on. */
static std::vector<double> bases_of(const seen_vector &x, const std::vector<double> &scores,
                                    int unit) {
    std::vector<double> bases = scores;
    for (int p = x.first + 1; p <= x.last; p++) {
        double *base = &bases[(size_t)(p - x.first)];
        if (p % SPAN != 0) *base = std::max(base[0], base[-1]);
    }
    for (int p = x.last - 1; p >= x.first; p--)
        if ((p + 1) % unit != 0) bases[(size_t)(p - x.first)] = bases[(size_t)(p - x.first) + 1];
    return bases;
}

/* The relative error of a kernel's weight, whose score has about 24 bits. */
static double error_of(double score) {
    return 1e-6 * (4 + fabs(score));
}

/* Rounds the weights exp(score - base) to the cache's type, each after an error of `side` times
 * error_of. */
static floats rounded_weights(const seen_vector &x, const std::vector<double> &scores,
                              const std::vector<double> &bases, int side) {
    floats weights;
    for (size_t i = 0; i < scores.size(); i++)
        weights.push_back((float)(exp(scores[i] - bases[i]) * (1 + side * error_of(scores[i]))));
    return rounded(x.world.shape.cache == KV_F16 ? DTYPE_F16 : DTYPE_BF16, weights);
}

/* If a weight is between two 16-bit numbers, the kernel may round it to the other one. */
static void rounded_vector(const seen_vector &x, int unit, float *y, float *doubt) {
    const std::vector<double> scores = scores_of(x), bases = bases_of(x, scores, unit);
    double most = *std::max_element(scores.begin(), scores.end());
    if (x.world.shape.has_sinks) most = std::max(most, (double)sink_of(x.h));
    const floats weights = rounded_weights(x, scores, bases, 0);
    const floats low = rounded_weights(x, scores, bases, -1);
    const floats high = rounded_weights(x, scores, bases, 1);
    std::vector<double> whole, doubts;
    for (size_t i = 0; i < scores.size(); i++) {
        const double factor = exp(bases[i] - most);
        whole.push_back((double)weights[i] * factor);
        doubts.push_back(((double)high[i] - (double)low[i]) * factor +
                         whole.back() * error_of(bases[i]));
    }
    const double sum = weigh_values(x, whole, most, y);
    for (int d = 0; d < x.world.shape.value_size(); d++) {
        double off = 0;
        for (size_t i = 0; i < doubts.size(); i++)
            off += doubts[i] * fabs((double)x.value(x.first + (int)i)[d] - (double)y[d]);
        doubt[d] = (float)(off / sum);
    }
}

floats attention_world::rounded_reference(const step_parts &parts, int unit, floats *doubt) const {
    ck_assert(shape.cache == KV_F16 || shape.cache == KV_BF16);
    ck_assert(unit > 0 && SPAN % unit == 0);
    floats y;
    doubt->clear();
    each_vector(*this, parts, &y, [&](const seen_vector &x, float *to, size_t at) {
        doubt->resize(at + (size_t)shape.value_size());
        rounded_vector(x, unit, to, &(*doubt)[at]);
    });
    return y;
}

void add_attention_case(Suite *suite, const char *name, const TTest *test, int n) {
    TCase *cases = tcase_create(name);
    tcase_set_timeout(cases, 300);
    tcase_add_loop_test(cases, test, 0, n);
    suite_add_tcase(suite, cases);
}
