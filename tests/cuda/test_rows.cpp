/* Ops on rows against double precision, for every type of activations and awkward lengths. */
#include "kernels/cuda/rows/rows.cuh"

#include <math.h>

#include "tests/cuda/support.h"

/* On and around the sizes of a vector, a warp and a block of threads, and above 48 KiB of shared
 * memory. */
static const int lengths[] = {1, 7, 8, 10, 33, 64, 255, 576, 2048, 2056, 13000};
enum { N_LENGTHS = sizeof lengths / sizeof *lengths };

/* ---- norms ---------------------------------------------------------------------------------- */

/* A norm: of each kind, with and without a bias, before a product or after a branch. */
struct norm_case {
    int M, K;
    enum norm_kind kind;
    bool biased, added;
    floats x, sum, gain, bias;
};

static norm_case make_norm(enum dtype act, int M, int K, enum norm_kind kind, bool biased,
                           bool added) {
    uint64_t state = 11 + (uint64_t)K;
    const size_t n = (size_t)M * (size_t)K;
    norm_case c{M, K, kind, biased, added, random_vector(&state, n), {}, {}, {}};
    /* a mean that the norm subtracts */
    for (float &value : c.x) value += kind == NORM_LAYER ? 3.0f : 0.0f;
    c.x = rounded(act, c.x);
    c.sum = rounded(act, random_vector(&state, n));
    c.gain = random_vector(&state, (size_t)K);
    c.bias = random_vector(&state, (size_t)K);
    return c;
}

/* Computes y of one row. */
static void norm_row(const norm_case &c, const float *x, const float *sum, float *y) {
    double total = 0, squares = 0;
    for (int k = 0; k < c.K; k++) total += (double)x[k];
    const double mean = c.kind == NORM_LAYER ? total / c.K : 0;
    for (int k = 0; k < c.K; k++) squares += ((double)x[k] - mean) * ((double)x[k] - mean);
    const double r = 1 / sqrt(squares / c.K + (double)1e-5f);
    for (int k = 0; k < c.K; k++)
        y[k] = (float)(((double)x[k] - mean) * r * (double)c.gain[(size_t)k] +
                       (c.biased ? (double)c.bias[(size_t)k] : 0) + (c.added ? (double)sum[k] : 0));
}

static floats normed(const norm_case &c) {
    floats want(c.x.size());
    for (int m = 0; m < c.M; m++) {
        const size_t at = (size_t)(m * c.K);
        norm_row(c, &c.x[at], &c.sum[at], &want[at]);
    }
    return want;
}

static void check_norm(enum dtype act, const norm_case &c) {
    buffer x(packed(act, c.x)), gain(c.gain), bias(c.bias), y(x.bytes);
    const struct norm norm = {c.kind, gain.as<float>(), c.biased ? bias.as<float>() : nullptr,
                              1e-5f};
    const std::string what = text("norm %d of %d x %d, type %d, biased %d, added %d", c.kind, c.M,
                                  c.K, act, c.biased, c.added);
    if (c.added) y.fill_from(packed(act, c.sum).data());
    if (c.added)
        rows_norm_add(act, y.data, x.data, &norm, c.M, c.K, test_stream());
    else
        rows_norm(act, y.data, x.data, &norm, c.M, c.K, test_stream());
    check_close(read_activations(act, x), c.added ? floats(c.x.size()) : c.x, 0, 0, what + ": x");
    check_close(read_activations(act, y), normed(c), rounding_of(act),
                c.kind == NORM_LAYER || c.added ? 1 : 0.02, what);
}

START_TEST(norms_are_right) {
    const int K = lengths[_i];
    for (enum dtype act : activation_types)
        for (int M : {1, 3})
            for (int kind = 0; kind < 6; kind++)
                check_norm(act, make_norm(act, M, K, kind < 2 ? NORM_RMS : NORM_LAYER, kind >= 4,
                                          kind & 1));
}
END_TEST

/* Devices have 99 to 227 KiB of shared memory per block, the smallest for 25,344 floats. */
static const char *const architectures[] = {"80", "86", "90", "100", "120", "121"};
enum { N_ARCHITECTURES = sizeof architectures / sizeof *architectures };

START_TEST(long_norms_run_on_every_device) {
    setenv("CUDA_EMU_ARCH", architectures[_i], 1);
    early_grids_find(); /* older devices do not have early grids */
    for (const int K : {12032, 12033, 12288, 24576, 24577, 25344, 25352, 41736, (int)NORM_MAX_K})
        for (const bool added : {false, true})
            check_norm(DTYPE_BF16,
                       make_norm(DTYPE_BF16, 2, K, added ? NORM_LAYER : NORM_RMS, added, added));
    check_norm(DTYPE_F32, make_norm(DTYPE_F32, 1, 30000, NORM_RMS, false, false));
    finish();
    unsetenv("CUDA_EMU_ARCH");
    early_grids_find();
    ck_assert(!cuda_failed());
}
END_TEST

START_TEST(a_norm_may_be_in_place) {
    for (const int K : {64, 30000}) {
        const norm_case c = make_norm(DTYPE_BF16, 5, K, NORM_RMS, false, false);
        buffer x(packed(DTYPE_BF16, c.x)), gain(c.gain);
        const struct norm norm = {NORM_RMS, gain.as<float>(), nullptr, 1e-5f};
        rows_norm(DTYPE_BF16, x.data, x.data, &norm, c.M, c.K, test_stream());
        check_close(read_activations(DTYPE_BF16, x), normed(c), rounding_of(DTYPE_BF16), 0.02,
                    "in place");
    }
}
END_TEST

/* The bits of two norms, whose second one may read rows in any order, and one row again. */
static void check_join(enum dtype act, int K, bool recalls) {
    enum { M = 3, KEPT = 4 };
    const norm_case a = make_norm(act, M, K, NORM_RMS, false, false),
                    other = make_norm(act, KEPT, K, NORM_RMS, false, false);
    const std::vector<int32_t> rows = {3, 0, 3};
    buffer x(packed(act, a.x)), kept(packed(act, other.x)), gain(a.gain), second(other.gain);
    buffer places(rows), of_x(x.bytes), of_kept(kept.bytes), y(2 * x.bytes);
    const struct join join = {{{NORM_RMS, gain.as<float>(), nullptr, 1e-5f},
                               {NORM_RMS, second.as<float>(), nullptr, 1e-5f}},
                              recalls};
    rows_norm(act, of_x.data, x.data, &join.norms[0], M, K, test_stream());
    rows_norm(act, of_kept.data, kept.data, &join.norms[1], KEPT, K, test_stream());
    rows_join(act, y.data, x.data, kept.data, &join, places.as<int32_t>(), M, K, test_stream());
    const floats first = read_activations(act, of_x), last = read_activations(act, of_kept);
    floats want;
    for (int m = 0; m < M; m++) {
        const size_t from = (size_t)(recalls ? rows[(size_t)m] : m) * K;
        want.insert(want.end(), &first[(size_t)m * K], &first[(size_t)m * K] + K);
        want.insert(want.end(), &last[from], &last[from] + K);
    }
    check_close(read_activations(act, y), want, 0, 0, text("join of %d, type %d", K, act));
}

START_TEST(a_join_is_two_norms) {
    for (enum dtype act : activation_types)
        for (const bool recalls : {false, true}) check_join(act, lengths[_i], recalls);
}
END_TEST

/* ---- elements ------------------------------------------------------------------------------- */

static double activated_exactly(enum activation kind, double x) {
    if (kind == ACTIVATION_SILU) return x / (1 + exp(-x));
    if (kind == ACTIVATION_RELU) return x > 0 ? x : 0;
    if (kind == ACTIVATION_RELU_SQUARED) return x > 0 ? x * x : 0;
    if (kind == ACTIVATION_GELU) return 0.5 * x * (1 + erf(x / sqrt(2)));
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double clamped_exactly(double gate, double up) {
    const double g = fmin(gate, 7), u = fmax(fmin(up, 7), -7);
    return g / (1 + exp(-1.702 * g)) * (u + 1);
}

static void check_gate(enum dtype act, enum activation kind, size_t n, bool with_up) {
    uint64_t state = n;
    floats x = rounded(act, random_vector(&state, n)), up = rounded(act, random_vector(&state, n));
    x[0] = 30, x[n - 1] = -30, up[n / 2] = 11, up[n / 3] = -11;
    buffer gate(packed(act, x)), more(packed(act, up)), y(gate.bytes);
    floats want(n);
    for (size_t i = 0; i < n; i++)
        want[i] = (float)(kind == ACTIVATION_CLAMPED ? clamped_exactly((double)x[i], (double)up[i])
                                                     : activated_exactly(kind, (double)x[i]) *
                                                           (with_up ? (double)up[i] : 1));
    rows_gate(act, kind, y.data, gate.data, with_up ? more.data : nullptr, n, test_stream());
    std::string what = text("gate %d of %zu, type %d, up %d", kind, n, act, with_up);
    check_close(read_activations(act, y), want, rounding_of(act), 3, what);
    rows_gate(act, kind, gate.data, gate.data, with_up ? more.data : nullptr, n, test_stream());
    ck_assert_msg(gate.read<uint8_t>() == y.read<uint8_t>(), "%s, in place", what.c_str());
}

START_TEST(gates_are_right) {
    for (enum dtype act : activation_types)
        for (enum activation kind : {ACTIVATION_SILU, ACTIVATION_GELU, ACTIVATION_GELU_TANH,
                                     ACTIVATION_RELU, ACTIVATION_RELU_SQUARED})
            for (bool with_up : {true, false})
                check_gate(act, kind, (size_t)(3 * lengths[_i]), with_up);
    for (enum dtype act : activation_types)
        check_gate(act, ACTIVATION_CLAMPED, (size_t)(3 * lengths[_i]), true);
}
END_TEST

static void check_xielu(enum dtype act, size_t n) {
    static const struct xielu c = {0.8f, 0.3f, 0.5f, -1e-6f};
    uint64_t state = n;
    floats x = rounded(act, random_vector(&state, n)), want(n);
    x[0] = 30, x[n - 1] = -30;
    for (size_t i = 0; i < n; i++) {
        const double v = (double)x[i], bent = (double)c.negative * (expm1(v) - v);
        want[i] = (float)((v > 0 ? (double)c.positive * v * v : bent) + (double)c.linear * v);
    }
    buffer on_device(packed(act, x));
    rows_xielu(act, on_device.data, &c, n, test_stream());
    check_close(read_activations(act, on_device), want, rounding_of(act), 3,
                text("xielu of %zu, type %d", n, act));
}

START_TEST(xielus_are_right) {
    for (enum dtype act : activation_types) check_xielu(act, (size_t)(3 * lengths[_i]));
}
END_TEST

static void check_bias(enum dtype act, int M, int K) {
    uint64_t state = 7;
    size_t n = (size_t)M * (size_t)K;
    floats x = rounded(act, random_vector(&state, n));
    floats b = random_vector(&state, (size_t)K), biased(n);
    for (size_t i = 0; i < n; i++) biased[i] = x[i] + b[i % (size_t)K];
    buffer moved(packed(act, x)), bias(b);
    rows_bias(act, moved.data, bias.as<float>(), 1, M, K, test_stream());
    check_close(read_activations(act, moved), rounded(act, biased), 0, 0,
                text("bias %d x %d", M, K));
}

START_TEST(bias_is_right) {
    for (enum dtype act : activation_types)
        for (int M : {1, 5}) check_bias(act, M, lengths[_i]);
}
END_TEST

START_TEST(caps_are_right) {
    const size_t n = (size_t)(3 * lengths[_i]);
    for (enum dtype act : activation_types)
        for (float cap : {0.0f, 1.5f}) {
            uint64_t state = n;
            floats x = rounded(act, random_vector(&state, n)), want(n);
            x[0] = 300, x[n - 1] = -300;
            buffer y(packed(act, x));
            rows_cap(act, y.data, 0.75f, cap, n, test_stream());
            for (size_t i = 0; i < n; i++) {
                const double scaled = 0.75 * (double)x[i];
                want[i] = (float)(cap != 0 ? (double)cap * tanh(scaled / (double)cap) : scaled);
            }
            check_close(read_activations(act, y), want, rounding_of(act), 0.1,
                        text("cap %g of %zu, type %d", (double)cap, n, act));
        }
}
END_TEST

START_TEST(rows_are_gathered) {
    const int K = lengths[_i];
    for (enum dtype act : activation_types) {
        uint64_t state = 3;
        floats x = rounded(act, random_vector(&state, 6 * (size_t)K)), want;
        const std::vector<int32_t> rows = {1, 4, 5};
        for (int32_t row : rows)
            want.insert(want.end(), x.begin() + row * K, x.begin() + (row + 1) * K);
        buffer from(packed(act, x)), list(rows), y(from.bytes / 2);
        rows_gather(act, y.data, from.data, list.as<int32_t>(), 3, K, test_stream());
        check_close(read_activations(act, y), want, 0, 0, text("gather of %d", K));
    }
}
END_TEST

/* Ids in any order, in vocabularies whose rows are whole vectors or not. */
static void check_spread(int R, int K, int V) {
    uint64_t state = 5;
    const floats x = random_vector(&state, (size_t)(R * K));
    floats want((size_t)(R * V), -INFINITY);
    std::vector<int32_t> to((size_t)K);
    for (int k = 0; k < K; k++) to[(size_t)k] = (int32_t)(V - 1 - k * (V / K));
    for (int r = 0; r < R; r++)
        for (int k = 0; k < K; k++) want[(size_t)(r * V + to[(size_t)k])] = x[(size_t)(r * K + k)];
    buffer from(x), ids(to), y(want.size() * sizeof(float));
    const struct spread spread = {ids.as<int32_t>(), V};
    rows_spread(y.as<float>(), from.as<float>(), &spread, R, K, test_stream());
    ck_assert_msg(y.read<float>() == want, "%d rows of %d logits of %d", R, K, V);
}

START_TEST(logits_are_spread) {
    const int K = lengths[_i];
    for (int R : {1, 3}) {
        check_spread(R, K, K);
        check_spread(R, K, 2 * K + 1);
        check_spread(R, K, 4 * K);
    }
}
END_TEST

int main() {
    Suite *suite = suite_create("cuda_rows");
    TCase *norms = tcase_create("norms"), *elements = tcase_create("elements");
    tcase_set_timeout(norms, 120);
    tcase_set_timeout(elements, 120);
    tcase_add_loop_test(norms, norms_are_right, 0, N_LENGTHS);
    tcase_add_test(norms, a_norm_may_be_in_place);
    tcase_add_loop_test(norms, a_join_is_two_norms, 0, N_LENGTHS);
    tcase_add_loop_test(norms, long_norms_run_on_every_device, 0, N_ARCHITECTURES);
    tcase_add_loop_test(elements, gates_are_right, 0, N_LENGTHS);
    tcase_add_loop_test(elements, xielus_are_right, 0, N_LENGTHS);
    tcase_add_loop_test(elements, bias_is_right, 0, N_LENGTHS);
    tcase_add_loop_test(elements, caps_are_right, 0, N_LENGTHS);
    tcase_add_loop_test(elements, rows_are_gathered, 0, N_LENGTHS);
    tcase_add_loop_test(elements, logits_are_spread, 0, N_LENGTHS);
    suite_add_tcase(suite, norms);
    suite_add_tcase(suite, elements);
    return suite_main(suite);
}
