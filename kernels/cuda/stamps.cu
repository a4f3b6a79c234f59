/* The device's clock: an event costs it about a microsecond, and keeps a kernel from beginning
 * before the one in front has ended. And limits: a copy within the device's memory, and the product
 * that cuBLAS does best. */
#include "kernels/cuda/stamps.cuh"

#include "kernels/cuda/cublas.cuh"
#include "kernels/cuda/random.cuh"

void stamps_set(struct stamps *stamps, int i, cudaStream_t stream) {
    assert(i >= 0 && i < N_STAMPS);
    for (int e = 0; !stamps->made && e < N_STAMPS; e++)
        cuda_must(cudaEventCreate(&stamps->event[e]), "making an event");
    stamps->made = true;
    cuda_must(cudaEventRecord(stamps->event[i], stream), "recording an event");
}

uint64_t stamps_between(const struct stamps *stamps, int from, int to) {
    float ms = 0;
    cuda_must(cudaEventSynchronize(stamps->event[to]), "waiting for an event");
    cuda_must(cudaEventElapsedTime(&ms, stamps->event[from], stamps->event[to]),
              "reading the time");
    return (uint64_t)((double)ms * 1e6);
}

void stamps_free(struct stamps *stamps) {
    for (int e = 0; stamps->made && e < N_STAMPS; e++)
        cuda_must(cudaEventDestroy(stamps->event[e]), "freeing an event");
    stamps->made = false;
}

/* ---- limits --------------------------------------------------------------------------------- */

constexpr int PRODUCT = 8192, REPEATS = 5;
constexpr size_t OPERAND_BYTES = 2 * (size_t)PRODUCT * PRODUCT, SOME_BYTES = 1 << 18;

/* Two operands and a result, or two places and what is not used. */
struct room {
    uint8_t *memory; /* [3][OPERAND_BYTES], or NULL: there is no such room */
    cudaEvent_t start, end;
};

/* With ordinary numbers, since zeros would be multiplied faster: some of them over and over. */
static void fill(uint8_t *memory, size_t bytes, cudaStream_t stream) {
    struct random_weights weights;
    random_weights_plan(&weights, DTYPE_BF16, PRODUCT, 1);
    random_rows(memory, &weights, 0, SOME_BYTES, stream);
    for (size_t n = SOME_BYTES; n < bytes; n *= 2)
        cuda_must(cudaMemcpyAsync(memory + n, memory, n, cudaMemcpyDeviceToDevice, stream),
                  "copying");
}

static void open_room(struct room *room, cudaStream_t stream) {
    void *memory = nullptr;
    if (cudaMalloc(&memory, 3 * OPERAND_BYTES) != cudaSuccess) {
        cudaGetLastError(); /* it has been dealt with: nothing is measured */
        memory = nullptr;
    }
    *room = {static_cast<uint8_t *>(memory), nullptr, nullptr};
    if (!memory) return;
    fill(room->memory, 2 * OPERAND_BYTES, stream);
    cuda_must(cudaEventCreate(&room->start), "making an event");
    cuda_must(cudaEventCreate(&room->end), "making an event");
}

static void close_room(struct room *room, cudaStream_t stream) {
    cuda_must(cudaStreamSynchronize(stream), "waiting for the stream");
    cuda_must(cudaFree(room->memory), "freeing memory");
    if (!room->memory) return;
    cuda_must(cudaEventDestroy(room->start), "freeing an event");
    cuda_must(cudaEventDestroy(room->end), "freeing an event");
}

/* Seconds that the fastest of a few runs takes; 0 where there is no clock. */
template <class F> static double fastest(const struct room *room, cudaStream_t stream, F run) {
    double best = 0;
    for (int i = 0; i <= REPEATS; i++) {
        float ms = 0;
        cuda_must(cudaEventRecord(room->start, stream), "recording an event");
        run();
        cuda_must(cudaEventRecord(room->end, stream), "recording an event");
        cuda_must(cudaEventSynchronize(room->end), "waiting for an event");
        cuda_must(cudaEventElapsedTime(&ms, room->start, room->end), "reading the time");
        if (i > 0 && (best == 0 || ms * 1e-3 < best)) best = ms * 1e-3; /* the first one warms up */
    }
    return best;
}

void measure_limits(struct device_limits *out, cudaStream_t stream) {
    struct room room;
    open_room(&room, stream);
    *out = {};
    if (room.memory) {
        uint8_t *x = room.memory, *w = x + OPERAND_BYTES, *y = w + OPERAND_BYTES;
        const double copy_s = fastest(&room, stream, [&] {
            cuda_must(cudaMemcpyAsync(y, x, OPERAND_BYTES, cudaMemcpyDeviceToDevice, stream),
                      "copying");
        });
        if (copy_s > 0) out->bytes_per_s = 2 * (double)OPERAND_BYTES / copy_s;
        const double product_s = !cublas_open() ? 0 : fastest(&room, stream, [&] {
            cublas_product(DTYPE_BF16, y, x, w, PRODUCT, PRODUCT, PRODUCT, false, false, stream);
        });
        if (product_s > 0) out->flops_per_s = 2.0 * PRODUCT * PRODUCT * PRODUCT / product_s;
    }
    close_room(&room, stream);
}
