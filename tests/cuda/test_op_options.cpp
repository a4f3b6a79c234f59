/* All options of the op table's ops on the CUDA backend, compared with double precision: biases,
 * kinds of norms and activations, scales, caps and learned positions. A row's bytes do not depend
 * on the number of rows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "tests/cuda/support.h"

enum { K = 96, F = 64, V = 37, MAX_M = 40, POSITIONS = 50 };
using bytes = std::vector<uint8_t>;
/* One row, with the norm in the product; several rows; a separate norm; the kernel for many rows.
 */
static const int row_counts[] = {1, 5, 17, MAX_M};

/* ---- a backend and its memory ---------------------------------------------------------------- */

struct opened {
    enum dtype act;
    struct backend *b = nullptr;
    explicit opened(enum dtype act_, bool both_ways = false) : act(act_) {
        struct backend_config config = {1,  nullptr, MAX_M, K,         act,
                                        {}, nullptr, MAX_M, POSITIONS, 1};
        struct err err = {};
        config.both_ways = both_ways;
        ck_assert_msg(backend_cuda_open(&b, &config, &err) == STATUS_OK, "%s", err.message);
    }
    ~opened() {
        backend_close(b);
    }
    opened(const opened &) = delete;
    opened &operator=(const opened &) = delete;
};

/* Memory of the backend. */
struct array {
    const opened &on;
    size_t size;
    float *data;
    array(const opened &on_, const bytes &host) : on(on_), size(host.size()) {
        data = static_cast<float *>(on.b->memory->buffer_new(on.b, size));
        on.b->memory->upload(on.b, data, host.data(), size);
    }
    array(const opened &on_, const floats &host, enum dtype type)
        : array(on_, packed(type, host)) {}
    ~array() {
        on.b->memory->buffer_free(on.b, data, size);
    }
    array(const array &) = delete;
    array &operator=(const array &) = delete;
    bytes read() const {
        bytes host(size);
        on.b->memory->download(on.b, host.data(), data, size);
        return host;
    }
};

/* A matrix of N rows, with its weights as floats, and a bias. */
struct weights {
    const opened &on;
    int N, n_columns;
    struct matrix *w = nullptr;
    floats values, bias;
    array bias_on_device;
    weights(const opened &on_, enum dtype type, int N_, int columns, uint64_t seed)
        : on(on_), N(N_), n_columns(columns), values((size_t)(N_ * columns)),
          bias(random_vector(&seed, (size_t)N_)), bias_on_device(on_, bias, DTYPE_F32) {
        void *rows = random_weights(&seed, type, values.size());
        const enum matrix_form form = on.act == DTYPE_F32 ? MATRIX_FLOAT32 : MATRIX_NATIVE;
        struct err err = {};
        ck_assert_msg(on.b->memory->matrix_new(on.b, &w, type, N, columns, rows, form, &err) ==
                          STATUS_OK,
                      "%s", err.message);
        dequantise(type, rows, values.data(), values.size());
        free(rows);
    }
    ~weights() {
        on.b->memory->matrix_free(on.b, w);
    }
    weights(const weights &) = delete;
    weights &operator=(const weights &) = delete;
    struct linear linear(bool biased, float scale = 0) const {
        return {w, biased ? bias_on_device.data : nullptr, scale};
    }
};

/* ---- double precision ----------------------------------------------------------------------- */

/* Values, and the sums of the absolute values of their terms. */
struct sums {
    std::vector<double> value, size;
};

static sums multiply(const floats &x, const weights &w, bool biased) {
    const size_t columns = (size_t)w.n_columns, M = x.size() / columns;
    sums y;
    for (size_t m = 0; m < M; m++)
        for (size_t n = 0; n < (size_t)w.N; n++) {
            double sum = biased ? (double)w.bias[n] : 0, size = fabs(sum);
            for (size_t k = 0; k < columns; k++) {
                const double one = (double)x[m * columns + k] * (double)w.values[n * columns + k];
                sum += one;
                size += fabs(one);
            }
            y.value.push_back(sum);
            y.size.push_back(size);
        }
    return y;
}

static const struct xielu xielu_numbers = {0.8f, 0.3f, 0.5f, -1e-6f};

static double xielu_exactly(double x) {
    const double bent = x > 0 ? (double)xielu_numbers.positive * x * x
                              : (double)xielu_numbers.negative * (expm1(x) - x);
    return bent + (double)xielu_numbers.linear * x;
}

static double activated_exactly(enum activation kind, double x) {
    if (kind == ACTIVATION_SILU) return x / (1 + exp(-x));
    if (kind == ACTIVATION_RELU) return x > 0 ? x : 0;
    if (kind == ACTIVATION_RELU_SQUARED) return x > 0 ? x * x : 0;
    if (kind == ACTIVATION_GELU) return x * (1 + erf(x / sqrt(2))) / 2;
    if (kind == ACTIVATION_XIELU) return xielu_exactly(x);
    return x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))) / 2;
}

/* The kinds of norms; the first one is no norm. */
struct norm_choice {
    bool there, layer, biased;
};
static const norm_choice norm_choices[] = {
    {false, false, false}, {true, false, false}, {true, true, false}, {true, true, true}};

static floats normed(const norm_choice &c, const floats &x, const floats &gain,
                     const floats &bias) {
    floats y(x);
    for (size_t m = 0; c.there && m < x.size() / K; m++) {
        double mean = 0, squares = 0;
        for (size_t k = 0; k < K; k++) mean += (double)x[m * K + k] / (int)K;
        if (!c.layer) mean = 0;
        for (size_t k = 0; k < K; k++) squares += pow((double)x[m * K + k] - mean, 2);
        const double r = 1 / sqrt(squares / (int)K + (double)1e-5f);
        for (size_t k = 0; k < K; k++)
            y[m * K + k] = (float)(((double)x[m * K + k] - mean) * r * (double)gain[k] +
                                   (c.biased ? (double)bias[k] : 0));
    }
    return y;
}

static void check_sums(const floats &got, const sums &want, double rounding,
                       const std::string &what) {
    ck_assert_uint_eq(got.size(), want.value.size());
    for (size_t i = 0; i < got.size(); i++) {
        const double off = fabs((double)got[i] - want.value[i]);
        ck_assert_msg(off <= rounding * (want.size[i] + 1), "%s: number %zu is off by %g of %g",
                      what.c_str(), i, off, want.size[i]);
    }
}

/* ---- the ops' inputs ------------------------------------------------------------------------ */

/* Rows for an op, with the gain and bias of a norm. */
struct inputs {
    const opened &on;
    floats x, gain, bias;
    array gain_on_device, bias_on_device;
    explicit inputs(const opened &on_)
        : on(on_), x(make(MAX_M * K, 5)), gain(make(K, 6, 0.1f)), bias(make(K, 7)),
          gain_on_device(on_, gain, DTYPE_F32), bias_on_device(on_, bias, DTYPE_F32) {
        for (float &value : x) value += 0.5f; /* a mean that is not 0 */
        x = rounded(on.act, x);
    }
    /* Random numbers times `by`. Gains are small, so that products stay in float16's range. */
    static floats make(size_t n, uint64_t seed, float by = 1) {
        floats made = random_vector(&seed, n);
        for (float &value : made) value *= by;
        return made;
    }
    /* The last M rows. */
    floats rows(int M) const {
        return floats(x.end() - M * K, x.end());
    }
    floats normed_rows(const norm_choice &c, int M) const {
        return rounded(on.act, normed(c, rows(M), gain, bias));
    }
    struct norm norm(const norm_choice &c) const {
        return {c.layer ? NORM_LAYER : NORM_RMS, gain_on_device.data,
                c.biased ? bias_on_device.data : nullptr, 1e-5f};
    }
};

/* Remembers the bytes of the largest batch. Smaller batches must equal its last rows. */
struct same_bytes {
    bytes all;
    void check(const bytes &got, const std::string &what) {
        if (got.size() > all.size()) {
            ck_assert_msg(std::equal(all.rbegin(), all.rend(), got.rbegin()),
                          "%s: a row's bytes depend on the others", what.c_str());
            all = got;
        }
    }
};

/* ---- products ------------------------------------------------------------------------------- */

static const enum dtype weight_types[] = {DTYPE_Q8_0, DTYPE_Q4_1, DTYPE_BF16};

/* A matrix with a bias next to one without, and one with a residual. */
static void check_linear(const opened &on, const norm_choice &c, enum dtype type) {
    const struct compute_ops *ops = on.b->compute;
    const inputs in(on);
    const weights w(on, type, V, K, 1), other(on, DTYPE_Q8_0, 16, K, 2);
    const struct norm norm = in.norm(c);
    const struct linear linear[] = {w.linear(true), other.linear(false)};
    same_bytes first, second, added;
    for (int M : row_counts) {
        const std::string what = text("%d rows, act %d, type %d, norm %d%d%d", M, on.act, type,
                                      c.there, c.layer, c.biased);
        const array x(on, in.rows(M), on.act), y(on, floats((size_t)(M * V)), on.act),
            z(on, floats((size_t)(M * 16)), on.act);
        float *to[] = {y.data, z.data};
        ops->matmul(on.b, to, x.data, c.there ? &norm : nullptr, linear, 2, M);
        const floats rows = in.normed_rows(c, M);
        const sums want = multiply(rows, w, true);
        check_sums(unpacked(on.act, y.read()), want, 3 * rounding_of(on.act), what);
        check_sums(unpacked(on.act, z.read()), multiply(rows, other, false),
                   3 * rounding_of(on.act), what + ", without bias");
        first.check(y.read(), what);
        second.check(z.read(), what);
        if (c.there) continue;
        const array sum(on, floats((size_t)(M * V), 1), on.act);
        sums more = want;
        for (double &value : more.value) value += 1;
        ops->matmul_add(on.b, sum.data, x.data, linear, M);
        check_sums(unpacked(on.act, sum.read()), more, 3 * rounding_of(on.act), what + ", added");
        added.check(sum.read(), what + ", added");
        const struct linear half = w.linear(true, 0.5f);
        const array scaled(on, floats((size_t)(M * V), 1), on.act);
        for (double &value : more.value) value = (value - 1) / 2 + 1;
        ops->matmul_add(on.b, scaled.data, x.data, &half, M);
        check_sums(unpacked(on.act, scaled.read()), more, 3 * rounding_of(on.act), what + ", half");
    }
}

START_TEST(linear_has_biases_and_norms) {
    for (enum dtype act : activation_types) {
        const opened on(act);
        for (enum dtype type : weight_types) check_linear(on, norm_choices[_i], type);
    }
}
END_TEST

static void check_logits(const opened &on, float scale, float cap) {
    const inputs in(on);
    const norm_choice layer = {true, true, true};
    const struct norm norm = in.norm(layer);
    const weights w(on, DTYPE_Q8_0, V, K, 3);
    const struct lm_head head = {w.linear(true, scale), cap};
    same_bytes same;
    for (int M : row_counts) {
        const array x(on, in.rows(M), on.act), y(on, floats((size_t)(M * V)), DTYPE_F32);
        on.b->compute->logits(on.b, y.data, x.data, &norm, &head, M);
        sums want = multiply(in.normed_rows(layer, M), w, true);
        for (double &value : want.value) {
            value *= (double)scale;
            if (cap != 0) value = (double)cap * tanh(value / (double)cap);
        }
        const std::string what = text("logits, %d rows, scale %g, cap %g, act %d", M, (double)scale,
                                      (double)cap, on.act);
        check_sums(unpacked(DTYPE_F32, y.read()), want, 3 * rounding_of(on.act), what);
        same.check(y.read(), what);
    }
}

START_TEST(logits_have_scale_and_cap) {
    for (enum dtype act : activation_types) {
        const opened on(act);
        check_logits(on, 0.25f, 0);
        check_logits(on, 1, 5);
        check_logits(on, 0.5f, 3);
    }
}
END_TEST

/* ---- the MLP -------------------------------------------------------------------------------- */

struct mlp_case {
    enum activation activation;
    bool gated, biased;
    enum dtype gate_type; /* if it differs from up's type, the two are not a pair */
};

/* The rounded input of the down projection. */
static floats hidden(const mlp_case &c, const floats &rows, const weights &gate, const weights &up,
                     enum dtype act) {
    const sums a = multiply(rows, c.gated ? gate : up, c.biased), b = multiply(rows, up, c.biased);
    floats h(a.value.size());
    for (size_t i = 0; i < h.size(); i++)
        h[i] = (float)(activated_exactly(c.activation, a.value[i]) * (c.gated ? b.value[i] : 1));
    return rounded(act, h);
}

static void check_mlp(const opened &on, const mlp_case &c) {
    const inputs in(on);
    const norm_choice &kind = norm_choices[c.gated ? 1 : 3];
    const struct norm norm = in.norm(kind);
    const weights gate(on, c.gate_type, F, K, 1), up(on, DTYPE_Q8_0, F, K, 2),
        down(on, DTYPE_Q8_0, K, F, 3);
    struct mlp mlp = {c.activation, gate.linear(c.biased), up.linear(c.biased),
                      down.linear(c.biased, c.gated ? 0.75f : 0)};
    mlp.xielu = xielu_numbers;
    if (!c.gated) mlp.gate = {};
    same_bytes same;
    for (int M : row_counts) {
        const array sum(on, in.rows(M), on.act);
        on.b->compute->mlp(on.b, sum.data, sum.data, &norm, &mlp, M);
        const floats h = hidden(c, in.normed_rows(kind, M), gate, up, on.act);
        sums want = multiply(h, down, c.biased);
        for (size_t i = 0; i < want.value.size(); i++)
            want.value[i] = want.value[i] * (c.gated ? 0.75 : 1) + (double)in.rows(M)[i];
        const std::string what = text("mlp, activation %d, gated %d, biased %d, %d rows, act %d",
                                      c.activation, c.gated, c.biased, M, on.act);
        /* a gate of float16 weights is rounded separately, which changes a sum of `size` more */
        check_sums(unpacked(on.act, sum.read()), want, 8 * rounding_of(on.act), what);
        if (c.gate_type == DTYPE_Q8_0) same.check(sum.read(), what);
    }
}

START_TEST(mlps_have_all_activations) {
    const enum activation activation = (enum activation)_i;
    for (enum dtype act : activation_types) {
        /* the squares of these products leave the range of float16 */
        if (activation == ACTIVATION_RELU_SQUARED && act == DTYPE_F16) continue;
        const opened on(act);
        for (bool biased : {false, true}) {
            check_mlp(on, {activation, true, biased, DTYPE_Q8_0});
            check_mlp(on, {activation, false, biased, DTYPE_Q8_0});
        }
        check_mlp(on, {activation, true, true, DTYPE_Q4_1});
    }
}
END_TEST

START_TEST(mlps_without_a_gate_have_xielu) {
    for (enum dtype act : activation_types)
        for (bool biased : {false, true})
            check_mlp(opened(act), {ACTIVATION_XIELU, false, biased, DTYPE_Q8_0});
}
END_TEST

/* ---- rows ----------------------------------------------------------------------------------- */

static void check_norm_add(const opened &on, const norm_choice &c, bool of_sum) {
    const inputs in(on);
    struct norm norm = in.norm(c);
    norm.of_sum = of_sum;
    same_bytes same;
    for (int M : row_counts) {
        const array x(on, floats((size_t)(M * K), 2), on.act), y(on, in.rows(M), on.act);
        on.b->compute->norm_add(on.b, x.data, y.data, &norm, M, K);
        floats rows = in.rows(M);
        for (float &value : rows) value += of_sum ? 2 : 0;
        floats want = normed(c, rows, in.gain, in.bias);
        for (float &value : want) value += 2;
        const std::string what =
            text("norm_add, layer %d, of sum %d, %d rows, act %d", c.layer, of_sum, M, on.act);
        check_close(unpacked(on.act, x.read()), want, rounding_of(on.act), 1, what);
        ck_assert_msg(y.read() == bytes(y.size, 0), "%s: y stays", what.c_str());
        same.check(x.read(), what);
    }
}

START_TEST(norms_are_added) {
    for (enum dtype act : activation_types) {
        const opened on(act);
        for (int kind = 1; kind < 4; kind++)
            for (bool of_sum : {false, true}) check_norm_add(on, norm_choices[kind], of_sum);
    }
}
END_TEST

/* The type of a row that is counted from the end of the largest batch. */
static int type_of(int row) {
    return row % 5 == 1 ? 2 : row % 2;
}

/* Embeds tokens at falling positions, one sequence per row. Without tokens it starts from rows of
 * zeros. */
static bytes embedded(const opened &on, struct kv_cache *cache, const struct embedding *embedding,
                      int M, bool typed = false) {
    std::vector<int32_t> token, position, slot, type, row_start;
    for (int m = 0; m <= M; m++) row_start.push_back(m);
    for (int m = 0; m < M; m++) {
        token.push_back((MAX_M - M + m) * 7 % V);
        position.push_back(MAX_M - 1 - (MAX_M - M + m));
        slot.push_back(-1);
        type.push_back(type_of(MAX_M - M + m));
    }
    const std::vector<int32_t> table((size_t)(M * 4), 0);
    struct step step = {};
    step.M = step.S = step.R = M;
    step.token = token.data();
    step.position = position.data();
    step.slot = slot.data();
    step.type = typed ? type.data() : nullptr;
    step.row_start = row_start.data();
    step.table = table.data();
    step.table_stride = 4;
    step.logit_row = row_start.data();
    on.b->compute->step_begin(on.b, &step, cache);
    const array y(on, floats((size_t)(M * K)), on.act);
    on.b->compute->embed(on.b, y.data, embedding);
    return y.read();
}

static void check_embedding(const opened &on, struct kv_cache *cache, enum dtype type, float scale,
                            bool learned) {
    const weights tokens(on, type, V, K, 1), positions(on, DTYPE_F16, POSITIONS, K, 2);
    const struct embedding embedding = {tokens.w, scale, learned ? positions.w : nullptr};
    same_bytes same;
    for (int M : row_counts) {
        const std::string what = text("embedding of type %d, scale %g, learned %d, act %d", type,
                                      (double)scale, learned, on.act);
        floats want;
        for (int m = MAX_M - M; m < MAX_M; m++)
            for (int k = 0; k < K; k++) {
                const float token = tokens.values[(size_t)(m * 7 % V * K + k)];
                const float place = positions.values[(size_t)((MAX_M - 1 - m) * K + k)];
                const float scaled = rounded(on.act, {token * scale})[0];
                want.push_back(learned ? scaled + place : scaled);
            }
        const bytes got = embedded(on, cache, &embedding, M);
        check_close(unpacked(on.act, got), want, 2 * rounding_of(on.act), 0.1, what);
        same.check(got, what);
    }
}

/* Rows that exist already only get positions added. */
static void check_positions(const opened &on, struct kv_cache *cache) {
    const weights positions(on, DTYPE_F16, POSITIONS, K, 2);
    const struct embedding embedding = {nullptr, 1, positions.w};
    floats want;
    for (int m = 0; m < MAX_M; m++)
        for (int k = 0; k < K; k++)
            want.push_back(positions.values[(size_t)((MAX_M - 1 - m) * K + k)]);
    const bytes got = embedded(on, cache, &embedding, MAX_M);
    check_close(unpacked(on.act, got), want, 2 * rounding_of(on.act), 0.1,
                text("positions alone, act %d", on.act));
}

/* The embedding of an encoder: types, positions, then a norm. Without a list of types all are 0. */
static void check_types(const opened &on, struct kv_cache *cache, bool typed, bool learned) {
    const weights tokens(on, DTYPE_Q8_0, V, K, 1), positions(on, DTYPE_F16, POSITIONS, K, 2),
        types(on, DTYPE_BF16, 3, K, 3);
    const inputs in(on);
    const norm_choice layer = {true, true, true};
    const struct norm norm = in.norm(layer);
    const struct embedding embedding = {tokens.w, 1, learned ? positions.w : nullptr, types.w,
                                        norm};
    same_bytes same;
    for (int M : row_counts) {
        floats sum;
        for (int m = MAX_M - M; m < MAX_M; m++)
            for (int k = 0; k < K; k++) {
                const int type = typed ? type_of(m) : 0;
                const float token =
                    rounded(on.act, {tokens.values[(size_t)(m * 7 % V * K + k)]})[0];
                const float both =
                    rounded(on.act, {token + types.values[(size_t)(type * K + k)]})[0];
                const float place = positions.values[(size_t)((MAX_M - 1 - m) * K + k)];
                sum.push_back(learned ? rounded(on.act, {both + place})[0] : both);
            }
        const std::string what = text("types %d, learned %d, act %d", typed, learned, on.act);
        const bytes got = embedded(on, cache, &embedding, M, typed);
        check_close(unpacked(on.act, got), normed(layer, sum, in.gain, in.bias),
                    rounding_of(on.act), 1, what);
        same.check(got, what);
    }
}

/* A cache, which steps need. */
static struct kv_cache *open_cache(const opened &on) {
    const struct kv_config config = {1, 1, 32, 8, 16, on.act == DTYPE_F32 ? DTYPE_F32 : DTYPE_F16};
    struct kv_cache *cache = nullptr;
    struct err err = {};
    ck_assert_msg(on.b->cache->kv_new(on.b, &cache, &config, &err) == STATUS_OK, "%s", err.message);
    return cache;
}

START_TEST(embeddings_of_encoders_have_types_and_norms) {
    for (enum dtype act : activation_types) {
        const opened on(act, true);
        struct kv_cache *cache = open_cache(on);
        for (bool typed : {false, true})
            for (bool learned : {false, true}) check_types(on, cache, typed, learned);
        on.b->cache->kv_free(on.b, cache);
    }
}
END_TEST

START_TEST(embeddings_have_scales_and_positions) {
    for (enum dtype act : activation_types) {
        const opened on(act);
        struct kv_cache *cache = open_cache(on);
        for (enum dtype type : {DTYPE_Q8_0, DTYPE_BF16})
            for (float scale : {1.0f, 9.75f})
                for (bool learned : {false, true}) check_embedding(on, cache, type, scale, learned);
        check_positions(on, cache);
        on.b->cache->kv_free(on.b, cache);
    }
}
END_TEST

int main() {
    Suite *suite = suite_create("cuda_op_options");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 300);
    tcase_add_loop_test(core, linear_has_biases_and_norms, 0, 4);
    tcase_add_test(core, logits_have_scale_and_cap);
    tcase_add_test(core, mlps_without_a_gate_have_xielu);
    tcase_add_loop_test(core, mlps_have_all_activations, 0, ACTIVATION_RELU_SQUARED + 1);
    tcase_add_test(core, norms_are_added);
    tcase_add_test(core, embeddings_have_scales_and_positions);
    tcase_add_test(core, embeddings_of_encoders_have_types_and_norms);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
