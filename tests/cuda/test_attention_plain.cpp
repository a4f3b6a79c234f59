/* The plain attention against double precision: contexts on and around the 32 positions that it
 * takes at once and on block boundaries, several sequences in a step, blocks in any order. Whatever
 * is not of a row's context is NaN, so that looking at it shows. */
#include <math.h>

#include "kernels/cuda/attention_plain.cuh"
#include "kernels/cuda/kv.cuh"
#include "tests/cuda/support.h"

struct shape {
    int H, G, D, B;
    enum dtype cache;
};

static const shape shapes[] = {
    {4, 2, 16, 4, DTYPE_F32},
    {3, 1, 20, 5, DTYPE_F16},
    {9, 3, 64, 16, DTYPE_BF16},
    {2, 2, 130, 1, DTYPE_F16},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes, L = 2, LAYER = 1 };

/* Rows of a step, a pair of (sequence, position) each. */
struct row {
    int sequence, position;
};
static const std::vector<row> rows = {{0, 0}, {1, 30}, {1, 31}, {1, 32}, {2, 3},
                                      {2, 4}, {2, 5},  {3, 63}, {3, 64}, {4, 95}};
enum { SEQUENCES = 5, LONGEST = 96 };

/* A context: where positions lie, and what is there. */
struct context {
    shape s;
    int stride, n_blocks;
    std::vector<int32_t> table;
    floats k, v; /* [SEQUENCES][LONGEST][G][D], as the cache rounds them */
    struct kv_cache *cache = nullptr;

    explicit context(const shape &of) : s(of) {
        uint64_t state = 21;
        stride = (LONGEST + s.B - 1) / s.B;
        n_blocks = SEQUENCES * stride + 2;
        for (int i = 0; i < SEQUENCES * stride; i++) /* 7 is prime to what n_blocks are here */
            table.push_back((i * 7 + 3) % (n_blocks - 1));
        size_t n = (size_t)(SEQUENCES * LONGEST * s.G * s.D);
        k = rounded(s.cache, random_vector(&state, n));
        v = rounded(s.cache, random_vector(&state, n));
        const struct kv_config config = {L, s.G, s.D, n_blocks, s.B, s.cache};
        struct err err = {};
        ck_assert_int_eq(kv_cache_new(&cache, &config, &err), STATUS_OK);
    }
    ~context() {
        finish();
        kv_cache_free(cache);
    }
    context(const context &) = delete;
    context &operator=(const context &) = delete;
    size_t at(int sequence, int position, int g) const {
        return (size_t)(((sequence * LONGEST + position) * s.G + g) * s.D);
    }
    /* The layer's memory: what the step may look at, and NaN elsewhere. */
    std::vector<uint8_t> layer(const floats &from) const {
        floats all((size_t)(n_blocks * s.G * s.B * s.D), NAN);
        for (const row &r : rows)
            for (int p = 0; p <= r.position; p++)
                for (int g = 0; g < s.G; g++) {
                    int block = table[(size_t)(r.sequence * stride + p / s.B)];
                    size_t line = (size_t)((block * s.G + g) * s.B + p % s.B);
                    for (int d = 0; d < s.D; d++)
                        all[line * (size_t)s.D + (size_t)d] =
                            from[at(r.sequence, p, g) + (size_t)d];
                }
        return packed(s.cache, all);
    }
    void fill() {
        size_t offset = LAYER * cache->layer_bytes, n = cache->layer_bytes;
        CUDA_OK(cudaMemcpy(cache->keys + offset, layer(k).data(), n, cudaMemcpyHostToDevice));
        CUDA_OK(cudaMemcpy(cache->values + offset, layer(v).data(), n, cudaMemcpyHostToDevice));
    }
};

/* One query vector's answer. */
static void attend(const context &c, const float *q, const row &r, int g, float scale, float *y) {
    const int n = r.position + 1;
    std::vector<double> weight((size_t)n);
    double most = -INFINITY, sum = 0;
    for (int p = 0; p < n; p++) {
        double dot = 0;
        for (int d = 0; d < c.s.D; d++)
            dot += (double)q[d] * (double)c.k[c.at(r.sequence, p, g) + (size_t)d];
        weight[(size_t)p] = dot * (double)scale;
        most = fmax(most, weight[(size_t)p]);
    }
    for (double &w : weight) sum += w = exp(w - most);
    for (int d = 0; d < c.s.D; d++) {
        double value = 0;
        for (int p = 0; p < n; p++)
            value += weight[(size_t)p] * (double)c.v[c.at(r.sequence, p, g) + (size_t)d];
        y[d] = (float)(value / sum);
    }
}

static void check_attention(const shape &s, enum dtype act) {
    context c(s);
    c.fill();
    uint64_t state = 8;
    const int M = (int)rows.size();
    const float scale = 1 / sqrtf((float)s.D);
    floats q = rounded(act, random_vector(&state, (size_t)(M * s.H * s.D))), want(q.size());
    std::vector<int32_t> position, sequence;
    for (int m = 0; m < M; m++) {
        const row &r = rows[(size_t)m];
        position.push_back(r.position);
        sequence.push_back(r.sequence);
        for (int h = 0; h < s.H; h++) {
            size_t vector = (size_t)((m * s.H + h) * s.D);
            attend(c, &q[vector], r, h * s.G / s.H, scale, &want[vector]);
        }
    }
    buffer in(packed(act, q)), y(in.bytes), where(position), who(sequence), table(c.table);
    struct device_step step = {};
    step.M = M;
    step.S = SEQUENCES;
    step.table_stride = c.stride;
    step.position = where.as<int32_t>();
    step.sequence = who.as<int32_t>();
    step.table = table.as<int32_t>();
    for (int launches = 0; launches < 2; launches++) {
        y.poison();
        attention_plain(act, y.data, in.data, c.cache, LAYER, &step, s.H, scale, test_stream());
        check_close(read_activations(act, y), want, rounding_of(act), 3,
                    text("H %d, G %d, D %d, activations %s", s.H, s.G, s.D, dtype_name(act)));
    }
}

START_TEST(plain_attention_is_right) {
    for (enum dtype act : activation_types) check_attention(shapes[_i], act);
}
END_TEST

int main() {
    Suite *suite = suite_create("cuda_attention_plain");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 120);
    tcase_add_loop_test(core, plain_attention_is_right, 0, N_SHAPES);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
