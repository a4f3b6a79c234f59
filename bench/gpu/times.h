/* Times kernels on a device.
 *
 * DESIGN: each part of the program (products.cpp, ...) lists points: one kernel, one shape, and a
 * function that prepares the timed call when it is the point's turn. The list is known before the
 * first point is timed, so each point gets its share of the remaining time. Making the list does
 * not use the device. A line is written before a point begins, so a point that hangs can be named
 * and left out. On a slow machine,
 * points have fewer repeats; if that is not enough, the last points are left out and listed.
 *
 * A point is timed as a CUDA graph of several calls, which cycle over copies of the kernel's inputs
 * in memory. The copies exceed the L2 cache. So the figure excludes the host's speed and a warm
 * cache. It includes the gap between two kernels of a graph, about a microsecond. The figure is the
 * median over repeats of the graph, divided by the number of calls. It is written immediately as a
 * line of JSON, so that it survives a later crash. */
#ifndef PENSTOCK_BENCH_GPU_TIMES_H
#define PENSTOCK_BENCH_GPU_TIMES_H

#include "kernels/cuda/runtime/device.cuh"

#include <functional>
#include <memory>
#include <string>
#include <vector>

/* ---- points --------------------------------------------------------------------------------- */

/* A model's shape, with the letters of kernels.h. If it is not gated, the MLP is a product, a
 * function and a product, as in GPT-2. */
struct model {
    const char *name;
    int K, F, H, G, D, V, L, context;
    bool gated;
};
/* With `tiny`, this and the other lists are small enough for the emulation. */
const std::vector<model> &models(bool tiny);
const std::vector<int> &row_counts(bool tiny);

/* Writes fields of a line of JSON: fields("kernel", "product", "rows", 8). */
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

/* Queues the call of this index, which selects the copies. */
using call = std::function<void(int)>;

struct point {
    std::string fields;
    double bytes, flops; /* minimum per call */
    int copies;          /* number of copies to cycle over; 1: inputs may be cached */
    std::function<call()> open;
    /* optional: compares results and returns fields of JSON; called once, after `open` */
    std::function<std::string()> compare;
};

/* Data that several points share: made when the first one opens, freed with the last. */
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
std::vector<point> list_mma(bool tiny);
std::vector<point> list_wgmma(bool tiny);

/* ---- memory --------------------------------------------------------------------------------- */

/* Returns the stream of all timed work. */
cudaStream_t the_stream();

/* Random 16-bit words with some bits cleared and others set, so that they are ordinary numbers of a
 * type. Products of zeros would be faster than those of a real model. */
struct pattern {
    uint16_t keep, set;
};
constexpr pattern ANY = {0xffff, 0};
/* SMALL: weights and activations of 0.03 to 0.12. LARGE: queries and keys of 0.5 to 2. Both signs.
 * In float32, every other word is the upper half; the lower half does not matter. */
constexpr pattern BF16_SMALL = {0x80ff, 0x3d00}, BF16_LARGE = {0x80ff, 0x3f00};
constexpr pattern F16_SMALL = {0x87ff, 0x2800}, F16_LARGE = {0x87ff, 0x3800};
constexpr pattern E4M3_ORDINARY = {0xf7f7, 0}; /* no NaN */

struct timed_memory {
    uint8_t *data;
    size_t bytes;
    explicit timed_memory(size_t bytes); /* uninitialised */
    timed_memory(size_t bytes, const pattern &random);
    template <class T>
    explicit timed_memory(const std::vector<T> &host) : timed_memory(host.size() * sizeof(T)) {
        put(host.data(), bytes);
    }
    timed_memory(const timed_memory &) = delete;
    timed_memory &operator=(const timed_memory &) = delete;
    ~timed_memory();
    void put(const void *host, size_t n); /* fills the first n bytes */
    void repeat(size_t n);                /* repeats the first n bytes to the end */
    template <class T> T *as() const {
        return reinterpret_cast<T *>(data);
    }
};
std::vector<uint16_t> random_words(size_t n, const pattern &random);

/* Returns the number of copies, up to `most`, that exceed the L2 cache. */
int cold_copies(size_t bytes, int most);
/* Does the device have the instructions of sm_90a? */
bool has_wgmma();

/* ---- cuBLAS --------------------------------------------------------------------------------- */

/* Can cuBLAS be loaded? It has a separate workspace, so that graphs can capture it. */
bool cublas_ready();
/* Computes y[M][N] = x[M][K] times w[N][K]^T in bfloat16; cuBLAS selects the algorithm. */
void cublas_run(void *y, const void *x, const void *w, int M, int N, int K, bool float_out);

#endif
