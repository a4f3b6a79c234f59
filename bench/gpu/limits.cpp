/* Limits of the device, measured with other libraries: a copy and a large product. Also the time of
 * the smallest kernel, a lower limit for every kernel. */
#include "bench/gpu/times.h"

#include "kernels/cuda/rows/rows.cuh"

static point copying(size_t bytes) {
    return {fields("kernel", "copy"), 2.0 * (double)bytes, 0, 1, [=]() -> call {
                auto from = std::make_shared<timed_memory>(bytes, ANY);
                auto to = std::make_shared<timed_memory>(bytes);
                return [=](int) {
                    cuda_check(cudaMemcpyAsync(to->data, from->data, bytes,
                                               cudaMemcpyDeviceToDevice, the_stream()),
                               "copying");
                };
            }};
}

static point large_product(int n) {
    const size_t bytes = 2 * (size_t)n * (size_t)n;
    return {fields("kernel", "large product", "n", n), 3.0 * (double)bytes, 2.0 * n * n * n, 1,
            [=]() -> call {
                auto x = std::make_shared<timed_memory>(bytes, BF16_SMALL);
                auto w = std::make_shared<timed_memory>(bytes, BF16_SMALL);
                auto y = std::make_shared<timed_memory>(bytes);
                return [=](int) { cublas_run(y->data, x->data, w->data, n, n, n, false); };
            }};
}

static point smallest() {
    return {fields("kernel", "smallest"), 0, 0, 1, []() -> call {
                auto x = std::make_shared<timed_memory>(256, BF16_SMALL);
                return [=](int) {
                    rows_bias(DTYPE_BF16, x->data, (float *)x->data + 32, 1, 1, 8, the_stream());
                };
            }};
}

std::vector<point> list_limits(bool tiny) {
    std::vector<point> points = {copying(tiny ? 4096 : (size_t)4 << 30), smallest()};
    if (!tiny && cublas_ready()) points.push_back(large_product(8192));
    return points;
}
