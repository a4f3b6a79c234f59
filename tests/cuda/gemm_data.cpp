#include "tests/cuda/gemm_data.h"

#include <math.h>
#include <stdlib.h>

const kind kinds[N_KINDS] = {
    {"f32", DTYPE_F32, 0, false, 1},         {"f16", DTYPE_F16, 0, false, 1},
    {"bf16", DTYPE_BF16, 0, false, 1},       {"q8_0", DTYPE_Q8_0, 0, false, 32},
    {"q4_0", DTYPE_Q4_0, 0, false, 32},      {"q4_1", DTYPE_Q4_1, 0, false, 32},
    {"q4_k", DTYPE_Q4_K, 0, false, 256},     {"q6_k", DTYPE_Q6_K, 0, false, 256},
    {"fp8 rows", DTYPE_F32, 0, true, 1},     {"fp8 of 64", DTYPE_F32, 64, true, 1},
    {"fp8 of 128", DTYPE_F32, 128, true, 1}, {"q5_0", DTYPE_Q5_0, 0, false, 32},
    {"q5_1", DTYPE_Q5_1, 0, false, 32},      {"q5_k", DTYPE_Q5_K, 0, false, 256},
    {"q2_k", DTYPE_Q2_K, 0, false, 256},     {"iq4_xs", DTYPE_IQ4_XS, 0, false, 256},
    {"mxfp4", DTYPE_MXFP4, 0, false, 32},    {"int4", DTYPE_INT4, 0, false, 32},
    {"int8", DTYPE_INT8, 0, false, 32},      {"iq4_nl", DTYPE_IQ4_NL, 0, false, 32},
    {"q3_k", DTYPE_Q3_K, 0, false, 256},     {"tq1_0", DTYPE_TQ1_0, 0, false, 256},
    {"tq2_0", DTYPE_TQ2_0, 0, false, 256},   {"int4h", DTYPE_INT4H, 0, false, 32},
    {"q1_0", DTYPE_Q1_0, 0, false, 128},     {"q2_0", DTYPE_Q2_0, 0, false, 64},
};
const enum dtype short_types[2] = {DTYPE_F16, DTYPE_BF16};

int across(const kind &k, int K) {
    return k.scale_columns ? (K + k.scale_columns - 1) / k.scale_columns : 1;
}
int scale_rows(const kind &k) {
    return k.scale_columns ? 3 : 1;
}

static float e4m3(uint8_t bits) {
    int exponent = bits >> 3 & 15, mantissa = bits & 7;
    float size =
        exponent ? ldexpf((float)(8 + mantissa), exponent - 10) : ldexpf((float)mantissa, -9);
    return bits & 128 ? -size : size;
}

static rows fp8_rows(const kind &k, int N, int K, uint64_t *state) {
    rows r{N, K, std::vector<uint8_t>((size_t)(N * K)), {}, floats((size_t)(N * K))};
    int down = (N + scale_rows(k) - 1) / scale_rows(k);
    for (int i = 0; i < down * across(k, K); i++)
        r.scales.push_back(0.004f + 0.001f * (float)random_below(state, 30));
    for (int n = 0; n < N; n++)
        for (int c = 0; c < K; c++) {
            uint8_t bits = (uint8_t)random_u32(state);
            if ((bits & 127) == 127) bits ^= 1;
            int of = k.scale_columns ? c / k.scale_columns : 0;
            r.bytes[(size_t)(n * K + c)] = bits;
            r.weights[(size_t)(n * K + c)] =
                e4m3(bits) * r.scales[(size_t)(n / scale_rows(k) * across(k, K) + of)];
        }
    return r;
}

rows make_rows(const kind &k, int N, int K, uint64_t seed) {
    uint64_t state = seed * 977 + (uint64_t)K;
    if (k.fp8) return fp8_rows(k, N, K, &state);
    size_t n = (size_t)N * (size_t)K;
    auto *data = static_cast<uint8_t *>(random_weights(&state, k.type, n));
    rows r{N, K, std::vector<uint8_t>(data, data + dtype_bytes(k.type, n)), {}, floats(n)};
    free(data);
    dequantise(k.type, r.bytes.data(), r.weights.data(), n);
    return r;
}

bool packed_as_act(const kind &k) {
    return dtype_block_elements(k.type) == 1 && !k.fp8;
}

int whole(const kind &k, int K) {
    return (K + k.columns - 1) / k.columns * k.columns;
}

static gemm_source source_of(const kind &k, int K) {
    gemm_source source = {};
    source.type = k.type;
    source.fp8 = k.fp8;
    source.e4m3 = k.e4m3;
    source.scale_rows = scale_rows(k);
    source.scale_columns = k.scale_columns ? k.scale_columns : K;
    return source;
}

size_t matrix_on_device::plan(struct gemm_weights *w, const kind &k, enum dtype act, int N, int K) {
    const gemm_source source = source_of(k, K);
    return gemm_plan(w, act, &source, N, K);
}

matrix_on_device::matrix_on_device(const kind &k, enum dtype act, int N, int K)
    : memory(plan(&w, k, act, N, K)) {
    gemm_place(&w, memory.data);
}

matrix_on_device::matrix_on_device(const kind &k, enum dtype act, const rows &all)
    : matrix_on_device(k, act, all.N, all.K) {
    pack(k, 0, all);
}

void matrix_on_device::pack(const kind &k, int first, const rows &a) {
    buffer bytes(a.bytes), scales(k.fp8 ? a.scales : floats(1));
    gemm_source source = source_of(k, a.K);
    source.rows = bytes.data;
    source.scales = scales.as<float>();
    gemm_pack(&w, &source, first, a.N, test_stream());
    finish();
}

floats make_x(enum dtype act, int M, int K) {
    uint64_t state = 5 + (uint64_t)K;
    return rounded(act, random_vector(&state, (size_t)(M * K)));
}

std::vector<uint8_t> multiplied(const struct gemm_job *job, const buffer &x,
                                const struct norm *norm, int M) {
    const bool wide = job->w->act == DTYPE_F32 || (job->epilogue && job->epilogue->float_out);
    buffer y((size_t)M * (size_t)job->w->N * (wide ? 4 : 2));
    struct gemm_job mine = *job;
    mine.y = y.data;
    gemm_many(&mine, 1, x.data, norm, M, test_stream());
    return y.read<uint8_t>();
}
