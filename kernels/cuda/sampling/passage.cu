/* DESIGN: settings of samples that are not uploaded with a step's arrays, either because the host
 * lists a row's changes or a grammar's mask while the step already runs, or because of their size.
 *
 * They use a separate stream, whose copy overlaps with the step. Between the step and the sampling
 * kernels there is only an event, which has long passed. */
#include "kernels/cuda/sampling/passage.cuh"

void passages_open(struct passages *passages) {
    *passages = {};
    cuda_check(cudaStreamCreateWithFlags(&passages->copies, cudaStreamNonBlocking), "a stream");
    for (struct passage &p : passages->all)
        for (cudaEvent_t *event : {&p.copied, &p.used})
            cuda_check(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "an event");
}

static void drop_memory(struct passage *p) {
    cuda_check(cudaFreeHost(p->memory.host), "freeing pinned memory for samples");
    cuda_check(cudaFree(p->memory.device), "freeing memory for samples");
    p->memory = {};
    p->capacity = 0;
}

void passages_close(struct passages *passages) {
    for (struct passage &p : passages->all) {
        drop_memory(&p);
        for (cudaEvent_t event : {p.copied, p.used})
            if (event) cuda_check(cudaEventDestroy(event), "freeing an event");
    }
    if (passages->copies) cuda_check(cudaStreamDestroy(passages->copies), "closing a stream");
}

struct passage *passage_take(struct passages *passages, size_t bytes) {
    struct passage *p = &passages->all[passages->n_taken++ % MAX_IN_FLIGHT];
    void *memory;
    if (!cuda_ok(cudaEventSynchronize(p->used), "waiting for samples")) return nullptr;
    if (bytes <= p->capacity) return p;
    drop_memory(p);
    if (!cuda_ok(cudaMallocHost(&memory, 2 * bytes), "taking pinned memory for samples"))
        return nullptr;
    p->memory.host = (uint8_t *)memory;
    if (!cuda_ok(cudaMalloc(&memory, 2 * bytes), "taking memory for samples")) return nullptr;
    p->memory.device = (uint8_t *)memory;
    p->capacity = 2 * bytes;
    return p;
}

void passage_send(const struct passages *passages, const struct passage *p, size_t bytes,
                  cudaStream_t stream) {
    cuda_check(cudaMemcpyAsync(p->memory.device, p->memory.host, bytes, cudaMemcpyHostToDevice,
                               passages->copies),
               "copying samples");
    cuda_check(cudaEventRecord(p->copied, passages->copies), "recording an event");
    cuda_check(cudaStreamWaitEvent(stream, p->copied, 0), "waiting for samples");
}

void passage_mark_used(const struct passage *p, cudaStream_t stream) {
    cuda_check(cudaEventRecord(p->used, stream), "recording an event");
}
