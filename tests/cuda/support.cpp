/* before Check, which defines a macro that collides with a C++ name */
#include "kernels/cuda/runtime/device.cuh"

#include "tests/cuda/support.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const enum dtype activation_types[3] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};

double rounding_of(enum dtype act) {
    return act == DTYPE_F32 ? 2e-6 : act == DTYPE_F16 ? 0x1p-11 + 2e-6 : 0x1p-8 + 2e-6;
}

/* ---- device memory -------------------------------------------------------------------------- */

buffer::buffer(size_t size) : bytes(size) {
    CUDA_OK(cudaMalloc(&data, bytes));
    poison();
}

buffer::~buffer() {
    cudaFree(data);
}

void buffer::poison() {
    CUDA_OK(cudaMemsetAsync(data, 0xff, bytes, test_stream()));
}

void buffer::fill_from(const void *host) {
    CUDA_OK(cudaMemcpyAsync(data, host, bytes, cudaMemcpyHostToDevice, test_stream()));
    finish();
}

void buffer::copy_to(void *host) const {
    finish();
    CUDA_OK(cudaMemcpy(host, data, bytes, cudaMemcpyDeviceToHost));
}

cudaStream_t test_stream() {
    static cudaStream_t stream = [] {
        cudaStream_t made;
        early_grids_find();
        CUDA_OK(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
        return made;
    }();
    return stream;
}

/* Fails the test with the message of a launch that was refused. Clears the error first, so that the
 * next test can launch. */
void finish() {
    struct err err;
    const bool failed = cuda_failure(&err);
    if (failed) {
        cuda_failure_open();
        cuda_failure_close();
        cudaGetLastError();
    }
    ck_assert_msg(!failed, "%s", err.message);
    CUDA_OK(cudaStreamSynchronize(test_stream()));
}

/* ---- numbers -------------------------------------------------------------------------------- */

static uint16_t bfloat16_of(float value) {
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    if (isnan(value)) return 0x7fff;
    return (uint16_t)((word + 0x7fffu + (word >> 16 & 1)) >> 16);
}

std::vector<uint8_t> packed(enum dtype act, const floats &values) {
    size_t size = act == DTYPE_F32 ? 4 : 2;
    std::vector<uint8_t> bytes(values.size() * size);
    for (size_t i = 0; i < values.size(); i++) {
        uint16_t word = act == DTYPE_F16 ? float_to_half(values[i]) : bfloat16_of(values[i]);
        const void *from = act == DTYPE_F32 ? static_cast<const void *>(&values[i]) : &word;
        memcpy(&bytes[i * size], from, size);
    }
    return bytes;
}

floats unpacked(enum dtype act, const std::vector<uint8_t> &bytes) {
    floats values(bytes.size() / (act == DTYPE_F32 ? 4 : 2));
    dequantise(act, bytes.data(), values.data(), values.size());
    return values;
}

floats rounded(enum dtype act, const floats &values) {
    return unpacked(act, packed(act, values));
}

floats read_activations(enum dtype act, const buffer &from) {
    return unpacked(act, from.read<uint8_t>());
}

floats random_vector(uint64_t *state, size_t n) {
    floats values(n);
    for (float &value : values) value = random_float(state);
    return values;
}

void check_close(const floats &got, const floats &want, double tolerance, double size,
                 const std::string &what) {
    ck_assert_uint_eq(got.size(), want.size());
    for (size_t i = 0; i < got.size(); i++) {
        double off = fabs((double)got[i] - (double)want[i]);
        double most = tolerance * (fabs((double)want[i]) + size);
        if (!(off <= most))
            ck_abort_msg("%s: number %zu of %zu is %.9g, not %.9g", what.c_str(), i, got.size(),
                         (double)got[i], (double)want[i]);
    }
}

std::string text(const char *format, ...) {
    char out[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(out, sizeof out, format, arguments);
    va_end(arguments);
    return out;
}
