/* Weights of all types on the device: rows of the embedding have the bits of the CPU's dequantise,
 * for any division of a matrix into parts, and float weights are quantised to the nearest code. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/gemm/matrix.cuh"
#include "kernels/cuda/gemm/ops.cuh"
#include "tests/cuda/support.h"

/* Rows of a file, and the weights that they represent. */
struct file_rows {
    enum dtype type;
    int N, K;
    std::vector<uint8_t> bytes;
    floats weights; /* [N][K] */
    file_rows(enum dtype type_, int N_, int K_) : type(type_), N(N_), K(K_) {
        const size_t n = (size_t)N * (size_t)K;
        uint64_t state = 5 + (uint64_t)type;
        auto *data = static_cast<uint8_t *>(random_weights(&state, type, n));
        bytes.assign(data, data + dtype_bytes(type, n));
        free(data);
        read();
    }
    void read() {
        weights.resize((size_t)N * (size_t)K);
        dequantise(type, bytes.data(), weights.data(), weights.size());
    }
};

/* Separate staging, with parts of part_bytes bytes; 0: the default. */
struct way {
    struct staging staging;
    explicit way(size_t part_bytes = 0, struct backend *host = nullptr) {
        staging_open(&staging, host, test_stream());
        if (part_bytes) staging.part_bytes = part_bytes;
    }
    ~way() {
        staging_release(&staging);
    }
    way(const way &) = delete;
    way &operator=(const way &) = delete;
};

/* A matrix on the device. */
struct taken {
    struct matrix *matrix = nullptr;
    taken(way *by, enum dtype act, const file_rows &rows, enum matrix_form form = MATRIX_NATIVE) {
        struct err err = {};
        /* the caller's memory is valid only during the call */
        std::vector<uint8_t> gone(rows.bytes);
        enum status status = matrix_alloc(&matrix, &by->staging, act, {}, rows.type, rows.N, rows.K,
                                          gone.data(), form, &err);
        memset(gone.data(), 0xff, gone.size());
        ck_assert_msg(status == STATUS_OK, "%s", err.message);
    }
    ~taken() {
        finish();
        matrix_free(matrix);
    }
    taken(const taken &) = delete;
    taken &operator=(const taken &) = delete;
    floats rows(const std::vector<int32_t> &tokens) const {
        const struct gemm_weights &w = matrix->packed;
        std::vector<int32_t> asked(tokens), late; /* every third token is read from the device */
        for (size_t i = 0; i < asked.size(); i += 3) {
            late.push_back(tokens[i]);
            asked[i] = -(int32_t)late.size();
        }
        buffer token(asked), sampled(late);
        buffer y(tokens.size() * (size_t)w.K * (w.act == DTYPE_F32 ? 4 : 2));
        embed_rows(y.data, &w, token.as<int32_t>(), sampled.as<int32_t>(), 1, false,
                   (int)tokens.size(), test_stream());
        return read_activations(w.act, y);
    }
};

static int length_of(enum dtype type, int blocks) {
    int elements = dtype_block_elements(type);
    return elements == 1 ? 11 * blocks : elements * blocks;
}

/* ---- embedding ------------------------------------------------------------------------------ */

static void check_rows(const taken &w, const floats &weights, const std::vector<int32_t> &tokens,
                       const std::string &what) {
    const int K = w.matrix->packed.K;
    floats want;
    for (int32_t id : tokens)
        want.insert(want.end(), weights.begin() + id * K, weights.begin() + (id + 1) * K);
    check_close(w.rows(tokens), rounded(w.matrix->packed.act, want), 0, 0, what);
}

/* Each row once, and the first ones again. */
static std::vector<int32_t> all_rows(int N) {
    std::vector<int32_t> tokens;
    for (int i = 0; i < N; i++) tokens.push_back(N - 1 - i);
    tokens.push_back(0);
    return tokens;
}

START_TEST(embeddings_have_the_cpu_s_bits) {
    const enum dtype type = all_types[_i];
    for (enum dtype act : activation_types)
        for (int blocks : {1, 3, 6}) {
            way by;
            file_rows rows(type, 19, length_of(type, blocks));
            taken w(&by, act, rows, act == DTYPE_F32 ? MATRIX_FLOAT32 : MATRIX_NATIVE);
            check_rows(w, rows.weights, all_rows(rows.N),
                       text("embedding of type %s, activations %s, %d blocks", dtype_name(type),
                            dtype_name(act), blocks));
        }
}
END_TEST

/* ---- parts ---------------------------------------------------------------------------------- */

/* Parts of one tile and of two pass both halves more than once. */
START_TEST(a_matrix_may_be_loaded_in_parts) {
    const enum dtype type = all_types[_i];
    file_rows rows(type, 83, length_of(type, 2));
    const size_t tile = 16 * dtype_bytes(type, (size_t)rows.K);
    for (size_t part : {(size_t)1, tile, 2 * tile + 16}) {
        way by(part);
        taken first(&by, DTYPE_F16, rows);
        const size_t half = by.staging.half_bytes;
        ck_assert_uint_le(half, (part < tile ? tile : part) + 255);
        taken second(&by, DTYPE_BF16, rows);
        staging_release(&by.staging);
        taken third(&by, DTYPE_F32, rows);
        for (const taken *w : {&first, &second, &third})
            check_rows(*w, rows.weights, all_rows(rows.N),
                       text("%s in parts of %zu", dtype_name(type), part));
    }
}
END_TEST

/* Halves grow for a wider matrix, and the host's threads divide the copying. */
START_TEST(wide_rows_are_taken_whole) {
    struct backend *host = open_backend("plain", 2, 1, 1);
    {
        way by(1 << 10, host);
        file_rows narrow(DTYPE_BF16, 40, 8), wide(DTYPE_F32, 33, 5003);
        taken a(&by, DTYPE_F32, narrow), b(&by, DTYPE_F32, wide), c(&by, DTYPE_F32, narrow);
        ck_assert_uint_ge(by.staging.half_bytes, (size_t)16 * 5003 * 4);
        check_rows(a, narrow.weights, all_rows(40), "before");
        check_rows(b, wide.weights, all_rows(33), "wide");
        check_rows(c, narrow.weights, all_rows(40), "after");
    }
    backend_close(host);
}
END_TEST

/* ---- fp8 ------------------------------------------------------------------------------------ */

static float e4m3(int bits) {
    const int exponent = bits >> 3, mantissa = bits & 7;
    return exponent ? ldexpf((float)(8 + mantissa), exponent - 10) : ldexpf((float)mantissa, -9);
}

/* The nearest e4m3 number, on a tie the one with an even code; 448 for anything larger. */
static float nearest_e4m3(float x) {
    const float size = fabsf(x);
    int best = 0;
    for (int bits = 1; bits < 127; bits++) {
        const float off = fabsf(e4m3(bits) - size), least = fabsf(e4m3(best) - size);
        if (off < least || (off == least && bits % 2 == 0)) best = bits;
    }
    return copysignf(e4m3(best), x);
}

static floats nearest_rows(const file_rows &rows) {
    floats out;
    for (int n = 0; n < rows.N; n++) {
        const float *row = &rows.weights[(size_t)n * (size_t)rows.K];
        float most = 0;
        for (int k = 0; k < rows.K; k++) most = fmaxf(most, fabsf(row[k]));
        const float scale = fmaxf(most / 448.0f, FLT_MIN);
        for (int k = 0; k < rows.K; k++) out.push_back(nearest_e4m3(row[k] / scale) * scale);
    }
    return out;
}

START_TEST(float_weights_become_e4m3) {
    const enum dtype type = all_types[_i];
    const bool quantised = dtype_block_elements(type) == 1;
    for (enum dtype act : {DTYPE_F16, DTYPE_BF16})
        for (int blocks : {1, 2, 30}) {
            file_rows rows(type, 35, length_of(type, quantised ? blocks : 1));
            const size_t row_bytes = rows.bytes.size() / (size_t)rows.N;
            if (quantised) memset(&rows.bytes[3 * row_bytes], 0, row_bytes); /* a row of zeros */
            rows.read();
            way by(16 * row_bytes);
            taken w(&by, act, rows, MATRIX_FP8);
            check_rows(w, quantised ? nearest_rows(rows) : rows.weights, all_rows(rows.N),
                       text("%s as fp8, %d blocks", dtype_name(type), blocks));
        }
}
END_TEST

/* Numbers halfway between two codes, and rows of one equal weight. */
START_TEST(ties_go_to_even_codes) {
    file_rows rows(DTYPE_F32, 2, 300);
    for (int k = 0; k < 300; k++) {
        const int bits = k % 126;
        const float middle = (e4m3(bits) + e4m3(bits + 1)) / 2;
        rows.weights[(size_t)k] = k == 299 ? 448.0f : k % 2 ? -middle : middle;
        rows.weights[(size_t)(300 + k)] = k == 7 ? -3.0f : 0.0f;
    }
    memcpy(rows.bytes.data(), rows.weights.data(), rows.bytes.size());
    way by;
    taken w(&by, DTYPE_BF16, rows, MATRIX_FP8);
    check_rows(w, nearest_rows(rows), all_rows(2), "ties");
}
END_TEST

/* ---- refusals ------------------------------------------------------------------------------- */

START_TEST(shapes_that_cannot_be_are_refused) {
    static const struct {
        enum dtype act, type;
        int N, K;
        enum matrix_form form;
        enum status status;
    } wrong[] = {
        {DTYPE_BF16, DTYPE_Q4_0, 1, 40, MATRIX_NATIVE, STATUS_BAD_FILE},
        {DTYPE_BF16, DTYPE_F32, 0, 40, MATRIX_NATIVE, STATUS_BAD_FILE},
        {DTYPE_BF16, DTYPE_F32, 1, 0, MATRIX_NATIVE, STATUS_BAD_FILE},
        {DTYPE_BF16, (enum dtype)99, 1, 40, MATRIX_NATIVE, STATUS_BAD_FILE},
        {DTYPE_BF16, DTYPE_F32, 1, 40, MATRIX_FLOAT32, STATUS_USAGE},
        {DTYPE_F32, DTYPE_F32, 1, 40, MATRIX_FP8, STATUS_USAGE},
    };
    way by;
    const float zeros[40] = {};
    for (const auto &w : wrong) {
        struct matrix *matrix = nullptr;
        struct err err = {};
        ck_assert_int_eq(
            matrix_alloc(&matrix, &by.staging, w.act, {}, w.type, w.N, w.K, zeros, w.form, &err),
            w.status);
        ck_assert_ptr_null(matrix);
    }
}
END_TEST

int main() {
    Suite *suite = suite_create("cuda_weights");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 300);
    tcase_add_loop_test(core, embeddings_have_the_cpu_s_bits, 0, N_TYPES);
    tcase_add_loop_test(core, a_matrix_may_be_loaded_in_parts, 0, N_TYPES);
    tcase_add_test(core, wide_rows_are_taken_whole);
    tcase_add_loop_test(core, float_weights_become_e4m3, 0, N_TYPES);
    tcase_add_test(core, ties_go_to_even_codes);
    tcase_add_test(core, shapes_that_cannot_be_are_refused);
    suite_add_tcase(suite, core);
    return suite_main(suite);
}
