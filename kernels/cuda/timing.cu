/* The device's clock. An event costs about a microsecond, and a kernel does not start before an
 * event until the previous kernel has ended. Also measures the device's limits: a copy in device
 * memory, and a large product by cuBLAS. */
#include "kernels/cuda/timing.cuh"

#include "kernels/cuda/gemm/matrix.cuh"
#include "kernels/cuda/runtime/cublas.cuh"

void timers_record(struct timers *timers, int i, cudaStream_t stream) {
    assert(i >= 0 && i < N_STAMPS);
    for (int e = 0; !timers->made && e < N_STAMPS; e++)
        cuda_check(cudaEventCreate(&timers->event[e]), "making an event");
    timers->made = true;
    cuda_check(cudaEventRecord(timers->event[i], stream), "recording an event");
}

uint64_t timers_ns(const struct timers *timers, int from, int to) {
    float ms = 0;
    cuda_check(cudaEventSynchronize(timers->event[to]), "waiting for an event");
    cuda_check(cudaEventElapsedTime(&ms, timers->event[from], timers->event[to]),
               "reading the time");
    return (uint64_t)((double)ms * 1e6);
}

void timers_free(struct timers *timers) {
    for (int e = 0; timers->made && e < N_STAMPS; e++)
        cuda_check(cudaEventDestroy(timers->event[e]), "freeing an event");
    timers->made = false;
}

/* ---- limits --------------------------------------------------------------------------------- */

constexpr int PRODUCT = 8192, REPEATS = 5;
constexpr size_t OPERAND_BYTES = 2 * (size_t)PRODUCT * PRODUCT, SOME_BYTES = 1 << 18;

/* Memory for two operands and a result; a copy uses the first two. */
struct limits_memory {
    uint8_t *memory; /* [3][OPERAND_BYTES], or NULL if memory is short */
    cudaEvent_t start, end;
};

/* Fills with repeated ordinary numbers, because products of zeros are faster. */
static void fill(uint8_t *memory, size_t bytes, cudaStream_t stream) {
    struct random_weights weights;
    random_weights_plan(&weights, DTYPE_BF16, PRODUCT, 1);
    random_rows(memory, &weights, 0, SOME_BYTES, stream);
    for (size_t n = SOME_BYTES; n < bytes; n *= 2)
        cuda_check(cudaMemcpyAsync(memory + n, memory, n, cudaMemcpyDeviceToDevice, stream),
                   "copying");
}

static void limits_open(struct limits_memory *on, cudaStream_t stream) {
    void *memory = nullptr;
    if (cudaMalloc(&memory, 3 * OPERAND_BYTES) != cudaSuccess) {
        cudaGetLastError(); /* the error is handled: nothing is measured */
        memory = nullptr;
    }
    *on = {static_cast<uint8_t *>(memory), nullptr, nullptr};
    if (!memory) return;
    fill(on->memory, 2 * OPERAND_BYTES, stream);
    cuda_check(cudaEventCreate(&on->start), "making an event");
    cuda_check(cudaEventCreate(&on->end), "making an event");
}

/* Returns the seconds of the fastest of several runs; 0 without a clock. */
template <class F>
static double fastest(const struct limits_memory *on, cudaStream_t stream, F run) {
    double best = 0;
    for (int i = 0; i <= REPEATS; i++) {
        float ms = 0;
        cuda_check(cudaEventRecord(on->start, stream), "recording an event");
        run();
        cuda_check(cudaEventRecord(on->end, stream), "recording an event");
        cuda_check(cudaEventSynchronize(on->end), "waiting for an event");
        cuda_check(cudaEventElapsedTime(&ms, on->start, on->end), "reading the time");
        /* the first run is a warm-up */
        if (i > 0 && (best == 0 || ms * 1e-3 < best)) best = ms * 1e-3;
    }
    return best;
}

void measure_limits(struct device_limits *out, cudaStream_t stream) {
    struct limits_memory on;
    limits_open(&on, stream);
    *out = {};
    if (on.memory) {
        uint8_t *x = on.memory, *w = x + OPERAND_BYTES, *y = w + OPERAND_BYTES;
        const double copy_s = fastest(&on, stream, [&] {
            cuda_check(cudaMemcpyAsync(y, x, OPERAND_BYTES, cudaMemcpyDeviceToDevice, stream),
                       "copying");
        });
        if (copy_s > 0) out->bytes_per_s = 2 * (double)OPERAND_BYTES / copy_s;
        const double product_s = !cublas_open() ? 0 : fastest(&on, stream, [&] {
            cublas_product(DTYPE_BF16, y, x, w, PRODUCT, PRODUCT, PRODUCT, false, false, 1, stream);
        });
        if (product_s > 0) out->flops_per_s = 2.0 * PRODUCT * PRODUCT * PRODUCT / product_s;
    }
    cuda_check(cudaStreamSynchronize(stream), "waiting for the stream");
    cuda_check(cudaFree(on.memory), "freeing memory");
    if (!on.memory) return;
    cuda_check(cudaEventDestroy(on.start), "freeing an event");
    cuda_check(cudaEventDestroy(on.end), "freeing an event");
}
