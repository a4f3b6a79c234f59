/* Bias, QK norm, RoPE and the write to the cache compared with double precision, for all types of
 * activations and caches. */
#include <math.h>
#include <string.h>

#include "kernels/cuda/attention/kv.cuh"
#include "kernels/cuda/attention/rope.cuh"
#include "tests/cuda/support.h"

struct head_case {
    int H, G, D, D_rope;
    enum rope_layout layout;
    bool bias, norm;
    enum dtype cache; /* DTYPE_Q8_0: without a cache */
    bool own;         /* norms are LayerNorms with a gain per head, and queries are scaled */
};

enum { M = 3, BLOCKS = 5, B = 4, TILED_B = 8, L = 2, LAYER = 1, NO_CACHE = DTYPE_Q8_0 };

static const head_case cases[] = {
    {4, 2, 64, 64, ROPE_HALVES, false, false, DTYPE_F16},
    {3, 1, 20, 12, ROPE_HALVES, true, true, DTYPE_F32},
    {5, 5, 20, 20, ROPE_ADJACENT, true, false, DTYPE_BF16},
    {9, 3, 64, 64, ROPE_ADJACENT, false, true, DTYPE_F16},
    {2, 1, 128, 32, ROPE_HALVES, true, true, DTYPE_BF16},
    {1, 1, 2, 2, ROPE_ADJACENT, false, false, DTYPE_F32},
    {2, 2, 130, 0, ROPE_HALVES, false, false, DTYPE_F16},
    {2, 2, 66, 66, ROPE_HALVES, false, false, (enum dtype)NO_CACHE},
    {3, 1, 40, 12, ROPE_HALVES, false, true, DTYPE_F16, true},
};
enum { N_CASES = sizeof cases / sizeof *cases };

static const std::vector<int32_t> positions = {0, 7, 130000}, slots = {19, 0, 6};
static const floats query_scales = {0.75f, 9.0f, 1.5f};
enum { SCALE_EVERY = 60000 };

/* ---- the right answer ----------------------------------------------------------------------- */

/* Applies bias, norm and rotation to one vector. */
static void prepare(float *x, const head_case &c, const float *bias, const float *gain,
                    const float *cosine, const float *sine, bool turned) {
    std::vector<double> v(x, x + c.D);
    double squares = 0, sum = 0;
    for (int d = 0; d < c.D; d++) v[(size_t)d] += bias ? (double)bias[d] : 0;
    for (double value : v) sum += value;
    for (double &value : v) value -= gain && c.own ? sum / c.D : 0;
    for (double value : v) squares += value * value;
    double r = gain ? 1 / sqrt(squares / c.D + 1e-5) : 1;
    for (int d = 0; d < c.D; d++) v[(size_t)d] *= r * (gain ? (double)gain[d] : 1);
    for (int i = 0; turned && i < c.D_rope / 2; i++) {
        bool adjacent = c.layout == ROPE_ADJACENT;
        size_t a = (size_t)(adjacent ? 2 * i : i), b = adjacent ? a + 1 : a + (size_t)c.D_rope / 2;
        double x0 = v[a], y0 = v[b], cs = (double)cosine[i], sn = (double)sine[i];
        v[a] = x0 * cs - y0 * sn;
        v[b] = y0 * cs + x0 * sn;
    }
    for (int d = 0; d < c.D; d++) x[d] = (float)v[(size_t)d];
}

/* ---- one group of vectors ------------------------------------------------------------------- */

struct group_data {
    int n;
    floats x, bias, gain, want;
    group_data(const head_case &c, enum dtype act, int heads, uint64_t *state) : n(heads) {
        x = rounded(act, random_vector(state, (size_t)(M * n * c.D)));
        bias = random_vector(state, (size_t)(n * c.D));
        gain = random_vector(state, (size_t)((c.own ? n : 1) * c.D));
        want = x;
    }
    void answer(const head_case &c, bool norm, bool turned, const floats &cosine,
                const floats &sine) {
        for (int m = 0; m < M; m++)
            for (int h = 0; h < n; h++) {
                size_t at = (size_t)((m * n + h) * c.D), angle = (size_t)(m * (c.D_rope / 2));
                prepare(&want[at], c, c.bias ? &bias[(size_t)(h * c.D)] : nullptr,
                        norm ? gain.data() + (c.own ? h * c.D : 0) : nullptr, cosine.data() + angle,
                        sine.data() + angle, turned);
            }
    }
};

static head_group on_device(const head_case &c, const group_data &g, buffer &x, buffer &bias,
                            buffer &gain, bool norm) {
    return {x.data, g.n, c.bias ? bias.as<float>() : nullptr,
            c.norm && norm ? gain.as<float>() : nullptr};
}

static int block_size_of(const head_case &c) {
    return c.D % 64 == 0 ? TILED_B : B;
}

/* The offset of number d of a position in a head's part of a block. If D is a multiple of 64 and
 * the block size one of 8: in tiles of eight positions, in columns of 64 numbers. Otherwise in
 * rows. */
static size_t place_of(const struct kv_config &c, int offset, int d) {
    if (c.dtype == DTYPE_F32 || c.D % 64 || c.block_size % 8) return (size_t)(offset * c.D + d);
    const int tile = offset / 8, row = offset % 8, piece = d % 64 / 8 ^ row;
    return (size_t)(((tile * (c.D / 64) + d / 64) * 8 + row) * 64 + piece * 8 + d % 8);
}

/* Reads the vectors of the step's rows from the cache. Fails unless all other slots are still zero.
 */
static floats read_cache(const struct kv_cache *cache, const uint8_t *base, int G, int D) {
    std::vector<uint8_t> bytes(BLOCKS * cache->block_bytes);
    finish();
    CUDA_OK(cudaMemcpy(bytes.data(), base + LAYER * BLOCKS * cache->block_bytes, bytes.size(),
                       cudaMemcpyDeviceToHost));
    floats all = unpacked(cache->config.dtype, bytes), found;
    const int size = cache->config.block_size;
    for (int32_t slot : slots)
        for (int g = 0; g < G; g++) {
            const size_t head = (size_t)((slot / size * G + g) * size * D);
            for (int d = 0; d < D; d++) {
                float &number = all[head + place_of(cache->config, slot % size, d)];
                found.push_back(number);
                number = 0.0f;
            }
        }
    check_close(all, floats(all.size(), 0.0f), 0, 0, "slots that were never written");
    return found;
}

static void check_heads(const head_case &c, enum dtype act) {
    uint64_t state = 99;
    const int pairs = c.D_rope / 2;
    floats frequencies((size_t)pairs + 1), cosines((size_t)(M * pairs)), sines(cosines.size());
    for (size_t i = 0; i < frequencies.size(); i++) frequencies[i] = powf(10000, -(float)i / 8);
    buffer inv_freq(frequencies), position(positions), slot(slots);
    buffer cosine((cosines.size() + 1) * 4), sine((sines.size() + 1) * 4);
    struct angle_table table = {};
    table.cosine = cosine.as<float>(), table.sine = sine.as<float>(), table.max_pairs = pairs;
    const struct rope rope = {c.D_rope, inv_freq.as<float>(), c.layout, c.norm ? 1.375f : 0};
    angles_make(&table, position.as<int32_t>(), &rope, M, test_stream());
    for (size_t i = 0; i < cosines.size(); i++) {
        float angle = (float)positions[i / (size_t)pairs] * frequencies[i % (size_t)pairs];
        cosines[i] = (float)cos((double)angle) * (c.norm ? 1.375f : 1);
        sines[i] = (float)sin((double)angle) * (c.norm ? 1.375f : 1);
    }
    floats made = cosine.read<float>();
    made.resize(cosines.size());
    check_close(made, cosines, 1e-6, 1, "cosines");
    group_data q(c, act, c.H, &state), k(c, act, c.G, &state), v(c, act, c.G, &state);
    q.answer(c, c.norm, true, cosines, sines);
    for (size_t i = 0; c.own && i < q.want.size(); i++)
        q.want[i] *= query_scales[(size_t)(positions[i / (size_t)(c.H * c.D)] / SCALE_EVERY)];
    k.answer(c, c.norm, true, cosines, sines);
    v.answer(c, false, false, cosines, sines);
    buffer qx(packed(act, q.x)), kx(packed(act, k.x)), vx(packed(act, v.x));
    buffer qb(q.bias), kb(k.bias), vb(v.bias), qg(q.gain), kg(k.gain);
    struct kv_cache *cache = nullptr;
    const struct kv_config config = {L, c.G, c.D, BLOCKS, block_size_of(c), c.cache};
    struct err err = {};
    if ((int)c.cache != NO_CACHE) ck_assert_int_eq(kv_cache_new(&cache, &config, &err), STATUS_OK);
    struct rope_args args = {};
    args.q = on_device(c, q, qx, qb, qg, true);
    args.k = on_device(c, k, kx, kb, kg, true);
    args.v = on_device(c, v, vx, vb, kg, false);
    args.M = M, args.D = c.D, args.D_rope = c.D_rope;
    args.epsilon = 1e-5f, args.layout = c.layout;
    args.cosine = cosine.as<float>(), args.sine = sine.as<float>();
    args.cache = cache, args.layer = LAYER, args.slot = slot.as<int32_t>();
    buffer scales(query_scales);
    if (c.own) args.q.norms_own = args.k.norms_own = true, args.q_scale = scales.as<float>();
    args.q_scale_every = SCALE_EVERY, args.position = position.as<int32_t>();
    rope_prepare(act, &args, test_stream());
    std::string what = text("H %d, G %d, D %d, activations %s", c.H, c.G, c.D, dtype_name(act));
    check_close(read_activations(act, qx), q.want, rounding_of(act), 0.2, what + ": queries");
    if (cache) {
        double off = rounding_of(c.cache);
        check_close(read_cache(cache, cache->keys, c.G, c.D), k.want, off, 0.2, what + ": keys");
        check_close(read_cache(cache, cache->values, c.G, c.D), v.want, off, 0.2,
                    what + ": values");
        check_close(read_activations(act, kx), k.x, 0, 0, "keys are left alone");
    } else {
        check_close(read_activations(act, kx), k.want, rounding_of(act), 0.2, what + ": keys");
    }
    kv_cache_free(cache);
}

START_TEST(heads_are_prepared) {
    for (enum dtype act : activation_types) check_heads(cases[_i], act);
}
END_TEST

/* A step may have only queries or only keys. */
START_TEST(groups_may_be_absent) {
    uint64_t state = 1;
    floats x = random_vector(&state, M * 2 * 8), cosine(M * 4, 0.0f), sine(M * 4, 1.0f);
    buffer q(x), c(cosine), s(sine);
    struct rope_args args = {};
    args.q = {q.data, 2, nullptr, nullptr};
    args.M = M, args.D = 8, args.D_rope = 8;
    args.layout = ROPE_ADJACENT;
    args.cosine = c.as<float>(), args.sine = s.as<float>();
    rope_prepare(DTYPE_F32, &args, test_stream());
    floats want = x;
    for (size_t i = 0; i < x.size(); i += 2) want[i] = -x[i + 1], want[i + 1] = x[i];
    check_close(q.read<float>(), want, 0, 0, "a quarter turn");
}
END_TEST

/* Writes keys and values to the cache unchanged. */
static void write_as_they_are(enum dtype act, const struct kv_cache *cache, const head_case &c,
                              void *k, void *v, const int32_t *slot) {
    struct rope_args args = {};
    args.k = {k, c.G, nullptr, nullptr};
    args.v = {v, c.G, nullptr, nullptr};
    args.M = M, args.D = c.D, args.layer = LAYER;
    args.cache = cache, args.slot = slot;
    rope_prepare(act, &args, test_stream());
}

/* A cache of e4m3 holds the same bytes, scales included, as after preparing in place and writing
 * the result; with bias, norm and rotation, and without them. */
static void check_e4m3(const head_case &c, enum dtype act) {
    uint64_t state = 5;
    floats angle(M * 8), other(M * 8);
    for (size_t i = 0; i < angle.size(); i++) { /* so that rows need different scales */
        const int row = (int)i / (c.D_rope ? c.D_rope / 2 : 8);
        angle[i] = ldexpf(0.6f, -2 * row);
        other[i] = ldexpf(0.8f, -2 * row);
    }
    group_data q(c, act, c.H, &state), k(c, act, c.G, &state), v(c, act, c.G, &state);
    buffer qb(q.bias), kb(k.bias), vb(v.bias), qg(q.gain), kg(k.gain);
    buffer slot(std::vector<int32_t>{8, 9, 10}), cosine(angle), sine(other);
    const struct kv_config config = {L, c.G, c.D, BLOCKS, B, DTYPE_E4M3};
    std::vector<uint8_t> bytes[2];
    for (int way = 0; way < 2; way++) {
        struct kv_cache *cache = nullptr;
        struct err err = {};
        ck_assert_int_eq(kv_cache_new(&cache, &config, &err), STATUS_OK);
        buffer qx(packed(act, q.x)), kx(packed(act, k.x)), vx(packed(act, v.x));
        struct rope_args args = {};
        args.q = on_device(c, q, qx, qb, qg, true);
        args.k = on_device(c, k, kx, kb, kg, true);
        args.v = on_device(c, v, vx, vb, kg, false);
        args.M = M, args.D = c.D, args.D_rope = c.D_rope;
        args.epsilon = 1e-5f, args.layout = c.layout;
        args.cosine = cosine.as<float>(), args.sine = sine.as<float>();
        args.cache = way ? nullptr : cache, args.layer = LAYER, args.slot = slot.as<int32_t>();
        rope_prepare(act, &args, test_stream());
        if (way) write_as_they_are(act, cache, c, kx.data, vx.data, slot.as<int32_t>());
        finish();
        const size_t elements = BLOCKS * cache->block_bytes, scales = (size_t)(BLOCKS * c.G) * 4;
        bytes[way].resize(2 * elements + 2 * scales);
        uint8_t *to = bytes[way].data();
        const size_t at = LAYER * BLOCKS * cache->block_bytes,
                     scale = (size_t)(LAYER * BLOCKS * c.G);
        CUDA_OK(cudaMemcpy(to, cache->keys + at, elements, cudaMemcpyDeviceToHost));
        CUDA_OK(cudaMemcpy(to + elements, cache->values + at, elements, cudaMemcpyDeviceToHost));
        to += 2 * elements;
        CUDA_OK(cudaMemcpy(to, cache->key_scale + scale, scales, cudaMemcpyDeviceToHost));
        CUDA_OK(
            cudaMemcpy(to + scales, cache->value_scale + scale, scales, cudaMemcpyDeviceToHost));
        for (int i = 0; i < 2 * c.G; i++) { /* the scales of the block of slots 8 to 11 */
            float stored;
            memcpy(&stored, to + (i < c.G ? 0 : scales) + (8 / B * c.G + i % c.G) * 4, 4);
            ck_assert_msg(stored > 0, "scale %d", i);
        }
        const std::vector<uint8_t> queries = qx.read<uint8_t>();
        bytes[way].insert(bytes[way].end(), queries.begin(), queries.end());
        kv_cache_free(cache);
    }
    ck_assert(bytes[0] == bytes[1]);
    ck_assert(bytes[0] != std::vector<uint8_t>(bytes[0].size(), 0));
}

START_TEST(heads_go_into_a_cache_of_e4m3) {
    for (enum dtype act : activation_types) {
        check_e4m3({4, 2, 32, 16, ROPE_HALVES, true, true, DTYPE_E4M3}, act);
        check_e4m3({3, 1, 16, 16, ROPE_ADJACENT, false, false, DTYPE_E4M3}, act);
        check_e4m3({2, 2, 48, 0, ROPE_ADJACENT, false, false, DTYPE_E4M3}, act);
    }
}
END_TEST

int main() {
    Suite *suite = suite_create("cuda_rope");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 120);
    tcase_add_loop_test(core, heads_are_prepared, 0, N_CASES);
    tcase_add_test(core, groups_may_be_absent);
    tcase_add_test(core, heads_go_into_a_cache_of_e4m3);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
