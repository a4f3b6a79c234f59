/* DESIGN: a step's arrays on the device.
 *
 * All arrays of a step are laid side by side in pinned memory and go over in one copy, since every
 * copy costs microseconds whatever its size. The stream reads the pinned memory later, so the next
 * step waits until that has happened before it writes there again. The memory grows, by doubling,
 * in the first steps that need more; growing waits for the stream.
 */
#include "kernels/cuda/step.cuh"

#include <string.h>

void step_memory_open(struct step_memory *memory) {
    *memory = step_memory{};
    cuda_must(cudaEventCreateWithFlags(&memory->copied, cudaEventDisableTiming), "an event");
}

void step_memory_close(struct step_memory *memory) {
    cuda_must(cudaFreeHost(memory->host), "freeing a step's host memory");
    cuda_must(cudaFree(memory->device), "freeing a step's memory");
    cuda_must(cudaEventDestroy(memory->copied), "freeing an event");
}

static void grow(struct step_memory *memory, size_t n, cudaStream_t stream) {
    if (n <= memory->capacity) return;
    cuda_must(cudaStreamSynchronize(stream), "waiting for the stream");
    cuda_must(cudaFreeHost(memory->host), "freeing a step's host memory");
    cuda_must(cudaFree(memory->device), "freeing a step's memory");
    memory->capacity = 2 * n;
    const size_t bytes = memory->capacity * sizeof(int32_t);
    void *host, *device;
    cuda_must(cudaMallocHost(&host, bytes), "taking pinned memory for steps");
    cuda_must(cudaMalloc(&device, bytes), "taking memory for steps");
    memory->host = (int32_t *)host;
    memory->device = (int32_t *)device;
}

/* Puts an array behind the others; returns where it will be on the device. */
static const int32_t *put(struct step_memory *memory, size_t *used, const int32_t *array,
                          size_t n) {
    const size_t at = *used;
    if (array) memcpy(memory->host + at, array, n * sizeof *array);
    *used += n;
    assert(*used <= memory->capacity);
    return memory->device + at;
}

static void number_rows(int32_t *sequence, const struct step *step) {
    for (int s = 0; s < step->S; s++)
        for (int m = step->row_start[s]; m < step->row_start[s + 1]; m++) sequence[m] = s;
}

void step_upload(struct step_memory *memory, const struct step *step, cudaStream_t stream) {
    const size_t M = (size_t)step->M, S = (size_t)step->S, R = (size_t)step->R;
    const size_t copies = (size_t)step->n_copies, entries = S * (size_t)step->table_stride;
    size_t used = 0;
    grow(memory, 4 * M + S + 1 + entries + R + 2 * copies, stream);
    cuda_must(cudaEventSynchronize(memory->copied), "waiting for a step's copy");
    struct device_step *at = &memory->at;
    *at = {step->M, step->S, step->R, step->table_stride, step->n_copies};
    at->sampled = step->sampled;
    at->token = put(memory, &used, step->token, M);
    at->position = put(memory, &used, step->position, M);
    at->slot = put(memory, &used, step->slot, M);
    number_rows(memory->host + used, step);
    at->sequence = put(memory, &used, nullptr, M);
    at->row_start = put(memory, &used, step->row_start, S + 1);
    at->table = put(memory, &used, step->table, entries);
    at->logit_row = put(memory, &used, step->logit_row, R);
    at->copy_from = put(memory, &used, step->copy_from, copies);
    at->copy_to = put(memory, &used, step->copy_to, copies);
    cuda_must(cudaMemcpyAsync(memory->device, memory->host, used * sizeof(int32_t),
                              cudaMemcpyHostToDevice, stream),
              "copying a step");
    cuda_must(cudaEventRecord(memory->copied, stream), "recording an event");
}
