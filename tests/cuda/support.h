/* Helpers for the tests of CUDA kernels. They work the same on the emulation and on a device: only
 * copies access device memory. Each buffer that a kernel writes starts as poison. */
#ifndef PENSTOCK_TESTS_CUDA_SUPPORT_H
#define PENSTOCK_TESTS_CUDA_SUPPORT_H

#include <check.h>
#include <cuda_runtime_api.h>
#include <string>
#include <vector>

extern "C" {
#include "support/kernel_data.h"
#include "support/suite_main.h"
}

using floats = std::vector<float>;

/* Fails the test if a CUDA call fails. */
#define CUDA_OK(call) ck_assert_msg((call) == cudaSuccess, "%s", #call)

/* The types of activations, and the largest error of a result: half a unit in the last place of the
 * type, plus the error of float32 sums. */
extern const enum dtype activation_types[3];
double rounding_of(enum dtype act);

/* Device memory. Without contents it is poison: NaN in every float type, -1 in integers. */
struct buffer {
    void *data = nullptr;
    size_t bytes;
    explicit buffer(size_t bytes);
    template <class T>
    explicit buffer(const std::vector<T> &host) : buffer(host.size() * sizeof(T)) {
        fill_from(host.data());
    }
    buffer(const buffer &) = delete;
    buffer &operator=(const buffer &) = delete;
    ~buffer();
    void poison();
    void fill_from(const void *host);
    void copy_to(void *host) const;
    template <class T> T *as() {
        return static_cast<T *>(data);
    }
    template <class T> std::vector<T> read() const {
        std::vector<T> host(bytes / sizeof(T));
        copy_to(host.data());
        return host;
    }
};

/* Converts floats to elements of `act`, with rounding, and back. */
std::vector<uint8_t> packed(enum dtype act, const floats &values);
floats unpacked(enum dtype act, const std::vector<uint8_t> &bytes);
/* Returns the values rounded to `act`. */
floats rounded(enum dtype act, const floats &values);
floats read_activations(enum dtype act, const buffer &from);

floats random_vector(uint64_t *state, size_t n);

/* Fails unless |got - want| <= tolerance * (|want| + size) for all values; NaN fails. */
void check_close(const floats &got, const floats &want, double tolerance, double size,
                 const std::string &what);

std::string text(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The stream of the test program. */
cudaStream_t test_stream();
/* Waits for all work of this stream. Fails the test if a launch failed. */
void finish();

#endif
