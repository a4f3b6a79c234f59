/* The backend's products through its op table: all types of weights with all types of activations,
 * several matrices for the same rows, logits, and queries about matrices. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "tests/cuda/support.h"

enum { K = 256, MAX_ROWS = 70, N_MATRICES = 4 };
static const int outputs[N_MATRICES] = {16, 37, 5, 130};

/* A backend and its matrices. The first and third have one type. */
struct world {
    enum dtype act;
    struct backend *b = nullptr;
    struct matrix *w[N_MATRICES];
    floats weights[N_MATRICES];
    world(enum dtype act_, int first) : act(act_) {
        const struct backend_config config = {1,  nullptr, MAX_ROWS, K,        act,
                                              {}, nullptr, 1,        MAX_ROWS, 1};
        struct err err = {};
        ck_assert_msg(backend_cuda_open(&b, &config, &err) == STATUS_OK, "%s", err.message);
        for (int i = 0; i < N_MATRICES; i++)
            take(i, all_types[(first + i % 2 * 3 + i / 3) % N_TYPES]);
    }
    void take(int i, enum dtype type) {
        const size_t n = (size_t)(outputs[i] * K);
        uint64_t state = 11 + (uint64_t)type + (uint64_t)i;
        void *rows = random_weights(&state, type, n);
        const enum matrix_form form = act == DTYPE_F32 ? MATRIX_FLOAT32 : MATRIX_NATIVE;
        struct err err = {};
        ck_assert_msg(b->memory->matrix_new(b, &w[i], type, outputs[i], K, rows, form, &err) ==
                          STATUS_OK,
                      "%s", err.message);
        weights[i].resize(n);
        dequantise(type, rows, weights[i].data(), n);
        free(rows);
        ck_assert_uint_ge(b->memory->matrix_bytes(w[i]), n / 4); /* 2 bits and more */
    }
    ~world() {
        for (struct matrix *one : w) b->memory->matrix_free(b, one);
        backend_close(b);
    }
    world(const world &) = delete;
    world &operator=(const world &) = delete;
    size_t width(enum dtype type) const {
        return type == DTYPE_F32 ? 4 : 2;
    }
};

/* Device memory of the backend. */
struct rows_of {
    struct backend *b;
    size_t bytes;
    float *data;
    rows_of(struct backend *b_, size_t bytes_)
        : b(b_), bytes(bytes_), data(static_cast<float *>(b->memory->buffer_new(b, bytes))) {}
    ~rows_of() {
        b->memory->buffer_free(b, data, bytes);
    }
    rows_of(const rows_of &) = delete;
    rows_of &operator=(const rows_of &) = delete;
    floats read(enum dtype type) const {
        std::vector<uint8_t> host(bytes);
        b->memory->download(b, host.data(), data, bytes);
        return unpacked(type, host);
    }
};

/* Fails unless each product is within the error of float32 sums with weights and results rounded to
 * `act`. */
static void check(const floats &got, const floats &x, const floats &w, int M, int N,
                  double rounding, const std::string &what) {
    for (int m = 0; m < M; m++)
        for (int n = 0; n < N; n++) {
            double sum = 0, size = 0;
            for (int k = 0; k < K; k++) {
                const double one = (double)x[(size_t)(m * K + k)] * (double)w[(size_t)(n * K + k)];
                sum += one;
                size += fabs(one);
            }
            const double off = fabs((double)got[(size_t)(m * N + n)] - sum);
            ck_assert_msg(off <= rounding * size, "%s: row %d, output %d is off by %g",
                          what.c_str(), m, n, off);
        }
}

/* Numbers that all types of activations represent exactly. */
static floats make_x(int M) {
    uint64_t state = 3;
    floats x((size_t)(M * K));
    for (float &value : x) value = (float)(random_below(&state, 129) - 64) / 32;
    return x;
}

static void check_products(const world &on, int M) {
    struct backend *b = on.b;
    const floats x = make_x(M);
    const auto in = packed(on.act, x);
    rows_of device_x(b, in.size());
    b->memory->upload(b, device_x.data, in.data(), in.size());
    std::vector<rows_of *> y;
    float *to[N_MATRICES];
    for (int i = 0; i < N_MATRICES; i++) {
        y.push_back(new rows_of(b, (size_t)(M * outputs[i]) * on.width(on.act)));
        to[i] = y.back()->data;
    }
    struct linear linear[N_MATRICES];
    for (int i = 0; i < N_MATRICES; i++) linear[i] = {on.w[i], nullptr};
    b->compute->matmul(b, to, device_x.data, nullptr, linear, N_MATRICES, M);
    for (int i = 0; i < N_MATRICES; i++) {
        check(y[(size_t)i]->read(on.act), x, on.weights[i], M, outputs[i], rounding_of(on.act),
              text("matrix %d of %d rows, activations %s", i, M, dtype_name(on.act)));
        delete y[(size_t)i];
    }
    rows_of logits(b, (size_t)(M * outputs[1]) * sizeof(float));
    const struct lm_head head = {linear[1], 0};
    b->compute->logits(b, logits.data, device_x.data, nullptr, &head, M);
    check(logits.read(DTYPE_F32), x, on.weights[1], M, outputs[1], rounding_of(on.act),
          text("logits of %d rows, activations %s", M, dtype_name(on.act)));
}

/* If each access is watched, each type of weights runs with one type of activations, in turn. */
static bool watched;

START_TEST(every_type_is_served) {
    const int n = (int)(sizeof activation_types / sizeof *activation_types);
    for (enum dtype act : activation_types) {
        if (watched && act != activation_types[_i % n]) continue;
        world on(act, _i);
        for (int M : {1, 5, 12, 33, (int)MAX_ROWS})
            if (M != 33 || act != DTYPE_F32) check_products(on, M);
    }
}
END_TEST

int main(int n_arguments, char **arguments) {
    assert(n_arguments > 0);
    watched = suite_is_watched(arguments[0]);
    Suite *suite = suite_create("cuda_products");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 300);
    tcase_add_loop_test(core, every_type_is_served, 0, N_TYPES);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
