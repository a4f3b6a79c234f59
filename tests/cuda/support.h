/* Helpers of the CUDA kernels' tests. They run alike on the emulation and on a device: device
 * memory is reached by copies only. Every buffer that a kernel writes starts as poison. */
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

/* Fails the test when a CUDA call did. */
#define CUDA_OK(call) ck_assert_msg((call) == cudaSuccess, "%s", #call)

/* The types of activations, and how far a result may be off: half a unit in the last place of the
 * type, and what float32 sums cost. */
extern const enum dtype activation_types[3];
double rounding_of(enum dtype act);

/* Device memory. Without contents it is poisoned: NaN in every float type, -1 in integers. */
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

/* Floats as elements of `act`, rounded, and back. */
std::vector<uint8_t> packed(enum dtype act, const floats &values);
floats unpacked(enum dtype act, const std::vector<uint8_t> &bytes);
/* The values as they are once stored in `act`. */
floats rounded(enum dtype act, const floats &values);
floats read_activations(enum dtype act, const buffer &from);

/* A vector of random floats. */
floats random_vector(uint64_t *state, size_t n);

/* Fails unless |got - want| <= tolerance * (|want| + size) for all; NaN fails. */
void check_close(const floats &got, const floats &want, double tolerance, double size,
                 const std::string &what);

std::string text(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The stream of the test program. */
cudaStream_t test_stream();
/* Waits for all that was queued on it. */
void finish();

#endif
