/* DESIGN: a step's arrays on the device.
 *
 * All arrays of a step, the plan of its attention among them, are laid side by side in pinned
 * memory and go over in one copy, since every copy costs microseconds whatever its size. The stream
 * reads the pinned memory later, so the next step waits until that has happened before it writes
 * there again. The memory is for the largest step that the limits allow, and taken with the cache;
 * of the block tables only as much goes over as the step's longest sequence has.
 */
#include "kernels/cuda/step.cuh"

#include <string.h>

#include "kernels/cuda/room.cuh"

enum status step_memory_open(struct step_memory *memory, struct err *err) {
    *memory = step_memory{};
    return room_made(cudaEventCreateWithFlags(&memory->copied, cudaEventDisableTiming), "event",
                     err);
}

static void drop(struct step_memory *memory) {
    cuda_must(cudaFreeHost(memory->host), "freeing a step's host memory");
    cuda_must(cudaFree(memory->device), "freeing a step's memory");
    memory->host = memory->device = nullptr;
    memory->capacity = 0;
}

void step_memory_close(struct step_memory *memory) {
    drop(memory);
    if (memory->copied) cuda_must(cudaEventDestroy(memory->copied), "freeing an event");
}

enum { ITEM_NUMBERS = sizeof(struct attention_item) / sizeof(int32_t) };
static_assert(ITEM_NUMBERS * sizeof(int32_t) == sizeof(struct attention_item), "no padding");

/* Entries of a sequence's line when its last position is `last`. */
static size_t line_of(int last, int B) {
    return (size_t)last / (size_t)B + 1;
}

/* The numbers of the largest step. */
static size_t largest(const struct attention_work *work, int B) {
    const struct step_limits *most = &work->limits;
    const size_t M = (size_t)most->max_rows, S = (size_t)most->max_seqs;
    const size_t entries = S * line_of(most->max_context - 1, B);
    const size_t items = (size_t)work->most_items * ITEM_NUMBERS;
    return 5 * M + (S + 1) + entries + 2 * S + items; /* in the order of step_upload */
}

size_t step_memory_bytes(const struct attention_work *work, int B) {
    return largest(work, B) * sizeof(int32_t);
}

enum status step_memory_reserve(struct step_memory *memory, const struct attention_work *work,
                                int B, cudaStream_t stream, struct err *err) {
    static const struct room steps = {
        "a step's arrays", "max-num-batched-tokens",
        "lower --max-num-batched-tokens, --max-num-seqs or --max-model-len"};
    const size_t n = largest(work, B), bytes = n * sizeof(int32_t);
    if (n <= memory->capacity) return STATUS_OK;
    cuda_must(cudaStreamSynchronize(stream), "waiting for the stream");
    drop(memory);
    void *host, *device;
    enum status status = room_pinned(&host, bytes, &steps, err);
    if (!status) status = room_device(&device, bytes, &steps, err);
    memory->host = (int32_t *)host;
    if (status) return status;
    memory->device = (int32_t *)device;
    memory->capacity = n;
    return STATUS_OK;
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

/* The longest line that the step's sequences have, which none exceeds that the limits allow. */
static int longest_line(const struct step *step, const struct step_limits *limits, int B) {
    int last = 0;
    for (int s = 0; s < step->S; s++) {
        const int end = step->row_start[s + 1];
        if (end > step->row_start[s] && step->position[end - 1] > last)
            last = step->position[end - 1];
    }
    assert(step->M <= limits->max_rows && step->S <= limits->max_seqs &&
           last < limits->max_context && step->n_copies <= limits->max_seqs);
    return (int)line_of(last, B);
}

/* Lines of `stride` entries, of which a sequence may have less. */
static void copy_tables(int32_t *to, const struct step *step, int stride) {
    const size_t n = (size_t)(stride < step->table_stride ? stride : step->table_stride);
    for (int s = 0; s < step->S; s++)
        memcpy(to + (size_t)s * (size_t)stride,
               step->table + (size_t)s * (size_t)step->table_stride, n * sizeof *to);
}

void step_upload(struct step_memory *memory, const struct step *step, struct attention_work *work,
                 int B, cudaStream_t stream) {
    const size_t M = (size_t)step->M, S = (size_t)step->S, R = (size_t)step->R;
    const size_t copies = (size_t)step->n_copies;
    const int stride = longest_line(step, &work->limits, B);
    size_t used = 0;
    cuda_must(cudaEventSynchronize(memory->copied), "waiting for a step's copy");
    struct device_step *at = &memory->at;
    *at = {step->M, step->S, step->R, stride, step->n_copies};
    at->sampled = step->sampled;
    at->token = put(memory, &used, step->token, M);
    at->position = put(memory, &used, step->position, M);
    at->slot = put(memory, &used, step->slot, M);
    number_rows(memory->host + used, step);
    at->sequence = put(memory, &used, nullptr, M);
    at->row_start = put(memory, &used, step->row_start, S + 1);
    copy_tables(memory->host + used, step, stride);
    at->table = put(memory, &used, nullptr, S * (size_t)stride);
    at->logit_row = put(memory, &used, step->logit_row, R);
    at->copy_from = put(memory, &used, step->copy_from, copies);
    at->copy_to = put(memory, &used, step->copy_to, copies);
    const int items = attention_work_plan(work, (attention_item *)(memory->host + used), step);
    work->items = (const attention_item *)put(memory, &used, nullptr, (size_t)items * ITEM_NUMBERS);
    cuda_must(cudaMemcpyAsync(memory->device, memory->host, used * sizeof(int32_t),
                              cudaMemcpyHostToDevice, stream),
              "copying a step");
    cuda_must(cudaEventRecord(memory->copied, stream), "recording an event");
}
