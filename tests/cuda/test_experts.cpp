/* Experts on the device. In float32 the results are near those of the CPU's plain path, in 16 bits
 * less near, and the bytes do not depend on the number of rows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/support.h"

enum { E = 37, N_USED = 3, K = 96, F = 48, F_SHARED = 64, MAX_M = 70 };
using bytes = std::vector<uint8_t>;
/* One block of an expert's rows and several of them, full or partly filled. */
static const int row_counts[] = {1, 2, 16, 45, MAX_M};

/* The types of the experts' matrices, and their number E. Some experts have few rows, others have
 * several blocks of rows. */
struct kind {
    enum dtype gate, up, down;
    int E;
    bool normalises, has_shared;
    bool is_clamped;      /* with biases of the router and of the experts */
    int groups;           /* routing by sigmoids within half of this many groups; 0: by softmax,
                             below 0: by softmax within groups, their number */
    bool has_router_norm; /* a separate norm; with scales of the router and of the experts */
    bool is_corrected;    /* the softmaxes */
};
static const kind kinds[] = {
    {DTYPE_F32, DTYPE_F32, DTYPE_F32, E, true, false},
    {DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, 5, false, true},
    {DTYPE_Q8_0, DTYPE_Q8_0, DTYPE_F16, E, false, false},
    {DTYPE_Q4_0, DTYPE_Q8_0, DTYPE_F32, 4, true, true},
    {DTYPE_BF16, DTYPE_BF16, DTYPE_F16, 7, true, false, true},
    {DTYPE_Q4_0, DTYPE_Q8_0, DTYPE_F32, E, true, false, true},
    {DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, 40, true, true, false, 8},
    {DTYPE_F32, DTYPE_F32, DTYPE_F32, E, false, false, false, 1},
    {DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, 9, true, false, false, 0, true},
    {DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, 40, true, true, false, 0, false, true},
    {DTYPE_F32, DTYPE_F32, DTYPE_F32, E, false, false, false, 0, false, true},
    {DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, 40, false, true, false, -8},
    {DTYPE_F32, DTYPE_F32, DTYPE_F32, 40, true, false, false, -5},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

/* A backend that holds a layer's experts. */
struct layer {
    struct backend *b = nullptr;
    enum dtype act;
    struct experts experts = {};
    const float *gain = nullptr;
    std::vector<struct matrix *> matrices;
    layer(const kind &k, bool on_cpu, enum dtype act_);
    ~layer();
    layer(const layer &) = delete;
    layer &operator=(const layer &) = delete;
    struct linear take(enum dtype type, int N, int columns, uint64_t seed, bool in_float32);
    std::vector<std::pair<float *, size_t>> vectors;
    const float *take_vector(size_t n, uint64_t seed, float by = 1);
    struct mlp take_mlp(const kind &k, int n, int width, uint64_t seed);
    floats run(const floats &x, int M, bytes *raw = nullptr);
};

static enum status open_backend_of(struct backend **b, const kind &k, bool on_cpu, enum dtype act) {
    struct backend_config config = {};
    struct err err = {};
    config.threads = 1;
    config.path = on_cpu ? "plain" : nullptr;
    config.max_rows = config.max_seqs = MAX_M;
    config.max_k = K;
    config.activations = act;
    config.experts = {k.E, N_USED, K, F_SHARED};
    config.max_context = MAX_M;
    config.heads = 1;
    return on_cpu ? backend_cpu_open(b, &config, &err) : backend_cuda_open(b, &config, &err);
}

struct linear layer::take(enum dtype type, int N, int columns, uint64_t seed, bool in_float32) {
    void *rows = random_weights(&seed, type, (size_t)N * (size_t)columns);
    const bool wide = in_float32 || act == DTYPE_F32;
    struct matrix *w = nullptr;
    struct err err = {};
    ck_assert_msg(b->memory->matrix_new(b, &w, type, N, columns, rows,
                                        wide ? MATRIX_FLOAT32 : MATRIX_NATIVE, &err) == STATUS_OK,
                  "%s", err.message);
    free(rows);
    matrices.push_back(w);
    return {w, nullptr, 0};
}

struct mlp layer::take_mlp(const kind &k, int n, int width, uint64_t seed) {
    struct mlp mlp = {};
    mlp.gate = take(k.gate, n * width, K, seed, false);
    mlp.up = take(k.up, n * width, K, seed + 1, false);
    mlp.down = take(width % 32 ? DTYPE_F16 : k.down, n * K, width, seed + 2, false);
    mlp.down.scale = 0.5f;
    return mlp;
}

const float *layer::take_vector(size_t n, uint64_t seed, float by) {
    floats host = random_vector(&seed, n);
    for (float &value : host) value *= by;
    float *made = static_cast<float *>(b->memory->buffer_new(b, n * sizeof(float)));
    b->memory->upload(b, made, host.data(), n * sizeof(float));
    vectors.emplace_back(made, n * sizeof(float));
    return made;
}

layer::layer(const kind &k, bool on_cpu, enum dtype act_) : act(act_) {
    ck_assert_int_eq(open_backend_of(&b, k, on_cpu, act), STATUS_OK);
    experts.E = k.E;
    experts.n_used = N_USED;
    experts.normalises = k.normalises;
    experts.router = take(DTYPE_F32, k.E, K, 3, true);
    experts.mlp = take_mlp(k, k.E, F, 10);
    if (k.has_shared) experts.shared = take_mlp(k, 1, F_SHARED, 20);
    if (k.has_shared && k.normalises) experts.shared_gate = take(DTYPE_F32, 1, K, 30, true);
    gain = take_vector(K, 40);
    if (k.groups > 0) {
        experts.by_sigmoid = true;
        experts.correction = take_vector((size_t)k.E, 45);
    }
    if (k.groups != 0) {
        experts.n_groups = abs(k.groups);
        experts.n_used_groups = (experts.n_groups + 1) / 2;
        experts.weight_scale = 1.5f;
    }
    if (k.is_corrected) experts.correction = take_vector((size_t)k.E, 45, 0.2f);
    if (k.has_router_norm) {
        experts.router_norm = {NORM_RMS, take_vector(K, 46), nullptr, 1e-3f};
        experts.router.scale = 0.25f;
        experts.expert_scale = take_vector((size_t)k.E, 47);
    }
    if (!k.is_clamped) return;
    experts.mlp.activation = ACTIVATION_CLAMPED;
    experts.router.bias = take_vector((size_t)k.E, 41);
    experts.mlp.gate.bias = take_vector((size_t)(k.E * F), 42, 8);
    experts.mlp.up.bias = take_vector((size_t)(k.E * F), 43, 8);
    experts.mlp.down.bias = take_vector((size_t)(k.E * K), 44);
}

layer::~layer() {
    for (struct matrix *w : matrices) b->memory->matrix_free(b, w);
    for (auto &vector : vectors) b->memory->buffer_free(b, vector.first, vector.second);
    backend_close(b);
}

/* Returns the last M rows of x[MAX_M][K] with the output of the experts added. */
floats layer::run(const floats &x, int M, bytes *raw) {
    const struct norm norm = {NORM_RMS, gain, nullptr, 1e-5f};
    const bytes in = packed(act, floats(x.end() - M * K, x.end()));
    float *rows = static_cast<float *>(b->memory->buffer_new(b, in.size()));
    bytes out(in.size());
    b->memory->upload(b, rows, in.data(), in.size());
    b->compute->experts(b, rows, rows, &norm, &experts, M);
    b->memory->download(b, out.data(), rows, out.size());
    b->memory->buffer_free(b, rows, in.size());
    if (raw) *raw = out;
    return unpacked(act, out);
}

static floats some_rows(enum dtype act) {
    uint64_t state = 50;
    return rounded(act, random_vector(&state, MAX_M * K));
}

/* Counts the rows in which a number differs by more than this fraction of the row's largest
 * number. */
static int rows_off(const floats &got, const floats &want, double tolerance) {
    int n = 0;
    for (size_t m = 0; m < MAX_M; m++) {
        double size = 0, off = 0;
        for (size_t k = 0; k < K; k++) {
            size = fmax(size, fabs((double)want[m * K + k]));
            off = fmax(off, fabs((double)got[m * K + k] - (double)want[m * K + k]));
        }
        n += !(off <= tolerance * size);
    }
    return n;
}

START_TEST(float32_has_the_bits_of_the_cpu) {
    layer cpu(kinds[_i], true, DTYPE_F32), cuda(kinds[_i], false, DTYPE_F32);
    const floats x = some_rows(DTYPE_F32);
    ck_assert_int_eq(rows_off(cuda.run(x, MAX_M), cpu.run(x, MAX_M), 1e-5), 0);
}
END_TEST

/* Except in rows whose choice of experts is so close that rounding the inputs changes it. */
START_TEST(sixteen_bits_are_near_it) {
    const enum dtype act = _i % 2 ? DTYPE_F16 : DTYPE_BF16;
    layer cpu(kinds[_i], true, DTYPE_F32), cuda(kinds[_i], false, act);
    const floats x = some_rows(act);
    ck_assert_int_le(rows_off(cuda.run(x, MAX_M), cpu.run(x, MAX_M), 0.04), 4);
}
END_TEST

START_TEST(the_number_of_rows_changes_no_byte) {
    for (enum dtype act : {DTYPE_F32, _i % 2 ? DTYPE_F16 : DTYPE_BF16}) {
        layer cuda(kinds[_i], false, act);
        const floats x = some_rows(act);
        bytes all, part;
        cuda.run(x, MAX_M, &all);
        for (int M : row_counts) {
            cuda.run(x, M, &part);
            ck_assert_msg(memcmp(part.data(), all.data() + all.size() - part.size(), part.size()) ==
                              0,
                          "kind %d, %d rows", _i, M);
        }
    }
}
END_TEST

/* The router has the same row for all experts: the lower numbers are chosen, as on the CPU. */
START_TEST(ties_go_to_the_lower_number) {
    const kind &k = kinds[0];
    layer cpu(k, true, DTYPE_F32), cuda(k, false, DTYPE_F32);
    const floats router((size_t)(E * K), 0.25f);
    for (layer *l : {&cpu, &cuda}) {
        struct matrix *w = nullptr;
        ck_assert_int_eq(l->b->memory->matrix_new(l->b, &w, DTYPE_F32, E, K, router.data(),
                                                  MATRIX_FLOAT32, nullptr),
                         STATUS_OK);
        l->matrices.push_back(w);
        l->experts.router.w = w;
    }
    const floats x = some_rows(DTYPE_F32);
    ck_assert_int_eq(rows_off(cuda.run(x, MAX_M), cpu.run(x, MAX_M), 1e-5), 0);
}
END_TEST

int main() {
    Suite *suite = suite_create("cuda_experts");
    TCase *all = tcase_create("all");
    tcase_add_loop_test(all, float32_has_the_bits_of_the_cpu, 0, N_KINDS);
    tcase_add_loop_test(all, sixteen_bits_are_near_it, 0, N_KINDS);
    tcase_add_loop_test(all, the_number_of_rows_changes_no_byte, 0, N_KINDS);
    tcase_add_test(all, ties_go_to_the_lower_number);
    tcase_set_timeout(all, 600);
    suite_add_tcase(suite, all);
    return suite_main(suite);
}
