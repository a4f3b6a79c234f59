/* Writes to an e4m3 cache: each number is within the format's rounding, each block's first vector
 * sets its scale, and the bytes do not depend on how a sequence is cut into steps. */
#include <math.h>
#include <string.h>

#include "kernels/cuda/attention/kv_layout.cuh"
#include "kernels/cuda/attention/rope.cuh"
#include "tests/cuda/support.h"

enum { G = 3, D = 40, TOKENS = 23, N_BLOCKS = 30 };

struct written {
    std::vector<uint8_t> keys, values;
    floats key_scale, value_scale;
};

/* Returns the slots of a sequence whose blocks are 7, 14, 21, 28, 5 and so on. */
static std::vector<int32_t> slots_of(int B) {
    std::vector<int32_t> slot;
    for (int p = 0; p < TOKENS; p++) slot.push_back(7 * (p / B + 1) % N_BLOCKS * B + p % B);
    return slot;
}

/* A cache that is written step by step. */
struct writer {
    enum dtype act;
    int B;
    buffer keys, values, key_scale, value_scale;
    struct kv_layer layer = {};
    struct kv_cache cache = {};
    writer(enum dtype type, int block)
        : act(type), B(block), keys((size_t)(N_BLOCKS * G * B * D)),
          values((size_t)(N_BLOCKS * G * B * D)), key_scale((size_t)(N_BLOCKS * G * 4)),
          value_scale((size_t)(N_BLOCKS * G * 4)) {
        cache.layer = &layer;
        cache.config = {1, G, D, N_BLOCKS, B, DTYPE_E4M3};
        cache.keys = keys.as<uint8_t>(), cache.values = values.as<uint8_t>();
        cache.key_scale = key_scale.as<float>(), cache.value_scale = value_scale.as<float>();
    }
    /* A step at positions `from` and later: n rows of k and v, then `more` rows of the others. */
    void step(const floats &k, const floats &v, int from, int n, const floats &other_k,
              const floats &other_v, int more) {
        const std::vector<int32_t> slot = slots_of(B);
        const auto rows = [&](const floats &x, const floats &other) {
            floats all(x.begin() + from * G * D, x.begin() + (from + n) * G * D);
            all.insert(all.end(), other.begin() + (from + n) * G * D,
                       other.begin() + (from + n + more) * G * D);
            return packed(act, all);
        };
        buffer step_k(rows(k, other_k)), step_v(rows(v, other_v));
        buffer step_slot(std::vector<int32_t>(slot.begin() + from, slot.begin() + from + n + more));
        struct rope_args args = {};
        args.k = {step_k.data, G, nullptr, nullptr};
        args.v = {step_v.data, G, nullptr, nullptr};
        args.M = n + more, args.D = D;
        args.cache = &cache, args.slot = step_slot.as<int32_t>();
        rope_prepare(act, &args, test_stream());
        finish();
    }
    written read() const {
        return {keys.read<uint8_t>(), values.read<uint8_t>(), key_scale.read<float>(),
                value_scale.read<float>()};
    }
};

/* Writes the tokens in steps that end at `ends`. */
static written write_in_steps(enum dtype act, int B, const floats &k, const floats &v,
                              const std::vector<int> &ends) {
    writer w(act, B);
    int from = 0;
    for (int to : ends) {
        w.step(k, v, from, to - from, k, v, 0);
        from = to;
    }
    return w.read();
}

/* Writes the tokens one by one, each followed by up to `drafts` others. */
static written write_with_drafts(enum dtype act, int B, const floats &k, const floats &v,
                                 const floats &other_k, const floats &other_v, int drafts) {
    writer w(act, B);
    for (int p = 0; p < TOKENS; p++) {
        const int more = p + drafts < TOKENS ? drafts : TOKENS - 1 - p;
        w.step(k, v, p, 1, other_k, other_v, more);
    }
    return w.read();
}

static float number_of(uint8_t byte) {
    __nv_fp8_e4m3 small;
    memcpy(&small, &byte, 1);
    return (float)small;
}

/* Returns the scale that a block's first vector sets. */
static double scale_of(const float *x) {
    double most = 0;
    for (int d = 0; d < D; d++) most = fmax(most, (double)fabsf(x[d]));
    return most > 0 ? exp2(ceil(log2(most / 112))) : 1;
}

static void check_vectors(int B, const floats &x, const std::vector<uint8_t> &bytes,
                          const floats &scales) {
    const std::vector<int32_t> slot = slots_of(B);
    for (int p = 0; p < TOKENS; p++)
        for (int g = 0; g < G; g++) {
            const int block = slot[(size_t)p] / B, first = p / B * B;
            const double scale = (double)scales[(size_t)(block * G + g)];
            ck_assert(scale == scale_of(&x[(size_t)((first * G + g) * D)]));
            for (int d = 0; d < D; d++) {
                const double want = (double)x[(size_t)((p * G + g) * D + d)];
                const size_t at = (size_t)(((block * G + g) * B + p % B) * D + d);
                const double got = (double)number_of(bytes[at]) * scale;
                const double bounded = fmax(-448 * scale, fmin(448 * scale, want));
                ck_assert_msg(fabs(got - bounded) <= fabs(bounded) / 16 + scale * 0x1p-10,
                              "position %d, head %d, %d: %g, not %g", p, g, d, got, want);
            }
        }
}

START_TEST(steps_do_not_change_the_bytes) {
    const enum dtype act = activation_types[_i];
    static const float largest[] = {112, 64, 448, 0x1p-6f};
    for (int B : {1, 4, 16}) {
        uint64_t state = 3;
        floats k = rounded(act, random_vector(&state, TOKENS * G * D));
        floats v = rounded(act, random_vector(&state, TOKENS * G * D));
        for (int d = 0; d < G * D; d++) k[(size_t)(4 * G * D + d)] = 0.0f; /* sets no scale */
        for (int d = 0; d < G * D; d++) v[(size_t)(5 * G * D + d)] *= 64;  /* saturates */
        /* the largest numbers that fit a scale of 1 and of 4, and powers of two */
        for (int d = 0; d < G * D; d++)
            for (int p = 0; p < TOKENS; p += B)
                if (p != 4)
                    k[(size_t)(p * G * D + d)] = k[(size_t)(p * G * D + d)] < 0
                                                     ? -largest[p / B % 4]
                                                     : largest[p / B % 4] / 2;
        const written once = write_in_steps(act, B, k, v, {TOKENS});
        check_vectors(B, k, once.keys, once.key_scale);
        check_vectors(B, v, once.values, once.value_scale);
        for (const std::vector<int> &ends :
             {std::vector<int>{1, 2, 6, 7, 19, TOKENS}, std::vector<int>{5, 8, 16, TOKENS}}) {
            const written again = write_in_steps(act, B, k, v, ends);
            ck_assert(again.keys == once.keys && again.values == once.values);
            ck_assert(memcmp(again.key_scale.data(), once.key_scale.data(),
                             once.key_scale.size() * 4) == 0);
            ck_assert(memcmp(again.value_scale.data(), once.value_scale.data(),
                             once.value_scale.size() * 4) == 0);
        }
    }
}
END_TEST

/* Drafts are written like all vectors, also at the start of a block, and set its scale there. After
 * they are refused, the vectors that replace them have the bytes of a run without drafts. */
START_TEST(a_refused_vector_leaves_no_trace) {
    const enum dtype act = activation_types[_i];
    for (int B : {1, 4, 16}) {
        uint64_t state = 5;
        floats k = rounded(act, random_vector(&state, TOKENS * G * D));
        floats v = rounded(act, random_vector(&state, TOKENS * G * D));
        floats refused_k = k, refused_v = v;
        for (int p = 0; p < TOKENS; p++) /* larger, smaller, and zero */
            for (int d = p * G * D; d < (p + 1) * G * D; d++) {
                const float times = p / B % 3 == 0 ? 1000.0f : p / B % 3 == 1 ? 0x1p-9f : 0.0f;
                refused_k[(size_t)d] *= times, refused_v[(size_t)d] *= -times;
            }
        const written once = write_in_steps(act, B, k, v, {TOKENS});
        const written again = write_with_drafts(act, B, k, v, refused_k, refused_v, 6);
        ck_assert(again.keys == once.keys && again.values == once.values);
        ck_assert(
            memcmp(again.key_scale.data(), once.key_scale.data(), once.key_scale.size() * 4) == 0);
        ck_assert(memcmp(again.value_scale.data(), once.value_scale.data(),
                         once.value_scale.size() * 4) == 0);
    }
}
END_TEST

int main() {
    Suite *suite = suite_create("cuda_kv_e4m3");
    TCase *cases = tcase_create("kv_e4m3");
    tcase_set_timeout(cases, 120);
    tcase_add_loop_test(cases, steps_do_not_change_the_bytes, 0, 3);
    tcase_add_loop_test(cases, a_refused_vector_leaves_no_trace, 0, 3);
    suite_add_tcase(suite, cases);
    return suite_main(suite);
}
