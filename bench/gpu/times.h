/* Timing the kernels on a device.
 *
 * DESIGN: each part of the program (products.cpp, ...) lists points: one kernel, one shape, and a
 * function that makes what is timed when the point's turn has come. The list is known before the
 * first point is timed, so that each gets its share of the time that is left: when the machine is
 * slower than thought, points have fewer repeats, and only when even that is not enough are the
 * last ones left out, and named.
 *
 * A point is timed as a CUDA graph of several calls, which go around over copies of what the kernel
 * reads from memory: more of it than the L2 cache holds. So neither the host's speed nor a warm
 * cache is in the figure, but the gap between two kernels of a graph, about a microsecond, is. The
 * figure is the median over repeats of the graph, divided by its calls. Each is written as a line
 * of JSON at once, so that what was measured outlives a crash. */
#ifndef PENSTOCK_BENCH_GPU_TIMES_H
#define PENSTOCK_BENCH_GPU_TIMES_H

#include "kernels/cuda/runtime/device.cuh"

#include <functional>
#include <memory>
#include <string>
#include <vector>

/* ---- what is timed -------------------------------------------------------------------------- */

/* A model's shapes, by the letters of kernels.h. Without a gate the MLP is a product, a function
 * and a product, as GPT-2's. */
struct model {
    const char *name;
    int K, F, H, G, D, V, L, context;
    bool gated;
};
/* With `tiny`, one model that the emulation can run, and likewise the other lists. */
const std::vector<model> &models(bool tiny);
const std::vector<int> &row_counts(bool tiny);

/* Fields of a line of JSON: fields("kernel", "product", "rows", 8). */
std::string field(const char *name, const char *value);
std::string field(const char *name, const std::string &value);
std::string field(const char *name, int value);
std::string field(const char *name, double value);
inline std::string fields() {
    return "";
}
template <class T, class... REST>
std::string fields(const char *name, const T &value, const REST &...rest) {
    const std::string more = fields(rest...);
    return field(name, value) + (more.empty() ? "" : ", ") + more;
}

/* Queues the call with this number; copies are chosen by it. */
using call = std::function<void(int)>;

struct point {
    std::string fields;
    double bytes, flops; /* that a call must move and compute at least */
    int copies;          /* that calls go around over; 1 where what is read may be in the cache */
    std::function<call()> open;
};

/* What several points share: made when the first of them is opened, gone with the last. */
template <class T> struct shared {
    std::function<std::shared_ptr<T>()> make;
    std::shared_ptr<T> made;
    std::shared_ptr<T> get() {
        if (!made) made = make();
        return made;
    }
};
template <class T> std::shared_ptr<shared<T>> share(std::function<std::shared_ptr<T>()> make) {
    return std::make_shared<shared<T>>(shared<T>{std::move(make), nullptr});
}

std::vector<point> list_limits(bool tiny);
std::vector<point> list_products(bool tiny);
std::vector<point> list_attention(bool tiny);
std::vector<point> list_rows(bool tiny);
std::vector<point> list_sampling(bool tiny);
std::vector<point> list_wgmma(bool tiny);

/* ---- memory --------------------------------------------------------------------------------- */

/* The stream of all timed work. */
cudaStream_t the_stream();

/* Random bytes with some bits cleared and others set, by 16-bit words: so they are ordinary numbers
 * of a type. Zeros would be multiplied faster than what stands in a model. */
struct pattern {
    uint16_t keep, set;
};
constexpr pattern ANY = {0xffff, 0};
/* Weights and activations of 0.03 to 0.12, and queries and keys of 0.5 to 2, of both signs. In
 * float32 every other word is the upper one, and the lower does no harm. */
constexpr pattern BF16_SMALL = {0x80ff, 0x3d00}, BF16_LARGE = {0x80ff, 0x3f00};
constexpr pattern F16_SMALL = {0x87ff, 0x2800}, F16_LARGE = {0x87ff, 0x3800};
constexpr pattern E4M3_ORDINARY = {0xf7f7, 0}; /* no NaN */

struct timed_memory {
    uint8_t *data;
    size_t bytes;
    explicit timed_memory(size_t bytes); /* as it comes */
    timed_memory(size_t bytes, const pattern &random);
    template <class T>
    explicit timed_memory(const std::vector<T> &host) : timed_memory(host.size() * sizeof(T)) {
        put(host.data(), bytes);
    }
    timed_memory(const timed_memory &) = delete;
    timed_memory &operator=(const timed_memory &) = delete;
    ~timed_memory();
    void put(const void *host, size_t n); /* into the first n bytes */
    void repeat(size_t n);                /* these over and over */
    template <class T> T *as() const {
        return reinterpret_cast<T *>(data);
    }
};
std::vector<uint16_t> random_words(size_t n, const pattern &random);

/* How many copies of so many bytes are more than the L2 cache holds. */
int cold_copies(size_t bytes, int most);
/* Whether the device has the instructions of sm_90a. */
bool has_wgmma();

/* ---- cuBLAS --------------------------------------------------------------------------------- */

/* Whether cuBLAS can be loaded; with a workspace of its own, so that it may be captured. */
bool cublas_ready();
/* y[M][N] = x[M][K] times w[N][K]^T in bfloat16, by the algorithm that cuBLAS chooses. */
void cublas_run(void *y, const void *x, const void *w, int M, int N, int K, bool float_out);

#endif
